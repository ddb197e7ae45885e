package consensus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skein/catalog"
	"skein/sqlstate"
	"skein/storage"
)

// childEnv has the test binary run a node that is to die.
const childEnv = "SKEIN_CONSENSUS_CHILD"

// errNotReached says that a child lived through its work.
var errNotReached = errors.New("the point is not reached")

// childWork is what the child's node does.
type childWork struct {
	Members map[catalog.NodeID]Peer
	Node    catalog.NodeID
	Dir     string
	Boot    string // run of the machine
	Point   storage.FaultPoint
	Hit     int64 // dies when it has come to the point so often
	Repair  changePoint
	Drain   time.Duration
	Reshape reshapePoint
	Kind    JobKind // of the job that a lone node does after its inserts
	// First is the first of the keys that a lone node inserts, after it has made
	// the table if it is 1; 0 to insert none and wait for death.
	First, Keys int64
}

func (w childWork) config() NodeConfig {
	var hits atomic.Int64
	cfg := NodeConfig{
		Cluster: "test", NodeID: w.Node, Members: w.Members, DataDir: w.Dir, InitIfEmpty: true, Standalone: len(w.Members) == 1, Logger: testLogger(),
		Host: Config{Heartbeat: 50 * time.Millisecond, Election: 400 * time.Millisecond, LogBytes: 1 << 20, LogEntries: 20, Drain: w.Drain},
	}
	cfg.Store.Boot = func() string { return w.Boot }
	cfg.Store.CompactAfter = 2
	cfg.Store.Fault = func(p storage.FaultPoint) {
		if p == w.Point && hits.Add(1) == w.Hit {
			die()
		}
	}
	cfg.Host.repair = func(p changePoint) {
		if p == w.Repair {
			die()
		}
	}
	cfg.Host.reshape = func(p reshapePoint) {
		if p == w.Reshape {
			die()
		}
	}
	return cfg
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal is there
}

func runChild(text string) int {
	var w childWork
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w childWork) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	n, err := StartNode(ctx, w.config())
	if err != nil {
		return err
	}
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	if w.Kind != "" {
		return w.reshapes(ctx, n)
	}
	if w.First == 0 {
		<-ctx.Done()
		return errNotReached
	}
	table := plainTable("t", 1)
	if w.First == 1 {
		reply, err := n.Meta().CreateTable(ctx, CreateTable{RequestID: "create", Table: table})
		if err != nil {
			return err
		}
		table = reply.Table
	} else {
		n.Meta().Local().all(func(t *catalog.Table) { table = t })
	}
	if err := n.Host().WaitTablets(ctx, table.ID); err != nil {
		return err
	}
	for key := w.First; key < w.First+w.Keys; key++ {
		command, err := insertOf(n, table, key)
		if err != nil {
			return err
		}
		r, err := n.Host().Propose(ctx, table.Tablets[0].ID, command)
		if err != nil || r.Outcome != storage.Committed {
			return fmt.Errorf("key %d: %v, %v, %w", key, r.Outcome, r.Err, err)
		}
		fmt.Println("ack", key)
	}
	return n.Close(ctx)
}

// dies runs work in a process of its own, which must die by itself, and returns
// the keys that it acknowledged.
func (w childWork) dies(t *testing.T) (acked []int64) {
	t.Helper()
	acked, err := w.start(t)()
	if err != nil {
		t.Fatal(err)
	}
	return acked
}

// start runs work in a process of its own. Its result waits for the process,
// which must die by itself, and returns the keys that it acknowledged.
func (w childWork) start(t *testing.T) (wait func() ([]int64, error)) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait = sync.OnceValues(func() ([]int64, error) {
		err := cmd.Wait()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if ctx.Err() != nil || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			if strings.Contains(errs.String(), errNotReached.Error()) {
				err = errNotReached
			}
			return nil, fmt.Errorf("%s%s, hit %d: the process ended with %w:\n%s", w.Point, w.Repair, w.Hit, err, errs.String())
		}
		return ackedKeys(&out)
	})
	t.Cleanup(func() {
		cancel()
		_, _ = wait() // a process that the test has not waited for failed it already
	})
	return wait
}

