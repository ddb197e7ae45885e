package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"skein/flightproto"
	"skein/planner"
)

// measuredQuery registers a measured query of one fragment.
func measuredQuery(r *registry, id string, lease time.Time) (*fragment, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	q := &query{id: id, measured: true, ctx: ctx, cancel: cancel, pins: newPins(), fragments: map[planner.FragmentID]*fragment{}}
	f := &fragment{plan: &planner.Fragment{}}
	f.outputs = []*output{{fragment: f, exchange: &planner.Exchange{Kind: planner.MergeExchange}}}
	_, err := r.add(q, []*fragment{f}, lease)
	return f, err
}

// Reports are bounded in number, and those that nobody comes for go with the
// lease.
func TestReportsAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRegistry(10_000, func() time.Time { return now })
	for i := range maxReports {
		f, err := measuredQuery(r, fmt.Sprint(i), now.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		r.end(f)
	}
	if _, err := measuredQuery(r, "more", now.Add(time.Minute)); flightproto.ReasonOf(err) != flightproto.Reservation {
		t.Errorf("beyond the limit: %v", err)
	}
	if queries, fragments := r.size(); queries != 0 || fragments != 0 {
		t.Errorf("%d queries and %d fragments are registered", queries, fragments)
	}
	now = now.Add(time.Minute)
	r.sweep()
	if _, err := measuredQuery(r, "more", now.Add(time.Minute)); err != nil {
		t.Errorf("after the leases: %v", err)
	}
}

// Whoever takes a report waits for fragments that still run, but not for ever,
// and not when the report is dropped.
func TestReportWaitsForFragments(t *testing.T) {
	over := errors.New("over")
	for name, c := range map[string]struct {
		during func(r *registry, f *fragment, cancel func())
		want   int // fragments, -1 for no report
	}{
		"ends":     {func(r *registry, f *fragment, _ func()) { f.stats = &planner.FragmentStats{}; r.end(f) }, 1},
		"gives up": {func(_ *registry, _ *fragment, cancel func()) { cancel() }, 0},
		"dropped":  {func(r *registry, _ *fragment, _ func()) { r.cancelQuery("q", over) }, -1},
	} {
		r := newRegistry(10, time.Now)
		f, err := measuredQuery(r, "q", time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.claim("q", 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		q := f.query
		go func() { // when the taker has ended the query
			<-q.ctx.Done()
			c.during(r, f, cancel)
		}()
		fragments, ok := r.takeReport(ctx, "q", over)
		cancel()
		if ok != (c.want >= 0) || len(fragments) != max(c.want, 0) {
			t.Errorf("%s: %d fragments, %t", name, len(fragments), ok)
		}
		r.end(f)
	}
}
