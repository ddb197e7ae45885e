package worker_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"skein/flightproto"
	"skein/sqlstate"
	"skein/storage"
)

// TestStartPinsWhatItWillRead: between the start of a fragment and its first
// reader all rows are deleted and forgotten.
func TestStartPinsWhatItWillRead(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	n.mustWrite(table, 0, "w", 0, 10_000)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	snapshot := n.clock.Now()
	if _, err := n.conn.StartFragments(t.Context(), p.requests(t, snapshot)[n]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tablet is pinned", func() bool { return n.pinned.Load() == 1 })
	tablet := table.Tablets[0].ID
	if r, err := n.Propose(t.Context(), tablet, storage.Truncate{Txn: "gone", Timestamp: n.clock.Now()}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	n.ahead.Store(int64(2 * time.Minute))
	n.mustWrite(table, 0, "later", 0, 10)
	eventually(t, "history is forgotten", func() bool {
		late, err := n.tablet(tablet).Snapshot(snapshot)
		if err == nil {
			late.Release()
		}
		return sqlstate.CodeOf(err) == sqlstate.SerializationFailure
	})
	rows, err := p.pull(t.Context(), x)
	if err != nil || len(rows) != 10_000 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	eventually(t, "the pin is released", func() bool { return n.released.Load() == 1 })
}

// TestPinsEndWithTheLease: fragments that nobody pulls do not hold history back.
func TestPinsEndWithTheLease(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "w", 0, 100)
	p := newPlan()
	p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	request := p.requests(t, n.clock.Now())[n]
	request.LeaseMillis = 300
	if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tablet is pinned", func() bool { return n.pinned.Load() == 1 })
	eventually(t, "the query is swept and its pin released", func() bool { return n.fragments() == 0 && n.released.Load() == n.pinned.Load() })
}

// TestDamageSendsReadersElsewhere: what a reader is told of damaged data depends
// on whether there are other replicas.
func TestDamageSendsReadersElsewhere(t *testing.T) {
	for _, healing := range []bool{false, true} {
		c := newCluster(t, 1, nil)
		n := c.nodes[0]
		n.healing = healing
		table := c.createTable("t", nil, 0)
		n.mustWrite(table, 0, "w", 0, 20_000)
		logs, err := filepath.Glob(filepath.Join(n.dir, "*.vlog"))
		if err != nil || len(logs) == 0 {
			t.Fatal("no value log", err)
		}
		for _, name := range logs {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for at := 2000; at < len(data); at += 100 { // behind the segment's metadata
				if data[at] != 0 {
					data[at] ^= 8
				}
			}
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		p := newPlan()
		x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
		p.start(t)
		_, err = p.pull(t.Context(), x)
		reason := flightproto.NoReason
		if healing {
			reason = flightproto.Unavailable
		}
		if sqlstate.CodeOf(err) != sqlstate.DataCorrupted || flightproto.ReasonOf(err) != reason || n.damage.Load() == 0 {
			t.Errorf("healing %v: %v, reason %q, %d reports", healing, err, flightproto.ReasonOf(err), n.damage.Load())
		}
	}
}
