package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"

	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// handler runs one kind of action: body and result are as on the wire.
type handler func(s *Server, ctx context.Context, body []byte) ([]byte, error)

// actionType describes an action to ListActions and runs it.
type actionType struct {
	name        string
	description string
	run         handler
}

// actionTypes are the actions of a worker.
func actionTypes() []actionType {
	return []actionType{
		{flightproto.ActionStart, "Register fragments of a query", framed((*Server).start)},
		{flightproto.ActionCancel, "End the fragments of a query", framed((*Server).cancelQuery)},
		{flightproto.ActionRefill, "Let a fragment send more of its best rows", framed((*Server).refill)},
		{flightproto.ActionReport, "End a query that is measured and tell what its fragments did", framed((*Server).report)},
		{flightproto.ActionTransact, "Prepare, commit, abort or resolve a transaction on one tablet", framed((*Server).transact)},
		{flightproto.ActionMeta, "Run a command or read of the meta group", framed((*Server).meta)},
		{flightproto.ActionStatus, "Tell the state of the worker and its tablets, as JSON", (*Server).statusAction},
	}
}

// framed adapts a method on messages to frames.
func framed[Q, R any, PQ message[Q], PR message[R]](run func(*Server, context.Context, PQ) (PR, error)) handler {
	return func(s *Server, ctx context.Context, body []byte) ([]byte, error) {
		request := PQ(new(Q))
		if err := flightproto.Decode(body, request, flightproto.MaxMessageBytes); err != nil {
			return nil, err
		}
		response, err := run(s, ctx, request)
		if err != nil {
			return nil, err
		}
		return flightproto.Encode(response, flightproto.MaxMessageBytes)
	}
}

// message is a pointer to a protobuf message struct.
type message[T any] interface {
	*T
	proto.Message
}

// ListActions lists the actions of a worker.
func (s *Server) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	for _, a := range actionTypes() {
		if err := stream.Send(&flight.ActionType{Type: a.name, Description: a.description}); err != nil {
			return err
		}
	}
	return nil
}

// DoAction runs one action; each answers with one result.
func (s *Server) DoAction(action *flight.Action, stream flight.FlightService_DoActionServer) error {
	leave, err := s.enter()
	if err != nil {
		return flightproto.ToStatus(err)
	}
	defer leave()
	ctx, cancel := s.bound(stream.Context())
	defer cancel()
	for _, a := range actionTypes() {
		if a.name != action.GetType() {
			continue
		}
		result, err := a.run(s, ctx, action.GetBody())
		if err != nil {
			return flightproto.ToStatus(surfaced(ctx, err))
		}
		return stream.Send(&flight.Result{Body: result})
	}
	return flightproto.ToStatus(sqlstate.New(sqlstate.FeatureNotSupported, "a worker has no action %q", action.GetType()))
}

// surfaced replaces the error of a cancelled context by what cancelled it.
func surfaced(ctx context.Context, err error) error {
	if ctx.Err() != nil && isCancellation(err) {
		return context.Cause(ctx)
	}
	return edge(err)
}

func (s *Server) cancelQuery(ctx context.Context, request *pb.CancelRequest) (*pb.CancelResponse, error) {
	if request.GetQueryId() == "" {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "a cancel needs a query id")
	}
	claims, err := s.claims(ctx, request.GetQueryId(), request.GetAuthorization())
	if err != nil {
		return nil, err
	}
	if request.GetStatement() {
		if mine, err := s.mayEnd(claims, request.GetQueryId()); err != nil || !mine {
			return &pb.CancelResponse{}, err
		}
	}
	reason := request.GetReason()
	if reason == "" {
		reason = "canceling statement due to user request"
	}
	cancel := s.registry.cancelQuery
	if request.GetStatement() {
		cancel = s.registry.cancelStatement
	}
	n := cancel(request.GetQueryId(), flightproto.WithReason(flightproto.Cancelled, sqlstate.New(sqlstate.QueryCanceled, "%s", reason)))
	s.log.DebugContext(ctx, "query cancelled", "query_id", request.GetQueryId(), "fragments", n, "reason", reason)
	return &pb.CancelResponse{Fragments: uint32(n)}, nil
}

// meta passes a command or read on to the meta group.
func (s *Server) meta(ctx context.Context, request *pb.MetaRequest) (*pb.MetaResponse, error) {
	if err := s.authorizeMeta(ctx, request); err != nil {
		return nil, err
	}
	if request.GetCommand() == consensus.MetaWatch {
		if s.draining() {
			return nil, errShuttingDown()
		}
		watching, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		s.tasks.Go(func() {
			select {
			case <-s.closing:
				stop(errShuttingDown())
			case <-watching.Done():
			}
		})
		ctx = watching
	}
	body, err := s.cfg.Node.DoMeta(ctx, request.GetCommand(), request.GetBody())
	if err != nil {
		return nil, err
	}
	return &pb.MetaResponse{Body: body, Clock: s.cfg.Node.Clock().Now()}, nil
}

func (s *Server) statusAction(ctx context.Context, body []byte) ([]byte, error) {
	if err := s.authorize(ctx, flightproto.SubjectStatus, body); err != nil {
		return nil, err
	}
	status, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the worker's status: %w", err)
	}
	return out, nil
}
