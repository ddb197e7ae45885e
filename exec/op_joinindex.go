package exec

import (
	"context"
	"errors"
	"math"

	"skein/columnar"
)

// indexer makes the hash table of a stored side once all its rows are there:
// how many there are is then known, and so is the range of integer keys.
type indexer struct {
	side  *buildSide
	coder *keyCoder
	cols  []*columnar.Vector // views of the key columns; others are nil
	keyOf []int32            // by stored row: its key, -1 for a null one
	ids   []int32
	fresh []int32
	sel   []int32
}

// index makes the table and, unless keys are unique, the lists of their rows.
// When it fails for want of memory the store is as it was.
func (s *buildSide) index(ctx context.Context) error {
	x, err := newIndexer(s)
	if err != nil {
		return err
	}
	if s.table, err = x.chooseTable(ctx); err != nil {
		return err
	}
	if x.keyOf, err = growSlice[int32](s.acct, nil, s.store.rows); err != nil {
		return err
	}
	x.keyOf = x.keyOf[:s.store.rows]
	if err := x.fill(ctx); err != nil {
		return err
	}
	freeSlice(s.acct, x.keyOf)
	return nil
}

func newIndexer(s *buildSide) (*indexer, error) {
	coder, err := newKeyCoder(s.spec.buildKeys, s.spec.keyTypes, s.seed)
	if err != nil {
		return nil, err
	}
	x := &indexer{side: s, coder: coder, cols: make([]*columnar.Vector, len(s.store.cols))}
	for _, k := range s.spec.buildKeys {
		x.cols[k] = &columnar.Vector{Type: s.store.cols[k].typ}
	}
	return x, nil
}

// each calls f with every piece of the store whose keys are encoded: rows
// [lo, hi), of which sel, or all when it is nil, count from lo and have keys.
func (x *indexer) each(ctx context.Context, f func(lo, hi int, sel []int32) error) error {
	s := x.side
	for lo := 0; lo < s.store.rows; lo += columnar.BatchRows {
		if err := canceled(ctx); err != nil {
			return err
		}
		hi := min(lo+columnar.BatchRows, s.store.rows)
		for _, k := range s.spec.buildKeys {
			s.store.cols[k].view(lo, hi, x.cols[k])
		}
		sel := selectKeyed(x.cols, s.spec.strictBuild, nil, hi-lo, &x.sel)
		if sel != nil && len(sel) == 0 {
			x.coder.n = 0
			x.coder.hashes, x.coder.words = x.coder.hashes[:0], x.coder.words[:0]
		} else {
			x.coder.encode(x.cols, sel, hi-lo)
		}
		if err := f(lo, hi, sel); err != nil {
			return err
		}
	}
	return nil
}

// storedFactor is how many times as long as the stored rows an array of keys may
// be: it then takes about as much memory as a hash table.
const storedFactor = 16

// chooseTable returns an empty table: an array where the keys are integers that
// lie close together, else a hash table.
func (x *indexer) chooseTable(ctx context.Context) (keyTable, error) {
	s := x.side
	if x.coder.shape == wordShape && filterable(s.spec.keyTypes[0]) {
		x.coder.unhashed = true
		low, high := int64(math.MaxInt64), int64(math.MinInt64)
		err := x.each(ctx, func(int, int, []int32) error {
			for i, w := range x.coder.words[:x.coder.n] {
				if x.coder.nulls == nil || !x.coder.nulls[i] {
					low, high = min(low, int64(w)), max(high, int64(w))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if span := uint64(high) - uint64(low); low <= high && span < max(denseSpan, storedFactor*uint64(s.store.rows)) {
			return newDenseTable(uint64(low), int(span)+1, s.acct)
		}
		x.coder.unhashed = false
	}
	return newKeyTable(x.coder.shape, s.acct), nil
}

// A table is sized for all rows at once when most of so many first ones have
// keys of their own.
const (
	sizingRows  = 1 << 16
	sizingShare = 0.75
)

// errManyKeys stops a build by one core in favour of one by all.
var errManyKeys = errors.New("most rows have keys of their own")

// fill gives every stored row its key, and lists the rows of keys that have
// several.
func (x *indexer) fill(ctx context.Context) error {
	s := x.side
	err := x.fillSerial(ctx, s.env.Parallelism > 1)
	if errors.Is(err, errManyKeys) {
		done, err := x.fillParallel(ctx)
		if done || err != nil {
			return err
		}
		s.table.reset()
		if err := x.fillSerial(ctx, false); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if s.table.len() < s.store.rows {
		return s.list(x.keyOf, s.table.len())
	}
	return nil
}

// fillSerial is fill by one core. With stop it gives up when there is reason to
// let all cores do it.
func (x *indexer) fillSerial(ctx context.Context, stop bool) error {
	s := x.side
	_, dense := s.table.(*denseTable)
	return x.each(ctx, func(lo, hi int, sel []int32) error {
		if lo == sizingRows && !dense && float64(s.table.len()) > sizingShare*sizingRows {
			if stop && s.store.rows >= parallelRows && x.coder.shape != bytesShape {
				return errManyKeys
			}
			n := x.coder.n
			x.coder.n = s.store.rows - lo
			err := s.table.reserve(x.coder)
			x.coder.n = n
			if err != nil {
				return err
			}
		}
		if err := s.table.reserve(x.coder); err != nil {
			return err
		}
		x.ids = resize(x.ids, x.coder.n)
		x.fresh = s.table.upsert(x.coder, x.ids, x.fresh[:0])
		if sel == nil {
			copy(x.keyOf[lo:hi], x.ids)
			return nil
		}
		fillMissing(x.keyOf[lo:hi], hi-lo)
		for i, row := range sel {
			x.keyOf[lo+int(row)] = x.ids[i]
		}
		return nil
	})
}

// list lists the rows of every key, given the key of every row and how many
// keys there are.
func (s *buildSide) list(keyOf []int32, keys int) error {
	starts, err := growSlice[int32](s.acct, nil, keys+1)
	if err != nil {
		return err
	}
	s.starts = starts[:keys+1]
	if s.rows, err = growSlice[int32](s.acct, nil, len(keyOf)); err != nil {
		return err
	}
	s.rows = s.rows[:len(keyOf)]
	for _, k := range keyOf {
		if k >= 0 {
			s.starts[k+1]++
		}
	}
	for k := range keys {
		s.starts[k+1] += s.starts[k]
	}
	// Filling moves each start to its end, which is the next key's start.
	for row, k := range keyOf {
		if k >= 0 {
			s.rows[s.starts[k]] = int32(row)
			s.starts[k]++
		}
	}
	copy(s.starts[1:], s.starts[:keys])
	s.starts[0] = 0
	return nil
}
