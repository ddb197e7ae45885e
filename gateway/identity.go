package gateway

import (
	"context"
	"time"

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

// sign makes the envelope with which workers run a query or a transaction for
// whoever made the call.
func (g *Server) sign(ctx context.Context, subject string) ([]byte, error) {
	who := g.cfg.Identify(ctx)
	return g.directory.authority.Sign(flightproto.Claims{
		User: who.User, Roles: who.Roles, Subject: subject, Expires: time.Now().Add(envelopeLife),
	})
}
