package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// modelTick is a microsecond of timestamps.
const modelTick = 1 << 12

// modelDefault is what rows that are older than the added column read as.
const modelDefault = 7

func modelDefaultOf(*catalog.Table, int) (*columnar.Vector, error) {
	return columnar.NewConst(catalog.BigInt, columnar.Bytes([]int64{modelDefault}), 1), nil
}

// machine drives two replicas, of which one is compacted, reopened, replaced by
// snapshots and forgets deleted rows, next to the model.
type machine struct {
	t      *testing.T
	m      *model
	dir    string
	store  *Store
	tab    *Tablet
	peer   *Tablet
	table  *catalog.Table
	now    int64 // microseconds
	nextID int
}

func (mc *machine) apply(rt *rapid.T, c Command) Result {
	b, err := EncodeCommand(c)
	if err != nil {
		rt.Fatal(err)
	}
	decoded, err := DecodeCommand(b)
	if err != nil {
		rt.Fatal(err)
	}
	index := mc.tab.Applied() + 1
	got, err := mc.tab.Apply(index, decoded)
	if err != nil {
		rt.Fatal(err)
	}
	again, err := mc.peer.Apply(index, decoded)
	if err != nil {
		rt.Fatal(err)
	}
	if !bytes.Equal(EncodeResult(got[0]), EncodeResult(again[0])) {
		rt.Fatalf("replicas answer %T differently: %+v and %+v", c, got[0], again[0])
	}
	return got[0]
}

func (mc *machine) expect(rt *rapid.T, c Command, want Result) {
	got := mc.apply(rt, c)
	same := got.Outcome == want.Outcome && sqlstate.CodeOf(errOf(got)) == sqlstate.CodeOf(errOf(want))
	if same && want.Outcome == Committed {
		got.Err, want.Err = nil, nil
		same = got == want
	}
	if !same {
		rt.Fatalf("%T: %+v, want %+v", c, got, want)
	}
}

func errOf(r Result) error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}

func (mc *machine) txn(rt *rapid.T) string {
	if mc.nextID == 0 || rapid.IntRange(0, 3).Draw(rt, "fresh") == 0 {
		mc.nextID++
		return fmt.Sprint("t", mc.nextID)
	}
	return fmt.Sprint("t", rapid.IntRange(1, mc.nextID).Draw(rt, "txn"))
}

func (mc *machine) open(id string) *modelTxn {
	tx := mc.m.txns[id]
	if tx == nil {
		tx = &modelTxn{}
		mc.m.txns[id] = tx
	}
	return tx
}

func (mc *machine) finish(id string, r Result) Result {
	delete(mc.m.txns, id)
	mc.m.outcomes[id] = r
	return r
}

// segment draws rows and encodes them with the current version of the table.
func (mc *machine) segment(rt *rapid.T) (modelSegment, *Segment) {
	seg := modelSegment{mode: ConflictMode(rapid.IntRange(0, 2).Draw(rt, "mode"))}
	cols := make([][]int64, len(mc.table.Columns))
	for _, key := range rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 5).Draw(rt, "keys") {
		r := modelRow{key: key, value: rapid.Int64Range(0, 9).Draw(rt, "value")}
		cols[0], cols[1] = append(cols[0], r.key), append(cols[1], r.value)
		if len(cols) > 2 {
			r.column, r.extra = mc.table.Columns[2].ID, r.value*10
			cols[2] = append(cols[2], r.extra)
		}
		seg.rows = append(seg.rows, r)
	}
	vectors := make([]*columnar.Vector, len(cols))
	for i, c := range cols {
		vectors[i] = ints(c...)
	}
	return seg, encoded(mc.t, mc.table, batchOf(vectors...))
}

