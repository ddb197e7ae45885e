package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"skein/cmd/skein/internal/config"
	"skein/cmd/skein/internal/ops"
	"skein/flightproto"
	"skein/internal/certfiles"
)

// errStarting is the readiness of a process whose parts are being started.
var errStarting = errors.New("starting")

// errStopping is the readiness of a process that has been told to stop.
var errStopping = errors.New("stopping")

// process is what the serving commands have in common: parts that stop in
// reverse order, HTTP, and a channel for the failure of a part.
type process struct {
	settings config.Process
	logger   *slog.Logger
	registry *prometheus.Registry
	failed   chan error
	ready    atomic.Pointer[func() error]
	parts    []part
	// drain has a worker hand over what it leads and finish what it has begun while
	// its server still answers.
	drain func(context.Context) error
	// cacheBytes are what the worker's cache may hold, 0 of a gateway alone.
	cacheBytes int64
}

type part struct {
	name string
	stop func(context.Context) error
}

func newProcess(settings config.Process, version string, logger *slog.Logger) *process {
	settings.Memory.Apply()
	p := &process{
		settings: settings,
		logger:   logger,
		registry: ops.NewRegistry(version),
		failed:   make(chan error, 4), // one for each server that may fail
	}
	p.setReady(func() error { return errStarting })
	return p
}

// setReady replaces the check behind /readyz.
func (p *process) setReady(check func() error) { p.ready.Store(&check) }

// onStop adds a part to be stopped before those added earlier.
func (p *process) onStop(name string, stop func(context.Context) error) {
	p.parts = append(p.parts, part{name, stop})
}

// wait returns when ctx ends or a part fails.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		p.logger.Info("stopping", "grace", p.settings.Grace)
		return nil
	case err := <-p.failed:
		return err
	}
}

// finish stops the process at the end of its run, whose error is *err. Being
// told to stop is no error, not even while the process was starting.
func (p *process) finish(ctx context.Context, err *error) {
	if ctx.Err() != nil && errors.Is(*err, context.Canceled) {
		*err = nil
	}
	*err = errors.Join(*err, p.stop())
}

// stop stops all parts in reverse order within the grace period.
func (p *process) stop() error {
	p.setReady(func() error { return errStopping })
	ctx, cancel := context.WithTimeout(context.Background(), p.settings.Grace)
	defer cancel()
	var errs []error
	for i := len(p.parts) - 1; i >= 0; i-- {
		part, began := p.parts[i], time.Now()
		ended, err := stopPart(ctx, part)
		if err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", part.name, err))
		}
		if !ended {
			break // the parts below may still be in use
		}
		p.logger.Debug("stopped", "part", part.name, "duration", time.Since(began))
	}
	p.parts = nil
	return errors.Join(errs...)
}

// withinHalf gives a part that stops first half of the time that is left, so that
// those below get the other half.
func (p *process) withinHalf(stop func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
			defer cancel()
		}
		return stop(ctx)
	}
}

// overtime is how long a part may go on when the grace period is over, to
// notice it. One that hangs, say in a disk that does not answer, is left behind.
const overtime = 2 * time.Second

// stopPart stops one part and reports whether it has ended.
func stopPart(ctx context.Context, p part) (ended bool, err error) {
	done := make(chan error, 1)
	go func() { done <- p.stop(ctx) }()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(overtime)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, fmt.Errorf("it did not end in time: %w", ctx.Err())
	}
}

// serveHTTP starts health and metrics unless the settings have no address.
// It returns the address.
func (p *process) serveHTTP() (string, error) {
	if p.settings.HTTP == "" {
		return "", nil
	}
	l, err := listen("http", p.settings.HTTP)
	if err != nil {
		return "", err
	}
	if cert := p.settings.HTTPCert; cert != "" {
		source, err := certfiles.Open(certfiles.Files{Cert: cert, Key: p.settings.HTTPKey}, p.logger)
		if err != nil {
			return "", errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, source.Public("http/1.1"))
	}
	s := ops.Serve(l, ops.Endpoints{
		Metrics: p.registry, Ready: func() error { return (*p.ready.Load())() }, Profiles: p.settings.PProf,
	}, p.logger)
	p.onStop("HTTP", s.Close)
	return l.Addr().String(), nil
}

// serveFlight starts a gRPC server for the services that register adds. role
// names it in metrics and logs.
func (p *process) serveFlight(l net.Listener, role string, register func(*grpc.Server), options ...grpc.ServerOption) error {
	logger := p.logger.With("role", role)
	rpc, err := ops.NewRPC(p.registry, role, logger)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer(slices.Concat(flightproto.ServerOptions(), rpc.ServerOptions(), options)...)
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil {
			p.failed <- fmt.Errorf("serving Flight as %s on %s: %w", role, l.Addr(), err)
		}
	}()
	p.onStop("Flight "+role, func(ctx context.Context) error {
		stopGRPC(ctx, server)
		<-done
		return nil
	})
	logger.Info("serving Flight", "address", l.Addr().String())
	return nil
}

// stopGRPC lets calls finish for half of the time that ctx has left, then ends
// them, so that the parts below get the other half.
func stopGRPC(ctx context.Context, server *grpc.Server) {
	finished := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(finished)
	}()
	patience := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		patience = time.Until(deadline) / 2
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		server.Stop()
		<-finished
	}
}

// listen opens a port, with an error that tells what to do where it is taken.
func listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port of %s is in use by another process; stop it or choose another with --%s", address, setting)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s for %s: %w", address, setting, err)
	}
	return l, nil
}
