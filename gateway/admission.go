package gateway

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"skein/planner"
	"skein/sqlstate"
)

// need is what a plan takes up: fragments on workers, and the bytes that they are
// estimated to yield.
type need struct {
	fragments int
	bytes     uint64
}

// needOf adds the fragments of a plan up.
func needOf(plan *planner.Plan) need {
	var n need
	for _, f := range plan.Fragments {
		if f.Assignment == planner.Coordinator {
			continue
		}
		n.fragments++
		if sum := n.bytes + f.EstimatedBytes; sum >= n.bytes {
			n.bytes = sum
		}
	}
	return n
}

// ledger admits plans within bounds on what all of a gateway's plans take up
// together. Those that do not fit wait in the order in which they came, so that a
// large one is not passed for ever by small ones.
type ledger struct {
	limits ledgerLimits

	mu      sync.Mutex
	held    need
	waiting list.List // of *waiter, the first come first
	denied  map[string]uint64
}

type ledgerLimits struct {
	fragments      int           // of all plans
	bytes          uint64        // of all plans; one that takes more runs alone
	queryFragments int           // of one plan
	queryBytes     uint64        // of one plan, 0 for any number
	queue          int           // plans that wait
	wait           time.Duration // of one plan
}

// Admission is the configuration of a gateway's admission of queries. The zero
// values stand for defaults.
type Admission struct {
	MaxFragments      int           // on workers, of all queries (1,024)
	MaxBytes          uint64        // that plans are estimated to read and exchange, of all queries (16 GiB)
	MaxQueryFragments int           // of one query (MaxFragments)
	MaxQueryBytes     uint64        // of one query (any number: one above MaxBytes runs alone)
	Queue             int           // queries that wait (256)
	Wait              time.Duration // of one query (30 seconds)
}

func (a Admission) limits() ledgerLimits {
	l := ledgerLimits{
		fragments: cmp.Or(a.MaxFragments, 1024), bytes: cmp.Or(a.MaxBytes, 16<<30), queryBytes: a.MaxQueryBytes,
		queue: cmp.Or(a.Queue, 256), wait: cmp.Or(a.Wait, 30*time.Second),
	}
	l.queryFragments = min(cmp.Or(a.MaxQueryFragments, l.fragments), l.fragments)
	return l
}

type waiter struct {
	need     need
	admitted chan struct{} // closed with the reservation made
}

// Names of limits, as settings and metrics spell them.
const (
	limitFragments  = "max_query_fragments"
	limitBytes      = "max_query_bytes"
	limitQueue      = "admission_queue"
	limitQueueDelay = "admission_wait"
)

func newLedger(limits ledgerLimits) *ledger {
	return &ledger{limits: limits, denied: make(map[string]uint64)}
}

// permit is a reservation that must be released once.
type permit struct {
	ledger *ledger
	need   need
	waited time.Duration
}

// reserve takes what a plan needs, or waits for it. Plans that are part of one that
// is admitted already say so with within: to wait for themselves would be for
// ever. What needs no worker, such as looking at what runs, does not wait. Errors have SQLSTATE 53400 and name the limit, or are ctx's.
func (l *ledger) reserve(ctx context.Context, n need, within bool) (*permit, error) {
	if err := l.check(n); err != nil {
		return nil, err
	}
	n.bytes = min(n.bytes, l.limits.bytes)
	l.mu.Lock()
	if within || n == (need{}) || l.waiting.Len() == 0 && l.fits(n) {
		l.take(n)
		l.mu.Unlock()
		return &permit{ledger: l, need: n}, nil
	}
	if l.waiting.Len() >= l.limits.queue {
		l.denied[limitQueue]++
		held := l.held
		l.mu.Unlock()
		return nil, sqlstate.New(sqlstate.TooManyRequests,
			"the gateway runs %d fragments over an estimated %d bytes, and %d queries are waiting already, which is the limit of %s",
			held.fragments, held.bytes, l.limits.queue, limitQueue).WithHint("Retry later, use another gateway, or raise %s.", limitQueue)
	}
	w := &waiter{need: n, admitted: make(chan struct{})}
	place := l.waiting.PushBack(w)
	l.mu.Unlock()
	return l.await(ctx, w, place)
}

