package storage

import (
	"sort"

	"skein/sqlstate"
)

// manyPages is how many changed pages of delete marks are written as a record
// each; more of one segment are written as one record of all of them.
const manyPages = 8

// stageDelete keeps a list of rows to delete.
func (a *applier) stageDelete(c StageDelete) (Result, error) {
	tx := a.st.txns[c.Txn]
	if tx != nil && tx.deletes[c.Seq] != nil {
		return Result{Outcome: tx.outcome()}, nil
	}
	if tx != nil && tx.prepared {
		return refuse(Prepared, "transaction %s is prepared: it cannot stage further deletes", c.Txn), nil
	}
	if c.Seq >= maxSegments || len(c.Rows) > MaxDeleteRows {
		return a.abort(c.Txn, sqlstate.New(sqlstate.ProgramLimitExceeded,
			"a transaction deletes more than %d lists of %d rows in one tablet", maxSegments, MaxDeleteRows).
			WithHint("delete the rows in several transactions"))
	}
	tx = a.st.transaction(c.Txn)
	return Result{Outcome: Staged}, a.keepDelete(tx, c.Seq, &stagedDelete{snapshot: c.Snapshot, index: a.index, rows: c.Rows})
}

func (a *applier) keepDelete(tx *transaction, seq uint32, d *stagedDelete) error {
	d.saved = true
	tx.deletes[seq] = d
	return a.set(stagedDeleteKey(tx.id, seq), d.encode())
}

// truncate stages the deletion of all rows and, given a timestamp, commits.
func (a *applier) truncate(c Truncate) (Result, error) {
	tx := a.st.transaction(c.Txn)
	if tx.prepared {
		if tx.truncates() && c.Timestamp == 0 {
			return Result{Outcome: Prepared}, nil
		}
		return refuse(Prepared, "transaction %s is prepared: it cannot truncate", c.Txn), nil
	}
	if !tx.truncates() {
		if err := a.keepDelete(tx, truncateSeq, &stagedDelete{index: a.index}); err != nil {
			return Result{}, err
		}
	}
	if c.Timestamp == 0 {
		return Result{Outcome: Staged}, nil
	}
	return a.commit(Commit{
		Txn: c.Txn, Timestamp: c.Timestamp, Segments: uint32(len(tx.segments)), Deletes: tx.lists(), Bounds: c.Bounds,
	})
}

// checkDeletes reports that rows which the transaction deletes are gone, or
// held by another transaction.
func (a *applier) checkDeletes(tx *transaction) *sqlstate.Error {
	e := tx.effect
	e.deleted = uint64(len(e.rows))
	for _, other := range a.st.txns {
		if other == tx || !other.prepared {
			continue
		}
		if tx.truncates() || other.truncates() || intersects(e.rows, other.effect.rows) {
			return a.concurrentDelete()
		}
	}
	if n := len(e.rows); n > 0 && e.rows[n-1] >= a.st.counters.nextRow {
		return sqlstate.New(sqlstate.ProtocolViolation, "transaction %s deletes row %d, which never was", tx.id, e.rows[n-1])
	}
	gone := false
	missing := locate(a.st.manifest, e.rows, func(i int, rows []uint32) {
		seg := a.st.manifest[i]
		if gone = gone || seg.dropped != 0; gone || seg.deletes == nil {
			return
		}
		for _, row := range rows {
			if _, dead := seg.deletes.at(int(row)); dead {
				gone = true
				return
			}
		}
	})
	if gone || missing > 0 {
		return a.concurrentDelete()
	}
	if tx.truncates() {
		e.deleted = a.st.rows
	}
	return nil
}

func (a *applier) concurrentDelete() *sqlstate.Error {
	return sqlstate.New(sqlstate.SerializationFailure,
		"could not serialize access to %q due to concurrent update", a.t.Table().Name).
		WithHint("run the transaction again")
}

// locate finds the rows with the given ascending ids and passes them, by
// segment, to visit; the slice is reused. It returns how many were not found:
// compaction has dropped them.
func locate(manifest []*segmentRef, ids []uint64, visit func(segment int, rows []uint32)) (missing int) {
	var rows []uint32
	for len(ids) > 0 {
		i := sort.Search(len(manifest), func(i int) bool { return manifest[i].firstRow > ids[0] }) - 1
		if i < 0 {
			missing++
			ids = ids[1:]
			continue
		}
		last := manifest[i].lastRow()
		rows = rows[:0]
		start := len(ids)
		for len(ids) > 0 && ids[0] <= last {
			if row, ok := manifest[i].row(ids[0]); ok {
				rows = append(rows, uint32(row))
			} else {
				missing++
			}
			ids = ids[1:]
		}
		if len(rows) > 0 {
			visit(i, rows)
		} else if len(ids) == start { // beyond the segment's last row
			missing++
			ids = ids[1:]
		}
	}
	return missing
}

