package storage

import (
	"encoding/binary"
	"fmt"

	"skein/sqlstate"
)

// Adopt takes rows, marks and outcomes over from another tablet. It checks no
// keys: the rows come of tablets that have, and nobody reads or writes the
// tablet before all has been adopted. A Copy makes Adopts; they must be applied
// in its order, each once, which their transaction ids see to.
type Adopt struct {
	Txn string
	// Inline, or the segment that the transaction has staged if Segments is 1, is
	// the only part of a segment of rows.
	Segments uint32
	Inline   []byte
	// First is the RowID that the segment's first row gets. It must be the next
	// one: a command that was lost would otherwise go unnoticed.
	First uint64
	// Times and Dead are when rows of the segment were committed and deleted. Row
	// numbers count from the segment's first row.
	Times []RowTime
	Dead  []RowTime
	// Marks are rows adopted before, by RowID, that have been deleted.
	Marks []RowTime
	// Finished are outcomes of transactions, the oldest first.
	Finished []FinishedTxn
	// Horizon is the least timestamp that the rows can be read at, and Closed one
	// at or below which nothing is ever committed.
	Horizon, Closed uint64
}

// RowTime is a row and when something happened to it.
type RowTime struct{ Row, Time uint64 }

// FinishedTxn is a transaction and what it answers for ever.
type FinishedTxn struct {
	Txn    string
	Result Result
}

func (Adopt) kind() commandKind { return kindAdopt }
func (c Adopt) txn() string     { return c.Txn }

func (c Adopt) append(dst []byte) []byte {
	dst = appendString(dst, c.Txn)
	dst = binary.LittleEndian.AppendUint32(dst, c.Segments)
	dst = appendBytes(dst, c.Inline)
	for _, v := range []uint64{c.First, c.Horizon, c.Closed} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, list := range [][]RowTime{c.Times, c.Dead, c.Marks} {
		dst = appendRowTimes(dst, list)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.Finished)))
	for _, f := range c.Finished {
		dst = f.Result.append(appendString(dst, f.Txn))
	}
	return dst
}

func readAdopt(r *reader) Adopt {
	c := Adopt{Txn: r.string(), Segments: r.uint32(), Inline: r.bytes(), First: r.uvarint(), Horizon: r.uvarint(), Closed: r.uvarint()}
	for _, list := range []*[]RowTime{&c.Times, &c.Dead, &c.Marks} {
		*list = readRowTimes(r)
	}
	if n := r.count(uint64(len(r.b))); n > 0 {
		c.Finished = make([]FinishedTxn, n)
		for i := range c.Finished {
			c.Finished[i] = FinishedTxn{Txn: r.string(), Result: readResult(r, resultVersion)}
		}
	}
	return c
}

func appendRowTimes(dst []byte, list []RowTime) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	var last RowTime
	for _, x := range list {
		dst = binary.AppendVarint(dst, int64(x.Row-last.Row))
		dst = binary.AppendVarint(dst, int64(x.Time-last.Time))
		last = x
	}
	return dst
}

func readRowTimes(r *reader) []RowTime {
	n := r.count(uint64(len(r.b))) // one takes at least two bytes
	if n == 0 {
		return nil
	}
	list := make([]RowTime, n)
	var last RowTime
	for i := range list {
		last.Row += uint64(r.varint())
		last.Time += uint64(r.varint())
		list[i] = last
	}
	return list
}

func (a *applier) adopt(c Adopt) (Result, error) {
	tx := a.st.transaction(c.Txn)
	if tx.prepared {
		return refuse(Prepared, "transaction %s is prepared: it cannot adopt rows", c.Txn), nil
	}
	if len(c.Inline) > 0 {
		why, err := a.addPart(a.newStaged(tx, c.Segments, 1, OnConflictError), 0, c.Inline)
		if why != nil || err != nil {
			return a.orAbort(c.Txn, why, err)
		}
		c.Segments++
	}
	segments, why := tx.inOrder(c.Segments)
	if why == nil {
		why = a.checkAdopt(c, segments)
	}
	if why != nil {
		return a.abort(c.Txn, why)
	}
	if err := a.adoptRows(c, segments); err != nil {
		return Result{}, err
	}
	if c.Horizon > a.st.horizon {
		if err := a.set([]byte{keyHorizon}, be64(c.Horizon)); err != nil {
			return Result{}, err
		}
		a.st.horizon = c.Horizon
	}
	for _, f := range c.Finished {
		if _, known := a.st.finished[f.Txn]; known {
			continue
		}
		if _, err := a.finish(f.Txn, f.Result); err != nil {
			return Result{}, err
		}
	}
	a.st.counters.closed = max(a.st.counters.closed, c.Closed)
	a.grown = true
	return a.finish(c.Txn, Result{Outcome: Committed, Timestamp: max(a.st.counters.lastTS, 1)})
}

