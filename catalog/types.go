package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// MaxDecimalPrecision is the widest DECIMAL, the limit of decimal128.
const MaxDecimalPrecision = 38

// ShortDecimalPrecision is the widest DECIMAL whose unscaled value fits an
// int64; such decimals are stored, computed and exchanged between nodes as
// arrow decimal64 and widened to decimal128 only towards clients.
const ShortDecimalPrecision = 18

// The SQL types that take no parameters, in their Arrow form.
var (
	Boolean     arrow.DataType = arrow.FixedWidthTypes.Boolean
	SmallInt    arrow.DataType = arrow.PrimitiveTypes.Int16
	Integer     arrow.DataType = arrow.PrimitiveTypes.Int32
	BigInt      arrow.DataType = arrow.PrimitiveTypes.Int64
	Real        arrow.DataType = arrow.PrimitiveTypes.Float32
	Double      arrow.DataType = arrow.PrimitiveTypes.Float64
	Text        arrow.DataType = arrow.BinaryTypes.String
	Bytea       arrow.DataType = arrow.BinaryTypes.Binary
	Date        arrow.DataType = arrow.FixedWidthTypes.Date32
	Time        arrow.DataType = arrow.FixedWidthTypes.Time64us
	Timestamp   arrow.DataType = &arrow.TimestampType{Unit: arrow.Microsecond}
	TimestampTZ arrow.DataType = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	Interval    arrow.DataType = arrow.FixedWidthTypes.MonthDayNanoInterval
	UUID        arrow.DataType = &arrow.FixedSizeBinaryType{ByteWidth: 16}
	Null        arrow.DataType = arrow.Null
)

// Decimal returns the public type of DECIMAL(precision, scale).
func Decimal(precision, scale int) arrow.DataType {
	return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}
}

// PhysicalType maps a public SQL type to the type that operators, segments and
// the exchange use: short decimals become decimal64, all else stays.
func PhysicalType(dt arrow.DataType) arrow.DataType {
	if d, ok := dt.(*arrow.Decimal128Type); ok && d.Precision <= ShortDecimalPrecision {
		return &arrow.Decimal64Type{Precision: d.Precision, Scale: d.Scale}
	}
	return dt
}

// PublicType reverses PhysicalType.
func PublicType(dt arrow.DataType) arrow.DataType {
	if d, ok := dt.(*arrow.Decimal64Type); ok {
		return &arrow.Decimal128Type{Precision: d.Precision, Scale: d.Scale}
	}
	return dt
}

var timestampDigits = map[arrow.TimeUnit]int{
	arrow.Second: 0, arrow.Millisecond: 3, arrow.Microsecond: 6, arrow.Nanosecond: 9,
}

// TypeName spells a type as SQL; ParseType reads it back.
func TypeName(dt arrow.DataType) string {
	switch t := dt.(type) {
	case *arrow.Decimal128Type:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case *arrow.Decimal64Type:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case *arrow.TimestampType:
		name := "timestamp"
		if t.TimeZone != "" {
			name = "timestamptz"
		}
		return fmt.Sprintf("%s(%d)", name, timestampDigits[t.Unit])
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return "uuid"
		}
	case *arrow.ListType:
		return TypeName(t.Elem()) + "[]"
	case *arrow.StructType:
		parts := make([]string, t.NumFields())
		for i, f := range t.Fields() {
			parts[i] = QuoteIdent(f.Name) + " " + TypeName(f.Type)
		}
		return "struct<" + strings.Join(parts, ", ") + ">"
	}
	switch dt.ID() {
	case arrow.BOOL:
		return "boolean"
	case arrow.INT16:
		return "smallint"
	case arrow.INT32:
		return "integer"
	case arrow.INT64:
		return "bigint"
	case arrow.FLOAT32:
		return "real"
	case arrow.FLOAT64:
		return "double precision"
	case arrow.STRING:
		return "text"
	case arrow.BINARY:
		return "bytea"
	case arrow.DATE32:
		return "date"
	case arrow.TIME64:
		return "time"
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return "interval"
	case arrow.NULL:
		return "unknown"
	}
	return dt.String()
}

// ParseType reads a type as TypeName spells it.
func ParseType(s string) (arrow.DataType, error) {
	if elem, ok := strings.CutSuffix(s, "[]"); ok {
		dt, err := ParseType(elem)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(dt), nil
	}
	switch s {
	case "boolean":
		return Boolean, nil
	case "smallint":
		return SmallInt, nil
	case "integer":
		return Integer, nil
	case "bigint":
		return BigInt, nil
	case "real":
		return Real, nil
	case "double precision":
		return Double, nil
	case "text":
		return Text, nil
	case "bytea":
		return Bytea, nil
	case "date":
		return Date, nil
	case "time":
		return Time, nil
	case "interval":
		return Interval, nil
	case "uuid":
		return UUID, nil
	case "unknown":
		return Null, nil
	}
	name, args, ok := typeArguments(s)
	if ok {
		switch {
		case name == "decimal" && len(args) == 2:
			if args[0] < 1 || args[0] > MaxDecimalPrecision || args[1] < 0 || args[1] > args[0] {
				return nil, fmt.Errorf("type %q: precision must be 1 to %d and scale 0 to precision", s, MaxDecimalPrecision)
			}
			return Decimal(args[0], args[1]), nil
		case (name == "timestamp" || name == "timestamptz") && len(args) == 1:
			return TimestampOf(args[0], name == "timestamptz")
		}
	}
	return nil, fmt.Errorf("unknown type %q", s)
}

// TimestampOf returns TIMESTAMP(digits) or, with zone, TIMESTAMPTZ(digits);
// digits is rounded up to one of 0, 3, 6 and 9.
func TimestampOf(digits int, zone bool) (arrow.DataType, error) {
	if digits < 0 || digits > 9 {
		return nil, fmt.Errorf("timestamp precision %d is outside 0 to 9", digits)
	}
	unit := arrow.Second
	switch {
	case digits > 6:
		unit = arrow.Nanosecond
	case digits > 3:
		unit = arrow.Microsecond
	case digits > 0:
		unit = arrow.Millisecond
	}
	tz := ""
	if zone {
		tz = "UTC"
	}
	return &arrow.TimestampType{Unit: unit, TimeZone: tz}, nil
}

func typeArguments(s string) (name string, args []int, ok bool) {
	name, rest, found := strings.Cut(s, "(")
	if !found || !strings.HasSuffix(rest, ")") {
		return s, nil, false
	}
	for part := range strings.SplitSeq(rest[:len(rest)-1], ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return s, nil, false
		}
		args = append(args, n)
	}
	return name, args, true
}
