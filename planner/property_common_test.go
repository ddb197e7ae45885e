package planner

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// with is a tree with common tables at its root, which may read each other and
// hold recursions.
func (g *generator) with() Node {
	w := &With{}
	for range 1 + g.pick(2, "commons") {
		g.leaves = commonLeaves
		in := g.node(2)
		if g.pick(3, "recursive") == 0 {
			in = g.recursive()
		}
		id := g.id()
		w.Commons = append(w.Commons, &Common{ID: id, Name: fmt.Sprintf("w%d", id), Input: in, Keep: g.pick(4, "keep") == 0})
		g.commons, g.made = w.Commons, nil
	}
	g.leaves = 2 * commonLeaves
	w.Main = g.node(3)
	return w
}

// commonLeaves are the leaves of a common table, and of each scan of one.
const commonLeaves = 2

func (g *generator) id() CommonID {
	g.nextID++
	return g.nextID - 1
}

// commonScan sometimes reads some columns of a common table, as far as there
// is one and the leaves last.
func (g *generator) commonScan() Node {
	if len(g.commons) == 0 || g.leaves < commonLeaves || g.pick(3, "common") == 0 {
		return nil
	}
	g.leaves -= commonLeaves
	scan := g.commons[g.pick(len(g.commons), "which")].Scan()
	if len(scan.Columns) > 1 && g.pick(3, "reorder") == 0 {
		all := scan.Columns
		scan.Columns = nil
		for range 1 + g.pick(len(all), "columns") {
			scan.Columns = append(scan.Columns, all[g.pick(len(all), "column")])
		}
	}
	return scan
}

// recursive has rows (n, v). Each round it computes n + 1 of the rows with n
// below a bound, so that it ends, and a v that comes from the rows or from
// another input of the step.
func (g *generator) recursive() Node {
	fields := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: catalog.BigInt, Nullable: true}, {Name: "v", Type: catalog.BigInt, Nullable: true},
	}, nil)
	g.leaves = 1
	in := g.leaf()
	r := &Recursive{
		ID: g.id(), Name: "r", Distinct: g.pick(2, "distinct") == 0, Fields: fields,
		Seed: &Project{Input: in, Exprs: []Expr{lit(g.pick(2, "start")), g.integer(in, 1)}, Names: []string{"n", "v"}},
	}
	r.Step = g.step(r)
	if g.pick(4, "two") == 0 {
		r.Step = &Union{Branches: []Node{r.Step, g.step(r)}}
	}
	return r
}

func (g *generator) step(r *Recursive) Node {
	working := &WorkingScan{ID: r.ID, Name: "r", Fields: r.Fields}
	n := where(working, call("<", col(working, "n"), lit(1+g.pick(2, "bound"))))
	switch g.pick(4, "step") {
	case 0:
		g.leaves = 1
		n = g.joinAs([]JoinKind{LeftJoin, SemiJoin, AntiJoin, MarkJoin}[g.pick(4, "kind")], n, g.leaf())
	case 1, 2:
		g.leaves = 1
		other := g.leaf()
		j := &Join{Kind: InnerJoin, Left: n, Right: other}
		if g.pick(2, "swapped") == 0 {
			j.Left, j.Right = other, n
		}
		j.Residual = g.condition(j, 1)
		l, r := integerColumns(j.Left), integerColumns(j.Right)
		if len(l) > 0 && len(r) > 0 && g.pick(3, "key") > 0 {
			j.On = []JoinKey{{Left: l[g.pick(len(l), "left key")], Right: r[g.pick(len(r), "right key")]}}
		}
		n = j
	}
	next := typed(catalog.BigInt, "+", col(n, "n"), lit(1))
	return &Project{Input: n, Exprs: []Expr{next, g.integer(n, 1)}, Names: []string{"n", "v"}}
}
