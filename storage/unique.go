package storage

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"skein/catalog"
	"skein/sqlstate"
)

// checkKeys reports a primary key that the transaction's segments share with
// committed rows, with each other, or with a prepared transaction.
//
// Which key is reported must not depend on how rows are cut into segments: it
// is the smallest one that conflicts in the first of the new segments that has
// a conflict, and prepared transactions, whose keys may yet become free, count
// only when nothing else conflicts.
func (a *applier) checkKeys(tx *transaction, segments []*stagedSegment) (*sqlstate.Error, error) {
	sets := make([]*keySet, len(segments))
	for i, s := range segments {
		sets[i] = &keySet{a: a, id: s.id, meta: s.meta}
		best := s.meta.key.dup
		for _, old := range a.st.manifest {
			if !s.meta.key.overlaps(old.meta.key) {
				continue
			}
			var err error
			if best, err = sets[i].common(&keySet{a: a, id: old.id, meta: old.meta}, best); err != nil {
				return nil, err
			}
		}
		for _, earlier := range sets[:i] {
			var err error
			if best, err = sets[i].common(earlier, best); err != nil {
				return nil, err
			}
		}
		if len(best) > 0 {
			return duplicateKey(a.t.Table(), best), nil
		}
	}
	return a.checkPrepared(tx, sets)
}

func (a *applier) checkPrepared(tx *transaction, sets []*keySet) (*sqlstate.Error, error) {
	var held []*keySet
	for _, other := range a.st.txns {
		if !other.prepared || other == tx {
			continue
		}
		for _, s := range other.segments {
			held = append(held, &keySet{a: a, id: s.id, meta: s.meta})
		}
	}
	for _, set := range sets {
		var best []byte
		var err error
		for _, other := range held {
			if best, err = set.common(other, best); err != nil {
				return nil, err
			}
		}
		if len(best) > 0 {
			return heldKey(a.t.Table(), best), nil
		}
	}
	return nil, nil
}

// keySet is the primary keys of one segment, read when they are needed.
type keySet struct {
	a      *applier
	id     uint64
	meta   *segmentMeta
	index  *keyIndex
	sorted *sortedKeys
	hashes []uint64 // by sorted position, 0 when not computed yet
}

// common returns the smallest key that is in both sets and below best, or
// best; an empty best is above everything. Sets whose ranges do not overlap
// cost two comparisons.
func (s *keySet) common(o *keySet, best []byte) ([]byte, error) {
	lo, hi := s.meta.key, o.meta.key
	if !lo.overlaps(hi) {
		return best, nil
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	first := s.sorted.search(hi.min)
	last := s.sorted.search(hi.max)
	if last < s.meta.rows {
		last++ // the key at hi.max itself
	}
	if first >= last {
		return best, nil
	}
	if o.meta.rows < last-first {
		if err := o.load(); err != nil {
			return nil, err
		}
		return o.probe(s, o.sorted.search(lo.min), o.meta.rows, best)
	}
	return s.probe(o, first, last, best)
}

// probe looks the keys at sorted positions [first, last) of s up in o.
func (s *keySet) probe(o *keySet, first, last int, best []byte) ([]byte, error) {
	if err := o.loadIndex(); err != nil {
		return nil, err
	}
	for i := first; i < last; i++ {
		key, _ := s.sorted.at(i)
		if len(best) > 0 && bytes.Compare(key, best) >= 0 {
			return best, nil
		}
		if !o.index.mayContain(s.hash(i, key)) {
			continue
		}
		if err := o.load(); err != nil {
			return nil, err
		}
		if _, ok := o.sorted.find(key); ok {
			return bytes.Clone(key), nil
		}
	}
	return best, nil
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
	if s.sorted == nil {
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
	return &chunkReader{a.t.store, a.t.Table(), a.t.id, a.st.space, a.st.instance, a.read}
}
