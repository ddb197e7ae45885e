package worker

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/status"

	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// DoGet streams one exchange of a registered fragment.
func (s *Server) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	leave, err := s.enter()
	if err != nil {
		return flightproto.ToStatus(err)
	}
	defer leave()
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(t.GetTicket(), ticket, flightproto.MaxTicketBytes); err != nil {
		return flightproto.ToStatus(err)
	}
	if ticket.GetStart() != nil { // whose envelope is for the same query
		err = s.startRiding(stream, ticket)
	} else {
		err = s.authorizeTicket(stream.Context(), ticket)
	}
	if err != nil {
		return flightproto.ToStatus(err)
	}
	out, start, err := s.registry.claim(ticket.GetQueryId(),
		planner.FragmentID(ticket.GetFragment()), planner.ExchangeID(ticket.GetExchange()), ticket.GetTabletGeneration())
	if err != nil {
		return flightproto.ToStatus(err)
	}
	return flightproto.ToStatus(s.stream(out, start, ticket.GetDictionaries(), stream))
}

// startRiding registers the fragments that a ticket brings along. The answer to
// a start, the clock, goes behind the rows.
func (s *Server) startRiding(stream flight.FlightService_DoGetServer, ticket *pb.Ticket) error {
	if got := ticket.GetStart().GetQueryId(); got != ticket.GetQueryId() {
		return sqlstate.New(sqlstate.ProtocolViolation, "the ticket of query %s starts query %s", ticket.GetQueryId(), got)
	}
	if _, _, err := s.register(stream.Context(), ticket.GetStart()); err != nil {
		return err
	}
	stream.SetTrailer(flightproto.ClockTrailer(s.cfg.Node.Clock().Now()))
	return nil
}

// stream runs a claimed output to its end, or until its query or its consumer
// ends. Sending blocks while a consumer does not read, whatever happens to the
// query, and only the end of the RPC unblocks it: so it is done by a goroutine
// that the RPC need not wait for.
func (s *Server) stream(out *output, start, dictionaries bool, stream flight.FlightService_DoGetServer) error {
	f := out.fragment
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	stop := context.AfterFunc(f.query.ctx, func() { cancel(context.Cause(f.query.ctx)) })
	defer stop()
	if start && f.shared != nil {
		s.tasks.Go(func() { s.runShared(f) })
	}
	done := make(chan error, 1)
	s.tasks.Go(func() { done <- s.deliver(ctx, out, dictionaries, stream) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errQueryOver) {
			return <-done // all is sent, this was the last fragment
		}
		return context.Cause(ctx)
	}
}

// deliver sends the rows of an output, with dictionaries if the consumer takes
// them and the rows move between workers.
func (s *Server) deliver(ctx context.Context, out *output, dictionaries bool, stream flight.FlightService_DoGetServer) (err error) {
	f := out.fragment
	writer := flightproto.NewStreamWriter(stream, out.stream, nil)
	if f.shared != nil {
		if dictionaries {
			writer.SendDictionaries()
		}
		err = s.sendShared(ctx, out, func(b *columnar.Batch) error { return sent(func() error { return writer.Write(b) }) })
	} else {
		defer s.registry.end(f)
		err = s.send(ctx, f, writer)
	}
	if err == nil {
		err = sent(writer.Close)
	}
	if err == nil {
		stream.SetTrailer(writer.Trailer())
	}
	var lost *lostConsumer
	if errors.As(err, &lost) {
		return lost.err
	}
	return s.ended(ctx, f, err)
}

// lostConsumer is a failure to send, which says nothing about the fragment.
type lostConsumer struct{ err error }

func (e *lostConsumer) Error() string { return "sending to a consumer: " + e.err.Error() }
func (e *lostConsumer) Unwrap() error { return e.err }

// sent runs what sends rows. A panic in it is an error of the query, as one of
// its operators is.
func sent(send func() error) error {
	err := exec.Guard("sending rows", send)
	if _, transport := status.FromError(err); err != nil && transport {
		return &lostConsumer{err: err}
	}
	return err
}
