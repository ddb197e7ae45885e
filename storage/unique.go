package storage

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"skein/catalog"
	"skein/sqlstate"
)

// keyCheck compares the keys of a transaction's segments with committed rows,
// with each other, and with prepared transactions, and decides what the
// conflict modes of the segments make of equal keys.
//
// Which key is reported must not depend on how rows are cut into segments: it
// is the smallest one that conflicts in the first of the new segments that has
// a conflict, and prepared transactions, whose keys may yet become free, count
// only when nothing else conflicts.
type keyCheck struct {
	a    *applier
	tx   *transaction
	e    *effect
	held [][]uint64 // rows that prepared transactions delete
	sets []*keySet  // of the new segments, those checked so far and the current
	// waits is the smallest key whose conflict depends on a prepared
	// transaction.
	waits []byte
}

// checkKeys decides the effect of a transaction's segments, or reports why it
// cannot commit.
func (a *applier) checkKeys(tx *transaction, segments []*stagedSegment) (*sqlstate.Error, error) {
	c := &keyCheck{a: a, tx: tx, e: tx.effect}
	for _, other := range a.st.txns {
		if other != tx && other.prepared && len(other.effect.rows) > 0 {
			c.held = append(c.held, other.effect.rows)
		}
	}
	for _, s := range segments {
		set := &keySet{a: a, id: s.id, meta: s.meta, seq: s.seq}
		c.sets = append(c.sets, set)
		check := c.strict
		if s.mode != OnConflictError {
			check = func(set *keySet) ([]byte, error) { return nil, c.lenient(set, s.mode) }
		}
		if dup, err := check(set); err != nil || len(dup) > 0 {
			if err != nil {
				return nil, err
			}
			return duplicateKey(a.t.Table(), dup), nil
		}
	}
	if err := c.againstPrepared(); err != nil {
		return nil, err
	}
	if c.waits != nil {
		return heldKey(a.t.Table(), c.waits), nil
	}
	for _, set := range c.sets {
		if dead := set.dead.list(); len(dead) > 0 {
			c.e.dead[set.seq] = dead
		}
	}
	slices.Sort(c.e.replaced)
	c.e.rows = mergeRows(c.e.rows, c.e.replaced)
	return nil, nil
}

// smaller returns the smaller of two keys, of which an empty one is above all.
func smaller(a, b []byte) []byte {
	if len(a) > 0 && (len(b) == 0 || bytes.Compare(a, b) <= 0) {
		return a
	}
	return b
}

// strict returns the smallest key of the set that exists, empty for none.
func (c *keyCheck) strict(set *keySet) (best []byte, err error) {
	best = set.meta.key.dup
	c.e.inserted += uint64(set.meta.rows)
	err = c.committed(set, func(seg *segmentRef, key []byte, _, other int) bool {
		if len(best) > 0 && bytes.Compare(key, best) >= 0 {
			return false
		}
		switch c.state(seg, other) {
		case rowGone:
			return true
		case rowHeld:
			c.waits = smaller(c.waits, bytes.Clone(key))
			return true
		}
		best = bytes.Clone(key)
		return false
	})
	for i := 0; err == nil && i < len(c.sets)-1; i++ {
		earlier := c.sets[i]
		err = set.each(earlier, func(key []byte, _, other int) bool {
			if len(best) > 0 && bytes.Compare(key, best) >= 0 {
				return false
			}
			if earlier.dead.has(other) {
				return true
			}
			best = bytes.Clone(key)
			return false
		})
	}
	return best, err
}

