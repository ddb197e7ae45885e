package storage

import (
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// blockRows is how many rows share a block zone. Scans return batches that do
// not cross blocks.
const blockRows = columnar.BatchRows

// blockZone bounds the values of a block by the eight bytes that encode them in
// keys, as a number. min above max means that there is no value.
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

// blockZones computes the zones of a flat vector's blocks, nil when there is
// only one.
func blockZones(v *columnar.Vector) []blockZone {
	if v.Len <= blockRows || v.Const || !wordKeys(v.Type) {
		return nil
	}
	zones := make([]blockZone, 0, (v.Len+blockRows-1)/blockRows)
	var key []byte
	for from := 0; from < v.Len; from += blockRows {
		block := v.Slice(from, min(from+blockRows, v.Len))
		z := blockZone{min: 1}
		if lo, hi := extremes(block); lo >= 0 {
			col := []*columnar.Vector{block}
			key = catalog.AppendKey(key[:0], col, lo)
			z.min, _ = keyWord(key)
			key = catalog.AppendKey(key[:0], col, hi)
			z.max, _ = keyWord(key)
		}
		zones = append(zones, z)
	}
	return zones
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

// excludesBlock reports that no row of a block satisfies the filter.
func (f *filter) excludesBlock(z blockZone) bool {
	if f.op == OpIsNotNull {
		return z.empty()
	}
	if f.op == OpIsNull || len(f.words) == 0 {
		return false
	}
	if z.empty() {
		return true
	}
	first := f.words[0]
	switch f.op {
	case OpEqual, OpIn:
		return !slices.ContainsFunc(f.words, func(w uint64) bool { return z.min <= w && w <= z.max })
	case OpNotEqual:
		return z.min == z.max && z.min == first
	case OpLess:
		return z.min >= first
	case OpLessEqual:
		return z.min > first
	case OpGreater:
		return z.max <= first
	case OpGreaterEqual:
		return z.max < first
	}
	return false
}
