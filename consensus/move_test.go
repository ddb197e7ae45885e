package consensus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"

	"skein/catalog"
	"skein/sqlstate"
	"skein/storage"
)

// moveCase is a table of one bulky tablet on some of the nodes of a cluster.
type moveCase struct {
	*testCluster
	table  *catalog.Table
	tablet catalog.TabletID
	sum    int64 // of the keys
}

// newMoveCase starts a cluster and makes a table of so many replicas.
func newMoveCase(t *testing.T, nodes, replicas int, adjust func(*NodeConfig)) *moveCase {
	c := &moveCase{testCluster: newCluster(t, nodes, func(cfg *NodeConfig) {
		cfg.Host.Drain = 2 * time.Second
		if adjust != nil {
			adjust(cfg)
		}
	})}
	for id := range c.members {
		c.start(id)
	}
	c.ready()
	c.table = c.create(1, plainTable("t", replicas))
	c.tablet = c.table.Tablets[0].ID
	first := c.hosts()[0]
	for i := range int64(3) {
		c.bulky(first, c.table, 1000*i)
		c.sum += 500*1000*i + 499*500/2
	}
	return c
}

// anyNode is a node that runs.
func (c *moveCase) anyNode() *Node {
	for _, n := range c.nodes {
		return n
	}
	c.t.Fatal("no node runs")
	return nil
}

// described is the tablet as the meta group's quorum describes it.
func (c *moveCase) described() (*catalog.Tablet, *MetaSnapshot) {
	c.t.Helper()
	snapshot, err := c.anyNode().Meta().Snapshot(testContext(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	table, ok := snapshot.Table(c.table.ID)
	if !ok {
		c.t.Fatal("the table is gone")
	}
	return &table.Tablets[0], snapshot
}

// hosts lists the nodes of the tablet's replicas.
func (c *moveCase) hosts() []catalog.NodeID {
	tablet, _ := c.described()
	var list []catalog.NodeID
	for _, r := range tablet.Replicas {
		list = append(list, r.Node)
	}
	return list
}

// free is a node without a replica.
func (c *moveCase) free() catalog.NodeID {
	c.t.Helper()
	hosts := c.hosts()
	for id := range c.members {
		if !slices.Contains(hosts, id) {
			return id
		}
	}
	c.t.Fatal("all nodes have a replica")
	return 0
}

// lead has a node lead the tablet.
func (c *moveCase) lead(node catalog.NodeID) {
	c.t.Helper()
	c.eventually(c.nodes[node], func() bool {
		return c.nodes[node].Host().TransferLeader(testContext(c.t), c.tablet, node) == nil
	}, "node %d does not come to lead", node)
}

func (c *moveCase) ask(from, to catalog.NodeID) error {
	_, err := c.anyNode().Meta().MoveReplica(testContext(c.t), MoveReplica{
		RequestID: fmt.Sprintf("move %d to %d at %d", from, to, time.Now().UnixNano()), Tablet: c.tablet, From: from, To: to, Cause: "test",
	})
	return err
}

// moved waits until a move is over, checks who has what, and that the new replica
// is whole.
func (c *moveCase) moved(from, to catalog.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var tablet *catalog.Tablet
	var snapshot *MetaSnapshot
	for over := false; !over; {
		tablet, snapshot = c.described()
		_, moving := snapshot.Move(c.tablet)
		over = !moving && hosts(tablet, to) && !hosts(tablet, from)
		if old := c.nodes[from]; over && old != nil {
			over = len(old.Host().Tablets()) == 0 && len(old.Host().logs()) == 0
		}
		if !over && !wait(ctx, 20*time.Millisecond) {
			c.t.Fatalf("the move from node %d to node %d is not over: %+v, moves %+v", from, to, tablet, snapshot.Moves)
		}
	}
	for _, r := range tablet.Replicas {
		if c.nodes[r.Node] != nil {
			c.rebuilt(r.Node, c.tablet, 0, c.sum)
		}
	}
	c.sameMembers(tablet)
}

// sameMembers checks that the Raft group has the members of the description.
func (c *moveCase) sameMembers(tablet *catalog.Tablet) {
	c.t.Helper()
	for _, r := range tablet.Replicas {
		if c.nodes[r.Node] == nil {
			continue
		}
		var members *dragonboat.Membership
		var err error
		c.eventually(c.nodes[r.Node], func() bool {
			// The question is lost where the leader that it goes to dies: nobody repeats it.
			ctx, cancel := context.WithTimeout(context.Background(), minPatience)
			defer cancel()
			members, err = c.nodes[r.Node].Host().raft.SyncGetShardMembership(ctx, uint64(c.tablet))
			return err == nil
		}, "node %d does not tell the members", r.Node)
		if len(members.Nodes) != len(tablet.Replicas) || len(members.NonVotings) != 0 {
			c.t.Fatalf("the group has the members %+v, the description %+v", members, tablet.Replicas)
		}
		for _, other := range tablet.Replicas {
			if members.Nodes[other.ID] == "" {
				c.t.Fatalf("replica %d is no member: %+v", other.ID, members)
			}
		}
		return
	}
}

func (c *moveCase) insert(key int64) {
	c.t.Helper()
	c.commit(c.hosts()[0], c.table, c.tablet, key)
	c.sum += key
}

// TestReplicaMoves from a follower, from the leader, and of the only one, and on
// to further nodes, with restarts of all nodes in between.
func TestReplicaMoves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		replicas int
		leads    bool
	}{{"follower", 3, false}, {"leader", 3, true}, {"only", 1, true}, {"one of two", 2, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newMoveCase(t, 4, tc.replicas, nil)
			before, _ := c.described()
			from, to := c.hosts()[0], c.free()
			if tc.leads {
				c.lead(from)
			} else {
				c.lead(c.hosts()[1])
			}
			if err := c.ask(from, to); err != nil {
				t.Fatal(err)
			}
			c.moved(from, to)
			after, _ := c.described()
			if after.Generation != before.Generation+1 {
				t.Errorf("generation %d after %d", after.Generation, before.Generation)
			}
			c.insert(5000)
			for id := range c.members {
				c.stop(id)
			}
			for id := range c.members {
				c.start(id)
			}
			c.ready()
			c.insert(6000)
			c.lead(to)
			c.insert(7000)
			if err := c.ask(to, from); err != nil {
				t.Fatal(err)
			}
			c.moved(to, from)
			c.insert(8000)
			c.moved(to, from)
		})
	}
}