func ackedKeys(out io.Reader) (acked []int64, err error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if number, ok := strings.CutPrefix(lines.Text(), "ack "); ok {
			var key int64
			if _, err := fmt.Sscan(number, &key); err != nil {
				return nil, err
			}
			acked = append(acked, key)
		}
	}
	return acked, lines.Err()
}

// TestNodeDiesAtFaultPoints kills a node while it applies entries, merges
// segments and becomes durable, and restarts it: the Raft log brings back what
// the store lost. Every other time the machine fails with the process.
func TestNodeDiesAtFaultPoints(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	w := childWork{Members: c.members, Node: 1, Dir: c.config(1).DataDir, First: 1, Keys: 200}
	var acked []int64
	deaths := 0
	for i, point := range []storage.FaultPoint{
		storage.FaultApplied, storage.FaultApplyCommit, storage.FaultSynced, storage.FaultSyncMark, storage.FaultSyncFiles,
		storage.FaultManifestSwitch, storage.FaultSwitched, storage.FaultCollected, storage.FaultRollback, storage.FaultOpenMark,
	} {
		w.Point, w.Hit, w.Boot = point, 2, fmt.Sprint("boot ", i/2)
		switch point {
		case storage.FaultApplied, storage.FaultApplyCommit:
			w.Hit = 30
		case storage.FaultOpenMark:
			w.Hit = 1
		}
		acked = append(acked, w.dies(t)...)
		deaths++
		w.First = acked[len(acked)-1] + 2 // the one between may be there
	}
	c.adjust = func(cfg *NodeConfig) { cfg.Store.Boot = func() string { return "the last" } }
	c.start(1)
	c.ready()
	var table *catalog.Table
	c.nodes[1].Meta().Local().all(func(t *catalog.Table) { table = t })
	tablet := table.Tablets[0].ID
	if rows := c.rows(1, tablet); rows < len(acked) || rows > len(acked)+deaths {
		t.Errorf("%d rows, %d were acknowledged and %d perhaps not", rows, len(acked), deaths)
	}
	for _, key := range acked {
		again := insert(t, c.nodes[1], table, key)
		again.Txn = fmt.Sprint("again ", key)
		if r := c.propose(1, tablet, again); sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
			t.Fatalf("key %d is not there: %v, %v", key, r.Outcome, r.Err)
		}
	}
}

// TestNodeDiesInstallingASnapshot kills a follower at every point of the
// installation of a snapshot; in the end it has the state.
func TestNodeDiesInstallingASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *NodeConfig) {
		cfg.Host.LogBytes = 1 << 20
		cfg.Store.Boot = func() string { return "boot" }
	})
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	c.commit(1, table, tablet, 1)
	c.agree(tablet)
	c.stop(3)
	c.commit(1, table, tablet, 2)
	c.cutLogs(tablet)
	w := childWork{Members: c.members, Node: 3, Dir: c.config(3).DataDir, Boot: "boot", Hit: 1}
	for _, w.Point = range []storage.FaultPoint{
		storage.FaultInstallFrame, storage.FaultInstallStaged, storage.FaultInstallHead, storage.FaultInstalled,
	} {
		w.dies(t)
	}
	c.start(3)
	c.ready()
	c.expectRows(tablet, 2)
	c.commit(3, table, tablet, 3)
	c.expectRows(tablet, 3)
	c.agree(tablet)
}

