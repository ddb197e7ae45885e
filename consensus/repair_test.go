package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
	"skein/storage"
)

// bulky commits a segment of rows with keys from first on, whose texts do not
// compress, so that it lies in the store's value log.
func (c *testCluster) bulky(on catalog.NodeID, table *catalog.Table, first int64) {
	c.t.Helper()
	const rows, width = 500, 40
	keys, text, offsets := make([]int64, rows), make([]byte, 0, rows*width), make([]int32, 1, rows+1)
	random := rand.New(rand.NewPCG(1, uint64(first)))
	for i := range keys {
		keys[i] = first + int64(i)
		for range width {
			text = append(text, byte(' '+random.IntN(95)))
		}
		offsets = append(offsets, int32(len(text)))
	}
	segment, err := storage.EncodeSegment(table, []*columnar.Batch{{Len: rows, Cols: []*columnar.Vector{
		{Type: catalog.BigInt, Len: rows, Data: columnar.Bytes(keys)},
		{Type: catalog.Text, Len: rows, Data: text, Offsets: offsets},
	}}})
	if err != nil {
		c.t.Fatal(err)
	}
	n := c.nodes[on]
	commit := storage.Commit{Txn: fmt.Sprint("bulky ", first), Timestamp: n.Clock().Now(), Inline: segment.Parts()[0]}
	if r := c.propose(on, table.Tablets[0].ID, commit); r.Outcome != storage.Committed {
		c.t.Fatalf("%v, %v", r.Outcome, r.Err)
	}
}

// sum reads all columns of a tablet on a node and adds up its keys.
func (c *testCluster) sum(on catalog.NodeID, tablet catalog.TabletID) (sum int64, err error) {
	n := c.nodes[on]
	var now uint64
	for _, other := range c.nodes {
		now = max(now, other.Clock().Now())
	}
	if err := n.Clock().Observe(now); err != nil {
		return 0, err
	}
	if err := n.Host().ReadAt(testContext(c.t), tablet, now); err != nil {
		return 0, err
	}
	store, ok := n.Host().Tablet(tablet)
	if !ok {
		return 0, ErrNotReady
	}
	snapshot, err := store.Snapshot(now)
	if err != nil {
		return 0, err
	}
	defer snapshot.Release()
	scanners, err := snapshot.Scan(storage.ScanOptions{Columns: []int{0, 1}, Parallelism: 1})
	if err != nil {
		return 0, err
	}
	for _, s := range scanners {
		for {
			batch, err := s.Next(testContext(c.t))
			if err != nil {
				return 0, err
			}
			if batch == nil {
				break
			}
			for i := range batch.Rows() {
				row := i
				if batch.Sel != nil {
					row = int(batch.Sel[i])
				}
				sum += columnar.Values[int64](batch.Cols[0])[row]
			}
		}
	}
	return sum, nil
}

func (c *testCluster) store(id catalog.NodeID) string {
	return filepath.Join(c.config(id).DataDir, "store")
}

