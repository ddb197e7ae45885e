package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// copied applies the steps of copies to targets, each of which is given twice
// now and then, as after an answer that was lost.
type copied struct {
	t       *testing.T
	rng     *rand.Rand
	targets []*Tablet
	steps   int
}

func (c *copied) take(step CopyStep) error {
	c.steps++
	target := c.targets[step.Target]
	adopt := step.Adopt
	adopt.Txn = fmt.Sprint("adopt ", c.steps)
	if step.Segment != nil {
		if parts := step.Segment.Parts(); len(parts) == 1 && c.rng.IntN(2) == 0 {
			adopt.Inline = parts[0]
		} else {
			for i, p := range parts {
				apply(c.t, target, Stage{Txn: adopt.Txn, Part: uint32(i), Parts: uint32(len(parts)), Data: p})
			}
			adopt.Segments = 1
		}
	}
	raw, err := EncodeCommand(adopt)
	if err != nil {
		return err
	}
	for range 1 + c.rng.IntN(2) {
		decoded, err := DecodeCommand(raw)
		if err != nil {
			return err
		}
		if r := apply(c.t, target, decoded)[0]; r.Outcome != Committed || r.Err != nil {
			return fmt.Errorf("adopting: %v, %v", r.Outcome, r.Err)
		}
	}
	return nil
}

// rowsAt lists the keys and values that a tablet has at a timestamp, by key.
func rowsAt(t *testing.T, tab *Tablet, ts uint64) [][2]int64 {
	t.Helper()
	b := readAll(t, tab, ts)
	out := make([][2]int64, b.Len)
	for i := range out {
		out[i] = [2]int64{columnar.Values[int64](b.Cols[0])[i], columnar.Values[int64](b.Cols[1])[i]}
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return out
}

// What a copy makes of a tablet, while that is written to and compacted, is the
// tablet's rows at every time from its start on.
func TestCopyFollowsATablet(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { copyFollows(t, seed) })
	}
}

