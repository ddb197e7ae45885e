package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"golang.org/x/sync/semaphore"

	"skein/catalog"
	"skein/storage"
)

// Defaults of Config.
const (
	// defaultRTT is the tick of all Raft timers.
	defaultRTT = 25 * time.Millisecond
	// defaultHeartbeat and defaultElection are for groups of several replicas:
	// a leader whose disk stalls for a second keeps its lease.
	defaultHeartbeat = 100 * time.Millisecond
	defaultElection  = 1500 * time.Millisecond
	// defaultLogBytes is how much a replica's log grows between cuts.
	defaultLogBytes = 64 << 20
	// defaultInFlight bounds the bytes of unanswered proposals per host, so that
	// what queues in front of the disk can be written well within an election.
	defaultInFlight = 32 << 20
)

// Sizes that the on-disk layout depends on: changing them makes existing
// directories unreadable. Few log stores let tablets share each sync.
const (
	logStores    = 4
	execShards   = 4
	memtableSize = 8 << 20
	memtables    = 3
)

// Config describes a Host.
type Config struct {
	// Cluster names the cluster; nodes of other clusters are not talked to.
	Cluster string
	// ClusterID tells clusters of one name apart, "" for those of early releases.
	ClusterID string
	NodeID    catalog.NodeID
	// DataDir is the host's own directory, exclusively.
	DataDir string
	// RaftAddress is the host:port to listen on and to be reached at.
	RaftAddress string
	// ListenAddress overrides the address to listen on, "" for RaftAddress.
	ListenAddress string
	// Peers are the Raft addresses of the nodes known from the start. More may
	// be told with Host.SetAddress.
	Peers map[catalog.NodeID]string
	// Told are addresses that count more than those that the metadata has when the
	// host starts.
	Told  map[catalog.NodeID]string
	Store *storage.Store
	Clock *Clock // nil for a new one
	// Certificates turn on mutual TLS between nodes; nil is plaintext.
	Certificates Certificates
	// Timing; zero fields take defaults.
	RTT       time.Duration
	Heartbeat time.Duration
	Election  time.Duration
	// LogBytes and LogEntries bound a replica's log between cuts, 0 for defaults.
	LogBytes   int64
	LogEntries uint64
	// InFlightBytes bounds the proposals awaiting an answer, 0 for the default.
	InFlightBytes int64
	// Drain is how long the readers and writers of a replica that leaves this node
	// are waited for, 0 for the default.
	Drain time.Duration
	// BalanceEvery is how often a node looks for replicas and leaderships that should
	// be elsewhere, 0 for the default.
	BalanceEvery time.Duration
	// ScrubBytes per second, 0 for the default, are read in search of damage; a
	// negative rate turns the search off. It begins anew ScrubEvery after its end.
	ScrubBytes int64
	ScrubEvery time.Duration
	Logger     *slog.Logger // nil for slog.Default

	files       config.IFS         // of the Raft log; nil for the operating system's
	repair      func(changePoint)  // called in the middle of repairs and moves, for tests
	reshape     func(reshapePoint) // the same for splits and merges
	surveyEvery time.Duration      // 0 for the default, for tests
}

