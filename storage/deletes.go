package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Rows are deleted by marks next to their segment, which itself never changes.
// Marks are immutable and kept in pages of deletePageRows rows, so that adding
// one copies one page and readers of older views are not disturbed.

const (
	deletePageRows = 512
	deletePageBits = deletePageRows / 64
	deletesVersion = 1
)

// deletePage is the marks of deletePageRows consecutive rows.
type deletePage struct {
	rows  [deletePageBits]uint64 // bitmap of the deleted rows
	times []uint64               // when, in row order; a single one is for all of them
	minTS uint64
	maxTS uint64
}

func (p *deletePage) count() int {
	n := 0
	for _, w := range p.rows {
		n += bits.OnesCount64(w)
	}
	return n
}

// at returns when a row of the page was deleted.
func (p *deletePage) at(row int) (ts uint64, ok bool) {
	w := p.rows[row>>6]
	if w>>(row&63)&1 == 0 {
		return 0, false
	}
	if len(p.times) == 1 {
		return p.times[0], true
	}
	rank := bits.OnesCount64(w & (1<<(row&63) - 1))
	for _, w := range p.rows[:row>>6] {
		rank += bits.OnesCount64(w)
	}
	return p.times[rank], true
}

// deadAt is the bitmap of the rows deleted at or before ts.
func (p *deletePage) deadAt(ts uint64) [deletePageBits]uint64 {
	if p.maxTS <= ts {
		return p.rows
	}
	var out [deletePageBits]uint64
	if p.minTS > ts {
		return out
	}
	i := 0
	for k, w := range p.rows {
		for ; w != 0; w &= w - 1 {
			if p.times[i] <= ts {
				out[k] |= w & -w
			}
			i++
		}
	}
	return out
}

// with returns the page with further rows deleted at ts. Rows that are marked
// already keep their time.
func (p *deletePage) with(rows []uint32, ts uint64) *deletePage {
	out := &deletePage{minTS: ts, maxTS: ts}
	for _, r := range rows {
		out.rows[r>>6] |= 1 << (r & 63)
	}
	if p == nil {
		out.times = []uint64{ts}
		return out
	}
	added := out.rows
	for k := range out.rows {
		added[k] &^= p.rows[k]
		out.rows[k] |= p.rows[k]
	}
	out.minTS, out.maxTS = min(p.minTS, ts), max(p.maxTS, ts)
	if out.minTS == out.maxTS {
		out.times = []uint64{ts}
		return out
	}
	out.times = make([]uint64, 0, out.count())
	i := 0
	for k, w := range out.rows {
		for ; w != 0; w &= w - 1 {
			if added[k]&(w&-w) != 0 {
				out.times = append(out.times, ts)
				continue
			}
			out.times = append(out.times, p.times[min(i, len(p.times)-1)])
			i++
		}
	}
	return out
}

// deleteMarks are the marks of one segment.
type deleteMarks struct {
	pages []*deletePage // by row / deletePageRows, nil for none
	count int
	minTS uint64
	maxTS uint64
}

// deleteMark is one mark by itself.
type deleteMark struct {
	row uint32
	ts  uint64
}

func newDeleteMarks(pages []*deletePage) *deleteMarks {
	d := &deleteMarks{pages: pages, minTS: math.MaxUint64}
	for _, p := range pages {
		if p != nil {
			d.count += p.count()
			d.minTS, d.maxTS = min(d.minTS, p.minTS), max(d.maxTS, p.maxTS)
		}
	}
	if d.count == 0 {
		return nil
	}
	return d
}

// at returns when a row was deleted. A nil d has no marks.
func (d *deleteMarks) at(row int) (ts uint64, ok bool) {
	if d == nil {
		return 0, false
	}
	if k := row / deletePageRows; k < len(d.pages) && d.pages[k] != nil {
		return d.pages[k].at(row % deletePageRows)
	}
	return 0, false
}

