package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

var errFake = flightproto.WithReason(flightproto.Unavailable, sqlstate.New(sqlstate.ConnectionFailure, "the worker went away"))

// fakeQueries gather what the workers send, encoded as it comes and in order.
var fakeQueries = map[string]string{"forwarded": "SELECT id FROM t", "merged": "SELECT id FROM t ORDER BY id"}

// A fragment that fails before it has sent anything is started again, alone, while
// the others go on; what was started is ended everywhere.
func TestFragmentsAreStartedAgain(t *testing.T) {
	for name, failure := range map[string]error{
		"a lost worker":   errFake,
		"a moved tablet":  flightproto.WithReason(flightproto.TabletMoved, sqlstate.New(sqlstate.ConnectionFailure, "it is elsewhere")),
		"a forgetful one": flightproto.WithReason(flightproto.NotStarted, sqlstate.New(sqlstate.UndefinedObject, "never heard of it")),
	} {
		for kind, query := range fakeQueries {
			t.Run(name+"/"+kind, func(t *testing.T) {
				f := newFakes(t, 3, nil)
				var failed atomic.Bool
				for _, w := range f.workers {
					w.get = func(tablet catalog.TabletID, _ string) (int, error) {
						if tablet == 2 && failed.CompareAndSwap(false, true) {
							return 0, failure
						}
						return 0, nil
					}
				}
				ids, err := f.ids(t.Context(), query)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(ids)
				if !slices.Equal(ids, wantIDs(1, 2, 3)) {
					t.Errorf("%d ids", len(ids))
				}
				again := f.restarts()
				if len(again) != 1 || len(again[0].Fragments) != 1 || again[0].Fragments[0].TabletId != 2 {
					t.Errorf("started again: %v", again)
				}
				for _, r := range f.starts() {
					if !strings.Contains(r.GetQueryId(), ".1") {
						t.Errorf("another attempt %s was made", r.GetQueryId())
					}
					if r.GetSnapshot() != again[0].GetSnapshot() {
						t.Errorf("snapshot %d instead of %d", r.GetSnapshot(), again[0].GetSnapshot())
					}
				}
				f.mustEndAll()
			})
		}
	}
}

// A tablet that moves while its query runs is read where it is now, by its newer
// generation.
func TestMovedFragmentsFollowTheirTablet(t *testing.T) {
	f := newFakes(t, 2, nil)
	f.change(func(table *catalog.Table) { table.Tablets[1].Replicas = []catalog.Replica{{ID: 1, Node: 1}} })
	if _, err := f.gateway.directory.Fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range f.workers {
		w.get = func(tablet catalog.TabletID, _ string) (int, error) {
			if tablet != 2 || w.id == 2 {
				return 0, nil
			}
			f.change(func(table *catalog.Table) {
				table.Tablets[1].Generation, table.Tablets[1].Replicas = 5, []catalog.Replica{{ID: 9, Node: 2}}
			})
			return 0, flightproto.WithReason(flightproto.TabletMoved, sqlstate.New(sqlstate.ConnectionFailure, "it has moved"))
		}
	}
	ids, err := f.ids(t.Context(), fakeQueries["merged"])
	if err != nil || !slices.Equal(ids, wantIDs(1, 2, 3)) {
		t.Errorf("%d ids, error %v", len(ids), err)
	}
	again := f.restarts()
	if len(again) != 1 || again[0].Fragments[0].TabletGeneration != 5 || again[0].MetadataVersion != f.metadata.Load().Version {
		t.Errorf("started again: %v", again)
	}
	f.mustEndAll()
}

// What fails for good is tried a bounded number of times; a stream that breaks
// within its rows is not started again, and rows are never sent twice.
func TestRestartsAreBounded(t *testing.T) {
	f := newFakes(t, 2, nil)
	fail := func(cut int) {
		for _, w := range f.workers {
			w.mu.Lock()
			w.started = nil
			w.mu.Unlock()
			w.get = func(tablet catalog.TabletID, _ string) (int, error) {
				if tablet == 3 {
					return cut, errFake
				}
				return 0, nil
			}
		}
	}
	for kind, query := range fakeQueries {
		fail(0)
		ids, err := f.ids(t.Context(), query)
		if sqlstate.CodeOf(err) != sqlstate.ConnectionFailure {
			t.Errorf("%s: %d ids, error %v", kind, len(ids), err)
		}
		if n := len(f.restarts()); n == 0 || n > maxRestarts*maxAttempts {
			t.Errorf("%s: %d restarts", kind, n)
		}
		f.mustEndAll()
	}
	fail(10)
	ids, err := f.ids(t.Context(), fakeQueries["forwarded"])
	slices.Sort(ids)
	if sqlstate.CodeOf(err) != sqlstate.ConnectionFailure || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("%d ids, error %v", len(ids), err)
	}
	if again := f.restarts(); len(again) != 0 {
		t.Errorf("started again: %v", again)
	}
	f.mustEndAll()
}

