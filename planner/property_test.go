package planner

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"skein/catalog"
)

// randomWorld has tables whose tablets line up in some pairs and not in others,
// small enough that every plan over them can be interpreted.
func randomWorld(t *rapid.T, tb testing.TB) (*world, database) {
	w := newWorld(tb,
		tableSpec{name: "a", columns: []string{"a1 bigint", "a2 bigint?", "a3 bigint"}, key: []string{"a1"}, hash: []string{"a1"}, tablets: ids(11, 12, 13)},
		tableSpec{name: "b", columns: []string{"b1 bigint", "b2 bigint?"}, hash: []string{"b1"}, tablets: ids(21, 22, 23)},
		tableSpec{name: "c", columns: []string{"c1 bigint", "c2 bigint", "c3 bigint?"}, hash: []string{"c1", "c2"}, tablets: ids(31, 32)},
		tableSpec{name: "d", columns: []string{"d1 bigint"}, tablets: ids(41)},
	)
	w.apart = map[[2]catalog.TabletID]bool{{13, 23}: rapid.Bool().Draw(t, "apart")}
	db := make(database)
	for _, name := range []string{"a", "b", "c", "d"} {
		table := w.tables[name]
		for range rapid.IntRange(0, 7).Draw(t, name) {
			var r row
			for _, c := range table.Columns {
				v := any(int64(rapid.IntRange(0, 4).Draw(t, c.Name)))
				if c.Nullable && v == int64(0) {
					v = nil
				}
				r = append(r, v)
			}
			if !hasKey(db[name], table, r) {
				db[name] = append(db[name], r)
			}
		}
		s := TableStats{Rows: uint64(rapid.SampledFrom([]int{0, 1, 10, 1000, 100000}).Draw(t, "rows"))}
		s.Bytes = s.Rows * uint64(rapid.IntRange(0, 200).Draw(t, "width"))
		if rapid.Bool().Draw(t, "stats") {
			for range table.Columns {
				s.Columns = append(s.Columns, ColumnStats{Distinct: s.Rows/2 + 1, Min: int64(0), Max: int64(4), Width: 8})
			}
		}
		w.stats[table.ID] = s
	}
	return w, db
}

// hasKey reports whether one of the rows has the primary key of r.
func hasKey(rows []row, table *catalog.Table, r row) bool {
	return len(table.PrimaryKey) > 0 && slices.ContainsFunc(rows, func(other row) bool {
		return !slices.ContainsFunc(table.PrimaryKey, func(c int) bool { return other[c] != r[c] })
	})
}

// generator draws random trees. Leaves bounds the scans, and with them the
// rows of cross joins.
type generator struct {
	t       *rapid.T
	w       *world
	leaves  int
	commons []*Common // that leaves may read
	made    []madeNode
	nextID  CommonID
}

// madeNode is a subtree that may be used again.
type madeNode struct {
	node   Node
	leaves int
}

func (g *generator) pick(n int, what string) int { return rapid.IntRange(0, n-1).Draw(g.t, what) }

func (g *generator) node(depth int) Node {
	if depth == 0 {
		return g.leaf()
	}
	if n := g.again(); n != nil {
		return n
	}
	before := g.leaves
	n := g.fresh(depth)
	g.made = append(g.made, madeNode{node: n, leaves: before - g.leaves})
	return n
}

// again is sometimes a subtree that there is already, as far as the leaves last.
func (g *generator) again() Node {
	if len(g.made) == 0 || g.pick(8, "again") > 0 {
		return nil
	}
	m := g.made[g.pick(len(g.made), "made")]
	if m.leaves > g.leaves {
		return nil
	}
	g.leaves -= m.leaves
	return m.node
}

