package exec

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// sortKeyCoder writes the sort key of rows as bytes whose unsigned order is the
// order asked for: nulls and descending columns included, floats with NaN
// above all others, text bytewise. Keys of different values differ, and none is
// a prefix of another.
type sortKeyCoder struct {
	keys     []planner.SortKey
	types    []arrow.DataType
	nullable []bool // by key: whether a byte that places nulls leads the column
	pos      []int  // scratch: write position of each row in the arena
	words    []uint64
}

func newSortKeyCoder(schema *arrow.Schema, keys []planner.SortKey) (*sortKeyCoder, error) {
	c := &sortKeyCoder{keys: keys}
	for _, k := range keys {
		if err := checkOrdinals("sort key", []int{k.Column}, schema); err != nil {
			return nil, err
		}
		t := schema.Field(k.Column).Type
		w := columnar.Width(t)
		if w == 0 && t.ID() != arrow.STRING && t.ID() != arrow.BINARY || w > 0 && !supportedWidth(w) {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "ordering by a column of type %s is not supported", t)
		}
		c.types = append(c.types, t)
		c.nullable = append(c.nullable, true)
	}
	return c, nil
}

// fixedWidth is the size of every key, or 0 when it varies.
func (c *sortKeyCoder) fixedWidth() int {
	total := 0
	for i, t := range c.types {
		w := columnar.Width(t)
		if w == 0 {
			return 0
		}
		total += w
		if c.nullable[i] {
			total++
		}
	}
	return total
}

// sortKeys holds encoded keys: key i is data[ends[i-1]:ends[i]].
type sortKeys struct {
	data []byte
	ends []int64
}

func (s *sortKeys) reset() { s.data, s.ends = s.data[:0], s.ends[:0] }

// free gives the memory back; a nil receiver holds none.
func (s *sortKeys) free(acct *Account) {
	if s != nil {
		s.data, s.ends = freeSlice(acct, s.data), freeSlice(acct, s.ends)
	}
}

func (s *sortKeys) key(i int) []byte {
	start := int64(0)
	if i > 0 {
		start = s.ends[i-1]
	}
	return s.data[start:s.ends[i]]
}

// word is the depth-th group of 8 bytes of key i, padded with zeros.
func (s *sortKeys) word(i, depth int) uint64 {
	return keyWord(s.key(i), depth)
}

func keyWord(key []byte, depth int) uint64 {
	at := depth * 8
	if at+8 <= len(key) {
		return binary.BigEndian.Uint64(key[at:])
	}
	var tail [8]byte
	if at < len(key) {
		copy(tail[:], key[at:])
	}
	return binary.BigEndian.Uint64(tail[:])
}

// encode appends the keys of the selected rows to dst. cols holds the whole
// batch; column k of the sort reads cols[keys[k].Column].
func (c *sortKeyCoder) encode(dst *sortKeys, cols []*columnar.Vector, sel []int32, n int, acct *Account) error {
	if sel != nil {
		n = len(sel)
	}
	c.pos = resize(c.pos, n)
	clear(c.pos)
	for k := range c.keys {
		c.addSizes(k, cols[c.keys[k].Column], sel)
	}
	total, base := 0, len(dst.data)
	for i, size := range c.pos {
		c.pos[i] = base + total
		total += size
	}
	var err error
	if dst.data, err = growSlice(acct, dst.data, total); err != nil {
		return err
	}
	if dst.ends, err = growSlice(acct, dst.ends, n); err != nil {
		return err
	}
	dst.data = dst.data[:base+total]
	for k := range c.keys {
		c.write(dst.data, k, cols[c.keys[k].Column], sel)
	}
	for _, end := range c.pos {
		dst.ends = append(dst.ends, int64(end))
	}
	return nil
}

func (c *sortKeyCoder) addSizes(k int, v *columnar.Vector, sel []int32) {
	size := columnar.Width(v.Type)
	if c.nullable[k] {
		size++
	}
	if columnar.Width(v.Type) > 0 {
		for i := range c.pos {
			c.pos[i] += size
		}
		return
	}
	for i := range c.pos {
		c.pos[i] += size
		if row := rowAt(sel, i); !v.IsNull(row) {
			s := v.BytesAt(row)
			c.pos[i] += len(s) + bytes.Count(s, []byte{0}) + 2
		}
	}
}

// write adds key column k to every row and advances the write positions. Null
// values of fixed width are written as zeros.
func (c *sortKeyCoder) write(data []byte, k int, v *columnar.Vector, sel []int32) {
	if c.nullable[k] {
		c.writeNulls(data, c.keys[k], v, sel)
	}
	flip := byte(0)
	if c.keys[k].Descending {
		flip = 0xff
	}
	width := columnar.Width(v.Type)
	switch width {
	case 0:
		c.writeBytes(data, v, sel, flip)
		return
	case 16:
		c.writeWide(data, v, sel, flip)
	default:
		c.loadOrdered(v, sel)
		c.writeNarrow(data, v, sel, flip, width)
	}
}

