package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// a worker was lost or metadata had moved on.
	maxAttempts = 4
	// fragmentLease is how long workers keep a fragment that nobody pulls or
	// cancels: it only matters when the gateway dies.
	fragmentLease = 5 * time.Minute
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
}

// runQuery plans and executes a bound query and hands its rows to a sink. As
// long as that has got none, losing a worker or meeting newer metadata means
// another attempt on other replicas; afterwards the error is the client's, who
// must not see rows twice.
func (g *Server) runQuery(ctx context.Context, id string, root planner.Node, to clientSink) error {
	for attempt := 1; ; attempt++ {
		emitted := false
		once := to
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
		err := g.attempt(ctx, fmt.Sprintf("%s.%d", id, attempt), root, once)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return causeOf(ctx, err)
		}
		if emitted || attempt == maxAttempts || !g.mayRetry(err) || g.altered(root) {
			return err
		}
		g.log.Info("query attempt failed, trying again", "query_id", id, "attempt", attempt, "err", err)
		stale := flightproto.ReasonOf(err) == flightproto.StaleMetadata
		if rerr := g.directory.recover(ctx, attempt); rerr != nil {
			return rerr
		}
		if stale && g.altered(root) {
			return err // the plan must be bound anew
		}
	}
}

// altered reports whether a table of a plan is known to have changed since the
// plan was bound.
func (g *Server) altered(root planner.Node) bool {
	if scan, ok := root.(*planner.Scan); ok {
		now, known := g.directory.Current().meta.Table(scan.Table.ID)
		return known && now.Version != scan.Table.Version
	}
	return slices.ContainsFunc(root.Inputs(), g.altered)
}

// mayRetry reports whether another attempt of something that has had no effect
// yet could succeed.
func (g *Server) mayRetry(err error) bool {
	switch flightproto.ReasonOf(err) {
	case flightproto.Unavailable, flightproto.StaleMetadata, flightproto.TabletMoved, flightproto.Reservation:
		return true
	}
	return false
}

