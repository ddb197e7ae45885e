package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"skein/exec"
	"skein/flightproto"
	"skein/sqlstate"
)

// Config is what a Server needs. Zero limits stand for the defaults named.
type Config struct {
	Node   Node         // the consensus node, owned by the caller
	Logger *slog.Logger // default: slog.Default()
	// Registerer receives the worker's metrics; nil for none.
	Registerer prometheus.Registerer

	Version string // of the program, as the status tells it

	// Authority checks the envelopes of requests and signs those to other
	// workers; nil lets all pass that are not oversized.
	Authority *flightproto.Authority

	MaxFragments     int           // registered at once, default 1,024
	Parallelism      int           // goroutines per pipeline, default GOMAXPROCS
	MemoryBytes      int64         // of all queries, default 2 GiB
	QueryMemoryBytes int64         // of one query, default MemoryBytes
	SpillDir         string        // where operators out of memory put rows aside; empty: they fail
	DefaultLease     time.Duration // of queries that ask for none, default 10 min
	MaxLease         time.Duration // default 24 h
	SweepInterval    time.Duration // of the lease check, default 1 s
	MetadataWait     time.Duration // for plans with newer metadata, default 5 s
	MaxPlans         int           // kept for further executions, default 4,096
	PlanBytes        int64         // of them in all, about, default 64 MiB

	MaxWrites       int           // streams open at once, default 256
	EncodeWorkers   int           // segments encoded at once, default GOMAXPROCS
	StageInFlight   int           // proposals per stream, default 4
	WriteBytes      int64         // rows and segments of all writes, default 512 MiB
	InlineBytes     int           // segments that commit in one entry, default 1 MiB
	ReadDoubtWait   time.Duration // of readers for an outcome, default 10 s
	ResolveAfter    time.Duration // prepared transactions, default 5 s
	ResolveInterval time.Duration // of the search for them, default 1 s
	StagedIdle      time.Duration // until staged rows are dropped, default 10 min

	// DialOptions are for connections to other workers.
	DialOptions []grpc.DialOption
	// Now is the wall clock, for tests.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	setDefault(&c.MaxFragments, 1024)
	setDefault(&c.Parallelism, runtime.GOMAXPROCS(0))
	setDefault(&c.MemoryBytes, 2<<30)
	setDefault(&c.QueryMemoryBytes, c.MemoryBytes)
	setDefault(&c.DefaultLease, 10*time.Minute)
	setDefault(&c.MaxLease, 24*time.Hour)
	setDefault(&c.SweepInterval, time.Second)
	setDefault(&c.MetadataWait, 5*time.Second)
	setDefault(&c.MaxPlans, 4096)
	setDefault(&c.PlanBytes, 64<<20)
	setDefault(&c.MaxWrites, 256)
	setDefault(&c.EncodeWorkers, runtime.GOMAXPROCS(0))
	setDefault(&c.StageInFlight, 4)
	setDefault(&c.WriteBytes, 512<<20)
	setDefault(&c.InlineBytes, 1<<20)
	setDefault(&c.ReadDoubtWait, 10*time.Second)
	setDefault(&c.ResolveAfter, 5*time.Second)
	setDefault(&c.ResolveInterval, time.Second)
	setDefault(&c.StagedIdle, 10*time.Minute)
	return c
}

func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Server is the Flight service of a worker. Register it on a gRPC server made
// with flightproto.ServerOptions; its methods are safe for concurrent use.
type Server struct {
	flight.BaseFlightServer

	cfg      Config
	log      *slog.Logger
	registry *registry
	plans    *plans
	budget   *exec.Budget
	pool     *flightproto.Pool
	encoders chan struct{}       // one token per segment being encoded
	writes   chan struct{}       // one token per open write
	memory   *semaphore.Weighted // bytes of all writes
	resolver *resolver
	metrics  metrics

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // goroutines of the server itself

	closing chan struct{} // closed when Drain or Close is called

	mu     sync.Mutex
	calls  int           // RPCs under way
	idle   chan struct{} // closed when the last RPC leaves after closing began
	closed bool
}

