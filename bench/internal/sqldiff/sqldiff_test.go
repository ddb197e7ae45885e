package sqldiff

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein/bench/internal/compare"
	"skein/bench/internal/duck"
	"skein/bench/internal/skeinproc"
)

func TestGeneratorIsDeterministic(t *testing.T) {
	text := func(seed, round uint64) string {
		g := newGenerator(seed, round, 8)
		var b strings.Builder
		for _, table := range g.tables {
			b.WriteString(table.CreateSQL(Skein) + strings.Join(table.InsertSQL(Duck), "\n"))
		}
		for i := range 50 {
			q := g.query()
			b.WriteString(q.SQL(Skein) + "\n" + q.SQL(Duck) + "\n")
			b.WriteString(g.change(i).Texts[Skein] + "\n")
		}
		return b.String()
	}
	if once, again := text(7, 3), text(7, 3); once != again {
		t.Error("one seed and round gave two texts")
	}
	if text(7, 3) == text(8, 3) || text(7, 3) == text(7, 4) {
		t.Error("another seed or round gave the same text")
	}
}

func TestGeneratorCoversTheLanguage(t *testing.T) {
	var b strings.Builder
	for round := range uint64(20) {
		g := newGenerator(1, round, 8)
		for range perRound {
			b.WriteString(g.query().SQL(Skein) + "\n")
		}
	}
	all := b.String()
	for _, want := range []string{
		"LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "USING", "EXISTS (", "NOT IN (SELECT", " ANY (", " ALL (", "WITH w0", "UNION ALL",
		"INTERSECT", "EXCEPT ALL", "GROUP BY ROLLUP", "GROUP BY CUBE", "GROUPING SETS", "HAVING", "FILTER (", "SELECT DISTINCT ", "DISTINCT ON",
		"OVER (", "ROWS BETWEEN", "RANGE BETWEEN", "GROUPS BETWEEN", "EXCLUDE", "NULLS FIRST", "LIMIT", "OFFSET", "CASE WHEN", "BETWEEN", "LIKE",
		"IS DISTINCT FROM", "INTERVAL", "extract(", "date_trunc", "string_agg", "percentile_cont", "stddev", "count(DISTINCT", "NaN", "Infinity",
		"LATERAL (", "WITH RECURSIVE", "AS MATERIALIZED", "WITH TIES", ") < (", ") NOT IN ((",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no query with %s", want)
		}
	}
}

// fake answers from functions.
type fake struct {
	query func(sql string) (compare.Rows, error)
}

func (f fake) Query(_ context.Context, sql string) (compare.Rows, error) { return f.query(sql) }
func (f fake) Exec(context.Context, string) error                        { return nil }

func TestVerdicts(t *testing.T) {
	state := func(code string) error { return errors.New("failed (SQLSTATE " + code + ")") }
	one, two := compare.Rows{{"1"}, {"2"}}, compare.Rows{{"2"}, {"1"}}
	for _, c := range []struct {
		name        string
		got, want   compare.Rows
		skein, duck error
		ordered     []int
		eager       bool
		verdict     Verdict
	}{
		{"as a multiset", one, two, nil, nil, nil, false, Agreed},
		{"in order", one, two, nil, nil, []int{0}, false, Different},
		{"rows", one, one[:1], nil, nil, nil, false, Different},
		{"both fail", nil, nil, state("22012"), errors.New("Out of Range Error"), nil, true, BothFailed},
		{"an internal error", nil, nil, state("XX000"), errors.New("Binder Error"), nil, false, Different},
		{"an error without a state", nil, nil, errors.New("panic"), errors.New("Binder Error"), nil, false, Different},
		{"data error where rows may be left out", nil, nil, state("22012"), nil, nil, false, Tolerated},
		{"data error where all rows count", nil, nil, state("22012"), nil, nil, true, Different},
		{"DuckDB alone", nil, nil, nil, errors.New("Conversion Error: x"), nil, true, Different},
		{"an unknown function", nil, nil, state("42883"), nil, nil, false, Different},
		{"too slow for the server", nil, nil, state("57014"), nil, nil, false, Slow},
		{"too slow for gRPC", nil, nil, errors.New("rpc error: code = DeadlineExceeded desc = stream terminated"), nil, nil, false, Slow},
		{"too slow", nil, nil, context.DeadlineExceeded, nil, nil, false, Slow},
	} {
		if o := judge(c.got, c.want, c.skein, c.duck, c.ordered, c.eager); o.Verdict != c.verdict {
			t.Errorf("%s: %s (%s), want %s", c.name, o.Verdict, o.Detail, c.verdict)
		}
	}
}

func TestShrink(t *testing.T) {
	// The failure is a query that says upper anywhere and reads t1.
	for round := range uint64(10) {
		g := newGenerator(5, round, 8)
		for range 200 {
			q := g.query()
			fails := func(q *Query) bool {
				text := q.SQL(Skein)
				return strings.Contains(text, "upper(") && strings.Contains(text, "t1 AS")
			}
			if !fails(q) {
				continue
			}
			before := q.SQL(Skein)
			small := shrink(q, 3000, fails)
			if q.SQL(Skein) != before {
				t.Fatal("shrinking changed the query it was given")
			}
			if !fails(small) {
				t.Fatalf("shrunk to what does not fail: %s", small.SQL(Skein))
			}
			if n := len(small.SQL(Skein)); n > len(before) {
				t.Errorf("grew from %d to %d bytes", len(before), n)
			}
			if small.Limit >= 0 || strings.Contains(small.SQL(Skein), "ROLLUP") {
				t.Errorf("left more than the failure needs: %s", small.SQL(Skein))
			}
		}
	}
}

func TestShrinkRows(t *testing.T) {
	var rows [][]Literal
	for _, s := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		rows = append(rows, []Literal{same(s)})
	}
	got := shrinkRows(rows, 1000, func(rows [][]Literal) bool {
		var text string
		for _, r := range rows {
			text += r[0].Skein
		}
		return strings.Contains(text, "c") && strings.Contains(text, "x")
	})
	if len(got) != 2 || got[0][0].Skein != "c" || got[1][0].Skein != "x" {
		t.Errorf("shrunk to %v", got)
	}
}

// TestReportIsShrunk runs a pair whose one side drops a row of queries that
// group, and looks at what is reported.
func TestReportIsShrunk(t *testing.T) {
	right := fake{func(string) (compare.Rows, error) { return compare.Rows{{"1"}}, nil }}
	wrong := fake{func(sql string) (compare.Rows, error) {
		if strings.Contains(sql, "GROUP BY") {
			return nil, nil
		}
		return compare.Rows{{"1"}}, nil
	}}
	var out strings.Builder
	sum, err := Run(t.Context(), Pair{Skein: wrong, Duck: right}, Options{Seed: 1, Queries: 100, Shrink: 500, Stop: 1, Timeout: time.Second}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(sum.Differences) != 1 || sum.Verdicts[Different] != 1 || !strings.Contains(out.String(), "GROUP BY") {
		t.Fatalf("%d differences:\n%s", len(sum.Differences), out.String())
	}
	if strings.Contains(out.String(), "WHERE") || strings.Contains(out.String(), "INSERT") {
		t.Errorf("not shrunk:\n%s", out.String())
	}
}

// TestDifferential is a short run of fixed seeds against a real server.
func TestDifferential(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "skein")
	build := exec.Command("go", "build", "-o", binary, "./cmd/skein")
	build.Dir = filepath.Join("..", "..", "..")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		t.Fatalf("building skein: %v", err)
	}
	server, err := skeinproc.Start(t.Context(), binary, filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, server.Stop)
	client, err := skeinproc.Dial(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, client.Close)
	db, err := duck.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, db.Close)
	var out strings.Builder
	sum, err := Run(t.Context(), Engines(client, db), Options{
		Seed: 1, Queries: 300, Changes: 12, Large: 8, Limit: 15 * time.Second, Shrink: 60, Stop: 2, Timeout: 10 * time.Second,
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	sum.Print(&out)
	if len(sum.Differences) > 0 || sum.Verdicts[Agreed] < sum.Queries/2 {
		t.Error(out.String())
	}
}

func closing(t *testing.T, fn func() error) {
	t.Helper()
	if err := fn(); err != nil {
		t.Error(err)
	}
}
