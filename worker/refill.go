package worker

import (
	"context"
	"math"
	"time"

	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// portions is the top-k that a fragment sends the rows of in portions, nil if it
// just sends its rows.
func (f *fragment) portions() *planner.TopK {
	ops := f.plan.Operators
	for len(ops) > 0 {
		last := ops[len(ops)-1]
		if _, sink := last.(*planner.ExchangeSink); !sink {
			top, ok := last.(*planner.TopK)
			if !ok || top.First <= 0 {
				return nil
			}
			return top
		}
		ops = ops[:len(ops)-1]
	}
	return nil
}

// sendPortions sends a portion of a top-k and, whenever the consumer asks for
// it, another one. In between the fragment keeps its rows, within the budget of
// its query, for as long as the consumer is connected.
func (s *Server) sendPortions(ctx context.Context, f *fragment, op exec.Operator, top *planner.TopK, to *flightproto.BatchWriter) error {
	p, err := exec.NewPortions(op, top, f.query.budget)
	if err != nil {
		return err
	}
	defer p.Close()
	emit := func(b *columnar.Batch, bound []byte) error {
		if bound == nil {
			return sent(func() error { return to.Write(b) })
		}
		metadata, err := flightproto.EncodeUnseen(bound)
		if err != nil {
			return err
		}
		return sent(func() error { return to.WriteLast(b, metadata) })
	}
	for rows := top.First; ; {
		more, err := p.Send(ctx, rows, emit)
		if err != nil || !more {
			return err
		}
		if rows, err = s.awaitRefill(ctx, f); err != nil {
			return err
		}
	}
}

// awaitRefill waits until a fragment is asked for more rows. Whoever cancels the
// query, or goes, ends the wait, and so does the longest lease there is.
func (s *Server) awaitRefill(ctx context.Context, f *fragment) (int64, error) {
	lease := time.NewTimer(s.cfg.MaxLease)
	defer lease.Stop()
	select {
	case rows := <-f.refills:
		return rows, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-lease.C:
		return 0, flightproto.WithReason(flightproto.Cancelled,
			sqlstate.New(sqlstate.QueryCanceled, "fragment %d of query %s was not asked for more rows within its lease", f.plan.ID, f.query.id))
	}
}

// refill answers skein.refill.
func (s *Server) refill(ctx context.Context, request *pb.RefillRequest) (*pb.RefillResponse, error) {
	if request.GetQueryId() == "" || request.GetRows() == 0 || request.GetRows() > math.MaxInt64 {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "a refill needs a query id and a number of rows")
	}
	if err := s.authorize(ctx, request.GetQueryId(), request.GetAuthorization()); err != nil {
		return nil, err
	}
	return &pb.RefillResponse{}, s.registry.refill(request.GetQueryId(), planner.FragmentID(request.GetFragment()),
		planner.ExchangeID(request.GetExchange()), int64(request.GetRows()))
}

// refill lets a fragment that is being read send more rows.
func (r *registry) refill(queryID string, id planner.FragmentID, exchange planner.ExchangeID, rows int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, ok := r.queries[queryID]
	if !ok {
		return r.unknown(queryID)
	}
	if err := context.Cause(q.ctx); err != nil {
		return err
	}
	f, ok := q.fragments[id]
	if !ok {
		return notStarted("fragment %d of query %s is not started on this worker or has ended", id, queryID)
	}
	if !f.running || f.refills == nil || f.outputs[0].exchange.ID != exchange {
		return sqlstate.New(sqlstate.ProtocolViolation, "exchange %d of fragment %d of query %s takes no refills", exchange, id, queryID)
	}
	select {
	case f.refills <- rows:
		return nil
	default:
		return sqlstate.New(sqlstate.ObjectInUse, "exchange %d of query %s is being refilled already", exchange, queryID)
	}
}
