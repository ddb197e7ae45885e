package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"skein/catalog"
	"skein/cmd/skein/internal/config"
	"skein/consensus"
	"skein/storage"
	"skein/worker"
)

// devStart bounds how long the parts of `skein dev` may take to get ready.
const devStart = 30 * time.Second

// RunDev serves a gateway and one worker until ctx ends or one of them fails.
// ready is called once, when statements are answered; its error ends the
// process.
func RunDev(ctx context.Context, c config.Dev, version string, logger *slog.Logger, ready func(context.Context, Endpoints) error) (err error) {
	p := newProcess(c.Process, version, logger)
	defer p.finish(ctx, &err)
	p.cacheBytes = c.Bytes(&c.Memory)
	data, err := p.devDirectory(c.Data)
	if err != nil {
		return err
	}
	// The gateway's port comes first: it is the one that is likely to be taken.
	flight, err := listen("flight", c.Flight)
	if err != nil {
		return err
	}
	http, err := p.serveHTTP()
	if err != nil {
		return errors.Join(err, flight.Close())
	}
	if err := p.startDev(ctx, flight, data, version, &c); err != nil {
		return err
	}
	if err := ready(ctx, Endpoints{Flight: flight.Addr().String(), HTTP: http, Data: data}); err != nil {
		return err
	}
	return p.wait(ctx)
}

// startDev starts the worker, then the gateway on l, and waits for both.
func (p *process) startDev(ctx context.Context, l net.Listener, data, version string, c *config.Dev) error {
	ctx, cancel := context.WithTimeout(ctx, devStart)
	defer cancel()
	inner, err := listen("flight", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, l.Close())
	}
	raft, err := freeAddress()
	if err != nil {
		return errors.Join(err, l.Close(), inner.Close())
	}
	secret := rand.Text() // of this process alone
	const id = catalog.NodeID(1)
	node, err := p.startWorker(ctx, inner, secret, nil, consensus.NodeConfig{
		Cluster: "dev", NodeID: id, DataDir: filepath.Join(data, "worker"), InitIfEmpty: true, Standalone: true, Version: version,
		Store:   storage.Options{CacheBytes: p.cacheBytes, DefaultOf: worker.ColumnDefault},
		Members: map[catalog.NodeID]consensus.Peer{id: {RaftAddress: raft, FlightAddress: inner.Addr().String()}},
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := node.WaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("waiting for the worker: %w", err), l.Close())
	}
	g, err := p.startGateway(l, []string{inner.Addr().String()}, c.Statements, c.Clients, secret, nil, version)
	if err != nil {
		return err
	}
	if err := poll(ctx, g.Ready); err != nil {
		return fmt.Errorf("waiting for the gateway: %w", err)
	}
	p.setReady(func() error {
		if !node.Ready() {
			return errors.New("the worker is not ready")
		}
		return g.Ready()
	})
	return nil
}

// devDirectory creates the data directory; one in memory only is a temporary
// one that goes when the process stops.
func (p *process) devDirectory(data string) (string, error) {
	if data != config.InMemory {
		if err := os.MkdirAll(data, 0o755); err != nil {
			return "", fmt.Errorf("creating the data directory: %w", err)
		}
		return filepath.Abs(data)
	}
	dir, err := os.MkdirTemp("", "skein-dev-")
	if err != nil {
		return "", fmt.Errorf("creating a temporary data directory: %w", err)
	}
	p.onStop("temporary data directory", func(context.Context) error { return os.RemoveAll(dir) })
	return dir, nil
}

// freeAddress returns a loopback address that was free a moment ago. The Raft
// library opens its port itself, so it cannot be handed an open one.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// poll asks check until it is content or ctx ends.
func poll(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
