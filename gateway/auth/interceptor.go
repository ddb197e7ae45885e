package auth

import (
	"context"
	"net"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"skein/flightproto"
	"skein/sqlstate"
)

// Headers of calls, and of their answers.
const (
	authorizationHeader = "authorization"
	// tokenHeader has the token of clients that were given it as the payload of a
	// handshake.
	tokenHeader = "auth-token-bin"
)

const handshakeMethod = "/arrow.flight.protocol.FlightService/Handshake"

type identityKey struct{}

// FromContext is who makes a call that an Authenticator has let through.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// ServerOptions have a gRPC server let only those through whom the Authenticator
// knows. It answers Flight's handshake itself.
func (a *Authenticator) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			ctx, err := a.identified(ctx)
			if err != nil {
				return nil, flightproto.ToStatus(err)
			}
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if info.FullMethod == handshakeMethod {
				return flightproto.ToStatus(a.handshake(stream))
			}
			ctx, err := a.identified(stream.Context())
			if err != nil {
				return flightproto.ToStatus(err)
			}
			return handle(server, &identifiedStream{stream, ctx})
		}),
	}
}

// identifiedStream is a stream whose context tells who makes the call.
type identifiedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *identifiedStream) Context() context.Context { return s.ctx }

// identified returns the context of a call with who makes it.
func (a *Authenticator) identified(ctx context.Context) (context.Context, error) {
	var id Identity
	var token string
	var err error
	if header := first(ctx, authorizationHeader); header != "" {
		id, token, err = a.Header(ctx, header, hostOf(ctx))
	} else if held := first(ctx, tokenHeader); held != "" {
		id, _, err = a.Token(ctx, held) // its client cannot take up another one
	} else {
		err = errNobody
	}
	if err != nil {
		return nil, err
	}
	if token != "" {
		if err := grpc.SetHeader(ctx, metadata.Pairs(authorizationHeader, "Bearer "+token)); err != nil {
			a.cfg.Logger.Debug("a token could not be sent", "err", err)
		}
	}
	return context.WithValue(ctx, identityKey{}, id), nil
}

// handshake answers Flight's handshake: with a token in the headers for a Basic
// authorization, with one as the payload for a BasicAuth message.
func (a *Authenticator) handshake(stream grpc.ServerStream) error {
	ctx := stream.Context()
	if header := first(ctx, authorizationHeader); header != "" {
		_, token, err := a.Header(ctx, header, hostOf(ctx))
		if err != nil || token == "" {
			return err
		}
		answer := metadata.Pairs(authorizationHeader, "Bearer "+token)
		stream.SetTrailer(answer) // where some clients look for it
		return stream.SendHeader(answer)
	}
	var request flight.HandshakeRequest
	if err := stream.RecvMsg(&request); err != nil {
		return errNobody
	}
	var basic flight.BasicAuth
	if err := proto.Unmarshal(request.GetPayload(), &basic); err != nil {
		return sqlstate.New(sqlstate.ProtocolViolation, "the payload of the handshake is not a BasicAuth message")
	}
	_, token, err := a.Password(ctx, basic.GetUsername(), basic.GetPassword(), hostOf(ctx))
	if err != nil {
		return err
	}
	return stream.SendMsg(&flight.HandshakeResponse{Payload: []byte(token)})
}

func first(ctx context.Context, header string) string {
	if values := metadata.ValueFromIncomingContext(ctx, header); len(values) > 0 {
		return values[0]
	}
	return ""
}

// hostOf is the address, without the port, that a call comes from.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return strings.Clone(p.Addr.String())
	}
	return host
}
