package planner

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
)

func statsWorld(t testing.TB) *world {
	return newWorld(t, tableSpec{
		name: "s", columns: []string{"k bigint", "d date", "n text?", "p decimal(10,2)", "f boolean"}, key: []string{"k"}, tablets: ids(1), rows: 1000, bytes: 50_000,
		columnStats: []ColumnStats{
			{Distinct: 1000, Min: int64(0), Max: int64(1000)},
			{Distinct: 100, Min: int64(0), Max: int64(100)},
			{Distinct: 10, Nulls: 200, Width: 12},
			{Min: decimal128.FromI64(0), Max: decimal128.FromI64(10000)},
			{},
		},
	})
}

func TestSelectivity(t *testing.T) {
	w := statsWorld(t)
	s := w.scan("s")
	columns := scanEstimate(s.Table, s.Projection, w.stats[1]).columns
	k, d, n, p, f := col(s, "k"), col(s, "d"), col(s, "n"), col(s, "p"), col(s, "f")
	day := func(v int64) Expr { return &Literal{Value: v, DataType: catalog.Date} }
	cents := func(v int64) Expr { return &Literal{Value: decimal128.FromI64(v), DataType: catalog.Decimal(10, 2)} }
	for _, c := range []struct {
		e    Expr
		want float64
	}{
		{lit(true), 1}, {lit(false), 0}, {lit(nil), 0}, {f, 0.5},
		{call("=", k, lit(3)), 0.001}, {call("=", lit("x"), n), 0.1}, {call("<>", n, lit("x")), 0.9},
		{call("=", p, cents(1)), defaultEqual}, {call("=", k, d), 0.001},
		{call("<", d, day(25)), 0.25}, {call(">=", d, day(25)), 0.75}, {call(">", day(25), d), 0.25},
		{call("<", d, day(-5)), 0}, {call("<", d, day(500)), 1},
		{call("<=", p, cents(2500)), 0.25},
		{call("<", k, d), defaultRange}, {call("<", n, lit("x")), defaultRange},
		{And(call(">=", d, day(20)), call("<", d, day(30))), 0.1},
		{And(call(">=", d, day(30)), call("<", d, day(20))), 0.0001},
		{And(call(">=", n, lit("a")), call("<", n, lit("b"))), defaultBetween},
		{And(call("<", d, day(50)), call("=", n, lit("x"))), 0.05},
		{Or(call("<", d, day(50)), call("<", d, day(50))), 0.75},
		{call("not", call("<", d, day(25))), 0.75},
		{call("is null", n), 0.2}, {call("is not null", n), 0.8}, {call("is null", k), 0},
		{in(n, "a", "b"), 0.2}, {in(p, 1), defaultEqual}, {&InList{Arg: n, List: []*Literal{lit("a")}, Negate: true}, 0.9},
		{call("like", n, lit("ab%")), defaultPrefix}, {call("like", n, lit("%ab")), defaultLike}, {call("not like", n, lit("%ab")), 1 - defaultLike},
		{call("like", n, n), defaultLike}, {call("starts_with", n, lit("a")), defaultOther}, {call("is true", f), defaultOther},
	} {
		if got := selectivity(c.e, columns); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s keeps %v, want %v", c.e, got, c.want)
		}
	}
}

func TestScanEstimate(t *testing.T) {
	w := statsWorld(t)
	table := w.tables["s"]
	stats := w.stats[1]
	if e := scanEstimate(table, []int{0, 1, 2, 3, 4}, stats); e.rows != 1000 || e.bytes != 50_000 {
		t.Errorf("all columns: %d rows, %d bytes", e.rows, e.bytes)
	}
	// Widths are 8, 4, 12, 8 and 1 of 33.
	if e := scanEstimate(table, []int{2}, stats); e.bytes != 50_000*12/33 {
		t.Errorf("one column: %d bytes", e.bytes)
	}
	stats.Bytes = 0
	if e := scanEstimate(table, []int{0, 1}, stats); e.bytes != 12_000 {
		t.Errorf("unknown bytes: %d", e.bytes)
	}
}

func TestJoinEstimates(t *testing.T) {
	w := abcWorld(t)
	estimates := newEstimator(w)
	rows := func(n Node) uint64 {
		e, err := estimates.node(n)
		if err != nil {
			t.Fatal(err)
		}
		return e.rows
	}
	a, b := w.scan("a"), w.scan("b")
	few := withFilter(b, call("<", col(b, "b2"), lit(3)))
	for _, c := range []struct {
		name string
		node Node
		want uint64
	}{
		{"foreign key to primary key", join(a, b, "a2", "b1"), 1000},
		{"the filtered share of a primary key", join(a, few, "a2", "b1"), 340},
		{"two primary keys", join(a, b, "a1", "b1"), 100},
		{"nothing known", join(a, b, "a2", "b2"), 1000},
		{"nothing known, filtered", join(a, few, "a2", "b2"), 334},
		{"cross join", comma(a, b), 100_000},
		{"residual", &Join{Kind: InnerJoin, Left: a, Right: b, Residual: lit(true)}, 100_000},
		{"groups of a primary key", &Aggregate{Input: a, GroupBy: []int{0}}, 1000},
		{"unknown groups", &Aggregate{Input: a, GroupBy: []int{1}}, 500},
		{"all in one group", &Aggregate{Input: a}, 1},
		{"offset", &Limit{Input: a, Limit: 10, Offset: 995}, 5},
		{"sort", &Sort{Input: a, Keys: []SortKey{{}}, Limit: 7}, 7},
		{"values", &Values{Fields: a.Schema(), Rows: make([][]Expr, 3)}, 3},
		{"at least one row", where(a, call("=", col(a, "a1"), lit(1)), call("=", col(a, "a2"), lit(1))), 1},
	} {
		if got := rows(c.node); got != c.want {
			t.Errorf("%s: %d rows, want %d", c.name, got, c.want)
		}
	}
}

func TestSaturation(t *testing.T) {
	if saturatingMul(math.MaxUint64/2, 3) != math.MaxUint64 || saturatingAdd(math.MaxUint64, 1) != math.MaxUint64 ||
		toCount(math.Inf(1)) != math.MaxUint64 || toCount(math.NaN()) != 0 || ceilDiv(7, 0) != 7 || scaled(0, 0.5) != 0 ||
		addLimit(math.MaxInt64, 1) != math.MaxInt64 || addLimit(-1, 5) != -1 || scaledBytes(10, 0, 5) != 0 {
		t.Error("estimates must saturate")
	}
	w := newWorld(t, tableSpec{name: "x", columns: []string{"i bigint"}, tablets: ids(1), rows: math.MaxUint64, bytes: math.MaxUint64})
	x := w.scan("x")
	plan := mustDistribute(t, w, &Limit{Input: comma(comma(x, x), x), Limit: math.MaxInt64, Offset: math.MaxInt64})
	if f := plan.Fragments[0]; f.EstimatedRows == 0 {
		t.Error(Explain(plan))
	}
}
