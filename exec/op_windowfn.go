package exec

import (
	"bytes"
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// run appends the function's values for a partition to result.
func (c *windowCall) run(ctx context.Context, p *partition, result *colStore) error {
	switch c.call.Func {
	case planner.RowNumber, planner.Rank, planner.DenseRank:
		return c.ranks(p, result)
	case planner.PercentRank, planner.CumeDist:
		return c.fractions(p, result)
	case planner.Ntile:
		return c.ntile(p, result)
	case planner.Lag, planner.Lead:
		return c.shifted(p, result)
	case planner.FirstValue, planner.LastValue, planner.NthValue:
		return c.nth(ctx, p, result)
	}
	return c.aggregate(ctx, p, result)
}

// put appends fixed-width values to a result.
func put[T any](result *colStore, vals []T) error {
	return result.append(&columnar.Vector{Type: result.typ, Len: len(vals), Data: columnar.Bytes(vals)}, nil, len(vals))
}

func (c *windowCall) ranks(p *partition, result *colStore) error {
	vals, err := growSlice[int64](c.acct, nil, p.rows())
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, vals)
	vals = vals[:p.rows()]
	dense := int64(0)
	for i := range vals {
		row := p.lo + i
		first := i == 0 || p.w.bounds[row] != sameGroup
		if first {
			dense++
		}
		switch {
		case c.call.Func == planner.DenseRank:
			vals[i] = dense
		case c.call.Func == planner.RowNumber || first:
			vals[i] = int64(i) + 1
		default:
			vals[i] = vals[i-1]
		}
	}
	return put(result, vals)
}

func (c *windowCall) fractions(p *partition, result *colStore) error {
	vals, err := growSlice[float64](c.acct, nil, p.rows())
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, vals)
	vals = vals[:p.rows()]
	n := float64(len(vals))
	for i := range vals {
		s, e, err := p.peersOf(p.lo + i)
		if err != nil {
			return err
		}
		switch {
		case c.call.Func == planner.CumeDist:
			vals[i] = float64(e-p.lo) / n
		case len(vals) > 1:
			vals[i] = float64(s-p.lo) / (n - 1)
		default:
			vals[i] = 0
		}
	}
	return put(result, vals)
}

// integers reads an integer argument of the partition's rows. The caller frees
// vals with the call's account.
func (c *windowCall) integers(p *partition, arg int) (vals []uint64, isNull func(i int) bool, err error) {
	v := p.w.column(c.call.Args[arg])
	if vals, err = growSlice[uint64](c.acct, nil, p.rows()); err != nil {
		return nil, nil, err
	}
	vals = vals[:p.rows()]
	loadWords(vals, v, p.w.iota[p.lo:p.hi])
	return vals, func(i int) bool { return v.IsNull(p.lo + i) }, nil
}

// picks makes room for the source of every row's value.
func (c *windowCall) picks(p *partition) ([]int32, error) {
	picks, err := growSlice[int32](c.acct, nil, p.rows())
	if err != nil {
		return nil, err
	}
	return picks[:p.rows()], nil
}

// ntile takes the number of buckets from the partition's first row.
func (c *windowCall) ntile(p *partition, result *colStore) error {
	args, isNull, err := c.integers(p, 0)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, args)
	if isNull(0) {
		return result.append(columnar.NewNull(c.out, p.rows()), nil, p.rows())
	}
	buckets := int64(args[0])
	if buckets <= 0 {
		return sqlstate.New(sqlstate.InvalidNtileArgument, "argument of ntile must be greater than zero")
	}
	n := int64(p.rows())
	vals, err := growSlice[int64](c.acct, nil, p.rows())
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, vals)
	vals = vals[:n]
	size, larger := n/buckets, n%buckets // the first buckets have one row more
	for i := range vals {
		at := int64(i)
		if at < larger*(size+1) {
			vals[i] = at/(size+1) + 1
		} else {
			vals[i] = larger + (at-larger*(size+1))/max(size, 1) + 1
		}
	}
	if c.out.ID() != arrow.INT32 {
		return put(result, vals)
	}
	narrow, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, narrow)
	for i, x := range vals {
		narrow[i] = int32(x)
	}
	return put(result, narrow)
}

// Sources of a picked value other than a row.
const (
	pickNull    = -1
	pickDefault = -2
)

func (c *windowCall) shifted(p *partition, result *colStore) error {
	offsets, isNull, err := c.integers(p, 1)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, offsets)
	picks, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, picks)
	for i := range picks {
		offset := int64(offsets[i])
		if c.call.Func == planner.Lag {
			offset = -offset
		}
		at := int64(i) + offset
		switch {
		case isNull(i):
			picks[i] = pickNull
		case offset > int64(p.rows()) || offset < -int64(p.rows()) || at < 0 || at >= int64(p.rows()):
			picks[i] = pickDefault
		default:
			picks[i] = int32(p.lo) + int32(at)
		}
	}
	return c.pick(p, picks, result)
}

