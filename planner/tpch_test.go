package planner

import (
	"testing"
	"time"

	"skein/catalog"
)

// tpchWorld is the TPC-H schema with the sizes of scale factor 1. All tables
// but nation and region are hashed by the first column of their key over the
// given number of tablets; equal ranges live on the same workers.
func tpchWorld(t testing.TB, tablets int) *world {
	next := catalog.TabletID(100)
	spread := func(n int) []catalog.TabletID {
		next = next/100*100 + 100
		var out []catalog.TabletID
		for i := range n {
			out = append(out, next+catalog.TabletID(i))
		}
		return out
	}
	return newWorld(t,
		tableSpec{name: "lineitem", key: []string{"l_orderkey", "l_linenumber"}, hash: []string{"l_orderkey"}, tablets: spread(tablets), rows: 6_001_215, bytes: 700_000_000,
			columns: []string{"l_orderkey bigint", "l_partkey bigint", "l_suppkey bigint", "l_linenumber integer", "l_quantity decimal(15,2)",
				"l_extendedprice decimal(15,2)", "l_discount decimal(15,2)", "l_tax decimal(15,2)", "l_returnflag text", "l_linestatus text",
				"l_shipdate date", "l_commitdate date", "l_receiptdate date", "l_shipinstruct text", "l_shipmode text", "l_comment text"}},
		tableSpec{name: "orders", key: []string{"o_orderkey"}, hash: []string{"o_orderkey"}, tablets: spread(tablets), rows: 1_500_000, bytes: 160_000_000,
			columns: []string{"o_orderkey bigint", "o_custkey bigint", "o_orderstatus text", "o_totalprice decimal(15,2)", "o_orderdate date",
				"o_orderpriority text", "o_clerk text", "o_shippriority integer", "o_comment text"}},
		tableSpec{name: "customer", key: []string{"c_custkey"}, hash: []string{"c_custkey"}, tablets: spread(tablets), rows: 150_000, bytes: 24_000_000,
			columns: []string{"c_custkey bigint", "c_name text", "c_address text", "c_nationkey integer", "c_phone text", "c_acctbal decimal(15,2)", "c_mktsegment text", "c_comment text"}},
		tableSpec{name: "part", key: []string{"p_partkey"}, hash: []string{"p_partkey"}, tablets: spread(tablets), rows: 200_000, bytes: 26_000_000,
			columns: []string{"p_partkey bigint", "p_name text", "p_brand text", "p_type text", "p_size integer", "p_container text"}},
		tableSpec{name: "supplier", key: []string{"s_suppkey"}, hash: []string{"s_suppkey"}, tablets: spread(tablets), rows: 10_000, bytes: 1_500_000,
			columns: []string{"s_suppkey bigint", "s_name text", "s_address text", "s_nationkey integer", "s_phone text", "s_acctbal decimal(15,2)", "s_comment text"}},
		tableSpec{name: "nation", key: []string{"n_nationkey"}, tablets: spread(1), rows: 25, bytes: 3000,
			columns: []string{"n_nationkey integer", "n_name text", "n_regionkey integer", "n_comment text?"}},
		tableSpec{name: "region", key: []string{"r_regionkey"}, tablets: spread(1), rows: 5, bytes: 500,
			columns: []string{"r_regionkey integer", "r_name text", "r_comment text?"}},
	)
}

func date(s string) *Literal {
	at, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return &Literal{Value: at.Unix() / 86400, DataType: catalog.Date}
}

func integer(v int64) *Literal { return &Literal{Value: v, DataType: catalog.Integer} }

// comma is FROM a, b, c: cross joins of whole tables.
func comma(nodes ...Node) Node {
	n := nodes[0]
	for _, next := range nodes[1:] {
		n = &Join{Kind: CrossJoin, Left: n, Right: next}
	}
	return n
}

func where(n Node, conds ...Expr) Node { return &Filter{Input: n, Predicate: And(conds...)} }

func eq(n Node, a, b string) Expr { return call("=", col(n, a), col(n, b)) }

// computed is a projection of named columns followed by one expression.
func computed(in Node, as string, e Expr, columns ...string) Node {
	p := &Project{Input: in}
	for _, c := range columns {
		p.Exprs, p.Names = append(p.Exprs, col(in, c)), append(p.Names, c)
	}
	p.Exprs, p.Names = append(p.Exprs, e), append(p.Names, as)
	return p
}

