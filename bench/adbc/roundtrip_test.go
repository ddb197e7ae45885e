package adbc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	driver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/validation"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// edges are values of each SQL type in Arrow's JSON: the least, the largest, and
// what is special about it.
var edges = []struct {
	sql    string
	dt     arrow.DataType
	values string // a JSON array
}{
	{"BOOLEAN", arrow.FixedWidthTypes.Boolean, `[true, false, null]`},
	{"SMALLINT", arrow.PrimitiveTypes.Int16, `[-32768, 32767, 0, null]`},
	{"INTEGER", arrow.PrimitiveTypes.Int32, `[-2147483648, 2147483647, -1, null]`},
	{"BIGINT", arrow.PrimitiveTypes.Int64, `[-9223372036854775808, 9223372036854775807, 9007199254740993, null]`},
	{"REAL", arrow.PrimitiveTypes.Float32, `[3.4028234663852886e38, -3.4028234663852886e38, 1.401298464324817e-45, 0.1, -0.0, null]`},
	{"DOUBLE PRECISION", arrow.PrimitiveTypes.Float64, `[1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 0.1, -0.0, null]`},
	{"DECIMAL(18,4)", &arrow.Decimal128Type{Precision: 18, Scale: 4}, `["99999999999999.9999", "-99999999999999.9999", "0.0001", null]`},
	{"DECIMAL(38,0)", &arrow.Decimal128Type{Precision: 38}, `["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "0", null]`},
	{"DECIMAL(38,38)", &arrow.Decimal128Type{Precision: 38, Scale: 38}, `["0.99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001", null]`},
	{"TEXT", arrow.BinaryTypes.String, `["", " ", "it's \"quoted\"", "Ünïcödé \u0001 🪿", "` + strings.Repeat("long ", 20000) + `", null]`},
	{"BYTEA", arrow.BinaryTypes.Binary, `["", "AA==", "/////w==", null]`},
	{"DATE", arrow.FixedWidthTypes.Date32, `["0001-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "2024-02-29", null]`},
	{"TIME", arrow.FixedWidthTypes.Time64us, `["00:00:00", "23:59:59.999999", null]`},
	{"TIMESTAMP(0)", &arrow.TimestampType{Unit: arrow.Second}, `["0001-01-01 00:00:00", "9999-12-31 23:59:59", null]`},
	{"TIMESTAMP", &arrow.TimestampType{Unit: arrow.Microsecond}, `["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", null]`},
	{"TIMESTAMP(9)", &arrow.TimestampType{Unit: arrow.Nanosecond}, `["1677-09-21 00:12:44", "2262-04-11 23:47:16.854775807", null]`},
	{"TIMESTAMPTZ", arrow.FixedWidthTypes.Timestamp_us, `["0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z", null]`},
	{"INTERVAL", arrow.FixedWidthTypes.MonthDayNanoInterval, `[{"months": 0, "days": 0, "nanoseconds": 0}, {"months": 2147483647, "days": -2147483648, "nanoseconds": 9223372036854775000}, {"months": -1, "days": 1, "nanoseconds": -1000}, null]`},
	{"UUID", &arrow.FixedSizeBinaryType{ByteWidth: 16}, `["AAAAAAAAAAAAAAAAAAAAAA==", "/////////////////////w==", null]`},
}

// TestEdgeValues sends the edge values of every type in an ingest and as
// parameters and reads back what was sent.
func TestEdgeValues(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	db, err := driver.NewDriver(mem).NewDatabase(map[string]string{adbc.OptionKeyURI: "grpc+tcp://" + address})
	if err != nil {
		t.Fatal(err)
	}
	defer validation.CheckedClose(t, db)
	connection, err := db.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer validation.CheckedClose(t, connection)
	for i, e := range edges {
		t.Run(e.sql, func(t *testing.T) {
			sent, _, err := array.FromJSON(mem, e.dt, strings.NewReader(e.values))
			if err != nil {
				t.Fatal(err)
			}
			defer sent.Release()
			ingested, bound := fmt.Sprintf("ingested_%d", i), fmt.Sprintf("bound_%d", i)
			for _, table := range []string{ingested, bound} {
				run(ctx, t, connection, fmt.Sprintf("CREATE TABLE %s (place BIGINT PRIMARY KEY, v %s)", table, e.sql), nil)
			}
			b := array.NewInt64Builder(mem)
			defer b.Release()
			for place := range sent.Len() {
				b.Append(int64(place))
			}
			places := b.NewArray()
			defer places.Release()
			schema := arrow.NewSchema([]arrow.Field{{Name: "place", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: e.dt, Nullable: true}}, nil)
			rec := array.NewRecordBatch(schema, []arrow.Array{places, sent}, int64(sent.Len()))
			defer rec.Release()

			statement, err := connection.NewStatement()
			if err != nil {
				t.Fatal(err)
			}
			defer validation.CheckedClose(t, statement)
			for key, value := range map[string]string{adbc.OptionKeyIngestTargetTable: ingested, adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeAppend} {
				if err := statement.SetOption(key, value); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec})
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Release()
			if err := statement.BindStream(ctx, rows); err != nil {
				t.Fatal(err)
			}
			if n, err := statement.ExecuteUpdate(ctx); err != nil || n != int64(sent.Len()) {
				t.Fatalf("ingested %d rows, %v", n, err)
			}
			run(ctx, t, connection, "INSERT INTO "+bound+" VALUES (?, ?)", rec)
			for _, table := range []string{ingested, bound} {
				got := column(ctx, t, connection, "SELECT v FROM "+table+" ORDER BY place")
				if !array.Equal(sent, got) {
					t.Errorf("%s: sent %v, got %v", table, sent, got)
				}
				got.Release()
			}
		})
	}
}

// run executes a statement, prepared where it has parameters.
func run(ctx context.Context, t *testing.T, connection adbc.Connection, text string, parameters arrow.RecordBatch) {
	t.Helper()
	statement, err := connection.NewStatement()
	if err != nil {
		t.Fatal(err)
	}
	defer validation.CheckedClose(t, statement)
	if err := statement.SetSqlQuery(text); err != nil {
		t.Fatal(err)
	}
	if parameters != nil {
		if err := statement.Prepare(ctx); err != nil {
			t.Fatal(err)
		}
		if err := statement.Bind(ctx, parameters); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := statement.ExecuteUpdate(ctx); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// column is the first column of a result of one batch. The caller releases it.
func column(ctx context.Context, t *testing.T, connection adbc.Connection, text string) arrow.Array {
	t.Helper()
	statement, err := connection.NewStatement()
	if err != nil {
		t.Fatal(err)
	}
	defer validation.CheckedClose(t, statement)
	if err := statement.SetSqlQuery(text); err != nil {
		t.Fatal(err)
	}
	rows, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()
	if !rows.Next() {
		t.Fatalf("%s: no rows, %v", text, rows.Err())
	}
	out := rows.RecordBatch().Column(0)
	out.Retain()
	if rows.Next() {
		t.Fatalf("%s: more than one batch", text)
	}
	return out
}
