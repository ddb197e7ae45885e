package planner

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// commonQueries are trees with common tables, recursions and equal subtrees.
func commonQueries(w *world) map[string]Node {
	return map[string]Node{
		"with": withTwoReaders(w), "with-sorted": withSortedReader(w), "with-cheap": withCheapTable(w),
		"recursive": orderChain(w), "shared": aboveAverage(w),
	}
}

// customerTotals is the orders' total and count by customer.
func customerTotals(w *world) Node {
	o := w.scan("orders")
	return &Aggregate{Input: o, GroupBy: by(o, "o_custkey"), Calls: []AggCall{
		{Func: Sum, Arg: ordinal(o, "o_totalprice"), DataType: catalog.Decimal(38, 2), Name: "total"}, countStar(),
	}}
}

// withTwoReaders reads a common table twice, under conditions and with columns
// of which it can make use: WITH t AS (...) SELECT ... FROM t a JOIN t b.
func withTwoReaders(w *world) Node {
	c := &Common{ID: 1, Name: "t", Input: customerTotals(w)}
	a, b := c.Scan(), c.Scan()
	low := where(a, call("<", col(a, "o_custkey"), lit(100)))
	high := where(b, call(">", col(b, "o_custkey"), lit(9000)))
	j := join(low, high, "count", "count")
	return &With{Commons: []*Common{c}, Main: selectColumns(j, []int{0, 3})}
}

// withSortedReader reads a common table in order and whole.
func withSortedReader(w *world) Node {
	l := w.scan("lineitem")
	lines := &Aggregate{Input: l, GroupBy: by(l, "l_orderkey"), Calls: []AggCall{countStar()}}
	c := &Common{ID: 1, Name: "t", Input: lines, Keep: true}
	first := &Sort{Input: c.Scan(), Keys: []SortKey{{Column: 1}, {Column: 0}}, Limit: 10}
	return &With{Commons: []*Common{c}, Main: selectColumns(join(first, c.Scan(), "count", "count"), []int{0, 2})}
}

// withCheapTable reads a table under a name twice, and a semi join is about one
// of the two.
func withCheapTable(w *world) Node {
	c := &Common{ID: 1, Name: "s", Input: w.scan("supplier", "s_suppkey", "s_nationkey")}
	n := w.scan("nation", "n_nationkey", "n_name")
	named := where(n, call("=", col(n, "n_name"), lit("PERU")))
	pairs := join(c.Scan(), c.Scan(), "s_suppkey", "s_suppkey")
	return &With{Commons: []*Common{c}, Main: &Join{
		Kind: SemiJoin, Left: pairs, Right: named, On: []JoinKey{{Left: 1, Right: 0}},
	}}
}

// orderChain follows orders from one to that with the next key, as long as the
// customer is a small one.
func orderChain(w *world) Node {
	o := w.scan("orders")
	seed := selectColumns(where(o, call("=", col(o, "o_orderkey"), lit(1))), by(o, "o_orderkey", "o_custkey"))
	r := &Recursive{ID: 1, Name: "chain", Seed: seed, Distinct: true, Fields: arrow.NewSchema([]arrow.Field{
		{Name: "k", Type: catalog.BigInt}, {Name: "c", Type: catalog.BigInt},
	}, nil)}
	working := &WorkingScan{ID: 1, Name: "chain", Fields: r.Fields}
	next := computed(working, "next", typed(catalog.BigInt, "+", col(working, "k"), lit(1)), "k")
	small := where(w.scan("orders"), call("<", col(o, "o_custkey"), lit(1000)))
	j := join(next, small, "next", "o_orderkey")
	r.Step = selectColumns(j, by(j, "o_orderkey", "o_custkey"))
	return &Aggregate{Input: r, Calls: []AggCall{countStar()}}
}

// aboveAverage computes the same totals in two places.
func aboveAverage(w *world) Node {
	totals := customerTotals(w)
	average := &Aggregate{Input: customerTotals(w), Calls: []AggCall{{Func: Avg, Arg: 2, DataType: catalog.Double, Name: "average"}}}
	j := &Join{Kind: CrossJoin, Left: totals, Right: average}
	above := where(j, call(">", &Cast{Arg: col(j, "count"), DataType: catalog.Double}, col(j, "average")))
	return selectColumns(above, by(above, "o_custkey", "count"))
}

// TestSortOfCommonTableIsNoMerge: rows of a common table come in no order.
func TestSortOfCommonTableIsNoMerge(t *testing.T) {
	w := tpchWorld(t, 2)
	optimized, err := Optimize(withSortedReader(w), w)
	if err != nil {
		t.Fatal(err)
	}
	sorts := 0
	plan := mustDistribute(t, w, optimized)
	for _, f := range plan.Fragments {
		for i, op := range f.Operators {
			ready := false
			switch op := op.(type) {
			case *MergeSort:
				ready = op.Sorted
			case *TopK:
				ready = op.Refill
			default:
				continue
			}
			sorts++
			if s, ok := f.Operators[i-1].(*ExchangeSource); ok && ready && plan.Exchanges[s.Exchange].Kind == SharedExchange {
				t.Errorf("fragment %d merges rows without order", f.ID)
			}
		}
	}
	if sorts == 0 {
		t.Error("nothing is sorted")
	}
}

// TestSemiJoinSinksIntoOneUse: a node that is in two places is restricted in
// the one that a semi join is about.
func TestSemiJoinSinksIntoOneUse(t *testing.T) {
	w := abcWorld(t)
	s := w.scan("a", "a1", "a2")
	pairs := &Join{Kind: CrossJoin, Left: s, Right: s}
	few := where(w.scan("c", "c1"), call("=", col(w.scan("c", "c1"), "c1"), lit(3)))
	n, err := Optimize(&Join{Kind: SemiJoin, Left: pairs, Right: few, On: []JoinKey{{Left: 0, Right: 0}}}, w)
	if err != nil {
		t.Fatal(err)
	}
	if text := ExplainLite(n); strings.Count(text, "Join semi") != 1 || !strings.HasPrefix(text, "Join cross") {
		t.Error(text)
	}
}
