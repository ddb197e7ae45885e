package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

const (
	// maxAttempts bounds how often a query is planned and started again after
	// a worker was lost or metadata had moved on: the waits between them, three
	// seconds in all, outlast the election of new leaders.
	maxAttempts = 6
	// cancelTimeout bounds telling one worker that a query is over.
	cancelTimeout = 5 * time.Second
)

// sink receives a query's batches in order; they are valid during the call.
type sink func(*columnar.Batch) error

// clientSink is the client's end of a query: batches, or encoded ones where
// those have the types of its schema.
type clientSink struct {
	snapshot uint64 // to read at; 0 takes a new one for each attempt
	schema   *arrow.Schema
	batch    sink
	message  func(*flightproto.Message) error
	analysis *analysis // measures the query if not nil
	// direct, if not nil, runs an attempt in place of all that.
	direct func(context.Context, *run, *template) error
	// resend has the plan sent along also to workers that are thought to know it: in
	// a changing cluster one after the other may turn out not to.
	resend bool
}

// runQuery plans and executes a bound query and hands its rows to a sink. As
// long as that has got none, losing a worker or meeting newer metadata means
// another attempt on other replicas; afterwards the error is the client's, who
// must not see rows twice.
func (g *Server) runQuery(ctx context.Context, id string, j *job, to clientSink) error {
	for attempt := 1; ; attempt++ {
		emitted := false
		once := to
		once.resend = attempt > 1
		once.batch = func(b *columnar.Batch) error {
			emitted = true
			return to.batch(b)
		}
		if to.message != nil {
			once.message = func(m *flightproto.Message) error {
				emitted = true
				return to.message(m)
			}
		}
		err := g.attempt(ctx, id+"."+strconv.Itoa(attempt), j, once)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return causeOf(ctx, err)
		}
		if emitted || attempt == maxAttempts || !g.mayRetry(err) {
			return err
		}
		if flightproto.ReasonOf(err) == flightproto.UnknownPlan {
			continue // the next attempt sends it along
		}
		if g.altered(j.root) {
			return err
		}
		g.log.Info("query attempt failed, trying again", "query_id", id, "attempt", attempt, "err", err)
		if rerr := g.directory.recover(ctx, attempt, err); rerr != nil {
			return rerr
		}
		if outdated(err) && g.altered(j.root) {
			return asStale(err) // the plan must be bound anew
		}
	}
}

// altered reports whether a table of a plan is known to have changed since the
// plan was bound.
func (g *Server) altered(root planner.Node) bool {
	if scan, ok := root.(*planner.Scan); ok {
		now, known := g.directory.Current().meta.Table(scan.Table.ID)
		return known && (now.Version != scan.Table.Version || now.Layout != scan.Table.Layout)
	}
	return slices.ContainsFunc(root.Inputs(), g.altered)
}

// mayRetry reports whether another attempt of something that has had no effect
// yet could succeed.
func (g *Server) mayRetry(err error) bool {
	switch flightproto.ReasonOf(err) {
	case flightproto.Unavailable, flightproto.StaleMetadata, flightproto.TabletMoved, flightproto.TabletSplit,
		flightproto.Reservation, flightproto.UnknownPlan, flightproto.NotStarted:
		return true
	}
	return false
}

// outdated reports whether an error comes of older metadata here than on a
// worker.
func outdated(err error) bool {
	switch flightproto.ReasonOf(err) {
	case flightproto.StaleMetadata, flightproto.TabletMoved, flightproto.TabletSplit:
		return true
	}
	return false
}

// unplanned reports whether what was planned must be planned anew, since its
// tables or their tablets are others now.
func unplanned(err error) bool {
	reason := flightproto.ReasonOf(err)
	return reason == flightproto.StaleMetadata || reason == flightproto.TabletSplit
}

// asStale gives an error the reason to bind its statement anew.
func asStale(err error) error {
	if flightproto.ReasonOf(err) == flightproto.StaleMetadata {
		return err
	}
	return flightproto.WithReason(flightproto.StaleMetadata, err)
}

