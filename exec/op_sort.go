package exec

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// sortOp reads its whole input, orders the rows and emits them. The sort is
// stable. All memory is reserved from the budget.
type sortOp struct {
	input  Operator
	coder  *sortKeyCoder
	acct   *Account
	store  *rowStore
	order  []int32
	sorted bool
	at     int
	closed bool
	out    columnar.Batch
}

func newSort(input Operator, keys []planner.SortKey, budget *Budget) (Operator, error) {
	coder, err := newSortKeyCoder(input.Schema(), keys)
	if err != nil {
		return nil, err
	}
	s := &sortOp{input: input, coder: coder, acct: budget.Account("sort")}
	if s.store, err = newRowStore(input.Schema(), s.acct); err != nil {
		return nil, err
	}
	s.out.Cols = outVectors(input.Schema())
	return s, nil
}

func (s *sortOp) Schema() *arrow.Schema { return s.input.Schema() }

func (s *sortOp) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.store, s.order = nil, nil
	s.acct.Close()
	return s.input.Close()
}

func (s *sortOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !s.sorted {
		if err := s.consume(ctx); err != nil {
			return nil, err
		}
		s.sorted = true
	}
	n := min(len(s.order)-s.at, columnar.BatchRows)
	if n == 0 {
		return nil, nil
	}
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	s.store.gather(s.order[s.at:s.at+n], s.out.Cols)
	s.out.Len = n
	s.at += n
	return &s.out, nil
}

func (s *sortOp) consume(ctx context.Context) error {
	for {
		b, err := s.input.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if err := checkKeyCount(s.store.rows + b.Rows()); err != nil {
			return err
		}
		if err := s.store.append(b.Cols, b.Sel, b.Len); err != nil {
			return err
		}
	}
	return s.sort(ctx)
}

// sort fills order.
func (s *sortOp) sort(ctx context.Context) error {
	work := sortSpace{acct: s.acct}
	defer work.free()
	if err := work.alloc(s.store.rows); err != nil {
		return err
	}
	keys, err := s.encode(ctx, work.entries)
	if err != nil {
		return err
	}
	sortEntries(work.entries, work.scratch, keys)
	if s.order, err = growSlice[int32](s.acct, nil, len(work.entries)); err != nil {
		return err
	}
	for _, e := range work.entries {
		s.order = append(s.order, e.row)
	}
	keys.free(s.acct)
	return nil
}

// encode computes the key of every stored row. Keys of at most 8 bytes are
// wholly in the entries' words, and the result is nil.
func (s *sortOp) encode(ctx context.Context, entries []sortEntry) (*sortKeys, error) {
	for i, k := range s.coder.keys {
		s.coder.nullable[i] = s.store.cols[k.Column].valid != nil
	}
	width := s.coder.fixedWidth()
	short := width > 0 && width <= 8
	keys := &sortKeys{}
	cols := outVectors(s.input.Schema())
	for lo := 0; lo < s.store.rows; lo += columnar.BatchRows {
		if err := canceled(ctx); err != nil {
			return nil, err
		}
		hi := min(lo+columnar.BatchRows, s.store.rows)
		for _, k := range s.coder.keys {
			s.store.cols[k.Column].view(lo, hi, cols[k.Column])
		}
		if short {
			keys.reset()
		}
		base := len(keys.ends)
		if err := s.coder.encode(keys, cols, nil, hi-lo, s.acct); err != nil {
			return nil, err
		}
		for i := range hi - lo {
			entries[lo+i] = sortEntry{word: keys.word(base+i, 0), row: int32(lo + i)}
		}
	}
	if short {
		keys.free(s.acct)
		keys = nil
	}
	return keys, nil
}

// sortSpace is the working memory of one sort.
type sortSpace struct {
	acct             *Account
	entries, scratch []sortEntry
}

func (w *sortSpace) alloc(n int) error {
	var err error
	if w.entries, err = growSlice[sortEntry](w.acct, nil, n); err != nil {
		return err
	}
	w.entries = w.entries[:n]
	if w.scratch, err = growSlice[sortEntry](w.acct, nil, n); err != nil {
		return err
	}
	w.scratch = w.scratch[:n]
	return nil
}

func (w *sortSpace) free() {
	w.entries = freeSlice(w.acct, w.entries)
	w.scratch = freeSlice(w.acct, w.scratch)
}

// sortEntry is one row to be sorted: 8 bytes of its key and its number, which
// is also its place in the order of arrival.
type sortEntry struct {
	word uint64
	row  int32
}

const (
	radixMinimum  = 512 // shorter runs are sorted by comparing
	radixMaxDepth = 6   // words compared by radix before whole keys are
)

// sortEntries orders entries, which are in row order, by key and row. keys is
// indexed by row, or nil when the words hold the whole key.
func sortEntries(entries, scratch []sortEntry, keys *sortKeys) {
	sortWords(entries, scratch)
	if keys != nil {
		sortTies(entries, scratch, keys, 1)
	}
}

// sortTies orders the runs of equal words by the rest of their keys, of which
// the first depth words are known to be equal within a run.
func sortTies(entries, scratch []sortEntry, keys *sortKeys, depth int) {
	for lo := 0; lo < len(entries); {
		hi := lo + 1
		for hi < len(entries) && entries[hi].word == entries[lo].word {
			hi++
		}
		run := entries[lo:hi]
		lo = hi
		if len(run) == 1 || len(keys.key(int(run[0].row))) <= depth*8 {
			continue
		}
		if depth >= radixMaxDepth {
			slices.SortFunc(run, func(a, b sortEntry) int {
				c := bytes.Compare(keys.key(int(a.row))[depth*8:], keys.key(int(b.row))[depth*8:])
				return cmp.Or(c, cmp.Compare(a.row, b.row))
			})
			continue
		}
		for i := range run {
			run[i].word = keys.word(int(run[i].row), depth)
		}
		sortWords(run, scratch[:len(run)])
		sortTies(run, scratch, keys, depth+1)
	}
}

// sortWords orders entries, which are in row order, by word and row: by
// least-significant-digit radix sort, skipping bytes that are the same in all.
func sortWords(entries, scratch []sortEntry) {
	if len(entries) < radixMinimum {
		slices.SortFunc(entries, func(a, b sortEntry) int {
			return cmp.Or(cmp.Compare(a.word, b.word), cmp.Compare(a.row, b.row))
		})
		return
	}
	var counts [8][256]int32
	for _, e := range entries {
		for d := range counts {
			counts[d][byte(e.word>>(8*d))]++
		}
	}
	from, to := entries, scratch
	for d := range counts {
		shift := 8 * d
		if counts[d][byte(from[0].word>>shift)] == int32(len(from)) {
			continue
		}
		sum := int32(0)
		for i, n := range counts[d] {
			counts[d][i] = sum
			sum += n
		}
		for _, e := range from {
			at := &counts[d][byte(e.word>>shift)]
			to[*at] = e
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &entries[0] {
		copy(entries, from)
	}
}
