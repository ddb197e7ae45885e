package storage

import (
	"bytes"
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

// modelKeys is how many keys there are.
const modelKeys = 240

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
	pinned []pinned
	steps  int
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
	mode := ConflictMode(rapid.IntRange(0, 2).Draw(rt, "mode"))
	return mc.rowsOf(rt, mode, rapid.SliceOfN(rapid.Int64Range(0, modelKeys/4), 1, 5).Draw(rt, "keys")...)
}

// rowsOf encodes rows with the given keys and values that differ between calls.
func (mc *machine) rowsOf(rt *rapid.T, mode ConflictMode, keys ...int64) (modelSegment, *Segment) {
	seg := modelSegment{mode: mode}
	cols := make([][]int64, len(mc.table.Columns))
	value := rapid.Int64Range(0, 9).Draw(rt, "value")
	for i, key := range keys {
		r := modelRow{key: key, value: (value + int64(i)) % 10}
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

// update deletes a row and inserts another with its key, in one command.
func (mc *machine) update(rt *rapid.T) {
	var live []uint64
	for id, r := range mc.m.rows {
		if r.died == 0 {
			live = append(live, uint64(id))
		}
	}
	if len(live) == 0 {
		return
	}
	victim := rapid.SampledFrom(live).Draw(rt, "row")
	mc.nextID++
	id := fmt.Sprint("t", mc.nextID)
	rows, seg := mc.rowsOf(rt, OnConflictError, mc.m.rows[victim].key)
	c := Commit{Txn: id, Timestamp: mc.tick(rt), Inline: seg.Parts()[0], InlineDelete: []uint64{victim}}
	tx := mc.open(id)
	tx.segments, tx.lists = append(tx.segments, rows), append(tx.lists, c.InlineDelete)
	mc.decideAndLand(rt, id, tx, c, c.Timestamp)
}

// bulk loads more rows than a key index without a filter has, in any order.
func (mc *machine) bulk(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		return
	}
	keys := make([]int64, bloomMinRows+rapid.IntRange(0, 250).Draw(rt, "more"))
	start, step := rapid.Int64Range(0, modelKeys).Draw(rt, "start"), rapid.Int64Range(1, 50).Draw(rt, "step")
	for i := range keys {
		keys[i] = (start + int64(i)*step) % modelKeys
	}
	mc.nextID++
	id := fmt.Sprint("t", mc.nextID)
	rows, seg := mc.rowsOf(rt, rapid.SampledFrom([]ConflictMode{OnConflictIgnore, OnConflictReplace}).Draw(rt, "mode"), keys...)
	c := Commit{Txn: id, Timestamp: mc.tick(rt), Inline: seg.Parts()[0], OnConflict: rows.mode}
	tx := mc.open(id)
	tx.segments = append(tx.segments, rows)
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
	mc.unpin()
	if err := mc.store.Close(); err != nil {
		rt.Fatal(err)
	}
	mc.start()
}

func (mc *machine) start() {
	mc.store = openQuiet(mc.t, mc.dir, Options{
		CompactAfter: 4, QuietAfter: 4 * time.Microsecond, History: 3 * time.Microsecond, DeletedHistory: 2 * time.Microsecond,
		Now: func() time.Time { return time.UnixMicro(mc.now) }, DefaultOf: modelDefaultOf,
	})
	mc.tab = mustTablet(mc.t, mc.store, mc.table)
}

// install replaces one replica by a snapshot of the other. What the compacted
// one has forgotten the other then has, too.
func (mc *machine) install(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "back") == 0 {
		if err := mc.peer.InstallSnapshot(bytes.NewReader(saved(mc.t, mc.tab)), nil); err != nil {
			rt.Fatal(err)
		}
		return
	}
	if err := mc.tab.InstallSnapshot(bytes.NewReader(saved(mc.t, mc.peer)), nil); err != nil {
		rt.Fatal(err)
	}
}