// orAbort aborts a transaction for a reason, unless there is an error.
func (a *applier) orAbort(txn string, why *sqlstate.Error, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	return a.abort(txn, why)
}

// checkAdopt finds what does not fit together before anything is changed.
func (a *applier) checkAdopt(c Adopt, segments []*stagedSegment) *sqlstate.Error {
	bad := func(format string, args ...any) *sqlstate.Error {
		return sqlstate.New(sqlstate.ProtocolViolation, "transaction %s cannot adopt rows: %w", c.Txn, fmt.Errorf(format, args...))
	}
	if len(segments) > 1 {
		return bad("there are %d segments", len(segments))
	}
	rows := uint64(0)
	if len(segments) == 1 {
		rows = uint64(segments[0].meta.rows)
		if c.First != a.st.counters.nextRow {
			return bad("its first row is to be %d, the next one is %d", c.First, a.st.counters.nextRow)
		}
		if len(c.Times) == 0 || c.Times[0].Row != 0 {
			return bad("its row times do not start at the first row")
		}
	}
	for _, list := range [][]RowTime{c.Times, c.Dead} {
		for i, x := range list {
			if x.Row >= rows || (i > 0 && x.Row <= list[i-1].Row) {
				return bad("row %d of %d is out of order", x.Row, rows)
			}
		}
	}
	for i, m := range c.Marks {
		if m.Row >= a.st.counters.nextRow || (i > 0 && m.Row <= c.Marks[i-1].Row) {
			return bad("mark of row %d is out of order", m.Row)
		}
	}
	return nil
}

// adoptRows lands the segment and marks rows.
func (a *applier) adoptRows(c Adopt, segments []*stagedSegment) error {
	latest := uint64(0)
	for _, s := range segments {
		runs, marks := make([]tsRun, len(c.Times)), make([]deleteMark, len(c.Dead))
		for i, x := range c.Times {
			runs[i] = tsRun{uint32(x.Row), x.Time}
			latest = max(latest, x.Time)
		}
		for i, x := range c.Dead {
			marks[i] = deleteMark{uint32(x.Row), x.Time}
			latest = max(latest, x.Time)
		}
		if err := a.landRuns(s, runs, marksOf(s.meta.rows, marks)); err != nil {
			return err
		}
	}
	for len(c.Marks) > 0 { // those of one time together
		n := 1
		for n < len(c.Marks) && c.Marks[n].Time == c.Marks[0].Time {
			n++
		}
		rows := make([]uint64, n)
		for i := range rows {
			rows[i] = c.Marks[i].Row
		}
		latest = max(latest, c.Marks[0].Time)
		if err := a.mark(rows, c.Marks[0].Time); err != nil {
			return err
		}
		c.Marks = c.Marks[n:]
	}
	a.st.counters.lastTS = max(a.st.counters.lastTS, latest)
	return nil
}

// landRuns appends a segment with the times and marks of its rows.
func (a *applier) landRuns(s *stagedSegment, runs []tsRun, deletes *deleteMarks) error {
	st := a.st
	ref := newSegmentRef(s.id, s.meta, st.counters.nextRow, runs)
	ref.deletes = deletes
	if deletes != nil {
		if err := a.set(deletesKey(ref.id), deletes.encode()); err != nil {
			return err
		}
	}
	if err := a.set(manifestKey(ref.firstRow), ref.encode()); err != nil {
		return err
	}
	st.counters.nextRow += uint64(s.meta.rows)
	st.rows += uint64(ref.live())
	// As in landSegment, readers hold shorter slices of the same array.
	st.manifest = append(st.manifest, ref)
	st.keys = st.keys.add(ref)
	return nil
}