// New returns a running server; the caller ends it with Close.
func New(cfg Config) (*Server, error) {
	if cfg.Node == nil {
		return nil, errors.New("worker needs a consensus node")
	}
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Server{
		cfg:      cfg,
		log:      cfg.Logger.With("component", "worker", "node", cfg.Node.ID()),
		registry: newRegistry(cfg.MaxFragments, cfg.Now),
		plans:    newPlans(cfg.MaxPlans, cfg.PlanBytes),
		budget:   exec.NewBudget("node", cfg.MemoryBytes, nil),
		pool:     flightproto.NewPool(cfg.DialOptions...),
		encoders: make(chan struct{}, cfg.EncodeWorkers),
		writes:   make(chan struct{}, cfg.MaxWrites),
		memory:   semaphore.NewWeighted(cfg.WriteBytes),
		ctx:      ctx,
		cancel:   cancel,
		idle:     make(chan struct{}),
		closing:  make(chan struct{}),
	}
	if err := s.metrics.register(cfg.Registerer, s); err != nil {
		cancel(err)
		return nil, err
	}
	s.resolver = newResolver(s)
	s.tasks.Go(s.sweepLeases)
	s.tasks.Go(s.resolver.run)
	return s, nil
}

// Register puts the service on a gRPC server.
func (s *Server) Register(g *grpc.Server) { flight.RegisterFlightServiceServer(g, s) }

// enter counts an RPC in, unless the server is closing.
func (s *Server) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errShuttingDown()
	}
	s.calls++
	return s.leave, nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if s.closed && s.calls == 0 {
		close(s.idle)
	}
}

// enterNew is enter for a request that begins something, which a worker that is
// being drained leaves to others.
func (s *Server) enterNew() (leave func(), err error) {
	if s.draining() {
		return nil, errShuttingDown()
	}
	return s.enter()
}

func (s *Server) draining() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// announceEnd ends sessions that wait for requests and watches of the metadata,
// which tells gateways to go elsewhere. s.mu must be held.
func (s *Server) announceEnd() {
	if !s.draining() {
		close(s.closing)
	}
}

// Drain refuses new queries and writes, so that gateways turn to other workers,
// and returns when those under way have ended or ctx does. Their streams and
// transactions are served until Close.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.announceEnd()
	s.mu.Unlock()
	s.registry.shut(nil)
	busy := func() bool {
		_, fragments := s.registry.size()
		s.mu.Lock()
		defer s.mu.Unlock()
		return fragments > 0 || s.calls > 0
	}
	for poll := newPoll(time.Millisecond, 50*time.Millisecond); busy(); {
		if !poll.wait(ctx) {
			return
		}
	}
}

// Close refuses new requests, lets those under way finish until ctx ends, then
// cancels them, and waits for all goroutines. The node stays open.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.announceEnd()
	if s.calls == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	s.registry.shut(nil)
	var late error
	select {
	case <-s.idle:
	case <-ctx.Done():
		late = fmt.Errorf("draining the worker: %w", ctx.Err())
	}
	s.registry.shut(errShuttingDown())
	s.cancel(errShuttingDown())
	<-s.idle
	s.tasks.Wait()
	return errors.Join(late, s.pool.Close())
}

// sweepLeases ends queries that were forgotten by whoever started them.
func (s *Server) sweepLeases() {
	tick := time.NewTicker(s.cfg.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range s.registry.sweep() {
			s.log.Warn("query swept, its lease ran out", "query_id", id)
		}
	}
}

// observe moves the clock past a timestamp seen in a request.
func (s *Server) observe(timestamp uint64) error {
	if err := s.cfg.Node.Clock().Observe(timestamp); err != nil {
		return sqlstate.New(sqlstate.InternalError, "%w", err).WithHint("Synchronise the clocks of the cluster's machines.")
	}
	return nil
}

// bound ends with ctx or with the server, whichever is first.
func (s *Server) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return bounded, func() {
		stop()
		cancel(nil)
	}
}
