package catalog

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/columnar"
	"skein/sqlstate"
)

// The key encoding turns a tuple of values into bytes whose memcmp order is
// the SQL order of the tuples: ascending, nulls last, strings by byte. Every
// value starts with a tag, so a null compares above all others, and is self-delimiting,
// so a prefix of the columns encodes to a prefix of the bytes.
//
// Values that compare equal across the sizes of a type family encode equally
// (smallint, integer and bigint; real and double precision), so equal keys of
// different widths hash to the same bucket.
//
//	integers, date, time, timestamps, decimal(p<=18)  8 bytes, sign flipped, big endian
//	real, double precision                             8 bytes, IEEE total order, -0 = 0, NaN highest
//	boolean                                            1 byte
//	decimal(p>18), interval                            16 bytes, sign flipped, big endian
//	uuid                                               as is
//	text, bytea                                        00 escaped as 00 FF, then 00 01
//	lists                                              tagged elements, then 00
//	structs                                            tagged fields
const (
	keyListEnd byte = 0x00
	keyValue   byte = 0x01
	keyNull    byte = 0x02

	keyEscape     byte = 0xff // after 00: a literal zero byte
	keyTerminator byte = 0x01 // after 00: the end of a string
)

const signBit = 1 << 63

// AppendKey appends the key of one row over the given columns, in order. The
// vectors hold physical types; constant and dictionary layouts are fine.
func AppendKey(dst []byte, cols []*columnar.Vector, row int) []byte {
	for _, v := range cols {
		dst = appendKeyColumn(dst, v, row)
	}
	return dst
}

func appendKeyColumn(dst []byte, v *columnar.Vector, row int) []byte {
	if v.Type.ID() == arrow.NULL || v.IsNull(row) {
		return append(dst, keyNull)
	}
	dst = append(dst, keyValue)
	i := row
	if v.Const {
		i = 0
	}
	switch v.Type.ID() {
	case arrow.BOOL:
		return append(dst, v.Data[i])
	case arrow.INT16:
		return appendKeyInt(dst, int64(columnar.Values[int16](v)[i]))
	case arrow.INT32, arrow.DATE32:
		return appendKeyInt(dst, int64(columnar.Values[int32](v)[i]))
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		return appendKeyInt(dst, columnar.Values[int64](v)[i])
	case arrow.FLOAT32:
		return appendKeyFloat(dst, float64(columnar.Values[float32](v)[i]))
	case arrow.FLOAT64:
		return appendKeyFloat(dst, columnar.Values[float64](v)[i])
	case arrow.DECIMAL128:
		d := columnar.Values[decimal128.Num](v)[i]
		return appendKeyInt128(dst, d.HighBits(), d.LowBits())
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return appendKeyInterval(dst, columnar.Values[arrow.MonthDayNanoInterval](v)[i])
	case arrow.FIXED_SIZE_BINARY:
		w := columnar.Width(v.Type)
		return append(dst, v.Data[i*w:(i+1)*w]...)
	case arrow.LIST:
		for at := v.Offsets[i]; at < v.Offsets[i+1]; at++ {
			dst = appendKeyColumn(dst, v.Children[0], int(at))
		}
		return append(dst, keyListEnd)
	case arrow.STRUCT:
		for _, c := range v.Children {
			dst = appendKeyColumn(dst, c, i)
		}
		return dst
	default:
		return appendKeyBytes(dst, v.BytesAt(row))
	}
}

func appendKeyInt(dst []byte, x int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(x)^signBit)
}

func appendKeyFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(dst, floatKey(f))
}

// floatKey maps floats to integers of the same order.
func floatKey(f float64) uint64 {
	switch {
	case f == 0:
		f = 0 // -0 and 0 are one value
	case f != f:
		return math.MaxUint64
	}
	b := math.Float64bits(f)
	if b&signBit != 0 {
		return ^b
	}
	return b | signBit
}

func appendKeyInt128(dst []byte, hi int64, lo uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(hi)^signBit)
	return binary.BigEndian.AppendUint64(dst, lo)
}

