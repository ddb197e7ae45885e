package storage

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"sync/atomic"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// ScanOptions say what to read of a snapshot.
type ScanOptions struct {
	// Columns are ordinals in the table, in the order of the batches' columns.
	// None is fine: batches then only have a length.
	Columns []int
	// Predicates are joined by AND and used to skip rows only.
	Predicates []Predicate
	// Parallelism is how many scanners to return at most; at least one is.
	Parallelism int
	// RowIDs appends a BIGINT column with the rows' ids.
	RowIDs bool
}

func errPredicate(format string, args ...any) error {
	return sqlstate.New(sqlstate.InternalError, "scan predicate: %w", fmt.Errorf(format, args...))
}

// scan is what the scanners of one Scan call share.
type scan struct {
	reader  *chunkReader
	ts      uint64
	columns []int
	rowIDs  bool
	units   []*scanUnit
	next    atomic.Int64 // index of the first unit nobody started
}

// scanUnit is the wanted rows of one segment. Scanners take BatchRows at a time,
// so those that run out of segments help with others' last ones.
type scanUnit struct {
	segment *segmentRef
	next    atomic.Int64 // first row nobody took
	end     int64
	vectors atomic.Pointer[[]*columnar.Vector] // set by whoever decoded first
}

// Scan opens scanners that together return every row of the snapshot that the
// predicates may be true of, each row once, in no particular order. The
// scanners may be used by one goroutine each, need no closing, and must not be
// used after the snapshot is released.
func (s *Snapshot) Scan(opts ScanOptions) ([]*Scanner, error) {
	table := s.tablet.Table()
	for _, c := range opts.Columns {
		if c < 0 || c >= len(table.Columns) {
			return nil, fmt.Errorf("scanning tablet %d: column %d of %d", s.tablet.id, c, len(table.Columns))
		}
	}
	filters, err := compilePredicates(table, opts.Predicates)
	if err != nil {
		return nil, err
	}
	sc := &scan{reader: s.chunks(), ts: s.ts, columns: opts.Columns, rowIDs: opts.RowIDs}
	if sc.units, err = s.plan(sc.reader, filters); err != nil {
		return nil, err
	}
	batches := 0
	for _, u := range sc.units {
		batches += (int(u.end-u.next.Load()) + columnar.BatchRows - 1) / columnar.BatchRows
	}
	scanners := make([]*Scanner, max(1, min(opts.Parallelism, batches)))
	for i := range scanners {
		scanners[i] = &Scanner{scan: sc}
	}
	return scanners, nil
}

func (s *Snapshot) chunks() *chunkReader {
	t := s.tablet
	return &chunkReader{t.store, t.Table(), t.id, s.view.space, s.view.instance, t.store.view}
}

// plan lists the segments that survive the filters, with the rows to read.
func (s *Snapshot) plan(r *chunkReader, filters []filter) ([]*scanUnit, error) {
	probe := newKeyProbe(s.tablet.Table(), filters)
	var units []*scanUnit
	for _, seg := range s.segments {
		from, to, err := wantedRows(r, seg, filters, probe)
		if err != nil {
			return nil, err
		}
		if from >= to {
			continue
		}
		u := &scanUnit{segment: seg, end: int64(to)}
		u.next.Store(int64(from))
		units = append(units, u)
	}
	return units, nil
}

// wantedRows narrows a segment to the rows [from, to) that may satisfy the
// filters.
func wantedRows(r *chunkReader, seg *segmentRef, filters []filter, probe *keyProbe) (from, to int, err error) {
	for i := range filters {
		if filters[i].excludes(seg.meta) {
			return 0, 0, nil
		}
	}
	if probe != nil {
		if found, err := mayHoldKey(r, seg, probe); err != nil || !found {
			return 0, 0, err
		}
	}
	from, to = 0, seg.meta.rows
	if seg.meta.key == nil || !seg.meta.key.sorted || to < columnar.BatchRows {
		return from, to, nil
	}
	lead := r.table.PrimaryKey[0]
	for i := range filters {
		if f := &filters[i]; f.column == lead && f.op != OpNotEqual && len(f.keys) > 0 && !f.covers(&seg.meta.columns[lead].zone) {
			v, err := r.column(seg.id, seg.meta, lead)
			if err != nil {
				return 0, 0, err
			}
			from, to = f.narrow(v, from, to)
		}
	}
	return from, to, nil
}

func mayHoldKey(r *chunkReader, seg *segmentRef, probe *keyProbe) (bool, error) {
	k := seg.meta.key
	if bytes.Compare(probe.key, k.min) < 0 || bytes.Compare(probe.key, k.max) > 0 {
		return false, nil
	}
	index, err := r.keyIndex(seg.id, seg.meta)
	if err != nil {
		return false, err
	}
	return index.mayContain(probe.hash), nil
}

