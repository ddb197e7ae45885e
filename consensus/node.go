package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/sqlstate"
	"skein/storage"
)

// DefaultCluster is the cluster name of a NodeConfig that gives none.
const DefaultCluster = "skein"

// Peer is a member of the cluster's fixed membership.
type Peer struct {
	RaftAddress   string
	FlightAddress string
}

// NodeConfig describes a Node.
type NodeConfig struct {
	Cluster string // "" for DefaultCluster
	NodeID  catalog.NodeID
	// DataDir is the node's own directory. It holds the identity, the store and
	// the Raft logs, and must be empty at the first start.
	DataDir string
	// Members is the cluster's fixed membership, this node included. The ids
	// must never change. Addresses may, at restarts: each node believes its own
	// configuration (see Host.SetAddress for nodes that keep running).
	Members map[catalog.NodeID]Peer
	// ListenAddress is where to listen for Raft, "" for the own RaftAddress.
	ListenAddress string
	// Store adjusts the store; Dir and Logger are set by the node.
	Store storage.Options
	// Host adjusts the Raft host; what NodeConfig knows is set by the node.
	Host   Config
	Logger *slog.Logger // nil for slog.Default
}

// Node is a running worker's replicated state: its store, its Raft host, the
// meta group's replica and the loop that keeps tablet replicas in line with the
// metadata.
type Node struct {
	cfg   NodeConfig
	log   *slog.Logger
	lock  *dirLock
	store *storage.Store
	host  *Host
	meta  *Meta

	cancel context.CancelFunc
	loops  sync.WaitGroup
	ready  chan struct{} // closed once this node is registered
}