// appendKeyInterval orders intervals by their length with months of 30 days
// and days of 24 hours, as comparison does.
func appendKeyInterval(dst []byte, iv arrow.MonthDayNanoInterval) []byte {
	const dayNanos = 86400 * 1_000_000_000
	days := int64(iv.Months)*30 + int64(iv.Days)
	neg := days < 0
	abs := uint64(days)
	if neg {
		abs = -abs
	}
	hi, lo := bits.Mul64(abs, dayNanos)
	if neg {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	lo, carry := bits.Add64(lo, uint64(iv.Nanoseconds), 0)
	hi, _ = bits.Add64(hi, uint64(iv.Nanoseconds>>63), carry)
	return appendKeyInt128(dst, int64(hi), lo)
}

func appendKeyBytes(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			break
		}
		dst = append(dst, b[:i]...)
		dst = append(dst, 0, keyEscape)
		b = b[i+1:]
	}
	dst = append(dst, b...)
	return append(dst, 0, keyTerminator)
}

// AppendKeyValue appends the key of one value of a type; it equals what
// AppendKey gives for that value in a column. Values are spelled as in plan
// literals: nil for NULL; bool; int64 for integers, dates, times, timestamps
// and unscaled short decimals; float64; decimal128.Num for unscaled decimals;
// string or []byte for text, bytea and uuid; arrow.MonthDayNanoInterval.
func AppendKeyValue(dst []byte, dt arrow.DataType, value any) ([]byte, error) {
	if value == nil {
		return append(dst, keyNull), nil
	}
	dst = append(dst, keyValue)
	dt = PhysicalType(dt)
	switch x := value.(type) {
	case bool:
		if dt.ID() == arrow.BOOL {
			if x {
				return append(dst, 1), nil
			}
			return append(dst, 0), nil
		}
	case int64:
		switch dt.ID() {
		case arrow.INT16, arrow.INT32, arrow.INT64, arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
			return appendKeyInt(dst, x), nil
		case arrow.DECIMAL128:
			return appendKeyInt128(dst, x>>63, uint64(x)), nil
		}
	case float64:
		if dt.ID() == arrow.FLOAT32 || dt.ID() == arrow.FLOAT64 {
			return appendKeyFloat(dst, x), nil
		}
	case decimal128.Num:
		switch dt.ID() {
		case arrow.DECIMAL128:
			return appendKeyInt128(dst, x.HighBits(), x.LowBits()), nil
		case arrow.DECIMAL64:
			if x.HighBits() == int64(x.LowBits())>>63 {
				return appendKeyInt(dst, int64(x.LowBits())), nil
			}
			return nil, sqlstate.New(sqlstate.NumericOutOfRange, "value out of range for type %s", TypeName(dt))
		}
	case arrow.MonthDayNanoInterval:
		if dt.ID() == arrow.INTERVAL_MONTH_DAY_NANO {
			return appendKeyInterval(dst, x), nil
		}
	case string:
		return appendKeyRaw(dst, dt, []byte(x))
	case []byte:
		return appendKeyRaw(dst, dt, x)
	}
	return nil, sqlstate.New(sqlstate.DatatypeMismatch, "a %T cannot be a key value of type %s", value, TypeName(dt))
}

func appendKeyRaw(dst []byte, dt arrow.DataType, b []byte) ([]byte, error) {
	switch dt.ID() {
	case arrow.STRING, arrow.BINARY:
		return appendKeyBytes(dst, b), nil
	case arrow.FIXED_SIZE_BINARY:
		if len(b) == columnar.Width(dt) {
			return append(dst, b...), nil
		}
	}
	return nil, sqlstate.New(sqlstate.DatatypeMismatch, "%d bytes cannot be a key value of type %s", len(b), TypeName(dt))
}

// KeyableType reports whether the key encoding covers a type.
func KeyableType(dt arrow.DataType) bool {
	switch t := dt.(type) {
	case *arrow.ListType:
		return KeyableType(t.Elem())
	case *arrow.StructType:
		for _, f := range t.Fields() {
			if !KeyableType(f.Type) {
				return false
			}
		}
		return true
	}
	switch dt.ID() {
	case arrow.STRING, arrow.BINARY, arrow.NULL:
		return true
	}
	return columnar.Width(dt) > 0
}
