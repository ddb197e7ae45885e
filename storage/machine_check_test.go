package storage

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// modelResult is rows by column: key, value, the added column, row id.
type modelResult [4][]int64

// pinned is a snapshot that stays open while things change.
type pinned struct {
	snap  *Snapshot
	table *catalog.Table
	want  modelResult
}

// visible are the model's rows at a timestamp, with the columns of a version of
// the table, of which keep keeps some.
func (mc *machine) visible(ts uint64, table *catalog.Table, keep func(modelRow) bool) (want modelResult) {
	for id, r := range mc.m.rows {
		if r.born > ts || (r.died != 0 && r.died <= ts) || !keep(r) {
			continue
		}
		want[0], want[1], want[3] = append(want[0], r.key), append(want[1], r.value), append(want[3], int64(id))
		if len(table.Columns) > 2 {
			extra := int64(modelDefault)
			if r.column == table.Columns[2].ID {
				extra = r.extra
			}
			want[2] = append(want[2], extra)
		}
	}
	return want
}

func everyRow(modelRow) bool { return true }

// read returns the rows of a scan that keep keeps, in row order: scans may
// return others.
func (mc *machine) read(s *Snapshot, table *catalog.Table, keep func(modelRow) bool, where ...Predicate) (out modelResult) {
	opts := ScanOptions{Table: table, Columns: []int{0, 1}, RowIDs: true, Predicates: where}
	if len(table.Columns) > 2 {
		opts.Columns = append(opts.Columns, 2)
		opts.DefaultOf = func(c int) *columnar.Vector {
			v, _ := modelDefaultOf(table, c)
			return v
		}
	}
	batch := drain(mc.t, s, opts)
	var got modelResult
	for i := range opts.Columns {
		got[i] = columnar.Values[int64](batch.Cols[i])
	}
	got[3] = columnar.Values[int64](batch.Cols[len(batch.Cols)-1])
	order := make([]int, len(got[3]))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(got[3][a] - got[3][b]) })
	for _, i := range order {
		if !keep(modelRow{key: got[0][i], value: got[1][i]}) {
			continue
		}
		for c := range got {
			if got[c] != nil {
				out[c] = append(out[c], got[c][i])
			}
		}
	}
	return out
}

func (w modelResult) equal(o modelResult) bool {
	for i := range w {
		if !slices.Equal(w[i], o[i]) {
			return false
		}
	}
	return true
}

// query draws a condition, as predicates and as what it means.
func (mc *machine) query(rt *rapid.T) (keep func(modelRow) bool, where []Predicate) {
	key := func(label string) int64 { return rapid.Int64Range(0, modelKeys+5).Draw(rt, label) }
	switch rapid.IntRange(0, 4).Draw(rt, "query") {
	case 0:
		k := key("key")
		return func(r modelRow) bool { return r.key == k }, []Predicate{{0, OpEqual, []any{k}}}
	case 1:
		keys := rapid.SliceOfN(rapid.Int64Range(0, modelKeys), 1, 6).Draw(rt, "in")
		values := make([]any, len(keys))
		for i, k := range keys {
			values[i] = k
		}
		return func(r modelRow) bool { return slices.Contains(keys, r.key) }, []Predicate{{0, OpIn, values}}
	case 2:
		lo, hi := key("from"), key("to")
		return func(r modelRow) bool { return r.key >= lo && r.key < hi },
			[]Predicate{{0, OpGreaterEqual, []any{lo}}, {0, OpLess, []any{hi}}}
	case 3:
		v := rapid.Int64Range(0, 9).Draw(rt, "equal")
		return func(r modelRow) bool { return r.value == v }, []Predicate{{1, OpEqual, []any{v}}}
	}
	k, v := key("key"), rapid.Int64Range(0, 9).Draw(rt, "least")
	return func(r modelRow) bool { return r.key == k && r.value >= v },
		[]Predicate{{0, OpEqual, []any{k}}, {1, OpGreaterEqual, []any{v}}}
}

