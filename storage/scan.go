package storage

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// ScanOptions say what to read of a snapshot.
type ScanOptions struct {
	// Table is the version of the table that ordinals refer to, nil for the
	// tablet's current one.
	Table *catalog.Table
	// Columns are ordinals in the table, in the order of the batches' columns.
	// None is fine: batches then only have a length.
	Columns []int
	// Predicates are joined by AND and used to skip rows only.
	Predicates []Predicate
	// Parallelism is how many scanners to return at most; at least one is.
	Parallelism int
	// RowIDs appends a BIGINT column with the rows' ids.
	RowIDs bool
	// DefaultOf returns, as a constant vector of the physical type, the value
	// of a column (its ordinal in the table) in rows that were written before
	// the column was added. Nil, or a nil answer, is NULL.
	DefaultOf func(column int) *columnar.Vector
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
	large   bool // more than the cache can hold next to anything else
	snap    *Snapshot
	units   []*scanUnit
	next    atomic.Int64 // index of the first unit nobody started
}

// ScanStats says how much of a snapshot a scan looks at. What it does not read
// holds, by bounds and key indexes, no row that the predicates may be true of.
type ScanStats struct {
	Segments, SegmentsRead int
	Blocks, BlocksRead     int // of a few thousand rows
}

// ScanStats is that of the whole scan, of which the scanner returns a part. The
// snapshot must not be released yet.
func (s *Scanner) ScanStats() ScanStats {
	var stats ScanStats
	for _, seg := range s.scan.snap.segments() {
		stats.Segments++
		stats.Blocks += (seg.meta.rows + blockRows - 1) / blockRows
	}
	var last *segmentRef
	for _, u := range s.scan.units {
		if u.segment != last {
			last = u.segment
			stats.SegmentsRead++
		}
		stats.BlocksRead += u.blocks()
	}
	stats.BlocksRead = min(stats.BlocksRead, stats.Blocks) // single rows may share one
	return stats
}

// Progress is how many blocks the whole scan reads and how many of these are
// taken by now. It may be asked at any time, also by other goroutines.
func (s *Scanner) Progress() (done, blocks int) {
	for _, u := range s.scan.units {
		first := int64(u.from / blockRows)
		end := int64(u.end)
		blocks += int(end - first)
		done += int(min(max(int64(u.next.Load()), first), end) - first)
	}
	return done, blocks
}

// Parts is in how many runs of rows the whole scan is read: a segment each, or a
// single row where keys are looked up.
func (s *Scanner) Parts() int { return len(s.scan.units) }

// blocks is how many blocks of the unit are read.
func (u *scanUnit) blocks() int {
	n := 0
	for b := u.from / blockRows; b < int(u.end); b++ {
		if u.skip == nil || !u.skip[b] {
			n++
		}
	}
	return n
}

// scanUnit is the wanted rows of one segment. Scanners take a block at a time,
// so those that run out of segments help with others' last ones.
type scanUnit struct {
	segment  *segmentRef
	from, to int // rows
	skip     []bool
	next     atomic.Int64 // first block nobody took
	end      int64        // block after the last
	// sparse units are decoded block by block, not whole columns at once.
	sparse   bool
	decoding sync.Mutex
	vectors  atomic.Pointer[decodedUnit] // set by whoever decoded first
}

// decodedUnit is the columns of a unit's segment.
type decodedUnit struct {
	columns []*columnar.Vector
	unkept  int64 // bytes that the cache does not keep
}

// sparseShare: units that want fewer than one row in so many are sparse.
const sparseShare = 4

func newScanUnit(seg *segmentRef, from, to int, skip []bool) *scanUnit {
	u := &scanUnit{segment: seg, from: from, to: to, skip: skip, end: int64((to + blockRows - 1) / blockRows)}
	u.next.Store(int64(from / blockRows))
	u.sparse = u.wanted()*sparseShare < seg.meta.rows
	return u
}

// wanted is how many rows the unit has.
func (u *scanUnit) wanted() int {
	n := u.to - u.from
	for b, skip := range u.skip {
		if skip {
			n -= max(0, min(u.to, (b+1)*blockRows)-max(u.from, b*blockRows))
		}
	}
	return n
}

