package exec

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// joinFilter is a runtime filter: it knows, once a join's build side is loaded,
// which values of one key column occur there. It may accept others.
type joinFilter struct {
	ready atomic.Pointer[keySet]
}

// keySet is a set of integers: exact, as a bitmap over [low, low+span), or a
// Bloom filter whose keys each have their bits in one word.
type keySet struct {
	low   uint64
	span  uint64 // 0 for a Bloom filter
	words []uint64
	shift uint // of a Bloom filter: takes a hash to a word
}

const (
	filterBitsPerKey  = 16
	filterExactSpan   = 1 << 20 // bits that an exact set may always have
	filterExactFactor = 64      // bits per key that it may have
	filterExactMax    = 1 << 27
	filterMaxKeys     = 1 << 23
)

// filterable reports whether a runtime filter can be made of a key type.
func filterable(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.INT16, arrow.INT32, arrow.INT64, arrow.DATE32, arrow.DECIMAL64, arrow.TIMESTAMP:
		return true
	}
	return false
}

// newKeySet makes a set of the non-null values of a stored column, or nil when
// there is no memory for one.
func newKeySet(col *colStore, acct *Account) *keySet {
	if col.n == 0 || col.n > filterMaxKeys {
		return nil
	}
	v := &columnar.Vector{Type: col.typ, Len: col.n, Data: col.fixed, Valid: col.valid}
	keys, err := growSlice[uint64](acct, nil, col.n)
	if err != nil {
		return nil
	}
	defer freeSlice(acct, keys)
	keys = keys[:col.n]
	loadWords(keys, v, nil)
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for i, k := range keys {
		if col.valid == nil || !col.isNull(i) {
			low, high = min(low, int64(k)), max(high, int64(k))
		}
	}
	if low > high {
		return nil
	}
	s := &keySet{low: uint64(low)}
	n := uint64(len(keys))
	size := uint64(1)
	if span := uint64(high) - uint64(low); span < max(filterExactSpan, min(n*filterExactFactor, filterExactMax)) {
		s.span = span + 1
		size = s.span/64 + 1
	} else {
		s.shift = 64
		for size*64 < n*filterBitsPerKey {
			size *= 2
			s.shift--
		}
	}
	if s.words, err = growSlice[uint64](acct, nil, int(size)); err != nil {
		return nil
	}
	s.words = s.words[:size]
	for i, k := range keys {
		if col.valid == nil || !col.isNull(i) {
			s.add(k)
		}
	}
	return s
}

func (s *keySet) add(k uint64) {
	if s.span > 0 {
		at := k - s.low
		s.words[at>>6] |= 1 << (at & 63)
		return
	}
	word, bits := s.place(k)
	s.words[word] |= bits
}

// place is a key's word in a Bloom filter and its bits there.
func (s *keySet) place(k uint64) (word, bits uint64) {
	h := mix64(k, partitionSeed)
	return h >> 1 >> (s.shift - 1), 1<<(h&63) | 1<<(h>>6&63) | 1<<(h>>12&63)
}

// choose appends the rows whose key may be in the set; keys[i] is that of the
// i-th selected row.
func (s *keySet) choose(keys []uint64, sel, dst []int32) []int32 {
	base := len(dst)
	dst = roomFor(dst, len(keys))
	k := base
	switch {
	case s.span == 0:
		for i, key := range keys {
			dst[k] = int32(rowAt(sel, i))
			word, bits := s.place(key)
			if s.words[word]&bits == bits {
				k++
			}
		}
	case sel == nil:
		for i, key := range keys {
			dst[k] = int32(i)
			if at := key - s.low; at < s.span {
				k += int(s.words[at>>6] >> (at & 63) & 1)
			}
		}
	default:
		for i, key := range keys {
			dst[k] = sel[i]
			if at := key - s.low; at < s.span {
				k += int(s.words[at>>6] >> (at & 63) & 1)
			}
		}
	}
	return dst[:k]
}

// filters makes the runtime filters of a loaded build side known.
func (s *buildSide) makeFilters() {
	for i, f := range s.filters {
		if f == nil {
			continue
		}
		if set := newKeySet(s.store.cols[s.spec.buildKeys[i]], s.acct); set != nil {
			f.ready.Store(set)
		}
	}
}

// dropsProbeRows reports whether probe rows without a match leave no trace.
func (s *joinSpec) dropsProbeRows() bool {
	return s.kind != planner.MarkJoin && (!s.markProbe || s.kind == planner.SemiJoin)
}

// attachFilters puts runtime filters of the build side as deep as possible
// below the probe parts.
func (s *buildSide) attachFilters(parts []*joinOp) {
	if !s.spec.dropsProbeRows() {
		return
	}
	s.filters = make([]*joinFilter, len(s.spec.buildKeys))
	for i, key := range s.spec.probeKeys {
		strict := false
		for _, k := range s.spec.strictProbe {
			strict = strict || k == key
		}
		if !strict || !filterable(s.spec.keyTypes[i]) {
			continue
		}
		s.filters[i] = &joinFilter{}
		for _, j := range parts {
			j.probe = pushFilter(j.probe, key, s.filters[i])
		}
	}
}