// with returns d, of a segment of total rows, with further rows, ascending,
// deleted at ts, and the numbers of the pages that changed.
func (d *deleteMarks) with(total int, rows []uint32, ts uint64) (out *deleteMarks, changed []int) {
	pages := make([]*deletePage, (total+deletePageRows-1)/deletePageRows)
	if d != nil {
		copy(pages, d.pages)
	}
	var local [deletePageRows]uint32
	for len(rows) > 0 {
		k := int(rows[0] / deletePageRows)
		in := local[:0]
		for len(rows) > 0 && int(rows[0]/deletePageRows) == k {
			in = append(in, rows[0]%deletePageRows)
			rows = rows[1:]
		}
		pages[k] = pages[k].with(in, ts)
		changed = append(changed, k)
	}
	return newDeleteMarks(pages), changed
}

// countAt is how many of the rows [from, to) were deleted at or before ts.
func (d *deleteMarks) countAt(ts uint64, from, to int) int {
	if d == nil || d.minTS > ts || from >= to {
		return 0
	}
	n := 0
	for k := from / deletePageRows; k*deletePageRows < to && k < len(d.pages); k++ {
		if d.pages[k] == nil || d.pages[k].minTS > ts {
			continue
		}
		dead := d.pages[k].deadAt(ts)
		base := k * deletePageRows
		for i, w := range dead {
			n += bits.OnesCount64(w & wordMask(base+64*i, from, to))
		}
	}
	return n
}

// wordMask selects, of 64 rows from base on, those in [from, to).
func wordMask(base, from, to int) uint64 {
	mask := ^uint64(0)
	if from > base {
		if from-base >= 64 {
			return 0
		}
		mask <<= from - base
	}
	if end := to - base; end < 64 {
		if end <= 0 {
			return 0
		}
		mask &= 1<<end - 1
	}
	return mask
}

// bitmap writes the rows deleted at or before ts to out, which has room for
// whole pages, and returns whether there are any.
func (d *deleteMarks) bitmap(ts uint64, from, to int, out []uint64) bool {
	any := false
	clear(out)
	first := from / deletePageRows
	for k := first; k*deletePageRows < to && k < len(d.pages); k++ {
		if d.pages[k] == nil || d.pages[k].minTS > ts {
			continue
		}
		dead := d.pages[k].deadAt(ts)
		copy(out[(k-first)*deletePageBits:], dead[:])
		any = true
	}
	return any
}

// each lists the marks in row order.
func (d *deleteMarks) each(visit func(deleteMark)) {
	if d == nil {
		return
	}
	for k, p := range d.pages {
		if p == nil {
			continue
		}
		i := 0
		for j, w := range p.rows {
			for ; w != 0; w &= w - 1 {
				row := k*deletePageRows + j*64 + bits.TrailingZeros64(w)
				visit(deleteMark{uint32(row), p.times[min(i, len(p.times)-1)]})
				i++
			}
		}
	}
}

// marksOf builds the marks of a segment of total rows from a list in row order.
func marksOf(total int, marks []deleteMark) *deleteMarks {
	if len(marks) == 0 {
		return nil
	}
	pages := make([]*deletePage, (total+deletePageRows-1)/deletePageRows)
	for len(marks) > 0 {
		k := int(marks[0].row / deletePageRows)
		p := &deletePage{minTS: math.MaxUint64}
		for len(marks) > 0 && int(marks[0].row/deletePageRows) == k {
			m := marks[0]
			r := m.row % deletePageRows
			p.rows[r>>6] |= 1 << (r & 63)
			p.times = append(p.times, m.ts)
			p.minTS, p.maxTS = min(p.minTS, m.ts), max(p.maxTS, m.ts)
			marks = marks[1:]
		}
		if p.minTS == p.maxTS {
			p.times = []uint64{p.minTS}
		}
		pages[k] = p
	}
	return newDeleteMarks(pages)
}