// own makes the elements of the manifest replaceable: readers hold the array
// that was published.
func (a *applier) own() {
	if !a.owned {
		a.st.manifest = append(make([]*segmentRef, 0, len(a.st.manifest)+16), a.st.manifest...)
		a.owned = true
	}
}

// land makes a checked transaction's effect visible at ts and finishes it.
func (a *applier) land(tx *transaction, ts uint64) (Result, error) {
	st, e := a.st, tx.effect
	if tx.truncates() {
		if err := a.dropAll(ts); err != nil {
			return Result{}, err
		}
	}
	if err := a.mark(e.rows, ts); err != nil {
		return Result{}, err
	}
	segments, why := tx.inOrder(uint32(len(tx.segments)))
	if why != nil {
		return Result{}, why
	}
	for _, s := range segments {
		if err := a.landSegment(s, e.dead[s.seq], ts); err != nil {
			return Result{}, err
		}
	}
	st.counters.lastTS = max(st.counters.lastTS, ts)
	if st.counters.sealed != 0 { // it was known before: no reader has seen the time above the seal
		st.counters.sealed = max(st.counters.sealed, ts)
	}
	a.grown = true
	return a.finish(tx.id, Result{
		Outcome: Committed, Timestamp: ts, Rows: e.inserted + e.replaces,
		Inserted: e.inserted, Replaced: e.replaces, Ignored: e.ignored, Deleted: e.deleted,
	})
}

func (a *applier) landSegment(s *stagedSegment, dead []uint32, ts uint64) error {
	st := a.st
	ref := newSegmentRef(s.id, s.meta, st.counters.nextRow, []tsRun{{0, ts}})
	if len(dead) > 0 {
		var pages []int
		ref.deletes, pages = ref.deletes.with(s.meta.rows, dead, ts)
		if err := a.saveMarks(ref, pages); err != nil {
			return err
		}
	}
	if err := a.set(manifestKey(ref.firstRow), ref.encode()); err != nil {
		return err
	}
	st.counters.nextRow += uint64(s.meta.rows)
	st.rows += uint64(ref.live())
	// Readers hold shorter slices of the same array; appending past their
	// ends does not disturb them.
	st.manifest = append(st.manifest, ref)
	st.keys = st.keys.add(ref)
	return nil
}

// dropAll hides all rows from readers at ts and later.
func (a *applier) dropAll(ts uint64) error {
	a.own()
	for i, seg := range a.st.manifest {
		if seg.dropped != 0 {
			continue
		}
		ref := *seg
		ref.dropped = ts
		a.st.manifest[i] = &ref
		if err := a.set(manifestKey(ref.firstRow), ref.encode()); err != nil {
			return err
		}
	}
	a.st.rows = 0
	return nil
}

// mark deletes rows at ts.
func (a *applier) mark(rows []uint64, ts uint64) (err error) {
	if len(rows) == 0 {
		return nil
	}
	a.own()
	locate(a.st.manifest, rows, func(i int, rows []uint32) {
		seg := a.st.manifest[i]
		if err != nil || seg.dropped != 0 {
			return
		}
		ref := *seg
		var pages []int
		ref.deletes, pages = seg.deletes.with(seg.meta.rows, rows, ts)
		a.st.manifest[i] = &ref
		a.st.rows -= uint64(seg.live() - ref.live())
		err = a.saveMarks(&ref, pages)
	})
	return err
}

// saveMarks writes the pages of a segment's marks that changed. Records count
// against the size of a transaction, so many pages share one.
func (a *applier) saveMarks(ref *segmentRef, pages []int) error {
	if len(pages) > manyPages || a.ops > applyOps {
		return a.set(deletesKey(ref.id), ref.deletes.encode())
	}
	for _, k := range pages {
		if err := a.set(deletePageKey(ref.id, k), ref.deletes.encodePages([]int{k})); err != nil {
			return err
		}
	}
	return nil
}
