package merge

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

const signBit = 1 << 63

// ScoreKey maps one value of a numeric or temporal column to a key that orders
// like the value, higher ranking better. NaN ranks above all other floats and
// 0 equals -0, as in PostgreSQL. A null maps to 0, the lowest key, which it
// shares with the smallest integer. Other types answer FeatureNotSupported.
func ScoreKey(v *columnar.Vector, row int) (uint64, error) {
	read, err := scoreReader(v)
	if err != nil {
		return 0, err
	}
	if v.IsNull(row) {
		return 0, nil
	}
	if v.Const {
		row = 0
	}
	return read(row), nil
}

// AppendScoreKeys appends the keys of the rows in sel, or of all rows when sel
// is nil; see ScoreKey.
func AppendScoreKeys(dst []uint64, v *columnar.Vector, sel []int32) ([]uint64, error) {
	read, err := scoreReader(v)
	if err != nil {
		return dst, err
	}
	n := v.Len
	if sel != nil {
		n = len(sel)
	}
	for i := range n {
		row := i
		if sel != nil {
			row = int(sel[i])
		}
		key := uint64(0)
		if !v.IsNull(row) {
			if v.Const {
				row = 0
			}
			key = read(row)
		}
		dst = append(dst, key)
	}
	return dst, nil
}

// scoreReader returns how to map the value at a physical position.
func scoreReader(v *columnar.Vector) (func(int) uint64, error) {
	switch v.Type.ID() {
	case arrow.UINT64:
		return func(i int) uint64 { return binary.LittleEndian.Uint64(v.Data[8*i:]) }, nil
	case arrow.INT16:
		vals := columnar.Values[int16](v)
		return func(i int) uint64 { return signedKey(int64(vals[i])) }, nil
	case arrow.INT32, arrow.DATE32:
		vals := columnar.Values[int32](v)
		return func(i int) uint64 { return signedKey(int64(vals[i])) }, nil
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		vals := columnar.Values[int64](v)
		return func(i int) uint64 { return signedKey(vals[i]) }, nil
	case arrow.FLOAT32:
		vals := columnar.Values[float32](v)
		return func(i int) uint64 { return floatKey(float64(vals[i])) }, nil
	case arrow.FLOAT64:
		vals := columnar.Values[float64](v)
		return func(i int) uint64 { return floatKey(vals[i]) }, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "a column of type %s cannot be the score of a distributed top-k", v.Type)
}

func signedKey(x int64) uint64 { return uint64(x) ^ signBit }

func floatKey(f float64) uint64 {
	switch {
	case f == 0:
		return signBit
	case f != f:
		return math.MaxUint64
	}
	bits := math.Float64bits(f)
	if bits&signBit != 0 {
		return ^bits
	}
	return bits | signBit
}
