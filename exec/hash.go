package exec

import (
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"skein/columnar"
)

// hashMul is 2^64 divided by the golden ratio, the usual odd multiplier.
const hashMul = 0x9E3779B97F4A7C15

// mix64 spreads a word over all bits of the result.
func mix64(x, seed uint64) uint64 {
	hi, lo := bits.Mul64(x^seed, hashMul)
	return hi ^ lo
}

// tableSeed makes the layout of hash tables differ from run to run, so that no
// input can be prepared to collide.
type tableSeed struct {
	word  uint64
	bytes maphash.Seed
}

func newTableSeed() tableSeed {
	seed := maphash.MakeSeed()
	return tableSeed{word: maphash.Comparable(seed, uint64(1)) | 1, bytes: seed}
}

// normalFloat64 gives equal floats equal bits: -0 equals 0, and all NaNs are
// one value.
func normalFloat64(f float64) uint64 {
	switch {
	case f == 0:
		return 0
	case f != f:
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(f)
}

// Interval lengths for comparison: a month counts as 30 days.
const (
	dayNanos  = 24 * 3600 * 1_000_000_000
	monthDays = 30
)

// intervalSpan is the total nanoseconds of an interval as a 128-bit integer,
// which is what intervals are compared by.
func intervalSpan(iv arrow.MonthDayNanoInterval) (hi int64, lo uint64) {
	days := int64(iv.Months)*monthDays + int64(iv.Days)
	neg := days < 0
	if neg {
		days = -days
	}
	h, l := bits.Mul64(uint64(days), dayNanos)
	if neg {
		var borrow uint64
		l, borrow = bits.Sub64(0, l, 0)
		h, _ = bits.Sub64(0, h, borrow)
	}
	l, carry := bits.Add64(l, uint64(iv.Nanoseconds), 0)
	h, _ = bits.Add64(h, uint64(iv.Nanoseconds>>63), carry)
	return int64(h), l
}

// partitionHasher computes the hash by which repartition exchanges route rows.
// It depends on the key values only, so that every producer, whatever its
// process or the width of its integer and decimal columns, sends equal keys to
// the same consumer.
type partitionHasher struct {
	keys   []int
	hashes []uint64
	words  []uint64
	dict   []uint64
}

// Constants of the partition hash. They are part of the wire contract between
// the nodes of one query.
const (
	nullHash      = 0x6C62272E07BB0142 // stands for a null key column
	partitionSeed = 0xA0761D6478BD642F
)

// hash returns one hash per selected row of the batch, valid until the next
// call.
func (h *partitionHasher) hash(b *columnar.Batch) []uint64 {
	n := b.Rows()
	if cap(h.hashes) < n {
		h.hashes = make([]uint64, n)
	}
	h.hashes = h.hashes[:n]
	clear(h.hashes)
	for _, k := range h.keys {
		h.column(b.Cols[k], b.Sel)
	}
	return h.hashes
}

func (h *partitionHasher) column(v *columnar.Vector, sel []int32) {
	n := len(h.hashes)
	if cap(h.words) < n {
		h.words = make([]uint64, n)
	}
	words := h.words[:n]
	switch v.Type.ID() {
	case arrow.INTERVAL_MONTH_DAY_NANO:
		hashWideColumn(words, v, sel, func(x arrow.MonthDayNanoInterval) uint64 { return hashWide(intervalSpan(x)) })
	case arrow.DECIMAL128:
		hashWideColumn(words, v, sel, func(x word128) uint64 { return hashWide(int64(x[1]), x[0]) })
	case arrow.FIXED_SIZE_BINARY:
		hashWideColumn(words, v, sel, func(x word128) uint64 { return x[0] ^ mix64(x[1], nullHash) })
	case arrow.STRING, arrow.BINARY:
		h.bytes(words, v, sel)
	default:
		loadWords(words, v, sel)
	}
	if v.Valid != nil {
		for i := range words {
			if v.IsNull(rowAt(sel, i)) {
				words[i] = nullHash
			}
		}
	}
	for i, x := range words {
		h.hashes[i] = mix64(bits.RotateLeft64(h.hashes[i], 23)^x, partitionSeed)
	}
}

// rowAt is the row at position i of a selection; nil selects every row.
func rowAt(sel []int32, i int) int {
	if sel != nil {
		return int(sel[i])
	}
	return i
}

// hashWide gives a 128-bit integer that fits an int64 the hash of that int64.
func hashWide(hi int64, lo uint64) uint64 {
	if hi == int64(lo)>>63 {
		return lo
	}
	return lo ^ mix64(uint64(hi), nullHash)
}

// hashWideColumn hashes 16-byte values; those of null rows are unspecified.
func hashWideColumn[T any](words []uint64, v *columnar.Vector, sel []int32, hash func(T) uint64) {
	vals := columnar.Values[T](v)
	for i := range words {
		row := rowAt(sel, i)
		if v.Const {
			row = 0
		}
		words[i] = hash(vals[row])
	}
}

func (h *partitionHasher) bytes(words []uint64, v *columnar.Vector, sel []int32) {
	if v.Dict == nil {
		for i := range words {
			if row := rowAt(sel, i); !v.IsNull(row) {
				words[i] = xxhash.Sum64(v.BytesAt(row))
			}
		}
		return
	}
	h.dict = h.dict[:0]
	for i := 0; i < v.Dict.Len; i++ {
		h.dict = append(h.dict, xxhash.Sum64(v.Dict.BytesAt(i)))
	}
	for i := range words {
		row := rowAt(sel, i)
		if v.IsNull(row) {
			continue
		}
		if v.Const {
			row = 0
		}
		words[i] = h.dict[v.Codes[row]]
	}
}

// loadWords writes one word per selected row of a column of at most 8 bytes a
// value, equal for equal values: integers are sign-extended, floats normalised.
// The words of null rows are unspecified.
func loadWords(dst []uint64, v *columnar.Vector, sel []int32) {
	switch v.Type.ID() {
	case arrow.BOOL:
		loadIntegers[uint8](dst, v, sel)
	case arrow.INT16:
		loadIntegers[int16](dst, v, sel)
	case arrow.INT32, arrow.DATE32:
		loadIntegers[int32](dst, v, sel)
	case arrow.FLOAT32:
		loadFloats[float32](dst, v, sel)
	case arrow.FLOAT64:
		loadFloats[float64](dst, v, sel)
	default: // int64 and everything stored like it
		loadIntegers[int64](dst, v, sel)
	}
}

func loadIntegers[T uint8 | int16 | int32 | int64](dst []uint64, v *columnar.Vector, sel []int32) {
	vals := columnar.Values[T](v)
	switch {
	case v.Const:
		word := uint64(vals[0])
		for i := range dst {
			dst[i] = word
		}
	case sel == nil:
		for i, x := range vals[:len(dst)] {
			dst[i] = uint64(x)
		}
	default:
		for i, row := range sel[:len(dst)] {
			dst[i] = uint64(vals[row])
		}
	}
}

func loadFloats[T float32 | float64](dst []uint64, v *columnar.Vector, sel []int32) {
	vals := columnar.Values[T](v)
	for i := range dst {
		row := rowAt(sel, i)
		if v.Const {
			row = 0
		}
		dst[i] = normalFloat64(float64(vals[row]))
	}
}
