package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// env is what a fragment runs with.
func (s *Server) env(f *fragment) *exec.Env {
	env := &exec.Env{
		Tables:      &tableReader{server: s, query: f.query},
		Exchanges:   &exchangeReader{server: s, fragment: f},
		Parallelism: s.cfg.Parallelism,
		Budget:      f.query.budget,
		SpillDir:    s.cfg.SpillDir,
		MaxSpill:    f.plan.MaxSpill,
		Spilled:     &s.metrics.spilled,
	}
	if f.query.measured {
		f.profile = exec.NewProfile(f.query.timed)
		env.Profile = f.profile
	}
	return env.Shared()
}

// open builds a fragment's operators, which start pulling their inputs.
func (s *Server) open(ctx context.Context, f *fragment, env *exec.Env) (exec.Operator, error) {
	op, err := exec.Build(ctx, f.plan.Operators, env)
	if err != nil {
		return nil, fmt.Errorf("building fragment %d of query %s: %w", f.plan.ID, f.query.id, err)
	}
	if err := matches(op.Schema(), f.outputs[0]); err != nil {
		return nil, errors.Join(err, op.Close())
	}
	return op, nil
}

// matches checks that a fragment yields what its exchanges promise.
func matches(got *arrow.Schema, out *output) error {
	x, want := out.exchange, out.exchange.Schema
	same := got.NumFields() == want.NumFields()
	for i := 0; same && i < want.NumFields(); i++ {
		same = arrow.TypeEqual(got.Field(i).Type, catalog.PhysicalType(want.Field(i).Type))
	}
	if !same {
		return sqlstate.New(sqlstate.InternalError, "fragment %d yields %s where exchange %d promises %s", x.Producer, got, x.ID, want)
	}
	return nil
}

// send passes a fragment's rows on until its end.
func (s *Server) send(ctx context.Context, f *fragment, to *flightproto.BatchWriter) (err error) {
	began := time.Now()
	op, err := s.open(ctx, f, s.env(f))
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := op.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing fragment %d of query %s: %w", f.plan.ID, f.query.id, closeErr)
		}
		if f.profile != nil {
			f.stats = s.measured(f, began)
		}
	}()
	if top := f.portions(); top != nil {
		return s.sendPortions(ctx, f, op, top, to)
	}
	if len(f.inputs) == 0 && f.query.scans.scattered() {
		to.Gather()
	}
	return drain(ctx, op, func(b *columnar.Batch) error { return sent(func() error { return to.Write(b) }) })
}

// queueBatches is how many batches may wait for each consumer of a fragment
// that fans out, before the others have to wait or rows are put aside.
const queueBatches = 8

// shared is a running fragment with several consumers. Whoever claims an output
// waits for ready, uses only its own entry of outputs, closes it, and leaves.
type shared struct {
	ready   chan struct{} // closed when outputs or err is set
	outputs []exec.Operator
	err     error

	left atomic.Int32  // outputs not left yet
	over chan struct{} // closed when all are left
}

func newShared(outputs int) *shared {
	s := &shared{ready: make(chan struct{}), over: make(chan struct{})}
	s.left.Store(int32(outputs))
	return s
}

func (s *shared) leave() {
	if s.left.Add(-1) == 0 {
		close(s.over)
	}
}

// runShared builds a fragment that fans out, and looks after the outputs that
// nobody claims, in a goroutine of its own.
func (s *Server) runShared(f *fragment) {
	defer s.registry.end(f)
	began := time.Now()
	fan, err := s.fanOut(f.query.ctx, f)
	if err != nil {
		f.shared.err = s.ended(f.query.ctx, f, err)
		close(f.shared.ready)
		return
	}
	f.shared.outputs = fan.Outputs()
	close(f.shared.ready)
	select {
	case <-f.shared.over:
	case <-f.query.ctx.Done():
		for _, i := range s.registry.unclaimed(f) {
			s.closeOutput(f, i)
		}
		<-f.shared.over
	}
	if err := fan.Close(); err != nil {
		s.log.Warn("closing a fragment failed", "query_id", f.query.id, "fragment", f.plan.ID, "err", err)
	}
	if f.profile != nil {
		f.stats = s.measured(f, began)
	}
}

// fanout is the several outputs of one fragment; Close ends those that are
// open.
type fanout interface {
	Outputs() []exec.Operator
	Close() error
}

