package exec

import (
	"bytes"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// windowOp computes window functions. Its input is sorted by partition and
// order keys; it gathers whole partitions, as many as make a good batch, and
// emits them in that order. A partition that does not fit in memory overflows
// to mapped files, column by column.
type windowOp struct {
	input  Operator // sorted
	op     *planner.WindowOp
	schema *arrow.Schema
	acct   *Account
	calls  []*windowCall

	store   *rowStore
	bounds  []rowBound // by stored row
	parts   *keyWatch
	peers   *keyWatch
	ended   bool
	closed  bool
	ready   int // rows of the store that have results
	at      int // of these, emitted
	results []*colStore
	views   []*columnar.Vector // whole columns of the complete rows, made on demand
	iota    []int32            // row numbers, as many as have been needed
	chunk   []int32
	out     columnar.Batch
}

// rowBound says whether a row begins a partition or a group of peers.
type rowBound uint8

const (
	sameGroup rowBound = iota
	newPeers
	newPartition
)

func newWindow(input Operator, op *planner.WindowOp, env *Env) (Operator, error) {
	in := input.Schema()
	w := &windowOp{op: op, schema: physicalSchema(op.Schema), acct: env.overflowAccount("window functions")}
	if err := checkOrdinals("PARTITION BY", op.PartitionBy, in); err != nil {
		return nil, err
	}
	var byParts []planner.SortKey
	for _, c := range op.PartitionBy {
		byParts = append(byParts, planner.SortKey{Column: c})
	}
	var err error
	if w.parts, err = newKeyWatch(in, byParts, w.acct); err != nil {
		return nil, err
	}
	if w.peers, err = newKeyWatch(in, op.OrderBy, w.acct); err != nil {
		return nil, err
	}
	if w.schema.NumFields() != in.NumFields()+len(op.Calls) {
		return nil, malformed("a window of %d columns and %d calls has an output schema of %d", in.NumFields(), len(op.Calls), w.schema.NumFields())
	}
	for i, f := range in.Fields() {
		if !arrow.TypeEqual(f.Type, w.schema.Field(i).Type) {
			return nil, malformed("window output %s has type %s instead of %s", f.Name, w.schema.Field(i).Type, f.Type)
		}
	}
	for i := range op.Calls {
		c, err := newWindowCall(&op.Calls[i], op, in, w.schema.Field(in.NumFields()+i).Type, w.acct)
		if err != nil {
			return nil, err
		}
		w.calls = append(w.calls, c)
	}
	if w.store, err = newRowStore(in, w.acct); err != nil {
		return nil, err
	}
	w.input = input
	if keys := append(byParts, op.OrderBy...); len(keys) > 0 {
		if w.input, err = newSort(input, keys, env); err != nil {
			return nil, err
		}
	}
	w.out.Cols = outVectors(w.schema)
	w.views = make([]*columnar.Vector, in.NumFields())
	return w, nil
}

func (w *windowOp) Schema() *arrow.Schema { return w.schema }

func (w *windowOp) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.store, w.results, w.bounds, w.views, w.iota = nil, nil, nil, nil, nil
	w.acct.Close()
	return w.input.Close()
}

func (w *windowOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		if err := canceled(ctx); err != nil {
			return nil, err
		}
		if w.at < w.ready {
			return w.emit(), nil
		}
		if err := w.dropReady(); err != nil {
			return nil, err
		}
		if w.ended && w.store.rows == 0 {
			return nil, nil
		}
		if err := w.gather(ctx); err != nil {
			return nil, err
		}
		if err := w.compute(ctx); err != nil {
			return nil, err
		}
	}
}

func (w *windowOp) emit() *columnar.Batch {
	lo, hi := w.at, min(w.at+columnar.BatchRows, w.ready)
	w.at = hi
	n := len(w.store.cols)
	w.store.view(lo, hi, w.out.Cols[:n])
	for i, r := range w.results {
		r.view(lo, hi, w.out.Cols[n+i])
	}
	w.out.Len = hi - lo
	return &w.out
}

// dropReady forgets the partitions that have been emitted and keeps the rows
// of the one that is not complete.
func (w *windowOp) dropReady() error {
	if w.ready == 0 {
		return nil
	}
	rest := w.store.successor()
	out := outVectors(w.input.Schema())
	for lo := w.ready; lo < w.store.rows; lo += columnar.BatchRows {
		hi := min(lo+columnar.BatchRows, w.store.rows)
		w.chunk = appendRange(w.chunk[:0], lo, hi)
		w.store.gather(w.chunk, out)
		if err := rest.append(out, nil, hi-lo); err != nil {
			return err
		}
	}
	w.store.free()
	w.store = rest
	w.bounds = w.bounds[:copy(w.bounds, w.bounds[w.ready:])]
	for _, r := range w.results {
		r.free()
	}
	w.results = nil
	clear(w.views)
	w.ready, w.at = 0, 0
	return nil
}

