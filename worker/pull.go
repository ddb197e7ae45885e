package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// DoExchange serves pulls, one after the other: queries of few rows that their
// ticket starts. See flightproto.Conn.Pull.
func (s *Server) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	leave, err := s.enterNew()
	if err != nil {
		return flightproto.ToStatus(err)
	}
	defer leave()
	p := &pulls{server: s, stream: stream, over: make(chan error, 1)}
	// Receiving and sending block until the RPC ends, so it is another goroutine
	// that waits for what ends it.
	p.idle = time.AfterFunc(flightproto.SessionIdle, p.expire)
	defer p.idle.Stop()
	s.tasks.Go(p.run)
	select {
	case err = <-p.over:
	case <-s.closing:
		p.shut()
		err = <-p.over
	}
	p.abandon()
	return flightproto.ToStatus(err)
}

// errConsumerGone is the cause of the context of a query whose session has ended.
var errConsumerGone = fmt.Errorf("the consumer went away: %w", context.Canceled)

// pulls is one session of a gateway.
type pulls struct {
	server *Server
	stream flight.FlightService_DoExchangeServer
	over   chan error // ends the session with the first error or nil sent
	idle   *time.Timer

	mu     sync.Mutex
	busy   bool   // with a pull
	ended  bool   // no pull is begun any more
	gone   bool   // nobody reads any more
	active *query // of the pull
}

// end ends the session, unless it has been ended.
func (p *pulls) end(err error) {
	select {
	case p.over <- err:
	default:
	}
}

// expire ends a session that nothing has come on for long.
func (p *pulls) expire() { p.shut() }

// shut ends the session as soon as no pull is under way.
func (p *pulls) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if !p.busy {
		p.end(nil)
	}
}

// abandon cancels the query that the session still works for when it ends.
func (p *pulls) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.gone = true, true
	if p.active != nil {
		p.active.cancel(errConsumerGone)
	}
}

// begin reports whether a pull may begin.
func (p *pulls) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.idle.Stop()
	p.busy = true
	return true
}

// work notes the query of the pull under way and reports whether anybody reads.
func (p *pulls) work(q *query) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = q
	return !p.gone
}

// done reports whether another pull may come.
func (p *pulls) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.active = false, nil
	if p.ended {
		return false
	}
	p.idle.Reset(flightproto.SessionIdle)
	return true
}

// run serves pulls until the session ends.
func (p *pulls) run() {
	for {
		request, err := p.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			p.end(err)
			return
		}
		if !p.begin() {
			return
		}
		err = p.serve(request.GetAppMetadata())
		if !p.done() || err != nil {
			p.end(err)
			return
		}
	}
}

// serve answers one pull. What fails of the query is part of the answer; an error
// is the session's.
func (p *pulls) serve(raw []byte) error {
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(raw, ticket, flightproto.MaxTicketBytes); err != nil {
		return err
	}
	out, err := p.start(ticket)
	if err != nil {
		return flightproto.FailPull(p.stream, ticket.GetQueryId(), err)
	}
	return p.rows(out)
}

// start registers the query of a ticket and claims the exchange.
func (p *pulls) start(ticket *pb.Ticket) (*output, error) {
	s := p.server
	if ticket.GetStart().GetQueryId() != ticket.GetQueryId() {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "the pull of query %s starts query %q", ticket.GetQueryId(), ticket.GetStart().GetQueryId())
	}
	if _, _, err := s.register(p.stream.Context(), ticket.GetStart()); err != nil {
		return nil, err
	}
	out, _, err := s.registry.claim(ticket.GetQueryId(),
		planner.FragmentID(ticket.GetFragment()), planner.ExchangeID(ticket.GetExchange()), ticket.GetTabletGeneration())
	if err != nil {
		return nil, err
	}
	f := out.fragment
	if f.shared != nil || f.portions() != nil {
		err := sqlstate.New(sqlstate.ProtocolViolation, "fragment %d of query %s cannot be pulled: it sends portions or has several consumers", f.plan.ID, f.query.id)
		f.query.cancel(err)
		s.registry.end(f)
		return nil, err
	}
	return out, nil
}

// rows answers with the rows of an output.
func (p *pulls) rows(out *output) error {
	s, f := p.server, out.fragment
	defer s.registry.end(f)
	if !p.work(f.query) {
		return errConsumerGone
	}
	// A query that is cancelled ends the session, for a consumer that does not read
	// would not hear of it otherwise.
	stop := context.AfterFunc(f.query.ctx, func() {
		if cause := context.Cause(f.query.ctx); !errors.Is(cause, errQueryOver) {
			p.end(cause)
		}
	})
	defer stop()
	writer := flightproto.NewPullWriter(p.stream, out.stream)
	err := s.send(f.query.ctx, f, writer)
	var lost *lostConsumer
	if errors.As(err, &lost) {
		return lost.err
	}
	stop() // the answer tells what fails from here on
	err = s.ended(f.query.ctx, f, err)
	return sent(func() error { return writer.EndPull(f.query.id, s.cfg.Node.Clock().Now(), err) })
}
