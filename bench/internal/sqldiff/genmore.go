package sqldiff

import (
	"fmt"
	"slices"
	"strings"
)

// recursion makes the query of a WITH RECURSIVE that ends after a few rounds:
// its second column counts them.
func (g *generator) recursion(name string) *Query {
	t := pick(g, g.tables)
	for range 8 {
		if !t.Key || t.Large {
			t = pick(g, g.tables)
		}
	}
	a, r := g.nextAlias(), g.nextAlias()
	seed := &Select{From: &From{Table: t.Name, Alias: a}}
	seed.Items = []*Expr{{Type: Int, Skein: a + ".k"}, {Type: Int, Skein: "0"}}
	seed.Where = g.condition(g.tableScope(t, a), 1)
	own := &scope{columns: []*Expr{{Type: Int, Skein: r + ".c1"}, {Type: Int, Skein: r + ".c2"}}}
	step := &Select{From: &From{Table: name, Alias: r}}
	step.Where = &Expr{Type: Bool, Skein: fmt.Sprintf("(%s.c2 < %d)", r, 1+g.r.IntN(4))}
	next := &Expr{Type: Int, Skein: "(($1 * 2 + 1) % 13)", Args: []*Expr{own.columns[0].clone()}}
	if t.Key && !t.Large && g.chance(50) {
		// A row of the last round meets one of the table at most.
		b := g.nextAlias()
		sc := g.tableScope(t, b)
		step.From = &From{Join: pick(g, []string{"JOIN", "LEFT JOIN"}), Left: step.From, Right: &From{Table: t.Name, Alias: b}}
		step.From.On = &Expr{Type: Bool, Skein: "($1 = $2)", Args: []*Expr{own.columns[0].clone(), sc.columns[0].clone()}}
		next = pick(g, sc.of(Int)).clone()
	}
	step.Items = []*Expr{next, {Type: Int, Skein: fmt.Sprintf("(%s.c2 + 1)", r)}}
	op := &SetOp{pick(g, []string{"UNION", "UNION ALL"}), &Query{Select: seed, Limit: -1}, &Query{Select: step, Limit: -1}}
	return &Query{Set: op, Limit: -1}
}

// lateral joins a query that refers to what stands left of it, nil if it cannot.
func (g *generator) lateral(left *From, ls *scope) (*From, *scope) {
	around := &scope{columns: ls.columns}
	g.depth++
	q := g.subquery(around, []Type{g.columnType(ls), Int}, true)
	if q.Select.Where == nil {
		g.depth--
		return nil, nil
	}
	own := true // an aggregate of what is around would belong there
	for _, c := range ls.columns {
		own = own && !slices.ContainsFunc(q.Select.Items, func(e *Expr) bool { return strings.Contains(e.SQL(Skein), c.Skein) })
	}
	switch n := g.r.IntN(10); {
	case n < 3 && own: // one row for each row around
		inner := &scope{columns: []*Expr{q.Select.Items[0]}}
		q.Select.Items = []*Expr{{Type: Big, Skein: "count(*)", Whole: true}, {Type: Int, Skein: "max($1)", Args: q.Select.Items[1:], Whole: true}}
		if agg := g.aggregate(inner, Big); agg != nil && g.chance(50) {
			q.Select.Items[0] = agg
		}
	case n < 5:
		q.Order, q.Limit = []Order{{Column: 1}, {Column: 2, Desc: true}}, 1+g.r.IntN(3)
	case n < 6:
		q.Select.Distinct = true
	}
	g.depth--
	a := g.nextAlias()
	both := &scope{columns: append([]*Expr(nil), ls.columns...)}
	for i, t := range q.types() {
		both.columns = append(both.columns, &Expr{Type: t, Skein: fmt.Sprintf("%s.c%d", a, i+1)})
	}
	f := &From{Join: pick(g, []string{"CROSS JOIN", "JOIN", "LEFT JOIN"}), Left: left, Right: &From{Query: q, Alias: a, Lateral: true}}
	if f.Join != "CROSS JOIN" {
		f.On = &Expr{Type: Bool, Skein: "TRUE"}
	}
	return f, both
}