// damageValues flips bits at the end of a running node's value log, in the last
// value that it holds.
func (c *testCluster) damageValues(id catalog.NodeID) {
	c.t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.store(id), "*.vlog"))
	if err != nil || len(logs) == 0 {
		c.t.Fatalf("no value log: %v", err)
	}
	name := logs[len(logs)-1]
	data, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	end := len(bytes.TrimRight(data, "\x00"))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	for at := end - 6000; at < end-200; at += 50 {
		if _, err := f.WriteAt([]byte{data[at] ^ 0x10}, int64(at)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// damageRecords flips a bit in each value of a stopped node's tablet whose key,
// within the tablet, begins with a letter.
func (c *testCluster) damageRecords(id catalog.NodeID, tablet catalog.TabletID, letter byte, flip func([]byte)) {
	c.t.Helper()
	db, err := badger.Open(badger.DefaultOptions(c.store(id)).WithLogger(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	prefix := append([]byte("dt"), 0, 0, 0, 0, 0, 0, byte(tablet>>8), byte(tablet))
	changed := 0
	err = db.Update(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := it.Item().KeyCopy(nil)
			if key[len(prefix)+8] != letter {
				continue
			}
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			flip(value)
			changed++
			if err := txn.Set(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || changed == 0 {
		c.t.Fatalf("changed %d records: %v", changed, err)
	}
}

// rebuilt waits until a node has another replica of the tablet than before, in
// good health, and checks its contents.
func (c *testCluster) rebuilt(id catalog.NodeID, tablet catalog.TabletID, before uint64, want int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	for {
		changed := c.nodes[id].Host().changed.wait()
		var status TabletStatus
		if list := c.nodes[id].Host().Tablets(); len(list) == 1 {
			status = list[0]
		}
		if status.Replica != before && status.Failure == "" && status.Open {
			if got, err := c.sum(id, tablet); err == nil && got == want {
				return
			} else if err == nil {
				c.t.Fatalf("the rebuilt replica holds %d, not %d", got, want)
			}
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("node %d is not rebuilt: %+v, repairs %+v", id, status, c.nodes[id].Meta().Local().Repairs)
		}
	}
}

// repairCase is a 3-node cluster with three bulky segments in one tablet.
func repairCase(t *testing.T, adjust func(*NodeConfig)) (c *testCluster, table *catalog.Table, sum int64) {
	c = newCluster(t, 3, adjust)
	c.start(1, 2, 3)
	c.ready()
	table = c.create(1, plainTable("t", 3))
	for i := range int64(3) {
		c.bulky(1, table, 1000*i)
		sum += 500*1000*i + 499*500/2
	}
	c.agree(table.Tablets[0].ID)
	return c, table, sum
}

func (c *testCluster) replicaID(id catalog.NodeID, tablet catalog.TabletID) uint64 {
	r, ok := c.nodes[id].Host().replica(tablet)
	if !ok {
		c.t.Fatalf("node %d has no replica of tablet %d", id, tablet)
	}
	return r.replica
}

// TestDamagedValuesAreRebuilt: a reader meets a value that fails its checksum,
// on the leader and on a follower. The replica is rebuilt while the others go on
// with reads and writes, and survives a restart of all nodes.
func TestDamagedValuesAreRebuilt(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprint("leader ", leads), func(t *testing.T) {
			c, table, sum := repairCase(t, nil)
			tablet := table.Tablets[0].ID
			victim := c.leader(tablet)
			if !leads {
				victim = victim%3 + 1
			}
			other := victim%3 + 1
			old := c.replicaID(victim, tablet)
			c.damageValues(victim)
			_, err := c.sum(victim, tablet)
			if sqlstate.CodeOf(err) != sqlstate.DataCorrupted || !strings.Contains(err.Error(), fmt.Sprintf("tablet %d, segment", tablet)) {
				t.Fatalf("reading a damaged value: %v", err)
			}
			if !c.nodes[victim].Host().ReportDamage(tablet, err) {
				t.Fatal("a replica with two healthy ones beside it is not to be rebuilt")
			}
			if _, err := c.sum(victim, tablet); !errors.Is(err, ErrReplicaDamaged) && !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrTabletNotHere) {
				t.Fatalf("the damaged replica answers: %v", err)
			}
			if got, err := c.sum(other, tablet); err != nil || got != sum {
				t.Fatalf("a healthy replica holds %d, not %d: %v", got, sum, err)
			}
			c.commit(other, table, tablet, 5000)
			sum += 5000
			c.rebuilt(victim, tablet, old, sum)
			c.commit(victim, table, tablet, 6000)
			sum += 6000
			for _, restart := range []bool{false, true} {
				if restart {
					for id := range c.members {
						c.stop(id)
					}
					c.start(1, 2, 3)
				}
				// The store may lose what lies behind the damage when it is opened,
				// and the replica is rebuilt again.
				for id := range c.nodes {
					c.rebuilt(id, tablet, 0, sum)
				}
			}
			tb, _ := c.nodes[1].Meta().Local().Table(table.ID)
			if got := replicaOn(&tb.Tablets[0], victim); got.ID == old || !got.Joined || tb.Tablets[0].Generation < 2 {
				t.Fatalf("the tablet is described as %+v", tb.Tablets[0])
			}
		})
	}
}

// TestDamageFoundAtOpening: a node whose manifest or metadata is damaged finds
// out when it starts.
func TestDamageFoundAtOpening(t *testing.T) {
	t.Parallel()
	for name, letter := range map[string]byte{"manifest": 'm', "metadata": 'p'} {
		t.Run(name, func(t *testing.T) {
			c, table, sum := repairCase(t, nil)
			tablet := table.Tablets[0].ID
			old := c.replicaID(3, tablet)
			c.stop(3)
			c.damageRecords(3, tablet, letter, func(value []byte) { value[9] ^= 4 })
			c.start(3)
			c.rebuilt(3, tablet, old, sum)
		})
	}
}

// TestDamageFoundByApplying: a write looks a key up in an index that is damaged.
func TestDamageFoundByApplying(t *testing.T) {
	t.Parallel()
	c, table, sum := repairCase(t, nil)
	tablet := table.Tablets[0].ID
	old := c.replicaID(3, tablet)
	c.stop(3)
	c.damageRecords(3, tablet, 'p', func(value []byte) {
		for at := len(value) / 8; at < len(value); at += 20 { // behind the metadata
			value[at] ^= 1
		}
	})
	c.start(3)
	c.ready()
	again := insert(t, c.nodes[1], table, 1001)
	if r := c.propose(1, tablet, again); r.Err == nil || r.Err.Code != sqlstate.UniqueViolation {
		t.Fatalf("a key that exists: %v, %v", r.Outcome, r.Err)
	}
	c.rebuilt(3, tablet, old, sum)
}

// TestDamageFoundBySearching: nobody reads what is damaged but the search for it.
func TestDamageFoundBySearching(t *testing.T) {
	t.Parallel()
	c, table, sum := repairCase(t, func(cfg *NodeConfig) {
		cfg.Host.ScrubEvery, cfg.Host.ScrubBytes = 100*time.Millisecond, 1<<20
	})
	tablet := table.Tablets[0].ID
	old := c.replicaID(2, tablet)
	c.damageValues(2)
	c.rebuilt(2, tablet, old, sum)
}

// TestDamageWaitsForAQuorum: while another replica is away the damaged one stays
// in its group, where it still votes, so that writes go on.
func TestDamageWaitsForAQuorum(t *testing.T) {
	t.Parallel()
	c, table, sum := repairCase(t, nil)
	tablet := table.Tablets[0].ID
	leader := c.leader(tablet)
	victim, away := leader%3+1, (leader+1)%3+1
	old := c.replicaID(victim, tablet)
	c.stop(away)
	c.damageValues(victim)
	_, err := c.sum(victim, tablet)
	if !c.nodes[victim].Host().ReportDamage(tablet, err) {
		t.Fatalf("damage is not accepted: %v", err)
	}
	c.eventually(c.nodes[leader], func() bool {
		under, ok := c.nodes[leader].Meta().Local().Repair(tablet)
		return ok && under.Round >= 2 // asked, waited for answers, and asked again
	}, "the leader does not ask whether the others are well")
	c.commit(leader, table, tablet, 7000)
	sum += 7000
	members, err := c.nodes[leader].Host().raft.SyncGetShardMembership(testContext(t), uint64(tablet))
	if err != nil || members.Nodes[old] == "" {
		t.Fatalf("the damaged replica was removed from a group that needs it: %+v, %v", members, err)
	}
	c.start(away)
	c.rebuilt(victim, tablet, old, sum)
}

// TestTheOnlyReplicaStaysDamaged and says why.
func TestTheOnlyReplicaStaysDamaged(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	c := newCluster(t, 1, func(cfg *NodeConfig) {
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	c.start(1)
	c.ready()
	table := c.create(1, plainTable("t", 1))
	tablet := table.Tablets[0].ID
	c.bulky(1, table, 0)
	c.damageValues(1)
	_, err := c.sum(1, tablet)
	if sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Fatalf("reading a damaged value: %v", err)
	}
	if c.nodes[1].Host().ReportDamage(tablet, err) {
		t.Fatal("the only replica is to be rebuilt, from nothing")
	}
	if _, err := c.sum(1, tablet); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Fatalf("reading again: %v", err)
	}
	_, err = c.nodes[1].Meta().RepairReplica(testContext(t), RepairReplica{RequestID: "r", Tablet: tablet, Replica: c.replicaID(1, tablet)})
	if sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		t.Fatalf("asking for a replacement: %v", err)
	}
	c.stop(1)
	c.damageRecords(1, tablet, 'm', func(value []byte) { value[9] ^= 4 })
	c.start(1)
	c.eventually(c.nodes[1], func() bool {
		list := c.nodes[1].Host().Tablets()
		return len(list) == 1 && strings.Contains(list[0].Failure, "manifest")
	}, "a replica that cannot be opened does not say so")
	c.stop(1)
	if !strings.Contains(logged.String(), "the only replica of this tablet is damaged") {
		t.Fatalf("the log does not say it: %s", logged.String())
	}
}
