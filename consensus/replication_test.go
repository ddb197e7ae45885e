package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
	"skein/storage"
)

// bulk is a staged part of incompressible bytes. Its transaction never commits:
// what matters is that all replicas apply it.
func bulk(txn string, size int) storage.Stage {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(data); err != nil {
		panic(err) // ChaCha8 never fails
	}
	return storage.Stage{Txn: txn, Parts: 2, Data: data}
}

// insert commits one row, whose key is unique in the table, in one entry.
func insert(t testing.TB, n *Node, table *catalog.Table, key int64) storage.Commit {
	t.Helper()
	c, err := insertOf(n, table, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func insertOf(n *Node, table *catalog.Table, key int64) (storage.Commit, error) {
	value := fmt.Sprint("value ", key)
	segment, err := storage.EncodeSegment(table, []*columnar.Batch{{Len: 1, Cols: []*columnar.Vector{
		{Type: catalog.BigInt, Len: 1, Data: columnar.Bytes([]int64{key})},
		{Type: catalog.Text, Len: 1, Data: []byte(value), Offsets: []int32{0, int32(len(value))}},
	}}})
	if err != nil {
		return storage.Commit{}, err
	}
	return storage.Commit{Txn: fmt.Sprint("insert ", key), Timestamp: n.Clock().Now(), Inline: segment.Parts()[0]}, nil
}

// commit inserts a row and checks that it is the first with its key.
func (c *testCluster) commit(on catalog.NodeID, table *catalog.Table, tablet catalog.TabletID, key int64) {
	c.t.Helper()
	if r := c.propose(on, tablet, insert(c.t, c.nodes[on], table, key)); r.Outcome != storage.Committed {
		c.t.Fatalf("key %d: %v, %v", key, r.Outcome, r.Err)
	}
}

// rows counts the rows that a linearizable read finds on a node.
func (c *testCluster) rows(on catalog.NodeID, tablet catalog.TabletID) int {
	c.t.Helper()
	h := c.nodes[on].Host()
	if err := h.ReadIndex(testContext(c.t), tablet); err != nil {
		c.t.Fatalf("reading on node %d: %v", on, err)
	}
	store, ok := h.Tablet(tablet)
	if !ok {
		c.t.Fatalf("node %d does not serve tablet %d", on, tablet)
	}
	snapshot, err := store.Snapshot(h.Clock().Now())
	if err != nil {
		c.t.Fatal(err)
	}
	defer snapshot.Release()
	return int(snapshot.Rows())
}

// expectRows checks that every running node has the rows.
func (c *testCluster) expectRows(tablet catalog.TabletID, want int) {
	c.t.Helper()
	for id := range c.nodes {
		if got := c.rows(id, tablet); got != want {
			c.t.Fatalf("node %d has %d rows, want %d", id, got, want)
		}
	}
}

func (c *testCluster) propose(on catalog.NodeID, tablet catalog.TabletID, command storage.Command) storage.Result {
	c.t.Helper()
	result, err := c.nodes[on].Host().Propose(testContext(c.t), tablet, command)
	if err != nil {
		c.t.Fatalf("proposing on node %d: %v", on, err)
	}
	return result
}

// agree waits until the running nodes have applied all that is committed and
// checks that they are at the same index.
func (c *testCluster) agree(tablet catalog.TabletID) uint64 {
	c.t.Helper()
	var want uint64
	for id, n := range c.nodes {
		if err := n.Host().ReadIndex(testContext(c.t), tablet); err != nil {
			c.t.Fatalf("reading on node %d: %v", id, err)
		}
		store, ok := n.Host().Tablet(tablet)
		if !ok {
			c.t.Fatalf("node %d does not serve tablet %d", id, tablet)
		}
		applied := store.Applied()
		if want != 0 && applied != want {
			c.t.Fatalf("node %d has applied %d, another %d", id, applied, want)
		}
		want = applied
	}
	return want
}

// leader returns the tablet's leader once all running nodes agree on one.
func (c *testCluster) leader(tablet catalog.TabletID) catalog.NodeID {
	c.t.Helper()
	ctx := testContext(c.t)
	for {
		var changes []<-chan struct{}
		votes := map[catalog.NodeID]int{}
		for _, n := range c.nodes {
			changes = append(changes, n.Host().changed.wait())
			if id, ok := n.Host().Leader(tablet); ok && c.nodes[id] != nil {
				votes[id]++
			}
		}
		for id, count := range votes {
			if count == len(c.nodes) {
				return id
			}
		}
		select {
		case <-changes[0]:
		case <-time.After(20 * time.Millisecond): // a change on another node
		case <-ctx.Done():
			c.t.Fatalf("no agreement on the leader of tablet %d: %v", tablet, votes)
		}
	}
}

func TestThreeNodesSurviveTheLossOfAny(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	table := c.create(2, hashTable("t", 3, 2))
	tablet := table.Tablets[0].ID
	for on := range c.members {
		c.commit(on, table, tablet, int64(on))
	}
	c.expectRows(tablet, 3)

	lost := c.leader(tablet)
	c.stop(lost)
	for on := range c.nodes {
		c.commit(on, table, tablet, 10+int64(on))
	}
	c.expectRows(tablet, 5)
	c.start(lost)
	c.ready()
	c.expectRows(tablet, 5)
	c.commit(lost, table, tablet, 20)
	c.expectRows(tablet, 6)
	c.agree(tablet)

	// The same key again is refused by all, and repeating a step is not.
	again := insert(t, c.nodes[1], table, 20)
	if r := c.propose(1, tablet, again); r.Outcome != storage.Committed {
		t.Fatalf("repeated commit: %v, %v", r.Outcome, r.Err)
	}
	again.Txn = "other"
	if r := c.propose(2, tablet, again); r.Outcome != storage.Aborted || r.Err == nil || r.Err.Code != sqlstate.UniqueViolation {
		t.Fatalf("duplicate key: %v, %v", r.Outcome, r.Err)
	}
	c.expectRows(tablet, 6)
}

func TestFollowerCatchesUpBySnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *NodeConfig) { cfg.Host.LogBytes = 1 << 20 })
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	c.commit(1, table, tablet, 1)
	c.agree(tablet)
	c.stop(3)
	c.commit(1, table, tablet, 2)
	missed, ok := c.nodes[1].Host().replica(tablet)
	if !ok {
		t.Fatal("tablet not on node 1")
	}
	c.cutLogs(tablet)
	t.Logf("log of node 1 starts at %d of %d", c.firstLogged(1, tablet), missed.sm.tablet.Applied())
	c.start(3)
	c.ready()
	c.expectRows(tablet, 2)
	c.commit(3, table, tablet, 3)
	c.expectRows(tablet, 3)
	c.agree(tablet)
}

