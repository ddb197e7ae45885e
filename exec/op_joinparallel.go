package exec

import (
	"context"
	"math"
)

// Hash tables of stored sides are built by all cores: each owns a range of the
// slots, reads all keys, and inserts those whose hash falls into its range. As a
// key's rows all have one owner there is nothing to lock, and they are met in the
// order of their arrival. The id of a key is its first row. What would have to be
// placed beyond the end of a range is left for afterwards.

// parallelRows is how many rows are worth starting goroutines for.
const parallelRows = 1 << 17

// inserter is one goroutine's part of a parallel build.
type inserter struct {
	x      *indexer // with a coder and views of its own
	lo, hi uint64   // its slots
	left   []int32  // rows that found no slot there
}

// fillParallel makes the table of keys that are mostly unique. It returns false
// when the shape of the keys or their number makes that not worth while.
func (x *indexer) fillParallel(ctx context.Context) (done bool, err error) {
	s := x.side
	workers := s.env.Parallelism
	if workers < 2 || s.store.rows < parallelRows || x.coder.shape == bytesShape {
		return false, nil
	}
	for _, k := range s.spec.buildKeys {
		if s.store.cols[k].valid != nil {
			return false, nil
		}
	}
	place, slots, err := s.roomForAll(x.coder)
	if err != nil {
		return false, err
	}
	c := &crew{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(errStopped)
	parts := make([]*inserter, workers)
	for i := range parts {
		own, err := newIndexer(s)
		if err != nil {
			return false, err
		}
		own.keyOf = x.keyOf
		parts[i] = &inserter{x: own, lo: uint64(i) * slots / uint64(workers), hi: uint64(i+1) * slots / uint64(workers)}
	}
	for _, p := range parts {
		c.wg.Go(func() {
			if err := guard("building a join", func() error { return p.run(c.ctx, slots-1, place) }); err != nil {
				c.cancel(err)
			}
		})
	}
	c.wg.Wait()
	if c.ctx.Err() != nil {
		return false, c.failure(ctx)
	}
	return true, x.finishParallel(ctx, parts, slots, place)
}

// placer puts the key at position i of a coder's rows, which is that of a stored
// row, at slot at or after it. It returns the key's first row; -1 when it came to
// end first.
type placer func(k *keyCoder, i, row int, at, end uint64) int32

func (p *inserter) run(ctx context.Context, mask uint64, place placer) error {
	k := p.x.coder
	return p.x.each(ctx, func(lo, _ int, _ []int32) error {
		for i, hash := range k.hashes[:k.n] {
			at := hash & mask
			if at < p.lo || at >= p.hi {
				continue
			}
			row := lo + i
			first := place(k, i, row, at, p.hi)
			p.x.keyOf[row] = first
			if first < 0 {
				p.left = append(p.left, int32(row))
			}
		}
		return nil
	})
}

// finishParallel places what was left over and lists the rows of keys that have
// several.
func (x *indexer) finishParallel(ctx context.Context, parts []*inserter, slots uint64, place placer) error {
	s := x.side
	for _, p := range parts {
		for _, row := range p.left {
			for _, c := range s.spec.buildKeys {
				s.store.cols[c].view(int(row), int(row)+1, x.cols[c])
			}
			x.coder.encode(x.cols, nil, 1)
			x.keyOf[row] = place(x.coder, 0, int(row), x.coder.hashes[0]&(slots-1), math.MaxUint64)
		}
	}
	if x.hasTwins() {
		return s.list(x.keyOf, s.store.rows)
	}
	return canceled(ctx)
}

// hasTwins reports whether any row is not the first of its key.
func (x *indexer) hasTwins() bool {
	for row, first := range x.keyOf {
		if int(first) != row {
			return true
		}
	}
	return false
}

// roomForAll sizes the table for as many keys as there are rows, and returns
// what puts one there and the number of slots.
func (s *buildSide) roomForAll(k *keyCoder) (placer, uint64, error) {
	s.table.reset()
	n := k.n
	k.n = s.store.rows
	err := s.table.reserve(k)
	k.n = n
	if err != nil {
		return nil, 0, err
	}
	rows := s.store.rows
	switch t := s.table.(type) {
	case *wordTable:
		t.count = rows
		return t.placeRow, uint64(len(t.slots)), nil
	case *wideTable:
		t.keys, t.hashes = t.keys[:rows], t.hashes[:rows]
		return t.placeRow, uint64(len(t.slots)), nil
	}
	return nil, 0, malformed("a join's table cannot be built by row")
}

func (t *wordTable) placeRow(k *keyCoder, i, row int, at, end uint64) int32 {
	mask := uint64(len(t.slots) - 1)
	key := k.words[i]
	for ; at < end; at++ {
		s := &t.slots[at&mask]
		switch {
		case s.id == 0:
			*s = wordSlot{key: key, id: int32(row) + 1}
			return int32(row)
		case s.key == key:
			return s.id - 1
		}
	}
	return -1
}

func (t *wideTable) placeRow(k *keyCoder, i, row int, at, end uint64) int32 {
	mask := uint64(len(t.slots) - 1)
	hash := k.hashes[i]
	t.keys[row], t.hashes[row] = k.wide[i], hash
	for ; at < end; at++ {
		s := t.slots[at&mask]
		switch {
		case s == 0:
			t.slots[at&mask] = makeTag(hash, row)
			return int32(row)
		case s.matches(hash) && t.keys[s.id()] == k.wide[i]:
			return s.id()
		}
	}
	return -1
}
