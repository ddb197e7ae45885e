package gateway

import (
	"context"
	"time"

	"skein/consensus"
	"skein/flightproto"
	"skein/gateway/auth"
	"skein/sqlstate"
)

// Identity is who makes a call.
type Identity = auth.Identity

// AnonymousUser is the user of calls that nobody has been identified for.
const AnonymousUser = "anonymous"

// anonymous is who makes calls to a gateway that does not ask.
func anonymous(context.Context) Identity {
	return Identity{User: AnonymousUser, Roles: []string{flightproto.RoleSuperuser}, Superuser: true}
}

// authenticated is who makes a call that an Authenticator has let through; nobody
// otherwise, who may do nothing that is for somebody.
func authenticated(ctx context.Context) Identity {
	id, _ := auth.FromContext(ctx)
	return id
}

// mayAdminister refuses what only superusers may do.
func (g *Server) mayAdminister(ctx context.Context, what string) error {
	if who := g.cfg.Identify(ctx); !who.Superuser {
		return sqlstate.New(sqlstate.InsufficientPrivilege, "user %q may not %s", who.User, what).WithHint("A superuser may.")
	}
	return nil
}

// gatewayUser is in the envelopes of what a gateway asks on its own behalf.
const gatewayUser = "gateway"

// envelopeLife is how long workers do as an envelope says: above it no query is
// kept by a worker either.
const envelopeLife = 24 * time.Hour

// keyOverlap is how long a key that is replaced is valid: as long as envelopes are
// that are signed with it, by gateways too that hear of the new one late.
const keyOverlap = envelopeLife + time.Hour

// rotateKey has the cluster sign with a new key.
func (g *Server) rotateKey(ctx context.Context) error {
	request := consensus.AddKey{
		RequestID: newID(), Secret: consensus.NewSecret(), Unix: time.Now().UnixMilli(), Keep: keyOverlap.Milliseconds(),
	}
	var reply consensus.TableReply
	if err := g.directory.meta(ctx, consensus.MetaAddKey, request, &reply); err != nil {
		return err
	}
	g.log.Info("the key that authorizations are signed with was replaced", "metadata_version", reply.Version)
	return g.directory.refresh(ctx, false)
}

// sign makes the envelope with which workers run a query or a transaction for
// whoever made the call.
func (g *Server) sign(ctx context.Context, subject string) ([]byte, error) {
	who := g.cfg.Identify(ctx)
	return g.directory.authority.Sign(flightproto.Claims{
		User: who.User, Roles: who.Roles, Subject: subject, Expires: time.Now().Add(envelopeLife),
	})
}