func copyFollows(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	table := tableOf([]int{0}, catalog.BigInt, catalog.BigInt)
	now := time.UnixMicro(1 << 30)
	s := openQuiet(t, t.TempDir(), Options{
		CompactAfter: 2, QuietAfter: time.Nanosecond, DeletedHistory: 40 * time.Microsecond, History: time.Millisecond,
		Now: func() time.Time { return now },
	})
	source := numberedTablet(t, s, table, 1)
	tick := func() uint64 {
		now = now.Add(10 * time.Microsecond)
		return uint64(now.UnixMicro()) << 12
	}
	txns := 0
	write := func() {
		txns++
		id := fmt.Sprint("w", txns)
		switch op := rng.IntN(12); {
		case op == 0:
			apply(t, source, Truncate{Txn: id, Timestamp: tick()})
		case op == 1:
			if err := source.compact(nil); err != nil {
				t.Fatal(err)
			}
		default:
			keys := make([]int64, 1+rng.IntN(40))
			for i := range keys {
				keys[i] = rng.Int64N(300)
			}
			seg := encoded(t, table, batchOf(ints(keys...), ints(slices.Repeat([]int64{int64(txns)}, len(keys))...)))
			apply(t, source, Commit{Txn: id, Timestamp: tick(), Inline: seg.Parts()[0], OnConflict: OnConflictReplace})
		}
	}
	for range 20 {
		write()
	}
	var splitter *catalog.Splitter
	kinds := []*catalog.Splitter{
		nil,
		{Columns: []int{1}, Buckets: 16, Bucket: 7},
		{Columns: []int{1}, Key: catalog.AppendKey(nil, []*columnar.Vector{ints(120)}, 0)},
	}
	splitter = kinds[seed%3]
	c := &copied{t: t, rng: rng, targets: []*Tablet{numberedTablet(t, s, table, 2)}}
	if splitter != nil {
		c.targets = append(c.targets, numberedTablet(t, s, table, 3))
	}
	since := tick()
	copy := source.NewCopy(splitter, make([]uint64, len(c.targets)), since)
	defer copy.Release()
	var times []uint64
	for range 6 {
		if _, err := copy.Round(context.Background(), c.take); err != nil {
			t.Fatal(err)
		}
		for range rng.IntN(12) {
			write()
			if rng.IntN(3) == 0 {
				times = append(times, uint64(now.UnixMicro())<<12)
			}
			if rng.IntN(4) == 0 {
				if err := c.targets[0].compact(nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := copy.Round(context.Background(), c.take); err != nil {
		t.Fatal(err)
	}
	if round, err := copy.Round(context.Background(), c.take); err != nil || round.Rows+round.Marks != 0 {
		t.Fatalf("a round with nothing new: %+v, %v", round, err)
	}
	times = append(times, uint64(now.UnixMicro())<<12)
	checked := 0
	for _, ts := range times {
		if ts < since || slices.ContainsFunc(append(c.targets, source), func(tab *Tablet) bool { return tab.view.Load().horizon > ts }) {
			continue
		}
		checked++
		want := rowsAt(t, source, ts)
		var got [][2]int64
		for i, target := range c.targets {
			rows := rowsAt(t, target, ts)
			for _, r := range rows {
				if splitter != nil && splitter.Upper(catalog.AppendKey(nil, []*columnar.Vector{ints(r[0])}, 0)) != (i == 1) {
					t.Fatalf("key %d is in the wrong tablet %d", r[0], i)
				}
			}
			got = append(got, rows...)
		}
		slices.SortFunc(got, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		if !slices.Equal(got, want) {
			t.Fatalf("at %d there are %v, not %v", ts, got, want)
		}
	}
	if checked == 0 {
		t.Fatal("nothing was compared")
	}
	// A write that is repeated with the same id answers as it did before.
	for _, target := range c.targets {
		for id, want := range source.state.finished {
			if got, ok := target.state.finished[id]; !ok || got != want {
				t.Fatalf("transaction %s is %+v, not %+v", id, got, want)
			}
		}
		if rows := uint64(len(rowsAt(t, target, times[len(times)-1]))); rows != target.Rows() {
			t.Fatalf("tablet %d counts %d rows, not %d", target.id, target.Rows(), rows)
		}
	}
	if _, err := c.targets[0].Snapshot(since - 1); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Fatalf("a read below the start of the copy: %v", err)
	}
}

func TestAdoptRefusesWhatDoesNotFit(t *testing.T) {
	table := tableOf([]int{0}, catalog.BigInt, catalog.BigInt)
	tab := numberedTablet(t, openQuiet(t, t.TempDir(), Options{}), table, 1)
	part := encoded(t, table, intsBatch(1, 2, 3)).Parts()[0]
	for name, c := range map[string]Adopt{
		"a lost step":      {First: 4, Inline: part, Times: []RowTime{{0, 5}}},
		"no times":         {Inline: part},
		"a late time":      {Inline: part, Times: []RowTime{{1, 5}}},
		"rows beyond":      {Inline: part, Times: []RowTime{{0, 5}, {3, 6}}},
		"marks unordered":  {Inline: part, Times: []RowTime{{0, 5}}, Dead: []RowTime{{1, 6}, {1, 7}}},
		"marks of nothing": {Marks: []RowTime{{9, 6}}},
		"nothing staged":   {Segments: 1},
	} {
		c.Txn = name
		if r := apply(t, tab, c)[0]; r.Outcome != Aborted || sqlstate.CodeOf(r.Err) != sqlstate.ProtocolViolation {
			t.Errorf("%s: %v, %v", name, r.Outcome, r.Err)
		}
	}
	if tab.Rows() != 0 {
		t.Fatalf("%d rows", tab.Rows())
	}
}

func TestSealLetsKnownTransactionsFinish(t *testing.T) {
	table := tableOf([]int{0}, catalog.BigInt, catalog.BigInt)
	dir := t.TempDir()
	s := openQuiet(t, dir, Options{})
	tab := numberedTablet(t, s, table, 1)
	part := func(keys ...int64) []byte { return encoded(t, table, intsBatch(keys...)).Parts()[0] }
	insert(t, tab, "before", 10, intsBatch(1))
	apply(t, tab, Begin{Txn: "begun"}, Begin{Txn: "begun"}, Hold{Session: 3, Until: 90})
	seal := func(c Seal) Result { t.Helper(); return apply(t, tab, c)[0] }
	r := seal(Seal{Job: 2, Number: 1, Timestamp: 50})
	if r.Outcome != Sealed || r.Timestamp != 90 || r.Rows != 1 || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	for _, c := range []Command{
		Begin{Txn: "new"}, Stage{Txn: "new", Parts: 1, Data: part(2)}, StageDelete{Txn: "new"}, Truncate{Txn: "new"},
		Commit{Txn: "new", Timestamp: 100, Inline: part(2)}, Prepare{Txn: "new"}, Abort{Txn: "new"}, Resolve{Txn: "new"},
	} {
		if r := apply(t, tab, c)[0]; r.Outcome != Sealed || sqlstate.CodeOf(r.Err) != sqlstate.SerializationFailure {
			t.Fatalf("%T: %+v", c, r)
		}
	}
	if r := apply(t, tab, Commit{Txn: "before", Timestamp: 12, Inline: part(1)})[0]; r.Outcome != Committed || r.Timestamp != 10 {
		t.Fatalf("a repeated commit: %+v", r)
	}
	if _, err := tab.Snapshot(91); !isSealed(err) {
		t.Fatalf("a read above the seal: %v", err)
	}
	mustSnapshot(t, tab, 90)
	apply(t, tab, Stage{Txn: "begun", Parts: 1, Data: part(3)})
	if r := apply(t, tab, Commit{Txn: "begun", Segments: 1, Timestamp: 95})[0]; r.Outcome != Committed || r.Timestamp != 95 {
		t.Fatalf("%+v", r)
	}
	if got := tab.Seal(); !got.Sealed || got.Unfinished != 0 || got.Timestamp != 95 || got.Job != 2 || got.Number != 1 {
		t.Fatalf("%+v", got)
	}
	for _, old := range []Seal{{Job: 1, Number: 9}, {Job: 2, Number: 0, Release: true}} {
		if r := seal(old); sqlstate.CodeOf(r.Err) != sqlstate.SerializationFailure {
			t.Fatalf("%+v: %+v", old, r)
		}
	}
	// A seal outlives a restart, and a transaction that has only begun, too.
	if r := seal(Seal{Job: 2, Number: 2, Release: true}); r.Err != nil || tab.Seal().Sealed {
		t.Fatalf("%+v", r)
	}
	apply(t, tab, Begin{Txn: "late"})
	seal(Seal{Job: 2, Number: 2, Timestamp: 200})
	want := tab.Seal()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tab = numberedTablet(t, openQuiet(t, dir, Options{}), table, 1)
	if got := tab.Seal(); got != want || got.Unfinished != 1 {
		t.Fatalf("after a restart %+v, not %+v", got, want)
	}
	if r := apply(t, tab, Abort{Txn: "late"})[0]; r.Outcome != Aborted || tab.Seal().Unfinished != 0 {
		t.Fatalf("%+v", r)
	}
}

func isSealed(err error) bool {
	_, ok := err.(*SealedError)
	return ok
}

func TestMidpointHalvesTheRows(t *testing.T) {
	ctx := context.Background()
	table := tableOf([]int{0}, catalog.BigInt, catalog.BigInt)
	table.Partitioning = catalog.Partitioning{Kind: catalog.Unpartitioned}
	tab := numberedTablet(t, openQuiet(t, t.TempDir(), Options{}), table, 1)
	if _, err := tab.Midpoint(ctx, table, &catalog.Tablet{ID: 1}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatalf("an empty tablet: %v", err)
	}
	keys := make([]int64, 1000)
	for i := range keys {
		keys[i] = int64(i * i)
	}
	insert(t, tab, "t", 10, intsBatch(keys...))
	at, err := tab.Midpoint(ctx, table, &catalog.Tablet{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := catalog.AppendKey(nil, []*columnar.Vector{ints(500 * 500)}, 0); !slices.Equal(at.Key, want) {
		t.Fatalf("the middle is %x, not %x", at.Key, want)
	}
	hashed := *table
	hashed.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: 64}
	at, err = tab.Midpoint(ctx, &hashed, &catalog.Tablet{ID: 1, BucketHigh: 64})
	if err != nil {
		t.Fatal(err)
	}
	upper := 0
	for _, k := range keys {
		if at.Upper(catalog.AppendKey(nil, []*columnar.Vector{ints(k)}, 0)) {
			upper++
		}
	}
	if upper < 450 || upper > 550 {
		t.Fatalf("%d of 1000 rows are in the upper half", upper)
	}
	for _, bad := range []*catalog.Table{
		{Schema: "s", Name: "n", Partitioning: catalog.Partitioning{Kind: catalog.Unpartitioned}}, &hashed,
	} {
		if _, err := tab.Midpoint(ctx, bad, &catalog.Tablet{ID: 1, BucketLow: 3, BucketHigh: 4}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
			t.Fatalf("%s: %v", bad.Partitioning.Kind, err)
		}
	}
}

// numberedTablet opens the tablet with an id.
func numberedTablet(t testing.TB, s *Store, table *catalog.Table, id catalog.TabletID) *Tablet {
	t.Helper()
	tab, err := s.OpenTablet(table, id)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}
