package exec

import (
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// sortOp reads its whole input, orders the rows and emits them. The sort is
// stable. All memory is reserved from the budget; when it runs out, what has
// come so far is sorted and put on disk as a run, and the runs are merged.
type sortOp struct {
	input  Operator
	keys   []planner.SortKey
	coder  *sortKeyCoder
	env    *Env
	acct   *Account
	store  *rowStore
	order  []int32
	runs   []*spillFile
	merge  Operator // of the runs
	sorted bool
	at     int
	closed bool
	out    columnar.Batch
}

func newSort(input Operator, keys []planner.SortKey, env *Env) (Operator, error) {
	coder, err := newSortKeyCoder(input.Schema(), keys)
	if err != nil {
		return nil, err
	}
	s := &sortOp{input: input, keys: keys, coder: coder, env: env, acct: env.spillingAccount("sort")}
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
	err := s.input.Close()
	if s.merge != nil {
		if e := s.merge.Close(); err == nil {
			err = e
		}
	}
	for _, run := range s.runs {
		if e := run.close(); err == nil {
			err = e
		}
	}
	return err
}

func (s *sortOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !s.sorted {
		if err := s.consume(ctx); err != nil {
			return nil, err
		}
		s.sorted = true
	}
	if s.merge != nil {
		return s.merge.Next(ctx)
	}
	return s.emit(ctx)
}

// emit returns the next rows of the store in order.
func (s *sortOp) emit(ctx context.Context) (*columnar.Batch, error) {
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
		if err := s.add(ctx, b); err != nil {
			return err
		}
	}
	if len(s.runs) == 0 {
		var err error
		s.order, err = sortStore(ctx, s.store, s.coder, s.acct)
		if err == nil || !s.maySpill(err) {
			return err
		}
	}
	if err := s.spillRun(ctx); err != nil {
		return err
	}
	return s.mergeRuns()
}

// add stores a batch, after making room on disk if need be.
func (s *sortOp) add(ctx context.Context, b *columnar.Batch) error {
	before := s.store.rows
	err := checkKeyCount(before + b.Rows())
	if err == nil {
		err = s.store.append(b.Cols, b.Sel, b.Len)
	}
	if err == nil || !s.maySpill(err) || before == 0 {
		return err
	}
	s.store.truncate(before)
	if err := s.spillRun(ctx); err != nil {
		return err
	}
	return s.store.append(b.Cols, b.Sel, b.Len)
}

func (s *sortOp) maySpill(err error) bool {
	return sqlstate.CodeOf(err) == sqlstate.OutOfMemory && s.env.spills()
}

// spillRun sorts the stored rows and moves them to disk, in pieces that can be
// sorted in the memory that is left.
func (s *sortOp) spillRun(ctx context.Context) error {
	if s.store.rows == 0 {
		return nil
	}
	// What sorting itself takes is not refused here: it is bounded by the rows
	// that found room, and goes back at once.
	work := s.env.Budget.workingAccount("sort")
	defer work.Close()
	order, err := sortStore(ctx, s.store, s.coder, work)
	if err != nil {
		return err
	}
	run, err := s.env.spill.create("sort", s.input.Schema())
	if err != nil {
		return err
	}
	s.runs = append(s.runs, run)
	for s.order, s.at = order, 0; ; {
		b, err := s.emit(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if err := run.write(b); err != nil {
			return err
		}
	}
	s.order = nil
	s.store.free()
	if err := run.finish(); err != nil {
		return err
	}
	if len(s.runs) < maxRuns {
		return nil
	}
	return s.compactRuns(ctx)
}

// maxRuns bounds how many runs are merged at a time, each with a batch in memory.
const maxRuns = 64

// compactRuns merges all runs to one, which keeps its place as the first.
func (s *sortOp) compactRuns(ctx context.Context) error {
	if err := s.mergeRuns(); err != nil {
		return err
	}
	whole, err := s.env.spill.create("sort", s.input.Schema())
	if err != nil {
		return err
	}
	merged, old := s.merge, s.runs
	s.merge, s.runs = nil, append(slices.Clone(old), whole) // all are closed, whatever happens
	for {
		b, err := merged.Next(ctx)
		if err != nil {
			return errors.Join(err, merged.Close())
		}
		if b == nil {
			break
		}
		if err := whole.write(b); err != nil {
			return errors.Join(err, merged.Close())
		}
	}
	if err := merged.Close(); err != nil {
		return err
	}
	s.runs = []*spillFile{whole}
	return whole.finish()
}

// mergeRuns opens the runs; equal keys come in the order of the runs, which is
// that of arrival.
func (s *sortOp) mergeRuns() error {
	inputs := make([]Operator, len(s.runs))
	for i, run := range s.runs {
		var err error
		if inputs[i], err = run.open(); err != nil {
			return err
		}
	}
	var err error
	s.merge, err = newMerge(inputs, s.keys, -1, s.env.Budget)
	return err
}

// sortStore returns the rows of a store in the order of the coder's keys, equal
// ones in the order of arrival. The memory of the result is reserved from acct.
func sortStore(ctx context.Context, store *rowStore, coder *sortKeyCoder, acct *Account) ([]int32, error) {
	work := sortSpace{acct: acct}
	defer work.free()
	if err := work.alloc(store.rows); err != nil {
		return nil, err
	}
	keys, err := encodeStore(ctx, store, coder, work.entries, acct)
	if err != nil {
		return nil, err
	}
	defer keys.free(acct)
	if err := sortEntries(ctx, work.entries, work.scratch, keys); err != nil {
		return nil, err
	}
	order, err := growSlice[int32](acct, nil, len(work.entries))
	if err != nil {
		return nil, err
	}
	for _, e := range work.entries {
		order = append(order, e.row)
	}
	return order, nil
}

// encodeStore computes the key of every stored row. Keys of at most 8 bytes are
// wholly in the entries' words, and the result is nil.
func encodeStore(ctx context.Context, store *rowStore, coder *sortKeyCoder, entries []sortEntry, acct *Account) (*sortKeys, error) {
	for i, k := range coder.keys {
		coder.nullable[i] = store.cols[k.Column].valid != nil
	}
	width := coder.fixedWidth()
	short := width > 0 && width <= 8
	keys := &sortKeys{}
	cols := make([]*columnar.Vector, len(store.cols))
	for lo := 0; lo < store.rows; lo += columnar.BatchRows {
		if err := canceled(ctx); err != nil {
			keys.free(acct)
			return nil, err
		}
		hi := min(lo+columnar.BatchRows, store.rows)
		for _, k := range coder.keys {
			if cols[k.Column] == nil {
				cols[k.Column] = &columnar.Vector{Type: store.cols[k.Column].typ}
			}
			store.cols[k.Column].view(lo, hi, cols[k.Column])
		}
		if short {
			keys.reset()
		}
		base := len(keys.ends)
		if err := coder.encode(keys, cols, nil, hi-lo, acct); err != nil {
			keys.free(acct)
			return nil, err
		}
		for i := range hi - lo {
			entries[lo+i] = sortEntry{word: keys.word(base+i, 0), row: int32(lo + i)}
		}
	}
	if short {
		keys.free(acct)
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
