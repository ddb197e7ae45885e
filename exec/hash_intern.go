package exec

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// interner numbers the strings of one key column, so that a key of several
// columns is of fixed width. It pays where strings come with dictionaries:
// then only their values are hashed.
type interner struct {
	coder *keyCoder
	table *bytesTable
	codes []int32 // of the encoded rows; -1 for unknown strings

	// The last dictionary, by content since operators reuse their memory, and
	// the numbers of its values, -1 for those that have none yet.
	offsets []int32
	data    []byte
	remap   []int32
	missing []int32
	found   []int32
	fresh   []int32
}

func newInterner(dt arrow.DataType, seed tableSeed, acct *Account) *interner {
	return &interner{
		coder: &keyCoder{shape: bytesShape, cols: []int{0}, types: []arrow.DataType{dt}, seed: seed},
		table: &bytesTable{acct: acct, nullID: -1},
	}
}

func (t *interner) reset() {
	t.table.reset()
	t.offsets, t.data, t.remap = nil, nil, nil
}

// number fills codes with those of the rows of v, those at sel or the first n.
// With add, unknown strings are added, unless there is no memory for them.
func (t *interner) number(v *columnar.Vector, sel []int32, n int, add bool) error {
	if sel != nil {
		n = len(sel)
	}
	t.codes = resize(t.codes, n)
	if v.Dict == nil || v.Const || v.Dict.Len > maxDictionary {
		return t.look(v, sel, n, t.codes, add)
	}
	t.load(v.Dict)
	t.missing = t.missing[:0]
	for i := range t.codes {
		row := rowAt(sel, i)
		if v.Valid != nil && v.IsNull(row) {
			t.codes[i] = 0
			continue
		}
		code := t.remap[v.Codes[row]]
		if t.codes[i] = code; code == -1 {
			t.remap[v.Codes[row]] = -2 // is in missing
			t.missing = append(t.missing, v.Codes[row])
		}
	}
	if len(t.missing) == 0 {
		return nil
	}
	t.found = resize(t.found, len(t.missing))
	if err := t.look(v.Dict, t.missing, 0, t.found, add); err != nil {
		t.offsets = nil // the remap is not complete
		return err
	}
	for k, entry := range t.missing {
		t.remap[entry] = t.found[k]
	}
	for i, code := range t.codes {
		if code < 0 {
			t.codes[i] = t.remap[v.Codes[rowAt(sel, i)]]
		}
	}
	return nil
}

// load makes remap that of a dictionary.
func (t *interner) load(dict *columnar.Vector) {
	if slices.Equal(t.offsets, dict.Offsets[:dict.Len+1]) && bytes.Equal(t.data, dict.Data) {
		return
	}
	t.offsets, t.data = append(t.offsets[:0], dict.Offsets[:dict.Len+1]...), append(t.data[:0], dict.Data...)
	t.remap = resize(t.remap, dict.Len)
	fillMissing(t.remap, dict.Len)
}

// look writes the numbers of plain strings to codes.
func (t *interner) look(v *columnar.Vector, sel []int32, n int, codes []int32, add bool) error {
	t.coder.encode([]*columnar.Vector{v}, sel, n)
	if !add {
		t.table.find(t.coder, codes)
		return nil
	}
	if err := t.table.reserve(t.coder); err != nil {
		return err
	}
	t.fresh = t.table.upsert(t.coder, codes, t.fresh[:0])
	return nil
}

// internedWidth is the width of an interned column in a wideKey.
const internedWidth = 4

// newInternedCoder returns a coder of wideShape for columns of which some are
// strings, or nil when they do not fit.
func newInternedCoder(cols []int, types []arrow.DataType, seed tableSeed, acct *Account) *keyCoder {
	k := &keyCoder{shape: wideShape, cols: cols, types: types, seed: seed, terns: make([]*interner, len(cols))}
	widths := make([]int, len(types))
	total := 0
	for i, t := range types {
		if widths[i] = columnar.Width(t); widths[i] == 0 {
			k.terns[i], widths[i] = newInterner(t, seed, acct), internedWidth
		}
		total += widths[i]
	}
	if total > maxWide {
		return nil
	}
	k.slots = placeWide(widths)
	return k
}

// intern numbers the strings of the rows that are to be encoded next.
func (k *keyCoder) intern(cols []*columnar.Vector, sel []int32, n int, add bool) error {
	for c, t := range k.terns {
		if t == nil {
			continue
		}
		if err := t.number(cols[k.cols[c]], sel, n, add); err != nil {
			return err
		}
	}
	return nil
}

// forgetMany forgets what was interned of columns with many strings; those of
// few are likely to come again. No key may be in use.
func (k *keyCoder) forgetMany() {
	for _, t := range k.terns {
		if t != nil && t.table.len() > maxPool {
			t.reset()
		}
	}
}

// forgetStrings forgets what was interned.
func (k *keyCoder) forgetStrings() {
	for _, t := range k.terns {
		if t != nil {
			t.reset()
		}
	}
}