func (c *windowCall) nth(ctx context.Context, p *partition, result *colStore) error {
	var counts []uint64
	isNull := func(int) bool { return false }
	if c.call.Func == planner.NthValue {
		var err error
		if counts, isNull, err = c.integers(p, 1); err != nil {
			return err
		}
		defer freeSlice(c.acct, counts)
	}
	picks, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, picks)
	var spans []span
	for i := range picks {
		if i%columnar.BatchRows == 0 {
			if err := canceled(ctx); err != nil {
				return err
			}
		}
		if spans, err = c.frame.spans(p, p.lo+i, spans); err != nil {
			return err
		}
		picks[i] = pickNull
		switch {
		case isNull(i) || len(spans) == 0:
		case c.call.Func == planner.FirstValue:
			picks[i] = int32(spans[0].s)
		case c.call.Func == planner.LastValue:
			picks[i] = int32(spans[len(spans)-1].e - 1)
		default:
			n := int64(counts[i])
			if n <= 0 {
				return sqlstate.New(sqlstate.InvalidNthArgument, "argument of nth_value must be greater than zero")
			}
			picks[i] = nthOf(spans, n)
		}
	}
	return c.pick(p, picks, result)
}

// nthOf is the n-th row of spans, counted from 1.
func nthOf(spans []span, n int64) int32 {
	for _, s := range spans {
		if n <= int64(s.e-s.s) {
			return int32(int64(s.s) + n - 1)
		}
		n -= int64(s.e - s.s)
	}
	return pickNull
}

// pick appends the first argument's values at the given rows to result; the
// default is the third argument's in the row itself.
func (c *windowCall) pick(p *partition, picks []int32, result *colStore) error {
	values := p.w.column(c.call.Args[0])
	for lo := 0; lo < len(picks); {
		hi := lo
		for hi < len(picks) && picks[hi] >= 0 {
			hi++
		}
		if err := result.append(values, picks[lo:hi], hi-lo); err != nil {
			return err
		}
		if hi == len(picks) {
			break
		}
		lo = hi + 1
		if picks[hi] == pickNull {
			if err := result.append(columnar.NewNull(c.out, 1), nil, 1); err != nil {
				return err
			}
			continue
		}
		if err := result.append(p.w.column(c.call.Args[2]), []int32{int32(p.lo + hi)}, 1); err != nil {
			return err
		}
	}
	return nil
}

// batch is a partition's rows [s, e) with the columns that the function reads.
func (c *windowCall) batch(p *partition, s, e int) *columnar.Batch {
	cols := make([]*columnar.Vector, len(p.w.views))
	for _, a := range c.call.Args {
		cols[a] = p.w.column(a)
	}
	return &columnar.Batch{Cols: cols, Len: p.w.ready, Sel: p.w.iota[s:e]}
}

func (c *windowCall) aggregate(ctx context.Context, p *partition, result *colStore) error {
	plain := c.frame.frame.Exclude == planner.ExcludeNothing
	growing := plain && c.frame.frame.Start.Kind == planner.UnboundedPreceding
	switch {
	case c.exact:
		return c.differences(ctx, p, result)
	case c.order && plain && !growing:
		return c.extremes(ctx, p, result)
	case plain && !growing && c.frame.frame.End.Kind == planner.UnboundedFollowing && c.unordered():
		return c.shrinking(ctx, p, result)
	}
	return c.running(ctx, p, result)
}

// unordered reports whether the function may see its rows in any order.
func (c *windowCall) unordered() bool {
	_, collects := c.state.(*collectState)
	return !collects && c.call.Func != planner.WindowFunc(planner.AnyValue)
}

// differences computes counts and exact sums of any frame from running totals:
// those of a span are the difference of two.
func (c *windowCall) differences(ctx context.Context, p *partition, result *colStore) error {
	n := p.rows()
	defer c.state.free()
	if err := c.state.reserve(n); err != nil {
		return err
	}
	if err := c.state.fold(c.batch(p, p.lo, p.hi), p.w.iota[:n]); err != nil {
		return err
	}
	totals, err := growSlice[exactSum](c.acct, nil, n+1)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, totals)
	totals = totals[:n+1]
	totals[0] = exactSum{}
	counts, isCount := c.state.(*countState)
	sums, _ := c.state.(*exactSumState)
	for i := range n {
		totals[i+1] = totals[i]
		if isCount {
			totals[i+1].n += counts.counts[i]
		} else {
			totals[i+1].shift(&sums.sums[i], 1)
		}
	}
	var spans []span
	for i := range n {
		if i%columnar.BatchRows == 0 {
			if err := canceled(ctx); err != nil {
				return err
			}
		}
		if spans, err = c.frame.spans(p, p.lo+i, spans); err != nil {
			return err
		}
		var total exactSum
		for _, s := range spans {
			total.shift(&totals[s.e-p.lo], 1)
			total.shift(&totals[s.s-p.lo], -1)
		}
		if isCount {
			counts.counts[i] = total.n
		} else {
			sums.sums[i] = total
		}
	}
	for lo := 0; lo < n; lo += columnar.BatchRows {
		hi := min(lo+columnar.BatchRows, n)
		if err := c.state.emitResult(lo, hi, &c.value); err != nil {
			return err
		}
		if err := result.append(&c.value, nil, hi-lo); err != nil {
			return err
		}
	}
	return nil
}