// TestNodeDiesDuringRepair kills the node of a damaged replica, the leader's and
// another one at every step of its replacement. When the node is back the replica
// gets rebuilt, with all that was acknowledged, and while a majority is well the
// tablet takes writes. Every other time the machine fails with the process.
func TestNodeDiesDuringRepair(t *testing.T) {
	t.Parallel()
	for i, tc := range []repairDeath{
		{node: repairVictim, repair: repairRequested},
		{node: repairLeader, repair: repairAsked},
		{node: repairLeader, repair: repairVouched},
		{node: repairFollower, repair: repairVouched},
		{node: repairLeader, repair: repairRemoved},
		{node: repairLeader, repair: repairAdded},
		{node: repairLeader, repair: repairFinished},
		{node: repairVictim, repair: repairDropped},
		{node: repairVictim, repair: repairDurable},
		{node: repairVictim, repair: repairUnlogged},
		{node: repairVictim, point: storage.FaultInstallFrame},
		{node: repairVictim, point: storage.FaultInstallStaged},
		{node: repairVictim, point: storage.FaultInstallHead},
		{node: repairVictim, point: storage.FaultInstalled},
	} {
		t.Run(fmt.Sprintf("node %d %s%s", tc.node, tc.repair, tc.point), func(t *testing.T) {
			t.Parallel()
			// Who leads takes the steps, and a busy machine may move the lead before
			// the step that the node is to die at: then another one took it.
			for attempt := 1; ; attempt++ {
				err := tc.run(t, fmt.Sprint("boot ", i%2))
				if err == nil {
					return
				}
				if tc.node == repairVictim || attempt == 4 || !errors.Is(err, errNotReached) {
					t.Fatal(err)
				}
				t.Log(err)
			}
		})
	}
}

// Nodes of a repairDeath, by what they are to the damaged tablet.
const (
	repairLeader   catalog.NodeID = 1
	repairFollower catalog.NodeID = 2
	repairVictim   catalog.NodeID = 3
)

// repairDeath is the death of a node at a step of a repair.
type repairDeath struct {
	node   catalog.NodeID // that dies
	repair changePoint
	point  storage.FaultPoint
}

// run has the node die in a new cluster, come back in the named run of the machine,
// and the replica rebuilt. It fails with errNotReached when the node did not die.
func (tc repairDeath) run(t *testing.T, revived string) error {
	var boot atomic.Pointer[string]
	first := "boot 0"
	boot.Store(&first)
	c, table, sum := repairCase(t, func(cfg *NodeConfig) {
		cfg.Store.Boot = func() string { return *boot.Load() }
		cfg.Host.LogBytes = 1 << 20
	})
	tablet := table.Tablets[0].ID
	old := c.replicaID(repairVictim, tablet)
	if tc.point != "" {
		c.cutLogs(tablet)
	}
	c.stop(repairVictim)
	c.damageRecords(repairVictim, tablet, 'm', func(value []byte) { value[9] ^= 4 })
	other := repairLeader
	if tc.node == repairLeader {
		other = repairFollower
	}
	c.stop(tc.node)
	w := childWork{
		Members: c.members, Node: tc.node, Dir: c.config(tc.node).DataDir, Boot: first,
		Point: tc.point, Hit: 1, Repair: tc.repair,
	}
	child := w.start(t)
	if tc.node != repairVictim {
		c.eventually(c.nodes[other], func() bool {
			return c.nodes[other].Host().TransferLeader(testContext(t), tablet, repairLeader) == nil
		}, "node %d does not come to lead", repairLeader)
		c.start(repairVictim)
	}
	if _, err := child(); err != nil {
		return err
	}
	if tc.node == repairVictim {
		c.commit(other, table, tablet, 5000)
		sum += 5000
	}
	boot.Store(&revived)
	c.start(tc.node)
	c.rebuilt(repairVictim, tablet, old, sum)
	c.commit(repairVictim, table, tablet, 6000)
	sum += 6000
	for id := range c.nodes {
		c.rebuilt(id, tablet, 0, sum)
	}
	members, err := c.nodes[other].Host().raft.SyncGetShardMembership(testContext(t), uint64(tablet))
	if err != nil || len(members.Nodes) != 3 || members.Nodes[old] != "" {
		t.Fatalf("the group's members are %+v, %v", members, err)
	}
	return nil
}