// lenient resolves equal keys by the mode instead of reporting them.
func (c *keyCheck) lenient(set *keySet, mode ConflictMode) error {
	if err := set.load(); err != nil {
		return err
	}
	replace := mode == OnConflictReplace
	var known bitset            // rows whose key existed, so that each counts once
	firsts := make(map[int]int) // of repeated keys: first row by last row
	if len(set.meta.key.dup) > 0 {
		set.repeated(func(first, last, row int) {
			switch {
			case replace:
				if row != last {
					set.dead.set(row, set.meta.rows)
				}
				if row != first {
					known.set(row, set.meta.rows)
				}
				firsts[last] = first
			case row != first:
				set.dead.set(row, set.meta.rows)
			}
		})
	}
	exists := func(row int) {
		known.set(row, set.meta.rows)
		if first, ok := firsts[row]; ok {
			known.set(first, set.meta.rows)
		}
	}
	var settled bitset // rows whose key an earlier row of the transaction has
	for _, earlier := range c.sets[:len(c.sets)-1] {
		err := set.each(earlier, func(_ []byte, row, other int) bool {
			if set.dead.has(row) || earlier.dead.has(other) {
				return true
			}
			settled.set(row, set.meta.rows)
			if replace {
				earlier.dead.set(other, earlier.meta.rows)
				exists(row)
			} else {
				set.dead.set(row, set.meta.rows)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	err := c.committed(set, func(seg *segmentRef, key []byte, row, other int) bool {
		if set.dead.has(row) || settled.has(row) {
			return true
		}
		switch c.state(seg, other) {
		case rowGone:
			return true
		case rowHeld:
			c.waits = smaller(c.waits, bytes.Clone(key))
			return true
		}
		if replace {
			c.e.replaced = append(c.e.replaced, seg.rowID(other))
			exists(row)
		} else {
			set.dead.set(row, set.meta.rows)
		}
		return true
	})
	if err != nil {
		return err
	}
	if replace {
		n := uint64(known.count())
		c.e.replaces += n
		c.e.inserted += uint64(set.meta.rows) - n
		return nil
	}
	n := uint64(set.dead.count())
	c.e.ignored += n
	c.e.inserted += uint64(set.meta.rows) - n
	return nil
}

// rowState is what a committed row is to the checked transaction.
type rowState int

const (
	rowLives rowState = iota
	rowGone           // deleted, by the transaction itself or before
	rowHeld           // a prepared transaction deletes it
)

func (c *keyCheck) state(seg *segmentRef, row int) rowState {
	if _, dead := seg.deletes.at(row); dead {
		return rowGone
	}
	id := seg.rowID(row)
	if containsRow(c.e.rows, id) {
		return rowGone
	}
	for _, rows := range c.held {
		if containsRow(rows, id) {
			return rowHeld
		}
	}
	return rowLives
}

// committed passes the pairs of rows of the set and of committed segments that
// have equal keys to visit, which ends a segment by returning false. Deleted
// rows are among them.
func (c *keyCheck) committed(set *keySet, visit func(seg *segmentRef, key []byte, row, other int) bool) error {
	if c.tx.truncates() {
		return nil
	}
	if set.meta.rows <= fewKeys {
		if err := set.load(); err != nil {
			return err
		}
		for i := range set.meta.rows {
			key, row := set.sorted.at(i)
			err := c.overlapping(key, key, func(old *segmentRef) error {
				return set.probe(&keySet{a: c.a, id: old.id, meta: old.meta}, i, i+1, func(key []byte, _, other int) bool {
					return visit(old, key, row, other)
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return c.overlapping(set.meta.key.min, set.meta.key.max, func(old *segmentRef) error {
		return set.each(&keySet{a: c.a, id: old.id, meta: old.meta}, func(key []byte, row, other int) bool {
			return visit(old, key, row, other)
		})
	})
}

// fewKeys of a segment are looked up one by one.
const fewKeys = 64

// overlapping passes the committed segments with rows that live and keys from
// lo to hi to visit.
func (c *keyCheck) overlapping(lo, hi []byte, visit func(*segmentRef) error) (err error) {
	st := c.a.st
	st.keys.overlapping(lo, hi, func(first uint64) bool {
		old := segmentOf(st.manifest, first)
		if old.dropped != 0 || (old.deletes != nil && old.deletes.count == old.meta.rows) {
			return true
		}
		err = visit(old)
		return err == nil
	})
	return err
}

// againstPrepared looks for keys that prepared transactions hold.
func (c *keyCheck) againstPrepared() error {
	for _, other := range c.a.st.txns {
		if !other.prepared || other == c.tx {
			continue
		}
		for _, s := range other.segments {
			held := &keySet{a: c.a, id: s.id, meta: s.meta}
			for _, row := range other.effect.dead[s.seq] {
				held.dead.set(int(row), s.meta.rows)
			}
			for _, set := range c.sets {
				err := set.each(held, func(key []byte, row, other int) bool {
					if set.dead.has(row) || held.dead.has(other) {
						return true
					}
					c.waits = smaller(c.waits, bytes.Clone(key))
					return false
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bitset is a set of rows; nil is empty.
type bitset []uint64

func (b *bitset) set(row, rows int) {
	if *b == nil {
		*b = make(bitset, (rows+63)/64)
	}
	(*b)[row>>6] |= 1 << (row & 63)
}

func (b bitset) has(row int) bool { return b != nil && b[row>>6]>>(row&63)&1 != 0 }

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// list returns the rows, ascending.
func (b bitset) list() []uint32 {
	var out []uint32
	for k, w := range b {
		for ; w != 0; w &= w - 1 {
			out = append(out, uint32(k<<6+bits.TrailingZeros64(w)))
		}
	}
	return out
}

// keySet is the primary keys of one segment, read when they are needed.
type keySet struct {
	a      *applier
	id     uint64
	meta   *segmentMeta
	index  *keyIndex
	sorted *sortedKeys
	hashes []uint64 // by sorted position, 0 when not computed yet

	seq  uint32 // of a new segment
	dead bitset // of a new segment: rows that nobody will see
}

// repeated lists the rows of keys that occur more than once in the set, each
// with the first and the last row of its key.
func (s *keySet) repeated(visit func(first, last, row int)) {
	n := s.meta.rows
	for i := 0; i < n; {
		key, first := s.sorted.at(i)
		end, last := i+1, first
		for end < n {
			next, row := s.sorted.at(end)
			if !bytes.Equal(key, next) {
				break
			}
			end, last = end+1, row
		}
		for j := i; end > i+1 && j < end; j++ {
			_, row := s.sorted.at(j)
			visit(first, last, row)
		}
		i = end
	}
}

// each passes every pair of rows, of s and of o, that have equal keys to visit,
// in key order, until that returns false. The key is valid during the call.
// Sets whose ranges do not overlap cost two comparisons.
func (s *keySet) each(o *keySet, visit func(key []byte, row, other int) bool) error {
	lo, hi := s.meta.key, o.meta.key
	if !lo.overlaps(hi) {
		return nil
	}
	if err := s.load(); err != nil {
		return err
	}
	first, last := s.sorted.span(hi.min, hi.max)
	if first >= last {
		return nil
	}
	if o.meta.rows >= last-first {
		return s.probe(o, first, last, visit)
	}
	if err := o.load(); err != nil {
		return err
	}
	first, last = o.sorted.span(lo.min, lo.max)
	return o.probe(s, first, last, func(key []byte, row, other int) bool { return visit(key, other, row) })
}

// probe looks the keys at sorted positions [first, last) of s up in o.
func (s *keySet) probe(o *keySet, first, last int, visit func(key []byte, row, other int) bool) error {
	few := (last-first)*fewKeys <= o.meta.rows || o.meta.rows == 1
	if !few {
		if err := o.loadIndex(); err != nil {
			return err
		}
	}
	for i := first; i < last; i++ {
		key, row := s.sorted.at(i)
		if few {
			rows, err := o.a.chunks().keyRows(o.id, o.meta, &keyProbe{key, s.hash(i, key)})
			if err != nil {
				return err
			}
			for _, other := range rows {
				if !visit(key, row, other) {
					return nil
				}
			}
			continue
		}
		if !o.index.mayContain(s.hash(i, key)) {
			continue
		}
		if err := o.load(); err != nil {
			return err
		}
		for j := o.sorted.search(key); j < o.meta.rows; j++ {
			k, other := o.sorted.at(j)
			if !bytes.Equal(k, key) {
				break
			}
			if !visit(key, row, other) {
				return nil
			}
		}
	}
	return nil
}

// hash returns the Bloom hash of the key at a sorted position, computed once
// however many segments it is looked up in.
func (s *keySet) hash(i int, key []byte) uint64 {
	if s.hashes == nil {
		s.hashes = make([]uint64, s.meta.rows)
	}
	if s.hashes[i] == 0 {
		s.hashes[i] = xxhash.Sum64(key)
	}
	return s.hashes[i]
}

// overlaps reports whether the key ranges of two segments have keys in common.
func (m *keyMeta) overlaps(o *keyMeta) bool {
	return bytes.Compare(m.max, o.min) >= 0 && bytes.Compare(o.max, m.min) >= 0
}

func (s *keySet) loadIndex() (err error) {
	if s.index == nil {
		s.index, err = s.a.chunks().keyIndex(s.id, s.meta)
	}
	return err
}

func (s *keySet) load() (err error) {
	switch {
	case s.sorted != nil:
	case s.meta.rows == 1:
		s.sorted = &sortedKeys{keys: catalog.KeysOf(s.meta.key.min)}
	default:
		s.sorted, err = s.a.chunks().sortedKeys(s.id, s.meta)
	}
	return err
}

func duplicateKey(table *catalog.Table, key []byte) *sqlstate.Error {
	return sqlstate.New(sqlstate.UniqueViolation,
		"duplicate key value violates unique constraint %q", table.Name+"_pkey").
		WithDetail("%s already exists.", keyText(table, key))
}

func heldKey(table *catalog.Table, key []byte) *sqlstate.Error {
	return sqlstate.New(sqlstate.SerializationFailure,
		"could not serialize access to %q due to a concurrent insert of the same key", table.Name).
		WithDetail("%s is being inserted by another transaction.", keyText(table, key)).
		WithHint("run the transaction again")
}

// keyText spells a key as in "Key (a, b)=(1, 2)".
func keyText(table *catalog.Table, key []byte) string {
	names := make([]string, len(table.PrimaryKey))
	types := make([]arrow.DataType, len(table.PrimaryKey))
	for i, c := range table.PrimaryKey {
		names[i], types[i] = catalog.QuoteIdent(table.Columns[c].Name), table.Columns[c].Type
	}
	values, err := catalog.KeyText(types, key)
	if err != nil {
		values = []string{fmt.Sprintf("%x", key)}
	}
	return "Key (" + strings.Join(names, ", ") + ")=(" + strings.Join(values, ", ") + ")"
}

func (a *applier) chunks() *chunkReader {
	return &chunkReader{
		store: a.t.store, table: a.t.Table(), tablet: a.t.id, space: a.st.space, instance: a.st.instance, read: a.read,
	}
}
