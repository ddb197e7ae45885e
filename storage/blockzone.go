package storage

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// blockRows is how many rows share a block zone. Scans return batches that do
// not cross blocks.
const blockRows = columnar.BatchRows

// blockZone bounds the values of a block by eight bytes of what encodes them in
// keys, as a number: those after the bytes that all values of the segment start
// with. min above max means that there is no value.
//
// For wordKeys types the eight bytes are the whole value. Those of other types
// are cut, or filled up with zeros: values in order have words in order, but
// different values may have the same word.
type blockZone struct{ min, max uint64 }

func (z blockZone) empty() bool { return z.min > z.max }

// wordKeys reports whether every value of a physical type is encoded in a key
// as a tag and eight bytes.
func wordKeys(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.INT16, arrow.INT32, arrow.DATE32, arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64,
		arrow.FLOAT32, arrow.FLOAT64:
		return true
	}
	return false
}

// keyWord is the eight bytes of an encoded value after its tag.
func keyWord(key []byte) (uint64, bool) {
	if len(key) != 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// wordAt is the eight bytes of a key from a position on, filled up with zeros.
func wordAt(key []byte, from int) uint64 {
	var b [8]byte
	copy(b[:], key[min(from, len(key)):])
	return binary.BigEndian.Uint64(b[:])
}

// sharedBytes is how many bytes all encoded values within the bounds start with,
// at least. A cut maximum ends in a byte that is above that of the values, and
// the minimum is not: the bounds differ there at the latest.
func (z *zone) sharedBytes(dt arrow.DataType) int {
	n := 1 // the tag
	if wordKeys(dt) {
		return n
	}
	for most := min(len(z.min), len(z.max)); n < most && z.min[n] == z.max[n]; n++ {
	}
	return n
}

// zonesOf computes the bounds of a flat vector's values and of its blocks; the
// latter are nil when there is only one block, or none can have bounds.
func zonesOf(v *columnar.Vector) (zone, []blockZone) {
	if v.Len <= blockRows || v.Const {
		lo, hi := extremes(v)
		if lo < 0 {
			return zone{}, nil
		}
		col := []*columnar.Vector{v}
		return newZone(catalog.AppendKey(nil, col, lo), catalog.AppendKey(nil, col, hi)), nil
	}
	blocks := (v.Len + blockRows - 1) / blockRows
	bounds := make([][2][]byte, blocks)
	var least, most []byte
	for b := range blocks {
		block := v.Slice(b*blockRows, min((b+1)*blockRows, v.Len))
		lo, hi := extremes(block)
		if lo < 0 {
			continue
		}
		col := []*columnar.Vector{block}
		first, last := catalog.AppendKey(nil, col, lo), catalog.AppendKey(nil, col, hi)
		bounds[b] = [2][]byte{first, last}
		if least == nil || bytes.Compare(first, least) < 0 {
			least = first
		}
		if bytes.Compare(last, most) > 0 {
			most = last
		}
	}
	if least == nil {
		return zone{}, nil
	}
	z := newZone(least, most)
	shared := z.sharedBytes(v.Type)
	zones := make([]blockZone, blocks)
	for b, bound := range bounds {
		zones[b] = blockZone{min: 1}
		if bound[0] != nil {
			zones[b] = blockZone{wordAt(bound[0], shared), wordAt(bound[1], shared)}
		}
	}
	return z, zones
}

// blockNulls counts the nulls of each block, nil when none or all values are
// null or there is only one block.
func blockNulls(v *columnar.Vector, nulls int) []int {
	if v.Len <= blockRows || nulls == 0 || nulls == v.Len {
		return nil
	}
	out := make([]int, 0, (v.Len+blockRows-1)/blockRows)
	for from := 0; from < v.Len; from += blockRows {
		out = append(out, v.Slice(from, min(from+blockRows, v.Len)).NullCount())
	}
	return out
}

func appendBlockZones(dst []byte, zones []blockZone) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(zones)))
	last := uint64(1 << 63)
	for _, z := range zones {
		dst = binary.AppendVarint(dst, int64(z.min-last))
		dst = binary.AppendUvarint(dst, z.max-z.min)
		last = z.min
	}
	return dst
}

func readBlockZones(r *reader, rows int) []blockZone {
	n := r.count(uint64((rows + blockRows - 1) / blockRows))
	if n == 0 {
		return nil
	}
	zones := make([]blockZone, n)
	last := uint64(1 << 63)
	for i := range zones {
		last += uint64(r.varint())
		zones[i] = blockZone{min: last, max: last + r.uvarint()}
	}
	if n != (rows+blockRows-1)/blockRows {
		r.err = errShort
	}
	return zones
}

