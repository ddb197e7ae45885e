package planner

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

func scanned(p *Plan) []catalog.TabletID {
	var out []catalog.TabletID
	for _, f := range p.Fragments {
		out = append(out, f.Tablets()...)
	}
	return out
}

func withFilter(n *Scan, filter Expr) *Scan {
	return &Scan{Table: n.Table, Projection: n.Projection, Filter: filter}
}

func in(arg Expr, values ...any) *InList {
	e := &InList{Arg: arg}
	for _, v := range values {
		e.List = append(e.List, lit(v))
	}
	return e
}

// owner is where the router puts a row with the given partition key.
func owner(t *testing.T, table *catalog.Table, values ...any) catalog.TabletID {
	t.Helper()
	r, err := catalog.NewRouter(table)
	if err != nil {
		t.Fatal(err)
	}
	var key []byte
	for i, v := range values {
		if key, err = catalog.AppendKeyValue(key, table.Columns[table.Partitioning.Columns[i]].Type, v); err != nil {
			t.Fatal(err)
		}
	}
	return table.Tablets[r.RouteKey(key)].ID
}

func TestHashPruningMatchesTheRouter(t *testing.T) {
	w := newWorld(t,
		tableSpec{name: "t", columns: []string{"v bigint", "id bigint"}, hash: []string{"id"}, tablets: ids(1, 2, 3, 4, 5), rows: 100, bytes: 100},
		tableSpec{name: "p", columns: []string{"a bigint", "b text"}, hash: []string{"a", "b"}, tablets: ids(11, 12, 13), rows: 100, bytes: 100})
	s := w.scan("t")
	for v := range 40 {
		want := ids(owner(t, w.tables["t"], int64(v)))
		for _, filter := range []Expr{
			call("=", col(s, "id"), lit(v)),
			call("=", lit(v), col(s, "id")),
			And(call("<", col(s, "v"), lit(3)), call("=", col(s, "id"), lit(v))),
			in(col(s, "id"), v, nil),
		} {
			if got := scanned(mustDistribute(t, w, withFilter(s, filter))); !slices.Equal(got, want) {
				t.Errorf("%s scans tablets %v, want %v", filter, got, want)
			}
		}
	}
	p := w.scan("p")
	both := And(call("=", col(p, "b"), lit("x")), call("=", col(p, "a"), lit(3)))
	if got := scanned(mustDistribute(t, w, withFilter(p, both))); !slices.Equal(got, ids(owner(t, w.tables["p"], int64(3), "x"))) {
		t.Errorf("two columns: %v", got)
	}
	for _, filter := range []Expr{
		call("=", col(p, "a"), lit(3)),
		call("<", col(s, "id"), lit(3)),
		call("or", call("=", col(s, "id"), lit(1)), call("=", col(s, "v"), lit(1))),
		&InList{Arg: col(s, "id"), List: []*Literal{lit(1)}, Negate: true},
	} {
		target, all := s, 5
		if columnsWithin(filter, 0, 1) {
			target, all = p, 3
		}
		if got := scanned(mustDistribute(t, w, withFilter(target, filter))); len(got) != all {
			t.Errorf("%s scans tablets %v", filter, got)
		}
	}
}

func TestPruningKeepsAtLeastOneFragment(t *testing.T) {
	w := newWorld(t, threeTablets(100, 100))
	s := w.scan("t")
	plan := mustDistribute(t, w, withFilter(s, in(col(s, "id"), nil)))
	if len(scanned(plan)) == 0 {
		t.Error(Explain(plan))
	}
}

func TestPrunedJoinIsColocated(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2, 3), ids(4, 5, 6), 640*mib, 640*mib)...)
	l, r := w.scan("l"), w.scan("r")
	root := &Filter{Input: join(l, r, "a", "b"), Predicate: call("=", col(l, "a"), lit(3))}
	optimized, err := Optimize(root, w)
	if err != nil {
		t.Fatal(err)
	}
	plan := mustDistribute(t, w, optimized)
	if got := strategies(plan); len(plan.Fragments) != 2 || got[0] != Colocated {
		t.Error(Explain(plan))
	}
}

func TestRangePruning(t *testing.T) {
	key := func(vs ...int64) []byte {
		var b []byte
		for _, v := range vs {
			b, _ = catalog.AppendKeyValue(b, catalog.BigInt, v)
		}
		return b
	}
	table := &catalog.Table{ID: 1, Schema: "public", Name: "r",
		Columns:      []catalog.Column{{Name: "a", Type: catalog.BigInt}, {Name: "b", Type: catalog.BigInt}, {Name: "c", Type: catalog.BigInt}},
		Partitioning: catalog.Partitioning{Kind: catalog.Range, Columns: []int{0, 1}},
		Tablets: []catalog.Tablet{
			{ID: 1, KeyHigh: key(10)}, {ID: 2, KeyLow: key(10), KeyHigh: key(20, 5)},
			{ID: 3, KeyLow: key(20, 5), KeyHigh: key(30)}, {ID: 4, KeyLow: key(30)},
		}}
	w := &world{CatalogLocator: NewCatalogLocator(table), tables: map[string]*catalog.Table{"r": table}, stats: map[catalog.TableID]TableStats{1: {}}}
	s := w.scan("r")
	a, b, c := col(s, "a"), col(s, "b"), col(s, "c")
	for _, test := range []struct {
		filter Expr
		want   []catalog.TabletID
	}{
		{call("=", a, lit(9)), ids(1)},
		{call("=", a, lit(10)), ids(2)},
		{call("=", a, lit(20)), ids(2, 3)},
		{And(call("=", a, lit(20)), call("=", b, lit(4))), ids(2)},
		{And(call("=", a, lit(20)), call("=", b, lit(5))), ids(3)},
		{And(call("=", a, lit(20)), call(">=", b, lit(6))), ids(3)},
		{call("<", a, lit(10)), ids(1)},
		{call("<=", a, lit(10)), ids(1, 2)},
		{call(">", a, lit(30)), ids(4)},
		{And(call(">=", a, lit(12)), call("<", a, lit(20))), ids(2)},
		{And(call(">=", lit(12), a), call(">", a, lit(3))), ids(1, 2)},
		{call("=", b, lit(1)), ids(1, 2, 3, 4)},
		{call("=", c, lit(1)), ids(1, 2, 3, 4)},
		{And(call(">", a, lit(12)), call("<", a, lit(1))), ids(1)},
	} {
		if got := scanned(mustDistribute(t, w, withFilter(s, test.filter))); !slices.Equal(got, test.want) {
			t.Errorf("%s scans tablets %v, want %v", test.filter, got, test.want)
		}
	}
}

func TestConstantsOfAnotherTypeDoNotPrune(t *testing.T) {
	w := newWorld(t, threeTablets(100, 100))
	s := w.scan("t")
	double := &Literal{Value: 1.0, DataType: arrow.PrimitiveTypes.Float64}
	if got := scanned(mustDistribute(t, w, withFilter(s, call("=", col(s, "id"), double)))); len(got) != 3 {
		t.Errorf("scans tablets %v", got)
	}
}