func (mc *machine) ids(rt *rapid.T) []uint64 {
	most := max(len(mc.m.rows)-1, 0)
	if rapid.IntRange(0, 20).Draw(rt, "beyond") == 0 {
		most++
	}
	ids := rapid.SliceOfN(rapid.Uint64Range(0, uint64(most)), 1, 4).Draw(rt, "ids")
	if rapid.IntRange(0, 3).Draw(rt, "blind") > 0 {
		ids = slices.DeleteFunc(ids, func(id uint64) bool { return id < uint64(len(mc.m.rows)) && mc.m.rows[id].died != 0 })
	}
	return ids
}

// settled answers a step of a finished or prepared transaction.
func (mc *machine) settled(rt *rapid.T, id string, c Command) bool {
	if r, ok := mc.m.outcomes[id]; ok {
		mc.expect(rt, c, r)
		return true
	}
	if tx := mc.m.txns[id]; tx != nil && tx.prepared {
		mc.expect(rt, c, Result{Outcome: Prepared, Err: sqlstate.New(sqlstate.ProtocolViolation, "")})
		return true
	}
	return false
}

func (mc *machine) stage(rt *rapid.T) {
	id := mc.txn(rt)
	rows, seg := mc.segment(rt)
	c := stages(id, 0, seg)[0].(Stage)
	c.OnConflict = rows.mode
	if tx := mc.m.txns[id]; tx != nil {
		c.Seq = uint32(len(tx.segments))
	}
	if mc.settled(rt, id, c) {
		return
	}
	mc.expect(rt, c, Result{Outcome: Staged})
	tx := mc.open(id)
	tx.segments = append(tx.segments, rows)
}

func (mc *machine) stageDelete(rt *rapid.T) {
	id := mc.txn(rt)
	c := StageDelete{Txn: id, Rows: mc.ids(rt)}
	if tx := mc.m.txns[id]; tx != nil {
		c.Seq = uint32(len(tx.lists))
	}
	if mc.settled(rt, id, c) {
		return
	}
	mc.expect(rt, c, Result{Outcome: Staged})
	tx := mc.open(id)
	tx.lists = append(tx.lists, c.Rows)
}

func (mc *machine) truncate(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		return
	}
	id := mc.txn(rt)
	c := Truncate{Txn: id}
	if tx := mc.m.txns[id]; tx != nil && tx.prepared && tx.truncate {
		mc.expect(rt, c, Result{Outcome: Prepared})
		return
	}
	if rapid.Bool().Draw(rt, "now") {
		c.Timestamp = mc.tick(rt)
	}
	if mc.settled(rt, id, c) {
		return
	}
	tx := mc.open(id)
	tx.truncate = true
	if c.Timestamp == 0 {
		mc.expect(rt, c, Result{Outcome: Staged})
		return
	}
	mc.decideAndLand(rt, id, tx, c, c.Timestamp)
}

func (mc *machine) tick(rt *rapid.T) uint64 {
	mc.m.latest += modelTick * uint64(rapid.IntRange(0, 2).Draw(rt, "advance"))
	return mc.m.latest + modelTick
}

func (mc *machine) decideAndLand(rt *rapid.T, id string, tx *modelTxn, c Command, ts uint64) {
	if code := mc.m.decide(tx); code != "" {
		mc.expect(rt, c, mc.finish(id, aborted(code)))
		return
	}
	mc.expect(rt, c, mc.finish(id, mc.m.land(tx, ts)))
}

func aborted(code sqlstate.Code) Result {
	return Result{Outcome: Aborted, Err: sqlstate.New(code, "")}
}

func (mc *machine) prepare(rt *rapid.T) {
	id := mc.txn(rt)
	c := Prepare{Txn: id, Primary: testTablet}
	if r, ok := mc.m.outcomes[id]; ok {
		mc.expect(rt, c, r)
		return
	}
	tx := mc.open(id)
	c.Segments, c.Deletes = uint32(len(tx.segments)), uint32(len(tx.lists))
	if tx.prepared {
		mc.expect(rt, c, Result{Outcome: Prepared})
	} else if code := mc.m.decide(tx); code != "" {
		mc.expect(rt, c, mc.finish(id, aborted(code)))
	} else {
		tx.prepared = true
		mc.expect(rt, c, Result{Outcome: Prepared})
	}
}