// fresh is a new subtree.
func (g *generator) fresh(depth int) Node {
	switch g.pick(12, "node") {
	case 0:
		return g.leaf()
	case 1, 2:
		in := g.node(depth - 1)
		return &Filter{Input: in, Predicate: g.condition(in, 2)}
	case 3:
		return g.project(g.node(depth - 1))
	case 4:
		return g.aggregate(g.node(depth - 1))
	case 5:
		return g.sorted(g.node(depth - 1))
	case 6:
		return g.window(g.node(depth - 1))
	}
	if g.leaves < 2 {
		return g.leaf()
	}
	if g.pick(6, "union") == 0 {
		return g.union(depth)
	}
	return g.join(depth)
}

func (g *generator) leaf() Node {
	if n := g.commonScan(); n != nil {
		return n
	}
	g.leaves--
	if g.pick(12, "leaf") == 0 {
		fields := g.w.scan("d").Schema()
		v := &Values{Fields: fields}
		for range g.pick(3, "rows") {
			v.Rows = append(v.Rows, []Expr{lit(g.pick(5, "value"))})
		}
		return v
	}
	n := g.w.scan([]string{"a", "b", "c", "d"}[g.pick(4, "table")])
	if g.pick(3, "reorder") == 0 {
		all := n.Projection
		n.Projection = nil
		for range 1 + g.pick(len(all), "columns") {
			n.Projection = append(n.Projection, all[g.pick(len(all), "column")])
		}
	}
	if g.pick(3, "filter") == 0 {
		n.Filter = g.condition(n, 1)
	}
	return n
}

func (g *generator) join(depth int) Node {
	left := g.node(depth - 1)
	if g.leaves < 1 {
		return left
	}
	if kind := g.pick(12, "kind"); kind > 3 {
		kinds := []JoinKind{LeftJoin, RightJoin, FullJoin, SemiJoin, AntiJoin, MarkJoin, LeftJoin, SingleJoin}
		return g.joinAs(kinds[kind-4], left, g.node(depth-1))
	}
	j := &Join{Kind: InnerJoin, Left: left, Right: g.node(depth - 1)}
	l, r := integerColumns(left), integerColumns(j.Right)
	if len(l) > 0 && len(r) > 0 {
		for range g.pick(3, "keys") {
			j.On = append(j.On, JoinKey{Left: l[g.pick(len(l), "left key")], Right: r[g.pick(len(r), "right key")]})
		}
	}
	if len(j.On) == 0 || g.pick(4, "residual") == 0 {
		j.Kind = CrossJoin
		if g.pick(3, "cross") > 0 {
			j.Residual = g.condition(j, 2)
			j.Kind = InnerJoin
		} else {
			j.On = nil
		}
	}
	return j
}

// joinAs joins as an outer join or a subquery does.
func (g *generator) joinAs(kind JoinKind, left, right Node) Node {
	j := &Join{Kind: kind, Left: left, Right: right}
	if kind == SingleJoin {
		a := &Aggregate{Input: right, Calls: []AggCall{countStar()}}
		if r := integerColumns(right); len(r) > 0 && len(integerColumns(left)) > 0 {
			a.GroupBy = []int{r[g.pick(len(r), "unique")]}
			l := integerColumns(left)
			j.On = []JoinKey{{Left: l[g.pick(len(l), "left key")], Right: 0, NullSafe: g.pick(3, "null safe") == 0}}
		}
		j.Right = a
		return j
	}
	l, r := integerColumns(left), integerColumns(right)
	if len(l) > 0 && len(r) > 0 {
		for range g.pick(3, "keys") {
			j.On = append(j.On, JoinKey{
				Left: l[g.pick(len(l), "left key")], Right: r[g.pick(len(r), "right key")], NullSafe: g.pick(4, "null safe") == 0,
			})
		}
	}
	if g.pick(3, "residual") == 0 {
		j.Residual = g.condition(&Join{Kind: InnerJoin, Left: left, Right: right}, 2)
	}
	return j
}

