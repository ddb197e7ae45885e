package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skein/columnar"
	"skein/sqlstate"
)

// model is what a tablet should hold, kept in maps.
type model struct {
	rows     []modelRow // committed, in row id order
	txns     map[string]*modelTxn
	outcomes map[string]Result
	latest   uint64
}

type modelRow struct {
	key int64
	ts  uint64
}

type modelTxn struct {
	segments [][]int64
	prepared bool
}

func (m *model) taken(keys []int64, self string) sqlstate.Code {
	seen := make(map[int64]bool)
	for _, r := range m.rows {
		seen[r.key] = true
	}
	for _, k := range keys {
		if seen[k] {
			return sqlstate.UniqueViolation
		}
		seen[k] = true
	}
	for id, tx := range m.txns {
		if id == self || !tx.prepared {
			continue
		}
		for _, k := range slices.Concat(tx.segments...) {
			if slices.Contains(keys, k) {
				return sqlstate.SerializationFailure
			}
		}
	}
	return ""
}

// machine drives two replicas, of which one is compacted, reopened and
// replaced by snapshots, next to the model.
type machine struct {
	t      *testing.T
	m      *model
	dir    string
	store  *Store
	tab    *Tablet
	peer   *Tablet
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
	if got.Outcome != want.Outcome || sqlstate.CodeOf(errOf(got)) != sqlstate.CodeOf(errOf(want)) ||
		(want.Outcome == Committed && got.Timestamp != want.Timestamp) {
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

func (mc *machine) keys(rt *rapid.T) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(0, 400), 1, 5).Draw(rt, "keys")
}

func (mc *machine) stage(rt *rapid.T) {
	id, keys := mc.txn(rt), mc.keys(rt)
	seg := encoded(mc.t, intsTable(), intsBatch(keys...))
	if r, ok := mc.m.outcomes[id]; ok {
		mc.expect(rt, stages(id, 0, seg)[0], r)
		return
	}
	tx := mc.open(id)
	if tx.prepared {
		mc.expect(rt, stages(id, uint32(len(tx.segments)), seg)[0], Result{Outcome: Prepared, Err: sqlstate.New(sqlstate.ProtocolViolation, "")})
		return
	}
	mc.expect(rt, stages(id, uint32(len(tx.segments)), seg)[0], Result{Outcome: Staged})
	tx.segments = append(tx.segments, keys)
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
	c.Segments = uint32(len(tx.segments))
	if tx.prepared {
		mc.expect(rt, c, Result{Outcome: Prepared})
	} else if code := mc.m.taken(slices.Concat(tx.segments...), id); code != "" {
		mc.expect(rt, c, mc.finish(id, aborted(code)))
	} else {
		tx.prepared = true
		mc.expect(rt, c, Result{Outcome: Prepared})
	}
}

func (mc *machine) commit(rt *rapid.T) {
	id := mc.txn(rt)
	mc.m.latest += uint64(rapid.IntRange(0, 3).Draw(rt, "advance"))
	c := Commit{Txn: id, Timestamp: mc.m.latest + 1}
	if r, ok := mc.m.outcomes[id]; ok {
		mc.expect(rt, c, r)
		return
	}
	tx := mc.open(id)
	c.Segments = uint32(len(tx.segments))
	keys := slices.Concat(tx.segments...)
	if !tx.prepared {
		if rapid.Bool().Draw(rt, "inline") {
			more := mc.keys(rt)
			keys = append(keys, more...)
			c.Inline = encoded(mc.t, intsTable(), intsBatch(more...)).Parts()[0]
		}
		if code := mc.m.taken(keys, id); code != "" {
			mc.expect(rt, c, mc.finish(id, aborted(code)))
			return
		}
	}
	for _, k := range keys {
		mc.m.rows = append(mc.m.rows, modelRow{k, c.Timestamp})
	}
	mc.expect(rt, c, mc.finish(id, Result{Outcome: Committed, Timestamp: c.Timestamp}))
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
		CompactAfter: 2, Now: func() time.Time { return time.Unix(0, 0) }, // all row times are kept
	})
	mc.tab = mustTablet(mc.t, mc.store, intsTable())
}

func (mc *machine) install(rt *rapid.T) {
	if err := mc.tab.InstallSnapshot(bytes.NewReader(saved(mc.t, mc.peer)), nil); err != nil {
		rt.Fatal(err)
	}
}

// check compares what a reader at some timestamp sees with the model.
func (mc *machine) check(rt *rapid.T) {
	for _, tab := range []*Tablet{mc.tab, mc.peer} {
		doubt := 0
		for _, tx := range mc.m.txns {
			if tx.prepared {
				doubt++
			}
		}
		ts := mc.m.latest + 2
		if back := rapid.Uint64Range(0, 20).Draw(rt, "back"); back < ts {
			ts -= back
		}
		s, err := tab.Snapshot(ts)
		if doubt > 0 {
			var in *InDoubtError
			if !errors.As(err, &in) || len(in.Txns) != doubt {
				rt.Fatalf("%d transactions in doubt: %v", doubt, err)
			}
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		var keys, ids []int64
		for i, r := range mc.m.rows {
			if r.ts <= ts {
				keys, ids = append(keys, r.key), append(ids, int64(i))
			}
		}
		got := drain(mc.t, s, ScanOptions{Columns: []int{0}, RowIDs: true})
		if s.Rows() != uint64(len(keys)) {
			rt.Fatalf("%d rows, want %d", s.Rows(), len(keys))
		}
		s.Release()
		if k, i := columnar.Values[int64](got.Cols[0]), columnar.Values[int64](got.Cols[1]); !slices.Equal(k, keys) || !slices.Equal(i, ids) {
			rt.Fatalf("at %d: keys %v with ids %v, want %v with %v", ts, k, i, keys, ids)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	peers := openQuiet(t, t.TempDir(), Options{})
	mc := &machine{t: t, dir: t.TempDir()}
	mc.start()
	rapid.Check(t, func(rt *rapid.T) {
		for _, s := range []*Store{mc.store, peers} {
			if err := s.DropTablet(noCancel, testTablet); err != nil {
				rt.Fatal(err)
			}
		}
		mc.m = &model{txns: make(map[string]*modelTxn), outcomes: make(map[string]Result)}
		mc.nextID = 0
		mc.tab, mc.peer = mustTablet(t, mc.store, intsTable()), mustTablet(t, peers, intsTable())
		rt.Repeat(map[string]func(*rapid.T){
			"stage": mc.stage, "prepare": mc.prepare, "commit": mc.commit, "commit more": mc.commit,
			"abort": mc.abort, "compact": mc.compact, "reopen": mc.reopen, "install": mc.install, "": mc.check,
		})
	})
}