// append appends the encoded page: its number, bitmap, and times as differences
// to the earliest.
func (p *deletePage) append(dst []byte, number int) []byte {
	dst = binary.AppendUvarint(dst, uint64(number))
	for _, w := range p.rows {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	dst = binary.AppendUvarint(dst, p.minTS)
	dst = binary.AppendUvarint(dst, uint64(len(p.times)))
	for _, ts := range p.times {
		dst = binary.AppendUvarint(dst, ts-p.minTS)
	}
	return dst
}

// encodePages returns a record of the pages with the given numbers.
func (d *deleteMarks) encodePages(numbers []int) []byte {
	b := []byte{deletesVersion}
	for _, k := range numbers {
		b = d.pages[k].append(b, k)
	}
	return b
}

// encode returns a record of all pages.
func (d *deleteMarks) encode() []byte {
	b := []byte{deletesVersion}
	for k, p := range d.pages {
		if p != nil {
			b = p.append(b, k)
		}
	}
	return b
}

// readDeletePages reads a record into pages. Of two versions of a page the one
// with more marks is the later one, as marks are never taken back.
func readDeletePages(value []byte, pages map[int]*deletePage) error {
	r := &reader{b: value}
	if v := r.byte(); v != deletesVersion {
		return fmt.Errorf("delete marks of version %d, this release reads %d", v, deletesVersion)
	}
	for len(r.b) > 0 && r.err == nil {
		k := r.count(SegmentRows / deletePageRows)
		p := &deletePage{}
		for i := range p.rows {
			p.rows[i] = r.uint64()
		}
		p.minTS = r.uvarint()
		p.times = make([]uint64, r.count(deletePageRows))
		for i := range p.times {
			p.times[i] = p.minTS + r.uvarint()
			p.maxTS = max(p.maxTS, p.times[i])
		}
		n := p.count()
		if r.err == nil && (n == 0 || (len(p.times) != 1 && len(p.times) != n)) {
			return fmt.Errorf("delete marks: %d times of %d rows", len(p.times), n)
		}
		if old := pages[k]; old == nil || old.count() < n {
			pages[k] = p
		}
	}
	if err := r.done(); err != nil {
		return fmt.Errorf("delete marks: %w", err)
	}
	return nil
}

// deletesFrom assembles the pages of a segment of total rows.
func deletesFrom(total int, pages map[int]*deletePage) (*deleteMarks, error) {
	if len(pages) == 0 {
		return nil, nil
	}
	list := make([]*deletePage, (total+deletePageRows-1)/deletePageRows)
	for k, p := range pages {
		if k >= len(list) {
			return nil, fmt.Errorf("delete marks in page %d of a segment of %d rows", k, total)
		}
		if k == len(list)-1 && total%deletePageRows != 0 {
			for i, w := range p.rows {
				if w&^wordMask(i*64, 0, total%deletePageRows) != 0 {
					return nil, fmt.Errorf("delete marks after the last of %d rows", total)
				}
			}
		}
		list[k] = p
	}
	return newDeleteMarks(list), nil
}

// mergeRows returns the ascending union of lists of row ids.
func mergeRows(lists ...[]uint64) []uint64 {
	out := slices.Concat(lists...)
	if !slices.IsSorted(out) {
		slices.Sort(out)
	}
	return slices.Compact(out)
}

// containsRow looks an id up in an ascending list.
func containsRow(rows []uint64, id uint64) bool {
	_, ok := slices.BinarySearch(rows, id)
	return ok
}

// intersects reports whether two ascending lists share an id.
func intersects(a, b []uint64) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) == 0 || a[len(a)-1] < b[0] || b[len(b)-1] < a[0] {
		return false
	}
	for _, id := range a {
		i, ok := slices.BinarySearch(b, id)
		if ok {
			return true
		}
		b = b[i:]
	}
	return false
}