// cutLogs writes to a tablet until nodes 1 and 2 have cut their logs, so that a
// replica that has nothing needs a snapshot.
func (c *testCluster) cutLogs(tablet catalog.TabletID) {
	c.t.Helper()
	for i := 0; i < 40 || c.firstLogged(1, tablet) < 10 || c.firstLogged(2, tablet) < 10; i++ {
		if i > 400 {
			c.t.Fatalf("the logs are not cut: %d, %d", c.firstLogged(1, tablet), c.firstLogged(2, tablet))
		}
		c.propose(1, tablet, bulk(fmt.Sprint("t", i), 100_000))
	}
}

// firstLogged is the first index that a node's log still has.
func (c *testCluster) firstLogged(on catalog.NodeID, tablet catalog.TabletID) uint64 {
	c.t.Helper()
	reader, err := c.nodes[on].Host().raft.GetLogReader(uint64(tablet))
	if err != nil {
		c.t.Fatal(err)
	}
	first, _ := reader.GetRange()
	return first
}

func TestNoQuorumIsUnavailable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	tablet := c.create(1, plainTable("t", 3)).Tablets[0].ID
	c.propose(1, tablet, storage.Resolve{Txn: "before"})
	c.stop(2)
	c.stop(3)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.nodes[1].Host().Propose(ctx, tablet, storage.Resolve{Txn: "x"}); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("proposal without a quorum: %v", err)
	}
	if err := c.nodes[1].Host().ReadIndex(ctx, tablet); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("read without a quorum: %v", err)
	}
	cancelled, stop := context.WithCancel(context.Background())
	stop()
	if _, err := c.nodes[1].Host().Propose(cancelled, tablet, storage.Resolve{Txn: "x"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled proposal: %v", err)
	}
	if _, err := c.nodes[1].Host().Propose(ctx, 4711, storage.Resolve{Txn: "x"}); !errors.Is(err, ErrTabletNotHere) {
		t.Fatalf("foreign tablet: %v", err)
	}
	c.start(2)
	c.propose(1, tablet, storage.Resolve{Txn: "again"})
}

func TestDroppedTablesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	keep := c.create(1, plainTable("keep", 3)).Tablets[0].ID
	gone := c.create(1, plainTable("gone", 3))
	c.propose(1, gone.Tablets[0].ID, bulk("x", 1000))
	// Node 3 misses the drop and must find out when it comes back.
	c.stop(3)
	if _, err := c.nodes[1].Meta().DropTable(testContext(t), DropTable{RequestID: "drop", ID: gone.ID}); err != nil {
		t.Fatal(err)
	}
	c.start(3)
	c.ready()
	for id, n := range c.nodes {
		c.eventually(n, func() bool {
			_, logged := n.Host().logs()[gone.Tablets[0].ID]
			_, running := n.Host().replica(gone.Tablets[0].ID)
			return !logged && !running
		}, "node %d keeps the dropped tablet", id)
	}
	c.propose(3, keep, storage.Resolve{Txn: "still here"})
}

// eventually waits for a condition that changes with the node's replicas.
func (c *testCluster) eventually(n *Node, holds func() bool, format string, args ...any) {
	c.t.Helper()
	ctx := testContext(c.t)
	for !holds() {
		select {
		case <-n.Host().changed.wait():
		case <-time.After(20 * time.Millisecond): // conditions on files
		case <-ctx.Done():
			c.t.Fatalf(format+"; node %d has %+v", append(slices.Clone(args), n.ID(), n.Host().Tablets())...)
		}
	}
}

func TestNodesMayMoveToOtherAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	tablet := c.create(1, plainTable("t", 3)).Tablets[0].ID
	c.stop(3)
	moved := c.members[3]
	moved.RaftAddress = freeAddress(t)
	c.members[3] = moved
	c.nodes[1].Host().SetAddress(3, moved.RaftAddress)
	c.nodes[2].Host().SetAddress(3, moved.RaftAddress)
	c.start(3)
	c.ready()
	c.propose(3, tablet, storage.Resolve{Txn: "moved"})
	c.agree(tablet)
	snapshot, err := c.nodes[1].Meta().Snapshot(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if node, ok := snapshot.Node(3); !ok || node.RaftAddress != moved.RaftAddress {
		t.Fatalf("node 3 is known as %+v", node)
	}
}

func TestUnreadableEntryStopsTheReplicaAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	table := c.create(1, hashTable("t", 1, 2))
	bad, good := table.Tablets[0].ID, table.Tablets[1].ID
	c.propose(1, bad, storage.Resolve{Txn: "before"})
	victim, _ := c.nodes[1].Host().replica(bad)
	at := victim.sm.tablet.Applied()
	if _, err := victim.propose(testContext(t), []byte("not a command")); !errors.Is(err, ErrReplicaFailed) && !errors.Is(err, ErrNotReady) {
		t.Fatalf("proposing garbage: %v", err)
	}
	check := func() {
		t.Helper()
		h := c.nodes[1].Host()
		c.eventually(c.nodes[1], func() bool {
			_, err := h.Propose(testContext(t), bad, storage.Resolve{Txn: "x"})
			return errors.Is(err, ErrReplicaFailed)
		}, "the failed replica goes on")
		status := h.Tablets()[0]
		if status.Tablet != bad || status.Applied != at || status.Failure == "" {
			t.Fatalf("status of the failed replica, which had applied %d: %+v", at, status)
		}
		if _, ok := h.Tablet(bad); ok {
			t.Fatal("the failed replica serves reads")
		}
		c.propose(1, good, storage.Resolve{Txn: "the other goes on"})
	}
	check()
	c.stop(1)
	c.start(1)
	c.ready() // although one tablet fails again at the same entry
	check()
}

func TestFailedStoreStopsTheReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	table := c.create(1, plainTable("t", 1))
	tablet := table.Tablets[0].ID
	c.commit(1, table, tablet, 1)
	n := c.nodes[1]
	if err := n.Store().Close(); err != nil { // stands for a disk that fails
		t.Fatal(err)
	}
	for {
		_, err := n.Host().Propose(testContext(t), tablet, insert(t, n, table, 2))
		if errors.Is(err, ErrReplicaFailed) {
			if got := SQLState(err).Code; got != sqlstate.IOError {
				t.Fatalf("SQLSTATE %s", got)
			}
			break
		}
		if !errors.Is(err, ErrNotReady) { // it is just stopping
			t.Fatalf("writing to a failed store: %v", err)
		}
	}
	c.stop(1)
	c.start(1)
	c.ready()
	// The entry was committed: it takes effect now, after the failure.
	c.expectRows(tablet, 2)
}

func TestBulkIsBoundedAndDisturbsNoLeader(t *testing.T) {
	c := newCluster(t, 1, func(cfg *NodeConfig) {
		cfg.Host.InFlightBytes = 4 << 20
		cfg.Host.Heartbeat, cfg.Host.Election = 0, 0 // the defaults are what bulk must not disturb
	})
	c.start(1)
	c.ready()
	tablet := c.create(1, plainTable("t", 1)).Tablets[0].ID
	_, before, _, err := c.nodes[1].Host().raft.GetLeaderID(uint64(tablet))
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for i := range 24 {
		group.Go(func() error {
			_, err := c.nodes[1].Host().Propose(testContext(t), tablet, bulk(fmt.Sprint("bulk", i), 1<<20))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	_, after, _, err := c.nodes[1].Host().raft.GetLeaderID(uint64(tablet))
	if err != nil || after != before {
		t.Fatalf("term %d after %d, %v", after, before, err)
	}
	huge := bulk("huge", maxLogInMemory)
	if _, err := c.nodes[1].Host().Propose(testContext(t), tablet, huge); sqlstate.CodeOf(err) != sqlstate.ProgramLimitExceeded {
		t.Fatalf("oversized entry: %v", err)
	}
}

func TestStoppedTabletStartsAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	table := c.create(1, plainTable("t", 1))
	tablet := table.Tablets[0].ID
	h := c.nodes[1].Host()
	for round := range int64(3) {
		c.commit(1, table, tablet, round)
		if err := h.StopTablet(testContext(t), tablet); err != nil {
			t.Fatal(err)
		}
		if _, ok := h.Tablet(tablet); ok {
			t.Fatal("a stopped tablet is served")
		}
		if err := h.StartTablet(testContext(t), table, table.Tablets[0]); err != nil {
			t.Fatal(err)
		}
		if err := h.WaitTablets(testContext(t), table.ID); err != nil {
			t.Fatal(err)
		}
		c.expectRows(tablet, int(round)+1)
	}
	elsewhere := table.Tablets[0]
	elsewhere.ID, elsewhere.Replicas = 4711, []catalog.Replica{{ID: 1, Node: 9}}
	if err := h.StartTablet(testContext(t), table, elsewhere); !errors.Is(err, ErrNotReady) {
		t.Fatalf("tablet on an unknown node: %v", err)
	}
	h.SetAddress(9, "127.0.0.1:1")
	if err := h.StartTablet(testContext(t), table, elsewhere); !errors.Is(err, ErrTabletNotHere) {
		t.Fatalf("tablet of another node: %v", err)
	}
}
