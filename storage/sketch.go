package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"skein/columnar"
)

// A sketch estimates how many different values a column has: a HyperLogLog of
// sketchSize registers, of which a segment stores those that are set.
//
//	kind       1 byte: none, some or all registers
//	some       count as 2 bytes, then 2 bytes of index and 1 of rank each
//	all        1 byte of rank each
const (
	sketchBits = 10
	sketchSize = 1 << sketchBits

	// sketchRows: smaller segments have none. They are soon merged.
	sketchRows = 64

	sketchNone = 0
	sketchSome = 1
	sketchAll  = 2
)

type sketch [sketchSize]byte

// add counts a value by its hash.
func (s *sketch) add(h uint64) {
	i := h >> (64 - sketchBits)
	rank := byte(bits.LeadingZeros64(h<<sketchBits|1<<(sketchBits-1)) + 1)
	if s[i] < rank {
		s[i] = rank
	}
}

func (s *sketch) merge(o *sketch) {
	for i, r := range o {
		if s[i] < r {
			s[i] = r
		}
	}
}

// estimate is about how many different values were added.
func (s *sketch) estimate() uint64 {
	const alpha = 0.7213 / (1 + 1.079/sketchSize)
	sum, zeros := 0.0, 0
	for _, r := range s {
		sum += 1 / float64(uint64(1)<<min(r, 63))
		if r == 0 {
			zeros++
		}
	}
	estimate := alpha * sketchSize * sketchSize / sum
	if estimate <= 2.5*sketchSize && zeros > 0 {
		estimate = sketchSize * math.Log(sketchSize/float64(zeros))
	}
	return uint64(math.Round(estimate))
}

// mixWord spreads a number over 64 bits.
func mixWord(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15 // zero must not be its own hash
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// appendSketch appends the sketch of a flat vector's values.
func appendSketch(dst []byte, v *columnar.Vector) []byte {
	var s sketch
	if !s.addAll(v) {
		return append(dst, sketchNone)
	}
	set := 0
	for _, r := range s {
		if r > 0 {
			set++
		}
	}
	if set*3+2 >= sketchSize {
		return append(append(dst, sketchAll), s[:]...)
	}
	dst = binary.LittleEndian.AppendUint16(append(dst, sketchSome), uint16(set))
	for i, r := range s {
		if r > 0 {
			dst = append(binary.LittleEndian.AppendUint16(dst, uint16(i)), r)
		}
	}
	return dst
}

// addAll returns false for types that have no sketch.
func (s *sketch) addAll(v *columnar.Vector) bool {
	switch v.Type.ID() {
	case arrow.BOOL:
		addWords(s, v, v.Data)
	case arrow.INT16:
		addWords(s, v, columnar.Values[int16](v))
	case arrow.INT32, arrow.DATE32:
		addWords(s, v, columnar.Values[int32](v))
	case arrow.FLOAT32:
		addWords(s, v, columnar.Values[uint32](v))
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		addWords(s, v, columnar.Values[int64](v))
	case arrow.FLOAT64:
		addWords(s, v, columnar.Values[uint64](v))
	case arrow.STRING, arrow.BINARY:
		for i := range v.Len {
			if !v.IsNull(i) {
				s.add(xxhash.Sum64(v.BytesAt(i)))
			}
		}
	case arrow.DECIMAL128, arrow.FIXED_SIZE_BINARY:
		w := columnar.Width(v.Type)
		for i := range v.Len {
			if !v.IsNull(i) {
				s.add(xxhash.Sum64(v.Data[i*w : (i+1)*w]))
			}
		}
	default:
		return false
	}
	return true
}

func addWords[T int16 | int32 | int64 | uint8 | uint32 | uint64](s *sketch, v *columnar.Vector, values []T) {
	for i, x := range values[:v.Len] {
		if v.Valid == nil || v.Valid[i>>3]&(1<<(i&7)) != 0 {
			s.add(mixWord(uint64(x)))
		}
	}
}

// readSketches passes the sketches of a segment's columns, in its order, to
// use; nil for a column without one.
func readSketches(src []byte, columns int, use func(column int, s *sketch)) error {
	r := &reader{b: src}
	for c := range columns {
		s := &sketch{}
		switch kind := r.byte(); {
		case r.err != nil:
		case kind == sketchNone:
			s = nil
		case kind == sketchAll:
			copy(s[:], r.take(sketchSize))
		case kind == sketchSome:
			n := binary.LittleEndian.Uint16(append(r.take(2), 0, 0))
			for range n {
				if b := r.take(3); b != nil {
					s[binary.LittleEndian.Uint16(b)%sketchSize] = b[2]
				}
			}
		default:
			return fmt.Errorf("sketch of unknown kind %d", kind)
		}
		if r.err != nil {
			return r.err
		}
		use(c, s)
	}
	return r.done()
}