// TestMoveUnderLoad: writers through every node, and readers on every node that
// the description names, meet no error that a gateway would not retry, and lose
// nothing.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			t.Parallel()
			c := newMoveCase(t, 4, replicas, nil)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var load sync.WaitGroup
			var acked, reads atomic.Int64
			var sum atomic.Int64
			failed := make(chan error, 8)
			for w := range int64(2) {
				load.Go(func() {
					for key := 1_000_000 * (w + 1); ctx.Err() == nil; key++ {
						if err := c.writeSomewhere(key); err != nil {
							failed <- err
							return
						}
						acked.Add(1)
						sum.Add(key)
					}
				})
			}
			load.Go(func() {
				for ctx.Err() == nil {
					before := acked.Load()
					n, err := c.countSomewhere()
					if err == nil && int64(n) < before+1500 {
						err = fmt.Errorf("read %d rows where %d were acknowledged", n, before+1500)
					}
					if err != nil {
						failed <- err
						return
					}
					reads.Add(1)
				}
			})
			moves := 0
			for range 3 {
				from, to := c.hosts()[0], c.free()
				c.lead(from)
				if err := c.ask(from, to); err != nil {
					t.Fatal(err)
				}
				c.settled()
				moves++
			}
			stop()
			load.Wait()
			select {
			case err := <-failed:
				t.Fatal(err)
			default:
			}
			t.Logf("%d writes and %d reads in %d moves", acked.Load(), reads.Load(), moves)
			if acked.Load() == 0 || reads.Load() == 0 {
				t.Fatal("there was no load")
			}
			c.sum += sum.Load()
			for _, id := range c.hosts() {
				c.rebuilt(id, c.tablet, 0, c.sum)
			}
		})
	}
}

// settled waits until nothing moves.
func (c *moveCase) settled() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	for {
		_, snapshot := c.described()
		if len(snapshot.Moves) == 0 {
			return
		}
		if !wait(ctx, 20*time.Millisecond) {
			c.t.Fatalf("the moves are not over: %+v", snapshot.Moves)
		}
	}
}

// writeSomewhere inserts a key as a gateway would: on a node of the description,
// and again on others as long as the errors say that this may help.
func (c *moveCase) writeSomewhere(key int64) error {
	return c.somewhere(func(ctx context.Context, n *Node) error {
		command, err := insertOf(n, c.table, key)
		if err != nil {
			return err
		}
		r, err := n.Host().Propose(ctx, c.tablet, command)
		if err == nil && r.Outcome != storage.Committed {
			return fmt.Errorf("key %d: %v, %v", key, r.Outcome, r.Err)
		}
		return err
	})
}

func (c *moveCase) countSomewhere() (rows int, err error) {
	err = c.somewhere(func(ctx context.Context, n *Node) error {
		now := n.Clock().Now()
		for _, other := range c.nodes {
			now = max(now, other.Clock().Now())
		}
		if err := n.Clock().Observe(now); err != nil {
			return err
		}
		if err := n.Host().ReadAt(ctx, c.tablet, now); err != nil {
			return err
		}
		store, ok := n.Host().Tablet(c.tablet)
		if !ok {
			return ErrTabletNotHere
		}
		snapshot, err := store.Snapshot(now)
		if err != nil {
			return err
		}
		defer snapshot.Release()
		rows = int(snapshot.Rows())
		return nil
	})
	return rows, err
}

func (c *moveCase) somewhere(do func(context.Context, *Node) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for attempt := 0; ; attempt++ {
		table, ok := c.nodes[1].Meta().Local().Table(c.table.ID)
		if !ok {
			return ErrTabletNotHere
		}
		replicas := table.Tablets[0].Replicas
		err := do(ctx, c.nodes[replicas[attempt%len(replicas)].Node])
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return err
		}
		wait(ctx, 5*time.Millisecond)
	}
}

func retryable(err error) bool {
	switch sqlstate.CodeOf(SQLState(err)) {
	case sqlstate.ConnectionFailure, sqlstate.CannotConnectNow:
		return true
	}
	return false
}
