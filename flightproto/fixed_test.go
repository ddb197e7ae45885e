package flightproto

import (
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// written is what arrow-go sends of a record: the schema and the rows.
func written(t testing.TB, record arrow.RecordBatch, options ...ipc.Option) []*flight.FlightData {
	t.Helper()
	to := &forwardStream{}
	w := flight.NewRecordWriter(to, append(options, ipc.WithSchema(record.Schema()))...)
	if err := w.Write(record); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return to.sent
}

func parameters(t testing.TB, mem memory.Allocator) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "c", Type: arrow.FixedWidthTypes.Date32}, {Name: "d", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil))
	defer b.Release()
	for i := range 9 {
		b.Field(0).(*array.Int64Builder).AppendValues([]int64{int64(i)}, []bool{i%3 != 0})
		b.Field(1).(*array.Int32Builder).Append(int32(-i))
		b.Field(2).(*array.Date32Builder).Append(arrow.Date32(i))
		b.Field(3).(*array.Float64Builder).AppendNull()
	}
	return b.NewRecordBatch()
}

func TestFixedRecord(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	want := parameters(t, mem)
	defer want.Release()
	for _, record := range []arrow.RecordBatch{want, want.NewSlice(4, 5), want.NewSlice(0, 0)} {
		messages := written(t, record)
		got := FixedRecord(record.Schema(), messages[1])
		if got == nil {
			t.Fatalf("%d rows were not decoded", record.NumRows())
		}
		if !array.RecordEqual(got, record) {
			t.Errorf("got %v, want %v", got, record)
		}
		got.Release()
		if FixedRecord(record.Schema(), messages[0]) != nil {
			t.Error("a schema was decoded as rows")
		}
		if record != want {
			record.Release()
		}
	}
}

// What has another layout is left to a reader.
func TestFixedRecordLeavesOthers(t *testing.T) {
	texts := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}}, nil))
	defer texts.Release()
	texts.Field(0).(*array.StringBuilder).Append("text")
	flags := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.FixedWidthTypes.Boolean}}, nil))
	defer flags.Release()
	flags.Field(0).(*array.BooleanBuilder).Append(true)
	for _, b := range []*array.RecordBuilder{texts, flags} {
		record := b.NewRecordBatch()
		if FixedRecord(record.Schema(), written(t, record)[1]) != nil {
			t.Errorf("%s was decoded", record.Schema())
		}
		record.Release()
	}
	record := parameters(t, memory.DefaultAllocator)
	defer record.Release()
	if FixedRecord(record.Schema(), written(t, record, ipc.WithZstd())[1]) != nil {
		t.Error("compressed rows were decoded")
	}
	narrow := arrow.NewSchema(record.Schema().Fields()[:2], nil)
	if FixedRecord(narrow, written(t, record)[1]) != nil {
		t.Error("rows of another schema were decoded")
	}
}

// Damaged messages are refused or decoded to as many rows as they say, within
// their bytes: reading every value would panic otherwise.
func TestFixedRecordSurvivesDamage(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	record := parameters(t, memory.DefaultAllocator)
	defer record.Release()
	good := written(t, record)[1]
	decoded := 0
	for range 20_000 {
		bad := &flight.FlightData{DataHeader: append([]byte(nil), good.DataHeader...), DataBody: good.DataBody}
		for range 1 + random.IntN(3) {
			bad.DataHeader[random.IntN(len(bad.DataHeader))] = byte(random.IntN(256))
		}
		if random.IntN(4) == 0 {
			bad.DataBody = bad.DataBody[:random.IntN(len(bad.DataBody))]
		}
		got := FixedRecord(record.Schema(), bad)
		if got == nil {
			continue
		}
		decoded++
		for _, c := range got.Columns() {
			for i := range c.Len() {
				_ = c.ValueStr(i)
			}
		}
		got.Release()
	}
	if decoded == 0 || decoded == 20_000 {
		t.Errorf("seed %d: %d messages were decoded", seed, decoded)
	}
}
