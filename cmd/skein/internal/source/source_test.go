package source

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll returns every row as JSON, and the reader's error.
func readAll(t *testing.T, r *Reader) ([]string, error) {
	t.Helper()
	var rows []string
	for r.Next() {
		b := r.RecordBatch()
		if !b.Schema().Equal(r.Schema()) {
			t.Fatalf("batch has schema %v, the reader %v", b.Schema(), r.Schema())
		}
		column := array.RecordToStructArray(b)
		for i := range column.Len() {
			text, err := json.Marshal(column.GetOneForMarshal(i))
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(text))
		}
		column.Release()
	}
	return rows, r.Err()
}

func TestInferredCSV(t *testing.T) {
	path := writeFile(t, "t.csv", "\uFEFFId,price,day,at,ok,note\n"+
		"1,1.5,2024-02-29,2024-02-29T10:00:00,true,\"a,b\"\n"+
		"2,,,,false,\n")
	r, err := Open(context.Background(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var types []string
	for _, f := range r.Schema().Fields() {
		types = append(types, f.Name+" "+f.Type.String())
	}
	want := []string{"id int64", "price float64", "day date32", "at timestamp[us]", "ok bool", "note utf8"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	rows, err := readAll(t, r)
	if err != nil {
		t.Fatal(err)
	}
	wantRows := []string{
		`{"at":"2024-02-29T10:00:00","day":"2024-02-29","id":1,"note":"a,b","ok":true,"price":1.5}`,
		`{"at":null,"day":null,"id":2,"note":null,"ok":false,"price":null}`,
	}
	if diff := cmp.Diff(wantRows, rows); diff != "" {
		t.Error(diff)
	}
	if r.ConsumedBytes() != r.TotalBytes {
		t.Errorf("consumed %d of %d bytes", r.ConsumedBytes(), r.TotalBytes)
	}
}

func TestCSVWithTableSchema(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int16},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 10, Scale: 2}},
		{Name: "id", Type: &arrow.FixedSizeBinaryType{ByteWidth: 16}},
		{Name: "raw", Type: arrow.BinaryTypes.Binary},
		{Name: "clock", Type: arrow.FixedWidthTypes.Time64us},
		{Name: "r", Type: arrow.PrimitiveTypes.Float32},
		{Name: "n", Type: arrow.PrimitiveTypes.Int32},
		{Name: "missing", Type: arrow.BinaryTypes.String},
	}, nil)
	header := "AMOUNT,a,id,raw,clock,r,n\n"
	good := `-12.50,7,6ba7b810-9dad-11d1-80b4-00c04fd430c8,\x00ff,23:59:59.5,1.5,-3` + "\n"
	r, err := Open(context.Background(), writeFile(t, "t.csv", header+good), Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readAll(t, r)
	if err != nil || len(rows) != 1 {
		t.Fatalf("rows %v, error %v", rows, err)
	}
	if got := r.Schema().Field(0).Name; got != "amount" {
		t.Errorf("first column is %q, want the table's spelling", got)
	}
	for _, tc := range []struct{ name, csv, want string }{
		{"too fine a decimal", strings.Replace(good, "-12.50", "0.125", 1), `near line 2, column "amount": "0.125" is not a valid decimal(10, 2)`},
		{"integer overflow", strings.Replace(good, ",7,", ",40000,", 1), `column "a": "40000"`},
		{"short row", "1.00,7\n", "wrong number of fields"},
		{"bad uuid", strings.Replace(good, "6ba7", "zzzz", 1), `column "id"`},
		{"bytes without prefix", strings.Replace(good, `\x`, ``, 1), `column "raw"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Open(context.Background(), writeFile(t, "t.csv", header+tc.csv), Options{Schema: schema})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			if _, err = readAll(t, r); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	for _, tc := range []struct{ file, content, want string }{
		{"t.txt", "a\n1\n", `extension ".txt" is not one of`},
		{"t.csv", "", "the first line must name the columns"},
		{"t.csv", "nope\n1\n", `column "nope" of the header is not a column of the table`},
		{"t.parquet", "not parquet", "reading"},
		{"t.arrow", "not arrow", "reading"},
	} {
		options := Options{Schema: arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)}
		_, err := Open(context.Background(), writeFile(t, tc.file, tc.content), options)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %q: error is %v, want %q", tc.file, tc.content, err, tc.want)
		}
	}
}

// sampleBatches are two batches with a NULL in them.
func sampleBatches(t *testing.T) []arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int64},
		{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	var batches []arrow.RecordBatch
	for _, rows := range []string{`[{"a":1,"b":"x"},{"a":2,"b":null}]`, `[{"a":3,"b":"z"}]`} {
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	return batches
}

func TestColumnarFormats(t *testing.T) {
	batches := sampleBatches(t)
	schema := batches[0].Schema()
	want := []string{`{"a":1,"b":"x"}`, `{"a":2,"b":null}`, `{"a":3,"b":"z"}`}
	writers := map[string]func(f *os.File) (interface {
		Write(arrow.RecordBatch) error
		Close() error
	}, error){
		"t.parquet": func(f *os.File) (interface {
			Write(arrow.RecordBatch) error
			Close() error
		}, error) {
			return pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
		},
		"file.arrow": func(f *os.File) (interface {
			Write(arrow.RecordBatch) error
			Close() error
		}, error) {
			return ipc.NewFileWriter(f, ipc.WithSchema(schema))
		},
		"stream.arrows": func(f *os.File) (interface {
			Write(arrow.RecordBatch) error
			Close() error
		}, error) {
			return ipc.NewWriter(f, ipc.WithSchema(schema)), nil
		},
	}
	for name, open := range writers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			w, err := open(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				if err := w.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			_ = f.Close() // the Parquet writer has closed it already
			r, err := Open(context.Background(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t, r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if r.ConsumedBytes() == 0 {
				t.Error("no progress was reported")
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