// attempt runs one distributed plan from start to end.
func (g *Server) attempt(ctx context.Context, id string, root planner.Node, to clientSink) error {
	snap := g.directory.Current()
	plan, err := planner.Distribute(planner.Description{QueryID: id, Root: root, Options: g.planner}, snap, snap)
	if err != nil {
		return fmt.Errorf("distributing the plan: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{gw: g, snap: snap, plan: plan, at: to.snapshot, analysis: to.analysis}
	began := time.Now()
	if r.at == 0 {
		r.at = g.clock.Now()
	}
	defer r.finish()
	if err := r.start(ctx); err != nil {
		return err
	}
	if to.message != nil && r.passesOn(to.schema) {
		err := r.passOn(ctx, to.message)
		r.complete = err == nil
		return err
	}
	op, err := r.build(ctx, plan.Root())
	if err != nil {
		return fmt.Errorf("building the root fragment: %w", err)
	}
	defer op.Close()
	rows := uint64(0)
	for {
		b, err := op.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			r.complete = true
			if to.analysis == nil {
				return nil
			}
			if err := op.Close(); err != nil {
				return fmt.Errorf("closing the root fragment: %w", err)
			}
			to.analysis.add(r.collect(ctx, root, rows, began))
			return nil
		}
		if b.Rows() == 0 {
			continue
		}
		rows += uint64(b.Rows())
		if err := to.batch(b); err != nil {
			return err
		}
	}
}

// run is one attempt of one query: which worker runs what.
type run struct {
	gw       *Server
	snap     *snapshot
	plan     *planner.Plan
	at       uint64   // snapshot that all tablets are read at
	address  []string // per fragment: the worker's address, "" on the coordinator
	started  []string // workers that were told of the query, or will be by a ticket
	riding   *riding  // set where a ticket takes the place of the start action
	complete bool     // every row was read: nothing is left to cancel
	analysis *analysis
	profiles profiles // of an analyzed query
}

// start places every tablet fragment on a live replica and registers the
// fragments with their workers, all workers at once.
func (r *run) start(ctx context.Context) error {
	requests, err := r.requests()
	if err != nil {
		return err
	}
	// A query that is analyzed is started for sure, for it will be asked about.
	if r.analysis == nil {
		r.riding = r.rides(requests)
	}
	if r.riding != nil {
		for addr := range requests {
			r.started = append(r.started, addr)
		}
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for addr, req := range requests {
		r.started = append(r.started, addr)
		group.Go(func() error {
			conn, err := r.gw.workers.conn(addr)
			if err != nil {
				return err
			}
			resp, err := conn.StartFragments(ctx, req)
			if err != nil {
				r.gw.workers.failed(addr, err)
				return fmt.Errorf("starting fragments on worker %s: %w", addr, err)
			}
			r.gw.observe(resp.GetClock())
			return nil
		})
	}
	return group.Wait()
}

// maxRiding is the largest start request that a ticket takes along; it is well
// below what a ticket may have.
const maxRiding = 32 << 10

// riding is a start request that goes with the ticket for an exchange.
type riding struct {
	exchange planner.ExchangeID
	request  *pb.StartRequest
}

// rides reports how the query can be started without a round trip of its own:
// where all its fragments are on one worker and the coordinator pulls just one
// exchange, the ticket for that takes the request along.
func (r *run) rides(requests map[string]*pb.StartRequest) *riding {
	if len(requests) != 1 {
		return nil
	}
	var found *riding
	for _, x := range r.plan.Exchanges {
		if r.address[x.Consumer] != "" || r.address[x.Producer] == "" {
			continue
		}
		if found != nil {
			return nil
		}
		found = &riding{exchange: x.ID, request: requests[r.address[x.Producer]]}
	}
	if found == nil || proto.Size(found.request) > maxRiding {
		return nil
	}
	return found
}

// ticket is what pulls an exchange.
func (r *run) ticket(x *planner.Exchange) *pb.Ticket {
	t := &pb.Ticket{
		QueryId: r.plan.QueryID, Fragment: uint32(x.Producer), Exchange: uint32(x.ID),
		MetadataVersion:  r.plan.MetadataVersion,
		TabletGeneration: r.snap.generation(r.plan.Fragments[x.Producer].Assignment.Tablet),
	}
	if r.riding != nil && r.riding.exchange == x.ID {
		t.Start = r.riding.request
	}
	return t
}

// requests groups fragments and the exchanges that touch them by worker.
func (r *run) requests() (map[string]*pb.StartRequest, error) {
	requests := make(map[string]*pb.StartRequest)
	r.address = make([]string, len(r.plan.Fragments))
	for i, f := range r.plan.Fragments {
		if f.Assignment == planner.Coordinator {
			continue
		}
		addr, err := r.gw.placeFragment(r.snap, f)
		if err != nil {
			return nil, err
		}
		r.address[i] = addr
		req := requests[addr]
		if req == nil {
			req = &pb.StartRequest{
				QueryId: r.plan.QueryID, MetadataVersion: r.plan.MetadataVersion, Snapshot: r.at,
				LeaseMillis: uint32(fragmentLease.Milliseconds()),
				Measure:     r.analysis != nil, MeasureTime: r.analysis != nil && r.analysis.timing,
			}
			requests[addr] = req
		}
		fragment, err := flightproto.EncodeFragment(f, r.snap.generation(f.Assignment.Tablet))
		if err != nil {
			return nil, fmt.Errorf("encoding fragment %d: %w", f.ID, err)
		}
		req.Fragments = append(req.Fragments, fragment)
	}
	for _, x := range r.plan.Exchanges {
		message, err := flightproto.EncodeExchange(x, r.address[x.Producer])
		if err != nil {
			return nil, fmt.Errorf("encoding exchange %d: %w", x.ID, err)
		}
		from, to := r.address[x.Producer], r.address[x.Consumer]
		if from != "" {
			requests[from].Exchanges = append(requests[from].Exchanges, message)
		}
		if to != "" && to != from {
			if from == "" {
				return nil, sqlstate.New(sqlstate.InternalError, "exchange %d would pull from the coordinator", x.ID)
			}
			requests[to].Exchanges = append(requests[to].Exchanges, message)
		}
	}
	return requests, nil
}

// placeFragment chooses the worker for a fragment, "" for the coordinator's.
func (g *Server) placeFragment(snap *snapshot, f *planner.Fragment) (string, error) {
	if f.Assignment == planner.Coordinator {
		return "", nil
	}
	tablets := f.Tablets()
	if len(tablets) == 0 { // it only works on what it receives
		tablets = append(tablets, f.Assignment.Tablet)
	}
	return g.workers.place(snap, tablets...)
}

// build makes the operators of a coordinator fragment.
func (r *run) build(ctx context.Context, f *planner.Fragment) (exec.Operator, error) {
	return exec.Build(ctx, f.Operators, &exec.Env{
		Tables:      systemTables{r.gw, r.snap},
		Exchanges:   r,
		Parallelism: 1,
		Budget:      exec.NewBudget("query", r.gw.cfg.QueryMemory, r.gw.budget),
		SpillDir:    r.gw.cfg.SpillDir,
		MaxSpill:    f.MaxSpill,
		Profile:     r.profile(f),
	})
}

// OpenExchange pulls an exchange from the worker that produces it. A producer
// that is a coordinator fragment too is built in place: it has no other
// consumer.
func (r *run) OpenExchange(ctx context.Context, source *planner.ExchangeSource) (exec.Operator, error) {
	x := r.plan.Exchanges[source.Exchange]
	addr := r.address[x.Producer]
	if addr == "" {
		return r.build(ctx, r.plan.Fragments[x.Producer])
	}
	conn, err := r.gw.workers.conn(addr)
	if err != nil {
		return nil, err
	}
	stream, err := conn.Fetch(ctx, r.ticket(x), source.Schema)
	if err != nil {
		r.gw.workers.failed(addr, err)
		return nil, fmt.Errorf("pulling exchange %d from worker %s: %w", x.ID, addr, err)
	}
	return &watchedStream{Stream: stream, addr: addr, gw: r.gw}, nil
}

// watchedStream tells the worker list when its stream breaks, and the clock when
// it ends.
type watchedStream struct {
	*flightproto.Stream
	addr string
	gw   *Server
}

func (w *watchedStream) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := w.Stream.Next(ctx)
	switch {
	case err != nil:
		w.gw.workers.failed(w.addr, err)
	case b == nil:
		w.gw.observe(w.Clock())
	}
	return b, err
}

// finish tells the workers that a query is over when fragments may be left
// there. It does not hold up the client: the server owns the goroutine and
// waits for it on Close.
func (r *run) finish() {
	if len(r.started) == 0 || (r.complete && r.readsAll()) {
		return
	}
	for _, addr := range r.started {
		r.gw.background.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
			defer cancel()
			conn, err := r.gw.workers.conn(addr)
			if err == nil {
				_, err = conn.Cancel(ctx, r.plan.QueryID, "the coordinator ended the query")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				r.gw.log.LogAttrs(ctx, slog.LevelDebug, "cancel did not reach the worker",
					slog.String("query_id", r.plan.QueryID), slog.String("worker", addr), slog.Any("err", err))
			}
		})
	}
}

// readsAll reports whether a root that came to its end has pulled every fragment
// to its end, so that none is left registered: limits and joins may stop
// early, and fragments between workers are not the root's to read.
func (r *run) readsAll() bool {
	root := r.plan.Root()
	for _, op := range root.Operators {
		switch op.(type) {
		case *planner.LimitOp, *planner.HashJoin, *planner.TopK, *planner.MergeSort:
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
