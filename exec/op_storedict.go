package exec

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// dictColumn is a column of strings that came with dictionaries and is stored as
// codes into a dictionary of its own, so that copying a row moves four bytes and
// the operators above work on codes, too.
type dictColumn struct {
	codes []int32          // by row; of nulls unspecified
	pool  *columnar.Vector // the values; never changed, only replaced by a longer one
	known map[string]int32 // by value: its code
	bytes int64            // charged for pool and known

	// The last dictionary seen, by content since operators reuse their memory,
	// and the codes of its values here, -1 for those that have none yet.
	offsets []int32
	data    []byte
	remap   []int32
}

// Bounds of what is stored as codes.
const (
	maxDictionary = 1 << 10 // values of an incoming dictionary
	maxPool       = 1 << 12 // values of the column's own
	poolEntry     = 64      // bytes that a value takes besides its own
)

func newDictColumn(dt arrow.DataType) *dictColumn {
	return &dictColumn{pool: &columnar.Vector{Type: dt, Offsets: []int32{0}}, known: map[string]int32{}}
}

// takes reports whether n rows of v can be stored as codes.
func (d *dictColumn) takes(v *columnar.Vector, n int) bool {
	switch {
	case v.Dict != nil:
		return v.Dict.Len <= maxDictionary && d.pool.Len+min(n, v.Dict.Len) <= maxPool
	case v.Const:
		return d.pool.Len < maxPool
	}
	return false
}

// prepareText decides, before n rows of v are stored, whether the column keeps
// codes or bytes. It fails when there is no memory to turn one into the other,
// and has then changed nothing.
func (c *colStore) prepareText(v *columnar.Vector, n int) error {
	if c.dict == nil {
		if c.n == 0 && !c.plain && v.Dict != nil && v.Dict.Len <= maxDictionary {
			c.dict = newDictColumn(c.typ)
		}
		return nil
	}
	if c.dict.takes(v, n) {
		return nil
	}
	return c.spellOut()
}

// spellOut replaces codes by bytes.
func (c *colStore) spellOut() error {
	size := 0
	for i := range c.n {
		if !c.isNull(i) {
			size += len(c.dict.value(i))
		}
	}
	ends, err := growSlice[int64](c.acct, nil, c.n)
	if err != nil {
		return err
	}
	data, err := growSlice[byte](c.acct, nil, size)
	if err != nil {
		freeSlice(c.acct, ends)
		return err
	}
	for i := range c.n {
		if !c.isNull(i) {
			data = append(data, c.dict.value(i)...)
		}
		ends = append(ends, int64(len(data)))
	}
	c.freeDict()
	c.ends, c.data, c.plain = ends, data, true
	return nil
}

func (c *colStore) freeDict() {
	if c.dict == nil {
		return
	}
	freeSlice(c.acct, c.dict.codes)
	c.acct.Release(c.dict.bytes)
	c.dict = nil
}

// value is the value of row i, which is not null.
func (d *dictColumn) value(i int) []byte { return d.pool.BytesAt(int(d.codes[i])) }

// encodeTexts replaces the strings of a small store by codes, for one whose rows
// are copied many times.
func (s *rowStore) encodeTexts() error {
	if s.rows == 0 || s.rows > maxDictionary {
		return nil
	}
	for _, c := range s.cols {
		if !c.isText() || c.dict != nil {
			continue
		}
		d := newDictColumn(c.typ)
		var err error
		if d.codes, err = growSlice[int32](c.acct, nil, c.n); err != nil {
			return err
		}
		for i := range c.n {
			code := int32(0)
			if !c.isNull(i) {
				code = d.code(c.bytesAt(i), c.acct)
			}
			d.codes = append(d.codes, code)
		}
		c.ends, c.data = freeSlice(c.acct, c.ends), freeSlice(c.acct, c.data)
		c.dict = d
	}
	return nil
}

// code is the code of a value, which is new unless it is known.
func (d *dictColumn) code(value []byte, acct *Account) int32 {
	if code, ok := d.known[string(value)]; ok {
		return code
	}
	longer := *d.pool
	longer.Data = append(longer.Data, value...)
	longer.Offsets = append(longer.Offsets, int32(len(longer.Data)))
	longer.Len++
	d.pool = &longer
	code := int32(longer.Len - 1)
	d.known[string(value)] = code
	size := int64(poolEntry + 2*len(value))
	acct.charge(size) // bounded by maxPool, so it is not worth a failure
	d.bytes += size
	return code
}

// load makes remap that of a dictionary.
func (d *dictColumn) load(dict *columnar.Vector) {
	if slices.Equal(d.offsets, dict.Offsets[:dict.Len+1]) && bytes.Equal(d.data, dict.Data) {
		return
	}
	d.offsets, d.data = append(d.offsets[:0], dict.Offsets[:dict.Len+1]...), append(d.data[:0], dict.Data...)
	d.remap = resize(d.remap, dict.Len)
	fillMissing(d.remap, dict.Len)
}

// appendCodes stores n rows of v, those at sel or the first n.
func (c *colStore) appendCodes(v *columnar.Vector, sel []int32, n int) error {
	d := c.dict
	var err error
	if d.codes, err = growSlice(c.acct, d.codes, n); err != nil {
		return err
	}
	if v.Const {
		code := int32(0)
		if !v.IsNull(0) {
			code = d.code(v.BytesAt(0), c.acct)
		}
		for range n {
			d.codes = append(d.codes, code)
		}
		return nil
	}
	d.load(v.Dict)
	for i := range n {
		row := rowAt(sel, i)
		if v.Valid != nil && v.IsNull(row) {
			d.codes = append(d.codes, 0)
			continue
		}
		from := v.Codes[row]
		code := d.remap[from]
		if code < 0 {
			code = d.code(v.Dict.BytesAt(int(from)), c.acct)
			d.remap[from] = code
		}
		d.codes = append(d.codes, code)
	}
	return nil
}

// gatherCodes fills out, whose buffer for codes is reused.
func (d *dictColumn) gatherCodes(rows, buffer []int32, out *columnar.Vector) {
	out.Dict, out.Codes = d.pool, resize(buffer, len(rows))
	for i, row := range rows {
		out.Codes[i] = d.codes[row]
	}
}
