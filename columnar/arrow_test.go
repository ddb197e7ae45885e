package columnar

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"skein/sqlstate"
)

func TestArrowRoundTrip(t *testing.T) {
	forTypes(t, func(t *rapid.T, dt arrow.DataType) {
		v := randomVector(t, dt)
		rows := randomRows(t, v.Len)
		sel := rows
		if rapid.Bool().Draw(t, "all") {
			rows, sel = allRows(0, v.Len), nil
		}
		public := dt
		if d, ok := dt.(*arrow.Decimal64Type); ok && rapid.Bool().Draw(t, "public") {
			public = &arrow.Decimal128Type{Precision: d.Precision, Scale: d.Scale}
		}
		schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: public, Nullable: true}}, nil)
		rec, err := ToArrow(&Batch{Cols: []*Vector{v}, Len: v.Len, Sel: sel}, schema)
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Release()
		from := rapid.IntRange(0, len(rows)).Draw(t, "from")
		part := rec.NewSlice(int64(from), int64(len(rows)))
		defer part.Release()
		back, err := FromRecord(part, arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt}}, nil))
		if err != nil {
			t.Fatal(err)
		}
		requireRows(t, back.Cols[0], v, rows[from:])
	})
}

func TestDictionaryRoundTrip(t *testing.T) {
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	b, _ := NewBuilder(arrow.BinaryTypes.String)
	_ = b.AppendBytes([]byte("x"))
	_ = b.AppendBytes([]byte("y"))
	v := &Vector{Type: arrow.BinaryTypes.String, Len: 3, Codes: []int32{1, 0, 1}, Valid: []byte{0b101}, Dict: b.Finish()}
	arr, err := ToArray(v, nil, dict)
	if err != nil {
		t.Fatal(err)
	}
	defer arr.Release()
	back, err := FromArrow(arr, nil)
	if err != nil {
		t.Fatal(err)
	}
	if back.Dict == nil || cell(back, 0) != `"y"` || cell(back, 1) != "null" {
		t.Fatalf("got %s, %s", cell(back, 0), cell(back, 1))
	}
}

// ingest builds an Arrow array with a checked allocator, converts it, and
// verifies that the conversion keeps no reference to it.
func ingest(t *testing.T, dt arrow.DataType, want arrow.DataType, fill func(b array.Builder)) (*Vector, error) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	b := array.NewBuilder(mem, dt)
	defer b.Release()
	fill(b)
	arr := b.NewArray()
	defer arr.Release()
	return FromArrow(arr, want)
}

// text fills any builder from strings; "(null)" is null.
func text(values ...string) func(b array.Builder) {
	return func(b array.Builder) {
		for _, s := range values {
			if s == "(null)" {
				b.AppendNull()
			} else if err := b.AppendValueFromString(s); err != nil {
				panic(err)
			}
		}
	}
}

