package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skein/catalog"
)

func abcWorld(t testing.TB) *world {
	return newWorld(t,
		tableSpec{name: "a", columns: []string{"a1 bigint", "a2 bigint", "a3 bigint?"}, key: []string{"a1"}, hash: []string{"a1"}, tablets: ids(1), rows: 1000, bytes: 24000},
		tableSpec{name: "b", columns: []string{"b1 bigint", "b2 bigint"}, key: []string{"b1"}, hash: []string{"b1"}, tablets: ids(2), rows: 100, bytes: 1600},
		tableSpec{name: "c", columns: []string{"c1 bigint", "c2 integer"}, key: []string{"c1"}, hash: []string{"c1"}, tablets: ids(3), rows: 10, bytes: 120},
	)
}

// checkOptimized compares the rewritten tree with lines of text, indented with
// two spaces a level.
func checkOptimized(t *testing.T, w *world, root Node, want ...string) {
	t.Helper()
	n, err := Optimize(root, w)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(ExplainLite(n)); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestPushdownThroughAggregate(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a")
	grouped := &Aggregate{Input: s, GroupBy: []int{1}, Calls: []AggCall{countStar()}}
	having := where(grouped, call("=", col(grouped, "a2"), lit(3)), call(">", col(grouped, "count"), lit(1)))
	checkOptimized(t, w, having,
		"Filter count > 1", "  Aggregate [count(*)] by a2", "    Scan a [a2] where a2 = 3")

	total := &Aggregate{Input: s, Calls: []AggCall{countStar()}}
	checkOptimized(t, w, where(total, lit(false)), "Values [count] 0 rows")
	constant := where(total, call("=", &Param{Ordinal: 1, DataType: catalog.BigInt}, lit(1)))
	checkOptimized(t, w, constant, "Filter $1 = 1", "  Aggregate [count(*)]", "    Scan a [a1]")
}

func TestVolatileConditionsStay(t *testing.T) {
	w := abcWorld(t)
	random := func() Expr { return &Call{Func: "random", DataType: catalog.Double} }
	half := &Literal{Value: 0.5, DataType: catalog.Double}
	s := w.scan("a", "a1", "a2")
	sample := call("<", random(), half)
	checkOptimized(t, w, where(s, sample, sample, call("=", col(s, "a2"), lit(1))),
		"Filter random() < 0.5 and random() < 0.5", "  Scan a [a1, a2] where a2 = 1")
	p := computed(s, "r", random(), "a1")
	checkOptimized(t, w, where(p, call("<", col(p, "r"), half), call("=", col(p, "a1"), lit(1))),
		"Filter r < 0.5", "  Project [a1, random() as r]", "    Scan a [a1] where a1 = 1")
	crossed := comma(s, w.scan("b", "b1"))
	checkOptimized(t, w, where(crossed, sample, eq(crossed, "a1", "b1")),
		"Filter random() < 0.5", "  Join inner on a1 = b1", "    Scan a [a1, a2]", "    Scan b [b1]")
}

func TestExpressionsBecomeJoinKeys(t *testing.T) {
	w := abcWorld(t)
	from := comma(w.scan("a", "a1"), w.scan("c", "c2"))
	widened := &Cast{Arg: col(from, "c2"), DataType: catalog.BigInt}
	next := typed(catalog.BigInt, "+", col(from, "a1"), lit(1))
	checkOptimized(t, w, where(from, call("=", widened, next)),
		"Project [a1, c2]",
		`  Join inner on "a1 + 1" = "cast(c2 as bigint)"`,
		`    Project [a1, a1 + 1 as "a1 + 1"]`,
		"      Scan a [a1]",
		`    Project [c2, cast(c2 as bigint) as "cast(c2 as bigint)"]`,
		"      Scan c [c2]")
	checkOptimized(t, w, where(from, call("=", col(from, "c2"), lit(1)), call("<", col(from, "a1"), widened)),
		"Join inner on a1 < cast(c2 as bigint)", "  Scan a [a1]", "  Scan c [c2] where c2 = 1")
}

func TestEqualitiesAreTransitive(t *testing.T) {
	w := abcWorld(t)
	from := comma(w.scan("a", "a1", "a2"), w.scan("b", "b1"), w.scan("c", "c1"))
	// c is compared with b only through a; the constant reaches all three, and
	// a's two columns must agree.
	checkOptimized(t, w, where(from, eq(from, "b1", "a1"), eq(from, "a2", "c1"), eq(from, "b1", "c1"), call("<", col(from, "b1"), lit(5))),
		"Project [a1, a2, b1, c1]",
		"  Join inner on a1 = b1",
		"    Join inner on a1 = c1",
		"      Scan a [a1, a2] where a1 < 5 and a2 < 5 and a1 = a2",
		"      Scan c [c1] where c1 < 5",
		"    Scan b [b1] where b1 < 5")
}

func TestNoCrossJoinWhereAConnectedOrderExists(t *testing.T) {
	w := abcWorld(t)
	// b and c are tiny and not connected; a connects them.
	from := comma(w.scan("b", "b1"), w.scan("c", "c1"), w.scan("a", "a1", "a2"))
	n, err := Optimize(where(from, eq(from, "b1", "a1"), eq(from, "a2", "c1")), w)
	if err != nil {
		t.Fatal(err)
	}
	if text := ExplainLite(n); strings.Contains(text, "cross") || strings.Count(text, "Join inner") != 2 {
		t.Error(text)
	}
	unconnected := where(from, eq(from, "b1", "a1"))
	n, err = Optimize(unconnected, w)
	if err != nil {
		t.Fatal(err)
	}
	if text := ExplainLite(n); strings.Count(text, "Join cross") != 1 || strings.Count(text, "Join inner") != 1 {
		t.Error(text)
	}
}

func TestLimitsFuse(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a", "a1", "a2")
	sorted := func(limit int64) Node { return &Sort{Input: s, Keys: []SortKey{{Column: 0}}, Limit: limit} }
	limit := func(in Node, limit, offset int64) Node { return &Limit{Input: in, Limit: limit, Offset: offset} }
	for _, c := range []struct {
		root Node
		want []string
	}{
		{limit(sorted(-1), 5, 0), []string{"Sort a1 limit 5", "  Scan a [a1, a2]"}},
		{limit(sorted(3), 5, 0), []string{"Sort a1 limit 3", "  Scan a [a1, a2]"}},
		{limit(sorted(-1), 5, 2), []string{"Limit 5 offset 2", "  Sort a1 limit 7", "    Scan a [a1, a2]"}},
		{limit(sorted(-1), -1, 2), []string{"Limit all offset 2", "  Sort a1", "    Scan a [a1, a2]"}},
		{limit(sorted(4), -1, 2), []string{"Limit all offset 2", "  Sort a1 limit 4", "    Scan a [a1, a2]"}},
		{limit(limit(s, 10, 3), 4, 2), []string{"Limit 4 offset 5", "  Scan a [a1, a2]"}},
		{limit(limit(s, 5, 3), 4, 2), []string{"Limit 3 offset 5", "  Scan a [a1, a2]"}},
		{limit(limit(s, 5, 3), -1, 6), []string{"Values [a1, a2] 0 rows"}},
		{limit(limit(s, -1, 3), -1, 6), []string{"Limit all offset 9", "  Scan a [a1, a2]"}},
		{limit(s, -1, 0), []string{"Scan a [a1, a2]"}},
		{limit(s, 0, 0), []string{"Values [a1, a2] 0 rows"}},
		{limit(selectColumns(sorted(-1), []int{1}), 2, 0), []string{"Project [a2]", "  Sort a1 limit 2", "    Scan a [a1, a2]"}},
		{where(limit(s, 2, 0), call("=", col(s, "a1"), lit(1))), []string{"Filter a1 = 1", "  Limit 2", "    Scan a [a1, a2]"}},
		{where(sorted(-1), call("=", col(s, "a1"), lit(1))), []string{"Sort a1", "  Scan a [a1, a2] where a1 = 1"}},
		{where(sorted(2), call("=", col(s, "a1"), lit(1))), []string{"Filter a1 = 1", "  Sort a1 limit 2", "    Scan a [a1, a2]"}},
	} {
		checkOptimized(t, w, c.root, c.want...)
	}
}

func TestSimplifyConditions(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a", "a1", "a2")
	x, y, z := call("=", col(s, "a1"), lit(1)), call("=", col(s, "a2"), lit(2)), call("<", col(s, "a2"), lit(9))
	null := &Literal{DataType: catalog.Boolean}
	for _, c := range []struct {
		e    Expr
		want string
	}{
		{call("and", x, lit(true)), "a1 = 1"},
		{call("and", x, x), "a1 = 1"},
		{call("and", x, null), ""},
		{call("or", x, lit(false), null), "a1 = 1"},
		{call("or", x, x), "a1 = 1"},
		{call("or", x, call("and", x, y)), "a1 = 1"},
		{call("or", call("and", x, y), call("and", z, x)), "a1 = 1 and (a2 = 2 or a2 < 9)"},
		{call("or", lit(false), null), ""},
		{call("not", lit(false)), "all"},
		{call("not", null), ""},
		{call("or", x, lit(true)), "all"},
		{call("not", call("or", x, lit(false))), "not (a1 = 1 or false)"},
	} {
		n, err := Optimize(where(s, c.e), w)
		if err != nil {
			t.Fatal(err)
		}
		got := "all"
		switch n := n.(type) {
		case *Scan:
			if n.Filter != nil {
				got = n.Filter.String()
			}
		case *Values:
			got = ""
		}
		if got != c.want {
			t.Errorf("%s became %q, want %q", c.e, got, c.want)
		}
	}
}

func TestEmptyInputsCollapse(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a", "a1")
	never := where(s, lit(false))
	checkOptimized(t, w, comma(w.scan("b", "b1"), never), "Values [b1, a1] 0 rows")
	checkOptimized(t, w, &Aggregate{Input: never, GroupBy: []int{0}}, "Values [a1] 0 rows")
	checkOptimized(t, w, &Aggregate{Input: never, Calls: []AggCall{countStar()}}, "Aggregate [count(*)]", "  Values [a1] 0 rows")
	checkOptimized(t, w, &Sort{Input: selectColumns(never, []int{0, 0}), Keys: []SortKey{{}}, Limit: -1}, "Values [a1, a1] 0 rows")
}

func TestColumnsArePruned(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a")
	agg := &Aggregate{Input: s, Calls: []AggCall{countStar(), sumOf(s, "a2"), sumOf(s, "a3")}}
	checkOptimized(t, w, selectColumns(agg, []int{1}), "Aggregate [sum(a2)]", "  Scan a [a2]")
	over := &Aggregate{Input: agg, Calls: []AggCall{countStar()}}
	checkOptimized(t, w, over, "Aggregate [count(*)]", "  Aggregate [count(*)]", "    Scan a [a1]")
	crossed := &Aggregate{Input: comma(w.scan("b"), w.scan("c")), Calls: []AggCall{countStar()}}
	checkOptimized(t, w, crossed, "Aggregate [count(*)]", "  Join cross", "    Scan b [b1]", "    Scan c [c2]")
	ordered := selectColumns(&Sort{Input: where(s, call("=", col(s, "a3"), lit(1))), Keys: []SortKey{{Column: 1}}, Limit: -1}, []int{0})
	checkOptimized(t, w, ordered, "Project [a1]", "  Sort a2", "    Project [a1, a2]", "      Scan a [a1, a2, a3] where a3 = 1")
}

func TestProjectionsFold(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a", "a1", "a2")
	inner := computed(s, "x", typed(catalog.BigInt, "+", col(s, "a1"), lit(1)), "a2")
	once := computed(inner, "y", typed(catalog.BigInt, "-", col(inner, "x"), lit(2)), "a2")
	checkOptimized(t, w, once, "Project [a2, a1 + 1 - 2 as y]", "  Scan a [a1, a2]")
	twice := computed(inner, "y", typed(catalog.BigInt, "-", col(inner, "x"), col(inner, "x")))
	checkOptimized(t, w, twice, "Project [x - x as y]", "  Project [a1 + 1 as x]", "    Scan a [a1]")
	checkOptimized(t, w, selectColumns(s, []int{0, 1}), "Scan a [a1, a2]")
}

func TestWithoutMetadataTreesAreStillRewritten(t *testing.T) {
	w := abcWorld(t)
	from := comma(w.scan("a", "a1"), w.scan("b", "b1"))
	n, err := Optimize(where(from, eq(from, "a1", "b1")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := ExplainLite(n); got != "Join inner on a1 = b1\n  Scan a [a1]\n  Scan b [b1]\n" {
		t.Error(got)
	}
}

func TestManyTablesAndConditions(t *testing.T) {
	w := abcWorld(t)
	start := time.Now()
	var from Node = w.scan("a", "a1", "a2")
	var conds []Expr
	for range 70 {
		next := w.scan("a", "a1", "a2")
		width := len(outputFields(from))
		from = comma(from, next)
		fields := outputFields(from)
		conds = append(conds, call("=", columnOf(fields, width-1), columnOf(fields, width)))
	}
	n, err := Optimize(where(from, conds...), w)
	if err != nil {
		t.Fatal(err)
	}
	mustDistribute(t, w, n)

	s := w.scan("a", "a1", "a2")
	var alternatives []Expr
	for i := range 5000 {
		alternatives = append(alternatives, call("and", call("=", col(s, "a1"), lit(i)), call("=", col(s, "a2"), lit(i))))
	}
	if n, err = Optimize(where(s, Or(alternatives...)), w); err != nil {
		t.Fatal(err)
	}
	mustDistribute(t, w, n)
	if d := depth(n.(*Scan).Filter); d > 64 {
		t.Errorf("a list of conditions became a tree %d deep", d)
	}
	if spent := time.Since(start); spent > 10*time.Second {
		t.Errorf("planning took %v", spent)
	}
}

func depth(e Expr) int {
	d := 0
	for _, c := range children(e) {
		d = max(d, depth(c))
	}
	return d + 1
}

func TestJoinOrderFollowsStatistics(t *testing.T) {
	w := abcWorld(t)
	from := comma(w.scan("a", "a1", "a2"), w.scan("b", "b1"), w.scan("c", "c1"))
	query := where(from, eq(from, "a1", "b1"), eq(from, "a2", "c1"))
	order := func() string {
		n, err := Optimize(query, w)
		if err != nil {
			t.Fatal(err)
		}
		var tables []string
		var visit func(Node)
		visit = func(n Node) {
			for _, in := range n.Inputs() {
				visit(in)
			}
			if s, ok := n.(*Scan); ok {
				tables = append(tables, s.Table.Name)
			}
		}
		visit(n)
		return fmt.Sprint(tables)
	}
	if got := order(); got != "[a b c]" {
		t.Errorf("b keeps fewer rows of a, but the order is %s", got)
	}
	w.stats[w.tables["b"].ID] = TableStats{Rows: 100_000, Bytes: 1_600_000}
	if got := order(); got != "[a c b]" {
		t.Errorf("c keeps fewer rows of a, but the order is %s", got)
	}
}
