package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein/catalog"
)

// testCluster is a few nodes in one process, on loopback ports and temporary
// directories.
type testCluster struct {
	t       testing.TB
	dir     string
	members map[catalog.NodeID]Peer
	nodes   map[catalog.NodeID]*Node
	adjust  func(*NodeConfig)
}

// testLogger shows warnings and errors only when asked for: the tests stop
// nodes on purpose, which the others remark on.
func testLogger() *slog.Logger {
	if os.Getenv("SKEIN_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func newCluster(t testing.TB, size int, adjust func(*NodeConfig)) *testCluster {
	c := &testCluster{t: t, dir: t.TempDir(), members: map[catalog.NodeID]Peer{}, nodes: map[catalog.NodeID]*Node{}, adjust: adjust}
	for i := 1; i <= size; i++ {
		c.members[catalog.NodeID(i)] = Peer{RaftAddress: freeAddress(t), FlightAddress: fmt.Sprintf("flight-%d:1", i)}
	}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for id, n := range c.nodes {
			all.Go(func() {
				if err := n.Close(testContext(t)); err != nil {
					t.Errorf("closing node %d: %v", id, err)
				}
			})
		}
		all.Wait()
	})
	return c
}

// nextPort is where the search for a free port goes on. The ports lie below those
// that systems take for outgoing connections, so that nobody takes a stopped
// node's port, and processes begin at different ones.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid()) * 61) }

// freeAddress returns a loopback address that nothing listens on and that no
// other test of the process is given.
func freeAddress(t testing.TB) string {
	t.Helper()
	const first, ports = 12_000, 18_000
	for range ports {
		address := fmt.Sprint("127.0.0.1:", first+nextPort.Add(1)%ports)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close() // only tried
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

func (c *testCluster) config(id catalog.NodeID) NodeConfig {
	cfg := NodeConfig{
		Cluster: "test", NodeID: id, Members: c.members, Logger: testLogger(),
		DataDir: filepath.Join(c.dir, fmt.Sprint("node", id)), InitIfEmpty: true, Standalone: len(c.members) == 1,
		// Loopback and small data: shorter elections than the defaults are safe.
		Host: Config{Heartbeat: 50 * time.Millisecond, Election: 400 * time.Millisecond},
	}
	if c.adjust != nil {
		c.adjust(&cfg)
	}
	return cfg
}

func (c *testCluster) start(ids ...catalog.NodeID) {
	c.t.Helper()
	for _, id := range ids {
		n, err := StartNode(testContext(c.t), c.config(id))
		if err != nil {
			c.t.Fatalf("starting node %d: %v", id, err)
		}
		c.nodes[id] = n
	}
}

func (c *testCluster) ready() {
	c.t.Helper()
	for id, n := range c.nodes {
		if err := n.WaitReady(testContext(c.t)); err != nil {
			c.t.Fatalf("node %d is not ready: %v", id, err)
		}
	}
}

func (c *testCluster) stop(id catalog.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	if n == nil {
		return
	}
	delete(c.nodes, id)
	if err := n.Close(testContext(c.t)); err != nil {
		c.t.Errorf("closing node %d: %v", id, err)
	}
}

// create makes a table and waits until every running node serves it.
func (c *testCluster) create(on catalog.NodeID, table *catalog.Table) *catalog.Table {
	c.t.Helper()
	reply, err := c.nodes[on].Meta().CreateTable(testContext(c.t), CreateTable{RequestID: "create-" + table.Name, Table: table})
	if err != nil {
		c.t.Fatalf("creating table %s: %v", table.Name, err)
	}
	c.await(reply)
	return reply.Table
}

// await waits until all running nodes have applied a reply's version and serve
// its table.
func (c *testCluster) await(reply TableReply) {
	c.t.Helper()
	for id, n := range c.nodes {
		if _, err := n.Meta().Watch(testContext(c.t), reply.Version-1, 0); err != nil {
			c.t.Fatalf("node %d: %v", id, err)
		}
		if err := n.Host().WaitTablets(testContext(c.t), reply.Table.ID); err != nil {
			c.t.Fatalf("node %d: %v", id, err)
		}
	}
}

// testContext ends with the test, and bounds every wait in it.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
