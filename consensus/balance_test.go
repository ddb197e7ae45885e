package consensus

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"skein/catalog"
	"skein/sqlstate"
)

// newBalanceCase starts some of four nodes that balance often, and makes a table of
// six tablets with three replicas each.
func newBalanceCase(t *testing.T, start ...catalog.NodeID) *moveCase {
	c := &moveCase{testCluster: newCluster(t, 4, func(cfg *NodeConfig) {
		cfg.Host.Drain, cfg.Host.BalanceEvery = 2*time.Second, 200*time.Millisecond
	})}
	c.start(start...)
	c.ready()
	c.table = c.create(1, hashTable("t", 3, 6))
	c.tablet = c.table.Tablets[0].ID
	for i, tablet := range c.table.Tablets {
		for _, r := range tablet.Replicas {
			if c.nodes[r.Node] != nil {
				c.commit(r.Node, c.table, tablet.ID, int64(1000+i))
				break
			}
		}
	}
	return c
}

// holds waits until a node's number of replicas satisfies a condition and nothing
// moves.
func (c *moveCase) holds(node catalog.NodeID, holds func(int) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for {
		_, snapshot := c.described()
		if len(snapshot.Moves) == 0 && holds(snapshot.Holds(node)) {
			return
		}
		if !wait(ctx, 20*time.Millisecond) {
			c.t.Fatalf("node %d holds %d replicas, moves are %+v, jobs %+v", node, snapshot.Holds(node), snapshot.Moves, snapshot.Jobs)
		}
	}
}

func (c *moveCase) set(name, value string) {
	c.t.Helper()
	_, err := c.anyNode().Meta().SetSetting(testContext(c.t), SetSetting{
		RequestID: fmt.Sprint(name, time.Now().UnixNano()), Name: name, Value: value,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// whole has nothing evened out any more and checks that every tablet has three
// members, on nodes that run, and its row.
func (c *moveCase) whole() {
	c.t.Helper()
	c.set(SettingRebalance, "false")
	for calm := time.Now(); time.Since(calm) < time.Second; wait(testContext(c.t), 50*time.Millisecond) {
		if _, snapshot := c.described(); len(snapshot.Moves) > 0 {
			calm = time.Now()
		}
	}
	_, snapshot := c.described()
	table, _ := snapshot.Table(c.table.ID)
	for _, tablet := range table.Tablets {
		c.tablet = tablet.ID
		c.sameMembers(&tablet)
		for _, r := range tablet.Replicas {
			n := c.nodes[r.Node]
			if n == nil {
				c.t.Fatalf("tablet %d is on node %d, which does not run", tablet.ID, r.Node)
			}
			c.eventually(n, func() bool { _, ok := n.Host().Tablet(tablet.ID); return ok }, "tablet %d does not run on node %d", tablet.ID, r.Node)
			if rows := c.rows(r.Node, tablet.ID); rows != 1 {
				c.t.Fatalf("tablet %d has %d rows on node %d", tablet.ID, rows, r.Node)
			}
		}
	}
}

func (c *moveCase) setState(node catalog.NodeID, state NodeState, id string) error {
	_, err := c.anyNode().Meta().SetNodeState(testContext(c.t), SetNodeState{RequestID: id, Node: node, State: state})
	return err
}

// TestNewNodeIsFilled: a fourth node gets its part of what three have, and leads.
func TestNewNodeIsFilled(t *testing.T) {
	t.Parallel()
	c := newBalanceCase(t, 1, 2, 3)
	c.start(4)
	c.ready()
	c.holds(4, func(n int) bool { return n >= 4 })
	c.eventually(c.nodes[4], func() bool {
		led := 0
		for _, tablet := range c.table.Tablets {
			if c.nodes[4].Host().IsLeader(tablet.ID) {
				led++
			}
		}
		return led > 0
	}, "the new node leads nothing")
	c.whole()
}

// TestDrainedNodeEmpties, and can be removed then and not before.
func TestDrainedNodeEmpties(t *testing.T) {
	t.Parallel()
	c := newBalanceCase(t, 1, 2, 3, 4)
	_, snapshot := c.described()
	if snapshot.Holds(2) == 0 {
		t.Fatal("node 2 has nothing")
	}
	if err := c.setState(2, NodeRemoved, "early"); sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
		t.Fatalf("removing a node with replicas: %v", err)
	}
	if err := c.setState(2, NodeDraining, "drain"); err != nil {
		t.Fatal(err)
	}
	if err := c.setState(3, NodeDraining, "too many"); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Fatalf("draining a node whose replicas have nowhere to go: %v", err)
	}
	c.holds(2, func(n int) bool { return n == 0 })
	c.eventually(c.nodes[2], func() bool { return len(c.nodes[2].Host().logs()) == 0 }, "something is left on the drained node")
	c.whole()
	if err := c.setState(2, NodeRemoved, "remove"); err != nil {
		t.Fatal(err)
	}
}

// TestLostNodeIsReplaced: what was on a node that is gone for long is made anew on
// others. When it comes back it gives up what it had.
func TestLostNodeIsReplaced(t *testing.T) {
	t.Parallel()
	c := newBalanceCase(t, 1, 2, 3, 4)
	c.set(SettingRepairAfter, leastRepairAfter.String())
	c.holds(3, func(n int) bool { return n > 0 })
	had := c.nodes[3].Host().logs()
	c.stop(3)
	c.holds(3, func(n int) bool { return n == 0 })
	c.whole()
	c.start(3)
	c.ready()
	c.eventually(c.nodes[3], func() bool {
		_, snapshot := c.described()
		for tablet, replica := range c.nodes[3].Host().logs() {
			if had[tablet] == replica {
				return false
			}
		}
		return len(snapshot.Moves) == 0
	}, "replicas of before are left on the node that came back")
	c.whole()
}

func TestPlacerSpreadsOverZones(t *testing.T) {
	nodes := []NodeInfo{{ID: 1, Zone: "a"}, {ID: 2, Zone: "a"}, {ID: 3, Zone: "a"}, {ID: 4, Zone: "b"}, {ID: 5, Zone: "c"}}
	p := newPlacer(nodes, nil, func(catalog.NodeID) bool { return false })
	for i := range 6 {
		chosen := p.place(3)
		slices.Sort(chosen)
		if want := []catalog.NodeID{catalog.NodeID(i%3 + 1), 4, 5}; !slices.Equal(chosen, want) {
			t.Fatalf("tablet %d is on %v, not %v", i, chosen, want)
		}
	}
}
