package sql_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// goldenStatements are the inputs of the golden files.
func goldenStatements(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/bind/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	var out []string
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if lines.Text() == "bind" && lines.Scan() {
				out = append(out, lines.Text())
			}
		}
		f.Close()
	}
	return out
}

// FuzzBind: whatever the text, binding ends in a statement whose plan is valid
// or in an error with a SQLSTATE and a position within the text.
func FuzzBind(f *testing.F) {
	for _, s := range goldenStatements(f) {
		f.Add(s)
	}
	tables := testCatalog(f)
	f.Fuzz(func(t *testing.T, text string) { checkBinding(t, tables, text) })
}

// TestBindMutations splices words of the golden statements into one another:
// what comes out is often near enough to SQL to reach deep into the binder.
func TestBindMutations(t *testing.T) {
	golden := goldenStatements(t)
	tables := testCatalog(t)
	rapid.Check(t, func(r *rapid.T) {
		checkBinding(t, tables, spliced(r, golden))
		if t.Failed() {
			r.FailNow()
		}
	})
}

// spliced is one of the statements with some words of others in it.
func spliced(r *rapid.T, golden []string) string {
	statement := rapid.SampledFrom(golden)
	words := strings.Fields(statement.Draw(r, "statement"))
	for range rapid.IntRange(1, 3).Draw(r, "splices") {
		from := strings.Fields(statement.Draw(r, "other"))
		low := rapid.IntRange(0, len(from)-1).Draw(r, "low")
		high := rapid.IntRange(low, min(low+4, len(from))).Draw(r, "high")
		at := rapid.IntRange(0, len(words)).Draw(r, "at")
		drop := rapid.IntRange(0, min(4, len(words)-at)).Draw(r, "drop")
		words = slices.Replace(words, at, at+drop, from[low:high]...)
	}
	return strings.Join(words, " ")
}

func checkBinding(t *testing.T, tables sql.Catalog, text string) {
	t.Helper()
	statements, err := sql.Parse(text)
	if err != nil {
		checkError(t, text, err)
		return
	}
	for _, s := range statements {
		bound, err := sql.Bind(context.Background(), s, tables, nil)
		if err != nil {
			checkError(t, text, err)
			continue
		}
		if _, err := bound.Substitute(make([]*planner.Literal, len(bound.Params))); err != nil {
			checkError(t, text, err)
			continue
		}
		if q, ok := bound.Statement.(*sql.Query); ok && !q.Schema.Equal(q.Node.Schema()) {
			t.Errorf("%q: told %s, plan yields %s", text, q.Schema, q.Node.Schema())
		}
	}
}

func checkError(t *testing.T, text string, err error) {
	t.Helper()
	e, ok := err.(*sqlstate.Error)
	switch {
	case !ok && strings.Contains(text, "broken"): // the catalog's own error
	case !ok:
		t.Errorf("%q: untyped error %v", text, err)
	case e.Code == sqlstate.InternalError:
		t.Errorf("%q: internal error %v", text, err)
	case e.Position < 0 || e.Position > len([]rune(text))+1:
		t.Errorf("%q: position %d is outside the text", text, e.Position)
	}
}

func TestBindBoundsWithQueries(t *testing.T) {
	var text strings.Builder
	text.WriteString("WITH a0 AS (SELECT 1 AS x)")
	for i := range 40 {
		fmt.Fprintf(&text, ", a%d AS (SELECT p.x FROM a%d AS p, a%d AS q)", i+1, i, i)
	}
	text.WriteString(" SELECT 1")
	if _, err := bind(t, text.String()); err != nil {
		t.Errorf("queries that are bound once: %v", err)
	}
	_, err := bind(t, strings.ReplaceAll(text.String(), " AS (", " AS NOT MATERIALIZED ("))
	if code := sqlstate.CodeOf(err); code != sqlstate.ProgramLimitExceeded {
		t.Errorf("got %v, want code %s", err, sqlstate.ProgramLimitExceeded)
	}
}

func TestBindTakesLongLists(t *testing.T) {
	const n = 4000
	for name, text := range map[string]string{
		"or":     "SELECT id FROM u WHERE id = 1" + strings.Repeat(" OR id = other", n),
		"in":     "SELECT id FROM u WHERE id IN (1" + strings.Repeat(", 2", n) + ")",
		"values": "INSERT INTO other.w VALUES (1)" + strings.Repeat(", (2)", n),
	} {
		bound, err := bind(t, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkContract(t, name, bound)
	}
}

func BenchmarkPointQuery(b *testing.B) {
	tables := testCatalog(b)
	for b.Loop() {
		statements, err := sql.Parse("SELECT name, amount FROM t WHERE id = 42")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sql.Bind(context.Background(), statements[0], tables, nil); err != nil {
			b.Fatal(err)
		}
	}
}