// union has two branches of one to three integer columns.
func (g *generator) union(depth int) Node {
	width := 1 + g.pick(3, "width")
	u := &Union{}
	for range 2 {
		in := g.node(depth - 1)
		p := &Project{Input: in}
		for i := range width {
			p.Exprs = append(p.Exprs, g.integer(in, 1))
			p.Names = append(p.Names, fmt.Sprintf("u%d", i))
		}
		u.Branches = append(u.Branches, p)
	}
	return u
}

// window orders by all columns, so that only equal rows are peers.
func (g *generator) window(in Node) Node {
	columns := integerColumns(in)
	w := &Window{Input: in, Calls: []WindowCall{{Func: RowNumber, Frame: DefaultFrame(), DataType: catalog.BigInt, Name: "rn"}}}
	if len(columns) > 0 {
		for range g.pick(3, "partitions") {
			w.PartitionBy = append(w.PartitionBy, columns[g.pick(len(columns), "partition")])
		}
		whole := Frame{Mode: RowsFrame, Start: FrameBound{Kind: UnboundedPreceding}, End: FrameBound{Kind: UnboundedFollowing}}
		w.Calls = append(w.Calls, WindowCall{
			Func: WindowFunc(Sum), Args: []int{columns[g.pick(len(columns), "arg")]}, Frame: whole, DataType: catalog.BigInt, Name: "total",
		})
	}
	for i := range outputFields(in) {
		w.OrderBy = append(w.OrderBy, SortKey{Column: i})
	}
	return w
}

func integerColumns(n Node) []int {
	var out []int
	for i, f := range outputFields(n) {
		if f.Type.ID() == catalog.BigInt.ID() {
			out = append(out, i)
		}
	}
	return out
}

func (g *generator) project(in Node) Node {
	p := &Project{Input: in}
	for i := range 1 + g.pick(3, "exprs") {
		var e Expr = g.integer(in, 1)
		if g.pick(6, "boolean") == 0 {
			e = g.condition(in, 1)
		}
		p.Exprs = append(p.Exprs, e)
		p.Names = append(p.Names, fmt.Sprintf("p%d", i))
	}
	return p
}

func (g *generator) aggregate(in Node) Node {
	columns := integerColumns(in)
	a := &Aggregate{Input: in, Calls: []AggCall{countStar()}}
	if len(columns) == 0 {
		return a
	}
	for range g.pick(4, "groups") {
		a.GroupBy = append(a.GroupBy, columns[g.pick(len(columns), "group")])
	}
	for i, f := range []AggFunc{Count, Sum, Min, Max, Avg} {
		if g.pick(2, "call") == 0 {
			dt := catalog.BigInt
			if f == Avg {
				dt = catalog.Double
			}
			a.Calls = append(a.Calls, AggCall{
				Func: f, Arg: columns[g.pick(len(columns), "arg")], Distinct: g.pick(3, "distinct") == 0,
				DataType: dt, Name: fmt.Sprintf("c%d", i),
			})
		}
	}
	return a
}

// sorted orders by all columns, so that a limit always keeps the same rows.
func (g *generator) sorted(in Node) Node {
	s := &Sort{Input: in, Limit: int64(g.pick(6, "limit")) - 1}
	for i := range outputFields(in) {
		desc := g.pick(2, "desc") == 0
		s.Keys = append(s.Keys, SortKey{Column: i, Descending: desc, NullsFirst: desc != (g.pick(4, "nulls") == 0)})
	}
	if g.pick(2, "outer limit") == 0 {
		return s
	}
	var n Node = s
	if g.pick(2, "between") == 0 && len(integerColumns(s)) > 0 {
		n = g.project(s)
	}
	return &Limit{Input: n, Limit: int64(g.pick(6, "limit")) - 1, Offset: int64(g.pick(3, "offset"))}
}

func (g *generator) integer(in Node, depth int) Expr {
	columns := integerColumns(in)
	if len(columns) == 0 || g.pick(5, "integer") == 0 {
		if g.pick(6, "null") == 0 {
			return lit(nil)
		}
		return lit(g.pick(5, "constant"))
	}
	c := columnOf(outputFields(in), columns[g.pick(len(columns), "column")])
	if depth == 0 || g.pick(4, "arithmetic") > 0 {
		return c
	}
	return typed(catalog.BigInt, []string{"+", "-"}[g.pick(2, "sign")], c, g.integer(in, depth-1))
}

