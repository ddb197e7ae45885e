package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
	"skein/cmd/skein/internal/slt"
)

// TestSLT runs the suites of testdata/slt, each against a server of its own.
// SKEIN_ADDR names a running one to use instead; its tables are then in the
// way of a second run.
func TestSLT(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/slt/*.slt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no suites: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			records, err := slt.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			address := os.Getenv("SKEIN_ADDR")
			if address == "" {
				address = startDev(t, ":memory:").flight
			}
			db := flightDatabase{dial(t, address)}
			for _, r := range records {
				if err := r.Check(testContext(t), db); err != nil {
					t.Errorf("%s:%d: %s\n%v", file, r.Line, r.SQL, err)
				}
			}
		})
	}
}

// flightDatabase runs statements over Flight SQL. Of every result it checks,
// besides, that what was streamed is what was announced.
type flightDatabase struct{ client *client.Client }

var sqlstateText = regexp.MustCompile(`\(SQLSTATE ([0-9A-Z]{5})`)

func (d flightDatabase) Run(ctx context.Context, sql string) (*slt.Result, error) {
	result, err := d.run(ctx, sql)
	if err == nil {
		return result, nil
	}
	if code := sqlstateText.FindStringSubmatch(err.Error()); code != nil {
		return nil, &slt.Refusal{Code: code[1], Err: err}
	}
	return nil, err
}

func (d flightDatabase) run(ctx context.Context, sql string) (*slt.Result, error) {
	r, err := d.client.Run(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if r.Schema() == nil {
		return &slt.Result{Changed: r.Affected()}, nil
	}
	result := &slt.Result{}
	for _, f := range r.Schema().Fields() {
		result.Columns += columnLetter(f.Type)
	}
	for {
		b, err := r.Next()
		if err != nil || b == nil {
			return result, err
		}
		if err := announced(r.Schema(), b); err != nil {
			return nil, err
		}
		for row := range int(b.NumRows()) {
			cells := make([]string, b.NumCols())
			for i, c := range b.Columns() {
				cells[i] = cell(c, row)
			}
			result.Rows = append(result.Rows, cells)
		}
	}
}

func columnLetter(dt arrow.DataType) string {
	switch {
	case arrow.IsInteger(dt.ID()):
		return "I"
	case arrow.IsFloating(dt.ID()), arrow.IsDecimal(dt.ID()):
		return "R"
	}
	return "T"
}

func cell(column arrow.Array, row int) string {
	text, ok := render.Cell(column, row)
	switch {
	case !ok:
		return "NULL"
	case text == "":
		return "(empty)"
	}
	return text
}

// announced compares a batch with the schema that the client was told.
func announced(schema *arrow.Schema, b arrow.RecordBatch) error {
	if !b.Schema().Equal(schema) {
		return fmt.Errorf("streamed %v, announced %v", b.Schema(), schema)
	}
	for i, f := range schema.Fields() {
		c := b.Column(i)
		if !f.Nullable && c.NullN() > 0 {
			return fmt.Errorf("column %q holds NULL and was announced without", f.Name)
		}
		dt, decimal := f.Type.(*arrow.Decimal128Type)
		if !decimal {
			continue
		}
		for row := range c.Len() {
			if digits := countDigits(c.ValueStr(row)); !c.IsNull(row) && digits > int(dt.Precision) {
				return fmt.Errorf("column %q of %v holds %s", f.Name, dt, c.ValueStr(row))
			}
		}
	}
	return nil
}

// countDigits counts the digits of a number from its first significant one on.
func countDigits(number string) int {
	n := 0
	for _, c := range number {
		if c >= '0' && c <= '9' && (n > 0 || c != '0') {
			n++
		}
	}
	return n
}
