package gateway

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/catalog"
)

// The codes of types, as ODBC and Flight SQL's XdbcDataType number them, and of
// the kinds of date and time.
const (
	xdbcChar          = 1
	xdbcDecimal       = 3
	xdbcInteger       = 4
	xdbcSmallInt      = 5
	xdbcReal          = 7
	xdbcDouble        = 8
	xdbcDatetime      = 9
	xdbcInterval      = 10
	xdbcVarchar       = 12
	xdbcDate          = 91
	xdbcTime          = 92
	xdbcTimestamp     = 93
	xdbcBigInt        = -5
	xdbcVarbinary     = -3
	xdbcLongVarchar   = -1
	xdbcBit           = -7
	xdbcBinary        = -2
	subcodeDate       = 1
	subcodeTime       = 2
	subcodeTimestamp  = 3
	subcodeTimestampZ = 5

	searchableNotByLike = 2 // by all predicates but LIKE
	searchableFully     = 3
)

// typeInfo is one line of the listing of SQL types.
type typeInfo struct {
	dt     arrow.DataType // an example of it; the widest one, where it has parameters
	name   string         // "" is the type's own
	code   int32
	params []string // of the type's name
	quoted string   // what stands before a constant, "" where it is a bare number
	radix  int32    // of numbers
	// verbose and subcode name a kind of date and time; 0 for other types.
	verbose, subcode int32
	minScale         int32
	maxScale         int32
	whole            bool // has no digits behind the point
}

// typeInfos is what the server's types are to JDBC and ODBC, the best
// match of a code first.
func typeInfos() []typeInfo {
	widest := catalog.Decimal(catalog.MaxDecimalPrecision, 0)
	nanoseconds := &arrow.TimestampType{Unit: arrow.Nanosecond}
	zoned := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	return []typeInfo{
		{dt: catalog.UUID, code: xdbcBinary, quoted: "UUID '"},
		{dt: catalog.Boolean, code: xdbcBit},
		{dt: catalog.BigInt, code: xdbcBigInt, radix: 10, whole: true},
		{dt: catalog.Bytea, code: xdbcVarbinary, quoted: `BYTEA '\x`},
		{dt: catalog.Text, code: xdbcLongVarchar, quoted: "'"},
		{dt: catalog.Text, name: "char", code: xdbcChar, quoted: "'", params: []string{"length"}},
		{dt: widest, code: xdbcDecimal, radix: 10, params: []string{"precision", "scale"}, maxScale: catalog.MaxDecimalPrecision},
		{dt: catalog.Integer, code: xdbcInteger, radix: 10, whole: true},
		{dt: catalog.SmallInt, code: xdbcSmallInt, radix: 10, whole: true},
		{dt: catalog.Real, code: xdbcReal, radix: 10},
		{dt: catalog.Double, code: xdbcDouble, radix: 10},
		{dt: catalog.Interval, code: xdbcInterval, quoted: "INTERVAL '"},
		{dt: catalog.Text, name: "varchar", code: xdbcVarchar, quoted: "'", params: []string{"length"}},
		{dt: catalog.Date, code: xdbcDate, quoted: "DATE '", verbose: xdbcDatetime, subcode: subcodeDate},
		{dt: catalog.Time, code: xdbcTime, quoted: "TIME '", verbose: xdbcDatetime, subcode: subcodeTime, minScale: 6, maxScale: 6},
		{dt: nanoseconds, code: xdbcTimestamp, quoted: "TIMESTAMP '", params: []string{"precision"}, verbose: xdbcDatetime, subcode: subcodeTimestamp, maxScale: 9},
		{dt: zoned, code: xdbcTimestamp, quoted: "TIMESTAMPTZ '", params: []string{"precision"}, verbose: xdbcDatetime, subcode: subcodeTimestampZ, maxScale: 9},
	}
}

func (s *sqlService) GetFlightInfoXdbcTypeInfo(_ context.Context, _ flightsql.GetXdbcTypeInfo, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.XdbcTypeInfo), nil
}

// DoGetXdbcTypeInfo lists the SQL types, or those of one code.
func (s *sqlService) DoGetXdbcTypeInfo(_ context.Context, cmd flightsql.GetXdbcTypeInfo) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.XdbcTypeInfo)
	defer b.Release()
	for _, t := range typeInfos() {
		if wanted := cmd.GetDataType(); wanted == nil || *wanted == t.code {
			t.appendTo(b)
		}
	}
	return oneBatch(b.NewRecordBatch())
}

func (t *typeInfo) appendTo(b *array.RecordBuilder) {
	text := func(column int, v string) { b.Field(column).(*array.StringBuilder).Append(v) }
	number := func(column int, v int32) { b.Field(column).(*array.Int32Builder).Append(v) }
	flag := func(column int, v bool) { b.Field(column).(*array.BooleanBuilder).Append(v) }
	optional := func(column int, known bool, v int32) {
		if known {
			number(column, v)
		} else {
			b.Field(column).AppendNull()
		}
	}
	name := t.name
	if name == "" {
		name = baseTypeName(t.dt)
	}
	isText, isNumber := t.dt.ID() == arrow.STRING, t.radix != 0
	size, _ := sizeOf(t.dt)
	text(0, name)
	number(1, t.code)
	optional(2, size > 0, size)
	if t.quoted == "" {
		b.Field(3).AppendNull()
		b.Field(4).AppendNull()
	} else {
		text(3, t.quoted)
		text(4, "'")
	}
	params := b.Field(5).(*array.ListBuilder)
	params.Append(len(t.params) > 0)
	for _, p := range t.params {
		params.ValueBuilder().(*array.StringBuilder).Append(p)
	}
	number(6, 1) // nullable
	flag(7, isText)
	if isText {
		number(8, searchableFully)
	} else {
		number(8, searchableNotByLike)
	}
	if isNumber {
		flag(9, false) // signed
	} else {
		b.Field(9).AppendNull()
	}
	flag(10, false) // no amount of money
	if isNumber {
		flag(11, false) // counts up by itself
	} else {
		b.Field(11).AppendNull()
	}
	text(12, name)
	scaled := t.whole || t.maxScale > 0
	optional(13, scaled, t.minScale)
	optional(14, scaled, t.maxScale)
	if t.verbose != 0 {
		number(15, t.verbose)
	} else {
		number(15, t.code)
	}
	optional(16, t.subcode != 0, t.subcode)
	optional(17, isNumber, t.radix)
	b.Field(18).AppendNull() // intervals have no leading precision
}
