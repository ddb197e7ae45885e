package columnar

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/sqlstate"
)

// maxShortDecimal is the widest decimal that a decimal64 holds.
const maxShortDecimal = 18

// NaturalType is the physical type that FromArrow gives to an Arrow type when
// none is asked for: the narrowest one that holds every value. It fails for
// types that have no counterpart.
func NaturalType(dt arrow.DataType) (arrow.DataType, error) {
	switch t := dt.(type) {
	case *arrow.DictionaryType:
		return NaturalType(t.ValueType)
	case *arrow.RunEndEncodedType:
		return NaturalType(t.Encoded())
	case arrow.ExtensionType:
		return NaturalType(t.StorageType())
	case *arrow.TimestampType:
		if t.TimeZone == "" || t.TimeZone == "UTC" {
			return t, nil
		}
		return &arrow.TimestampType{Unit: t.Unit, TimeZone: "UTC"}, nil
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return t, nil
		}
		return arrow.BinaryTypes.Binary, nil
	case arrow.DecimalType:
		return naturalDecimal(t)
	case *arrow.MapType:
		return naturalList(t.Elem())
	case arrow.ListLikeType:
		return naturalList(t.Elem())
	case *arrow.StructType:
		return naturalStruct(t)
	}
	if nt, ok := naturalScalars[dt.ID()]; ok {
		return nt, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "Arrow type %s is not supported", dt)
}

// naturalScalars maps the parameterless types; it is never written to.
var naturalScalars = map[arrow.Type]arrow.DataType{
	arrow.NULL:                    arrow.Null,
	arrow.BOOL:                    arrow.FixedWidthTypes.Boolean,
	arrow.INT8:                    arrow.PrimitiveTypes.Int16,
	arrow.UINT8:                   arrow.PrimitiveTypes.Int16,
	arrow.INT16:                   arrow.PrimitiveTypes.Int16,
	arrow.UINT16:                  arrow.PrimitiveTypes.Int32,
	arrow.INT32:                   arrow.PrimitiveTypes.Int32,
	arrow.UINT32:                  arrow.PrimitiveTypes.Int64,
	arrow.INT64:                   arrow.PrimitiveTypes.Int64,
	arrow.UINT64:                  &arrow.Decimal128Type{Precision: 20},
	arrow.FLOAT16:                 arrow.PrimitiveTypes.Float32,
	arrow.FLOAT32:                 arrow.PrimitiveTypes.Float32,
	arrow.FLOAT64:                 arrow.PrimitiveTypes.Float64,
	arrow.STRING:                  arrow.BinaryTypes.String,
	arrow.LARGE_STRING:            arrow.BinaryTypes.String,
	arrow.STRING_VIEW:             arrow.BinaryTypes.String,
	arrow.BINARY:                  arrow.BinaryTypes.Binary,
	arrow.LARGE_BINARY:            arrow.BinaryTypes.Binary,
	arrow.BINARY_VIEW:             arrow.BinaryTypes.Binary,
	arrow.DATE32:                  arrow.FixedWidthTypes.Date32,
	arrow.DATE64:                  arrow.FixedWidthTypes.Date32,
	arrow.TIME32:                  arrow.FixedWidthTypes.Time64us,
	arrow.TIME64:                  arrow.FixedWidthTypes.Time64us,
	arrow.DURATION:                arrow.FixedWidthTypes.MonthDayNanoInterval,
	arrow.INTERVAL_MONTHS:         arrow.FixedWidthTypes.MonthDayNanoInterval,
	arrow.INTERVAL_DAY_TIME:       arrow.FixedWidthTypes.MonthDayNanoInterval,
	arrow.INTERVAL_MONTH_DAY_NANO: arrow.FixedWidthTypes.MonthDayNanoInterval,
}

func naturalDecimal(t arrow.DecimalType) (arrow.DataType, error) {
	p, s := t.GetPrecision(), t.GetScale()
	if s < 0 || s > 38 {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "decimal scale %d of Arrow type %s is outside 0 to 38", s, t)
	}
	if p <= maxShortDecimal {
		return &arrow.Decimal64Type{Precision: p, Scale: s}, nil
	}
	return &arrow.Decimal128Type{Precision: min(p, 38), Scale: s}, nil
}

func naturalList(elem arrow.DataType) (arrow.DataType, error) {
	e, err := NaturalType(elem)
	if err != nil {
		return nil, err
	}
	return arrow.ListOf(e), nil
}

func naturalStruct(t *arrow.StructType) (arrow.DataType, error) {
	fields := make([]arrow.Field, t.NumFields())
	for i, f := range t.Fields() {
		nt, err := NaturalType(f.Type)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: f.Name, Type: nt, Nullable: f.Nullable}
	}
	return arrow.StructOf(fields...), nil
}
