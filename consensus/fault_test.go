package consensus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
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

// childWork is what the child's node does.
type childWork struct {
	Members map[catalog.NodeID]Peer
	Node    catalog.NodeID
	Dir     string
	Boot    string // run of the machine
	Point   storage.FaultPoint
	Hit     int64 // dies when it has come to the point so often
	// First is the first of the keys that a lone node inserts, after it has made
	// the table if it is 1; 0 to insert none and wait for death.
	First, Keys int64
}

func (w childWork) config() NodeConfig {
	var hits atomic.Int64
	cfg := NodeConfig{
		Cluster: "test", NodeID: w.Node, Members: w.Members, DataDir: w.Dir, Logger: testLogger(),
		Host: Config{Heartbeat: 50 * time.Millisecond, Election: 400 * time.Millisecond, LogBytes: 1 << 20, LogEntries: 20},
	}
	cfg.Store.Boot = func() string { return w.Boot }
	cfg.Store.CompactAfter = 2
	cfg.Store.Fault = func(p storage.FaultPoint) {
		if p != w.Point {
			return
		}
		if hits.Add(1) == w.Hit {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal is there
		}
	}
	return cfg
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	n, err := StartNode(ctx, w.config())
	if err != nil {
		return err
	}
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	if w.First == 0 {
		<-ctx.Done()
		return errors.New("the point is not reached")
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
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ctx.Err() != nil || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s, hit %d: the process ended with %v:\n%s", w.Point, w.Hit, err, errs.String())
	}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), "ack "); ok {
			var key int64
			if _, err := fmt.Sscan(number, &key); err != nil {
				t.Fatal(err)
			}
			acked = append(acked, key)
		}
	}
	return acked
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
	for i := 0; i < 40 || c.firstLogged(1, tablet) < 10 || c.firstLogged(2, tablet) < 10; i++ {
		if i > 400 {
			t.Fatalf("the logs are not cut: %d, %d", c.firstLogged(1, tablet), c.firstLogged(2, tablet))
		}
		c.propose(1, tablet, bulk(fmt.Sprint("t", i), 100_000))
	}
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