func (mc *machine) commit(rt *rapid.T) {
	id := mc.txn(rt)
	c := Commit{Txn: id, Timestamp: mc.tick(rt)}
	if r, ok := mc.m.outcomes[id]; ok {
		mc.expect(rt, c, r)
		return
	}
	tx := mc.open(id)
	c.Segments, c.Deletes = uint32(len(tx.segments)), uint32(len(tx.lists))
	if tx.prepared {
		mc.expect(rt, c, mc.finish(id, mc.m.land(tx, c.Timestamp)))
		return
	}
	if rapid.Bool().Draw(rt, "inline") {
		rows, seg := mc.segment(rt)
		c.Inline, c.OnConflict = seg.Parts()[0], rows.mode
		tx.segments = append(tx.segments, rows)
	}
	if rapid.Bool().Draw(rt, "inline delete") {
		c.InlineDelete = mc.ids(rt)
		tx.lists = append(tx.lists, c.InlineDelete)
	}
	mc.decideAndLand(rt, id, tx, c, c.Timestamp)
}

func (mc *machine) abort(rt *rapid.T) {
	id := mc.txn(rt)
	var c Command = Abort{Txn: id}
	resolve := rapid.Bool().Draw(rt, "resolve")
	if resolve {
		c = Resolve{Txn: id}
	}
	r, ok := mc.m.outcomes[id]
	if !ok {
		r = mc.finish(id, aborted(sqlstate.SerializationFailure))
	}
	switch {
	case r.Outcome == Aborted:
		r.Err = nil
	case !resolve:
		r.Err = sqlstate.New(sqlstate.UnknownTxnOutcome, "")
	}
	mc.expect(rt, c, r)
}

func (mc *machine) compact(*rapid.T) { settle(mc.t, mc.tab) }

// age lets deleted rows become old enough to be left out.
func (mc *machine) age(*rapid.T) {
	mc.now = int64(mc.m.latest / modelTick)
	settle(mc.t, mc.tab)
}

// alter adds a third column, or drops it.
func (mc *machine) alter(rt *rapid.T) {
	t := *mc.table
	t.Columns = slices.Clone(t.Columns)
	if len(t.Columns) > 2 {
		t.Columns = t.Columns[:2]
	} else {
		t.Columns = append(t.Columns, catalog.Column{Name: "extra", Type: catalog.BigInt, Nullable: true, Default: fmt.Sprint(modelDefault)})
		t.AssignColumnIDs()
	}
	mc.table = &t
	for _, tab := range []*Tablet{mc.tab, mc.peer} {
		if err := tab.SetTable(mc.table); err != nil {
			rt.Fatal(err)
		}
	}
}

func (mc *machine) reopen(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "really") > 0 {
		return // opening a database is slow
	}
	if err := mc.store.Close(); err != nil {
		rt.Fatal(err)
	}
	mc.start()
}

func (mc *machine) start() {
	mc.store = openQuiet(mc.t, mc.dir, Options{
		CompactAfter: 2, History: 3 * time.Microsecond, DeletedHistory: 2 * time.Microsecond,
		Now: func() time.Time { return time.UnixMicro(mc.now) }, DefaultOf: modelDefaultOf,
	})
	mc.tab = mustTablet(mc.t, mc.store, mc.table)
}

func (mc *machine) install(rt *rapid.T) {
	if err := mc.tab.InstallSnapshot(bytes.NewReader(saved(mc.t, mc.peer)), nil); err != nil {
		rt.Fatal(err)
	}
}

