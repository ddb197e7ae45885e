package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func pairs(t testing.TB, kv ...int64) *Segment {
	var keys, values []int64
	for i := 0; i < len(kv); i += 2 {
		keys, values = append(keys, kv[i]), append(values, kv[i+1])
	}
	return encoded(t, intsTable(), batchOf(ints(keys...), ints(values...)))
}

func valuesAt(t testing.TB, tab *Tablet, ts uint64) map[int64]int64 {
	b := readAll(t, tab, ts)
	out := make(map[int64]int64)
	for i, k := range columnar.Values[int64](b.Cols[0]) {
		out[k] = columnar.Values[int64](b.Cols[1])[i]
	}
	return out
}

func TestConflictModes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode ConflictMode
		want string
		rows map[int64]int64
	}{
		"replace": {OnConflictReplace, "2 inserted, 4 replaced, 0 ignored", map[int64]int64{1: 13, 2: 20, 3: 32, 4: 40}},
		"ignore":  {OnConflictIgnore, "2 inserted, 0 replaced, 4 ignored", map[int64]int64{1: 1, 2: 2, 3: 30, 4: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
			mustOutcome(t, tab, Committed, Commit{Txn: "base", Timestamp: 10, Inline: pairs(t, 1, 1, 2, 2).Parts()[0]})
			c := Commit{
				Txn: "a", Timestamp: 20, OnConflict: tc.mode,
				Inline: pairs(t, 1, 11, 3, 30, 1, 13, 2, 20, 4, 40, 3, 32).Parts()[0],
			}
			for range 2 {
				r := mustOutcome(t, tab, Committed, c)[0]
				if got := fmt.Sprintf("%d inserted, %d replaced, %d ignored", r.Inserted, r.Replaced, r.Ignored); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			}
			if got := valuesAt(t, tab, 20); fmt.Sprint(got) != fmt.Sprint(tc.rows) {
				t.Errorf("rows %v, want %v", got, tc.rows)
			}
			if got := valuesAt(t, tab, 19); fmt.Sprint(got) != fmt.Sprint(map[int64]int64{1: 1, 2: 2}) {
				t.Errorf("before: %v", got)
			}
			if tab.Rows() != 4 || tab.LastTimestamp() != 20 {
				t.Errorf("%d rows, last timestamp %d", tab.Rows(), tab.LastTimestamp())
			}
		})
	}
}

func TestDeleteConflicts(t *testing.T) {
	tab := mustTablet(t, openTest(t, t.TempDir()), intsTable())
	mustOutcome(t, tab, Committed, Commit{Txn: "base", Timestamp: 10, Inline: pairs(t, 1, 1, 2, 2, 3, 3).Parts()[0]})
	mustOutcome(t, tab, Staged, StageDelete{Txn: "held", Rows: []uint64{1}, Snapshot: 15})
	mustOutcome(t, tab, Prepared, Prepare{Txn: "held", Deletes: 1, Primary: testTablet})
	mustOutcome(t, tab, Committed, Commit{Txn: "first", Timestamp: 20, InlineDelete: []uint64{0, 0}})
	for name, tc := range map[string]struct {
		command Command
		want    Outcome
		code    sqlstate.Code
	}{
		"deleted before":        {Commit{Txn: "a", Timestamp: 21, InlineDelete: []uint64{2, 0}}, Aborted, sqlstate.SerializationFailure},
		"held by a prepared":    {Commit{Txn: "b", Timestamp: 21, InlineDelete: []uint64{1}}, Aborted, sqlstate.SerializationFailure},
		"key of a held row":     {Commit{Txn: "c", Timestamp: 21, Inline: pairs(t, 2, 9).Parts()[0]}, Aborted, sqlstate.SerializationFailure},
		"truncate":              {Truncate{Txn: "d", Timestamp: 21}, Aborted, sqlstate.SerializationFailure},
		"never there":           {Commit{Txn: "e", Timestamp: 21, InlineDelete: []uint64{77}}, Aborted, sqlstate.ProtocolViolation},
		"a list is missing":     {Commit{Txn: "f", Timestamp: 21, Deletes: 1}, Aborted, sqlstate.ProtocolViolation},
		"below the snapshot":    {Commit{Txn: "held", Timestamp: 15}, Prepared, sqlstate.ProtocolViolation},
		"staging when prepared": {StageDelete{Txn: "held", Seq: 1, Rows: []uint64{2}}, Prepared, sqlstate.ProtocolViolation},
	} {
		r := apply(t, tab, tc.command)[0]
		if r.Outcome != tc.want || sqlstate.CodeOf(errOf(r)) != tc.code {
			t.Errorf("%s: %s, %v", name, r.Outcome, r.Err)
		}
	}
	if r := apply(t, tab, Commit{Txn: "held", Timestamp: 22})[0]; r.Outcome != Committed || r.Deleted != 1 {
		t.Errorf("%+v", r)
	}
	if r := apply(t, tab, Commit{Txn: "again", Timestamp: 23, Inline: pairs(t, 1, 5, 2, 6).Parts()[0]})[0]; r.Outcome != Committed {
		t.Errorf("keys of deleted rows: %v", r.Err)
	}
}

