package exec

import (
	"context"
	"sync"
	"sync/atomic"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// buildSide is the stored side of a join, shared by its probing parts. Rows
// with a null in a strict key match nothing: they are left out unless they are
// emitted or counted all the same. Without keys every row is a candidate.
type buildSide struct {
	spec  *joinSpec
	input Operator
	acct  *Account
	env   *Env
	depth int
	seed  tableSeed

	mu      sync.Mutex
	state   chan struct{} // closed when building has ended; nil before it began
	users   int           // parts that are not closed
	probing int           // parts whose probe input has not ended
	err     error

	store *rowStore
	table keyTable
	// The rows with key id k are rows[starts[k]:starts[k+1]], in the order of
	// their arrival. Both are nil when keys are unique: row k then has key k.
	starts []int32
	rows   []int32
	nulls  []int32 // stored rows with a null in a strict key

	hits  bitset // rows that have a match, where the join is to know
	maybe bitset // of a mark join: rows for which a comparison was NULL
	// What a mark join with the left side here has seen of the right side.
	probedRows, probedNull atomic.Bool

	filters []*joinFilter // by key; nil where there is none

	spill *joinSpill // set when the side did not fit in memory
}

// bitset is a set of rows that several goroutines may add to.
type bitset []uint32

func (b bitset) has(row int32) bool {
	return atomic.LoadUint32(&b[row>>5])&(1<<(row&31)) != 0
}

// add returns whether the row was in the set before.
func (b bitset) add(row int32) bool {
	bit := uint32(1) << (row & 31)
	if atomic.LoadUint32(&b[row>>5])&bit != 0 {
		return true
	}
	return atomic.OrUint32(&b[row>>5], bit)&bit != 0
}

// await builds the side, or waits for the part that does.
func (s *buildSide) await(ctx context.Context) error {
	s.mu.Lock()
	state := s.state
	mine := state == nil
	if mine {
		state = make(chan struct{})
		s.state = state
	}
	s.mu.Unlock()
	if mine {
		s.err = guard("building a join", func() error { return s.load(ctx) })
		close(state)
		return s.err
	}
	var err error
	s.env.Profile.waiting(func() {
		select {
		case <-state:
			err = s.err
		case <-ctx.Done():
			err = canceled(ctx)
		}
	})
	return err
}

// keepsNulls reports whether rows with a null in a strict key are stored.
func (s *buildSide) keepsNulls() bool {
	return s.spec.markBuild || s.spec.kind == planner.MarkJoin
}

// load reads the build input to its end and closes it.
func (s *buildSide) load(ctx context.Context) error {
	var err error
	if s.store, err = newRowStore(s.input.Schema(), s.acct); err != nil {
		return err
	}
	if len(s.spec.buildKeys) == 0 {
		err = s.consume(ctx, func(b *columnar.Batch) error { return s.store.append(b.Cols, b.Sel, b.Len) })
	} else {
		err = s.loadKeyed(ctx)
	}
	if err != nil {
		return err
	}
	if s.spec.markBuild && s.spill == nil {
		if err := s.makeSets(); err != nil {
			return err
		}
	}
	if s.spill == nil {
		s.makeFilters()
		if err := s.store.encodeTexts(); err != nil && !outOfMemory(err) {
			return err // without memory the strings stay as they are
		}
	}
	return s.input.Close()
}

func (s *buildSide) makeSets() error {
	words := (s.store.rows + 31) / 32
	var err error
	var set []uint32
	if set, err = growSlice[uint32](s.acct, nil, words); err != nil {
		return err
	}
	s.hits = set[:words]
	if s.spec.kind != planner.MarkJoin {
		return nil
	}
	if set, err = growSlice[uint32](s.acct, nil, words); err != nil {
		return err
	}
	s.maybe = set[:words]
	return nil
}

func (s *buildSide) consume(ctx context.Context, add func(*columnar.Batch) error) error {
	for {
		b, err := s.input.Next(ctx)
		if b == nil || err != nil {
			return err
		}
		if err := checkKeyCount(s.store.rows + b.Rows()); err != nil {
			return err
		}
		if err := add(b); err != nil {
			return err
		}
	}
}

func (s *buildSide) loadKeyed(ctx context.Context) error {
	l := &keyLoader{side: s}
	err := s.consume(ctx, func(b *columnar.Batch) error {
		if s.spill != nil {
			return s.spill.addBuild(b)
		}
		err := l.add(b)
		if s.canSpill(err) {
			return s.startSpill(ctx, b)
		}
		return err
	})
	if err != nil || s.spill != nil {
		return err
	}
	err = s.index(ctx)
	if s.canSpill(err) {
		return s.startSpill(ctx, nil)
	}
	return err
}

// outOfMemory reports whether a reservation was refused.
func outOfMemory(err error) bool {
	return err != nil && sqlstate.CodeOf(err) == sqlstate.OutOfMemory
}

func (s *buildSide) canSpill(err error) bool {
	return err != nil && sqlstate.CodeOf(err) == sqlstate.OutOfMemory && s.env.spills() && s.spec.kind != planner.MarkJoin &&
		s.depth < maxSpillDepth
}

// keyLoader adds batches to a keyed build side.
type keyLoader struct {
	side *buildSide
	sel  []int32
}

// add stores a batch. When it fails for want of memory nothing of the batch is
// in the store.
func (l *keyLoader) add(b *columnar.Batch) error {
	s := l.side
	rows := selectKeyed(b.Cols, s.spec.strictBuild, b.Sel, b.Len, &l.sel)
	keyed := b.Rows()
	if rows != nil {
		keyed = len(rows)
	}
	nulls := b.Rows() - keyed
	before := s.store.rows
	if keyed > 0 {
		if err := s.store.append(b.Cols, rows, b.Len); err != nil {
			s.store.truncate(before)
			return err
		}
	}
	if nulls > 0 && s.keepsNulls() {
		return l.addNulls(b, before)
	}
	return nil
}

// addNulls stores the rows of b that have a null in a strict key. On failure
// the store is cut back to before rows.
func (l *keyLoader) addNulls(b *columnar.Batch, before int) error {
	s := l.side
	l.sel = l.sel[:0]
	for i := range b.Rows() {
		row := rowAt(b.Sel, i)
		for _, k := range s.spec.strictBuild {
			if b.Cols[k].IsNull(row) {
				l.sel = append(l.sel, int32(row))
				break
			}
		}
	}
	at := int32(s.store.rows)
	err := s.store.append(b.Cols, l.sel, len(l.sel))
	if err == nil {
		s.nulls, err = growSlice(s.acct, s.nulls, len(l.sel))
	}
	if err != nil {
		s.store.truncate(before)
		return err
	}
	for i := range l.sel {
		s.nulls = append(s.nulls, at+int32(i))
	}
	return nil
}

// matches are the stored rows of a key.
func (s *buildSide) matches(id int32, one *[1]int32) []int32 {
	if s.starts != nil {
		return s.rows[s.starts[id]:s.starts[id+1]]
	}
	one[0] = id
	return one[:]
}

// endProbe is called once by every part whose probe input has ended, and
// returns true to the last one.
func (s *buildSide) endProbe() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probing--
	return s.probing == 0
}

// release is called once by every part; the last one frees everything.
func (s *buildSide) release() error {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	s.store, s.table, s.starts, s.rows, s.nulls, s.hits, s.maybe = nil, nil, nil, nil, nil, nil, nil
	s.acct.Close()
	err := s.input.Close()
	if e := s.spill.close(); err == nil {
		err = e
	}
	return err
}