// check compares what a reader at some timestamp sees with the model.
func (mc *machine) check(rt *rapid.T) {
	live := uint64(0)
	for _, r := range mc.m.rows {
		if r.died == 0 {
			live++
		}
	}
	ts := mc.m.latest + 2*modelTick
	if back := rapid.Uint64Range(0, 20).Draw(rt, "back") * modelTick; back < ts {
		ts -= back
	}
	for _, tab := range []*Tablet{mc.tab, mc.peer} {
		if tab.Rows() != live {
			rt.Fatalf("the tablet has %d rows, want %d", tab.Rows(), live)
		}
		s, err := tab.Snapshot(ts)
		var in *InDoubtError
		switch doubt := mc.m.doubt(); {
		case doubt > 0:
			if !errors.As(err, &in) || len(in.Txns) != doubt {
				rt.Fatalf("%d transactions in doubt: %v", doubt, err)
			}
			return
		case err != nil && ts < uint64(max(mc.now-2, 0))*modelTick && sqlstate.CodeOf(err) == sqlstate.SerializationFailure:
			continue // the rows it would need may be gone
		case err != nil:
			rt.Fatal(err)
		}
		mc.compare(rt, s, ts, nil)
		key := rapid.Int64Range(0, 60).Draw(rt, "key")
		mc.compare(rt, s, ts, &key)
		s.Release()
	}
}

// compare reads all rows, or those with a key, and compares them.
func (mc *machine) compare(rt *rapid.T, s *Snapshot, ts uint64, key *int64) {
	opts := ScanOptions{Columns: []int{0, 1}, RowIDs: true}
	if key != nil {
		opts.Predicates = []Predicate{{Column: 0, Op: OpEqual, Values: []any{*key}}}
	}
	added := len(mc.table.Columns) > 2
	if added {
		opts.Columns = append(opts.Columns, 2)
		opts.DefaultOf = func(c int) *columnar.Vector {
			v, _ := modelDefaultOf(mc.table, c)
			return v
		}
	}
	var want [4][]int64
	for id, r := range mc.m.rows {
		if r.born > ts || (r.died != 0 && r.died <= ts) || (key != nil && r.key != *key) {
			continue
		}
		want[0], want[1], want[3] = append(want[0], r.key), append(want[1], r.value), append(want[3], int64(id))
		if added {
			extra := int64(modelDefault)
			if r.column == mc.table.Columns[2].ID {
				extra = r.extra
			}
			want[2] = append(want[2], extra)
		}
	}
	if key == nil && s.Rows() != uint64(len(want[0])) {
		rt.Fatalf("%d rows, want %d", s.Rows(), len(want[0]))
	}
	batch := drain(mc.t, s, opts)
	got := [4][]int64{columnar.Values[int64](batch.Cols[0]), columnar.Values[int64](batch.Cols[1])}
	if added {
		got[2] = columnar.Values[int64](batch.Cols[2])
	}
	got[3] = columnar.Values[int64](batch.Cols[len(batch.Cols)-1])
	if key != nil {
		got, want = pick(got, *key), pick(want, *key)
	}
	for i := range got {
		if !slices.Equal(got[i], want[i]) {
			rt.Fatalf("at %d, key %v: column %d is %v, want %v", ts, key, i, got[i], want[i])
		}
	}
}

// pick leaves the rows with a key: a scan may return others.
func pick(cols [4][]int64, key int64) (out [4][]int64) {
	for i, k := range cols[0] {
		if k != key {
			continue
		}
		for c := range cols {
			if cols[c] != nil {
				out[c] = append(out[c], cols[c][i])
			}
		}
	}
	return out
}

func TestAgainstModel(t *testing.T) {
	peers := openQuiet(t, t.TempDir(), Options{Now: func() time.Time { return time.Unix(0, 0) }})
	mc := &machine{t: t, dir: t.TempDir(), table: intsTable()}
	mc.start()
	rapid.Check(t, func(rt *rapid.T) {
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
			"truncate": mc.truncate, "abort": mc.abort, "alter": mc.alter,
			"compact": mc.compact, "age": mc.age, "reopen": mc.reopen, "install": mc.install, "": mc.check,
		})
	})
}
