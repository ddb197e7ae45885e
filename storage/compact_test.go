package storage

import (
	"fmt"
	"testing"
	"time"

	"skein/columnar"
	"skein/sqlstate"
)

// settle compacts until nothing is left to do.
func settle(t testing.TB, tab *Tablet) {
	t.Helper()
	if err := tab.compact(tab.store.stop); err != nil {
		t.Fatal(err)
	}
	if err := tab.collect(); err != nil {
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
