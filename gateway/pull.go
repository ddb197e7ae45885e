package gateway

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
)

// ticket is what pulls an exchange.
func (r *run) ticket(x *planner.Exchange) *pb.Ticket {
	t := &pb.Ticket{
		QueryId: r.id, Fragment: uint32(x.Producer), Exchange: uint32(x.ID),
		MetadataVersion:  r.plan.MetadataVersion,
		TabletGeneration: r.snap.generation(r.plan.Fragments[x.Producer].Assignment.Tablet),
	}
	if x == r.placed.single && r.riding != nil {
		t.Start = r.riding
	} else {
		t.Authorization = r.authorization
	}
	return t
}

// ended notes that an exchange was read to its end.
func (r *run) ended(addr string, clock uint64) {
	if r.riding != nil {
		r.placed.starts[addr].known.Store(r.riding.PlanDigest != nil)
	}
	r.gw.observe(clock)
}

// OpenExchange pulls an exchange from the worker that produces it. A producer
// that is a coordinator fragment too is built in place.
func (r *run) OpenExchange(ctx context.Context, source *planner.ExchangeSource) (exec.Operator, error) {
	x := r.plan.Exchanges[source.Exchange]
	addr := r.placed.address[x.Producer]
	if addr == "" && x.Kind == planner.SharedExchange {
		return r.shared(ctx, x)
	}
	if addr == "" {
		return r.build(ctx, r.plan.Fragments[x.Producer])
	}
	w := &watchedStream{run: r, from: r.producer(x), schema: source.Schema, life: ctx}
	if err := w.pull(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// watchedStream tells the worker list when its stream breaks, and the clock when
// it ends. As long as it has brought nothing, a stream that breaks has its
// producer started again.
type watchedStream struct {
	*flightproto.Stream
	run    *run
	from   *producer
	schema *arrow.Schema
	life   context.Context // of the stream
	began  bool            // something came
}

// pull opens the stream of the producer, started again if need be.
func (w *watchedStream) pull(ctx context.Context) error {
	for {
		err := w.open()
		if err == nil {
			return nil
		}
		if err = w.run.again(ctx, w.from, err); err != nil {
			return err
		}
	}
}

func (w *watchedStream) open() error {
	conn, err := w.run.gw.workers.conn(w.from.addr)
	if err != nil {
		return err
	}
	stream, err := conn.Fetch(w.life, w.from.ticket, w.schema)
	if err != nil {
		return w.run.unpulled(w.from, err)
	}
	w.Stream = stream
	return nil
}

// unpulled is the error of not getting a producer's rows.
func (r *run) unpulled(p *producer, err error) error {
	r.lost(p.addr, err)
	return fmt.Errorf("pulling exchange %d from worker %s: %w", p.exchange.ID, p.addr, err)
}

func (w *watchedStream) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		b, err := w.Stream.Next(ctx)
		if err == nil && b == nil {
			w.run.ended(w.from.addr, w.Clock())
		}
		if err == nil {
			w.began = true
			return b, nil
		}
		w.run.lost(w.from.addr, err)
		if w.began {
			return nil, err
		}
		if err = w.run.again(ctx, w.from, err); err != nil {
			return nil, err
		}
		if err = w.Stream.Close(); err == nil {
			err = w.pull(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (w *watchedStream) Refill(ctx context.Context, rows int) error {
	err := w.Stream.Refill(ctx, rows)
	if err != nil {
		w.run.lost(w.from.addr, err)
	}
	return err
}
