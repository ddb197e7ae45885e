package gateway

import (
	"context"
	"time"

	"skein/consensus"
	"skein/flightproto"
)

// Identity is who makes a call.
type Identity struct {
	User  string
	Roles []string
}

// AnonymousUser is the user of calls that nobody has been identified for.
const AnonymousUser = "anonymous"

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
