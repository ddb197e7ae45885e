package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"skein/catalog"
	"skein/cmd/skein/internal/config"
	"skein/gateway"
	"skein/internal/certfiles"
)

// Endpoints are the addresses that a process serves.
type Endpoints struct {
	Flight string
	HTTP   string // "" for none
	Data   string // data directory, "" for none
	Node   string // which worker it is, "" for none
}

// RunGateway serves Flight SQL until ctx ends or it fails. started is called
// once with the addresses, while the workers may still be out of reach.
func RunGateway(ctx context.Context, c config.Gateway, version string, logger *slog.Logger, started func(Endpoints)) (err error) {
	p := newProcess(c.Process, version, logger)
	defer p.finish(ctx, &err)
	http, err := p.serveHTTP()
	if err != nil {
		return err
	}
	certificates, err := openNodeTLS(c.NodeTLS, 0, logger)
	if err != nil {
		return err
	}
	l, err := listen("flight", c.Flight)
	if err != nil {
		return err
	}
	g, err := p.startGateway(l, c.Workers, c.Statements, c.Clients, c.ClusterSecret, certificates, version)
	if err != nil {
		return err
	}
	p.setReady(g.Ready)
	started(Endpoints{Flight: l.Addr().String(), HTTP: http})
	return p.wait(ctx)
}

// The operators of a gateway get so much memory where there is plenty.
const (
	gatewayMemory      = 1 << 30
	gatewayQueryMemory = 512 << 20
)

// startGateway starts a gateway over the workers and serves it on l.
func (p *process) startGateway(l net.Listener, workers []string, statements config.Statements, clients config.Clients, secret string, certificates *nodeTLS, version string) (*gateway.Server, error) {
	transport, err := p.clientTLS(clients)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var started atomic.Pointer[gateway.Server]
	memory := p.settings.Operators(gatewayMemory, p.cacheBytes)
	g, err := gateway.New(gateway.Config{
		DialOptions: certificates.dialOptions(func(address string) catalog.NodeID {
			if g := started.Load(); g != nil {
				return g.NodeAt(address)
			}
			return 0
		}),
		Authenticate: clients.Auth == config.AuthUsers, TokenLife: clients.TokenLife,
		Workers: workers, Logger: p.logger.With("role", "gateway"), Registerer: p.registry, Version: version,
		Memory: memory, QueryMemory: p.settings.QueryOperators(gatewayQueryMemory, memory),
		SlowStatement: statements.SlowStatement, StatementTimeout: statements.StatementTimeout, ClusterSecret: secret,
		FragmentLease: statements.FragmentLease, DirectLife: statements.DirectTicketLife, ClosedWorkers: certificates != nil,
		SessionIdle: statements.SessionIdle, MaxSessions: statements.MaxSessions,
		Admission: gateway.Admission{
			MaxFragments: statements.MaxFragments, MaxBytes: uint64(statements.MaxBytes),
			MaxQueryFragments: statements.MaxQueryFragments, MaxQueryBytes: uint64(statements.MaxQueryBytes),
			Queue: statements.AdmissionQueue, Wait: statements.AdmissionWait,
		},
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	started.Store(g)
	p.onStop("gateway", g.Close)
	if clients.Insecure && (!clients.TLS() || clients.Auth == config.AuthNone) {
		p.logger.Warn("clients are let in without TLS or without asking who they are", "tls", clients.TLS(), "auth", clients.Auth, "address", l.Addr().String())
	}
	if err := p.serveFlight(l, "gateway", g.Register, append(transport, g.AuthOptions()...)...); err != nil {
		return nil, err
	}
	return g, nil
}

// clientTLS are the options of a listener that clients connect to, none for
// plaintext.
func (p *process) clientTLS(c config.Clients) ([]grpc.ServerOption, error) {
	if !c.TLS() {
		return nil, nil
	}
	source, err := certfiles.Open(certfiles.Files{Cert: c.Cert, Key: c.Key}, p.logger)
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(source.Public("h2")))}, nil
}