// StartNode opens or creates the node's directory and starts everything. It
// returns when local replicas are being started; WaitReady waits for the
// quorum. The caller must Close the node.
func StartNode(ctx context.Context, cfg NodeConfig) (*Node, error) {
	cfg.Cluster = cmp.Or(cfg.Cluster, DefaultCluster)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if _, ok := cfg.Members[cfg.NodeID]; !ok || cfg.NodeID == 0 {
		return nil, fmt.Errorf("node config: node %d is not among the %d members", cfg.NodeID, len(cfg.Members))
	}
	owners := make(map[string]catalog.NodeID, len(cfg.Members))
	for _, id := range slices.Sorted(maps.Keys(cfg.Members)) {
		address := cfg.Members[id].RaftAddress
		if other, ok := owners[address]; ok {
			return nil, fmt.Errorf("node config: nodes %d and %d both have the Raft address %s", other, id, address)
		}
		owners[address] = id
	}
	n := &Node{cfg: cfg, log: cfg.Logger.With("node", uint64(cfg.NodeID)), ready: make(chan struct{})}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// start opens the layers bottom up. What it has opened Close closes.
func (n *Node) start(ctx context.Context) (err error) {
	cfg := &n.cfg
	identity := Identity{Cluster: cfg.Cluster, Node: cfg.NodeID}
	n.lock, err = lockDirectory(cfg.DataDir, fmt.Sprintf("Skein node %d of cluster %q", cfg.NodeID, cfg.Cluster))
	if err != nil {
		return err
	}
	if err := claimDirectory(cfg.DataDir, identity); err != nil {
		return err
	}
	options := cfg.Store
	options.Dir, options.Logger = filepath.Join(cfg.DataDir, "store"), cfg.Logger
	if n.store, err = storage.Open(options); err != nil {
		return fmt.Errorf("opening the store in %s: %w", options.Dir, err)
	}
	if n.host, err = OpenHost(n.hostConfig()); err != nil {
		return err
	}
	members := make(map[catalog.NodeID]string, len(cfg.Members))
	for id, peer := range cfg.Members {
		members[id] = peer.RaftAddress
	}
	var reconcile *reconciler
	started := make(chan struct{})
	n.meta, err = n.host.StartMeta(ctx, members, func(*MetaSnapshot) {
		n.host.changed.notify()
		if isClosed(started) {
			reconcile.changed()
		}
	})
	if err != nil {
		return err
	}
	reconcile = newReconciler(n.host, n.meta)
	close(started)
	loops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	n.loops.Go(func() { reconcile.run(loops) })
	n.loops.Go(func() { newRepairer(n.host, n.meta).run(loops) })
	n.loops.Go(func() { newReshaper(n.host, n.meta).run(loops) })
	n.loops.Go(func() { n.host.scrub(loops) })
	n.loops.Go(func() { n.register(loops) })
	return nil
}

func (n *Node) hostConfig() Config {
	c := n.cfg.Host
	c.Cluster, c.NodeID = n.cfg.Cluster, n.cfg.NodeID
	c.DataDir = filepath.Join(n.cfg.DataDir, "raft")
	c.RaftAddress = n.cfg.Members[n.cfg.NodeID].RaftAddress
	c.ListenAddress = n.cfg.ListenAddress
	c.Store, c.Logger = n.store, n.cfg.Logger
	return c
}

// register announces this node until it succeeds, then sweeps hidden tables now
// and then.
func (n *Node) register(ctx context.Context) {
	own := NodeInfo{ID: n.cfg.NodeID, RaftAddress: n.host.cfg.RaftAddress, FlightAddress: n.cfg.Members[n.cfg.NodeID].FlightAddress}
	request := RegisterNode{RequestID: uuid.NewString(), Node: own}
	for {
		err := n.announce(ctx, request)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("registering this node failed, will retry", "error", err)
		if rejection := (*sqlstate.Error)(nil); errors.As(err, &rejection) {
			// The answer to a request never changes; the cluster's state may.
			request.RequestID = uuid.NewString()
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	close(n.ready)
	n.sweep(ctx)
}

func (n *Node) announce(ctx context.Context, request RegisterNode) error {
	snapshot, err := n.meta.Snapshot(ctx)
	if err != nil {
		return err
	}
	if known, ok := snapshot.Node(request.Node.ID); !ok || known != request.Node {
		if _, err := n.meta.RegisterNode(ctx, request); err != nil {
			return err
		}
	}
	if len(snapshot.Keys) > 0 {
		return nil
	}
	_, err = n.meta.AddKey(ctx, AddKey{RequestID: uuid.NewString(), Secret: NewSecret(), First: true, Unix: time.Now().UnixMilli()})
	return err
}

func (n *Node) sweep(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Minute)
	defer ticker.Stop()
	sessions := time.NewTicker(GatewayLeaseLife / 4)
	defer sessions.Stop()
	hidden := true
	for {
		if swept, err := n.meta.SweepSessions(ctx, time.Now()); err != nil && ctx.Err() == nil {
			n.log.Warn("sweeping the temporary tables of lost gateways failed", "error", err)
		} else if swept > 0 {
			n.log.Info("dropped the temporary tables of lost gateways", "gateways", swept)
		}
		if hidden {
			if dropped, err := n.meta.SweepHidden(ctx, time.Now()); err != nil && ctx.Err() == nil {
				n.log.Warn("sweeping unpublished tables failed", "error", err)
			} else if dropped > 0 {
				n.log.Info("dropped unpublished tables", "tables", dropped)
			}
		}
		select {
		case <-ticker.C:
			hidden = true
		case <-sessions.C:
			hidden = false
		case <-ctx.Done():
			return
		}
	}
}

// WaitReady returns once the meta group has a quorum, this node is registered
// and every tablet replica that the metadata places here, unless it has failed,
// is open and knows its leader.
func (n *Node) WaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
	case <-ctx.Done():
		return fmt.Errorf("node %d: %w: %w", n.cfg.NodeID, ErrNotReady, context.Cause(ctx))
	}
	tables := make([]catalog.TableID, 0, 16)
	n.meta.Local().all(func(t *catalog.Table) { tables = append(tables, t.ID) })
	for _, id := range tables {
		err := n.host.waitTablets(ctx, id, true)
		if err != nil && !errors.Is(err, ErrTabletNotHere) { // dropped meanwhile
			return err
		}
	}
	return nil
}

// Ready reports whether the meta group has had a quorum and this node is
// registered, and its meta replica is well.
func (n *Node) Ready() bool { return isClosed(n.ready) && n.meta.sm.err() == nil }

// ID is the node's id.
func (n *Node) ID() catalog.NodeID { return n.cfg.NodeID }

// Host is the node's Raft host, for tablets.
func (n *Node) Host() *Host { return n.host }

// Meta is the node's access to the meta group.
func (n *Node) Meta() *Meta { return n.meta }

// Store is the node's store.
func (n *Node) Store() *storage.Store { return n.store }

// Clock is the node's hybrid logical clock.
func (n *Node) Clock() *Clock { return n.host.clock }

// Close stops everything in reverse order. It returns early if ctx ends; the
// directory stays locked then, since work may be going on in it.
func (n *Node) Close(ctx context.Context) error {
	if n.cancel != nil {
		n.cancel()
		n.loops.Wait()
		n.cancel = nil
	}
	if n.host != nil {
		if err := n.host.Close(ctx); err != nil {
			return err
		}
		n.host = nil
	}
	var errs []error
	if n.store != nil {
		errs = append(errs, n.store.Close())
		n.store = nil
	}
	if n.lock != nil {
		errs = append(errs, n.lock.release())
		n.lock = nil
	}
	return errors.Join(errs...)
}