func (g *generator) condition(in Node, depth int) Expr {
	kind := g.pick(10, "condition")
	if depth == 0 && kind >= 6 {
		kind = 0
	}
	switch kind {
	case 3:
		return call("is null", g.integer(in, 0))
	case 4:
		list := &InList{Arg: g.integer(in, 0), Negate: g.pick(3, "negate") == 0}
		for range 1 + g.pick(3, "list") {
			list.List = append(list.List, lit(g.pick(5, "element")))
		}
		return list
	case 5:
		return lit(g.pick(4, "true") > 0)
	case 6, 7:
		return call("and", g.condition(in, depth-1), g.condition(in, depth-1))
	case 8:
		common := g.condition(in, depth-1)
		return call("or", call("and", common, g.condition(in, depth-1)), call("and", g.condition(in, depth-1), common))
	case 9:
		return call("not", g.condition(in, depth-1))
	}
	op := []string{"=", "=", "=", "<>", "<", "<=", ">", ">="}[g.pick(8, "op")]
	return call(op, g.integer(in, 1), g.integer(in, 1))
}

func TestOptimizeAndDistributeKeepResults(t *testing.T) {
	for name, draw := range map[string]func(*generator) Node{
		"tree": func(g *generator) Node { g.leaves = 4; return g.node(4) },
		"with": (*generator).with,
	} {
		for i := range 10 { // rapid draws 100 trees each time
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { checkTree(rt, t, draw) })
			})
		}
	}
}

// checkTree compares one random tree with its rewritten form and both with
// their distributed plans.
func checkTree(rt *rapid.T, t *testing.T, draw func(*generator) Node) {
	w, db := randomWorld(rt, t)
	root := draw(&generator{t: rt, w: w, nextID: 1})
	want := canonical(evalNode(root, db))

	optimized, err := Optimize(root, w)
	if err != nil {
		rt.Fatalf("%v optimizing\n%s", err, ExplainLite(root))
	}
	if err := ValidateLite(optimized); err != nil {
		rt.Fatalf("%v in\n%s", err, ExplainLite(optimized))
	}
	if b, a := fieldTypes(root.Schema()), fieldTypes(optimized.Schema()); a != b {
		rt.Fatalf("schema %s became %s", b, a)
	}
	if got := canonical(evalNode(optimized, db)); got != want {
		rt.Fatalf("before:\n%s%s\nafter:\n%s%s", ExplainLite(root), want, ExplainLite(optimized), got)
	}
	again, err := Optimize(optimized, w)
	if err != nil {
		rt.Fatal(err)
	}
	if got := canonical(evalNode(again, db)); got != want {
		rt.Fatalf("second pass:\n%s%s\nafter:\n%s%s", ExplainLite(optimized), want, ExplainLite(again), got)
	}

	options := Options{BroadcastThreshold: uint64(rapid.SampledFrom([]int{0, 50, 5000, 1 << 30}).Draw(rt, "threshold"))}
	for _, n := range []Node{root, optimized} {
		plan, err := Distribute(Description{QueryID: "q", Root: n, Options: options}, w, w)
		if err != nil {
			rt.Fatalf("%v distributing\n%s", err, ExplainLite(n))
		}
		if err := ValidatePlan(plan); err != nil {
			rt.Fatalf("%v in\n%s", err, Explain(plan))
		}
		if !plan.Schema.Equal(n.Schema()) {
			rt.Fatalf("plan schema %v of\n%s", plan.Schema, ExplainLite(n))
		}
		if got := canonical(evalPlan(t, plan, db)); got != want {
			rt.Fatalf("%s%s\nwant\n%s", Explain(plan), got, want)
		}
	}
}
