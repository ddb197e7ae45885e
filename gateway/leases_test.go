package gateway

import (
	"context"
	"slices"
	"testing"
	"time"

	"skein/flightproto"
)

func TestLeasesAbandonAttemptsOnSilentWorkers(t *testing.T) {
	now := time.Now()
	l := newLeases(30 * time.Second)
	l.now = func() time.Time { return now }
	l.renew("a")
	l.renew("b")
	hold := func(workers ...string) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(t.Context())
		return ctx, l.hold(workers, cancel)
	}
	onBoth, endBoth := hold("a", "b")
	defer endBoth()
	onA, endA := hold("a")
	defer endA()
	over, endOver := hold("b")
	endOver()
	now = now.Add(29 * time.Second)
	l.renew("a")
	young, endYoung := hold("b")
	defer endYoung()
	if got := l.sweep(); len(got) != 0 {
		t.Fatalf("swept %v before any lease is over", got)
	}
	now = now.Add(time.Second)
	if got := l.sweep(); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("swept %v", got)
	}
	if flightproto.ReasonOf(context.Cause(onBoth)) != flightproto.Unavailable {
		t.Errorf("the attempt on b: %v", context.Cause(onBoth))
	}
	for name, ctx := range map[string]context.Context{"on a": onA, "that is over": over, "that just began": young} {
		if ctx.Err() != nil {
			t.Errorf("the attempt %s was abandoned: %v", name, context.Cause(ctx))
		}
	}
	now = now.Add(29 * time.Second)
	l.renew("a")
	if l.sweep(); young.Err() == nil || onA.Err() != nil {
		t.Error("leases do not run on")
	}
}
