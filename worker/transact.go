package worker

import (
	"context"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/sqlstate"
	"skein/storage"
)

// transact runs one step of a transaction on a tablet hosted here.
func (s *Server) transact(ctx context.Context, request *pb.TransactRequest) (*pb.TransactResponse, error) {
	if err := s.authorize(ctx, request.GetTransactionId(), request.GetAuthorization()); err != nil {
		return nil, err
	}
	if s.undecided(request) {
		return &pb.TransactResponse{Outcome: pb.TransactResponse_STAGED, Clock: s.cfg.Node.Clock().Now()}, nil
	}
	command, err := s.stepCommand(request)
	if err != nil {
		return nil, err
	}
	tablet := catalog.TabletID(request.GetTabletId())
	result, err := s.cfg.Node.Propose(ctx, tablet, command)
	if err != nil {
		return nil, err
	}
	// Aborts and questions are answered by the outcome; other steps that did
	// not do what was asked are answered by the reason.
	switch command.(type) {
	case storage.Begin, storage.Prepare, storage.Commit, storage.Truncate:
		if result.Err != nil {
			return nil, result.Err
		}
	}
	if result.Outcome == storage.Prepared {
		if err := s.passFloor(tablet, request.GetTransactionId()); err != nil {
			return nil, err
		}
	}
	outcome, err := wireOutcome(result.Outcome)
	if err != nil {
		return nil, err
	}
	s.log.DebugContext(ctx, "transaction step", "txn", request.GetTransactionId(), "tablet", tablet, "step", request.GetStep(), "outcome", result.Outcome)
	return &pb.TransactResponse{
		Outcome: outcome, CommitTimestamp: result.Timestamp, Clock: s.cfg.Node.Clock().Now(),
		Changes: changesOf(result),
	}, nil
}

// undecided reports whether a coordinator lives that has not decided yet: it says so
// itself, or had done so lately when another one asks.
func (s *Server) undecided(request *pb.TransactRequest) bool {
	switch txn := request.GetTransactionId(); request.GetStep() {
	case pb.TransactRequest_KEEP:
		if txn != "" {
			s.resolver.keep(txn)
		}
		return txn != ""
	case pb.TransactRequest_RESOLVE:
		return s.resolver.lives(txn)
	}
	return false
}

// passFloor moves the clock past the floor that a transaction was prepared with,
// which an earlier prepare through another worker may have set.
func (s *Server) passFloor(id catalog.TabletID, txn string) error {
	tablet, ok := s.cfg.Node.Tablet(id)
	if !ok {
		return nil // it was here a moment ago; a repeated prepare will find out
	}
	for _, t := range tablet.InDoubt() {
		if t.Txn == txn {
			return s.observe(t.Floor)
		}
	}
	return nil
}

func (s *Server) stepCommand(request *pb.TransactRequest) (storage.Command, error) {
	txn := request.GetTransactionId()
	if txn == "" {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "a transaction step needs a transaction id")
	}
	switch request.GetStep() {
	case pb.TransactRequest_BEGIN:
		return storage.Begin{Txn: txn}, nil
	case pb.TransactRequest_PREPARE:
		if request.GetPrimaryTabletId() == 0 {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "transaction %s: a prepare needs the primary tablet", txn)
		}
		// The response's clock exceeds the floor, and the coordinator commits
		// at or above every response's clock.
		return storage.Prepare{
			Txn: txn, Segments: request.GetSegments(),
			Primary: catalog.TabletID(request.GetPrimaryTabletId()), Floor: s.cfg.Node.Clock().Now(),
			Deletes: request.GetDeletes(),
		}, nil
	case pb.TransactRequest_COMMIT:
		if request.GetCommitTimestamp() == 0 {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "transaction %s: a commit needs a timestamp", txn)
		}
		if err := s.observe(request.GetCommitTimestamp()); err != nil {
			return nil, err
		}
		return storage.Commit{
			Txn: txn, Segments: request.GetSegments(), Deletes: request.GetDeletes(), Timestamp: request.GetCommitTimestamp(),
		}, nil
	case pb.TransactRequest_TRUNCATE:
		if err := s.observe(request.GetCommitTimestamp()); err != nil {
			return nil, err
		}
		return storage.Truncate{Txn: txn, Timestamp: request.GetCommitTimestamp()}, nil
	case pb.TransactRequest_ABORT:
		return storage.Abort{Txn: txn}, nil
	case pb.TransactRequest_RESOLVE:
		return storage.Resolve{Txn: txn}, nil
	}
	return nil, sqlstate.New(sqlstate.ProtocolViolation, "transaction %s: unknown step %d", txn, request.GetStep())
}

func wireOutcome(o storage.Outcome) (pb.TransactResponse_Outcome, error) {
	switch o {
	case storage.Staged:
		return pb.TransactResponse_STAGED, nil
	case storage.Prepared:
		return pb.TransactResponse_PREPARED, nil
	case storage.Committed:
		return pb.TransactResponse_COMMITTED, nil
	case storage.Aborted:
		return pb.TransactResponse_ABORTED, nil
	}
	return 0, sqlstate.New(sqlstate.InternalError, "transaction step ended %s", o)
}
