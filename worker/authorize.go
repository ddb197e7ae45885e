package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

const (
	// keyWait is how long a request waits for a key that is on its way to here.
	keyWait = 2 * time.Second
	// ownEnvelope is how long envelopes that a worker signs are good for.
	ownEnvelope = time.Minute
)

// authorize checks an envelope for its subject, the id of a query or transaction
// or one of flightproto's subjects, before anything is done for a request.
func (s *Server) authorize(ctx context.Context, subject string, envelope []byte) error {
	_, err := s.claims(ctx, subject, envelope)
	return err
}

// claims is authorize with what the envelope vouches for, nil where workers ask for
// none.
func (s *Server) claims(ctx context.Context, subject string, envelope []byte) (*flightproto.Claims, error) {
	if n := len(envelope); n > flightproto.MaxAuthorizationBytes {
		return nil, &flightproto.SizeError{What: "authorization", Size: n, Limit: flightproto.MaxAuthorizationBytes}
	}
	return s.verified(ctx, func(a *flightproto.Authority) (*flightproto.Claims, error) {
		return a.Verify(subject, envelope)
	})
}

// authorizeTicket is authorize for a ticket that starts nothing, which a client may
// hold as well as a node.
func (s *Server) authorizeTicket(ctx context.Context, ticket *pb.Ticket) error {
	_, err := s.verified(ctx, func(a *flightproto.Authority) (*flightproto.Claims, error) {
		return a.VerifyTicket(ticket)
	})
	return err
}

// verified has an envelope checked, for a second time if its key is new.
func (s *Server) verified(ctx context.Context, verify func(*flightproto.Authority) (*flightproto.Claims, error)) (*flightproto.Claims, error) {
	if s.cfg.Authority == nil {
		return nil, nil
	}
	known := s.cfg.Node.Metadata().Version
	claims, err := verify(s.cfg.Authority)
	var unknown *flightproto.UnknownKeyError
	if !errors.As(err, &unknown) {
		return claims, err
	}
	// A gateway may hear of a new key first.
	waiting, cancel := context.WithTimeout(ctx, keyWait)
	defer cancel()
	if werr := s.cfg.Node.WaitMetadata(waiting, known+1); werr != nil {
		return nil, err
	}
	return verify(s.cfg.Authority)
}

// authorizeMeta checks the envelope of a request to the meta group. The keys come
// with its reads, so those need none unless the cluster has a secret. Who joins
// shows a token, which the meta group checks.
func (s *Server) authorizeMeta(ctx context.Context, request *pb.MetaRequest) error {
	switch request.GetCommand() {
	case consensus.MetaReadSnapshot, consensus.MetaWatch:
		if s.cfg.Authority == nil || !s.cfg.Authority.Closed() {
			return nil
		}
	case consensus.MetaJoin:
		return nil // it shows a token instead
	}
	return s.authorize(ctx, flightproto.SubjectMeta, request.GetAuthorization())
}

// signed is an envelope for a request that this worker makes on its own behalf.
func (s *Server) signed(subject string) ([]byte, error) {
	if s.cfg.Authority == nil {
		return nil, nil
	}
	return s.cfg.Authority.Sign(flightproto.Claims{
		User: fmt.Sprintf("node %d", s.cfg.Node.ID()), Subject: subject, Expires: s.cfg.Now().Add(ownEnvelope),
	})
}

// mayEnd reports whether a statement of that id runs here that is for a user to
// end; superusers may end any, also before it has come here. Another user's is SQLSTATE 42501.
func (s *Server) mayEnd(claims *flightproto.Claims, statement string) (bool, error) {
	if claims == nil || slices.Contains(claims.Roles, flightproto.RoleSuperuser) {
		return true, nil
	}
	envelopes := s.registry.authorizations(statement)
	for id, envelope := range envelopes {
		owner, err := s.cfg.Authority.Verify(id, envelope)
		if err != nil || owner.User != claims.User {
			return false, sqlstate.New(sqlstate.InsufficientPrivilege, "statement %s is another user's", statement).
				WithHint("Its user may cancel it, and a superuser.")
		}
	}
	return len(envelopes) > 0, nil
}
