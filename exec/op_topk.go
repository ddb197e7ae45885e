package exec

import (
	"bytes"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// topKOp keeps the first k rows of its input in key order and emits them
// sorted. Rows with equal keys rank in the order of their arrival. It keeps at
// most about twice k rows: candidates that beat the worst of the best k rows
// known so far gather until they are many enough to be pruned.
type topKOp struct {
	input     Operator
	k         int
	coder     *sortKeyCoder // of all keys
	first     *sortKeyCoder // of those that most rows are told apart by; nil when these are all
	acct      *Account
	store     *rowStore // candidates, in order of arrival
	keys      sortKeys  // of the candidates
	scratch   sortKeys  // of the current batch
	threshold []byte    // key that a new row must be below, nil while unknown
	bar       []byte    // the same row's first keys, which a new row must not be above
	passed    []int32   // rows of the batch that are not
	sel       []int32
	pos       []int32
	done      bool
	at        int
	closed    bool
	out       columnar.Batch
}

// rankTies appends sort keys for the rows that keys do not tell apart: tablet and
// row id where the rows have them, else all other columns that have an order, so
// that rows which still tie are the same in all of them.
func rankTies(keys []planner.SortKey, schema *arrow.Schema) []planner.SortKey {
	ranked := slices.Clone(keys)
	tablet, rowID := schema.FieldIndices(planner.TabletName), schema.FieldIndices(planner.RowIDName)
	if len(tablet) == 1 && len(rowID) == 1 {
		return append(ranked, planner.SortKey{Column: tablet[0]}, planner.SortKey{Column: rowID[0]})
	}
	for c := range schema.NumFields() {
		key := planner.SortKey{Column: c}
		if slices.ContainsFunc(keys, func(k planner.SortKey) bool { return k.Column == c }) {
			continue
		}
		if _, err := newSortKeyCoder(schema, []planner.SortKey{key}); err == nil {
			ranked = append(ranked, key)
		}
	}
	return ranked
}

// topKOrder is the whole order of a top-k over rows of a schema.
func topKOrder(op *planner.TopK, schema *arrow.Schema) []planner.SortKey {
	if len(op.Ties) > 0 {
		return slices.Concat(op.Keys, op.Ties)
	}
	return rankTies(op.Keys, schema)
}

// newTopK returns the first k rows in the order of keys, of which the first few
// are enough to pass over most rows.
func newTopK(input Operator, keys []planner.SortKey, few int, k int64, env *Env) (Operator, error) {
	coder, err := newSortKeyCoder(input.Schema(), keys)
	if err != nil {
		return nil, err
	}
	if k <= 0 {
		return newLimit(input, 0, 0), nil
	}
	if k >= 1<<30 {
		sorted, err := newSort(input, keys, env)
		if err != nil {
			return nil, err
		}
		return newLimit(sorted, k, 0), nil
	}
	t := &topKOp{input: input, k: int(k), coder: coder, acct: env.overflowAccount("top-k")}
	if few < len(keys) {
		if t.first, err = newSortKeyCoder(input.Schema(), keys[:few]); err != nil {
			return nil, err
		}
	}
	if t.store, err = newRowStore(input.Schema(), t.acct); err != nil {
		return nil, err
	}
	t.out.Cols = outVectors(input.Schema())
	return t, nil
}

func (t *topKOp) Schema() *arrow.Schema { return t.input.Schema() }

func (t *topKOp) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.store, t.keys, t.scratch = nil, sortKeys{}, sortKeys{}
	t.acct.Close()
	return t.input.Close()
}

func (t *topKOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !t.done {
		if err := t.consume(ctx); err != nil {
			return nil, err
		}
		t.done = true
	}
	n := min(t.store.rows-t.at, columnar.BatchRows)
	if n == 0 {
		return nil, nil
	}
	t.store.view(t.at, t.at+n, t.out.Cols)
	t.out.Len = n
	t.at += n
	return &t.out, nil
}

func (t *topKOp) consume(ctx context.Context) error {
	pruneAt := t.k + max(t.k, columnar.BatchRows)
	for {
		b, err := t.input.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			return t.prune(ctx)
		}
		if err := t.add(b); err != nil {
			return err
		}
		if t.store.rows >= pruneAt {
			if err := t.prune(ctx); err != nil {
				return err
			}
		}
	}
}

