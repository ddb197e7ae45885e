package render

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
)

// everyType is one row of values and one of NULLs, in every public type.
func everyType() arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "bool", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "int", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "double", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "decimal", Type: &arrow.Decimal128Type{Precision: 20, Scale: 3}, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "date", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "time", Type: arrow.FixedWidthTypes.Time64us, Nullable: true},
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
		{Name: "tstz", Type: arrow.FixedWidthTypes.Timestamp_ms, Nullable: true},
		{Name: "interval", Type: arrow.FixedWidthTypes.MonthDayNanoInterval, Nullable: true},
		{Name: "uuid", Type: &arrow.FixedSizeBinaryType{ByteWidth: 16}, Nullable: true},
		{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.BooleanBuilder).Append(true)
	b.Field(1).(*array.Int64Builder).Append(math.MaxInt64)
	b.Field(2).(*array.Float64Builder).Append(0.1)
	b.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(-12345))
	b.Field(4).(*array.StringBuilder).Append(`say "hi", 雁`)
	b.Field(5).(*array.BinaryBuilder).Append([]byte{0, 255})
	b.Field(6).(*array.Date32Builder).Append(19782)
	b.Field(7).(*array.Time64Builder).Append(3_600_000_001)
	b.Field(8).(*array.TimestampBuilder).Append(1_709_164_800_500_000)
	b.Field(9).(*array.TimestampBuilder).Append(-1)
	b.Field(10).(*array.MonthDayNanoIntervalBuilder).Append(arrow.MonthDayNanoInterval{Months: 14, Days: 1, Nanoseconds: -5e8})
	b.Field(11).(*array.FixedSizeBinaryBuilder).Append([]byte("0123456789abcdef"))
	items := b.Field(12).(*array.ListBuilder)
	items.Append(true)
	items.ValueBuilder().(*array.StringBuilder).AppendValues([]string{"a", "b c", ""}, []bool{true, true, false})
	for _, f := range b.Fields() {
		f.AppendNull()
	}
	return b.NewRecordBatch()
}

func once(b arrow.RecordBatch) Batches {
	return func() (arrow.RecordBatch, error) {
		next := b
		b = nil
		return next, nil
	}
}

func print(t *testing.T, f Format, b arrow.RecordBatch) string {
	t.Helper()
	var out strings.Builder
	n, err := Write(&out, f, b.Schema(), once(b))
	if err != nil {
		t.Fatal(err)
	}
	if n != b.NumRows() {
		t.Errorf("%d rows, want %d", n, b.NumRows())
	}
	return out.String()
}

func TestEveryTypeAsCSVAndJSON(t *testing.T) {
	b := everyType()
	wantCSV := `bool,int,double,decimal,text,bytes,date,time,ts,tstz,interval,uuid,list
true,9223372036854775807,0.1,-12.345,"say ""hi"", 雁",\x00ff,2024-02-29,01:00:00.000001,2024-02-29 00:00:00.5,1969-12-31 23:59:59.999+00,1 year 2 mons 1 day -00:00:00.5,30313233-3435-3637-3839-616263646566,"{a,""b c"",NULL}"
,,,,,,,,,,,,
`
	if diff := cmp.Diff(wantCSV, print(t, CSV, b)); diff != "" {
		t.Error(diff)
	}
	wantJSON := `{"bool":true,"int":9223372036854775807,"double":0.1,"decimal":-12.345,"text":"say \"hi\", 雁","bytes":"\\x00ff","date":"2024-02-29","time":"01:00:00.000001","ts":"2024-02-29 00:00:00.5","tstz":"1969-12-31 23:59:59.999+00","interval":"1 year 2 mons 1 day -00:00:00.5","uuid":"30313233-3435-3637-3839-616263646566","list":["a","b c",null]}
{"bool":null,"int":null,"double":null,"decimal":null,"text":null,"bytes":null,"date":null,"time":null,"ts":null,"tstz":null,"interval":null,"uuid":null,"list":null}
`
	if diff := cmp.Diff(wantJSON, print(t, JSON, b)); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "Name", Type: arrow.BinaryTypes.String},
		{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	}, nil)
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema,
		strings.NewReader(`[{"Name":"greylag","n":1204},{"Name":"brant","n":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := `┌─────────┬──────┐
│ Name    │    n │
├─────────┼──────┤
│ greylag │ 1204 │
│ brant   │ NULL │
└─────────┴──────┘
`
	if diff := cmp.Diff(want, print(t, Table, b)); diff != "" {
		t.Error(diff)
	}
	empty := print(t, Table, b.NewSlice(0, 0))
	if !strings.Contains(empty, "Name") {
		t.Errorf("an empty result shows no header:\n%s", empty)
	}
}

func TestErrorAfterRows(t *testing.T) {
	b := everyType()
	boom := errors.New("boom")
	calls := 0
	var out strings.Builder
	n, err := Write(&out, CSV, b.Schema(), func() (arrow.RecordBatch, error) {
		if calls++; calls > 1 {
			return nil, boom
		}
		return b, nil
	})
	if !errors.Is(err, boom) || n != 2 || !strings.Contains(out.String(), "9223372036854775807") {
		t.Errorf("rows %d, error %v, output %q", n, err, out.String())
	}
}

func TestFloats(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 100: "100", 1e15: "1e+15", 1e-5: "1e-05", math.Inf(-1): "-Infinity", 123456789.25: "123456789.25",
	} {
		if got := float(v, 64); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
	if got := float(math.NaN(), 64); got != "NaN" {
		t.Errorf("NaN is %q", got)
	}
}

func TestArrowAndExpanded(t *testing.T) {
	record := everyType()
	defer record.Release()
	var out bytes.Buffer
	n, err := Write(&out, Arrow, record.Schema(), once(record))
	if err != nil || n != record.NumRows() {
		t.Fatal(n, err)
	}
	r, err := ipc.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	if !r.Next() || !array.RecordEqual(record, r.RecordBatch()) || r.Next() || r.Err() != nil {
		t.Errorf("the stream has other rows: %v", r.Err())
	}
	failure := errors.New("broken off")
	out.Reset()
	_, err = Write(&out, Arrow, record.Schema(), func() (arrow.RecordBatch, error) { return nil, failure })
	if !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}

	builder := array.NewStringBuilder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues([]string{"two\nlines", "x"}, []bool{true, false})
	column := builder.NewArray()
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "ä", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "note", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	small := array.NewRecordBatch(schema, []arrow.Array{column, column}, 2)
	defer small.Release()
	out.Reset()
	if _, err := Write(&out, Expanded, schema, once(small)); err != nil {
		t.Fatal(err)
	}
	want := "─[ 1 ]─\nä    │ two\n     │ lines\nnote │ two\n     │ lines\n─[ 2 ]─\nä    │ NULL\nnote │ NULL\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