// A worker that knows of newer metadata than the gateway makes it ask the quorum
// and plan again, and the answer is that of the newer layout.
func TestWorkersThatKnowMoreAreFollowed(t *testing.T) {
	reason := func(r flightproto.Reason, code sqlstate.Code) error {
		return flightproto.WithReason(r, sqlstate.New(code, "the gateway is behind"))
	}
	for name, c := range map[string]struct {
		change func(*catalog.Table)
		answer error
		want   []int64
	}{
		"a generation": {func(table *catalog.Table) { table.Tablets[0].Generation++ }, reason(flightproto.StaleMetadata, sqlstate.SerializationFailure), wantIDs(1, 2, 3)},
		"a move": {func(table *catalog.Table) {
			table.Tablets[0].Generation, table.Tablets[0].Replicas = 2, []catalog.Replica{{ID: 5, Node: 2}}
		}, reason(flightproto.TabletMoved, sqlstate.ConnectionFailure), wantIDs(1, 2, 3)},
		"a split": {func(table *catalog.Table) {
			low, high := table.Tablets[0], table.Tablets[0]
			low.ID, high.ID, low.BucketHigh, high.BucketLow = 11, 12, 1, 1
			table.Tablets = append([]catalog.Tablet{low, high}, table.Tablets[1:]...)
		}, reason(flightproto.TabletSplit, sqlstate.SerializationFailure), wantIDs(11, 12, 2, 3)},
		"a table's version": {func(table *catalog.Table) { table.Version++ }, reason(flightproto.StaleMetadata, sqlstate.SerializationFailure), wantIDs(1, 2, 3)},
	} {
		for kind, query := range fakeQueries {
			t.Run(name+"/"+kind, func(t *testing.T) {
				f := newFakes(t, 2, nil)
				f.change(c.change)
				for _, w := range f.workers {
					w.start = func(_ context.Context, r *pb.StartRequest) error {
						if r.GetMetadataVersion() < f.metadata.Load().Version {
							return c.answer
						}
						return nil
					}
				}
				before := f.quorum.Load()
				ids, err := f.ids(t.Context(), query)
				slices.Sort(ids)
				if err != nil || !slices.Equal(ids, c.want) {
					t.Errorf("%d ids, error %v", len(ids), err)
				}
				if f.quorum.Load() == before {
					t.Error("the quorum was not asked")
				}
				f.mustEndAll()
			})
		}
	}
}

// Metadata that never catches up ends the query, soon and with what a worker said.
func TestStaleMetadataIsNotFollowedForEver(t *testing.T) {
	f := newFakes(t, 2, nil)
	var asked atomic.Int32
	for _, w := range f.workers {
		w.start = func(context.Context, *pb.StartRequest) error {
			asked.Add(1)
			return flightproto.WithReason(flightproto.TabletSplit, sqlstate.New(sqlstate.SerializationFailure, "it was split"))
		}
	}
	_, err := f.ids(t.Context(), fakeQueries["merged"])
	if sqlstate.CodeOf(err) != sqlstate.SerializationFailure || !strings.Contains(err.Error(), "it was split") {
		t.Errorf("error %v", err)
	}
	if n := int(asked.Load()); n < 2 || n > 2*maxAttempts {
		t.Errorf("%d starts", n)
	}
}

// A worker that takes the request and never answers is tried no longer than the
// time of a start; another one takes its place.
func TestStartsHaveADeadline(t *testing.T) {
	f := newFakes(t, 2, func(c *Config) { c.StartTimeout = 50 * time.Millisecond })
	var hung atomic.Int32
	f.workers[0].start = func(ctx context.Context, _ *pb.StartRequest) error {
		hung.Add(1)
		<-ctx.Done()
		return errors.New("nobody waits for this")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ids, err := f.ids(ctx, fakeQueries["merged"])
	if err != nil || !slices.Equal(ids, wantIDs(1, 2, 3)) {
		t.Errorf("%d ids, error %v", len(ids), err)
	}
	if hung.Load() == 0 {
		t.Error("the slow worker was not asked")
	}
	f.mustEndAll()
}
