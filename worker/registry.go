package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// Bounds of the memory of cancelled queries.
const (
	maxTombstones = 4096
	tombstoneLife = 10 * time.Minute
)

// registry holds the fragments that were started and have not ended.
type registry struct {
	limit int // fragments
	now   func() time.Time

	mu        sync.Mutex
	count     int // fragments in all queries
	queries   map[string]*query
	reports   map[string]*report   // of measured queries, by query id
	cancelled map[string]time.Time // when
	order     []string             // of cancelled, oldest first
	closed    bool
}

// query is what one query has on this worker.
type query struct {
	id              string
	snapshot        uint64 // HLC timestamp of its reads
	metadataVersion uint64
	authorization   []byte // envelope that the query was started with, for other workers
	measured, timed bool   // its fragments are profiled, with their times
	budget          *exec.Budget
	pins            *pins
	scans           scans
	ctx             context.Context // ends with the query; the cause says why
	cancel          context.CancelCauseFunc

	// Guarded by registry.mu.
	lease     time.Time
	fragments map[planner.FragmentID]*fragment
}

// fragment is one registered fragment and its outputs.
type fragment struct {
	query      *query
	plan       *planner.Fragment
	generation uint64
	inputs     map[planner.ExchangeID]input
	outputs    []*output              // in sink order
	profile    *exec.Profile          // of a measured query, while the fragment runs
	stats      *planner.FragmentStats // of a measured query, when it has run

	// Guarded by registry.mu.
	running bool
	shared  *shared    // of a running fragment with several consumers
	refills chan int64 // rows asked for; nil unless the fragment sends portions
}

// input is the consuming end of an exchange.
type input struct {
	exchange   *planner.Exchange
	stream     *flightproto.StreamSchema
	address    string // of the producer
	generation uint64 // of the producer's tablet; 0 is not compared
}

// output is the producing end of an exchange.
type output struct {
	fragment *fragment
	exchange *planner.Exchange
	stream   *flightproto.StreamSchema
	index    int // in fragment.outputs
	claimed  bool
}

func newRegistry(limit int, now func() time.Time) *registry {
	return &registry{
		limit:     limit,
		now:       now,
		queries:   map[string]*query{},
		reports:   map[string]*report{},
		cancelled: map[string]time.Time{},
	}
}

// errShuttingDown answers requests that come while the worker closes.
func errShuttingDown() error {
	return flightproto.WithReason(flightproto.Unavailable,
		sqlstate.New(sqlstate.CannotConnectNow, "worker is shutting down").WithHint("Retry on another worker."))
}

// add registers all fragments of a start request, or none. A query may be
// started in several requests, of which the first decides the query's settings:
// candidate is used only if the query is new. It returns the query registered.
func (r *registry) add(candidate *query, fragments []*fragment, lease time.Time) (*query, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errShuttingDown()
	}
	if r.isCancelled(candidate.id) {
		return nil, flightproto.WithReason(flightproto.Cancelled,
			sqlstate.New(sqlstate.QueryCanceled, "query %s was canceled before it started here", candidate.id))
	}
	if r.count+len(fragments) > r.limit {
		return nil, flightproto.WithReason(flightproto.Reservation,
			sqlstate.New(sqlstate.TooManyRequests, "worker holds %d fragments and has no room for %d more, its limit is %d", r.count, len(fragments), r.limit).
				WithHint("Retry when other queries have finished."))
	}
	q, known := r.queries[candidate.id]
	if !known {
		q = candidate
	}
	for i, f := range fragments {
		if _, dup := q.fragments[f.plan.ID]; dup || repeats(fragments[:i], f.plan.ID) {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "fragment %d of query %s is already started", f.plan.ID, q.id)
		}
	}
	if err := r.expect(q, len(fragments), lease); err != nil {
		return nil, err
	}
	r.queries[q.id] = q
	if lease.After(q.lease) {
		q.lease = lease
	}
	for _, f := range fragments {
		f.query = q
		if f.portions() != nil {
			f.refills = make(chan int64, 1)
		}
		q.fragments[f.plan.ID] = f
	}
	r.count += len(fragments)
	return q, nil
}

func repeats(fragments []*fragment, id planner.FragmentID) bool {
	for _, f := range fragments {
		if f.plan.ID == id {
			return true
		}
	}
	return false
}

// claim hands out one output of a fragment, once. The first claim on a fragment
// with several outputs sets it running: start is then true, and the caller
// must run it.
func (r *registry) claim(queryID string, id planner.FragmentID, exchange planner.ExchangeID, generation uint64) (out *output, start bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, ok := r.queries[queryID]
	if !ok {
		return nil, false, r.unknown(queryID)
	}
	if err := context.Cause(q.ctx); err != nil {
		return nil, false, err
	}
	f, ok := q.fragments[id]
	if !ok {
		return nil, false, notStarted("fragment %d of query %s is not started on this worker or has ended", id, queryID)
	}
	if generation != 0 && generation != f.generation {
		return nil, false, flightproto.WithReason(flightproto.StaleMetadata,
			sqlstate.New(sqlstate.SerializationFailure, "fragment %d of query %s is of tablet generation %d, the ticket of %d", id, queryID, f.generation, generation))
	}
	for _, o := range f.outputs {
		if o.exchange.ID != exchange {
			continue
		}
		if o.claimed {
			return nil, false, sqlstate.New(sqlstate.ObjectInUse, "exchange %d of query %s is already being read", exchange, queryID)
		}
		o.claimed = true
		start = !f.running
		f.running = true
		if start && f.fansOut() {
			f.shared = newShared(len(f.outputs))
		}
		return o, start, nil
	}
	return nil, false, sqlstate.New(sqlstate.UndefinedObject, "fragment %d of query %s does not send exchange %d", id, queryID, exchange)
}