// fanOut divides or copies a fragment's rows.
func (s *Server) fanOut(ctx context.Context, f *fragment) (fanout, error) {
	env := s.env(f)
	op, err := s.open(ctx, f, env)
	if err != nil {
		return nil, err
	}
	var fan fanout
	switch x := f.outputs[0].exchange; x.Kind {
	case planner.HashRepartitionExchange:
		fan, err = exec.NewPartitioner(ctx, op, x.Keys, x.Partitions, queueBatches, env)
	case planner.SharedExchange:
		fan, err = exec.NewSpool(ctx, op, len(f.outputs), env)
	default:
		fan, err = exec.NewTee(ctx, op, len(f.outputs), queueBatches, env)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fragment %d of query %s: %w", f.plan.ID, f.query.id, err), op.Close())
	}
	return fan, nil
}

// slot is the index of an output among those of the fan-out.
func (o *output) slot() int {
	if o.exchange.Kind == planner.HashRepartitionExchange {
		return o.exchange.Partition
	}
	return o.index
}

// closeOutput gives one output up; the fragment's other consumers go on.
func (s *Server) closeOutput(f *fragment, index int) {
	defer f.shared.leave()
	if err := f.shared.outputs[f.outputs[index].slot()].Close(); err != nil {
		s.log.Warn("closing an exchange failed", "query_id", f.query.id, "fragment", f.plan.ID, "err", err)
	}
}

// sendShared passes the rows of one output of a shared fragment on.
func (s *Server) sendShared(ctx context.Context, out *output, emit func(*columnar.Batch) error) error {
	f := out.fragment
	select {
	case <-f.shared.ready:
	case <-ctx.Done():
		s.leaveOutput(out)
		return context.Cause(ctx)
	}
	if f.shared.err != nil {
		return f.shared.err
	}
	defer s.closeOutput(f, out.index)
	return drain(ctx, f.shared.outputs[out.slot()], emit)
}

// drain passes all rows of an operator on.
func drain(ctx context.Context, op exec.Operator, emit func(*columnar.Batch) error) error {
	for {
		batch, err := op.Next(ctx)
		if err != nil || batch == nil {
			return err
		}
		if batch.Rows() == 0 {
			continue
		}
		if err := emit(batch); err != nil {
			return err
		}
	}
}

// ended turns how a fragment stopped into the error its consumers see. A real
// failure ends the query's other fragments here as well, so that nobody waits
// for rows that nobody will use.
func (s *Server) ended(ctx context.Context, f *fragment, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && isCancellation(err) {
		return context.Cause(ctx)
	}
	if f.query.ctx.Err() != nil {
		return err // reported already
	}
	level := slog.LevelWarn
	if flightproto.ReasonOf(err) == flightproto.Cancelled { // a producer heard of it first
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "fragment failed", "query_id", f.query.id, "fragment", f.plan.ID, "tablet", f.plan.Assignment.Tablet, "err", err)
	f.query.cancel(err)
	return err
}

func isCancellation(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		sqlstate.CodeOf(err) == sqlstate.QueryCanceled
}

// exchangeReader pulls a fragment's inputs from their producers.
type exchangeReader struct {
	server   *Server
	fragment *fragment
}

// OpenExchange claims the exchange at once, rows flow as they are read: were it
// claimed later, its producer could stall siblings that wait for the same rows.
func (r *exchangeReader) OpenExchange(ctx context.Context, source *planner.ExchangeSource) (exec.Operator, error) {
	end, ok := r.fragment.inputs[source.Exchange]
	if !ok {
		return nil, sqlstate.New(sqlstate.InternalError, "fragment %d reads unknown exchange %d", r.fragment.plan.ID, source.Exchange)
	}
	if local, err := r.server.openLocal(r.fragment.query, end); local != nil || err != nil {
		return local, err
	}
	conn, err := r.server.pool.Conn(end.address)
	if err != nil {
		return nil, err
	}
	return conn.Fetch(ctx, &pb.Ticket{
		QueryId:          r.fragment.query.id,
		Fragment:         uint32(end.exchange.Producer),
		Exchange:         uint32(end.exchange.ID),
		MetadataVersion:  r.fragment.query.metadataVersion,
		TabletGeneration: end.generation,
		Authorization:    r.fragment.query.authorization,
	}, end.exchange.Schema)
}
