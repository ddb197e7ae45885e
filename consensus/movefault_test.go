package consensus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"skein/catalog"
	"skein/storage"
)

// Roles of nodes in a move.
const (
	moveLeader   = "leader"   // of the group, not the one that is left
	moveOld      = "old"      // the one that is left, and leads
	moveFollower = "follower" // the one that is left, and does not lead
	moveNew      = "new"
)

// moveDeath is the death of a node at a step of a move.
type moveDeath struct {
	role     string
	replicas int
	point    changePoint
	fault    storage.FaultPoint
	abort    bool // while the node that is moved to is away
}

// TestNodeDiesDuringMove kills the node that leads, the one that is left and the
// one that is moved to at every step of a move. When the node is back the move
// ends as it was asked for, with all that was acknowledged. Every other time the
// machine fails with the process.
func TestNodeDiesDuringMove(t *testing.T) {
	t.Parallel()
	for i, tc := range []moveDeath{
		{role: moveLeader, replicas: 3, point: moveAdded},
		{role: moveLeader, replicas: 3, point: moveAsked},
		{role: moveLeader, replicas: 3, point: moveVouched},
		{role: moveLeader, replicas: 3, point: moveDecided},
		{role: moveLeader, replicas: 3, point: movePromoted},
		{role: moveLeader, replicas: 3, point: moveSwitched},
		{role: moveLeader, replicas: 3, point: moveRemoved},
		{role: moveLeader, replicas: 3, point: moveFinished},
		{role: moveNew, replicas: 3, point: moveVouched},
		{role: moveNew, replicas: 3, fault: storage.FaultInstallFrame},
		{role: moveNew, replicas: 3, fault: storage.FaultInstallStaged},
		{role: moveNew, replicas: 3, fault: storage.FaultInstallHead},
		{role: moveNew, replicas: 3, fault: storage.FaultInstalled},
		{role: moveOld, replicas: 3, point: movePromoted},
		{role: moveOld, replicas: 3, point: moveHanded},
		{role: moveFollower, replicas: 3, point: repairDropped},
		{role: moveFollower, replicas: 3, point: repairDurable},
		{role: moveFollower, replicas: 3, point: repairUnlogged},
		{role: moveOld, replicas: 1, point: moveAdded},
		{role: moveOld, replicas: 1, point: moveDecided},
		{role: moveOld, replicas: 1, point: movePromoted},
		{role: moveOld, replicas: 1, point: moveSwitched},
		{role: moveOld, replicas: 1, point: moveHanded},
		{role: moveNew, replicas: 1, point: moveRemoved},
		{role: moveNew, replicas: 1, point: moveFinished},
		{role: moveLeader, replicas: 3, point: moveRemoved, abort: true},
		{role: moveLeader, replicas: 3, point: moveFinished, abort: true},
	} {
		t.Run(fmt.Sprintf("%s of %d %s%s abort %v", tc.role, tc.replicas, tc.point, tc.fault, tc.abort), func(t *testing.T) {
			t.Parallel()
			// A busy machine may move the lead before the step: then another node took it.
			for attempt := 1; ; attempt++ {
				err := tc.run(t, fmt.Sprint("boot ", i%2))
				if err == nil {
					return
				}
				if attempt == 4 || !errors.Is(err, errNotReached) {
					t.Fatal(err)
				}
				t.Log(err)
			}
		})
	}
}

// run has the node die in a new cluster, come back in the named run of the machine,
// and the move end. It fails with errNotReached when the node did not die.
func (tc moveDeath) run(t *testing.T, revived string) error {
	var boot atomic.Pointer[string]
	first := "boot 0"
	boot.Store(&first)
	c := newMoveCase(t, 4, tc.replicas, func(cfg *NodeConfig) {
		cfg.Store.Boot = func() string { return *boot.Load() }
		cfg.Host.LogBytes = 1 << 20
	})
	placed := c.hosts()
	from, to, leader := placed[0], c.free(), placed[len(placed)-1]
	victim := map[string]catalog.NodeID{moveLeader: leader, moveOld: from, moveFollower: from, moveNew: to}[tc.role]
	if tc.role == moveOld {
		leader = from
	}
	if tc.fault != "" {
		c.cutLogs(c.tablet)
	}
	c.stop(victim)
	if tc.abort {
		c.stop(to)
	}
	w := childWork{
		Members: c.members, Node: victim, Dir: c.config(victim).DataDir, Boot: first,
		Point: tc.fault, Hit: 1, Repair: tc.point, Drain: 2 * time.Second,
	}
	child := w.start(t)
	if tc.replicas > 1 {
		host := c.anyHost(placed)
		c.eventually(host, func() bool {
			return host.Host().TransferLeader(testContext(t), c.tablet, leader) == nil
		}, "node %d does not come to lead", leader)
	}
	if err := c.ask(from, to); err != nil {
		return err
	}
	if tc.abort {
		_, err := c.anyNode().Meta().AbortMove(testContext(t), AbortMove{RequestID: "abort", Tablet: c.tablet})
		if err != nil {
			return err
		}
	}
	if _, err := child(); err != nil {
		return err
	}
	boot.Store(&revived)
	c.start(victim)
	if tc.abort {
		c.start(to)
		c.settled()
		c.eventually(c.nodes[to], func() bool { return len(c.nodes[to].Host().logs()) == 0 }, "something is left on node %d", to)
		c.sameMembers(&c.table.Tablets[0])
		c.insert(5000)
		for _, id := range placed {
			c.rebuilt(id, c.tablet, 0, c.sum)
		}
		return nil
	}
	c.moved(from, to)
	c.insert(5000)
	c.moved(from, to)
	return nil
}

// anyHost is a running node among some.
func (c *moveCase) anyHost(among []catalog.NodeID) *Node {
	c.t.Helper()
	for _, id := range among {
		if n := c.nodes[id]; n != nil {
			return n
		}
	}
	c.t.Fatal("no node with a replica runs")
	return nil
}