func (c *Config) setDefaults() {
	c.RTT = cmp.Or(c.RTT, defaultRTT)
	c.Heartbeat = cmp.Or(c.Heartbeat, defaultHeartbeat)
	c.Election = cmp.Or(c.Election, defaultElection)
	c.LogBytes = cmp.Or(c.LogBytes, defaultLogBytes)
	c.LogEntries = cmp.Or(c.LogEntries, 10_000)
	c.InFlightBytes = cmp.Or(c.InFlightBytes, defaultInFlight)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	c.BalanceEvery = cmp.Or(c.BalanceEvery, defaultBalanceEvery)
	c.ScrubBytes = cmp.Or(c.ScrubBytes, defaultScrubBytes)
	c.ScrubEvery = cmp.Or(c.ScrubEvery, defaultScrubEvery)
	if c.Clock == nil {
		c.Clock = NewClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

func (c *Config) validate() error {
	switch {
	case c.NodeID == 0:
		return errors.New("consensus config: the node id must not be 0")
	case c.Cluster == "" || c.DataDir == "" || c.RaftAddress == "":
		return errors.New("consensus config: cluster, data directory and Raft address must be set")
	case c.Store == nil:
		return errors.New("consensus config: no store")
	case c.Election < 3*c.Heartbeat || c.Heartbeat < c.RTT:
		return fmt.Errorf("consensus config: election %v must be at least three heartbeats of %v, and those at least the tick %v",
			c.Election, c.Heartbeat, c.RTT)
	case c.LogBytes < 1<<20 || c.InFlightBytes < 4<<20:
		return errors.New("consensus config: at least 1 MiB of log and 4 MiB in flight are needed")
	}
	return nil
}

// space separates the cluster's names and messages from those of others.
func (c *Config) space() string { return Identity{Cluster: c.Cluster, ClusterID: c.ClusterID}.space() }

// Host runs the Raft replicas of one node. Its methods are safe for concurrent
// use.
type Host struct {
	cfg      Config
	log      *slog.Logger
	clock    *Clock
	book     *addressBook
	lock     *dirLock
	raft     *dragonboat.NodeHost
	inFlight *semaphore.Weighted
	leaders  *leaderEvents
	peers    *connections
	meta     *Meta // set by StartMeta before the host is shared

	changing sync.Mutex // held while a replica is started, stopped or removed
	changed  notifier   // the set of replicas

	mu       sync.Mutex
	tablets  map[catalog.TabletID]*replica
	unopened map[catalog.TabletID]damage // replicas that damage keeps from being opened
	logged   map[catalog.TabletID]uint64 // Raft ids of the replicas that have a log here
	closed   bool

	closing  sync.Once
	closeErr error
	done     chan struct{} // closed when closeErr is final

	// Background work: log cuts and stops of failed replicas.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// OpenHost locks the directory and starts the Raft host without any group. The
// caller must Close it, and keeps ownership of the store.
func OpenHost(cfg Config) (*Host, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(cfg.DataDir, fmt.Sprintf("Skein node %d of cluster %q", cfg.NodeID, cfg.Cluster))
	if err != nil {
		return nil, err
	}
	bridgeRaftLog(cfg.Logger)
	book := newAddressBook(cfg.space())
	for id, address := range cfg.Peers {
		book.set(id, address)
	}
	for id, address := range cfg.Told {
		book.set(id, address)
	}
	book.set(cfg.NodeID, cfg.RaftAddress)
	leaders, peers := &leaderEvents{groups: map[uint64]*group{}}, newConnections()
	raft, err := newNodeHost(nodeHostConfig(&cfg, book, leaders, peers))
	if err != nil {
		err = fmt.Errorf("opening Raft host in %s at %s: %w", cfg.DataDir, cfg.RaftAddress, err)
		return nil, errors.Join(err, lock.release())
	}
	h := &Host{
		cfg:      cfg,
		log:      cfg.Logger.With("node", uint64(cfg.NodeID)),
		clock:    cfg.Clock,
		book:     book,
		lock:     lock,
		raft:     raft,
		inFlight: semaphore.NewWeighted(cfg.InFlightBytes),
		leaders:  leaders,
		peers:    peers,
		tablets:  map[catalog.TabletID]*replica{},
		unopened: map[catalog.TabletID]damage{},
		done:     make(chan struct{}),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.logged = h.logs()
	return h, nil
}

func nodeHostConfig(cfg *Config, book *addressBook, leaders *leaderEvents, peers *connections) config.NodeHostConfig {
	logDB := config.GetTinyMemLogDBConfig()
	logDB.Shards = logStores
	logDB.KVWriteBufferSize = memtableSize
	logDB.KVMaxWriteBufferNumber = memtables
	// Levels sized for logs of tens of MiB, which are cut before they sink.
	logDB.KVMaxBytesForLevelBase = 256 << 20
	c := config.NodeHostConfig{
		DeploymentID:   deploymentID(cfg.space()),
		NodeHostID:     book.target(cfg.NodeID),
		NodeHostDir:    cfg.DataDir,
		RTTMillisecond: uint64(cfg.RTT.Milliseconds()),
		RaftAddress:    cfg.RaftAddress,
		ListenAddress:  cfg.ListenAddress,
		// A peer that stops reading must not take the sender's memory.
		MaxSendQueueSize:    128 << 20,
		MaxReceiveQueueSize: 128 << 20,
		RaftEventListener:   leaders,
		SystemEventListener: peers,
		Expert: config.ExpertConfig{
			LogDB: logDB, FS: cfg.files,
			Engine: config.EngineConfig{
				ExecShards: execShards, CommitShards: execShards, ApplyShards: execShards,
				SnapshotShards: 8, CloseShards: 4,
			},
			NodeRegistryFactory: book,
		},
	}
	if cfg.Certificates != nil {
		c.Expert.TransportFactory = tlsFactory{cfg.Certificates, book, cfg.Logger.With("node", uint64(cfg.NodeID))}
	}
	return c
}

// newNodeHost turns the library's panics on bad directories and ports into
// errors.
func newNodeHost(cfg config.NodeHostConfig) (host *dragonboat.NodeHost, err error) {
	defer func() {
		if r := recover(); r != nil {
			host, err = nil, fmt.Errorf("raft library: %v", r)
		}
	}()
	host, err = dragonboat.NewNodeHost(cfg)
	if err == nil && host == nil { // its answer to a damaged file of its own
		err = fmt.Errorf("raft library: the files in %s are damaged", cfg.NodeHostDir)
	}
	return host, err
}

// NodeID is the node that the host was opened for.
func (h *Host) NodeID() catalog.NodeID { return h.cfg.NodeID }

// Clock is the node's hybrid logical clock. Applied commits move it forward.
func (h *Host) Clock() *Clock { return h.clock }

// Meta is the meta group, nil before StartMeta.
func (h *Host) Meta() *Meta { return h.meta }

// SetAddress tells where another node listens for Raft, until it registers at
// another address. Nodes tell each other by the metadata.
func (h *Host) SetAddress(node catalog.NodeID, address string) {
	if node != h.cfg.NodeID {
		h.book.set(node, address)
	}
}

// groupConfig is the Raft configuration of a group's local replica.
func (h *Host) groupConfig(g *group) config.Config {
	lone := g.lone.Load()
	ticks := func(d time.Duration) uint64 { return uint64(max(d/h.cfg.RTT, 1)) }
	c := config.Config{
		ReplicaID:          g.replica,
		ShardID:            g.id,
		IsNonVoting:        g.learner,
		CheckQuorum:        !lone,
		PreVote:            true, // also where there is nobody to ask: members that differ in it end the process
		HeartbeatRTT:       ticks(h.cfg.Heartbeat),
		ElectionRTT:        ticks(h.cfg.Election),
		SnapshotEntries:    h.cfg.LogEntries,
		CompactionOverhead: h.cfg.LogEntries / 10,
		MaxInMemLogSize:    maxLogInMemory,
	}
	if g.first {
		// Nobody else votes yet, and those who will ask before they elect anybody.
		c.ElectionRTT = 3 * c.HeartbeatRTT
	}
	if lone {
		// A lone replica disturbs nobody by electing itself at once.
		c.HeartbeatRTT, c.ElectionRTT = 1, 3
	}
	if g.quick {
		c.HeartbeatRTT = 1
	}
	return c
}

// maxLogInMemory bounds a group's entries that are not applied yet. Beyond it
// proposals are refused as busy and retried. It is far above the largest entry.
const maxLogInMemory = 48 << 20

// background runs f until it returns, unless the host is closing. Close cancels
// f's context and waits for it.
func (h *Host) background(f func(ctx context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.work.Go(func() { f(h.ctx) })
}

// Close hands the leadership of its groups to other members, for some seconds at
// most, stops all replicas and releases the directory. It returns early, with an
// error and work going on, if ctx ends; a further Close waits again. The store
// must outlive it.
func (h *Host) Close(ctx context.Context) error {
	h.closing.Do(func() {
		h.handOver(ctx)
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		h.cancel()
		go func() {
			defer close(h.done)
			h.work.Wait()
			h.closeErr = errors.Join(closeNodeHost(h.raft), h.lock.release())
		}()
	})
	select {
	case <-h.done:
		return h.closeErr
	case <-ctx.Done():
		return fmt.Errorf("closing Raft host: %w", context.Cause(ctx))
	}
}

func closeNodeHost(raft *dragonboat.NodeHost) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("closing Raft host: %v", r)
		}
	}()
	raft.Close()
	return nil
}
