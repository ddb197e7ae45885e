package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

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

// runQuery plans and executes a bound query and hands its batches to emit. As
// long as emit has not been called, losing a worker or meeting newer metadata
// means another attempt on other replicas; afterwards the error is the
// client's, who must not see rows twice.
func (g *Server) runQuery(ctx context.Context, id string, root planner.Node, emit sink) error {
	for attempt := 1; ; attempt++ {
		emitted := false
		err := g.attempt(ctx, fmt.Sprintf("%s.%d", id, attempt), root, func(b *columnar.Batch) error {
			emitted = true
			return emit(b)
		})
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return causeOf(ctx, err)
		}
		if emitted || attempt == maxAttempts || !g.mayRetry(err) {
			return err
		}
		g.log.Info("query attempt failed, trying again", "query_id", id, "attempt", attempt, "err", err)
		if err := g.directory.recover(ctx, attempt); err != nil {
			return err
		}
	}
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
func (g *Server) attempt(ctx context.Context, id string, root planner.Node, emit sink) error {
	snap := g.directory.Current()
	plan, err := planner.Distribute(planner.Description{QueryID: id, Root: root, Options: g.planner}, snap, snap)
	if err != nil {
		return fmt.Errorf("distributing the plan: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{gw: g, snap: snap, plan: plan}
	defer r.finish()
	if err := r.start(ctx); err != nil {
		return err
	}
	op, err := r.build(ctx, plan.Root())
	if err != nil {
		return fmt.Errorf("building the root fragment: %w", err)
	}
	defer op.Close()
	for {
		b, err := op.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			r.complete = true
			return nil
		}
		if b.Rows() == 0 {
			continue
		}
		if err := emit(b); err != nil {
			return err
		}
	}
}

// run is one attempt of one query: which worker runs what.
type run struct {
	gw       *Server
	snap     *snapshot
	plan     *planner.Plan
	address  []string // per fragment: the worker's address, "" on the coordinator
	started  []string // workers that were told of the query
	complete bool     // every row was read: nothing is left to cancel
}

// start places every tablet fragment on a live replica and registers the
// fragments with their workers, all workers at once.
func (r *run) start(ctx context.Context) error {
	requests, err := r.requests()
	if err != nil {
		return err
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

// requests groups fragments and the exchanges that touch them by worker.
func (r *run) requests() (map[string]*pb.StartRequest, error) {
	snapshot := r.gw.clock.Now()
	requests := make(map[string]*pb.StartRequest)
	r.address = make([]string, len(r.plan.Fragments))
	for i, f := range r.plan.Fragments {
		if f.Assignment == planner.Coordinator {
			continue
		}
		tablets := f.Tablets()
		if len(tablets) == 0 { // it only works on what it receives
			tablets = append(tablets, f.Assignment.Tablet)
		}
		addr, err := r.gw.workers.place(r.snap, tablets...)
		if err != nil {
			return nil, err
		}
		r.address[i] = addr
		req := requests[addr]
		if req == nil {
			req = &pb.StartRequest{
				QueryId: r.plan.QueryID, MetadataVersion: r.plan.MetadataVersion, Snapshot: snapshot,
				LeaseMillis: uint32(fragmentLease.Milliseconds()),
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

// build makes the operators of a coordinator fragment.
func (r *run) build(ctx context.Context, f *planner.Fragment) (exec.Operator, error) {
	return exec.Build(ctx, f.Operators, &exec.Env{
		Tables:      noTables{},
		Exchanges:   r,
		Parallelism: 1,
		Budget:      exec.NewBudget("query", r.gw.cfg.QueryMemory, r.gw.budget),
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
	stream, err := conn.Fetch(ctx, &pb.Ticket{
		QueryId: r.plan.QueryID, Fragment: uint32(x.Producer), Exchange: uint32(x.ID),
		MetadataVersion:  r.plan.MetadataVersion,
		TabletGeneration: r.snap.generation(r.plan.Fragments[x.Producer].Assignment.Tablet),
	}, source.Schema)
	if err != nil {
		r.gw.workers.failed(addr, err)
		return nil, fmt.Errorf("pulling exchange %d from worker %s: %w", x.ID, addr, err)
	}
	return &watchedStream{Operator: stream, addr: addr, workers: r.gw.workers}, nil
}

// watchedStream tells the worker list when its stream breaks.
type watchedStream struct {
	exec.Operator
	addr    string
	workers *workers
}

func (w *watchedStream) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := w.Operator.Next(ctx)
	if err != nil {
		w.workers.failed(w.addr, err)
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

// noTables is the TableReader of the coordinator, which has none.
type noTables struct{}

func (noTables) OpenScan(context.Context, *planner.TabletScan, int) ([]exec.Operator, error) {
	return nil, sqlstate.New(sqlstate.InternalError, "a tablet scan was planned on the coordinator")
}
