package worker

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/exec"
	"skein/planner"
)

// localExchange is the consuming end of an exchange whose producer runs on the
// same worker and serves several consumers: the batches that wait for this one
// are handed over as they are, without encoding, transport and decoding.
//
// Other exchanges within a worker go through the transport: the goroutine that
// sends is what lets a fragment without a queue of its own run ahead.
type localExchange struct {
	server *Server
	out    *output
	from   exec.Operator // nil before the first batch was asked for
	closed bool
}

// openLocal claims an exchange of a fragment that fans out on this worker, and
// sets the fragment running if nobody has. It returns nil for all others.
func (s *Server) openLocal(q *query, end input) (exec.Operator, error) {
	if !s.registry.fansOutHere(q, end.exchange.Producer) {
		return nil, nil
	}
	out, start, err := s.registry.claim(q.id, end.exchange.Producer, end.exchange.ID, end.generation)
	if err != nil {
		return nil, err
	}
	if start {
		s.tasks.Go(func() { s.runShared(out.fragment) })
	}
	return &localExchange{server: s, out: out}, nil
}

// fansOutHere reports whether a fragment of a query is on this worker and serves
// several consumers.
func (r *registry) fansOutHere(q *query, id planner.FragmentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := q.fragments[id]
	return ok && f.fansOut()
}

func (e *localExchange) Schema() *arrow.Schema { return e.out.stream.Schema() }

func (e *localExchange) Next(ctx context.Context) (*columnar.Batch, error) {
	f := e.out.fragment
	if e.from == nil {
		select {
		case <-f.shared.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.shared.err != nil {
			return nil, f.shared.err
		}
		e.from = f.shared.outputs[e.out.slot()]
	}
	b, err := e.from.Next(ctx)
	return b, e.server.ended(ctx, f, err)
}

func (e *localExchange) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.server.leaveOutput(e.out)
	return nil
}

// leaveOutput gives an output up as soon as it exists, which is once its
// fragment is built.
func (s *Server) leaveOutput(out *output) {
	f := out.fragment
	leave := func() {
		if f.shared.err == nil {
			s.closeOutput(f, out.index)
		}
	}
	select {
	case <-f.shared.ready:
		leave()
	default:
		s.tasks.Go(func() {
			<-f.shared.ready
			leave()
		})
	}
}