// Scan opens scanners that together return every row of the snapshot that the
// predicates may be true of, each row once, in no particular order. The
// scanners may be used by one goroutine each, need no closing, and must not be
// used after the snapshot is released.
func (s *Snapshot) Scan(opts ScanOptions) ([]*Scanner, error) {
	table := opts.Table
	if table == nil {
		table = s.tablet.Table()
	}
	for _, c := range opts.Columns {
		if c < 0 || c >= len(table.Columns) {
			return nil, fmt.Errorf("scanning tablet %d: column %d of %d", s.tablet.id, c, len(table.Columns))
		}
	}
	filters, err := compilePredicates(table, opts.Predicates)
	if err != nil {
		return nil, err
	}
	sc := &scan{reader: s.chunks(opts.DefaultOf, table), ts: s.ts, columns: opts.Columns, rowIDs: opts.RowIDs, snap: s}
	if sc.units, err = s.plan(sc.reader, filters); err != nil {
		return nil, err
	}
	batches := 0
	sc.large = sc.decodedSize() > s.tablet.store.cache.budget/2
	for _, u := range sc.units {
		batches += (u.wanted() + blockRows - 1) / blockRows
	}
	scanners := make([]*Scanner, max(1, min(opts.Parallelism, batches)))
	for i := range scanners {
		scanners[i] = &Scanner{scan: sc}
	}
	return scanners, nil
}

func (s *Snapshot) chunks(defaultOf func(int) *columnar.Vector, table *catalog.Table) *chunkReader {
	t := s.tablet
	return &chunkReader{
		store: t.store, table: table, tablet: t.id, space: s.view.space, instance: s.view.instance,
		read: t.store.view, defaultOf: defaultOf,
	}
}

// rowsPerProbe is how many rows are scanned in about the time of a look-up.
const rowsPerProbe = 64

// plan lists the segments that survive the filters, with the rows to read.
func (s *Snapshot) plan(r *chunkReader, filters []filter) ([]*scanUnit, error) {
	if slices.ContainsFunc(filters, func(f filter) bool { return f.never }) {
		return nil, nil
	}
	// A few rows are read faster than many keys are looked up among them.
	if probes := newKeyProbes(r.table, filters); len(probes) == 1 || (probes != nil && uint64(len(probes)*rowsPerProbe) < s.view.rows) {
		return s.lookUp(r, filters, probes)
	}
	var units []*scanUnit
	for _, seg := range s.segments() {
		var err error
		if units, err = wantedRows(units, r, seg, filters); err != nil {
			return nil, err
		}
	}
	return units, nil
}

func excluded(table *catalog.Table, m *segmentMeta, filters []filter) bool {
	for i := range filters {
		if filters[i].excludes(table, m) {
			return true
		}
	}
	return false
}

