package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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

func TestScanSkips(t *testing.T) {
	table := tableOf([]int{0}, catalog.BigInt, catalog.Text)
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	for i := range int64(4) {
		names, err := columnar.NewBuilder(catalog.Text)
		if err != nil {
			t.Fatal(err)
		}
		for range 10000 {
			if i == 3 {
				names.AppendNull()
			} else if err := names.AppendBytes([]byte(fmt.Sprintf("name %d", i))); err != nil {
				t.Fatal(err)
			}
		}
		b := batchOf(ints(sequence(i*10000, 10000)...), names.Finish())
		if r := insert(t, tab, fmt.Sprint(i), 1, b); r.Outcome != Committed {
			t.Fatal(r.Err)
		}
	}
	for name, tc := range map[string]struct {
		where []Predicate
		most  int // rows read
		least int // rows that match
	}{
		"all":              {nil, 40000, 40000},
		"key equality":     {[]Predicate{{0, OpEqual, []any{int64(12345)}}}, 1, 1},
		"absent key":       {[]Predicate{{0, OpEqual, []any{int64(40001)}}}, 0, 0},
		"key range":        {[]Predicate{{0, OpGreaterEqual, []any{int64(15000)}}, {0, OpLess, []any{int64(15010)}}}, 10, 10},
		"open range":       {[]Predicate{{0, OpGreater, []any{int64(39989)}}}, 10, 10},
		"up to":            {[]Predicate{{0, OpLessEqual, []any{int64(4)}}}, 5, 5},
		"in":               {[]Predicate{{0, OpIn, []any{int64(5), int64(9), nil}}}, 5, 2},
		"in null":          {[]Predicate{{0, OpIn, []any{nil}}}, 0, 0},
		"text":             {[]Predicate{{1, OpEqual, []any{"name 1"}}}, 10000, 10000},
		"text between":     {[]Predicate{{1, OpEqual, []any{"name 11"}}}, 0, 0},
		"text not equal":   {[]Predicate{{1, OpNotEqual, []any{"name 1"}}}, 20000, 20000},
		"null":             {[]Predicate{{1, OpIsNull, nil}}, 10000, 10000},
		"not null":         {[]Predicate{{1, OpIsNotNull, nil}}, 30000, 30000},
		"compared to null": {[]Predicate{{0, OpLess, []any{nil}}}, 0, 0},
	} {
		if got := readAll(t, tab, 1, tc.where...).Len; got > tc.most || got < tc.least {
			t.Errorf("%s: read %d rows, want %d to %d", name, got, tc.least, tc.most)
		}
	}
	s := mustSnapshot(t, tab, 1)
	for _, bad := range []Predicate{{5, OpEqual, []any{int64(1)}}, {0, OpEqual, nil}, {0, OpEqual, []any{"x"}}, {0, 0, nil}, {0, OpIsNull, []any{nil}}} {
		if _, err := s.Scan(ScanOptions{Predicates: []Predicate{bad}}); err == nil {
			t.Errorf("predicate %+v was accepted", bad)
		}
	}
	if st := s.Stats(); st.Rows != 40000 || st.Columns[0].Min != int64(0) || st.Columns[0].Max != int64(39999) ||
		st.Columns[1].Nulls != 10000 || st.Columns[1].Min != "name 0" || st.Columns[1].Max != "name 2" {
		t.Errorf("stats %+v", st)
	}
}