func TestIngest(t *testing.T) {
	int32s := func(xs ...int32) string { return joinFixed(xs) }
	int64s := func(xs ...int64) string { return joinFixed(xs) }
	nanos := func(xs ...int64) string {
		out := make([]arrow.MonthDayNanoInterval, len(xs))
		for i, x := range xs {
			out[i].Nanoseconds = x
		}
		return joinFixed(out)
	}
	tests := []struct {
		name string
		dt   arrow.DataType
		fill func(b array.Builder)
		typ  string
		want string
	}{
		{"int8", arrow.PrimitiveTypes.Int8, text("-128", "(null)", "127"), "int16", joinFixed([]int16{-128, 0, 127})},
		{"uint8", arrow.PrimitiveTypes.Uint8, text("255"), "int16", joinFixed([]int16{255})},
		{"uint16", arrow.PrimitiveTypes.Uint16, text("65535"), "int32", int32s(65535)},
		{"uint32", arrow.PrimitiveTypes.Uint32, text("4294967295"), "int64", int64s(4294967295)},
		{"uint64", arrow.PrimitiveTypes.Uint64, text("18446744073709551615"), "decimal(20, 0)", joinFixed([]decimal128.Num{decimal128.FromU64(math.MaxUint64)})},
		{"float16", arrow.FixedWidthTypes.Float16, func(b array.Builder) { b.(*array.Float16Builder).Append(float16.New(1.5)) }, "float32", joinFixed([]float32{1.5})},
		{"large string", arrow.BinaryTypes.LargeString, text("ab", "(null)", "c"), "utf8", `"ab",null,"c",`},
		{"string view", arrow.BinaryTypes.StringView, text("ab", "a string longer than twelve bytes", "(null)"), "utf8", `"ab","a string longer than twelve bytes",null,`},
		{"large binary", arrow.BinaryTypes.LargeBinary, func(b array.Builder) { b.(*array.BinaryBuilder).Append([]byte{1}) }, "binary", `"\x01",`},
		{"binary view", arrow.BinaryTypes.BinaryView, func(b array.Builder) { b.(*array.BinaryViewBuilder).Append([]byte{1}) }, "binary", `"\x01",`},
		{"fixed binary", &arrow.FixedSizeBinaryType{ByteWidth: 2}, func(b array.Builder) { b.(*array.FixedSizeBinaryBuilder).Append([]byte{1, 2}) }, "binary", `"\x01\x02",`},
		{"date64", arrow.FixedWidthTypes.Date64, func(b array.Builder) { b.(*array.Date64Builder).Append(-86_400_000) }, "date32", int32s(-1)},
		{"time32s", arrow.FixedWidthTypes.Time32s, func(b array.Builder) { b.(*array.Time32Builder).Append(2) }, "time64[us]", int64s(2_000_000)},
		{"time32ms", arrow.FixedWidthTypes.Time32ms, func(b array.Builder) { b.(*array.Time32Builder).Append(2) }, "time64[us]", int64s(2_000)},
		{"time64ns", arrow.FixedWidthTypes.Time64ns, func(b array.Builder) { b.(*array.Time64Builder).Append(2_000) }, "time64[us]", int64s(2)},
		{"zoned", &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Europe/Paris"}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(7) }, "timestamp[s, tz=UTC]", int64s(7)},
		{"duration", arrow.FixedWidthTypes.Duration_ms, func(b array.Builder) { b.(*array.DurationBuilder).Append(3) }, "month_day_nano_interval", nanos(3_000_000)},
		{"day time", arrow.FixedWidthTypes.DayTimeInterval, func(b array.Builder) {
			b.(*array.DayTimeIntervalBuilder).Append(arrow.DayTimeInterval{Milliseconds: -1})
		}, "month_day_nano_interval", nanos(-1_000_000)},
		{"months", arrow.FixedWidthTypes.MonthInterval, func(b array.Builder) { b.(*array.MonthIntervalBuilder).Append(0) }, "month_day_nano_interval", nanos(0)},
		{"decimal32", &arrow.Decimal32Type{Precision: 9, Scale: 2}, func(b array.Builder) { b.(*array.Decimal32Builder).Append(-5) }, "decimal64(9, 2)", int64s(-5)},
		{"decimal128 short", &arrow.Decimal128Type{Precision: 18, Scale: 2}, func(b array.Builder) { b.(*array.Decimal128Builder).Append(decimal128.FromI64(-5)) }, "decimal64(18, 2)", int64s(-5)},
		{"decimal64 long", &arrow.Decimal64Type{Precision: 18, Scale: 2}, func(b array.Builder) { b.(*array.Decimal64Builder).Append(decimal.Decimal64(-5)) }, "decimal64(18, 2)", int64s(-5)},
		{"decimal256", &arrow.Decimal256Type{Precision: 50, Scale: 2}, func(b array.Builder) { b.(*array.Decimal256Builder).Append(decimal256.FromI64(-5)) }, "decimal(38, 2)", joinFixed([]decimal128.Num{decimal128.FromI64(-5)})},
		{"null", arrow.Null, func(b array.Builder) { b.AppendNulls(2) }, "null", "null,null,"},
		{"dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}, text("x", "(null)", "y", "x"), "utf8", `"x",null,"y","x",`},
		{"int dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int32}, text("7", "(null)", "7"), "int32", "07000000,null,07000000,"},
		{"empty dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, text("(null)"), "utf8", "null,"},
		{"large list", arrow.LargeListOf(arrow.PrimitiveTypes.Int8), text("[1,2]", "(null)", "[]"), "list<item: int16, nullable>", "[0100,0200,],null,[],"},
		{"fixed list", arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Int8), text("[1]", "(null)"), "list<item: int16, nullable>", "[0100,],null,"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			v, err := ingest(t, c.dt, nil, c.fill)
			if err != nil {
				t.Fatal(err)
			}
			if v.Type.String() != c.typ {
				t.Errorf("type %s, want %s", v.Type, c.typ)
			}
			got := ""
			for i := range v.Len {
				got += cell(v, i) + ","
			}
			if !sameButNulls(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// joinFixed renders fixed-width values as cell does.
func joinFixed[T any](xs []T) string {
	s := ""
	for i := range xs {
		v := &Vector{Type: arrow.PrimitiveTypes.Int16, Len: 1, Data: Bytes(xs[i : i+1])}
		s += hexOf(v.Data) + ","
	}
	return s
}

func hexOf(p []byte) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range p {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// sameButNulls accepts any value where got is null and the want is a zero.
func sameButNulls(got, want string) bool {
	g, w := strings.Split(got, ","), strings.Split(want, ",")
	if len(g) != len(w) {
		return false
	}
	for i := range g {
		if g[i] != w[i] && !(g[i] == "null" && strings.Trim(w[i], "0") == "") {
			return false
		}
	}
	return true
}

func TestIngestRunEnds(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	b := array.NewRunEndEncodedBuilder(mem, arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)
	defer b.Release()
	values := b.ValueBuilder().(*array.StringBuilder)
	b.Append(3)
	values.Append("a")
	b.Append(2)
	values.AppendNull()
	b.Append(1)
	values.Append("b")
	arr := b.NewArray()
	defer arr.Release()
	part := array.NewSlice(arr, 2, 6)
	defer part.Release()
	v, err := FromArrow(part, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for i := range v.Len {
		got += cell(v, i) + ","
	}
	if got != `"a",null,null,"b",` {
		t.Errorf("got %s", got)
	}
}

func TestIngestWanted(t *testing.T) {
	short := &arrow.Decimal64Type{Precision: 4, Scale: 2}
	decimals := func(x int64) func(array.Builder) {
		return func(b array.Builder) { b.(*array.Decimal128Builder).Append(decimal128.FromI64(x)) }
	}
	stamps := func(x int64) func(array.Builder) {
		return func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(x)) }
	}
	long := &arrow.Decimal128Type{Precision: 30, Scale: 2}
	micros, seconds := &arrow.TimestampType{Unit: arrow.Microsecond}, &arrow.TimestampType{Unit: arrow.Second}
	tests := []struct {
		name     string
		dt, want arrow.DataType
		fill     func(array.Builder)
		code     sqlstate.Code
		cell     string
	}{
		{"narrow int", arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int16, text("-32768"), "", "0080"},
		{"too wide int", arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int16, text("32768"), sqlstate.NumericOutOfRange, ""},
		{"uint64 as bigint", arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Int64, text("7"), "", "0700000000000000"},
		{"huge uint64", arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Int64, text("9223372036854775808"), sqlstate.NumericOutOfRange, ""},
		{"short decimal", long, short, decimals(9999), "", "0f27000000000000"},
		{"precision", long, short, decimals(10000), sqlstate.NumericOutOfRange, ""},
		{"other scale", long, &arrow.Decimal64Type{Precision: 4, Scale: 1}, decimals(1), sqlstate.DatatypeMismatch, ""},
		{"finer", seconds, micros, stamps(1), "", "40420f0000000000"},
		{"coarser", micros, seconds, stamps(2_000_000), "", "0200000000000000"},
		{"coarser with loss", micros, seconds, stamps(1), sqlstate.DatetimeOverflow, ""},
		{"finer beyond", seconds, micros, stamps(math.MaxInt64), sqlstate.DatetimeOverflow, ""},
		{"real as double", arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, text("1.5"), "", "000000000000f83f"},
		{"double as real", arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Float32, text("1.5"), sqlstate.DatatypeMismatch, ""},
		{"text as int", arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, text("1"), sqlstate.DatatypeMismatch, ""},
		{"null as text", arrow.Null, arrow.BinaryTypes.String, func(b array.Builder) { b.AppendNull() }, "", "null"},
		{"part of a day", arrow.FixedWidthTypes.Date64, nil, func(b array.Builder) { b.(*array.Date64Builder).Append(1) }, sqlstate.DatetimeOverflow, ""},
		{"fine time", arrow.FixedWidthTypes.Time64ns, nil, func(b array.Builder) { b.(*array.Time64Builder).Append(1) }, sqlstate.DatetimeOverflow, ""},
		{"long duration", arrow.FixedWidthTypes.Duration_s, nil, func(b array.Builder) { b.(*array.DurationBuilder).Append(math.MaxInt64) }, sqlstate.DatetimeOverflow, ""},
		{"list of ints", arrow.ListOf(arrow.PrimitiveTypes.Int8), arrow.ListOf(arrow.PrimitiveTypes.Int64), text("[5]"), "", "[0500000000000000,]"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			v, err := ingest(t, c.dt, c.want, c.fill)
			if sqlstate.CodeOf(err) != c.code {
				t.Fatalf("error %v, want code %q", err, c.code)
			}
			if err == nil && cell(v, 0) != c.cell {
				t.Errorf("got %s, want %s", cell(v, 0), c.cell)
			}
		})
	}
	if _, err := NaturalType(arrow.SparseUnionOf(nil, nil)); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("unions: %v", err)
	}
}

func TestRecordErrorsNameTheColumn(t *testing.T) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "price", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1 << 40)
	rec := b.NewRecordBatch()
	defer rec.Release()
	_, err := FromRecord(rec, arrow.NewSchema([]arrow.Field{{Name: "price", Type: arrow.PrimitiveTypes.Int32}}, nil))
	if err == nil || !strings.Contains(err.Error(), `"price"`) || !strings.Contains(err.Error(), "1099511627776") {
		t.Errorf("error %v does not name column and value", err)
	}
}

func TestCheckUTF8(t *testing.T) {
	for s, ok := range map[string]bool{"": true, "héllo": true, "a\x00b": false, "a\xffb": false} {
		if err := CheckUTF8(NewConst(arrow.BinaryTypes.String, []byte(s), 3)); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
	if err := CheckUTF8(NewConst(arrow.BinaryTypes.Binary, []byte{0xff}, 1)); err != nil {
		t.Errorf("binary: %v", err)
	}
}