// pushFilter returns op with the filter on its output column col applied at or
// below it. A row that is dropped below an operator would have been dropped
// above it: at most it turns into one with a NULL for key.
func pushFilter(op Operator, col int, f *joinFilter) Operator {
	switch op := op.(type) {
	case *filterOp:
		if descends(op.input) {
			op.input = pushFilter(op.input, col, f)
			return op
		}
	case *projectOp:
		if op.exprs[col] == nil {
			op.input = pushFilter(op.input, op.direct[col], f)
			return op
		}
	case *joinOp:
		if at, ok := op.probeColumn(col); ok {
			op.probe = pushFilter(op.probe, at, f)
			return op
		}
	case *aggregateOp:
		if op.groups != nil && col < len(op.groups.cols) {
			op.input = pushFilter(op.input, op.groups.cols[col], f) // whole groups are dropped
			return op
		}
	case *aggShard:
		if col < len(op.all.groupBy) {
			// Whole groups are dropped, for all shards when it is the first one's turn.
			for i, in := range op.all.inputs {
				if op.index == 0 {
					op.all.inputs[i] = pushFilter(in, op.all.groupBy[col], f)
				}
			}
			return op
		}
	case *unionOp:
		for i, in := range op.inputs {
			op.inputs[i] = pushFilter(in, col, f)
		}
		return op
	case *joinFilterOp:
		op.input = pushFilter(op.input, col, f)
		return op
	case *meterOp:
		op.input = pushFilter(op.input, col, f)
		for at, ok := op.input.(*joinFilterOp); ok; at, ok = at.input.(*joinFilterOp) {
			at.meter = op
		}
		return op
	}
	return &joinFilterOp{input: op, col: col, filter: f}
}

// descends reports whether a filter can go below an operator's top.
func descends(op Operator) bool {
	switch op := op.(type) {
	case *meterOp:
		return descends(op.input)
	case *filterOp, *projectOp, *joinOp, *joinFilterOp, *aggregateOp, *aggShard, *unionOp:
		return true
	}
	return false
}

// probeColumn maps an output column to the probe input's.
func (j *joinOp) probeColumn(col int) (int, bool) {
	n := j.probe.Schema().NumFields()
	if j.spec.buildLeft {
		col -= j.build.input.Schema().NumFields()
		if !j.spec.pairs {
			return 0, false
		}
	}
	return col, col >= 0 && col < n
}

// joinFilterOp drops rows that a join further up would drop. It gives up when
// that turns out to be few.
type joinFilterOp struct {
	input   Operator
	col     int
	filter  *joinFilter
	meter   *meterOp // counts the rows dropped; nil when nothing is measured
	seen    int
	passed  int
	useless bool
	keys    []uint64
	sel     []int32
	live    []int32
	out     columnar.Batch
}

// A filter is judged after so many rows, by how many of them it lets pass.
const (
	filterTrial    = 1 << 15
	filterPassable = 0.8
)

func (o *joinFilterOp) Schema() *arrow.Schema { return o.input.Schema() }
func (o *joinFilterOp) Close() error          { return o.input.Close() }

func (o *joinFilterOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		b, err := o.input.Next(ctx)
		if b == nil || err != nil || o.useless {
			return b, err
		}
		set := o.filter.ready.Load()
		rows := b.Rows()
		if set == nil || rows == 0 {
			return b, nil
		}
		o.choose(set, b)
		o.seen, o.passed = o.seen+rows, o.passed+len(o.sel)
		if o.meter != nil {
			o.meter.dropped += uint64(rows - len(o.sel))
		}
		if o.seen >= filterTrial {
			o.useless = float64(o.passed) > filterPassable*float64(o.seen)
			o.seen, o.passed = 0, 0
		}
		switch len(o.sel) {
		case rows:
			return b, nil
		case 0:
			if err := canceled(ctx); err != nil {
				return nil, err
			}
			continue
		}
		o.out = columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: o.sel}
		return &o.out, nil
	}
}

func (o *joinFilterOp) choose(set *keySet, b *columnar.Batch) {
	v := b.Cols[o.col]
	sel := b.Sel
	if v.Valid != nil {
		sel = selectKeyed(b.Cols, []int{o.col}, sel, b.Len, &o.live)
	}
	n := b.Len
	if sel != nil {
		n = len(sel)
	}
	o.keys = resize(o.keys, n)
	if n > 0 {
		loadWords(o.keys, v, sel)
	}
	o.sel = set.choose(o.keys, sel, o.sel[:0])
}