// template is the plan that a job is run with: its own, unless metadata has
// moved on since that was made.
func (g *Server) template(j *job, snap *snapshot, public *arrow.Schema) (*template, error) {
	if t := j.template; t != nil && t.plan.MetadataVersion == snap.Version() {
		return t, nil
	}
	return g.newTemplate(j.root, j.bind(), snap, public)
}

// attempt runs one distributed plan from start to end, once it is admitted and
// for as long as its workers are heard of.
func (g *Server) attempt(ctx context.Context, id string, j *job, to clientSink) error {
	snap := g.directory.Current()
	t, err := g.template(j, snap, to.schema)
	if err != nil {
		return err
	}
	release, err := g.admit(ctx, t.need)
	if err != nil {
		return err
	}
	defer release()
	placed, err := t.place(g.workers, snap)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer g.leases.hold(placed.workers, cancel)()
	r := &run{gw: g, id: id, snap: snap, plan: t.plan, placed: placed, streams: t.streams, brief: t.brief, at: to.snapshot, analysis: to.analysis, abandon: cancel, job: j, memory: queryMemory(ctx)}
	r.resend = to.resend
	if r.values, err = t.parameters(j); err != nil {
		return err
	}
	if r.authorization, err = g.sign(ctx, id); err != nil {
		return err
	}
	if to.direct != nil {
		err = to.direct(ctx, r, t)
	} else {
		err = r.execute(ctx, t, j, to)
	}
	if lost := context.Cause(ctx); err != nil && flightproto.ReasonOf(lost) == flightproto.Unavailable {
		return lost
	}
	return err
}

// execute starts the fragments and passes the root's rows on.
func (r *run) execute(ctx context.Context, t *template, j *job, to clientSink) error {
	began := time.Now()
	if r.at == 0 {
		r.at = r.gw.clock.Now()
	}
	if statement := runningIn(ctx); statement != nil {
		statement.runs.Store(r)
	}
	defer r.finish()
	// Whatever holds this up, a client that does not read say, workers are told of a
	// cancel at once.
	r.gw.background.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer r.gw.background.Done()
		r.finish()
	})
	defer func() {
		if stop() {
			r.gw.background.Done()
		}
	}()
	if err := r.start(ctx); err != nil {
		return err
	}
	if to.message != nil && t.forwards {
		err := r.passOn(ctx, to.message)
		r.complete.Store(err == nil)
		return err
	}
	if t.openHere {
		r.bind = j.bind()
	}
	defer r.closeSpools()
	op, err := r.build(ctx, t.plan.Root())
	if err != nil {
		return fmt.Errorf("building the root fragment: %w", err)
	}
	defer op.Close()
	rows, err := emitAll(ctx, op, to.batch)
	if err != nil {
		return err
	}
	r.complete.Store(true)
	if to.analysis == nil {
		return nil
	}
	if err := op.Close(); err != nil {
		return fmt.Errorf("closing the root fragment: %w", err)
	}
	to.analysis.add(r.collect(ctx, j.root, rows, began))
	return nil
}

// emitAll passes an operator's rows on and counts them.
func emitAll(ctx context.Context, op exec.Operator, emit sink) (rows uint64, err error) {
	for {
		b, err := op.Next(ctx)
		if err != nil || b == nil {
			return rows, err
		}
		if b.Rows() == 0 {
			continue
		}
		rows += uint64(b.Rows())
		if err := emit(b); err != nil {
			return rows, err
		}
	}
}

// run is one attempt of one query.
type run struct {
	gw            *Server
	id            string // of the attempt
	snap          *snapshot
	plan          *planner.Plan
	placed        *placement
	streams       []*flightproto.StreamSchema        // of the exchanges, where they are forwarded
	values        []*pb.Literal                      // of the plan's parameters
	bind          planner.Binder                     // of those in coordinator fragments; nil for none
	at            uint64                             // snapshot that all tablets are read at
	resend        bool                               // see clientSink
	authorization []byte                             // envelope for the workers
	brief         bool                               // see template
	riding        *pb.StartRequest                   // set where a ticket takes the place of the start action
	spools        map[planner.FragmentID]*exec.Spool // of coordinator fragments with several consumers
	complete      atomic.Bool                        // every row was read: nothing is left to cancel
	reported      atomic.Bool                        // reports have ended the query on the workers
	finishing     sync.Once
	analysis      *analysis
	memory        int64    // that the session lets each node hold; 0 leaves it to the node
	profiles      profiles // of an analyzed query
	job           *job
	abandon       context.CancelCauseFunc // ends the attempt
	restarts      restarted
}

