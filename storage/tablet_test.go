package storage

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func sequence(from, n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = from + int64(i)
	}
	return out
}

func TestSnapshotsSeeTheirTimestamp(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	insert(t, tab, "a", 10, intsBatch(1, 2))
	old := mustSnapshot(t, tab, 100)
	insert(t, tab, "b", 20, intsBatch(3))
	insert(t, tab, "c", 15, intsBatch(4)) // commit order is not timestamp order
	for ts, want := range map[uint64][]int64{9: nil, 10: {1, 2}, 15: {1, 2, 4}, 19: {1, 2, 4}, 20: {1, 2, 3, 4}} {
		if got := keysAt(t, tab, ts); !slices.Equal(got, want) {
			t.Errorf("at %d: %v, want %v", ts, got, want)
		}
	}
	if old.Rows() != 2 {
		t.Errorf("a snapshot taken before sees %d rows", old.Rows())
	}
	got := drain(t, mustSnapshot(t, tab, 20), ScanOptions{Columns: []int{0}, RowIDs: true})
	keys, ids := columnar.Values[int64](got.Cols[0]), columnar.Values[int64](got.Cols[1])
	if !slices.Equal(ids, []int64{0, 1, 2, 3}) || !slices.Equal(keys, []int64{1, 2, 3, 4}) {
		t.Errorf("ids %v of keys %v", ids, keys)
	}
}

func TestReopenKeepsUnfinishedTransactions(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	tab := mustTablet(t, s, intsTable())
	insert(t, tab, "done", 5, intsBatch(1))
	mustOutcome(t, tab, Staged, stages("staged", 0, encoded(t, tab.Table(), intsBatch(2)))...)
	mustOutcome(t, tab, Staged, stages("prepared", 0, encoded(t, tab.Table(), intsBatch(3)))...)
	mustOutcome(t, tab, Prepared, Prepare{Txn: "prepared", Segments: 1, Primary: 9})
	mustOutcome(t, tab, Staged, stages("gone", 0, encoded(t, tab.Table(), intsBatch(4)))...)
	mustOutcome(t, tab, Aborted, Abort{Txn: "gone"})
	applied, staged, doubt := tab.Applied(), tab.Staged(), tab.InDoubt()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Snapshot(5); !errors.Is(err, ErrClosed) {
		t.Errorf("snapshot of a closed store: %v", err)
	}
	tab = mustTablet(t, openTest(t, dir), intsTable())
	if tab.Applied() != applied || !slices.Equal(tab.Staged(), staged) || !slices.Equal(tab.InDoubt(), doubt) {
		t.Errorf("applied %d, staged %+v, in doubt %+v", tab.Applied(), tab.Staged(), tab.InDoubt())
	}
	if n := partCount(t, tab); n != 3 {
		t.Errorf("%d parts", n)
	}
	mustOutcome(t, tab, Committed, Commit{Txn: "staged", Segments: 1, Timestamp: 6}, Commit{Txn: "prepared", Segments: 1, Timestamp: 7})
	if got := keysAt(t, tab, 7); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("rows %v", got)
	}
	if _, err := tab.store.OpenTablet(&catalog.Table{ID: 8}, 4711); err != nil {
		t.Errorf("another tablet: %v", err)
	}
}

func TestCorruptionIsNamed(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	insert(t, tab, "a", 1, intsBatch(sequence(0, 3000)...))
	key := tab.state.space.key(partKey(0, 0))
	value, err := tab.store.get(key)
	if err != nil {
		t.Fatal(err)
	}
	meta := tab.state.manifest[0].meta
	value[meta.head+int(meta.columns[1].chunk.offset)+5] ^= 1
	if err := tab.store.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) }); err != nil {
		t.Fatal(err)
	}
	scanners, err := mustSnapshot(t, tab, 1).Scan(ScanOptions{Columns: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = scanners[0].Next(context.Background())
	if sqlstate.CodeOf(err) != sqlstate.DataCorrupted || !bytes.Contains([]byte(err.Error()), []byte(`tablet 42, segment 0, column "c1"`)) {
		t.Errorf("damage is reported as %v", err)
	}
	if got := drain(t, mustSnapshot(t, tab, 1), ScanOptions{Columns: []int{0}}).Len; got != 3000 {
		t.Errorf("the other column has %d rows", got)
	}
}

func TestFullVolume(t *testing.T) {
	s := openQuiet(t, t.TempDir(), Options{ReserveBytes: 1 << 62})
	tab := mustTablet(t, s, intsTable())
	if _, err := tab.Apply(1, Abort{Txn: "a"}); sqlstate.CodeOf(err) != sqlstate.DiskFull {
		t.Errorf("applying on a full volume: %v", err)
	}
	if tab.Applied() != 0 || tab.failure() != nil {
		t.Errorf("applied %d, failure %v", tab.Applied(), tab.failure())
	}
}

func TestSetTable(t *testing.T) {
	s := openTest(t, t.TempDir())
	tab := mustTablet(t, s, intsTable())
	insert(t, tab, "a", 1, intsBatch(1))
	renamed := intsTable()
	renamed.Name = "other"
	if again, err := s.OpenTablet(renamed, testTablet); err != nil || again != tab {
		t.Fatalf("opening again: %v", err)
	}
	if r := insert(t, tab, "b", 1, intsBatch(1)); r.Err == nil || r.Err.Message != `duplicate key value violates unique constraint "other_pkey"` {
		t.Errorf("%+v", r)
	}
	for name, bad := range map[string]*catalog.Table{
		"another type":  tableOf([]int{0}, catalog.BigInt, catalog.Text),
		"another key":   tableOf([]int{1}, catalog.BigInt, catalog.BigInt),
		"no key":        tableOf(nil, catalog.BigInt, catalog.BigInt),
		"another table": {ID: 99, Columns: intsTable().Columns, PrimaryKey: []int{0}},
	} {
		if err := tab.SetTable(bad); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestClosedStore(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := s.Records(1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, openErr := s.OpenTablet(intsTable(), 1)
	for name, err := range map[string]error{
		"sync": s.Sync(), "update": r.Update(1, nil, nil), "open": openErr, "close": s.Close(),
		"drop": s.DropTablet(context.Background(), 1), "scan": s.Records(2).Scan(nil, nil),
	} {
		if name != "close" && !errors.Is(err, ErrClosed) || name == "close" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDropTablet(t *testing.T) {
	s := openTest(t, t.TempDir())
	tab := mustTablet(t, s, intsTable())
	insert(t, tab, "a", 1, intsBatch(1))
	for range 2 {
		if err := s.DropTablet(context.Background(), testTablet); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.Apply(99, Abort{Txn: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("applying to a dropped tablet: %v", err)
	}
	again := mustTablet(t, s, intsTable())
	if again == tab || again.Applied() != 0 || again.Rows() != 0 {
		t.Errorf("applied %d, %d rows", again.Applied(), again.Rows())
	}
}
