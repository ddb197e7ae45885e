package planner

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// graphWorld has n tables of an own column for each other table, and of the
// given sizes.
func graphWorld(tb testing.TB, rows []uint64, distinct func(table, column int) uint64) *world {
	var specs []tableSpec
	for i := range rows {
		s := tableSpec{name: fmt.Sprintf("t%d", i), tablets: ids(1), rows: rows[i], bytes: rows[i] * 8 * uint64(len(rows))}
		for j := range rows {
			s.columns = append(s.columns, fmt.Sprintf("c%d_%d bigint", i, j))
			s.columnStats = append(s.columnStats, ColumnStats{Distinct: max(min(distinct(i, j), rows[i]), 1), Width: 8})
		}
		specs = append(specs, s)
	}
	return newWorld(tb, specs...)
}

// graph joins the tables by the edges: column j of table i with column i of
// table j.
func graph(w *world, tables int, edges [][2]int) Node {
	var scans []Node
	for i := range tables {
		scans = append(scans, w.scan(fmt.Sprintf("t%d", i)))
	}
	from := comma(scans...)
	var conds []Expr
	for _, e := range edges {
		conds = append(conds, eq(from, fmt.Sprintf("c%d_%d", e[0], e[1]), fmt.Sprintf("c%d_%d", e[1], e[0])))
	}
	return where(from, conds...)
}

// treeCost is the cost of the joins in a tree as the search counts it, given how
// many rows it expects of each set of tables.
func treeCost(t *rapid.T, n Node, tables map[string]int, est map[leafSet]estimate) (leafSet, float64) {
	switch n := n.(type) {
	case *Scan:
		return 1 << tables[n.Table.Name], 0
	case *Join:
		l, a := treeCost(t, n.Left, tables, est)
		r, b := treeCost(t, n.Right, tables, est)
		return l | r, a + b + joinCost(est[l], est[r], est[l|r])
	case *Project:
		return treeCost(t, n.Input, tables, est)
	}
	t.Fatalf("%T in a tree of joins", n)
	return 0, 0
}

// cheapestTree is the least cost of joining a set of tables without cross joins,
// by trying everything.
func cheapestTree(set leafSet, links func(a, b leafSet) bool, est map[leafSet]estimate) float64 {
	if set.single() {
		return 0
	}
	best := math.Inf(1)
	for part := (set - 1) & set; part != 0; part = (part - 1) & set {
		rest := set &^ part
		if rest&(set&-set) != 0 || !links(part, rest) {
			continue // the first table is on the left
		}
		cost := cheapestTree(part, links, est) + cheapestTree(rest, links, est) + joinCost(est[part], est[rest], est[set])
		best = min(best, cost)
	}
	return best
}

// TestJoinSearchFindsTheCheapestTree compares the search with trying all trees
// over random graphs of up to six tables.
func TestJoinSearchFindsTheCheapestTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(3, 6).Draw(rt, "tables")
		rows := make([]uint64, n)
		tables := make(map[string]int)
		for i := range rows {
			rows[i] = uint64(rapid.SampledFrom([]int{1, 10, 300, 5000, 200_000}).Draw(rt, "rows"))
			tables[fmt.Sprintf("t%d", i)] = i
		}
		w := graphWorld(t, rows, func(int, int) uint64 {
			return uint64(rapid.SampledFrom([]int{1, 5, 100, 1000, 200_000}).Draw(rt, "distinct"))
		})
		var edges [][2]int
		for i := 1; i < n; i++ { // a tree, so that all are connected
			edges = append(edges, [2]int{rapid.IntRange(0, i-1).Draw(rt, "neighbour"), i})
		}
		if i := rapid.IntRange(0, n-3).Draw(rt, "cycle"); i > 0 {
			edges = append(edges, [2]int{i, n - 1})
		}
		links := func(a, b leafSet) bool {
			for _, e := range edges {
				x, y := leafSet(1)<<e[0], leafSet(1)<<e[1]
				if a.overlaps(x) && b.overlaps(y) || a.overlaps(y) && b.overlaps(x) {
					return true
				}
			}
			return false
		}
		search := searchOf(rt, w, graph(w, n, edges))
		est := make(map[leafSet]estimate)
		for set, s := range search.best {
			if s != nil {
				est[leafSet(set)] = s.component.est
			}
		}
		all := leafSet(1)<<n - 1
		if _, got := treeCost(rt, search.build(all).node, tables, est); math.Abs(got-cheapestTree(all, links, est)) > 1e-6*got {
			rt.Fatalf("cost %v instead of %v:\n%s", got, cheapestTree(all, links, est), ExplainLite(search.build(all).node))
		}
	})
}

// searchOf runs the search over a tree of joins that keys connect.
func searchOf(t *rapid.T, w *world, root Node) *joinSearch {
	r := &joinRegion{}
	r.collect(root, maxRegionLeaves)
	conds := r.distributeConditions()
	if err := r.planLeaves(&pushdown{estimator: newEstimator(w)}); err != nil {
		t.Fatal(err)
	}
	groups := r.connected(r.components())
	if len(groups) != 1 {
		t.Fatalf("%d groups of\n%s", len(groups), ExplainLite(root))
	}
	s := &joinSearch{region: r, conds: conds, leaves: groups[0]}
	s.run()
	return s
}

// TestJoinSearchFindsBushyTrees: two chains that each leave few rows are joined
// at last, which no order of single tables does as cheaply.
func TestJoinSearchFindsBushyTrees(t *testing.T) {
	w := graphWorld(t, []uint64{10, 100_000, 100_000, 10}, func(i, j int) uint64 {
		if i+j == 3 { // between the large ones
			return 100
		}
		return 1000
	})
	n, err := Optimize(graph(w, 4, [][2]int{{0, 1}, {1, 2}, {2, 3}}), w)
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, ok := n.(*Project)
		if !ok {
			break
		}
		n = p.Input
	}
	top := n.(*Join)
	if countLeaves(top.Left) != 2 || countLeaves(top.Right) != 2 {
		t.Error(ExplainLite(n))
	}
}

// BenchmarkJoinSearch plans joins of as many tables as are searched, all
// connected with all, in a chain, and around one, and of one table more.
func BenchmarkJoinSearch(b *testing.B) {
	for _, n := range []int{maxSearchedLeaves, maxSearchedLeaves + 1} {
		rows := make([]uint64, n)
		for i := range rows {
			rows[i] = uint64(i+1) * 1000
		}
		w := graphWorld(b, rows, func(_, j int) uint64 { return uint64(j+1) * 100 })
		shapes := map[string][][2]int{}
		for i := 1; i < n; i++ {
			shapes["chain"] = append(shapes["chain"], [2]int{i - 1, i})
			shapes["star"] = append(shapes["star"], [2]int{0, i})
			for j := range i {
				shapes["clique"] = append(shapes["clique"], [2]int{j, i})
			}
		}
		for name, edges := range shapes {
			root := graph(w, n, edges)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Optimize(root, w); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
