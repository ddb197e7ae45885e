package storage

import (
	"skein/catalog"
	"skein/columnar"
)

const (
	sizeClassRatio  = 8
	maxMergedInputs = 4096
	// deadShare: one row in so many deleted has a segment rewritten.
	deadShare = 10
	// tidyShare: a quiet tablet's segment is rewritten to make it larger by
	// one part in so many.
	tidyShare = 8
	// tidyDeadShare is deadShare in a quiet tablet.
	tidyDeadShare = 1024
)

// picker chooses what to compact.
type picker struct {
	manifest []*segmentRef
	table    *catalog.Table
	least    int    // segments to merge
	old      uint64 // rows deleted at or before can be left out
	defaults *columnDefaults
	quiet    bool // nobody writes
}

// droppable is how many rows of a segment can be left out.
func (p *picker) droppable(s *segmentRef) int {
	if s.dropped != 0 {
		if s.dropped <= p.old {
			return s.meta.rows
		}
		return 0
	}
	return s.deletes.countAt(p.old, 0, s.meta.rows)
}

// pick returns disjoint runs of adjacent segments to merge each, or of one to
// rewrite, or nil. It looks at all segments, so it returns all runs of a kind,
// and smallest ones go before those of which rows can be left out: else the
// more had piled up, the dearer each merge would be.
func (p *picker) pick() [][]*segmentRef {
	rows := make([]int, len(p.manifest)) // that remain
	for i, s := range p.manifest {
		gone := p.droppable(s)
		rows[i] = s.meta.rows - gone
	}
	taken := make([]bool, len(p.manifest))
	runs := p.ofClass(sizeClassRatio, rows, taken)
	if runs = append(runs, p.heavyRuns(rows, taken)...); runs != nil {
		return runs
	}
	for class := sizeClassRatio * sizeClassRatio; class <= SegmentRows/2; class *= sizeClassRatio {
		if runs := p.ofClass(class, rows, taken); runs != nil {
			return runs
		}
	}
	if p.quiet {
		if run := p.tidy(rows); run != nil {
			return [][]*segmentRef{run}
		}
	}
	return nil
}

// heavyRuns returns the segments, of those not taken, that are worth rewriting
// for what can be left out, together with neighbours of the kind.
func (p *picker) heavyRuns(rows []int, taken []bool) (runs [][]*segmentRef) {
	heavy := func(i int) bool { return !taken[i] && p.heavy(p.manifest[i], rows[i]) }
	for i := 0; i < len(p.manifest); {
		if !heavy(i) {
			i++
			continue
		}
		end, total := i+1, rows[i]
		for end < len(p.manifest) && end-i < maxMergedInputs && heavy(end) &&
			total+rows[end] <= SegmentRows && p.mergeable(p.manifest[i], p.manifest[end]) {
			total, end = total+rows[end], end+1
		}
		runs = append(runs, p.manifest[i:end:end])
		i = end
	}
	return runs
}

// ofClass returns runs of segments of at most class rows and takes them.
func (p *picker) ofClass(class int, rows []int, taken []bool) (runs [][]*segmentRef) {
	for i := 0; i < len(p.manifest); {
		total, largest, end, full := 0, 0, i, false
		for end < len(p.manifest) && end-i < maxMergedInputs && rows[end] <= class && p.mergeable(p.manifest[i], p.manifest[end]) {
			if full = total+rows[end] > SegmentRows; full {
				break
			}
			total, largest, end = total+rows[end], max(largest, rows[end]), end+1
		}
		if total >= 2*largest && (end-i >= p.least || (full && end-i > 1 && total >= SegmentRows/2)) {
			runs = append(runs, p.manifest[i:end:end])
			for k := i; k < end; k++ {
				taken[k] = true
			}
		}
		i = max(end, i+1)
	}
	return runs
}

// tidy returns neighbours that fit into one segment, if that is worth
// rewriting the largest of them, or a segment with more than a few dead rows.
func (p *picker) tidy(rows []int) []*segmentRef {
	for i := 0; i < len(p.manifest); {
		total, largest, end := 0, 0, i
		for end < len(p.manifest) && end-i < maxMergedInputs && total+rows[end] <= SegmentRows && p.mergeable(p.manifest[i], p.manifest[end]) {
			total, largest, end = total+rows[end], max(largest, rows[end]), end+1
		}
		if end-i > 1 && (end-i >= p.least || total-largest >= largest/tidyShare) {
			return p.manifest[i:end:end]
		}
		i = max(end, i+1)
	}
	for i, s := range p.manifest {
		if gone := s.meta.rows - rows[i]; gone > 0 && gone >= s.meta.rows/tidyDeadShare {
			return p.manifest[i : i+1 : i+1]
		}
	}
	return nil
}

// heavy reports whether enough of a segment's rows can be left out to rewrite
// it for that alone.
func (p *picker) heavy(s *segmentRef, remain int) bool {
	return (s.meta.rows-remain)*deadShare > s.meta.rows
}

// mergeable reports whether two segments can become one: where rows that lack a
// column meet rows that have it, its default must be known.
func (p *picker) mergeable(a, b *segmentRef) bool {
	if a.dropped != 0 || b.dropped != 0 {
		return false // a dropped segment goes by itself
	}
	if a.meta.sameColumns(b.meta) {
		return true
	}
	for c := range p.table.Columns {
		id := p.table.ColumnID(c)
		if (a.meta.find(id) < 0) != (b.meta.find(id) < 0) && !p.defaults.known(c) {
			return false
		}
	}
	return true
}

// sameColumns reports whether two segments have the same columns in order.
func (m *segmentMeta) sameColumns(o *segmentMeta) bool {
	if len(m.columns) != len(o.columns) {
		return false
	}
	for i := range m.columns {
		if m.columns[i].id != o.columns[i].id {
			return false
		}
	}
	return true
}

// columnDefaults are what the columns of a table read as in rows that are older
// than the columns, asked for once.
type columnDefaults struct {
	store  *Store
	table  *catalog.Table
	asked  []bool
	failed []bool
	values []*columnar.Vector // nil for NULL
}

func (s *Store) defaultsOf(table *catalog.Table) *columnDefaults {
	n := len(table.Columns)
	return &columnDefaults{store: s, table: table, asked: make([]bool, n), failed: make([]bool, n), values: make([]*columnar.Vector, n)}
}

// known reports whether a column's default can be had; a failure is logged, and
// leaves segments as they are.
func (d *columnDefaults) known(c int) bool {
	if d.asked[c] || d.table.Columns[c].Default == "" {
		return !d.failed[c]
	}
	d.asked[c] = true
	if d.store.opts.DefaultOf == nil {
		d.failed[c] = true
		return false
	}
	v, err := d.store.opts.DefaultOf(d.table, c)
	if err != nil {
		d.failed[c] = true
		d.store.log.Warn("a column's default cannot be read: segments with and without it stay apart",
			"table", d.table.QualifiedName(), "column", d.table.Columns[c].Name, "error", err)
		return false
	}
	d.values[c] = v
	return true
}