// check refuses plans that are never admitted.
func (l *ledger) check(n need) error {
	var limit string
	var got, most uint64
	switch {
	case n.fragments > l.limits.queryFragments:
		limit, got, most = limitFragments, uint64(n.fragments), uint64(l.limits.queryFragments)
	case l.limits.queryBytes > 0 && n.bytes > l.limits.queryBytes:
		limit, got, most = limitBytes, n.bytes, l.limits.queryBytes
	default:
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denied[limit]++
	return sqlstate.New(sqlstate.TooManyRequests, "the query needs %d where %s allows %d", got, limit, most).
		WithHint("Restrict the query to fewer tablets or rows, or raise %s.", limit)
}

// await waits for a place in the queue to come up.
func (l *ledger) await(ctx context.Context, w *waiter, place *list.Element) (*permit, error) {
	began := time.Now()
	timer := time.NewTimer(l.limits.wait)
	defer timer.Stop()
	late := false
	select {
	case <-w.admitted:
		return &permit{ledger: l, need: w.need, waited: time.Since(began)}, nil
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.admitted: // at the last moment
		return &permit{ledger: l, need: w.need, waited: time.Since(began)}, nil
	default:
	}
	l.waiting.Remove(place)
	l.admit() // this one may have held up others
	if !late {
		return nil, context.Cause(ctx)
	}
	l.denied[limitQueueDelay]++
	return nil, sqlstate.New(sqlstate.TooManyRequests,
		"the query waited %s for other queries to end, which is the limit of %s: it needs %d fragments over an estimated %d bytes, and %d of %d fragments and %d of %d bytes are taken",
		l.limits.wait, limitQueueDelay, w.need.fragments, w.need.bytes, l.held.fragments, l.limits.fragments, l.held.bytes, l.limits.bytes).
		WithHint("Retry later, use another gateway, or raise max_fragments, max_bytes or %s.", limitQueueDelay)
}

func (l *ledger) fits(n need) bool {
	return l.held.fragments+n.fragments <= l.limits.fragments && l.held.bytes+n.bytes <= l.limits.bytes
}

func (l *ledger) take(n need) {
	l.held.fragments += n.fragments
	l.held.bytes += n.bytes
}

// admit lets those at the head of the queue in that fit.
func (l *ledger) admit() {
	for first := l.waiting.Front(); first != nil; first = l.waiting.Front() {
		w := first.Value.(*waiter)
		if !l.fits(w.need) {
			return
		}
		l.take(w.need)
		l.waiting.Remove(first)
		close(w.admitted)
	}
}

// release gives a reservation back.
func (p *permit) release() {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.fragments -= p.need.fragments
	l.held.bytes -= p.need.bytes
	l.admit()
}

// ledgerState is what a ledger has and has refused.
type ledgerState struct {
	held    need
	waiting int
	denied  map[string]uint64 // by limit
}

func (l *ledger) state() ledgerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := ledgerState{held: l.held, waiting: l.waiting.Len(), denied: make(map[string]uint64, len(l.denied))}
	for limit, n := range l.denied {
		s.denied[limit] = n
	}
	return s
}

// admit reserves what a plan needs for the statement of ctx. The caller calls the
// function returned when the plan has ended.
func (g *Server) admit(ctx context.Context, n need) (release func(), err error) {
	statement := runningIn(ctx)
	p, err := g.ledger.reserve(ctx, n, statement != nil && statement.admitted.Load() > 0)
	if err != nil {
		return nil, err
	}
	if p.waited > 0 {
		g.metrics.admission.Observe(p.waited.Seconds())
	}
	if statement != nil {
		statement.admitted.Add(1)
	}
	return func() {
		if statement != nil {
			statement.admitted.Add(-1)
		}
		p.release()
	}, nil
}