func appendBlockNulls(dst []byte, nulls []int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(nulls)))
	for _, n := range nulls {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

func readBlockNulls(r *reader, rows int) []int {
	blocks := (rows + blockRows - 1) / blockRows
	n := r.count(uint64(blocks))
	if n == 0 {
		return nil
	}
	nulls := make([]int, n)
	for i := range nulls {
		nulls[i] = r.count(blockRows)
	}
	if n != blocks {
		r.err = errShort
	}
	return nulls
}

// blockWord is the word of an encoded value as the column's block zones have
// them, or the side of all of the segment's values that it lies on: -1 below,
// 1 above.
func (c *columnMeta) blockWord(dt arrow.DataType, key []byte) (word uint64, side int) {
	shared := c.zone.sharedBytes(catalog.PhysicalType(dt))
	prefix := c.zone.min[:min(shared, len(c.zone.min))]
	if side = bytes.Compare(key[:min(len(key), len(prefix))], prefix); side != 0 {
		return 0, side
	}
	return wordAt(key, shared), 0
}

// blockFilter is a filter's values as words of one segment's blocks.
type blockFilter struct {
	op    Op
	words []uint64 // of those that share what all values of the segment start with
	side  int      // of the only value of a comparison; see blockWord
	exact bool     // equal words are equal values
}

// blocks translates a filter for a column's blocks.
func (f *filter) blocks(dt arrow.DataType, c *columnMeta) blockFilter {
	out := blockFilter{op: f.op, exact: wordKeys(catalog.PhysicalType(dt))}
	if out.exact {
		out.words = f.words
		return out
	}
	for _, key := range f.keys {
		word, side := c.blockWord(dt, key)
		if side == 0 {
			out.words = append(out.words, word)
		}
		out.side = side
	}
	return out
}

// excludes reports that no row of a block satisfies the filter, which is no
// null test.
func (f *blockFilter) excludes(z blockZone) bool {
	if z.empty() {
		return true
	}
	if f.op == OpEqual || f.op == OpIn {
		return !slices.ContainsFunc(f.words, func(w uint64) bool { return z.min <= w && w <= z.max })
	}
	if f.side != 0 || len(f.words) == 0 {
		switch f.op {
		case OpLess, OpLessEqual:
			return f.side < 0
		case OpGreater, OpGreaterEqual:
			return f.side > 0
		}
		return false
	}
	first := f.words[0]
	switch f.op {
	case OpNotEqual:
		return f.exact && z.min == z.max && z.min == first
	case OpLess:
		return z.min > first || (f.exact && z.min == first)
	case OpLessEqual:
		return z.min > first
	case OpGreater:
		return z.max < first || (f.exact && z.max == first)
	case OpGreaterEqual:
		return z.max < first
	}
	return false
}

// skipBlocks marks the blocks in which no row satisfies the filter.
func (f *filter) skipBlocks(dt arrow.DataType, m *segmentMeta, c *columnMeta, skip func(block int)) {
	if f.op == OpIsNull || f.op == OpIsNotNull {
		for b, nulls := range c.blockNulls {
			rows := min(blockRows, m.rows-b*blockRows)
			if (f.op == OpIsNull && nulls == 0) || (f.op == OpIsNotNull && nulls == rows) {
				skip(b)
			}
		}
		return
	}
	if len(c.blocks) == 0 {
		return
	}
	bf := f.blocks(dt, c)
	for b, z := range c.blocks {
		if bf.excludes(z) {
			skip(b)
		}
	}
}

// leadingKey is the part of an encoded key that encodes its first column.
func leadingKey(dt arrow.DataType, key []byte) []byte {
	n := len(key)
	switch dt = catalog.PhysicalType(dt); dt.ID() {
	case arrow.STRING, arrow.BINARY:
		for i := 1; i+1 < len(key); i++ {
			if key[i] != 0 {
				continue
			}
			if key[i+1] != 0xff { // not a zero byte that belongs to the value
				n = i + 2
				break
			}
			i++
		}
	case arrow.BOOL:
		n = 2
	case arrow.DECIMAL128, arrow.INTERVAL_MONTH_DAY_NANO:
		n = 17
	case arrow.FIXED_SIZE_BINARY:
		n = 1 + columnar.Width(dt)
	default:
		n = 9
	}
	return key[:min(n, len(key))]
}
