package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// ConstVector returns a literal as a constant vector of n rows, in the physical
// type of the literal's type. It fails when the value is not of that type.
func ConstVector(l *planner.Literal, n int) (*columnar.Vector, error) {
	dt := catalog.PhysicalType(l.DataType)
	if l.Value == nil {
		return columnar.NewNull(dt, n), nil
	}
	data, ok := literalBytes(l.Value, dt)
	if !ok {
		return nil, internalf("the literal %v (%T) is not a value of type %s", l.Value, l.Value, catalog.TypeName(l.DataType))
	}
	return columnar.NewConst(dt, data, n), nil
}

func literalBytes(value any, dt arrow.DataType) ([]byte, bool) {
	switch x := value.(type) {
	case bool:
		return []byte{b2u(x)}, dt.ID() == arrow.BOOL
	case int64:
		return intBytes(x, dt)
	case float64:
		switch dt.ID() {
		case arrow.FLOAT32:
			return columnar.Bytes([]float32{float32(x)}), true
		case arrow.FLOAT64:
			return columnar.Bytes([]float64{x}), true
		}
	case decimal128.Num:
		wide := int128OfNum(x)
		switch dt.ID() {
		case arrow.DECIMAL64:
			short, ok := wide.int64()
			return columnar.Bytes([]int64{short}), ok
		case arrow.DECIMAL128:
			return columnar.Bytes([]int128{wide}), true
		}
	case string:
		return []byte(x), dt.ID() == arrow.STRING
	case []byte:
		if dt.ID() == arrow.FIXED_SIZE_BINARY {
			return x, len(x) == columnar.Width(dt)
		}
		return x, dt.ID() == arrow.BINARY
	case arrow.MonthDayNanoInterval:
		return columnar.Bytes([]arrow.MonthDayNanoInterval{x}), dt.ID() == arrow.INTERVAL_MONTH_DAY_NANO
	}
	return nil, false
}

func intBytes(x int64, dt arrow.DataType) ([]byte, bool) {
	switch dt.ID() {
	case arrow.INT16:
		return columnar.Bytes([]int16{int16(x)}), x == int64(int16(x))
	case arrow.INT32, arrow.DATE32:
		return columnar.Bytes([]int32{int32(x)}), x >= math.MinInt32 && x <= math.MaxInt32
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP:
		return columnar.Bytes([]int64{x}), true
	}
	return nil, false
}

// LiteralAt returns one value of a vector as a literal of its public type. The
// literal owns its memory. It fails for list and struct values.
func LiteralAt(v *columnar.Vector, row int) (*planner.Literal, error) {
	l := &planner.Literal{DataType: catalog.PublicType(v.Type)}
	if v.IsNull(row) {
		return l, nil
	}
	switch v.Type.ID() {
	case arrow.BOOL:
		l.Value = at[byte](v, row) != 0
	case arrow.INT16:
		l.Value = int64(at[int16](v, row))
	case arrow.INT32, arrow.DATE32:
		l.Value = int64(at[int32](v, row))
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP:
		l.Value = at[int64](v, row)
	case arrow.FLOAT32:
		l.Value = float64(at[float32](v, row))
	case arrow.FLOAT64:
		l.Value = at[float64](v, row)
	case arrow.DECIMAL64, arrow.DECIMAL128:
		l.Value = wideAt(v, row).num()
	case arrow.STRING:
		l.Value = string(v.BytesAt(row))
	case arrow.BINARY:
		l.Value = append([]byte{}, v.BytesAt(row)...)
	case arrow.FIXED_SIZE_BINARY:
		x := at[[16]byte](v, row)
		l.Value = x[:]
	case arrow.INTERVAL_MONTH_DAY_NANO:
		l.Value = at[arrow.MonthDayNanoInterval](v, row)
	default:
		return nil, internalf("a value of %s has no literal form", v.Type)
	}
	return l, nil
}
