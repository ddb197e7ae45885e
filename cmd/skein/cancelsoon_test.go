package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	cancelsOfEach = 20
	// soonIdle is by when workers are idle after 19 of 20 cancels. On a machine with
	// nothing else to do it is 100 ms, which `make bench-cluster` measures; here other
	// tests run as well.
	soonIdle = time.Second
)

// Whatever a query does at the moment, workers stop soon, and not only now and then.
func TestWorkersAreSoonIdleAfterMostCancels(t *testing.T) {
	c := startCluster(t, "--query-memory", "64MiB")
	c.awaitWorkers()
	own := dial(t, c.flight)
	cancelTables(t, own)
	w := watch(t, c)
	for name, statement := range map[string]string{
		"scan":        shapes["scan"],
		"loop":        shapes["join without keys"],
		"repartition": shapes["exchange between workers"],
		"aggregate":   shapes["aggregate"],
		"sort":        shapes["sort"],
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			w := &watcher{t: t, conns: w.conns, Authority: w.Authority}
			took := make([]time.Duration, cancelsOfEach)
			for i := range took {
				w.await(ctx, "getting idle", allIdle)
				took[i] = cancelSoon(ctx, t, c.flight, statement, w, time.Duration(7*i)*time.Millisecond)
			}
			slices.Sort(took)
			t.Logf("idle after %s in the middle, %s at most", took[len(took)/2], took[len(took)-1])
			if p95 := took[len(took)*95/100-1]; p95 > soonIdle {
				t.Errorf("the workers were idle after %s only", p95)
			}
		})
	}
}

// cancelSoon cancels a query some time after several workers have begun and tells
// how long they went on.
func cancelSoon(ctx context.Context, t *testing.T, flight, statement string, w *watcher, after time.Duration) time.Duration {
	t.Helper()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	own := dial(t, flight)
	defer func() { _ = own.Close() }()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		r, err := own.Run(running, statement)
		for err == nil {
			b, failed := r.Next()
			if err = failed; b == nil && err == nil {
				t.Errorf("the query ended before it was cancelled: %s", statement)
				break
			}
		}
		if r != nil {
			r.Close()
		}
	})
	w.await(ctx, "starting", func(busy, _ int, _ int64) bool { return busy > 1 })
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	cancelled := time.Now()
	cancel()
	w.await(ctx, "ending", allIdle)
	return time.Since(cancelled)
}