// gather reads until the store has enough complete partitions, and counts
// their rows in ready.
func (w *windowOp) gather(ctx context.Context) error {
	for !w.ended {
		b, err := w.input.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			w.ended = true
			break
		}
		if b.Rows() == 0 {
			continue
		}
		if err := w.add(b); err != nil {
			return err
		}
		if w.store.rows < columnar.BatchRows {
			continue
		}
		for row := w.store.rows - 1; row > 0; row-- {
			if w.bounds[row] == newPartition {
				w.ready = row
				return nil
			}
		}
	}
	w.ready = w.store.rows
	return nil
}

// add stores a batch and finds where partitions and peers begin.
func (w *windowOp) add(b *columnar.Batch) error {
	if err := checkKeyCount(w.store.rows + b.Rows()); err != nil {
		return err
	}
	var err error
	if w.bounds, err = growSlice(w.acct, w.bounds, b.Rows()); err != nil {
		return err
	}
	at := len(w.bounds)
	w.bounds = w.bounds[:at+b.Rows()]
	clear(w.bounds[at:])
	if err := w.peers.mark(b, w.bounds[at:], newPeers); err != nil {
		return err
	}
	if err := w.parts.mark(b, w.bounds[at:], newPartition); err != nil {
		return err
	}
	return w.store.append(b.Cols, b.Sel, b.Len)
}

// keyWatch finds the rows whose key differs from that of the row before.
type keyWatch struct {
	coder *sortKeyCoder
	keys  sortKeys
	last  []byte
	any   bool
	acct  *Account
}

func newKeyWatch(schema *arrow.Schema, keys []planner.SortKey, acct *Account) (*keyWatch, error) {
	coder, err := newSortKeyCoder(schema, keys)
	return &keyWatch{coder: coder, acct: acct}, err
}

func (k *keyWatch) mark(b *columnar.Batch, bounds []rowBound, mark rowBound) error {
	if !k.any {
		bounds[0] = mark
	}
	if len(k.coder.keys) == 0 {
		k.any = true
		return nil
	}
	k.keys.reset()
	if err := k.coder.encode(&k.keys, b.Cols, b.Sel, b.Len, k.acct); err != nil {
		return err
	}
	last := k.last
	for i := range bounds {
		key := k.keys.key(i)
		if !k.any || !bytes.Equal(key, last) {
			bounds[i] = mark
		}
		k.any, last = true, key
	}
	k.last = append(k.last[:0], last...)
	return nil
}

// compute fills results for the complete rows.
func (w *windowOp) compute(ctx context.Context) error {
	var err error
	if w.iota, err = growSlice(w.acct, w.iota, max(0, w.ready-len(w.iota))); err != nil {
		return err
	}
	w.iota = appendRange(w.iota, len(w.iota), w.ready)
	for _, c := range w.calls {
		result, err := newColStore(c.out, w.acct)
		if err != nil {
			return err
		}
		w.results = append(w.results, result)
		for lo := 0; lo < w.ready; {
			if err := canceled(ctx); err != nil {
				return err
			}
			hi := lo + 1
			for hi < w.ready && w.bounds[hi] != newPartition {
				hi++
			}
			p := &partition{w: w, lo: lo, hi: hi}
			err := c.run(ctx, p, result)
			p.free()
			if err != nil {
				return err
			}
			lo = hi
		}
		if result.n != w.ready {
			return malformed("window function %s made %d values for %d rows", c.call.Func, result.n, w.ready)
		}
	}
	return nil
}

// column is a whole column of the store as a vector that is valid until the
// partitions are dropped.
func (w *windowOp) column(c int) *columnar.Vector {
	if w.views[c] == nil {
		v := &columnar.Vector{Type: w.store.cols[c].typ}
		w.store.cols[c].view(0, w.ready, v)
		w.views[c] = v
	}
	return w.views[c]
}

// partition is rows [lo, hi) of a windowOp's store.
type partition struct {
	w      *windowOp
	lo, hi int
	peers  []int32 // first rows of the groups of peers, then hi; made on demand
	group  []int32 // by row - lo: its group of peers
	keys   *rangeKeys
}

func (p *partition) rows() int { return p.hi - p.lo }