// narrow bounds the rows of an ascending column that may satisfy the filter.
func (f *filter) narrow(v *columnar.Vector, from, to int) (int, int) {
	col := []*columnar.Vector{v}
	var key []byte
	// below is how many of the rows are less than, or with equal at most, want.
	below := func(want []byte, equal bool) int {
		return from + sort.Search(to-from, func(i int) bool {
			key = catalog.AppendKey(key[:0], col, from+i)
			c := bytes.Compare(key, want)
			return c > 0 || (c == 0 && !equal)
		})
	}
	first, last := f.keys[0], f.keys[len(f.keys)-1]
	switch f.op {
	case OpEqual, OpIn:
		return below(first, false), below(last, true)
	case OpLess:
		return from, below(first, false)
	case OpLessEqual:
		return from, below(first, true)
	case OpGreater:
		return below(first, true), to
	case OpGreaterEqual:
		return below(first, false), to
	}
	return from, to
}

// Scanner returns part of a scan's rows.
type Scanner struct {
	scan *scan
	unit *scanUnit
}

// Next returns the next batch of at most columnar.BatchRows rows, nil at the
// end. The vectors share the memory of decoded chunks, which is immutable: the
// batch may be kept. Sel is set only where some rows are too new.
func (s *Scanner) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if s.unit == nil {
			if s.unit = s.scan.take(); s.unit == nil {
				return nil, nil
			}
		}
		from := s.unit.next.Add(columnar.BatchRows) - columnar.BatchRows
		if from >= s.unit.end {
			s.unit.vectors.Store(nil) // a scan holds no more than it is reading
			s.unit = nil
			continue
		}
		to := min(from+columnar.BatchRows, s.unit.end)
		batch, err := s.scan.batch(s.unit, int(from), int(to))
		if err != nil {
			return nil, err
		}
		if batch.Rows() > 0 {
			return batch, nil
		}
	}
}

// take returns a unit nobody has started, else one that still has rows.
func (s *scan) take() *scanUnit {
	if i := s.next.Add(1) - 1; i < int64(len(s.units)) {
		return s.units[i]
	}
	s.next.Store(int64(len(s.units))) // keeps the counter from running away
	for i := len(s.units) - 1; i >= 0; i-- {
		if u := s.units[i]; u.next.Load() < u.end {
			return u
		}
	}
	return nil
}

// batch slices rows [from, to) of a unit.
func (s *scan) batch(u *scanUnit, from, to int) (*columnar.Batch, error) {
	vectors, err := s.decoded(u)
	if err != nil {
		return nil, err
	}
	n := len(s.columns)
	b := &columnar.Batch{Len: to - from, Cols: make([]*columnar.Vector, n, n+1)}
	for i, v := range vectors {
		b.Cols[i] = v.Slice(from, to)
	}
	if s.rowIDs {
		ids := make([]int64, b.Len)
		for i := range ids {
			ids[i] = int64(u.segment.firstRow) + int64(from+i)
		}
		b.Cols = append(b.Cols, &columnar.Vector{Type: catalog.BigInt, Len: b.Len, Data: columnar.Bytes(ids)})
	}
	if u.segment.maxTS > s.ts {
		b.Sel = u.segment.visible(s.ts, from, to)
	}
	return b, nil
}

// decoded returns the columns of a unit's segment, held for the rest of the
// scan of that segment so that eviction does not decode them again.
func (s *scan) decoded(u *scanUnit) ([]*columnar.Vector, error) {
	if p := u.vectors.Load(); p != nil {
		return *p, nil
	}
	vectors := make([]*columnar.Vector, len(s.columns))
	for i, c := range s.columns {
		var err error
		if vectors[i], err = s.reader.column(u.segment.id, u.segment.meta, c); err != nil {
			return nil, err
		}
	}
	u.vectors.Store(&vectors)
	return vectors, nil
}

// visible lists, relative to from, the rows of [from, to) committed by ts. It
// is never nil.
func (s *segmentRef) visible(ts uint64, from, to int) []int32 {
	sel := make([]int32, 0, to-from)
	start := sort.Search(len(s.runs), func(i int) bool { return int(s.runs[i].row) > from }) - 1
	for i := start; i < len(s.runs) && int(s.runs[i].row) < to; i++ {
		if s.runs[i].ts > ts {
			continue
		}
		for row := max(int(s.runs[i].row), from); row < min(s.runEnd(i), to); row++ {
			sel = append(sel, int32(row-from))
		}
	}
	return sel
}