// TestDeletesOutliveRestarts deletes enough for every form of delete record,
// compacts, moves and reopens.
func TestDeletesOutliveRestarts(t *testing.T) {
	dir := t.TempDir()
	now := time.UnixMicro(1000)
	opts := Options{Now: func() time.Time { return now }, DeletedHistory: time.Microsecond, History: time.Microsecond}
	s := openQuiet(t, dir, opts)
	tab := mustTablet(t, s, intsTable())
	const n = 20000
	mustOutcome(t, tab, Committed, Commit{Txn: "base", Timestamp: 10, Inline: encoded(t, intsTable(), intsBatch(sequence(0, n)...)).Parts()[0]})
	var third []uint64
	for id := uint64(0); id < n; id += 3 {
		third = append(third, id)
	}
	mustOutcome(t, tab, Staged, StageDelete{Txn: "third", Rows: third})
	mustOutcome(t, tab, Committed, Commit{Txn: "third", Deletes: 1, Timestamp: 5000 << 12})
	mustOutcome(t, tab, Committed, Commit{Txn: "one", InlineDelete: []uint64{4}, Timestamp: 6000 << 12})
	want := func(at uint64) (keys []int64) {
		for k := range int64(n) {
			if !(at >= 5000<<12 && k%3 == 0) && !(at >= 6000<<12 && k == 4) {
				keys = append(keys, k)
			}
		}
		return keys
	}
	check := func(tab *Tablet, what string, times ...uint64) {
		t.Helper()
		for _, at := range times {
			if got := keysAt(t, tab, at); !slices.Equal(got, want(at)) {
				t.Errorf("%s: at %d there are %d rows, want %d", what, at, len(got), len(want(at)))
			}
			if got, w := mustSnapshot(t, tab, at).Rows(), len(want(at)); got != uint64(w) {
				t.Errorf("%s: at %d the snapshot counts %d rows, want %d", what, at, got, w)
			}
		}
	}
	all := []uint64{10, 5000<<12 - 1, 5000 << 12, 6000 << 12}
	check(tab, "fresh", all...)
	stream := saved(t, tab)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openQuiet(t, dir, opts)
	tab = mustTablet(t, s, intsTable())
	check(tab, "reopened", all...)
	now = time.UnixMicro(5500)
	settle(t, tab)
	check(tab, "compacted", 5000<<12, 6000<<12)
	if seg := tab.view.Load().manifest[0]; seg.meta.rows != n-len(third) || len(seg.ids) == 0 {
		t.Errorf("%d rows in the segment", seg.meta.rows)
	}
	if _, err := tab.Snapshot(10); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Errorf("a reader of what is gone: %v", err)
	}
	if r := apply(t, tab, Commit{Txn: "late", InlineDelete: []uint64{3}, Timestamp: 7000 << 12})[0]; sqlstate.CodeOf(errOf(r)) != sqlstate.SerializationFailure {
		t.Errorf("deleting a row that is gone: %+v", r)
	}
	mustOutcome(t, tab, Committed, Truncate{Txn: "all", Timestamp: 8000 << 12})
	if got := mustSnapshot(t, tab, 8000<<12).Rows(); got != 0 || tab.Rows() != 0 {
		t.Errorf("%d rows after truncating", got)
	}
	check(tab, "before truncating", 7999<<12)
	now = time.UnixMicro(9000)
	settle(t, tab)
	if got := len(tab.view.Load().manifest); got != 0 {
		t.Errorf("%d segments are left of a truncated tablet", got)
	}
	if err := tab.InstallSnapshot(bytes.NewReader(stream), nil); err != nil {
		t.Fatal(err)
	}
	check(tab, "installed", all...)
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	s := openQuiet(t, dir, Options{})
	tab := mustTablet(t, s, intsTable())
	mustOutcome(t, tab, Committed, Commit{Txn: "base", Timestamp: 10, Inline: encoded(t, intsTable(), intsBatch(sequence(0, 5000)...)).Parts()[0]})
	mustOutcome(t, tab, Committed, Commit{Txn: "del", Timestamp: 11, InlineDelete: []uint64{1, 2}})
	if err := s.Records(1).Update(1, []Record{{Key: []byte("a"), Value: []byte("b")}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Check(dir)
	if err != nil || len(r.Problems) > 0 || r.Tablets != 1 || r.Groups != 1 || r.Segments != 1 || r.Rows != 4998 || r.Orphans != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	s = openQuiet(t, dir, Options{})
	tab = mustTablet(t, s, intsTable())
	key := tab.state.space.key(partKey(0, 0))
	value, err := s.get(key)
	if err != nil {
		t.Fatal(err)
	}
	value[tab.state.manifest[0].meta.head+50] ^= 1
	if err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err = Check(dir); err != nil || len(r.Problems) != 1 {
		t.Errorf("a damaged chunk: %+v, %v", r, err)
	}
	if _, err := Check(t.TempDir() + "/none"); err == nil {
		t.Error("a directory that is not there was checked")
	}
}

// inPieces cuts a chunk as parts do.
func inPieces(chunk []byte, cuts []int) *chunkBytes {
	slices.Sort(cuts)
	out, last := &chunkBytes{}, 0
	for _, at := range append(cuts, len(chunk)) {
		if at > last {
			out.add(chunk[last:at])
			last = at
		}
	}
	return out
}

func TestRangesDecodeLikeWholes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	types := everyType()
	rapid.Check(t, func(rt *rapid.T) {
		dt := rapid.SampledFrom(types).Draw(rt, "type")
		rows := rapid.IntRange(1, 6000).Draw(rt, "rows")
		v := randomVector(t, rng, dt, rows, rapid.SampledFrom([]int{1, 9, 100000}).Draw(rt, "spread"), rapid.SampledFrom([]int{0, 3}).Draw(rt, "nulls"))
		chunk, err := encodeChunk(nil, v)
		if err != nil {
			rt.Fatal(err)
		}
		from := rapid.IntRange(0, rows).Draw(rt, "from")
		to := rapid.IntRange(from, rows).Draw(rt, "to")
		src := inPieces(chunk, rapid.SliceOfN(rapid.IntRange(0, len(chunk)), 0, 3).Draw(rt, "cuts"))
		got, err := decodeRange(v.Type, rows, src, from, to, func(at, entries int) (*columnar.Vector, error) {
			return decodeDictionary(v.Type, src, at, entries)
		})
		if err != nil {
			rt.Fatal(err)
		}
		if got == nil {
			return // this encoding is decoded whole
		}
		if err := sameValues(got, v.Slice(from, to)); err != nil {
			rt.Fatalf("rows %d to %d of %d: %v", from, to, rows, err)
		}
		whole, err := decodeChunk(v.Type, rows, chunk)
		if err != nil {
			rt.Fatal(err)
		}
		if err := sameValues(whole, v); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestBlocksAreSkipped(t *testing.T) {
	table := tableOf(nil, catalog.BigInt, catalog.Double)
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	const n = 10 * blockRows
	doubles := make([]float64, n)
	for i := range doubles {
		doubles[i] = float64(i) / 2
	}
	seg := encoded(t, table, batchOf(ints(sequence(0, n)...), &columnar.Vector{Type: catalog.Double, Len: n, Data: columnar.Bytes(doubles)}))
	mustOutcome(t, tab, Staged, stages("a", 0, seg)...)
	mustOutcome(t, tab, Committed, Commit{Txn: "a", Segments: 1, Timestamp: 1})
	for name, tc := range map[string]struct {
		where []Predicate
		want  int
	}{
		"one value":  {[]Predicate{{0, OpEqual, []any{int64(5)}}}, blockRows},
		"two blocks": {[]Predicate{{0, OpIn, []any{int64(5), int64(9 * blockRows)}}}, 2 * blockRows},
		"range":      {[]Predicate{{0, OpLess, []any{int64(2 * blockRows)}}}, 2 * blockRows},
		"doubles":    {[]Predicate{{1, OpGreaterEqual, []any{float64(n-1) / 2}}}, blockRows},
		"disjoint":   {[]Predicate{{0, OpLess, []any{int64(5)}}, {1, OpGreater, []any{float64(blockRows)}}}, 0},
	} {
		if got := readAll(t, tab, 1, tc.where...).Len; got != tc.want {
			t.Errorf("%s: read %d rows, want %d", name, got, tc.want)
		}
	}
}

func TestDistinctEstimates(t *testing.T) {
	table := tableOf(nil, catalog.BigInt, catalog.Text)
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	for i := range int64(3) {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		few := randomVector(t, rng, catalog.Text, 20000, 5, 0)
		mustOutcome(t, tab, Staged, stages(fmt.Sprint(i), 0, encoded(t, table, batchOf(ints(sequence(i*20000, 20000)...), few)))...)
		mustOutcome(t, tab, Committed, Commit{Txn: fmt.Sprint(i), Segments: 1, Timestamp: 1})
	}
	for range 2 { // merged sketches are kept
		st := mustSnapshot(t, tab, 1).Stats()
		if d := st.Columns[0].Distinct; d < 54000 || d > 60000 {
			t.Errorf("%d different keys of 60000", d)
		}
		if d := st.Columns[1].Distinct; d < 5 || d > 10 {
			t.Errorf("%d different texts", d)
		}
	}
}
