package gateway

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"skein/flightproto"
	"skein/planner"
)

// sameTypes reports whether columns have the same types as those of the client's
// schema.
func sameTypes(columns, public *arrow.Schema) bool {
	if columns.NumFields() != public.NumFields() {
		return false
	}
	for i := range columns.NumFields() {
		if !arrow.TypeEqual(columns.Field(i).Type, public.Field(i).Type) {
			return false
		}
	}
	return true
}

// passOn runs a root fragment that only gathers. Workers are read at the same time;
// emit is called by one goroutine at a time.
func (r *run) passOn(ctx context.Context, emit func(*flightproto.Message) error) error {
	if list := r.plan.Root().Operators; len(list) == 1 {
		return r.passOnOne(ctx, list[0].(*planner.ExchangeSource), emit)
	}
	group, ctx := errgroup.WithContext(ctx)
	var turn sync.Mutex
	for _, op := range r.plan.Root().Operators {
		source := op.(*planner.ExchangeSource)
		group.Go(func() error {
			return r.passOnOne(ctx, source, func(m *flightproto.Message) error {
				turn.Lock()
				defer turn.Unlock()
				return emit(m)
			})
		})
	}
	return group.Wait()
}

// messages are the encoded batches of an exchange.
type messages interface {
	Next() (*flightproto.Message, error) // nil at the end
	Clock() uint64                       // of the worker, at the end
	Close()
}

// open pulls what a producer sends.
func (r *run) open(ctx context.Context, conn *flightproto.Conn, from *producer) (messages, error) {
	schema := r.streams[from.exchange.ID]
	if r.brief && from.ticket.GetStart() != nil {
		return conn.Pull(ctx, from.ticket, schema)
	}
	return conn.Forward(ctx, from.ticket, schema)
}

func (r *run) passOnOne(ctx context.Context, source *planner.ExchangeSource, emit func(*flightproto.Message) error) error {
	from := r.producer(r.plan.Exchanges[source.Exchange])
	for {
		began, err := r.passOnFrom(ctx, from, emit)
		if err == nil || began {
			return err
		}
		if err = r.again(ctx, from, err); err != nil {
			return err
		}
	}
}

// passOnFrom passes on what a producer sends and reports whether that was
// anything, if only the end.
func (r *run) passOnFrom(ctx context.Context, from *producer, emit func(*flightproto.Message) error) (began bool, err error) {
	conn, err := r.gw.workers.conn(from.addr)
	if err != nil {
		return false, err
	}
	stream, err := r.open(ctx, conn, from)
	if err != nil {
		return false, r.unpulled(from, err)
	}
	defer stream.Close()
	for {
		m, err := stream.Next()
		if err != nil {
			r.lost(from.addr, err)
			return began, err
		}
		began = true
		if m == nil {
			r.ended(from.addr, stream.Clock())
			return true, nil
		}
		if err := emit(m); err != nil {
			return true, err
		}
	}
}
