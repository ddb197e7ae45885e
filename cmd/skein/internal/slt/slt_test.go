package slt

import (
	"context"
	"errors"
	"strings"
	"testing"
)

type fake map[string]any

func (f fake) Run(_ context.Context, sql string) (*Result, error) {
	switch v := f[sql].(type) {
	case *Result:
		return v, nil
	case error:
		return nil, v
	}
	return &Result{}, nil
}

func TestCheck(t *testing.T) {
	db := fake{
		"rows":    &Result{Columns: "IR", Rows: [][]string{{"2", "0.30000000000000004"}, {"1", "NULL"}}},
		"changed": &Result{Changed: 2},
		"refused": &Refusal{Code: "42P01", Err: errors.New("no such table")},
		"broken":  errors.New("connection lost"),
	}
	for text, want := range map[string]string{
		"statement ok\nchanged":                                      "",
		"statement count 2\nchanged":                                 "",
		"statement count 3\nchanged":                                 "changed 2 rows instead of 3",
		"statement error 42P01\nrefused":                             "",
		"statement error 42703\nrefused":                             "another error than 42703",
		"statement error 42P01\nbroken":                              "connection lost",
		"statement error 42P01\nchanged":                             "succeeded",
		"statement ok\nrefused":                                      "no such table",
		"query IR\nrows\n----\n2\t0.3\n1\tNULL":                      "",
		"query IR\nrows\n----\n1\tNULL\n2\t0.3":                      "wanted",
		"query IR rowsort\nrows\n----\n1\tNULL\n2\t0.3":              "",
		"query IR rowsort\nrows\n----\n1\tNULL":                      "wanted",
		"query IR\nrows\n----\n2\t0.31\n1\tNULL":                     "wanted",
		"query IT\nrows\n----\n2\t0.3\n1\tNULL":                      `"IR" instead of "IT"`,
		"# a comment\n\nstatement ok\nchanged\n\nhalt\n\nnonsense":   "",
		"query IR rowsort\nrows\n----\n2\t0.3\n1\tNULL\n\n# the end": "",
	} {
		records, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if len(records) != 1 {
			t.Errorf("%q: %d records", text, len(records))
			continue
		}
		err = records[0].Check(t.Context(), db)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"nonsense", "statement", "statement fine\nx", "statement ok", "statement error\nx", "statement error no\nx",
		"statement count many\nx", "query\nx\n----", "query Z\nx\n----", "query I\nx", "query I valuesort\nx\n----",
		"query I\n----\n1", "query I\nx\n----\n1\t2", "skipif other\nstatement ok\nx",
	} {
		if records, err := Parse(text); err == nil {
			t.Errorf("%q was read as %+v", text, records)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("query IT rowsort\nSELECT 1\n----\n1\ta\n\nstatement ok\nx")
	f.Fuzz(func(t *testing.T, text string) {
		records, err := Parse(text)
		if err != nil {
			return
		}
		for _, r := range records {
			if r.SQL == "" || r.Line == 0 {
				t.Errorf("%q: %+v", text, r)
			}
		}
	})
}
