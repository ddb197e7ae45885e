package consensus

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/storage"
)

func (c *testCluster) set(name, value string) {
	c.t.Helper()
	if _, err := c.nodes[1].Meta().SetSetting(testContext(c.t), SetSetting{RequestID: uuid.NewString(), Name: name, Value: value}); err != nil {
		c.t.Fatal(err)
	}
}

// Tablets are split as they grow, and merged when little is left of them, unless
// their table says otherwise; what is in between stays as it is.
func TestTabletsAreSplitAndMergedUnasked(t *testing.T) {
	c := newCluster(t, 1, func(cfg *NodeConfig) { cfg.Host.surveyEvery = 20 * time.Millisecond })
	c.start(1)
	c.ready()
	n := c.nodes[1]
	c.set(SettingSplitBytes, "20000")
	c.set(SettingReshapePause, "1s")
	manual := hashBuckets("manual", 1)
	manual.ManualSplit = true
	manual = c.create(1, manual)
	table := c.create(1, hashBuckets("t", 1))
	c.seed(1, manual, 0, 10_000)
	c.seed(1, table, 0, 10_000)
	tablets := func(of *catalog.Table) []catalog.Tablet {
		now, _ := n.Meta().Local().Table(of.ID)
		return now.Tablets
	}
	settled := func() bool { return !n.Meta().Local().reshaping(table.ID) && len(tablets(table)) > 1 }
	c.eventually(n, settled, "a large tablet is not split")
	wantKeys(t, c.contents(1, table.ID), 10_000)

	// Nothing is merged that is not small.
	for _, tablet := range tablets(table) {
		if replica, ok := n.Host().Tablet(tablet.ID); ok && replica.Bytes() < 20_000/mergeShare {
			t.Fatalf("tablet %d has %d bytes", tablet.ID, replica.Bytes())
		}
	}
	for _, job := range n.Meta().Local().Jobs {
		if r, _ := job.Reshape(); job.Kind != JobSplit || !r.Automatic || job.Table != table.ID {
			t.Fatalf("an unwanted job: %+v", job)
		}
	}
	c.set(SettingSplitBytes, "100000000")
	for _, tablet := range tablets(table) {
		if r := c.propose(1, tablet.ID, storage.Truncate{Txn: uuid.NewString(), Timestamp: c.latest(n)}); r.Outcome != storage.Committed {
			t.Fatalf("%v, %v", r.Outcome, r.Err)
		}
	}
	c.eventually(n, func() bool { return len(tablets(table)) == 1 }, "small tablets are not merged: %+v", n.Meta().Local().Jobs)
	if len(tablets(manual)) != 1 {
		t.Fatal("a table that is not to be split was")
	}
	if got := c.contents(1, table.ID); len(got) != 0 {
		t.Fatalf("%d rows are back", len(got))
	}
}

// A busy tablet is split if there are nodes enough, a busy table's tablets only up
// to a bound, and an idle one is left alone.
func TestLoadSplitsTablets(t *testing.T) {
	c := newCluster(t, 1, func(cfg *NodeConfig) { cfg.Host.surveyEvery = 20 * time.Millisecond })
	c.start(1)
	c.ready()
	n := c.nodes[1]
	c.set(SettingSplitLoad, "10")
	c.set(SettingReshapePause, "24h")
	idle := c.create(1, hashBuckets("idle", 1))
	table := c.create(1, hashBuckets("t", 1))
	c.seed(1, idle, 0, 100)
	busy := c.load(1, table.ID, 0)
	c.eventually(n, func() bool {
		now, _ := n.Meta().Local().Table(table.ID)
		return len(now.Tablets) == 2 && !n.Meta().Local().reshaping(table.ID)
	}, "a busy tablet is not split")
	keys := busy.end()
	wantKeys(t, c.contents(1, table.ID), keys)
	if now, _ := n.Meta().Local().Table(idle.ID); len(now.Tablets) != 1 {
		t.Fatal("an idle tablet was split")
	}
}