// check compares what a reader at some timestamp sees with the model.
func (mc *machine) check(rt *rapid.T) {
	mc.steps++
	live := uint64(len(mc.visible(^uint64(0), mc.table, everyRow)[0]))
	ts := mc.m.latest + 2*modelTick
	if back := rapid.Uint64Range(0, 20).Draw(rt, "back") * modelTick; back < ts {
		ts -= back
	}
	keep, where := mc.query(rt)
	for _, tab := range []*Tablet{mc.tab, mc.peer} {
		if tab.Rows() != live {
			rt.Fatalf("the tablet has %d rows, want %d", tab.Rows(), live)
		}
		s := mc.snapshot(rt, tab, ts)
		if s == nil {
			continue
		}
		all := mc.visible(ts, mc.table, everyRow)
		if s.Rows() != uint64(len(all[0])) {
			rt.Fatalf("at %d: %d rows, want %d", ts, s.Rows(), len(all[0]))
		}
		if got := mc.read(s, mc.table, everyRow); !got.equal(all) {
			rt.Fatalf("at %d: %v, want %v", ts, got, all)
		}
		if got, want := mc.read(s, mc.table, keep, where...), mc.visible(ts, mc.table, keep); !got.equal(want) {
			rt.Fatalf("at %d, where %v: %v, want %v", ts, where, got, want)
		}
		s.Release()
	}
}

// snapshot opens a snapshot, nil where the model says that none can be had.
func (mc *machine) snapshot(rt *rapid.T, tab *Tablet, ts uint64) *Snapshot {
	s, err := tab.Snapshot(ts)
	var in *InDoubtError
	switch doubt := mc.m.doubt(); {
	case doubt > 0:
		if !errors.As(err, &in) || len(in.Txns) != doubt {
			rt.Fatalf("%d transactions in doubt: %v", doubt, err)
		}
		return nil
	case err != nil && ts < uint64(max(mc.now-2, 0))*modelTick && sqlstate.CodeOf(err) == sqlstate.SerializationFailure:
		return nil // the rows it would need may be gone
	case err != nil:
		rt.Fatal(err)
	}
	return s
}

// pin keeps a snapshot open, or looks at the ones that are and closes them.
func (mc *machine) pin(rt *rapid.T) {
	if len(mc.pinned) < 3 {
		ts := mc.m.latest + modelTick
		if s := mc.snapshot(rt, mc.tab, ts); s != nil {
			mc.pinned = append(mc.pinned, pinned{s, mc.table, mc.visible(ts, mc.table, everyRow)})
		}
		return
	}
	for _, p := range mc.pinned {
		if got := mc.read(p.snap, p.table, everyRow); !got.equal(p.want) {
			rt.Fatalf("a snapshot at %d changed: %v, want %v", p.snap.Timestamp(), got, p.want)
		}
	}
	mc.unpin()
}

func (mc *machine) unpin() {
	for _, p := range mc.pinned {
		p.snap.Release()
	}
	mc.pinned = nil
}

// rapidFlag sets a flag of the rapid package for one test, unless it was given.
func rapidFlag(t *testing.T, name, value string) {
	f := flag.Lookup("rapid." + name)
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Value.Set(f.DefValue); err != nil {
			t.Error(err)
		}
	})
}

// TestAgainstModel runs with a fixed seed. -rapid.seed, -rapid.checks and
// -rapid.steps make other and longer runs.
func TestAgainstModel(t *testing.T) {
	t.Parallel() // the flags are read by no other parallel test
	checks := modelChecks
	if testing.Short() {
		checks /= 4
	}
	rapidFlag(t, "seed", "20240917")
	rapidFlag(t, "checks", fmt.Sprint(checks))
	rapidFlag(t, "steps", fmt.Sprint(modelSteps))
	peers := openQuiet(t, t.TempDir(), Options{Now: func() time.Time { return time.Unix(0, 0) }})
	mc := &machine{t: t, dir: t.TempDir(), table: intsTable()}
	mc.start()
	rapid.Check(t, func(rt *rapid.T) {
		defer mc.unpin()
		for _, s := range []*Store{mc.store, peers} {
			if err := s.DropTablet(noCancel, testTablet); err != nil {
				rt.Fatal(err)
			}
		}
		mc.m = &model{txns: make(map[string]*modelTxn), outcomes: make(map[string]Result)}
		mc.nextID, mc.now, mc.table = 0, 0, intsTable()
		mc.tab, mc.peer = mustTablet(t, mc.store, mc.table), mustTablet(t, peers, mc.table)
		rt.Repeat(map[string]func(*rapid.T){
			"stage": mc.stage, "delete": mc.stageDelete, "prepare": mc.prepare, "commit": mc.commit, "commit more": mc.commit,
			"update": mc.update, "update more": mc.update, "bulk": mc.bulk, "pin": mc.pin, "pin more": mc.pin,
			"truncate": mc.truncate, "abort": mc.abort, "abort more": mc.abort, "alter": mc.alter,
			"compact": mc.compact, "age": mc.age, "reopen": mc.reopen, "install": mc.install, "": mc.check,
		})
	})
	t.Logf("%d steps", mc.steps)
}

// The size of a run in CI.
const (
	modelChecks = 220
	modelSteps  = 90
)
