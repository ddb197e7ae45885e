package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"skein/catalog"
	"skein/consensus"
	"skein/exec"
	"skein/flightproto"
	"skein/gateway/auth"
	"skein/gateway/session"
	"skein/planner"
)

// Config configures a gateway. The zero values of limits stand for defaults.
type Config struct {
	// Workers are Flight addresses (host:port) of workers to find the cluster
	// with; the others are learnt from the meta group.
	Workers []string
	Logger  *slog.Logger
	// Registerer receives the gateway's metrics; nil for none.
	Registerer prometheus.Registerer
	// ClusterSecret is what workers and gateways know each other by; workers that
	// have one tell the cluster's metadata to nobody without it.
	ClusterSecret string
	// Authenticate lets only users of the cluster in, who log in with passwords and
	// then show tokens, which are good for TokenLife (8 hours).
	Authenticate bool
	TokenLife    time.Duration
	// Identify tells who makes a call. Nil is what Authenticate has found out, without
	// it all are AnonymousUser, who is a superuser.
	Identify func(context.Context) Identity
	// DialOptions are for connections to workers.
	DialOptions []grpc.DialOption
	// Version is told to clients as the server's version.
	Version string
	// StatementTimeout ends statements that run longer; 0 is no limit.
	StatementTimeout time.Duration
	// SlowStatement is from how long on a statement is logged as slow; 0 is never.
	SlowStatement time.Duration
	// MaxStatements bounds the statements running at a time (1,024).
	MaxStatements int
	// MaxHandles bounds planned queries not fetched yet, and prepared
	// statements, each (10,000).
	MaxHandles int
	// MaxSessions bounds the clients' sessions (10,000), and MaxPrepared the
	// prepared statements of one (1,000).
	MaxSessions int
	MaxPrepared int
	// SessionIdle is how long a session is kept that its client does not use (1
	// hour).
	SessionIdle time.Duration
	// HandleTTL is how long an unused handle is kept (15 minutes).
	HandleTTL time.Duration
	// Memory and QueryMemory bound the bytes that the coordinator's operators
	// hold, of all queries and of one (1 GiB and 512 MiB).
	Memory      int64
	QueryMemory int64
	// Admission bounds what runs on the workers at a time.
	Admission Admission
	// WorkerLease is for how long a worker may not answer before queries that have
	// fragments there are tried elsewhere or fail (30 seconds).
	WorkerLease time.Duration
	// StartTimeout bounds handing fragments to a worker, which waits a little for
	// metadata that it does not know yet (15 seconds).
	StartTimeout time.Duration
	// FragmentLease is how long workers keep fragments that nobody pulls or cancels,
	// as when this gateway dies (5 minutes).
	FragmentLease time.Duration
	// DirectLife is for how long the tickets of direct endpoints are good (1
	// minute).
	DirectLife time.Duration
	// ClosedWorkers says that workers take connections from nodes only: there are
	// no direct endpoints.
	ClosedWorkers bool
	// PlanMemory bounds, roughly, the bytes of statements and plans kept for
	// further executions (64 MiB).
	PlanMemory int64
	// SpillDir is where the coordinator's operators put rows aside that do not
	// fit in memory (the system's directory for temporary files).
	SpillDir string
}