func (c *sortKeyCoder) writeNulls(data []byte, key planner.SortKey, v *columnar.Vector, sel []int32) {
	null := byte(2)
	if key.NullsFirst {
		null = 0
	}
	for i, at := range c.pos {
		data[at] = 1
		if v.Valid != nil && v.IsNull(rowAt(sel, i)) {
			data[at] = null
		}
		c.pos[i]++
	}
}

// loadOrdered fills words with the values, mapped so that their low bytes
// compare unsigned.
func (c *sortKeyCoder) loadOrdered(v *columnar.Vector, sel []int32) {
	c.words = resize(c.words, len(c.pos))
	loadWords(c.words, v, sel)
	switch v.Type.ID() {
	case arrow.BOOL:
	case arrow.FLOAT64:
		for i, w := range c.words {
			c.words[i] = orderedFloat(w)
		}
	case arrow.FLOAT32:
		for i, w := range c.words {
			bits := math.Float32bits(float32(math.Float64frombits(w)))
			if bits&(1<<31) != 0 {
				bits = ^bits
			} else {
				bits |= 1 << 31
			}
			c.words[i] = uint64(bits)
		}
	default:
		sign := uint64(1) << (columnar.Width(v.Type)*8 - 1)
		for i := range c.words {
			c.words[i] ^= sign
		}
	}
}

// orderedFloat maps a float's bits so that they compare unsigned.
func orderedFloat(bits uint64) uint64 {
	if bits&(1<<63) != 0 {
		return ^bits
	}
	return bits | 1<<63
}

func (c *sortKeyCoder) writeNarrow(data []byte, v *columnar.Vector, sel []int32, flip byte, width int) {
	if v.Valid != nil {
		for i := range c.words {
			if v.IsNull(rowAt(sel, i)) {
				c.words[i] = 0
			}
		}
	}
	mask := uint64(0)
	if flip != 0 {
		mask = math.MaxUint64
	}
	switch width {
	case 8:
		for i, at := range c.pos {
			binary.BigEndian.PutUint64(data[at:], c.words[i]^mask)
			c.pos[i] = at + 8
		}
	case 4:
		for i, at := range c.pos {
			binary.BigEndian.PutUint32(data[at:], uint32(c.words[i]^mask))
			c.pos[i] = at + 4
		}
	case 2:
		for i, at := range c.pos {
			binary.BigEndian.PutUint16(data[at:], uint16(c.words[i]^mask))
			c.pos[i] = at + 2
		}
	default:
		for i, at := range c.pos {
			data[at] = byte(c.words[i] ^ mask)
			c.pos[i] = at + 1
		}
	}
}

func (c *sortKeyCoder) writeWide(data []byte, v *columnar.Vector, sel []int32, flip byte) {
	vals := columnar.Values[word128](v)
	interval := v.Type.ID() == arrow.INTERVAL_MONTH_DAY_NANO
	uuid := v.Type.ID() == arrow.FIXED_SIZE_BINARY
	for i, at := range c.pos {
		row := rowAt(sel, i)
		var hi, lo uint64
		if v.Valid == nil || !v.IsNull(row) {
			if v.Const {
				row = 0
			}
			switch {
			case interval:
				var span int64
				span, lo = intervalSpan(columnar.Values[arrow.MonthDayNanoInterval](v)[row])
				hi = uint64(span) ^ 1<<63
			case uuid:
				hi, lo = binary.BigEndian.Uint64(v.Data[row*16:]), binary.BigEndian.Uint64(v.Data[row*16+8:])
			default:
				lo, hi = vals[row][0], vals[row][1]^1<<63
			}
		}
		if flip != 0 {
			hi, lo = ^hi, ^lo
		}
		binary.BigEndian.PutUint64(data[at:], hi)
		binary.BigEndian.PutUint64(data[at+8:], lo)
		c.pos[i] = at + 16
	}
}

// writeBytes writes strings with zero bytes escaped as 00 ff and ended by
// 00 00, so that a prefix sorts before its continuations.
func (c *sortKeyCoder) writeBytes(data []byte, v *columnar.Vector, sel []int32, flip byte) {
	for i, at := range c.pos {
		row := rowAt(sel, i)
		if v.IsNull(row) {
			continue
		}
		start := at
		s := v.BytesAt(row)
		for {
			zero := bytes.IndexByte(s, 0)
			if zero < 0 {
				break
			}
			at += copy(data[at:], s[:zero])
			data[at], data[at+1] = 0, 0xff
			at += 2
			s = s[zero+1:]
		}
		at += copy(data[at:], s)
		data[at], data[at+1] = 0, 0
		at += 2
		if flip != 0 {
			for j := start; j < at; j++ {
				data[j] ^= flip
			}
		}
		c.pos[i] = at
	}
}
