package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein/gateway/session"
	"skein/sqlstate"
)

func smallLedger(queue int) *ledger {
	return newLedger(ledgerLimits{fragments: 4, bytes: 100, queryFragments: 4, queue: queue, wait: time.Minute})
}

func mustReserve(t *testing.T, l *ledger, n need) *permit {
	t.Helper()
	p, err := l.reserve(t.Context(), n, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLedgerDeniesThenReleases(t *testing.T) {
	for name, n := range map[string]need{"fragments": {fragments: 1}, "bytes": {bytes: 1}} {
		l := smallLedger(0)
		held := mustReserve(t, l, need{fragments: 4, bytes: 100})
		_, err := l.reserve(t.Context(), n, false)
		if sqlstate.CodeOf(err) != sqlstate.TooManyRequests || !strings.Contains(err.Error(), limitQueue) {
			t.Errorf("%s: %v", name, err)
		}
		held.release()
		mustReserve(t, l, n).release()
		if s := l.state(); s.held != (need{}) || s.waiting != 0 || s.denied[limitQueue] != 1 {
			t.Errorf("%s: the ledger is left with %+v", name, s)
		}
	}
}

func TestLedgerBoundsOneQuery(t *testing.T) {
	l := newLedger(ledgerLimits{fragments: 8, bytes: 100, queryFragments: 3, queryBytes: 1000, queue: 8, wait: time.Minute})
	for limit, n := range map[string]need{limitFragments: {fragments: 4}, limitBytes: {fragments: 1, bytes: 1001}} {
		_, err := l.reserve(t.Context(), n, false)
		if sqlstate.CodeOf(err) != sqlstate.TooManyRequests || !strings.Contains(err.Error(), limit) || l.state().denied[limit] != 1 {
			t.Errorf("%s: %v", limit, err)
		}
	}
	// Above what all may take, below what one may: it runs alone.
	large := mustReserve(t, l, need{fragments: 1, bytes: 900})
	if got := l.state().held.bytes; got != 100 {
		t.Errorf("a large query holds %d bytes", got)
	}
	large.release()
}

// Queries are admitted in the order in which they came: a small one does not
// pass a large one that waits.
func TestLedgerIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := smallLedger(8)
		held := mustReserve(t, l, need{fragments: 3})
		var order []string
		var mu sync.Mutex
		var group sync.WaitGroup
		for _, q := range []struct {
			name string
			need need
		}{{"large", need{fragments: 4}}, {"small", need{fragments: 1}}, {"medium", need{fragments: 3}}} {
			group.Go(func() {
				p := mustReserve(t, l, q.need)
				mu.Lock()
				order = append(order, q.name)
				mu.Unlock()
				time.Sleep(time.Second)
				p.release()
			})
			synctest.Wait()
		}
		if n := l.state().waiting; n != 3 {
			t.Fatalf("%d wait", n)
		}
		held.release()
		group.Wait()
		if order[0] != "large" || len(order) != 3 {
			t.Errorf("admitted in the order %v", order)
		}
	})
}

func TestLedgerWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := smallLedger(8)
		held := mustReserve(t, l, need{fragments: 3})
		began := time.Now()
		cause := errors.New("because")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		passed := make(chan struct{})
		go func() {
			// It waits behind the one that gives up, and fits then.
			time.Sleep(time.Millisecond)
			mustReserve(t, l, need{fragments: 1}).release()
			close(passed)
		}()
		if _, err := l.reserve(ctx, need{fragments: 4}, false); !errors.Is(err, cause) || time.Since(began) != time.Second {
			t.Errorf("cancelled after %s: %v", time.Since(began), err)
		}
		<-passed
		began = time.Now()
		_, err := l.reserve(t.Context(), need{fragments: 2}, false)
		if sqlstate.CodeOf(err) != sqlstate.TooManyRequests || !strings.Contains(err.Error(), limitQueueDelay) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		held.release()
		if s := l.state(); s.held != (need{}) || s.waiting != 0 || s.denied[limitQueueDelay] != 1 {
			t.Errorf("the ledger is left with %+v", s)
		}
	})
}

// A statement that reads while it writes must not wait for itself.
func TestPlansWithinPlansDoNotWait(t *testing.T) {
	m, err := newMetrics(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &Server{ledger: smallLedger(8), queries: newQueries(4), metrics: m}
	ctx, end, err := g.queries.start(t.Context(), "q", "ann", "UPDATE", &session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	outer, err := g.admit(ctx, need{fragments: 4})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := g.admit(ctx, need{fragments: 4})
	if err != nil {
		t.Fatal(err)
	}
	inner()
	outer()
	if s := g.ledger.state(); s.held != (need{}) {
		t.Errorf("the ledger is left with %+v", s)
	}
}

// Whatever happens, no bound is exceeded and nothing stays taken.
func TestLedgerModel(t *testing.T) {
	seed := rand.Uint64()
	l := newLedger(ledgerLimits{fragments: 5, bytes: 50, queryFragments: 5, queue: 6, wait: 20 * time.Millisecond})
	var fragments, bytes atomic.Int64
	var group sync.WaitGroup
	for worker := range 12 {
		random := rand.New(rand.NewPCG(seed, uint64(worker)))
		group.Go(func() {
			for range 300 {
				n := need{fragments: 1 + random.IntN(5), bytes: random.Uint64N(50)}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
				p, err := l.reserve(ctx, n, false)
				if err == nil {
					if f, b := fragments.Add(int64(n.fragments)), bytes.Add(int64(n.bytes)); f > 5 || b > 50 {
						t.Errorf("%d fragments, %d bytes are out (seed %d)", f, b, seed)
					}
					fragments.Add(-int64(n.fragments))
					bytes.Add(-int64(n.bytes))
					p.release()
				}
				cancel()
			}
		})
	}
	group.Wait()
	if s := l.state(); s.held != (need{}) || s.waiting != 0 {
		t.Errorf("the ledger is left with %+v (seed %d)", s, seed)
	}
}