// lookUp lists the rows that have one of the keys. No two rows of a snapshot
// have the same.
func (s *Snapshot) lookUp(r *chunkReader, filters []filter, probes []keyProbe) ([]*scanUnit, error) {
	units := make([]*scanUnit, 0, min(len(probes), 64))
	var err error
	for i := range probes {
		probe := &probes[i]
		s.view.keys.overlapping(probe.key, probe.key, func(first uint64) bool {
			seg := segmentOf(s.view.manifest, first)
			if seg.minTS > s.ts || seg.hidden(s.ts) || excluded(r.table, seg.meta, filters) {
				return true
			}
			var rows []int
			if rows, err = r.keyRows(seg.id, seg.meta, probe); err != nil {
				return false
			}
			for _, row := range slices.Backward(rows) {
				if seg.visible(row, s.ts) {
					units = append(units, newScanUnit(seg, row, row+1, nil))
					return false
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return units, nil
}

// wantedRows appends the rows of a segment that may satisfy the filters.
func wantedRows(units []*scanUnit, r *chunkReader, seg *segmentRef, filters []filter) ([]*scanUnit, error) {
	if excluded(r.table, seg.meta, filters) {
		return units, nil
	}
	from, to := 0, seg.meta.rows
	skip, left := skippedBlocks(r.table, seg.meta, filters)
	if left == 0 {
		return units, nil
	}
	if seg.meta.key != nil && seg.meta.key.sorted && to >= blockRows {
		var err error
		if from, to, err = narrowByKey(r, seg, filters, skip); err != nil || from >= to {
			return units, err
		}
	}
	return append(units, newScanUnit(seg, from, to, skip)), nil
}

// skippedBlocks lists the blocks in which no row satisfies the filters, nil for
// none, and tells how many are left.
func skippedBlocks(table *catalog.Table, m *segmentMeta, filters []filter) (skip []bool, left int) {
	blocks := (m.rows + blockRows - 1) / blockRows
	left = blocks
	for i := range filters {
		c := filters[i].column
		at := m.find(table.ColumnID(c))
		if at < 0 {
			continue
		}
		filters[i].skipBlocks(table.Columns[c].Type, m, &m.columns[at], func(b int) {
			if skip == nil {
				skip = make([]bool, blocks)
			}
			if !skip[b] {
				skip[b] = true
				left--
			}
		})
	}
	return skip, left
}

// narrowByKey bounds the rows of a segment in key order by the filters on the
// first key column.
func narrowByKey(r *chunkReader, seg *segmentRef, filters []filter, skip []bool) (from, to int, err error) {
	from, to = 0, seg.meta.rows
	for from < to && skip != nil && skip[from/blockRows] {
		from = (from/blockRows + 1) * blockRows
	}
	for from < to && skip != nil && skip[(to-1)/blockRows] {
		to = (to - 1) / blockRows * blockRows
	}
	to = max(from, to)
	lead := r.table.PrimaryKey[0]
	at := seg.meta.find(r.table.ColumnID(lead))
	for i := range filters {
		f := &filters[i]
		if f.column != lead || f.op == OpNotEqual || len(f.keys) == 0 || f.covers(&seg.meta.columns[at].zone) {
			continue
		}
		w := frameWindow{reader: r, segment: seg.id, meta: seg.meta, column: lead}
		from, to = f.narrow(&w, from, to)
		if w.err != nil {
			return 0, 0, w.err
		}
	}
	return from, to, nil
}

// frameWindow reads single keys of a column, holding the frame it decoded last.
type frameWindow struct {
	reader  *chunkReader
	segment uint64
	meta    *segmentMeta
	column  int
	start   int
	frame   *columnar.Vector
	err     error
}

// appendKey appends the key of a row; after an error it appends nothing.
func (w *frameWindow) appendKey(dst []byte, row int) []byte {
	if w.err != nil {
		return dst
	}
	if w.frame == nil || row < w.start || row >= w.start+w.frame.Len {
		w.start = row / packBlock * packBlock
		w.frame, w.err = w.reader.columnRange(w.segment, w.meta, w.column, w.start, min(w.start+packBlock, w.meta.rows))
		if w.err != nil {
			return dst
		}
	}
	return catalog.AppendKey(dst, []*columnar.Vector{w.frame}, row-w.start)
}

// narrow bounds the rows of an ascending column that may satisfy the filter.
func (f *filter) narrow(w *frameWindow, from, to int) (int, int) {
	var key []byte
	// below is how many of the rows are less than, or with equal at most, want.
	below := func(want []byte, equal bool) int {
		return from + sort.Search(to-from, func(i int) bool {
			key = w.appendKey(key[:0], from+i)
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
	dead []uint64 // scratch: bitmap of a batch's deleted rows
}

// Next returns the next batch of at most columnar.BatchRows rows, nil at the
// end. The vectors share the memory of decoded chunks, which is immutable: the
// batch may be kept. Sel is set only where some rows are too new or deleted.
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
		block := s.unit.next.Add(1) - 1
		if block >= s.unit.end {
			s.scan.letGo(s.unit) // a scan holds no more than it is reading
			s.unit = nil
			continue
		}
		if s.unit.skip != nil && s.unit.skip[block] {
			continue
		}
		from := max(int(block)*blockRows, s.unit.from)
		to := min((int(block)+1)*blockRows, s.unit.to)
		batch, err := s.batch(s.unit, from, to)
		if err != nil {
			return nil, err
		}
		if batch != nil {
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

// batch returns the rows [from, to) of a unit, nil when none is visible.
func (s *Scanner) batch(u *scanUnit, from, to int) (*columnar.Batch, error) {
	sel, all := s.visible(u.segment, from, to)
	if !all && len(sel) == 0 {
		return nil, nil
	}
	n := len(s.scan.columns)
	b := &columnar.Batch{Len: to - from, Cols: make([]*columnar.Vector, n, n+1), Sel: sel}
	if u.sparse {
		for i, c := range s.scan.columns {
			var err error
			if b.Cols[i], err = s.scan.reader.columnRange(u.segment.id, u.segment.meta, c, from, to); err != nil {
				return nil, err
			}
		}
	} else {
		vectors, err := s.scan.decoded(u)
		if err != nil {
			return nil, err
		}
		for i, v := range vectors.columns {
			b.Cols[i] = v.Slice(from, to)
		}
	}
	if s.scan.rowIDs {
		ids := u.segment.appendRowIDs(make([]int64, 0, b.Len), from, to)
		b.Cols = append(b.Cols, &columnar.Vector{Type: catalog.BigInt, Len: b.Len, Data: columnar.Bytes(ids)})
	}
	return b, nil
}

// decoded returns the columns of a unit's segment, held for the rest of the
// scan of that segment so that eviction does not decode them again.
func (s *scan) decoded(u *scanUnit) (*decodedUnit, error) {
	if d := u.vectors.Load(); d != nil {
		return d, nil
	}
	u.decoding.Lock()
	defer u.decoding.Unlock()
	if d := u.vectors.Load(); d != nil {
		return d, nil
	}
	d := &decodedUnit{columns: make([]*columnar.Vector, len(s.columns))}
	for i, c := range s.columns {
		v, unkept, err := s.reader.columnFor(u.segment.id, u.segment.meta, c, s.large)
		if err != nil {
			return nil, err
		}
		d.columns[i] = v
		d.unkept += unkept
	}
	s.snap.hold(d.unkept)
	u.vectors.Store(d)
	return d, nil
}

// letGo of what a unit holds.
func (s *scan) letGo(u *scanUnit) {
	if d := u.vectors.Swap(nil); d != nil {
		s.snap.hold(-d.unkept)
	}
}

// decodedSize is about how many bytes the scan decodes to.
func (s *scan) decodedSize() (n int64) {
	table := s.reader.table
	for _, u := range s.units {
		if u.sparse {
			continue
		}
		for _, c := range s.columns {
			at := u.segment.meta.find(table.ColumnID(c))
			if at < 0 {
				continue
			}
			width := max(columnar.Width(catalog.PhysicalType(table.Columns[c].Type)), 4)
			n += max(int64(u.segment.meta.columns[at].chunk.size), int64(width*u.segment.meta.rows))
		}
	}
	return n
}

// visible lists, relative to from, the rows of [from, to) that the scan's
// timestamp sees, or reports that it sees all.
func (s *Scanner) visible(seg *segmentRef, from, to int) (sel []int32, all bool) {
	ts := s.scan.ts
	start := from &^ (deletePageRows - 1) // of the bitmap
	dead := false
	if d := seg.deletes; d != nil && d.minTS <= ts {
		need := (to - start + deletePageRows - 1) / deletePageRows * deletePageBits
		if cap(s.dead) < need {
			s.dead = make([]uint64, need)
		}
		s.dead = s.dead[:need]
		dead = d.bitmap(ts, start, to, s.dead)
	}
	if seg.maxTS <= ts {
		if !dead {
			return nil, true
		}
		return appendLive(make([]int32, 0, to-from), s.dead, start, from, to, from), false
	}
	if !dead {
		s.dead = nil
	}
	sel = make([]int32, 0, to-from)
	first := sort.Search(len(seg.runs), func(i int) bool { return int(seg.runs[i].row) > from }) - 1
	for i := first; i < len(seg.runs) && int(seg.runs[i].row) < to; i++ {
		if seg.runs[i].ts > ts {
			continue
		}
		sel = appendLive(sel, s.dead, start, max(int(seg.runs[i].row), from), min(seg.runEnd(i), to), from)
	}
	return sel, len(sel) == to-from
}

// appendLive appends the rows of [lo, hi), relative to from, that are not set
// in a bitmap that starts at row start; nil has none set.
func appendLive(sel []int32, dead []uint64, start, lo, hi, from int) []int32 {
	if dead == nil {
		for row := lo; row < hi; row++ {
			sel = append(sel, int32(row-from))
		}
		return sel
	}
	for k := (lo - start) >> 6; start+k<<6 < hi; k++ {
		base := start + k<<6
		for live := ^dead[k] & wordMask(base, lo, hi); live != 0; live &= live - 1 {
			sel = append(sel, int32(base+bits.TrailingZeros64(live)-from))
		}
	}
	return sel
}

// appendRowIDs appends the ids of the rows [from, to).
func (s *segmentRef) appendRowIDs(dst []int64, from, to int) []int64 {
	if s.ids == nil {
		for row := from; row < to; row++ {
			dst = append(dst, int64(s.firstRow)+int64(row))
		}
		return dst
	}
	i := sort.Search(len(s.ids), func(i int) bool { return int(s.ids[i].row) > from }) - 1
	for row := from; row < to; row++ {
		for i+1 < len(s.ids) && int(s.ids[i+1].row) <= row {
			i++
		}
		dst = append(dst, int64(s.ids[i].id)+int64(row)-int64(s.ids[i].row))
	}
	return dst
}