var (
	money  = catalog.Decimal(18, 4)
	totals = catalog.Decimal(38, 4)
)

// revenue is l_extendedprice * (1 - l_discount).
func revenue(in Node) Expr {
	rest := typed(catalog.Decimal(16, 2), "-", &Cast{Arg: integer(1), DataType: catalog.Decimal(15, 2)}, col(in, "l_discount"))
	return typed(money, "*", col(in, "l_extendedprice"), rest)
}

func summed(in Node, arg, as string) AggCall {
	return AggCall{Func: Sum, Arg: ordinal(in, arg), DataType: totals, Name: as}
}

func by(in Node, columns ...string) []int {
	var out []int
	for _, c := range columns {
		out = append(out, ordinal(in, c))
	}
	return out
}

// tpchQueries builds trees as a binder does: filters over cross joins of whole
// tables, all columns still there.
func tpchQueries(w *world) map[string]Node {
	return map[string]Node{
		"q1": tpchQ1(w), "q3": tpchQ3(w), "q5": tpchQ5(w), "q6": tpchQ6(w), "q7": tpchQ7(w), "q19": tpchQ19(w),
		"point": &Project{Input: where(w.scan("orders"), call("=", col(w.scan("orders"), "o_orderkey"), lit(42))),
			Exprs: []Expr{col(w.scan("orders"), "o_totalprice")}, Names: []string{"o_totalprice"}},
		"order": tpchOrderLines(w),
		"page":  tpchPage(w),
		"count": &Aggregate{Input: w.scan("lineitem"), Calls: []AggCall{countStar()}},
	}
}

func tpchQ1(w *world) Node {
	l := w.scan("lineitem")
	f := where(l, call("<=", col(l, "l_shipdate"), date("1998-09-02")))
	p := computed(f, "disc_price", revenue(f), "l_returnflag", "l_linestatus", "l_quantity", "l_discount")
	a := &Aggregate{Input: p, GroupBy: by(p, "l_returnflag", "l_linestatus"), Calls: []AggCall{
		{Func: Sum, Arg: ordinal(p, "l_quantity"), DataType: catalog.Decimal(38, 2), Name: "sum_qty"},
		summed(p, "disc_price", "sum_disc_price"),
		{Func: Avg, Arg: ordinal(p, "l_discount"), DataType: catalog.Double, Name: "avg_disc"},
		{Func: Count, Arg: -1, DataType: catalog.BigInt, Name: "count_order"},
	}}
	return &Sort{Input: a, Keys: []SortKey{{Column: 0}, {Column: 1}}, Limit: -1}
}

func tpchQ3(w *world) Node {
	from := comma(w.scan("customer"), w.scan("orders"), w.scan("lineitem"))
	f := where(from, call("=", col(from, "c_mktsegment"), lit("BUILDING")), eq(from, "c_custkey", "o_custkey"), eq(from, "l_orderkey", "o_orderkey"),
		call("<", col(from, "o_orderdate"), date("1995-03-15")), call(">", col(from, "l_shipdate"), date("1995-03-15")))
	p := computed(f, "volume", revenue(f), "l_orderkey", "o_orderdate", "o_shippriority")
	a := &Aggregate{Input: p, GroupBy: by(p, "l_orderkey", "o_orderdate", "o_shippriority"), Calls: []AggCall{summed(p, "volume", "revenue")}}
	out := selectColumns(a, []int{0, 3, 1, 2})
	sorted := &Sort{Input: out, Keys: []SortKey{{Column: 1, Descending: true, NullsFirst: true}, {Column: 2}}, Limit: -1}
	return &Limit{Input: sorted, Limit: 10}
}

func tpchQ5(w *world) Node {
	from := comma(w.scan("customer"), w.scan("orders"), w.scan("lineitem"), w.scan("supplier"), w.scan("nation"), w.scan("region"))
	f := where(from, eq(from, "c_custkey", "o_custkey"), eq(from, "l_orderkey", "o_orderkey"), eq(from, "l_suppkey", "s_suppkey"),
		eq(from, "c_nationkey", "s_nationkey"), eq(from, "s_nationkey", "n_nationkey"), eq(from, "n_regionkey", "r_regionkey"),
		call("=", col(from, "r_name"), lit("ASIA")), call(">=", col(from, "o_orderdate"), date("1994-01-01")), call("<", col(from, "o_orderdate"), date("1995-01-01")))
	p := computed(f, "volume", revenue(f), "n_name")
	a := &Aggregate{Input: p, GroupBy: by(p, "n_name"), Calls: []AggCall{summed(p, "volume", "revenue")}}
	return &Sort{Input: a, Keys: []SortKey{{Column: 1, Descending: true, NullsFirst: true}}, Limit: -1}
}