// shift adds or subtracts another sum, modulo 2^128.
func (s *exactSum) shift(o *exactSum, sign int64) {
	a, b := int128{lo: s.lo, hi: s.hi}, int128{lo: o.lo, hi: o.hi}
	if sign < 0 {
		a = a.sub(b)
	} else {
		a = a.add(b)
	}
	s.lo, s.hi = a.lo, a.hi
	s.n += sign * o.n
}

// extremes keeps, while the frame moves on, the rows that are or may become its
// smallest or greatest: each is better than all that come after it.
func (c *windowCall) extremes(ctx context.Context, p *partition, result *colStore) error {
	v := p.w.column(c.call.Args[0])
	largest := c.call.Func == planner.WindowFunc(planner.Max) || c.call.Func == planner.WindowFunc(planner.BoolOr)
	in := arrow.NewSchema([]arrow.Field{{Type: v.Type, Nullable: true}}, nil)
	coder, err := newSortKeyCoder(in, []planner.SortKey{{Descending: largest}})
	if err != nil {
		return err
	}
	var keys sortKeys
	defer func() { keys.free(c.acct) }()
	if err := coder.encode(&keys, []*columnar.Vector{v}, p.w.iota[p.lo:p.hi], p.rows(), c.acct); err != nil {
		return err
	}
	picks, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, picks)
	queue, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, queue)
	head, tail := 0, 0 // the queue is queue[head:tail]; each row enters it once
	next := p.lo
	for i := range picks {
		if i%columnar.BatchRows == 0 {
			if err := canceled(ctx); err != nil {
				return err
			}
		}
		s, e, err := c.frame.of(p, p.lo+i)
		if err != nil {
			return err
		}
		for next = max(next, s); next < e; next++ {
			if v.IsNull(next) {
				continue
			}
			key := keys.key(next - p.lo)
			for tail > head && bytes.Compare(keys.key(int(queue[tail-1])-p.lo), key) >= 0 {
				tail--
			}
			queue[tail] = int32(next)
			tail++
		}
		for tail > head && int(queue[head]) < s {
			head++
		}
		picks[i] = pickNull
		if tail > head && s < e {
			picks[i] = queue[head]
		}
	}
	return c.pick(p, picks, result)
}

// running folds the rows by which a frame is larger than that of the row
// before, and starts over where it is not.
func (c *windowCall) running(ctx context.Context, p *partition, result *colStore) error {
	defer c.state.free()
	var last, spans []span
	fresh := true
	for row := p.lo; row < p.hi; row++ {
		if err := canceled(ctx); err != nil {
			return err
		}
		var err error
		if spans, err = c.frame.spans(p, row, spans); err != nil {
			return err
		}
		from := 0 // spans before it are folded already
		grows := !fresh && len(spans) == 1 && len(last) == 1 && spans[0].s == last[0].s && spans[0].e >= last[0].e
		same := grows && spans[0].e == last[0].e
		if grows {
			from = last[0].e
		} else {
			c.state.free()
			if err := c.state.reserve(1); err != nil {
				return err
			}
		}
		for _, s := range spans {
			if s.s = max(s.s, from); s.s < s.e {
				if err := c.state.fold(c.batch(p, s.s, s.e), nil); err != nil {
					return err
				}
			}
		}
		if !same {
			if err := c.state.emitResult(0, 1, &c.value); err != nil {
				return err
			}
		}
		if err := result.append(&c.value, nil, 1); err != nil {
			return err
		}
		last, spans, fresh = spans, last, false
	}
	return nil
}

// shrinking is running from the last row to the first, for frames that end with
// the partition.
func (c *windowCall) shrinking(ctx context.Context, p *partition, result *colStore) error {
	defer c.state.free()
	if err := c.state.reserve(1); err != nil {
		return err
	}
	backward, err := newColStore(c.out, c.acct)
	if err != nil {
		return err
	}
	defer backward.free()
	from := p.hi
	order, err := c.picks(p)
	if err != nil {
		return err
	}
	defer freeSlice(c.acct, order)
	for row := p.hi - 1; row >= p.lo; row-- {
		if err := canceled(ctx); err != nil {
			return err
		}
		s, _, err := c.frame.of(p, row)
		if err != nil {
			return err
		}
		if s < from {
			if err := c.state.fold(c.batch(p, s, from), nil); err != nil {
				return err
			}
			from = s
		}
		order[row-p.lo] = int32(p.hi - 1 - row)
		if err := c.state.emitResult(0, 1, &c.value); err != nil {
			return err
		}
		if err := backward.append(&c.value, nil, 1); err != nil {
			return err
		}
	}
	values := &columnar.Vector{Type: c.out}
	backward.view(0, backward.n, values)
	return result.append(values, order, len(order))
}
