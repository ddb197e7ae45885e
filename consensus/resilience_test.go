package consensus

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/vfs"
	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/storage"
)

// TestFollowerCatchesUpWhileWritesGoOn: a replica that was stopped past the cut
// of the log is brought up to date by a snapshot while rows are inserted.
func TestFollowerCatchesUpWhileWritesGoOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *NodeConfig) { cfg.Host.LogBytes = 1 << 20 })
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	c.bulky(1, table, 0)
	c.agree(tablet)
	c.stop(3)
	behind := c.firstLogged(1, tablet)
	for i := int64(1); c.firstLogged(1, tablet) <= behind+10 || c.firstLogged(2, tablet) <= behind+10; i++ {
		if i > 500 {
			t.Fatal("the logs are not cut")
		}
		c.propose(1, tablet, bulk(fmt.Sprint("t", i), 100_000))
		c.bulky(1, table, 1000*i)
	}
	ctx, stop := context.WithCancel(testContext(t))
	var written atomic.Int64
	var writers errgroup.Group
	for _, on := range []catalog.NodeID{1, 2} {
		n := c.nodes[on]
		writers.Go(func() error {
			for key := int64(1_000_000) * int64(on); ctx.Err() == nil; key++ {
				r, err := n.Host().Propose(testContext(t), tablet, insert(t, n, table, key))
				if err != nil || r.Outcome != storage.Committed {
					return fmt.Errorf("key %d: %v, %v, %w", key, r.Outcome, r.Err, err)
				}
				written.Add(1)
			}
			return nil
		})
	}
	c.start(3)
	c.ready()
	r, ok := c.nodes[3].Host().replica(tablet)
	if !ok {
		t.Fatal("node 3 does not host the tablet")
	}
	c.eventually(c.nodes[3], func() bool { return r.installed.Load() > 0 }, "no snapshot is installed")
	during := written.Load()
	c.eventually(c.nodes[3], func() bool { return written.Load() > during+20 }, "writes do not go on")
	stop()
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	c.agree(tablet)
	want, err := c.sum(1, tablet)
	if err != nil {
		t.Fatal(err)
	}
	for id := range c.nodes {
		if got, err := c.sum(id, tablet); err != nil || got != want {
			t.Fatalf("node %d holds %d, node 1 %d: %v", id, got, want, err)
		}
	}
	t.Logf("%d rows were written meanwhile, %d before the snapshot was installed", written.Load(), during)
}

// TestClosingTheLeaderCostsNoElection: writers on the other nodes do not wait as
// long as an election would take.
func TestClosingTheLeaderCostsNoElection(t *testing.T) {
	const election = 3 * time.Second
	c := newCluster(t, 3, func(cfg *NodeConfig) { cfg.Host.Election = election })
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	leader := c.leader(tablet)
	// As after a while of service, when leases are held.
	if _, err := c.sum(leader, tablet); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(testContext(t))
	var slowest, written atomic.Int64
	var writers errgroup.Group
	for id, n := range c.nodes {
		if id == leader {
			continue
		}
		writers.Go(func() error {
			for key := int64(1_000_000) * int64(id); ctx.Err() == nil; key++ {
				began := time.Now()
				r, err := n.Host().Propose(testContext(t), tablet, insert(t, n, table, key))
				if err != nil || r.Outcome != storage.Committed {
					return fmt.Errorf("key %d: %v, %v, %w", key, r.Outcome, r.Err, err)
				}
				slowest.Store(max(slowest.Load(), int64(time.Since(began))))
				written.Add(1)
			}
			return nil
		})
	}
	c.eventually(c.nodes[leader], func() bool { return written.Load() > 20 }, "nothing is written")
	c.stop(leader)
	after := written.Load()
	other := leader%3 + 1
	c.eventually(c.nodes[other], func() bool { return written.Load() > after+20 }, "writes do not go on")
	stop()
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	if longest := time.Duration(slowest.Load()); longest > election/2 {
		t.Fatalf("a write took %v while the leader was closed, an election takes %v or more", longest, election)
	}
	t.Logf("the slowest of %d writes took %v", written.Load(), time.Duration(slowest.Load()))
	if leads, ok := c.nodes[other].Host().Leader(tablet); !ok || leads == leader {
		t.Fatalf("node %d leads after it was closed", leads)
	}
}

func TestTransferLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	for range 2 {
		for _, to := range []catalog.NodeID{1, 2, 3} {
			if err := c.nodes[1].Host().TransferLeader(testContext(t), tablet, to); err != nil {
				t.Fatal(err)
			}
			if leader, ok := c.nodes[1].Host().Leader(tablet); !ok || leader != to {
				t.Fatalf("node %d leads, not %d", leader, to)
			}
		}
	}
	c.commit(2, table, tablet, 1)
	for _, bad := range []struct {
		tablet catalog.TabletID
		to     catalog.NodeID
	}{{tablet, 9}, {4711, 1}} {
		if err := c.nodes[1].Host().TransferLeader(testContext(t), bad.tablet, bad.to); err == nil {
			t.Errorf("tablet %d now is led by node %d", bad.tablet, bad.to)
		}
	}
}

// slowDisk delays every sync of the files of a Raft log.
type slowDisk struct {
	delay *atomic.Int64 // nanoseconds
}

// MaybeError implements vfs.Injector.
func (d slowDisk) MaybeError(op vfs.Op) error {
	if op == vfs.OpSync {
		timer := time.NewTimer(time.Duration(d.delay.Load()))
		<-timer.C
	}
	return nil
}

// TestSlowDiskSlowsWritersOnly: with syncs that take much longer than a
// heartbeat on every node, at default timing, writes take as long as that and
// nobody is elected.
func TestSlowDiskSlowsWritersOnly(t *testing.T) {
	var delay atomic.Int64
	c := newCluster(t, 3, func(cfg *NodeConfig) {
		cfg.Host.Heartbeat, cfg.Host.Election = 0, 0
		cfg.Host.files = vfs.Wrap(vfs.Default, slowDisk{delay: &delay})
	})
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	leader := c.leader(tablet)
	term := func() uint64 {
		_, term, ok, err := c.nodes[leader].Host().raft.GetLeaderID(uint64(tablet))
		if err != nil || !ok {
			t.Fatalf("no leader: %v", err)
		}
		return term
	}
	write := func(key int64) time.Duration {
		began := time.Now()
		c.commit(leader, table, tablet, key)
		return time.Since(began)
	}
	fast, before := write(1), term()
	delay.Store(int64(250 * time.Millisecond))
	var writers errgroup.Group
	for i := range int64(4) { // bulk on its way at the same time
		writers.Go(func() error {
			_, err := c.nodes[leader].Host().Propose(testContext(t), tablet, bulk(fmt.Sprint("bulk", i), 1<<20))
			return err
		})
	}
	slow := time.Duration(0)
	for key := range int64(5) {
		slow = max(slow, write(10+key))
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	delay.Store(0)
	t.Logf("a write took %v, and up to %v on slow disks", fast, slow)
	if slow < 200*time.Millisecond {
		t.Fatalf("writes took %v at most: the disk was not slow", slow)
	}
	if now := c.leader(tablet); now != leader || term() != before {
		t.Fatalf("node %d leads in term %d, before the disks were slow node %d in term %d", now, term(), leader, before)
	}
}
