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

	"skein/catalog"
	"skein/storage"
)

// DefaultCluster is the cluster name of a NodeConfig that gives none.
const DefaultCluster = "skein"

// Peer is where a node of the cluster is reached.
type Peer struct {
	RaftAddress   string
	FlightAddress string
}

// NodeConfig describes a Node.
type NodeConfig struct {
	// DataDir is the node's own directory. It holds the identity, the store and
	// the Raft logs. It must have been provisioned, see Provision.
	DataDir string
	// Cluster and NodeID must be those of the directory's identity, where given.
	Cluster string
	NodeID  catalog.NodeID
	// Members are addresses of nodes of the cluster, this one perhaps included,
	// that are to be believed at the start instead of those in the identity and in
	// the metadata. Where nodes register at other addresses later, those count.
	Members map[catalog.NodeID]Peer
	// Self is where this node is reached, in place of what Members and the identity
	// say of it.
	Self Peer
	// InitIfEmpty provisions an empty directory as that of node NodeID, one of the
	// founders Members of a cluster.
	InitIfEmpty bool
	// Standalone is set for a cluster of one node that never gets another.
	Standalone bool
	Zone       string // where the node is, for placement
	Version    string // of the build
	// ListenAddress is where to listen for Raft, "" for the own RaftAddress.
	ListenAddress string
	// Ask has the worker at a Flight address run a meta command, which is how a node
	// at a new address tells the others, who cannot answer its Raft messages. Nil if
	// there is no way.
	Ask func(ctx context.Context, address, command string, body []byte) ([]byte, error)
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
	cfg      NodeConfig
	identity Identity
	own      Peer
	log      *slog.Logger
	lock     *dirLock
	store    *storage.Store
	host     *Host
	meta     *Meta

	cancel context.CancelFunc
	loops  sync.WaitGroup
	ready  chan struct{} // closed once this node is registered

	refused chan struct{} // closed once refusal is set
	refusal error
}

// StartNode opens the node's directory and starts everything. It returns when
// local replicas are being started; WaitReady waits for the quorum. The caller
// must Close the node. ErrNotProvisioned and ErrForeignDirectory refuse the
// directory.
func StartNode(ctx context.Context, cfg NodeConfig) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := checkMembers(cfg.Members); err != nil {
		return nil, fmt.Errorf("node config: %w", err)
	}
	n := &Node{cfg: cfg, ready: make(chan struct{}), refused: make(chan struct{})}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// identify locks the directory and finds out whose it is.
func (n *Node) identify() (err error) {
	cfg := &n.cfg
	founder := Identity{}
	if cfg.InitIfEmpty {
		if founder, err = Founder(cmp.Or(cfg.Cluster, DefaultCluster), "", cfg.NodeID, cfg.Members); err != nil {
			return fmt.Errorf("node config: %w", err)
		}
	} else if _, err := ReadIdentity(cfg.DataDir); err != nil { // before a directory is made
		return err
	}
	if n.lock, err = lockDirectory(cfg.DataDir, cmp.Or(n.holder(), founder.holder())); err != nil {
		return err
	}
	n.identity, err = ReadIdentity(cfg.DataDir)
	if errors.Is(err, ErrNotProvisioned) && cfg.InitIfEmpty {
		n.identity, err = founder, writeIdentity(cfg.DataDir, founder)
	}
	if err != nil {
		return err
	}
	id := n.identity
	if (cfg.Cluster != "" && cfg.Cluster != id.Cluster) || (cfg.NodeID != 0 && cfg.NodeID != id.Node) {
		return fmt.Errorf("%w: %s belongs to %s, not to node %d of cluster %q",
			ErrForeignDirectory, cfg.DataDir, id, cmp.Or(cfg.NodeID, id.Node), cmp.Or(cfg.Cluster, id.Cluster))
	}
	if len(id.Nodes) == 0 { // of the first format
		if _, ok := cfg.Members[id.Node]; !ok {
			return fmt.Errorf("node config: node %d is not among the %d members", id.Node, len(cfg.Members))
		}
	}
	n.own = cmp.Or(cfg.Self, cfg.Members[id.Node], id.peers()[id.Node])
	n.log = cfg.Logger.With("node", uint64(id.Node))
	return nil
}

// holder names the node for those who find the directory locked, "" where the
// identity cannot be read.
func (n *Node) holder() string {
	id, err := readIdentity(n.cfg.DataDir)
	if err != nil {
		return ""
	}
	return id.holder()
}

// start opens the layers bottom up. What it has opened Close closes.
func (n *Node) start(ctx context.Context) (err error) {
	cfg := &n.cfg
	if err := n.identify(); err != nil {
		return err
	}
	if err := checkStarted(cfg.DataDir, "store", "raft"); err != nil {
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
	if err := noteStarted(cfg.DataDir); err != nil {
		return err
	}
	var reconcile *reconciler
	started := make(chan struct{})
	n.meta, err = n.host.StartMeta(ctx, n.founding(), func(*MetaSnapshot) {
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
	n.loops.Go(func() { newMover(n.host, n.meta).run(loops) })
	n.loops.Go(func() { newBalancer(n.host, n.meta).run(loops) })
	n.loops.Go(func() { newReshaper(n.host, n.meta).run(loops) })
	n.loops.Go(func() { n.host.scrub(loops) })
	n.loops.Go(func() { n.register(loops) })
	if !cfg.Standalone {
		n.loops.Go(func() { newSeats(n.host, n.meta).run(loops) })
	}
	return nil
}

func (n *Node) hostConfig() Config {
	c := n.cfg.Host
	c.Cluster, c.ClusterID, c.NodeID = n.identity.Cluster, n.identity.ClusterID, n.identity.Node
	c.DataDir = filepath.Join(n.cfg.DataDir, "raft")
	c.RaftAddress = n.own.RaftAddress
	c.ListenAddress = n.cfg.ListenAddress
	c.Store, c.Logger = n.store, n.cfg.Logger
	c.Peers = map[catalog.NodeID]string{}
	for id, peer := range n.identity.peers() {
		c.Peers[id] = peer.RaftAddress
	}
	c.Told = map[catalog.NodeID]string{}
	for id, peer := range n.cfg.Members {
		c.Told[id] = peer.RaftAddress
	}
	return c
}

// founding says how the node comes to the meta group.
func (n *Node) founding() MetaFounding {
	f := MetaFounding{Standalone: n.cfg.Standalone}
	switch {
	case n.identity.Joined:
	case len(n.identity.Nodes) > 0:
		f.Founders = slices.Sorted(maps.Keys(n.identity.peers()))
	default:
		f.Founders = slices.Sorted(maps.Keys(n.cfg.Members))
	}
	f.Named = slices.Sorted(maps.Keys(n.cfg.Members))
	return f
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
		return fmt.Errorf("node %d: %w: %w", n.identity.Node, ErrNotReady, context.Cause(ctx))
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

// Refused returns a channel that is closed when the cluster refuses this node for
// good, and then Refusal tells why, with ErrNodeRefused.
func (n *Node) Refused() <-chan struct{} { return n.refused }

// Refusal is described at Refused.
func (n *Node) Refusal() error {
	if !isClosed(n.refused) {
		return nil
	}
	return n.refusal
}

// Identity is what the node's directory says.
func (n *Node) Identity() Identity { return n.identity }

// ID is the node's id.
func (n *Node) ID() catalog.NodeID { return n.identity.Node }

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