// start registers the fragments with their workers, all workers at once.
func (r *run) start(ctx context.Context) error {
	// A query that is analyzed is started for sure, for it will be asked about.
	if r.analysis == nil {
		r.riding = r.rides()
	}
	if r.riding != nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for addr, s := range r.placed.starts {
		group.Go(func() error {
			if err := r.startAt(ctx, addr, r.request(s)); err != nil {
				return err
			}
			s.known.Store(s.program != nil)
			return nil
		})
	}
	return group.Wait()
}

// startAt registers fragments with a worker. Nothing is computed by that, so a
// worker that does not answer soon is as good as lost.
func (r *run) startAt(ctx context.Context, addr string, request *pb.StartRequest) error {
	conn, err := r.gw.workers.conn(addr)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, r.gw.cfg.StartTimeout)
	defer cancel()
	deadline, _ := bounded.Deadline()
	resp, err := conn.StartFragments(bounded, request)
	// The worker, which knows the deadline, may end the call just before it is over here.
	if err != nil && ctx.Err() == nil && (bounded.Err() != nil || time.Until(deadline) < r.gw.cfg.StartTimeout/10) {
		err = flightproto.WithReason(flightproto.Unavailable, sqlstate.New(sqlstate.ConnectionFailure,
			"worker %s has not taken fragments within %s", addr, r.gw.cfg.StartTimeout).
			WithHint("Look after the worker and the network to it."))
	}
	if err != nil {
		r.lost(addr, err)
		return fmt.Errorf("starting fragments on worker %s: %w", addr, err)
	}
	r.gw.observe(resp.GetClock())
	return nil
}

// request is what starts the fragments of one worker.
func (r *run) request(s *start) *pb.StartRequest {
	req := &pb.StartRequest{
		QueryId: r.id, MetadataVersion: r.plan.MetadataVersion, Snapshot: r.at,
		LeaseMillis: r.leaseMillis(), Authorization: r.authorization, MemoryBytes: uint64(r.memory),
		Measure: r.analysis != nil, MeasureTime: r.analysis != nil && r.analysis.timing,
	}
	if s.program == nil {
		req.Fragments, req.Exchanges = s.fragments, s.exchanges
		return req
	}
	req.PlanDigest, req.Parameters = s.digest[:], r.values
	if r.resend || !s.known.Load() {
		req.Plan = s.program
	}
	return req
}

func (r *run) leaseMillis() uint32 { return uint32(r.gw.cfg.FragmentLease.Milliseconds()) }

// lost notes what an error says of a worker.
func (r *run) lost(addr string, err error) {
	r.gw.workers.failed(addr, err)
	switch s := r.placed.starts[addr]; flightproto.ReasonOf(err) {
	case flightproto.UnknownPlan, flightproto.NotStarted: // it may have been restarted
		if s != nil {
			s.known.Store(false)
		}
	}
}

// maxRiding is the largest start request that a ticket takes along; it is well
// below what a ticket may have.
const maxRiding = 32 << 10

// rides is the start request where it needs no round trip of its own but goes
// with the ticket for an exchange.
func (r *run) rides() *pb.StartRequest {
	if r.placed.single == nil {
		return nil
	}
	for _, s := range r.placed.starts {
		if req := r.request(s); proto.Size(req) <= maxRiding {
			return req
		}
	}
	return nil
}

// placeFragment chooses the worker for a fragment, "" for the coordinator's.
func (w *workers) placeFragment(snap *snapshot, f *planner.Fragment) (string, error) {
	if f.Assignment == planner.Coordinator {
		return "", nil
	}
	tablets := f.Tablets()
	if len(tablets) == 0 { // it only works on what it receives
		tablets = append(tablets, f.Assignment.Tablet)
	}
	return w.place(snap, tablets...)
}