func TestParallelScannersShareRows(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	const segments, each = 3, 30000
	for i := range int64(segments) {
		txn := fmt.Sprint(i)
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, tab.Table(), intsBatch(sequence(i*each, each)...)))...)
		mustOutcome(t, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: 1})
	}
	scanners, err := mustSnapshot(t, tab, 1).Scan(ScanOptions{Columns: []int{1, 0}, Parallelism: 4})
	if err != nil || len(scanners) != 4 {
		t.Fatalf("%d scanners, %v", len(scanners), err)
	}
	var mu sync.Mutex
	var all []int64
	var wg sync.WaitGroup
	for _, sc := range scanners {
		wg.Go(func() {
			for {
				b, err := sc.Next(context.Background())
				if err != nil || b == nil {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if b.Len > columnar.BatchRows {
					t.Errorf("batch of %d rows", b.Len)
				}
				mu.Lock()
				all = append(all, columnar.Values[int64](b.Cols[0])...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	if !slices.Equal(all, sequence(0, segments*each)) {
		t.Errorf("%d rows", len(all))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	scanners, err = mustSnapshot(t, tab, 1).Scan(ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scanners[0].Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}

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

func saved(t testing.TB, tab *Tablet) []byte {
	t.Helper()
	snap, err := tab.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	var buf bytes.Buffer
	if err := tab.SaveSnapshot(snap, &buf, nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRaftSnapshot(t *testing.T) {
	from := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	insert(t, from, "a", 1, intsBatch(sequence(0, 20000)...))
	mustOutcome(t, from, Staged, stages("p", 0, encoded(t, from.Table(), intsBatch(-1)))...)
	mustOutcome(t, from, Prepared, Prepare{Txn: "p", Segments: 1, Primary: 3})
	mustOutcome(t, from, Staged, stages("s", 0, encoded(t, from.Table(), intsBatch(-2)))...)
	pinned, err := from.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Release()
	insert(t, from, "later", 2, intsBatch(50000))
	var stream bytes.Buffer
	if err := pinned.Save(&stream, nil); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	s := openTest(t, dir)
	to := mustTablet(t, s, intsTable())
	insert(t, to, "old", 1, intsBatch(7, 8))
	reader := mustSnapshot(t, to, 1)
	good := stream.Bytes()
	for _, cut := range []int{0, 10, 18, 30, len(good) / 2, len(good) - 17, len(good) - 1} {
		if err := to.InstallSnapshot(bytes.NewReader(good[:cut]), nil); sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
			t.Errorf("a stream cut at %d of %d: %v", cut, len(good), err)
		}
	}
	for _, at := range []int{0, 5, 8, 20, 40, len(good) / 2, len(good) - 3} {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if err := to.InstallSnapshot(bytes.NewReader(bad), nil); err == nil {
			t.Errorf("a stream damaged at %d was installed", at)
		}
	}
	stopped := make(chan struct{})
	close(stopped)
	if err := to.InstallSnapshot(bytes.NewReader(good), stopped); !errors.Is(err, errStopped) {
		t.Errorf("stopped: %v", err)
	}
	if got := keysAt(t, to, 1); !slices.Equal(got, []int64{7, 8}) || to.Applied() != 1 {
		t.Fatalf("after failed installs: rows %v, applied %d", got, to.Applied())
	}
	if err := to.InstallSnapshot(bytes.NewReader(good), nil); err != nil {
		t.Fatal(err)
	}
	check := func(to *Tablet) {
		t.Helper()
		if to.Applied() != pinned.Applied() || len(to.InDoubt()) != 1 || len(to.Staged()) != 1 || to.Rows() != 20000 {
			t.Fatalf("applied %d of %d, %d rows", to.Applied(), pinned.Applied(), to.Rows())
		}
	}
	check(to)
	if got := drain(t, reader, ScanOptions{Columns: []int{0}}).Len; got != 2 {
		t.Errorf("a reader of the replaced state sees %d rows", got)
	}
	reader.Release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	to = mustTablet(t, openTest(t, dir), intsTable())
	check(to)
	mustOutcome(t, to, Committed, Commit{Txn: "p", Segments: 1, Timestamp: 5}, Commit{Txn: "s", Segments: 1, Timestamp: 5})
	if got := readAll(t, to, 5).Len; got != 20002 {
		t.Errorf("%d rows", got)
	}
	if r := insert(t, to, "dup", 6, intsBatch(123)); sqlstate.CodeOf(r.Err) != sqlstate.UniqueViolation {
		t.Errorf("%+v", r)
	}
	if err := to.InstallSnapshot(bytes.NewReader(saved(t, to)), nil); err != nil {
		t.Errorf("installing twice: %v", err)
	}
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := s.Records(1)
	other := s.Records(2)
	big := bytes.Repeat([]byte("v"), 3*valueThreshold)
	if err := r.Update(3, []Record{{[]byte("a"), []byte("1")}, {[]byte("b"), big}, {[]byte("c"), nil}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(5, []Record{{[]byte("bb"), []byte("2")}}, [][]byte{[]byte("a"), []byte("zz")}); err != nil {
		t.Fatal(err)
	}
	snap, err := r.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(6, nil, [][]byte{[]byte("b")}); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := snap.Save(&stream, nil); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	if err := other.InstallSnapshot(bytes.NewReader(stream.Bytes()), nil); err == nil {
		t.Error("another group's snapshot was installed")
	}
	if err := r.InstallSnapshot(bytes.NewReader(stream.Bytes()[:stream.Len()-1]), nil); err == nil || r.Applied() != 6 {
		t.Errorf("cut stream: %v, applied %d", err, r.Applied())
	}
	if err := r.InstallSnapshot(bytes.NewReader(stream.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	r = s.Records(1)
	if r.Applied() != 5 || s.Records(2).Applied() != 0 || s.Records(1) != r {
		t.Errorf("applied %d", r.Applied())
	}
	var keys []string
	if err := r.Scan([]byte("b"), func(k, v []byte) error { keys = append(keys, string(k)); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(keys, []string{"b", "bb"}) {
		t.Errorf("scan %q", keys)
	}
	if v, ok, err := r.Get([]byte("b")); err != nil || !ok || !bytes.Equal(v, big) {
		t.Errorf("b: %d bytes, %t, %v", len(v), ok, err)
	}
	if v, ok, err := r.Get([]byte("c")); err != nil || !ok || len(v) != 0 {
		t.Errorf("c: %q, %t, %v", v, ok, err)
	}
	if _, ok, err := r.Get([]byte("a")); err != nil || ok {
		t.Errorf("a: %t, %v", ok, err)
	}
}

func TestCacheKeepsItsBudget(t *testing.T) {
	c := newChunkCache(1000)
	loads := 0
	get := func(i int) {
		_, err := c.get(chunkKey{1, uint64(i), 0}, func() (any, int64, error) { loads++; return i, 100, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		get(i)
		if c.used.Load() > 1000 {
			t.Fatalf("%d bytes used", c.used.Load())
		}
	}
	get(99)
	if loads != 100 {
		t.Errorf("%d loads", loads)
	}
	failure := errors.New("no")
	for range 2 {
		if _, err := c.get(chunkKey{2, 0, 0}, func() (any, int64, error) { loads++; return nil, 0, failure }); err != failure {
			t.Error(err)
		}
	}
	if loads != 102 {
		t.Errorf("a failure was kept: %d loads", loads)
	}
	c.dropInstance(1)
	if c.used.Load() != 0 {
		t.Errorf("%d bytes after dropping all", c.used.Load())
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	shared := 0
	for range 8 {
		wg.Go(func() {
			_, err := c.get(chunkKey{3, 0, 0}, func() (any, int64, error) {
				mu.Lock()
				shared++
				mu.Unlock()
				return 1, 1, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if shared != 1 {
		t.Errorf("loaded %d times at once", shared)
	}
}
