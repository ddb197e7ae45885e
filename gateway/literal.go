package gateway

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// literalAt reads one value of a physical vector as a literal of the public
// type dt. It is for parameters, not for bulk data.
func literalAt(v *columnar.Vector, row int, dt arrow.DataType) (*planner.Literal, error) {
	lit := &planner.Literal{DataType: dt}
	if v.IsNull(row) {
		return lit, nil
	}
	at := row
	if v.Const {
		at = 0
	}
	switch v.Type.ID() {
	case arrow.NULL:
	case arrow.BOOL:
		lit.Value = v.Data[at] != 0
	case arrow.INT16:
		lit.Value = int64(columnar.Values[int16](v)[at])
	case arrow.INT32, arrow.DATE32:
		lit.Value = int64(columnar.Values[int32](v)[at])
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP:
		lit.Value = columnar.Values[int64](v)[at]
	case arrow.FLOAT32:
		lit.Value = float64(columnar.Values[float32](v)[at])
	case arrow.FLOAT64:
		lit.Value = columnar.Values[float64](v)[at]
	case arrow.DECIMAL64:
		lit.Value = decimal128.FromI64(columnar.Values[int64](v)[at])
	case arrow.DECIMAL128:
		lit.Value = columnar.Values[decimal128.Num](v)[at]
	case arrow.INTERVAL_MONTH_DAY_NANO:
		lit.Value = columnar.Values[arrow.MonthDayNanoInterval](v)[at]
	case arrow.STRING:
		lit.Value = string(v.BytesAt(row))
	case arrow.BINARY:
		lit.Value = append([]byte{}, v.BytesAt(row)...)
	case arrow.FIXED_SIZE_BINARY:
		w := columnar.Width(v.Type)
		lit.Value = append([]byte{}, v.Data[at*w:(at+1)*w]...)
	default:
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "parameters of type %s are not supported", catalog.TypeName(dt))
	}
	return lit, nil
}