// build makes the operators of a coordinator fragment.
func (r *run) build(ctx context.Context, f *planner.Fragment) (exec.Operator, error) {
	return r.buildIn(ctx, f, r.env(f))
}

func (r *run) buildIn(ctx context.Context, f *planner.Fragment, env *exec.Env) (exec.Operator, error) {
	operators := f.Operators
	if r.bind != nil {
		var err error
		if operators, err = planner.BindOperators(operators, r.bind); err != nil {
			return nil, err
		}
	}
	return exec.Build(ctx, operators, env)
}

// env is what a coordinator fragment runs with.
func (r *run) env(f *planner.Fragment) *exec.Env {
	return &exec.Env{
		Tables:      systemTables{r.gw, r.snap},
		Exchanges:   r,
		Parallelism: 1,
		Budget:      exec.NewBudget("query", r.gw.queryMemory(r.memory), r.gw.budget),
		SpillDir:    r.gw.cfg.SpillDir,
		MaxSpill:    f.MaxSpill,
		Profile:     r.profile(f),
	}
}

// shared is one end of a coordinator fragment with several consumers, which is
// built once.
func (r *run) shared(ctx context.Context, x *planner.Exchange) (exec.Operator, error) {
	f := r.plan.Fragments[x.Producer]
	outgoing := r.plan.ExchangesFrom(f.ID)
	spool := r.spools[f.ID]
	if spool == nil {
		env := r.env(f)
		op, err := r.buildIn(ctx, f, env)
		if err != nil {
			return nil, err
		}
		if spool, err = exec.NewSpool(ctx, op, len(outgoing), env); err != nil {
			return nil, errors.Join(err, op.Close())
		}
		if r.spools == nil {
			r.spools = make(map[planner.FragmentID]*exec.Spool)
		}
		r.spools[f.ID] = spool
	}
	at := slices.IndexFunc(outgoing, func(o *planner.Exchange) bool { return o.ID == x.ID })
	return spool.Outputs()[at], nil
}

// closeSpools closes the ends that nobody opened; the others are closed by what
// read them.
func (r *run) closeSpools() {
	for id, s := range r.spools {
		if err := s.Close(); err != nil {
			r.gw.log.Warn("closing a shared fragment failed", "query_id", r.id, "fragment", id, "err", err)
		}
	}
}

// finish tells the workers, once, that a query is over when fragments may be left
// there. It does not hold up the client: the server owns the goroutine and
// waits for it on Close.
func (r *run) finish() {
	if r.complete.Load() && (r.reported.Load() || r.readsAll()) && !r.restarts.any() {
		return
	}
	r.finishing.Do(func() {
		for _, addr := range r.placed.workers {
			r.gw.background.Go(func() { r.gw.cancelAt(startedQuery{addr, r.id, r.authorization}) })
		}
		for _, q := range r.restarts.disown() {
			r.gw.background.Go(func() { r.gw.cancelAt(q) })
		}
	})
}

// cancelAt tells a worker that a query is over.
func (g *Server) cancelAt(q startedQuery) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	conn, err := g.workers.conn(q.addr)
	if err == nil {
		_, err = conn.Cancel(ctx, q.id, "the coordinator ended the query", q.authorization)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		g.log.LogAttrs(ctx, slog.LevelDebug, "cancel did not reach the worker",
			slog.String("query_id", q.id), slog.String("worker", q.addr), slog.Any("err", err))
	}
}

// readsAll reports whether a root that came to its end has pulled every fragment
// to its end, so that none is left registered: limits and joins may stop
// early, and fragments between workers are not the root's to read.
func (r *run) readsAll() bool {
	root := r.plan.Root()
	for _, op := range root.Operators {
		switch op.(type) {
		case *planner.LimitOp, *planner.HashJoin, *planner.TopK, *planner.MergeSort, *planner.RecursiveOp:
			return false
		}
	}
	for _, x := range r.plan.Exchanges {
		if x.Consumer != root.ID {
			return false
		}
	}
	return true
}
