package catalog

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// Keys holds the encoded keys of consecutive rows in one allocation.
type Keys struct {
	data    []byte
	stride  int      // bytes per key when all are equally long, else 0
	offsets []uint32 // len+1 positions in data when stride is 0
	rows    int
}

// EncodeKeys encodes the keys of the first rows rows over the given columns;
// key i equals AppendKey(nil, cols, i). Columns of fixed width without nulls
// take a path that costs a few nanoseconds per value.
func EncodeKeys(cols []*columnar.Vector, rows int) *Keys {
	stride := 0
	for _, v := range cols {
		w := fixedKeyWidth(v)
		if w == 0 {
			return encodeVariableKeys(cols, rows)
		}
		stride += 1 + w
	}
	k := &Keys{data: make([]byte, stride*rows), stride: stride, rows: rows}
	at := 0
	for _, v := range cols {
		fillKeyColumn(k.data, stride, at, v, rows)
		at += 1 + fixedKeyWidth(v)
	}
	return k
}

// KeysOf returns given keys as they are.
func KeysOf(keys ...[]byte) *Keys {
	k := &Keys{offsets: make([]uint32, 1, len(keys)+1), rows: len(keys)}
	for _, key := range keys {
		k.data = append(k.data, key...)
		k.offsets = append(k.offsets, uint32(len(k.data)))
	}
	return k
}

// Len is how many keys there are.
func (k *Keys) Len() int { return k.rows }

// Size is the memory held, in bytes.
func (k *Keys) Size() int { return len(k.data) + 4*len(k.offsets) }

// Key returns the i-th key, aliasing k.
func (k *Keys) Key(i int) []byte {
	if k.stride > 0 {
		return k.data[i*k.stride : (i+1)*k.stride : (i+1)*k.stride]
	}
	return k.data[k.offsets[i]:k.offsets[i+1]:k.offsets[i+1]]
}

func encodeVariableKeys(cols []*columnar.Vector, rows int) *Keys {
	k := &Keys{data: make([]byte, 0, rows*16), offsets: make([]uint32, rows+1), rows: rows}
	for i := range rows {
		k.data = AppendKey(k.data, cols, i)
		k.offsets[i+1] = uint32(len(k.data))
	}
	return k
}

// fixedKeyWidth is the bytes of a column's encoded values, tag excluded, when
// no value is null and all are equally long; else 0.
func fixedKeyWidth(v *columnar.Vector) int {
	if v.Valid != nil || v.Const {
		return 0
	}
	switch v.Type.ID() {
	case arrow.INT16, arrow.INT32, arrow.DATE32, arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64,
		arrow.FLOAT32, arrow.FLOAT64:
		return 8
	case arrow.FIXED_SIZE_BINARY:
		return columnar.Width(v.Type)
	}
	return 0
}

func fillKeyColumn(dst []byte, stride, at int, v *columnar.Vector, rows int) {
	switch v.Type.ID() {
	case arrow.INT16:
		fillKeyInts(dst, stride, at, columnar.Values[int16](v)[:rows])
	case arrow.INT32, arrow.DATE32:
		fillKeyInts(dst, stride, at, columnar.Values[int32](v)[:rows])
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		fillKeyInts(dst, stride, at, columnar.Values[int64](v)[:rows])
	case arrow.FLOAT32:
		fillKeyFloats(dst, stride, at, columnar.Values[float32](v)[:rows])
	case arrow.FLOAT64:
		fillKeyFloats(dst, stride, at, columnar.Values[float64](v)[:rows])
	default:
		w := columnar.Width(v.Type)
		for i := range rows {
			dst[at] = keyValue
			copy(dst[at+1:at+1+w], v.Data[i*w:])
			at += stride
		}
	}
}

func fillKeyInts[T int16 | int32 | int64](dst []byte, stride, at int, values []T) {
	for _, x := range values {
		b := dst[at : at+9]
		b[0] = keyValue
		binary.BigEndian.PutUint64(b[1:], uint64(int64(x))^signBit)
		at += stride
	}
}

func fillKeyFloats[T float32 | float64](dst []byte, stride, at int, values []T) {
	for _, x := range values {
		b := dst[at : at+9]
		b[0] = keyValue
		binary.BigEndian.PutUint64(b[1:], floatKey(float64(x)))
		at += stride
	}
}

// KeySuccessor returns the smallest byte string above every string that has
// the given prefix, or nil when there is none. It reuses no memory of prefix.
func KeySuccessor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != math.MaxUint8 {
			next := append([]byte(nil), prefix[:i+1]...)
			next[i]++
			return next
		}
	}
	return nil
}