// unknown is why there is no such query.
func (r *registry) unknown(queryID string) error {
	if r.isCancelled(queryID) {
		return flightproto.WithReason(flightproto.Cancelled, sqlstate.New(sqlstate.QueryCanceled, "query %s was canceled", queryID))
	}
	return notStarted("query %s has nothing started on this worker", queryID)
}

// notStarted is the error of asking for what this worker does not have: it was
// restarted since, or the fragment's rows were read.
func notStarted(format string, args ...any) error {
	return flightproto.WithReason(flightproto.NotStarted, sqlstate.New(sqlstate.UndefinedObject, format, args...).
		WithHint("Run the statement again."))
}

// fansOut reports whether the fragment's rows must be divided or copied.
func (f *fragment) fansOut() bool {
	return len(f.outputs) > 1 ||
		f.outputs[0].exchange.Kind == planner.HashRepartitionExchange && f.outputs[0].exchange.Partitions > 1
}

// unclaimed lists the outputs that nobody reads, by index. Once the query's
// context has ended no more will be claimed.
func (r *registry) unclaimed(f *fragment) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	for _, o := range f.outputs {
		if !o.claimed {
			list = append(list, o.index)
		}
	}
	return list
}

// end removes a fragment that has stopped running. The last one of a query
// takes the query with it.
func (r *registry) end(f *fragment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(f)
}

func (r *registry) remove(f *fragment) {
	q := f.query
	if q.fragments[f.plan.ID] != f {
		return
	}
	delete(q.fragments, f.plan.ID)
	r.count--
	r.settle(f)
	if len(q.fragments) == 0 && r.queries[q.id] == q {
		delete(r.queries, q.id)
		q.cancel(errQueryOver)
		q.pins.release()
	}
}

// errQueryOver is the cause of the context of a query that ended by itself.
var errQueryOver = errors.New("query is over on this worker")

// progress is how far the scans of a query are, nothing if it is not here.
func (r *registry) progress(id string) *pb.ScanProgress {
	r.mu.Lock()
	q := r.queries[id]
	fragments := 0
	if q != nil {
		fragments = len(q.fragments)
	}
	r.mu.Unlock()
	if q == nil {
		return &pb.ScanProgress{}
	}
	p := q.scans.progress()
	p.Fragments = uint32(fragments)
	return p
}

// cancelQuery ends a query for a reason and returns how many fragments it had.
// It is remembered, known or not, so that a late start is refused.
func (r *registry) cancelQuery(id string, cause error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.cancel(id, cause)
	r.forget(id)
	return n
}

// cancelStatement ends all queries of a statement for a reason and returns how
// many fragments they had. Further ones are refused, as by cancelQuery.
func (r *registry) cancelStatement(statement string, cause error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bury(statement)
	n := 0
	for id := range r.queries {
		if flightproto.StatementOf(id) == statement {
			n += r.cancel(id, cause)
			r.forget(id)
		}
	}
	return n
}

// authorizations are the envelopes of a statement's queries, by query id.
func (r *registry) authorizations(statement string) map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]byte{}
	for id, q := range r.queries {
		if flightproto.StatementOf(id) == statement {
			found[id] = q.authorization
		}
	}
	return found
}

// isCancelled reports whether a query, or its statement, was cancelled lately.
func (r *registry) isCancelled(id string) bool {
	_, query := r.cancelled[id]
	_, statement := r.cancelled[flightproto.StatementOf(id)]
	return query || statement
}

func (r *registry) cancel(id string, cause error) int {
	r.bury(id)
	q, ok := r.queries[id]
	if !ok {
		return 0
	}
	return r.stop(q, cause)
}

// stop cancels a query's context and removes the fragments that do not run;
// running ones remove themselves.
func (r *registry) stop(q *query, cause error) int {
	n := len(q.fragments)
	q.cancel(cause)
	for _, f := range q.fragments {
		if !f.running {
			r.remove(f)
		}
	}
	return n
}

func (r *registry) bury(id string) {
	now := r.now()
	if _, ok := r.cancelled[id]; !ok {
		r.order = append(r.order, id)
	}
	r.cancelled[id] = now
	drop := 0
	for drop < len(r.order) && (len(r.order)-drop > maxTombstones || now.Sub(r.cancelled[r.order[drop]]) > tombstoneLife) {
		delete(r.cancelled, r.order[drop])
		drop++
	}
	r.order = append(r.order[:0], r.order[drop:]...)
}

// sweep cancels the queries whose lease has run out and returns their ids. A
// query with a running fragment keeps its lease: a consumer is connected, and
// when that goes its stream ends and the fragment with it.
func (r *registry) sweep() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweepReports(now)
	var swept []string
	for id, q := range r.queries {
		if q.ctx.Err() != nil || now.Before(q.lease) || q.running() {
			continue
		}
		swept = append(swept, id)
		r.bury(id)
		r.stop(q, flightproto.WithReason(flightproto.Cancelled,
			sqlstate.New(sqlstate.QueryCanceled, "query %s ran out of its lease on this worker", id)))
	}
	return swept
}

// running reports whether some fragment of the query is being read.
func (q *query) running() bool {
	for _, f := range q.fragments {
		if f.running {
			return true
		}
	}
	return false
}

// shut refuses further starts and, with a cause, cancels what there is.
func (r *registry) shut(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if cause == nil {
		return
	}
	for _, q := range r.queries {
		r.stop(q, cause)
	}
}

// size tells how many queries and fragments there are.
func (r *registry) size() (queries, fragments int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queries), r.count
}
