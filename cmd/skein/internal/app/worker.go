package app

import (
	"context"
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
	l, err := listen("flight", c.Flight)
	if err != nil {
		return err
	}
	members := make(map[catalog.NodeID]consensus.Peer, len(c.Members))
	for _, m := range c.Members {
		members[catalog.NodeID(m.ID)] = consensus.Peer{RaftAddress: m.Raft, FlightAddress: m.Flight}
	}
	node, err := p.startWorker(ctx, l, c.ClusterSecret, consensus.NodeConfig{
		Cluster: c.Cluster, NodeID: catalog.NodeID(c.NodeID), DataDir: c.Data, Members: members,
		Store: storage.Options{CacheBytes: p.cacheBytes, DefaultOf: worker.ColumnDefault},
	})
	if err != nil {
		return err
	}
	p.setReady(func() error {
		if !node.Ready() {
			return errors.New("this worker has not reached a majority of the cluster's workers yet")
		}
		return nil
	})
	started(Endpoints{Flight: l.Addr().String(), HTTP: http, Data: c.Data})
	return p.wait(ctx)
}

// workerMemory is what the operators of a worker get where there is plenty.
const workerMemory = 2 << 30

// startWorker starts a node and serves its worker on l.
func (p *process) startWorker(ctx context.Context, l net.Listener, secret string, nodeConfig consensus.NodeConfig) (*consensus.Node, error) {
	logger := p.logger.With("role", "worker")
	nodeConfig.Logger = logger
	node, err := consensus.StartNode(ctx, nodeConfig)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the worker in %s: %w", nodeConfig.DataDir, err), l.Close())
	}
	p.onStop("node", node.Close)
	spill := filepath.Join(nodeConfig.DataDir, "spill")
	if err := os.MkdirAll(spill, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("making the spill directory: %w", err), l.Close())
	}
	memory := p.settings.Operators(workerMemory, p.cacheBytes)
	keys := func() []catalog.SigningKey { return node.Meta().Local().Keys }
	w, err := worker.New(worker.Config{
		Authority: flightproto.NewAuthority(keys, secret, time.Now),
		Node:      worker.NodeOf(node), Logger: logger, SpillDir: spill, Registerer: p.registry,
		MemoryBytes: memory, QueryMemoryBytes: p.settings.QueryOperators(memory, memory),
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.onStop("worker", w.Close)
	if err := p.serveFlight(l, "worker", w.Register); err != nil {
		return nil, err
	}
	return node, nil
}