func tpchQ6(w *world) Node {
	l := w.scan("lineitem")
	f := where(l, call(">=", col(l, "l_shipdate"), date("1994-01-01")), call("<", col(l, "l_shipdate"), date("1995-01-01")),
		call("<", col(l, "l_quantity"), &Cast{Arg: integer(24), DataType: catalog.Decimal(15, 2)}))
	p := computed(f, "x", typed(money, "*", col(f, "l_extendedprice"), col(f, "l_discount")))
	return &Aggregate{Input: p, Calls: []AggCall{summed(p, "x", "revenue")}}
}

func tpchQ7(w *world) Node {
	n1 := renamed(w.scan("nation"), "n1_")
	n2 := renamed(w.scan("nation"), "n2_")
	from := comma(w.scan("supplier"), w.scan("lineitem"), w.scan("orders"), w.scan("customer"), n1, n2)
	nations := func(a, b string) Expr {
		return And(call("=", col(from, "n1_n_name"), lit(a)), call("=", col(from, "n2_n_name"), lit(b)))
	}
	f := where(from, eq(from, "s_suppkey", "l_suppkey"), eq(from, "o_orderkey", "l_orderkey"), eq(from, "c_custkey", "o_custkey"),
		eq(from, "s_nationkey", "n1_n_nationkey"), eq(from, "c_nationkey", "n2_n_nationkey"), Or(nations("FRANCE", "GERMANY"), nations("GERMANY", "FRANCE")),
		call(">=", col(from, "l_shipdate"), date("1995-01-01")), call("<=", col(from, "l_shipdate"), date("1996-12-31")))
	p := computed(f, "volume", revenue(f), "n1_n_name", "n2_n_name")
	return &Aggregate{Input: p, GroupBy: by(p, "n1_n_name", "n2_n_name"), Calls: []AggCall{summed(p, "volume", "revenue")}}
}

func renamed(n Node, prefix string) Node {
	fields := outputFields(n)
	p := &Project{Input: n}
	for i, f := range fields {
		p.Exprs, p.Names = append(p.Exprs, columnOf(fields, i)), append(p.Names, prefix+f.Name)
	}
	return p
}

func tpchQ19(w *world) Node {
	from := comma(w.scan("lineitem"), w.scan("part"))
	branch := func(brand string, size int64) Expr {
		return And(eq(from, "p_partkey", "l_partkey"), call("=", col(from, "p_brand"), lit(brand)),
			call("<=", col(from, "p_size"), integer(size)), call("=", col(from, "l_shipinstruct"), lit("DELIVER IN PERSON")),
			call(">=", col(from, "l_quantity"), &Cast{Arg: integer(size), DataType: catalog.Decimal(15, 2)}))
	}
	f := where(from, Or(branch("Brand#12", 5), branch("Brand#23", 10), branch("Brand#34", 15)))
	p := computed(f, "volume", revenue(f))
	return &Aggregate{Input: p, Calls: []AggCall{summed(p, "volume", "revenue")}}
}

// tpchOrderLines is one order with its lines: the constant reaches both scans.
func tpchOrderLines(w *world) Node {
	from := join(w.scan("orders"), w.scan("lineitem"), "o_orderkey", "l_orderkey")
	f := where(from, call("=", col(from, "o_orderkey"), lit(42)))
	return selectColumns(f, by(f, "o_orderdate", "l_linenumber", "l_quantity"))
}

// tpchPage is the second page of the customers by balance.
func tpchPage(w *world) Node {
	c := w.scan("customer")
	sorted := &Sort{Input: c, Keys: []SortKey{{Column: ordinal(c, "c_acctbal"), Descending: true, NullsFirst: true}}, Limit: -1}
	return &Limit{Input: selectColumns(sorted, by(sorted, "c_name", "c_acctbal")), Limit: 20, Offset: 20}
}