// add appends the rows of a batch that may be among the best k.
func (t *topKOp) add(b *columnar.Batch) error {
	sel := b.Sel
	if t.first != nil && t.threshold != nil {
		var err error
		if sel, err = t.pass(b); len(sel) == 0 || err != nil {
			return err
		}
	}
	t.scratch.reset()
	if err := t.coder.encode(&t.scratch, b.Cols, sel, b.Len, t.acct); err != nil {
		return err
	}
	t.sel, t.pos = t.sel[:0], t.pos[:0]
	limit := keyWord(t.threshold, 0)
	for i := range t.scratch.ends {
		if t.threshold != nil {
			if w := t.scratch.word(i, 0); w > limit || w == limit && bytes.Compare(t.scratch.key(i), t.threshold) >= 0 {
				continue
			}
		}
		t.sel = append(t.sel, int32(rowAt(sel, i)))
		t.pos = append(t.pos, int32(i))
	}
	if len(t.sel) == 0 {
		return nil
	}
	if err := t.store.append(b.Cols, t.sel, len(t.sel)); err != nil {
		return err
	}
	return t.keepKeys(&t.scratch, t.pos)
}

// pass returns the rows of a batch whose first keys are not above the bar.
func (t *topKOp) pass(b *columnar.Batch) ([]int32, error) {
	t.scratch.reset()
	if err := t.first.encode(&t.scratch, b.Cols, b.Sel, b.Len, t.acct); err != nil {
		return nil, err
	}
	t.passed = t.passed[:0]
	limit := keyWord(t.bar, 0)
	for i := range t.scratch.ends {
		if w := t.scratch.word(i, 0); w < limit || w == limit && bytes.Compare(t.scratch.key(i), t.bar) <= 0 {
			t.passed = append(t.passed, int32(rowAt(b.Sel, i)))
		}
	}
	return t.passed, nil
}

// setBar raises the threshold to the k-th of the rows that are kept.
func (t *topKOp) setBar() error {
	t.threshold = append(t.threshold[:0], t.keys.key(t.k-1)...)
	if t.first == nil {
		return nil
	}
	t.store.view(t.k-1, t.k, t.out.Cols)
	t.scratch.reset()
	if err := t.first.encode(&t.scratch, t.out.Cols, nil, 1, t.acct); err != nil {
		return err
	}
	t.bar = append(t.bar[:0], t.scratch.key(0)...)
	t.out.Cols = outVectors(t.input.Schema()) // what view shows is the store's
	return nil
}

// keepKeys appends the keys at pos to those of the candidates.
func (t *topKOp) keepKeys(from *sortKeys, pos []int32) error {
	size := 0
	for _, i := range pos {
		size += len(from.key(int(i)))
	}
	var err error
	if t.keys.data, err = growSlice(t.acct, t.keys.data, size); err != nil {
		return err
	}
	if t.keys.ends, err = growSlice(t.acct, t.keys.ends, len(pos)); err != nil {
		return err
	}
	for _, i := range pos {
		t.keys.data = append(t.keys.data, from.key(int(i))...)
		t.keys.ends = append(t.keys.ends, int64(len(t.keys.data)))
	}
	return nil
}

// prune sorts the candidates and keeps the best k. That the kept rows are then
// in key order does not disturb ties: among equal keys it is still the order
// of arrival.
func (t *topKOp) prune(ctx context.Context) error {
	n := t.store.rows
	work := sortSpace{acct: t.acct}
	defer work.free()
	if err := work.alloc(n); err != nil {
		return err
	}
	for i := range work.entries {
		work.entries[i] = sortEntry{word: t.keys.word(i, 0), row: int32(i)}
	}
	if err := sortEntries(ctx, work.entries, work.scratch, &t.keys); err != nil {
		return err
	}
	keep := min(n, t.k)
	rows := make([]int32, keep)
	for i := range rows {
		rows[i] = work.entries[i].row
	}
	if err := t.replace(rows); err != nil {
		return err
	}
	if keep == t.k {
		return t.setBar()
	}
	return nil
}

// replace makes the candidates the given ones of the present ones.
func (t *topKOp) replace(rows []int32) error {
	old, oldKeys := t.store, t.keys
	store, err := newRowStore(t.input.Schema(), t.acct)
	if err != nil {
		return err
	}
	t.store, t.keys = store, sortKeys{}
	for lo := 0; lo < len(rows); lo += columnar.BatchRows {
		part := rows[lo:min(lo+columnar.BatchRows, len(rows))]
		old.gather(part, t.out.Cols)
		if err := t.store.append(t.out.Cols, nil, len(part)); err != nil {
			return err
		}
	}
	if err := t.keepKeys(&oldKeys, rows); err != nil {
		return err
	}
	old.free()
	oldKeys.free(t.acct)
	return nil
}
