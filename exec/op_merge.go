package exec

import (
	"bytes"
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// mergeOp merges sorted inputs into one sorted stream. Equal keys come out in
// the order of the inputs. Every input runs in a goroutine of its own, at most
// one batch ahead; the context of the first Next governs them.
type mergeOp struct {
	crew
	acct   *Account
	heads  []*mergeHead
	heap   []*mergeHead // by key, then by input; the smallest first
	coder  *sortKeyCoder
	store  *rowStore // rows of the output batch, by the turn they were copied in
	turns  []int32   // input of each output row that is not copied yet
	perm   []int32   // row in store of each copied output row
	plain  bool      // perm is 0, 1, 2, ...
	left   int64     // rows still to emit, -1 for all
	closed bool
	out    columnar.Batch
}

// mergeHead is the read position in one input.
type mergeHead struct {
	input   int
	batch   *columnar.Batch
	keys    sortKeys
	at      int    // position in the selection
	word    uint64 // first bytes of the key at that position
	pending []int32
	copied  int32 // row in store of the first pending row, while copying
}

// newMerge merges inputs, which are sorted by keys; limit -1 keeps all rows.
func newMerge(inputs []Operator, keys []planner.SortKey, limit int64, budget *Budget) (Operator, error) {
	if len(inputs) == 1 {
		if limit < 0 {
			return inputs[0], nil
		}
		return newLimit(inputs[0], limit, 0), nil
	}
	schema := inputs[0].Schema()
	coder, err := newSortKeyCoder(schema, keys)
	if err != nil {
		return nil, err
	}
	m := &mergeOp{crew: crew{inputs: inputs}, coder: coder, left: max(-1, limit), acct: budget.workingAccount("merge")}
	if m.store, err = newRowStore(schema, m.acct); err != nil {
		return nil, err
	}
	for i := range inputs {
		m.heads = append(m.heads, &mergeHead{input: i})
	}
	m.out.Cols = outVectors(schema)
	return m, nil
}

func (m *mergeOp) Schema() *arrow.Schema { return m.inputs[0].Schema() }

func (m *mergeOp) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	err := m.stop()
	m.acct.Close()
	return err
}

func (m *mergeOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if m.left == 0 {
		return nil, m.Close()
	}
	if !m.started() {
		m.start(ctx, false)
		for _, h := range m.heads {
			if err := m.refill(ctx, h); err != nil {
				return nil, err
			}
			m.push(h)
		}
	}
	m.store.reset()
	m.perm, m.plain = m.perm[:0], true
	want := columnar.BatchRows
	if m.left >= 0 {
		want = int(min(int64(want), m.left))
	}
	if err := m.collect(ctx, want); err != nil {
		return nil, err
	}
	if len(m.perm) == 0 {
		return nil, nil
	}
	if m.left >= 0 {
		m.left -= int64(len(m.perm))
	}
	if m.plain {
		m.store.view(0, m.store.rows, m.out.Cols)
	} else {
		m.unshare()
		m.store.gather(m.perm, m.out.Cols)
	}
	m.out.Len = len(m.perm)
	return &m.out, nil
}

// unshare drops output buffers that an earlier batch shared with the store.
func (m *mergeOp) unshare() {
	for i, v := range m.out.Cols {
		if columnar.Width(v.Type) > 0 {
			m.out.Cols[i] = &columnar.Vector{Type: v.Type}
		}
	}
}

// collect copies the next want rows, or all that are left, to the store.
func (m *mergeOp) collect(ctx context.Context, want int) error {
	for len(m.perm)+len(m.turns) < want && len(m.heap) > 0 {
		h := m.heap[0]
		h.pending = append(h.pending, int32(rowAt(h.batch.Sel, h.at)))
		m.turns = append(m.turns, int32(h.input))
		h.at++
		if h.at < len(h.keys.ends) {
			h.word = h.keys.word(h.at, 0)
			m.sink(0)
			continue
		}
		// The batch is about to be given back: copy what was taken from it.
		if err := m.copyPending(); err != nil {
			return err
		}
		if err := m.refill(ctx, h); err != nil {
			return err
		}
		if h.batch == nil {
			last := len(m.heap) - 1
			m.heap[0] = m.heap[last]
			m.heap = m.heap[:last]
		}
		m.sink(0)
	}
	return m.copyPending()
}

// copyPending appends the chosen rows to the store, input by input, and notes
// in perm where each output row went.
func (m *mergeOp) copyPending() error {
	sources := 0
	for _, h := range m.heads {
		if len(h.pending) == 0 {
			continue
		}
		sources++
		h.copied = int32(m.store.rows)
		if err := m.store.append(h.batch.Cols, h.pending, len(h.pending)); err != nil {
			return err
		}
		h.pending = h.pending[:0]
	}
	m.plain = m.plain && sources <= 1
	for _, lane := range m.turns {
		h := m.heads[lane]
		m.perm = append(m.perm, h.copied)
		h.copied++
	}
	m.turns = m.turns[:0]
	return nil
}

// refill fetches the next batch of an input; at its end the batch is nil.
func (m *mergeOp) refill(ctx context.Context, h *mergeHead) error {
	if h.batch != nil {
		m.giveBack(h.input)
	}
	d, err := m.receive(ctx, m.lanes[h.input].ready)
	if err != nil {
		return err
	}
	h.batch, h.at = d.batch, 0
	if h.batch == nil {
		return nil
	}
	h.keys.reset()
	if err := m.coder.encode(&h.keys, h.batch.Cols, h.batch.Sel, h.batch.Len, m.acct); err != nil {
		return err
	}
	h.word = h.keys.word(0, 0)
	return nil
}

func (m *mergeOp) less(a, b *mergeHead) bool {
	if a.word != b.word {
		return a.word < b.word
	}
	if c := bytes.Compare(a.keys.key(a.at), b.keys.key(b.at)); c != 0 {
		return c < 0
	}
	return a.input < b.input
}

// push adds a head that has a row to the heap.
func (m *mergeOp) push(h *mergeHead) {
	if h.batch == nil {
		return
	}
	m.heap = append(m.heap, h)
	for i := len(m.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.less(m.heap[i], m.heap[parent]) {
			break
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

// sink restores the heap after the head at i has moved on.
func (m *mergeOp) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if m.less(m.heap[child], m.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}
