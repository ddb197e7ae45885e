package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"skein/catalog"
	"skein/cmd/skein/internal/config"
	"skein/consensus"
	"skein/flightproto"
	"skein/storage"
	"skein/worker"
)

// RunWorker serves a worker's fragments and replicas until ctx ends or it
// fails. started is called once with the addresses, while the other workers
// may still be out of reach.
func RunWorker(ctx context.Context, c config.Worker, version string, logger *slog.Logger, started func(Endpoints)) (err error) {
	p := newProcess(c.Process, version, logger)
	defer p.finish(ctx, &err)
	p.cacheBytes = c.Bytes(&c.Memory)
	http, err := p.serveHTTP()
	if err != nil {
		return err
	}
	nodeConfig, node, err := workerNode(ctx, c, version, logger)
	if err != nil {
		return err
	}
	certificates, err := openNodeTLS(c.NodeTLS, node, logger)
	if err != nil {
		return err
	}
	nodeConfig.Store = storage.Options{CacheBytes: p.cacheBytes, DefaultOf: worker.ColumnDefault}
	l, err := listen("flight", cmp.Or(c.Flight, nodeConfig.Self.FlightAddress))
	if err != nil {
		return err
	}
	running, err := p.startWorker(ctx, l, c.ClusterSecret, certificates, nodeConfig)
	if err != nil {
		return err
	}
	p.setReady(func() error {
		if !running.Ready() {
			return errors.New("this worker has not reached a majority of the cluster's workers yet")
		}
		return nil
	})
	p.onStop("service to gateways", p.withinHalf(p.drain))
	started(Endpoints{Flight: l.Addr().String(), HTTP: http, Data: c.Data, Node: running.Identity().String()})
	return p.wait(ctx)
}

// workerNode finds out which node the worker is and where it is reached. It
// refuses a data directory that was not provisioned.
func workerNode(ctx context.Context, c config.Worker, version string, logger *slog.Logger) (consensus.NodeConfig, uint64, error) {
	out := consensus.NodeConfig{
		Cluster: c.Cluster, NodeID: catalog.NodeID(c.NodeID), DataDir: c.Data, Members: peers(c.Members),
		InitIfEmpty: c.InitIfEmpty, Zone: c.Zone, Version: version,
	}
	id, err := consensus.ReadIdentity(c.Data)
	switch {
	case errors.Is(err, consensus.ErrNotProvisioned) && c.InitIfEmpty:
		if err := checkUnknown(ctx, c, logger); err != nil {
			return out, 0, err
		}
		id.Node = out.NodeID
	case errors.Is(err, consensus.ErrNotProvisioned):
		return out, 0, fmt.Errorf("%w; provision it with skein admin cluster init, if the worker is one that a cluster begins with, "+
			"or with skein admin cluster join", err)
	case err != nil:
		return out, 0, err
	}
	c.NodeID = uint64(id.Node)
	self, _ := c.Self()
	out.Self = consensus.Peer{RaftAddress: self.Raft, FlightAddress: self.Flight}
	out.Self.RaftAddress = cmp.Or(out.Self.RaftAddress, id.Own().RaftAddress)
	out.Self.FlightAddress = cmp.Or(out.Self.FlightAddress, id.Own().FlightAddress)
	if out.Self.RaftAddress == "" || out.Self.FlightAddress == "" {
		return out, 0, fmt.Errorf("node %d is not among the members; give its addresses with raft and advertise", id.Node)
	}
	return out, c.NodeID, c.CheckPlaintext(out.Self.RaftAddress, out.Self.FlightAddress, c.Flight)
}

// workerMemory is what the operators of a worker get where there is plenty.
const workerMemory = 2 << 30

// startWorker starts a node and serves its worker on l.
func (p *process) startWorker(ctx context.Context, l net.Listener, secret string, certificates *nodeTLS, nodeConfig consensus.NodeConfig) (*consensus.Node, error) {
	logger := p.logger.With("role", "worker")
	nodeConfig.Logger = logger
	var started atomic.Pointer[consensus.Node]
	metadata := func() *consensus.MetaSnapshot {
		if n := started.Load(); n != nil {
			return n.Meta().Local()
		}
		return &consensus.MetaSnapshot{}
	}
	authority := flightproto.NewAuthority(func() []catalog.SigningKey { return metadata().Keys }, secret, time.Now)
	if certificates != nil {
		nodeConfig.Host.Certificates = certificates
	}
	nodeConfig.Ask = func(ctx context.Context, address, command string, body []byte) ([]byte, error) {
		return askMeta(ctx, certificates, authority, address, command, body)
	}
	node, err := consensus.StartNode(ctx, nodeConfig)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the worker in %s: %w", nodeConfig.DataDir, err), l.Close())
	}
	started.Store(node)
	p.onStop("node", node.Close)
	p.watch(node)
	spill := filepath.Join(nodeConfig.DataDir, "spill")
	if err := os.MkdirAll(spill, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making the spill directory: %w", err), l.Close())
	}
	memory := p.settings.Operators(workerMemory, p.cacheBytes)
	w, err := worker.New(worker.Config{
		Authority: authority, Version: nodeConfig.Version,
		Node: worker.NodeOf(node), Logger: logger, SpillDir: spill, Registerer: p.registry,
		DialOptions: certificates.dialOptions(func(address string) catalog.NodeID { return metadata().NodeAt(address) }),
		MemoryBytes: memory, QueryMemoryBytes: p.settings.QueryOperators(memory, memory),
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.onStop("worker", w.Close)
	p.drain = func(ctx context.Context) error {
		node.Host().HandOver(ctx)
		w.Drain(ctx)
		return nil
	}
	removed := func(id catalog.NodeID) bool {
		n, _ := metadata().Node(id)
		return n.Status() == consensus.NodeRemoved
	}
	if err := p.serveFlight(l, "worker", w.Register, certificates.serverOptions(removed)...); err != nil {
		return nil, err
	}
	return node, nil
}

// watch ends the process when the cluster refuses its node.
func (p *process) watch(node *consensus.Node) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-node.Refused():
			p.failed <- node.Refusal()
		case <-stop:
		}
	}()
	p.onStop("watch over the node", func(context.Context) error {
		close(stop)
		<-stopped
		return nil
	})
}
