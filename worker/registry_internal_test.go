package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"skein/flightproto"
	"skein/planner"
)

func registered(r *registry, id string, fragments int, lease time.Time) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	q := &query{id: id, ctx: ctx, cancel: cancel, pins: newPins(), fragments: map[planner.FragmentID]*fragment{}}
	var list []*fragment
	for i := range fragments {
		f := &fragment{plan: &planner.Fragment{ID: planner.FragmentID(i)}}
		f.outputs = []*output{{fragment: f, exchange: &planner.Exchange{ID: planner.ExchangeID(i), Kind: planner.MergeExchange}}}
		list = append(list, f)
	}
	_, err := r.add(q, list, lease)
	return err
}

func TestRegistryCountsFragments(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRegistry(5, func() time.Time { return now })
	for id, want := range map[string]bool{"a": true} {
		if err := registered(r, id, 3, now.Add(time.Minute)); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := registered(r, "b", 3, now.Add(time.Minute)); flightproto.ReasonOf(err) != flightproto.Reservation {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := registered(r, "c", 2, now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	out, start, err := r.claim("a", 1, 1, 0)
	if err != nil || !start {
		t.Fatalf("claim: %v", err)
	}
	if _, _, err := r.claim("a", 1, 1, 0); err == nil {
		t.Error("one output was claimed twice")
	}
	now = now.Add(2 * time.Minute)
	if swept := r.sweep(); len(swept) != 0 {
		t.Errorf("swept %v although a fragment is being read", swept)
	}
	r.cancelQuery("a", flightproto.WithReason(flightproto.Cancelled, context.Canceled))
	if q, f := r.size(); q != 2 || f != 3 { // a's running fragment stays until it ends
		t.Errorf("%d queries with %d fragments are left", q, f)
	}
	if _, _, err := r.claim("a", 0, 0, 0); flightproto.ReasonOf(err) != flightproto.Cancelled {
		t.Errorf("claim of a swept query: %v", err)
	}
	r.end(out.fragment)
	r.end(out.fragment) // once is enough, twice is harmless
	if q, f := r.size(); q != 1 || f != 2 {
		t.Errorf("%d queries with %d fragments are left", q, f)
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRegistry(5, func() time.Time { return now })
	for i := range maxTombstones + 100 {
		r.cancelQuery(fmt.Sprint(i), context.Canceled)
	}
	if len(r.cancelled) != maxTombstones || len(r.order) != maxTombstones {
		t.Errorf("%d and %d are remembered", len(r.cancelled), len(r.order))
	}
	if err := registered(r, fmt.Sprint(maxTombstones+99), 1, now.Add(time.Hour)); err == nil {
		t.Error("a cancelled query was started")
	}
	now = now.Add(tombstoneLife + time.Second)
	r.cancelQuery("last", context.Canceled)
	if len(r.cancelled) != 1 {
		t.Errorf("%d old ones are remembered", len(r.cancelled))
	}
}

func TestSweepSparesAQueryThatIsBeingRead(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRegistry(10, func() time.Time { return now })
	if err := registered(r, "idle", 1, now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := registered(r, "read", 2, now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.queries["read"].fragments {
		f.running = true
		break
	}
	now = now.Add(time.Minute)
	if swept := r.sweep(); len(swept) != 1 || swept[0] != "idle" {
		t.Fatalf("swept %v, want only the query that nobody reads", swept)
	}
}
