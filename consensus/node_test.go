package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
	"skein/storage"
)

func TestSingleNodeStartsAndRestartsFast(t *testing.T) {
	c := newCluster(t, 1, nil)
	began := time.Now()
	c.start(1)
	c.ready()
	t.Logf("fresh node ready after %v", time.Since(began))
	tables := make([]string, 0, 5)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		tables = append(tables, name)
		c.create(1, hashTable(name, 1, 4))
	}
	before := c.nodes[1].Meta().Local()
	tablet := before.Tables[0].Tablets[0].ID
	if _, err := c.nodes[1].Host().Propose(testContext(t), tablet, storage.Resolve{Txn: "x"}); err != nil {
		t.Fatal(err)
	}
	c.stop(1)
	began = time.Now()
	c.start(1)
	c.ready()
	t.Logf("restarted with 20 tablets after %v", time.Since(began))
	after := c.nodes[1].Meta().Local()
	if after.Version != before.Version || len(after.Tables) != len(tables) {
		t.Fatalf("metadata after restart: version %d with %d tables, before %d with %d", after.Version, len(after.Tables), before.Version, len(before.Tables))
	}
	if applied := c.nodes[1].Host().Tablets()[0].Applied; applied == 0 {
		t.Fatal("the tablet lost its applied entries")
	}
}

// TestLostStoreTailIsReplayed gives a node back an old state of its store, as a
// crash without syncs may, and expects everything to return from the Raft log.
func TestLostStoreTailIsReplayed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	old := c.create(1, plainTable("old", 1))
	c.commit(1, old, old.Tablets[0].ID, 1)
	c.stop(1)
	store := filepath.Join(c.config(1).DataDir, "store")
	saved := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(saved, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}

	c.start(1)
	c.ready()
	c.commit(1, old, old.Tablets[0].ID, 2)
	recent := c.create(1, plainTable("recent", 1))
	c.commit(1, recent, recent.Tablets[0].ID, 1)
	dropped := c.create(1, plainTable("dropped", 1))
	if _, err := c.nodes[1].Meta().DropTable(testContext(t), DropTable{RequestID: "drop", ID: dropped.ID}); err != nil {
		t.Fatal(err)
	}
	c.stop(1)
	if err := errors.Join(os.RemoveAll(store), os.Rename(saved, store)); err != nil {
		t.Fatal(err)
	}

	c.start(1)
	c.ready()
	if _, err := c.nodes[1].Meta().Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*catalog.Table{old, recent} {
		if err := c.nodes[1].Host().WaitTablets(testContext(t), table.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.expectRows(old.Tablets[0].ID, 2)
	c.expectRows(recent.Tablets[0].ID, 1)
	next := c.create(1, plainTable("next", 1))
	if next.ID <= dropped.ID || next.Tablets[0].ID <= dropped.Tablets[0].ID {
		t.Fatalf("ids of the dropped table %d were given out again: %d", dropped.ID, next.ID)
	}
}

func TestMetaGroupEndToEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *NodeConfig) { cfg.Host.LogBytes, cfg.Host.LogEntries = 1<<20, 20 })
	c.start(1, 2, 3)
	c.ready()
	ctx := testContext(t)
	c.create(3, plainTable("kept", 3))
	c.stop(2)

	// Node 2 misses more commands than the log keeps.
	hidden := plainTable("staging", 1)
	reply, err := c.nodes[1].Meta().CreateTable(ctx, CreateTable{RequestID: "hidden", Table: hidden, Hidden: true, CreatedUnixMS: time.Now().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		_, err := c.nodes[1].Meta().DropTable(ctx, DropTable{RequestID: fmt.Sprint("miss", i), ID: 4711})
		if err == nil {
			t.Fatal("dropped a table that does not exist")
		}
	}
	body := fmt.Appendf(nil, `{"request_id":"publish","id":%d,"name":"done"}`, reply.Table.ID)
	if _, err := c.nodes[3].Meta().Handle(ctx, MetaPublishTable, body); err != nil {
		t.Fatal(err)
	}
	c.start(2)
	c.ready()
	for id, n := range c.nodes {
		snapshot, err := n.Meta().Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := snapshot.TableNamed("public", "done"); !ok || len(snapshot.Tables) != 2 || len(snapshot.Nodes) != 3 {
			t.Fatalf("node %d sees %+v", id, snapshot)
		}
	}
	if repeat, err := c.nodes[2].Meta().CreateTable(ctx, CreateTable{RequestID: "hidden", Table: hidden, Hidden: true}); err != nil || repeat.Table.ID != reply.Table.ID {
		t.Fatalf("repeated on another node: %+v, %v", repeat, err)
	}
}

func TestMetaWatchAndSweep(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	ctx := testContext(t)
	m := c.nodes[1].Meta()
	now := time.Now()
	version := m.Local().Version
	if v, err := m.Watch(ctx, version, time.Millisecond); err != nil || v != version {
		t.Fatalf("watch without a change: %d, %v", v, err)
	}
	seen := make(chan uint64, 1)
	go func() {
		v, err := m.Watch(ctx, version, 0)
		if err != nil {
			v = 0
		}
		seen <- v
	}()
	for name, age := range map[string]time.Duration{"young": time.Hour, "old": 25 * time.Hour} {
		r := CreateTable{RequestID: name, Table: plainTable(name, 1), Hidden: true, CreatedUnixMS: now.Add(-age).UnixMilli()}
		if _, err := m.CreateTable(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	if v := <-seen; v <= version {
		t.Fatalf("watch returned %d after %d", v, version)
	}
	if n, err := m.SweepHidden(ctx, now); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	if left := m.Local().Hidden; len(left) != 1 || left[0].Table.Name != "young" {
		t.Fatalf("left: %+v", left)
	}
	odd := plainTable("odd", 1)
	odd.Columns[1].Type = arrow.PrimitiveTypes.Uint64
	if _, err := m.CreateTable(ctx, CreateTable{RequestID: "odd", Table: odd}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatalf("a column type without SQL spelling: %v", err)
	}
	if _, err := m.Handle(ctx, "explode", nil); err == nil {
		t.Fatal("an unknown command was served")
	}
	if _, err := m.Handle(ctx, MetaReadSnapshot, []byte(`{"stale":true} x`)); err == nil {
		t.Fatal("trailing bytes were accepted")
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.Watch(stopped, 1<<40, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled watch: %v", err)
	}
}
