package exec

import (
	"math"
	"math/bits"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// framer finds the frame of a row.
type framer struct {
	frame      planner.Frame
	start, end int64          // offsets of row and group frames
	key        int            // order key of a range frame with offsets, else -1
	descending bool           // of that key
	typ        arrow.DataType // of that key
}

func newFramer(f planner.Frame, order []planner.SortKey, in *arrow.Schema) (*framer, error) {
	r := &framer{frame: f, key: -1}
	switch f.Mode {
	case planner.RowsFrame, planner.GroupsFrame, planner.RangeFrame:
	case "": // functions that look at whole partitions need none
		r.frame = planner.Frame{Mode: planner.RowsFrame, Start: planner.FrameBound{Kind: planner.UnboundedPreceding},
			End: planner.FrameBound{Kind: planner.UnboundedFollowing}}
		return r, nil
	default:
		return nil, malformed("a window frame has the mode %q", f.Mode)
	}
	for _, b := range []struct {
		bound planner.FrameBound
		to    *int64
	}{{f.Start, &r.start}, {f.End, &r.end}} {
		switch b.bound.Kind {
		case planner.UnboundedPreceding, planner.CurrentRow, planner.UnboundedFollowing:
			continue
		case planner.Preceding, planner.Following:
		default:
			return nil, malformed("a window frame has the bound %q", b.bound.Kind)
		}
		if b.bound.Offset == nil {
			return nil, malformed("a window frame has no offset")
		}
		if f.Mode == planner.RangeFrame {
			if len(order) != 1 {
				return nil, malformed("a range frame with offsets over %d order keys", len(order))
			}
			r.key, r.descending = order[0].Column, order[0].Descending
			r.typ = in.Field(r.key).Type
			if _, err := r.shift(rangeKey{}, b.bound.Offset, 1); err != nil {
				return nil, err
			}
			continue
		}
		n, ok := b.bound.Offset.Value.(int64)
		if !ok || n < 0 {
			return nil, malformed("a window frame has the offset %v", b.bound.Offset.Value)
		}
		*b.to = n
	}
	return r, nil
}

// of returns rows [s, e) of the partition, the frame of row but for exclusion.
// Both ends never move back as the row moves on.
func (r *framer) of(p *partition, row int) (s, e int, err error) {
	if s, err = r.bound(p, row, r.frame.Start, r.start, false); err != nil {
		return 0, 0, err
	}
	if e, err = r.bound(p, row, r.frame.End, r.end, true); err != nil {
		return 0, 0, err
	}
	return s, max(s, e), nil
}

// bound is the place of a bound: of its first row for a start, and after its
// last one for an end.
func (r *framer) bound(p *partition, row int, b planner.FrameBound, offset int64, end bool) (int, error) {
	switch b.Kind {
	case planner.UnboundedPreceding:
		return p.lo, nil
	case planner.UnboundedFollowing:
		return p.hi, nil
	}
	if b.Kind == planner.Preceding {
		offset = -offset
	}
	switch r.frame.Mode {
	case planner.RowsFrame:
		return p.clamp(int64(row)+min(offset, math.MaxInt32), end), nil
	case planner.RangeFrame:
		if b.Kind != planner.CurrentRow {
			return r.rangeBound(p, row, b, end)
		}
	}
	if err := p.groups(); err != nil {
		return 0, err
	}
	groups := int64(len(p.peers) - 1)
	g := int64(p.group[row-p.lo]) + min(max(offset, -math.MaxInt32), math.MaxInt32)
	if end {
		g++
	}
	return int(p.peers[min(max(g, 0), groups)]), nil
}

// clamp makes a row number one of the partition's.
func (p *partition) clamp(row int64, end bool) int {
	if end {
		row++
	}
	return int(min(max(row, int64(p.lo)), int64(p.hi)))
}

// excluded is rows [s, e) that the frame leaves out around row; with ties, row
// itself stays.
func (r *framer) excluded(p *partition, row int) (s, e int, keepRow bool, err error) {
	switch r.frame.Exclude {
	case planner.ExcludeCurrent:
		return row, row + 1, false, nil
	case planner.ExcludeGroup, planner.ExcludeTies:
		s, e, err = p.peersOf(row)
		return s, e, r.frame.Exclude == planner.ExcludeTies, err
	}
	return 0, 0, false, nil
}

// span is rows [s, e).
type span struct{ s, e int }

// spans is the frame of a row as up to three spans in ascending order.
func (r *framer) spans(p *partition, row int, dst []span) ([]span, error) {
	s, e, err := r.of(p, row)
	if err != nil {
		return nil, err
	}
	dst = dst[:0]
	add := func(s, e int) {
		if s < e {
			dst = append(dst, span{s, e})
		}
	}
	xs, xe, keep, err := r.excluded(p, row)
	if err != nil {
		return nil, err
	}
	if xs >= xe {
		add(s, e)
		return dst, nil
	}
	add(s, min(e, xs))
	if keep && s <= row && row < e {
		add(row, row+1)
	}
	add(max(s, xe), e)
	return dst, nil
}

// rangeKey is an order key as a 128-bit integer, or as a float.
type rangeKey struct {
	hi int64
	lo uint64
	f  float64
}

// rangeKeys is the order key of a partition's rows; those with NULLs are at
// one end.
type rangeKeys struct {
	keys   []rangeKey // by row - lo
	s, e   int        // the rows that are not null
	floats bool
}

// before orders keys ascending, with NaN last.
func (k *rangeKeys) before(a, b rangeKey) bool {
	if k.floats {
		return compareFloats(a.f, b.f) < 0
	}
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

func wideKeyOf(x int64) rangeKey { return rangeKey{hi: x >> 63, lo: uint64(x)} }

// load reads the order key of a partition.
func (r *framer) load(p *partition) (*rangeKeys, error) {
	if p.keys != nil {
		return p.keys, nil
	}
	col := p.w.store.cols[r.key]
	keys, err := growSlice[rangeKey](p.w.acct, nil, p.rows())
	if err != nil {
		return nil, err
	}
	k := &rangeKeys{keys: keys[:p.rows()], s: p.lo, e: p.hi}
	p.keys = k
	for k.s < k.e && col.isNull(k.s) {
		k.s++
	}
	for k.e > k.s && col.isNull(k.e-1) {
		k.e--
	}
	v := &columnar.Vector{Type: col.typ, Len: col.n, Data: col.fixed}
	switch r.typ.ID() {
	case arrow.FLOAT32, arrow.FLOAT64:
		k.floats = true
		for row := k.s; row < k.e; row++ {
			if r.typ.ID() == arrow.FLOAT32 {
				k.keys[row-p.lo].f = float64(columnar.Values[float32](v)[row])
			} else {
				k.keys[row-p.lo].f = columnar.Values[float64](v)[row]
			}
		}
	case arrow.DECIMAL128:
		for row := k.s; row < k.e; row++ {
			w := columnar.Values[word128](v)[row]
			k.keys[row-p.lo] = rangeKey{hi: int64(w[1]), lo: w[0]}
		}
	default:
		unit := int64(1)
		if r.typ.ID() == arrow.DATE32 {
			unit = microsPerDay
		}
		var words [columnar.BatchRows]uint64
		for lo := k.s; lo < k.e; lo += len(words) {
			sel := p.w.iota[lo:min(lo+len(words), k.e)]
			loadWords(words[:len(sel)], v, sel)
			for i, x := range words[:len(sel)] {
				k.keys[lo-p.lo+i] = wideKeyOf(int64(x) * unit)
			}
		}
	}
	return k, nil
}

// shift moves a key up (sign 1) or down (-1) by an offset, stopping at the ends
// of its range.
func (r *framer) shift(k rangeKey, offset *planner.Literal, sign int64) (rangeKey, error) {
	switch x := offset.Value.(type) {
	case float64:
		if r.typ.ID() == arrow.FLOAT32 || r.typ.ID() == arrow.FLOAT64 {
			k.f += float64(sign) * x
			return k, nil
		}
	case int64:
		switch r.typ.ID() {
		case arrow.INT16, arrow.INT32, arrow.INT64:
			return k.plus(x>>63, uint64(x), sign), nil
		}
	case decimal128.Num:
		if r.typ.ID() == arrow.DECIMAL64 || r.typ.ID() == arrow.DECIMAL128 {
			return k.plus(x.HighBits(), x.LowBits(), sign), nil
		}
	case arrow.MonthDayNanoInterval:
		return r.shiftTime(k, x, sign)
	}
	return k, sqlstate.New(sqlstate.FeatureNotSupported, "RANGE with an offset of type %s is not supported for an order key of type %s",
		offset.DataType, r.typ)
}

func (r *framer) shiftTime(k rangeKey, iv arrow.MonthDayNanoInterval, sign int64) (rangeKey, error) {
	per := int64(1_000_000)
	switch r.typ.ID() {
	case arrow.DATE32:
	case arrow.TIMESTAMP:
		per = unitsPerSecond(r.typ)
	case arrow.TIME64:
		hi, lo := intervalSpan(iv)
		micros, _ := int128{lo: lo, hi: hi}.divmod64(1000)
		return k.plus(micros.hi, micros.lo, sign), nil
	default:
		return k, sqlstate.New(sqlstate.FeatureNotSupported, "RANGE with an interval is not supported for an order key of type %s", r.typ)
	}
	moved, err := addInterval(int64(k.lo), iv, sign, per)
	if err != nil { // out of range: beyond all keys
		return rangeKey{hi: sign << 62}, nil
	}
	return wideKeyOf(moved), nil
}

// plus adds sign times a 128-bit integer.
func (k rangeKey) plus(hi int64, lo uint64, sign int64) rangeKey {
	if sign < 0 {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		h, _ := bits.Sub64(0, uint64(hi), borrow)
		hi = int64(h)
	}
	sumLo, carry := bits.Add64(k.lo, lo, 0)
	sum := k.hi + hi + int64(carry)
	if (k.hi^sum)&(hi^sum) < 0 {
		if k.hi < 0 {
			return rangeKey{hi: math.MinInt64}
		}
		return rangeKey{hi: math.MaxInt64, lo: math.MaxUint64}
	}
	return rangeKey{hi: sum, lo: sumLo}
}

// rangeBound finds the rows whose key differs from row's by at most an offset.
// Rows with a NULL key have each other for frame.
func (r *framer) rangeBound(p *partition, row int, b planner.FrameBound, end bool) (int, error) {
	k, err := r.load(p)
	if err != nil {
		return 0, err
	}
	if row < k.s || row >= k.e {
		s, e, err := p.peersOf(row)
		if end {
			return e, err
		}
		return s, err
	}
	sign := int64(1)
	if (b.Kind == planner.Preceding) != r.descending {
		sign = -1
	}
	limit, err := r.shift(k.keys[row-p.lo], b.Offset, sign)
	if err != nil {
		return 0, err
	}
	beyond := func(x rangeKey) bool { // x comes after the limit in the order of the window
		if r.descending {
			return k.before(x, limit)
		}
		return k.before(limit, x)
	}
	short := func(x rangeKey) bool { // x comes before it
		if r.descending {
			return k.before(limit, x)
		}
		return k.before(x, limit)
	}
	return k.s + sort.Search(k.e-k.s, func(i int) bool {
		x := k.keys[k.s-p.lo+i]
		if end {
			return beyond(x)
		}
		return !short(x)
	}), nil
}
