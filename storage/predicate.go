package storage

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"

	"skein/catalog"
)

// Op is the comparison of a Predicate.
type Op byte

// The comparisons. As in SQL, all but the null tests are not true for nulls.
const (
	OpEqual Op = iota + 1
	OpNotEqual
	OpLess
	OpLessEqual
	OpGreater
	OpGreaterEqual
	OpIn
	OpIsNull
	OpIsNotNull
)

// Predicate is a condition that all wanted rows satisfy. It serves to skip
// rows: a scan may still return rows that do not satisfy it.
//
// Values holds one value, any number for OpIn and none for the null tests, in
// the forms that catalog.AppendKeyValue takes for the column's type. Types are
// not converted: a value of the wrong form is an error.
type Predicate struct {
	Column int // ordinal in the table
	Op     Op
	Values []any
}

// filter is a predicate with its values encoded.
type filter struct {
	column int
	op     Op
	keys   [][]byte // ascending
	words  []uint64 // the same as numbers, for the types that have block zones
	never  bool     // no row satisfies it: compared with NULL
}

func compilePredicates(table *catalog.Table, predicates []Predicate) ([]filter, error) {
	filters := make([]filter, 0, len(predicates))
	for _, p := range predicates {
		if p.Column < 0 || p.Column >= len(table.Columns) {
			return nil, errPredicate("column %d of %d", p.Column, len(table.Columns))
		}
		nullTest := p.Op == OpIsNull || p.Op == OpIsNotNull
		if p.Op < OpEqual || p.Op > OpIsNotNull || (nullTest && len(p.Values) != 0) ||
			(!nullTest && p.Op != OpIn && len(p.Values) != 1) {
			return nil, errPredicate("operator %d with %d values", p.Op, len(p.Values))
		}
		f := filter{column: p.Column, op: p.Op}
		for _, v := range p.Values {
			if v == nil {
				continue // neither = NULL nor IN (NULL) is ever true
			}
			key, err := catalog.AppendKeyValue(nil, table.Columns[p.Column].Type, v)
			if err != nil {
				return nil, err
			}
			f.keys = append(f.keys, key)
		}
		slices.SortFunc(f.keys, bytes.Compare)
		for _, key := range f.keys {
			if word, ok := keyWord(key); ok && wordKeys(catalog.PhysicalType(table.Columns[p.Column].Type)) {
				f.words = append(f.words, word)
			}
		}
		f.never = !nullTest && len(f.keys) == 0
		filters = append(filters, f)
	}
	return filters, nil
}

// excludes reports that no row of a segment satisfies the filter.
func (f *filter) excludes(table *catalog.Table, m *segmentMeta) bool {
	if f.never {
		return true
	}
	at := m.find(table.ColumnID(f.column))
	if at < 0 {
		return false // the column is younger: its default may be anything
	}
	c := &m.columns[at]
	switch f.op {
	case OpIsNull:
		return c.nulls == 0
	case OpIsNotNull:
		return c.nulls == m.rows
	}
	if c.nulls == m.rows {
		return true
	}
	z := &c.zone
	hasMin, hasMax := len(z.min) > 0, len(z.max) > 0
	switch f.op {
	case OpEqual, OpIn:
		return !slices.ContainsFunc(f.keys, z.mayHold)
	case OpNotEqual:
		return z.minExact && z.maxExact && bytes.Equal(z.min, z.max) && bytes.Equal(z.min, f.keys[0])
	case OpLess:
		return hasMin && bytes.Compare(z.min, f.keys[0]) >= 0
	case OpLessEqual:
		return hasMin && bytes.Compare(z.min, f.keys[0]) > 0
	case OpGreater:
		return hasMax && bytes.Compare(z.max, f.keys[0]) <= 0
	case OpGreaterEqual:
		return hasMax && bytes.Compare(z.max, f.keys[0]) < 0
	}
	return false
}

// covers reports that every value within the bounds satisfies the filter, so
// looking for the first and the last one that does is idle.
func (f *filter) covers(z *zone) bool {
	hasMin, hasMax := len(z.min) > 0, len(z.max) > 0
	switch f.op {
	case OpLess:
		return hasMax && bytes.Compare(z.max, f.keys[0]) < 0
	case OpLessEqual:
		return hasMax && bytes.Compare(z.max, f.keys[0]) <= 0
	case OpGreater:
		return hasMin && z.minExact && bytes.Compare(z.min, f.keys[0]) > 0
	case OpGreaterEqual:
		return hasMin && z.minExact && bytes.Compare(z.min, f.keys[0]) >= 0
	}
	return false
}

// mayHold reports whether a value can lie within the bounds. An inexact minimum
// is below every value and an inexact maximum above.
func (z *zone) mayHold(key []byte) bool {
	return (len(z.min) == 0 || bytes.Compare(z.min, key) <= 0) && (len(z.max) == 0 || bytes.Compare(key, z.max) <= 0)
}

// maxProbes is how many keys are looked up one by one; for more of them the
// blocks that may hold them are read.
const maxProbes = 1024

// newKeyProbes returns the primary keys that the filters leave, nil unless every
// key column is compared for equality and there are at most maxProbes.
func newKeyProbes(table *catalog.Table, filters []filter) []keyProbe {
	if len(table.PrimaryKey) == 0 {
		return nil
	}
	keys := [][]byte{nil}
	for _, c := range table.PrimaryKey {
		i := slices.IndexFunc(filters, func(f filter) bool {
			return f.column == c && (f.op == OpEqual || f.op == OpIn)
		})
		if i < 0 || len(filters[i].keys)*len(keys) > maxProbes {
			return nil
		}
		longer := make([][]byte, 0, len(keys)*len(filters[i].keys))
		for _, key := range keys {
			for k, part := range filters[i].keys {
				if k > 0 && bytes.Equal(part, filters[i].keys[k-1]) {
					continue // IN with repeated values
				}
				longer = append(longer, append(key[:len(key):len(key)], part...))
			}
		}
		keys = longer
	}
	probes := make([]keyProbe, len(keys))
	for i, key := range keys {
		probes[i] = keyProbe{key: key, hash: xxhash.Sum64(key)}
	}
	return probes
}