// free gives back what was made on demand.
func (p *partition) free() {
	p.group, p.peers = freeSlice(p.w.acct, p.group), freeSlice(p.w.acct, p.peers)
	if p.keys != nil {
		p.keys.keys = freeSlice(p.w.acct, p.keys.keys)
	}
}

// groups finds the groups of peers.
func (p *partition) groups() error {
	if p.peers != nil {
		return nil
	}
	groups := 1
	for row := p.lo + 1; row < p.hi; row++ {
		if p.w.bounds[row] != sameGroup {
			groups++
		}
	}
	var err error
	if p.group, err = growSlice[int32](p.w.acct, nil, p.rows()); err != nil {
		return err
	}
	if p.peers, err = growSlice[int32](p.w.acct, nil, groups+1); err != nil {
		return err
	}
	p.group = p.group[:p.rows()]
	for row := p.lo; row < p.hi; row++ {
		if row == p.lo || p.w.bounds[row] != sameGroup {
			p.peers = append(p.peers, int32(row))
		}
		p.group[row-p.lo] = int32(len(p.peers) - 1)
	}
	p.peers = append(p.peers, int32(p.hi))
	return nil
}

// peersOf are the first peer of a row and the one after the last.
func (p *partition) peersOf(row int) (int, int, error) {
	if err := p.groups(); err != nil {
		return 0, 0, err
	}
	g := p.group[row-p.lo]
	return int(p.peers[g]), int(p.peers[g+1]), nil
}

// appendRange appends the numbers [lo, hi).
func appendRange(dst []int32, lo, hi int) []int32 {
	for row := lo; row < hi; row++ {
		dst = append(dst, int32(row))
	}
	return dst
}

// windowCall is one function, prepared.
type windowCall struct {
	call  *planner.WindowCall
	out   arrow.DataType
	frame *framer
	state aggState // of aggregates
	exact bool     // sums that can be taken apart again
	order bool     // a smallest or greatest value
	acct  *Account
	value columnar.Vector // scratch: one result
}

func newWindowCall(call *planner.WindowCall, op *planner.WindowOp, in *arrow.Schema, out arrow.DataType, acct *Account) (*windowCall, error) {
	c := &windowCall{call: call, out: out, acct: acct, value: columnar.Vector{Type: out}}
	if err := checkOrdinals(string(call.Func), call.Args, in); err != nil {
		return nil, err
	}
	want, args := out, 0
	switch call.Func {
	case planner.RowNumber, planner.Rank, planner.DenseRank:
		want = catalog.BigInt
	case planner.PercentRank, planner.CumeDist:
		want = catalog.Double
	case planner.Ntile:
		args = 1
		if want = catalog.BigInt; out.ID() == arrow.INT32 {
			want = out
		}
	case planner.Lag, planner.Lead:
		args = 3
	case planner.FirstValue, planner.LastValue:
		args = 1
	case planner.NthValue:
		args = 2
	default:
		return c, c.prepareAggregate(op, in)
	}
	if len(call.Args) != args {
		return nil, malformed("window function %s has %d arguments", call.Func, len(call.Args))
	}
	switch call.Func {
	case planner.Lag, planner.Lead, planner.FirstValue, planner.LastValue, planner.NthValue:
		want = in.Field(call.Args[0]).Type
	}
	if !arrow.TypeEqual(want, out) {
		return nil, malformed("window function %s has type %s instead of %s", call.Func, out, want)
	}
	var err error
	c.frame, err = newFramer(call.Frame, op.OrderBy, in)
	return c, err
}

func (c *windowCall) prepareAggregate(op *planner.WindowOp, in *arrow.Schema) error {
	agg := planner.AggCall{Func: planner.AggFunc(c.call.Func), Arg: -1, DataType: c.call.DataType, Name: c.call.Name}
	if len(c.call.Args) > 0 {
		agg.Arg, agg.Args = c.call.Args[0], c.call.Args[1:]
	}
	var err error
	if c.state, err = completeState(agg, in, c.out, c.acct, c.acct); err != nil {
		return err
	}
	final := &aggregateOp{schema: arrow.NewSchema([]arrow.Field{{Name: c.call.Name, Type: c.out}}, nil), final: true}
	if err := final.checkOutput(aggOutput{state: c.state, width: 1}); err != nil {
		return err
	}
	switch c.state.(type) {
	case *countState, *exactSumState:
		c.exact = true
	}
	switch agg.Func {
	case planner.Min, planner.Max, planner.BoolAnd, planner.BoolOr:
		c.order = true
	}
	if c.frame, err = newFramer(c.call.Frame, op.OrderBy, in); err != nil {
		return fmt.Errorf("preparing window function %s: %w", c.call.Func, err)
	}
	return nil
}
