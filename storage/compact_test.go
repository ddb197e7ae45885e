package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// settle compacts until nothing is left to do.
func settle(t testing.TB, tab *Tablet) {
	t.Helper()
	if err := tab.compact(tab.store.stop); err != nil {
		t.Fatal(err)
	}
}

// openQuiet opens a store whose background goroutine is stopped, for tests
// that compact themselves.
func openQuiet(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	opts.Dir = dir
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	close(s.stop)
	s.done.Wait()
	s.stop = make(chan struct{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func partCount(t testing.TB, tab *Tablet) int {
	t.Helper()
	txn := tab.store.db.NewTransaction(false)
	defer txn.Discard()
	n := 0
	err := tab.state.space.scanKeys(txn, []byte{keyPart}, func([]byte) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCompaction(t *testing.T) {
	now := time.UnixMicro(1 << 40)
	dir := t.TempDir()
	s := openQuiet(t, dir, Options{Now: func() time.Time { return now }, History: time.Second})
	tab := mustTablet(t, s, intsTable())
	base := uint64(now.UnixMicro()) << 12
	const n = 300
	pinned := []*Snapshot(nil)
	for i := range int64(n) {
		if r := insert(t, tab, fmt.Sprint(i), base+uint64(i), intsBatch((i*7)%n)); r.Outcome != Committed {
			t.Fatal(r.Err)
		}
		if i == 150 {
			pinned = append(pinned, mustSnapshot(t, tab, base+150))
		}
	}
	settle(t, tab)
	if got := len(tab.view.Load().manifest); got > 40 {
		t.Errorf("%d segments after compaction", got)
	}
	if got := partCount(t, tab); got < n/2 {
		t.Errorf("the data of a pinned snapshot was deleted: %d parts are left", got)
	}
	if got := drain(t, pinned[0], ScanOptions{Columns: []int{0}}).Len; got != 151 {
		t.Errorf("the pinned snapshot reads %d rows", got)
	}
	pinned[0].Release()
	settle(t, tab)
	if got := partCount(t, tab); got > 40 {
		t.Errorf("%d parts are left", got)
	}
	for _, at := range []uint64{0, 1, 99, 298, 299} {
		if got := readAll(t, tab, base+at).Len; got != int(at)+1 {
			t.Errorf("at %d: %d rows", at, got)
		}
	}
	if r := insert(t, tab, "dup", base+1000, intsBatch(5)); sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
		t.Errorf("duplicate of a compacted row: %+v", r)
	}
	// Later, row times are forgotten and readers of the far past are refused.
	now = now.Add(time.Hour)
	for i := range int64(n) {
		insert(t, tab, fmt.Sprint("more", i), base+2000+uint64(i), intsBatch(1000+i))
	}
	settle(t, tab)
	if _, err := tab.Snapshot(base + 10); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Errorf("a forgotten timestamp: %v", err)
	}
	checkRows := func(tab *Tablet) {
		t.Helper()
		got := drain(t, mustSnapshot(t, tab, base+5000), ScanOptions{Columns: []int{0}, RowIDs: true})
		keys, ids := columnar.Values[int64](got.Cols[0]), columnar.Values[int64](got.Cols[1])
		for i, id := range ids {
			want := (id * 7) % n
			if id >= n {
				want = 1000 + id - n
			}
			if keys[i] != want {
				t.Fatalf("row %d has key %d, want %d", id, keys[i], want)
			}
		}
		if len(ids) != 2*n {
			t.Errorf("%d rows", len(ids))
		}
	}
	checkRows(tab)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkRows(mustTablet(t, openTest(t, dir), intsTable()))
}

func TestBackgroundCompactionRuns(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Now: func() time.Time { return time.Unix(0, 0) }}) // all row times are kept
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tab := mustTablet(t, s, intsTable())
	for i := range int64(200) {
		insert(t, tab, fmt.Sprint(i), uint64(i+1), intsBatch(i))
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(tab.view.Load().manifest) > 60 {
		if time.Now().After(deadline) {
			t.Fatalf("still %d segments", len(tab.view.Load().manifest))
		}
		insert(t, tab, fmt.Sprint("more", time.Now().UnixNano()), 1000, intsBatch(time.Now().UnixNano()))
	}
	if got := len(keysAt(t, tab, 300)); got != 200 {
		t.Errorf("%d rows", got)
	}
}

// TestCompactionAcrossAddedColumns merges rows that are older than a column
// with rows that have it.
func TestCompactionAcrossAddedColumns(t *testing.T) {
	for name, tc := range map[string]struct {
		byDefault string
		of        func(*catalog.Table, int) (*columnar.Vector, error)
		segments  int
		want      []int64 // of the added column; -1 is NULL
	}{
		"no default":      {"", nil, 1, []int64{-1, -1, 3, 4}},
		"default":         {"7", modelDefaultOf, 1, []int64{7, 7, 3, 4}},
		"default unknown": {"7", nil, 4, []int64{-1, -1, 3, 4}},
		"default fails": {"7", func(*catalog.Table, int) (*columnar.Vector, error) {
			return nil, errors.New("no such function")
		}, 4, []int64{-1, -1, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openQuiet(t, t.TempDir(), Options{CompactAfter: 4, DefaultOf: tc.of, Now: func() time.Time { return time.Unix(0, 0) }})
			tab := mustTablet(t, s, intsTable())
			insert(t, tab, "a", 1, intsBatch(1))
			insert(t, tab, "b", 1, intsBatch(2))
			wider := *intsTable()
			wider.Columns = append(wider.Columns, catalog.Column{Name: "extra", Type: catalog.BigInt, Nullable: true, Default: tc.byDefault})
			wider.AssignColumnIDs()
			if err := tab.SetTable(&wider); err != nil {
				t.Fatal(err)
			}
			for _, k := range []int64{3, 4} {
				insert(t, tab, fmt.Sprint(k), 1, batchOf(ints(k), ints(k), ints(k)))
			}
			settle(t, tab)
			if n := len(tab.view.Load().manifest); n != tc.segments {
				t.Errorf("%d segments, want %d", n, tc.segments)
			}
			batch := drain(t, mustSnapshot(t, tab, 1), ScanOptions{Columns: []int{0, 2}, RowIDs: true})
			for i, want := range tc.want {
				got := int64(-1)
				if v := batch.Cols[1]; !v.IsNull(i) {
					got = columnar.Values[int64](v)[i]
				}
				if got != want {
					t.Errorf("row %d: %d, want %d", i, got, want)
				}
			}
		})
	}
}

// TestQuietTabletsAreTidied writes, lets time pass and finds one segment
// without marks.
func TestQuietTabletsAreTidied(t *testing.T) {
	now := time.UnixMicro(1 << 40)
	s := openQuiet(t, t.TempDir(), Options{
		CompactAfter: 8, DeletedHistory: time.Second, QuietAfter: time.Minute, Now: func() time.Time { return now },
	})
	tab := mustTablet(t, s, intsTable())
	ts := func() uint64 { return uint64(now.UnixMicro()) << 12 }
	insert(t, tab, "a", ts(), intsBatch(sequence(0, 1000)...))
	insert(t, tab, "b", ts(), intsBatch(sequence(1000, 900)...))
	mustOutcome(t, tab, Committed, Commit{Txn: "c", Timestamp: ts() + 1, InlineDelete: []uint64{1, 2, 3}, Deletes: 0})
	settle(t, tab)
	if n := len(tab.view.Load().manifest); n != 2 {
		t.Fatalf("%d segments while the tablet is written to", n)
	}
	now = now.Add(2 * time.Minute)
	settle(t, tab)
	manifest := tab.view.Load().manifest
	if len(manifest) != 1 || manifest[0].deletes != nil || manifest[0].meta.rows != 1897 {
		t.Errorf("%d segments, the first of %d rows", len(manifest), manifest[0].meta.rows)
	}
}

// TestCompactionsTakeTurns: several goroutines compact one tablet while rows are
// inserted. What one merges is not deleted under another's hands.
func TestCompactionsTakeTurns(t *testing.T) {
	t.Parallel()
	const rounds, rows = 40, 50
	s := openQuiet(t, t.TempDir(), Options{CompactAfter: 2})
	table := intsTable()
	tab := mustTablet(t, s, table)
	inserted := make(chan struct{})
	var compactors errgroup.Group
	for range 3 {
		compactors.Go(func() error {
			for {
				if err := tab.compact(s.stop); err != nil {
					return err
				}
				select {
				case <-inserted:
					return tab.compact(s.stop)
				default:
				}
			}
		})
	}
	for i := range int64(rounds) {
		keys := make([]int64, rows)
		for k := range keys {
			keys[k] = i*rows + int64(k)
		}
		txn := fmt.Sprint("t", i)
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, table, intsBatch(keys...)))...)
		mustOutcome(t, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: uint64(i + 1)})
	}
	close(inserted)
	if err := compactors.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, tab, rounds).Len; got != rounds*rows {
		t.Fatalf("%d rows, want %d", got, rounds*rows)
	}
}