func (c *Config) setDefaults() {
	if c.SpillDir == "" {
		c.SpillDir = os.TempDir()
	}
	if c.Identify == nil && c.Authenticate {
		c.Identify = authenticated
	}
	if c.Identify == nil {
		c.Identify = anonymous
	}
	if c.TokenLife == 0 {
		c.TokenLife = 8 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxStatements == 0 {
		c.MaxStatements = 1024
	}
	if c.MaxHandles == 0 {
		c.MaxHandles = 10_000
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 10_000
	}
	if c.MaxPrepared == 0 {
		c.MaxPrepared = 1000
	}
	if c.SessionIdle == 0 {
		c.SessionIdle = time.Hour
	}
	if c.HandleTTL == 0 {
		c.HandleTTL = 15 * time.Minute
	}
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	if c.QueryMemory == 0 {
		c.QueryMemory = 512 << 20
	}
	if c.WorkerLease == 0 {
		c.WorkerLease = 30 * time.Second
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 15 * time.Second
	}
	if c.FragmentLease == 0 {
		c.FragmentLease = 5 * time.Minute
	}
	if c.DirectLife == 0 {
		c.DirectLife = time.Minute
	}
	if c.PlanMemory == 0 {
		c.PlanMemory = 64 << 20
	}
}

// Server is one gateway. It keeps no state that must survive it.
type Server struct {
	cfg       Config
	log       *slog.Logger
	clock     *consensus.Clock
	workers   *workers
	directory *directory
	leases    *leases
	ledger    *ledger
	queries   *queries
	creating  *creating
	budget    *exec.Budget
	planner   planner.Options
	plans     *planCache
	metrics   *metrics
	service   *service
	auth      *auth.Authenticator
	id        string // of this process, as the owner of temporary tables
	sessions  *session.Manager
	keeper    *keeper
	life      context.Context // of what runs in the background; ends with Close
	stopKeep  context.CancelFunc

	// background holds short tasks that outlive the statement that began
	// them: cancels and aborts on their way to workers.
	background sync.WaitGroup
}

// New starts a gateway that follows the cluster's metadata. It does not wait
// for the cluster to be there: see Ready.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()
	if len(cfg.Workers) == 0 {
		return nil, fmt.Errorf("a gateway needs the address of at least one worker")
	}
	g := &Server{
		id: newID(), cfg: cfg, log: cfg.Logger, clock: consensus.NewClock(), queries: newQueries(cfg.MaxStatements),
		creating: newCreating(),
		budget:   exec.NewBudget("gateway", cfg.Memory, nil),
		planner:  planner.DefaultOptions(),
		plans:    newPlanCache(cfg.PlanMemory),
		workers:  newWorkers(flightproto.NewPool(cfg.DialOptions...)),
		leases:   newLeases(cfg.WorkerLease),
		ledger:   newLedger(cfg.Admission.limits()),
	}
	var err error
	if g.metrics, err = newMetrics(cfg.Registerer, g); err != nil {
		return nil, fmt.Errorf("registering the gateway's metrics: %w", err)
	}
	g.auth, err = auth.New(auth.Config{
		Directory: usersDirectory{g}, Logger: g.log, TokenLife: cfg.TokenLife,
		Counted: func(result string) { g.metrics.logins.WithLabelValues(result).Inc() },
	})
	if err != nil {
		return nil, fmt.Errorf("preparing for logins: %w", err)
	}
	sql, err := newSQLService(g)
	if err != nil {
		return nil, fmt.Errorf("starting the SQL service: %w", err)
	}
	g.service = newService(sql)
	g.keeper = newKeeper(g)
	g.sessions = session.NewManager(session.Config{
		Limit: cfg.MaxSessions, Idle: cfg.SessionIdle, Defaults: session.NewSettings(cfg.Version, cfg.StatementTimeout),
		Ended: func(ended *session.Session) {
			sql.forget(ended)
			g.keeper.ended(ended)
		},
	})
	g.directory = newDirectory(g.workers, cfg.Workers, g.log, g.observe, cfg.ClusterSecret, g.leases)
	g.life, g.stopKeep = context.WithCancel(context.Background())
	g.background.Go(func() { g.keeper.run(g.life) })
	return g, nil
}

// Register adds the Flight service to a gRPC server made with ServerOptions.
func (g *Server) Register(s *grpc.Server) { flight.RegisterFlightServiceServer(s, g.service) }

// ServerOptions are the gRPC options that the Flight service needs.
func ServerOptions() []grpc.ServerOption { return flightproto.ServerOptions() }

// AuthOptions are the gRPC options by which the server asks who its clients are,
// none where it does not.
func (g *Server) AuthOptions() []grpc.ServerOption {
	if !g.cfg.Authenticate {
		return nil
	}
	return g.auth.ServerOptions()
}

// Ready returns nil once the cluster's metadata is known and its workers
// answer, else why not.
func (g *Server) Ready() error { return g.directory.Ready() }

// NodeAt is the worker that is to be at a Flight address, 0 where none is known.
func (g *Server) NodeAt(address string) catalog.NodeID {
	return g.directory.Current().meta.NodeAt(address)
}

// Close ends running statements, waits for what they left under way until ctx
// ends, and closes the connections to workers. Stop the gRPC server first.
func (g *Server) Close(ctx context.Context) error {
	for _, q := range g.queries.list() {
		g.queries.cancel(q.id)
	}
	done := make(chan struct{})
	g.stopKeep()
	go func() {
		g.background.Wait()
		g.keeper.close(ctx)
		g.directory.Close()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("closing the gateway: %w", ctx.Err())
	}
	if perr := g.workers.pool.Close(); err == nil && perr != nil {
		err = fmt.Errorf("closing connections to workers: %w", perr)
	}
	<-done // bounded: every background task has a timeout of its own
	return err
}

// observe advances the gateway's clock to a worker's, so that the next
// snapshot includes what that worker committed.
func (g *Server) observe(clock uint64) {
	if clock == 0 {
		return
	}
	if err := g.clock.Observe(clock); err != nil {
		g.log.Warn("a worker's clock is too far ahead", "err", err)
	}
}
