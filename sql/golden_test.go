package sql_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cockroachdb/datadriven"

	"skein/catalog"
	"skein/sql"
	"skein/sqlstate"
)

// TestBindGolden shows what statements bind to. The commands are "bind", which
// prints the statement, its parameters and its plan or its error, and "tpch",
// which binds the query of that number. With zone=Z, the session's time zone is Z.
func TestBindGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/bind", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := d.Input
			if d.Cmd == "tpch" {
				text = string(readTPCH(t, d.CmdArgs[0].String()+".sql"))
			}
			var session sql.Session
			if d.HasArg("zone") {
				d.ScanArgs(t, "zone", &session.Zone)
			}
			return describeIn(t, session, text)
		})
	})
}

func describeIn(t *testing.T, session sql.Session, text string) string {
	bound, err := bindIn(t, session, text)
	if err != nil {
		return describeError(text, err)
	}
	checkContract(t, text, bound)
	var out strings.Builder
	if len(bound.Params) > 0 {
		names := make([]string, len(bound.Params))
		for i, p := range bound.Params {
			names[i] = catalog.TypeName(p)
		}
		fmt.Fprintf(&out, "params: %s\n", strings.Join(names, ", "))
	}
	describeStatement(&out, bound.Statement)
	return out.String()
}

func describeStatement(out *strings.Builder, s sql.Bound) {
	switch s := s.(type) {
	case *sql.Query:
		fmt.Fprintf(out, "query %s\n%s", fieldsText(s.Schema), printNode(s.Node))
	case *sql.Insert:
		names := make([]string, len(s.Columns))
		for i, at := range s.Columns {
			names[i] = s.Table.Columns[at].Name
		}
		fmt.Fprintf(out, "insert into %s (%s)\n%s", s.Table.QualifiedName(), strings.Join(names, ", "), printNode(s.Source))
		describeConflict(out, s.Table, s.Conflict)
		describeReturning(out, s.Returning)
	case *sql.CreateTable:
		fmt.Fprintf(out, "create if-not-exists=%t tablets=%d replicas=%d buckets=%d splits=%v kind=%s\n%s\n",
			s.IfNotExists, s.Tablets, s.Replicas, s.Buckets, s.Splits, s.Table.Partitioning.Kind, sql.FormatCreateTable(s.Table))
	case *sql.DropTable:
		fmt.Fprintf(out, "drop %v if-exists=%t\n", s.Names, s.IfExists)
	case *sql.Explain:
		fmt.Fprintf(out, "explain analyze=%t verbose=%t", s.Analyze, s.Verbose)
		if !s.Costs || !s.Timing || s.Summary != s.Analyze || s.JSON { // not the defaults
			fmt.Fprintf(out, " costs=%t timing=%t summary=%t json=%t", s.Costs, s.Timing, s.Summary, s.JSON)
		}
		out.WriteByte('\n')
		describeStatement(out, s.Statement)
	default:
		describeChange(out, s)
	}
}

// describeError prints an error and the text from its position on.
func describeError(text string, err error) string {
	e, ok := err.(*sqlstate.Error)
	if !ok {
		return "untyped error: " + err.Error() + "\n"
	}
	out := fmt.Sprintf("%s: %s\n", e.Code, e.Message)
	if e.Position > 0 {
		rest := []rune(text)[min(e.Position-1, len([]rune(text))):]
		out += fmt.Sprintf("at: %s\n", strings.SplitN(string(rest), "\n", 2)[0])
	}
	if e.Hint != "" {
		out += "hint: " + e.Hint + "\n"
	}
	return out
}

func TestTPCHParses(t *testing.T) {
	names, err := fs.Glob(tpch, "testdata/tpch/q*.sql")
	if err != nil || len(names) != 22 {
		t.Fatalf("found %d queries, %v", len(names), err)
	}
	for _, name := range names {
		text, err := tpch.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if statements, err := sql.Parse(string(text)); err != nil || len(statements) != 1 {
			t.Errorf("%s: %d statements, %v", name, len(statements), err)
		}
	}
}

func sameType(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b) }

// What clients are told must be what the plan yields.
func checkSchema(t *testing.T, text string, q *sql.Query) {
	t.Helper()
	if got := q.Node.Schema(); !got.Equal(q.Schema) {
		t.Errorf("%s:\nplan yields %s\nclient told %s", text, fieldsText(got), fieldsText(q.Schema))
	}
}

func TestCatalogErrorsPassThrough(t *testing.T) {
	_, err := bind(t, "SELECT * FROM broken.t")
	if err == nil || err.Error() != "the catalog is away" {
		t.Errorf("got %v, want the catalog's own error", err)
	}
}

func TestBindRefusesTooManyParameters(t *testing.T) {
	statements, err := sql.Parse("SELECT 1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = sql.Bind(context.Background(), statements[0], testCatalog(t), make([]arrow.DataType, 70000))
	if code := sqlstate.CodeOf(err); code != sqlstate.ProgramLimitExceeded {
		t.Errorf("got %v, want code %s", err, sqlstate.ProgramLimitExceeded)
	}
}
