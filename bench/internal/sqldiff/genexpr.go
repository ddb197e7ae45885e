package sqldiff

import (
	"cmp"
	"fmt"
	"strings"
)

// scope is what an expression may refer to.
type scope struct {
	columns []*Expr
	// unique are columns whose values together differ in every row, nil where
	// none are known.
	unique []*Expr
	// aggregates: inside is what their arguments may refer to, nil where none
	// may stand.
	inside *scope
	// outer may be correlated with, by subqueries.
	outer *scope
}

func (s *scope) of(t Type) []*Expr {
	var out []*Expr
	for _, c := range s.columns {
		if c.Type == t {
			out = append(out, c)
		}
	}
	return out
}

// named are the columns of a type that are no expressions and qualified: an
// expression that is grouped by cannot be referred to from a subquery, and a
// merged column of USING might be another one there.
func (s *scope) named(t Type) []*Expr {
	var out []*Expr
	for _, c := range s.of(t) {
		if len(c.Args) == 0 && !strings.Contains(c.Skein, "(") && strings.Contains(c.Skein, ".") {
			out = append(out, c)
		}
	}
	return out
}

// expr makes an expression of a type.
func (g *generator) expr(s *scope, t Type, depth int) *Expr {
	if s.inside != nil && g.chance(45) {
		if e := g.aggregate(s.inside, t); e != nil {
			return e
		}
	}
	columns := s.of(t)
	if depth <= 0 || g.chance(30) {
		if len(columns) > 0 && g.chance(85) {
			return pick(g, columns).clone()
		}
		return g.leaf(t)
	}
	if g.depth < 2 && g.chance(4) {
		if e := g.scalarSubquery(s, t); e != nil {
			return e
		}
	}
	if g.chance(14) && !t.unordered() {
		return g.conditional(s, t, depth-1)
	}
	if t == Bool && g.chance(80) {
		return g.condition(s, depth)
	}
	forms := allForms[t]
	if len(forms) == 0 {
		if len(columns) > 0 {
			return pick(g, columns).clone()
		}
		return g.leaf(t)
	}
	f := pick(g, forms)
	e := &Expr{Type: t, Skein: f.skein, Duck: f.duck, Lazy: strings.HasPrefix(f.duck, "CASE")}
	for i, p := range f.params {
		if i == len(f.params)-1 && f.small != [2]int{} {
			e.Args = append(e.Args, small(f.small[0]+g.r.IntN(f.small[1]-f.small[0]+1)))
			continue
		}
		e.Args = append(e.Args, g.expr(s, p, depth-1))
	}
	return e
}

// conditional makes CASE, COALESCE and the like.
func (g *generator) conditional(s *scope, t Type, depth int) *Expr {
	e := &Expr{Type: t, Lazy: true}
	arg := func(t Type) *Expr { return g.expr(s, t, depth) }
	kinds := 6
	if t == Span { // DuckDB's greatest and least do not compare as its operators do
		kinds = 5
	}
	switch g.r.IntN(kinds) {
	case 0:
		e.Skein, e.Args = "CASE WHEN $1 THEN $2 ELSE $3 END", []*Expr{arg(Bool), arg(t), arg(t)}
	case 1:
		e.Skein, e.Args = "CASE WHEN $1 THEN $2 WHEN $3 THEN $4 END", []*Expr{arg(Bool), arg(t), arg(Bool), arg(t)}
	case 2:
		o := pick(g, []Type{Int, Text, Date})
		e.Skein, e.Args = "CASE $1 WHEN $2 THEN $3 ELSE $4 END", []*Expr{arg(o), arg(o), arg(t), arg(t)}
	case 3:
		e.Skein, e.Args = "coalesce($1, $2)", []*Expr{arg(t), arg(t)}
	case 4:
		e.Skein, e.Args = "nullif($1, $2)", []*Expr{arg(t), arg(t)}
	default:
		e.Skein, e.Args = pick(g, []string{"greatest($1, $2)", "least($1, $2)"}), []*Expr{arg(t), arg(t)}
	}
	return e
}

// condition makes a truth value out of comparisons and subqueries.
func (g *generator) condition(s *scope, depth int) *Expr {
	t := g.columnType(s)
	arg := func(t Type) *Expr { return g.expr(s, t, depth-1) }
	e := &Expr{Type: Bool}
	switch g.r.IntN(16) {
	case 0, 1:
		e.Lazy = true
		e.Skein, e.Args = "($1 AND $2)", []*Expr{arg(Bool), arg(Bool)}
	case 2, 3:
		e.Lazy = true
		e.Skein, e.Args = "($1 OR $2)", []*Expr{arg(Bool), arg(Bool)}
	case 4:
		e.Skein, e.Args = pick(g, []string{"($1 IS NULL)", "($1 IS NOT NULL)"}), []*Expr{arg(t)}
	case 5:
		e.Skein, e.Args = pick(g, []string{"($1 IS DISTINCT FROM $2)", "($1 IS NOT DISTINCT FROM $2)"}), []*Expr{arg(t), arg(t)}
	case 6:
		e.Skein, e.Args = pick(g, []string{"($1 BETWEEN $2 AND $3)", "($1 NOT BETWEEN $2 AND $3)"}), []*Expr{arg(t), arg(t), arg(t)}
	case 7:
		e.Skein, e.Args = pick(g, []string{"($1 IN ($2, $3, $4))", "($1 NOT IN ($2, $3))"}), []*Expr{arg(t), g.leaf(t), g.leaf(t), arg(t)}
	case 8:
		if g.depth < 2 {
			return g.quantified(s, t, depth)
		}
		fallthrough
	case 9:
		a, b := pick(g, []Type{Small, Int, Big, Dec, Double}), pick(g, []Type{Small, Int, Big, Dec, Double})
		if a == Dec && b == Double || a == Double && b == Dec {
			b = a // inexact in between
		}
		e.Skein, e.Args = "($1 "+g.comparison()+" $2)", []*Expr{arg(a), arg(b)}
	case 10:
		f := pick(g, truthForms)
		e.Skein, e.Duck = f.skein, f.duck
		for _, p := range f.params {
			e.Args = append(e.Args, arg(p))
		}
	case 11:
		if !g.chance(50) {
			return g.condition(s, depth)
		}
		// DuckDB compares rows as structs, in which NULLs are equal.
		f := pick(g, rowComparisons)
		e.Skein, e.Duck = f.skein, f.duck
		e.Lazy, e.Args = true, []*Expr{arg(t), arg(Int), arg(t), arg(Int)}
	default:
		e.Skein, e.Args = "($1 "+g.comparison()+" $2)", []*Expr{arg(t), arg(t)}
	}
	return e
}

func (g *generator) comparison() string { return pick(g, []string{"=", "<>", "<", "<=", ">", ">="}) }

// columnType is a type to compare, most often one that a column has.
func (g *generator) columnType(s *scope) Type {
	if len(s.columns) > 0 && g.chance(80) {
		if t := pick(g, s.columns).Type; !t.unordered() {
			return t
		}
	}
	return pick(g, comparableTypes)
}

// quantified makes EXISTS, IN, ANY and ALL over a subquery, often correlated.
func (g *generator) quantified(s *scope, t Type, depth int) *Expr {
	g.depth++
	defer func() { g.depth-- }()
	e := &Expr{Type: Bool, Lazy: true}
	switch g.r.IntN(4) {
	case 0:
		e.Sub = g.subquery(s, []Type{Int}, g.chance(75))
		e.Skein = pick(g, []string{"EXISTS (#)", "(NOT EXISTS (#))"})
	case 1, 2:
		e.Sub = g.subquery(s, []Type{t}, g.chance(30))
		e.Skein, e.Args = pick(g, []string{"($1 IN (#))", "($1 NOT IN (#))"}), []*Expr{g.expr(s, t, depth-2)}
	default:
		e.Sub = g.subquery(s, []Type{t}, g.chance(20))
		e.Skein, e.Args = "($1 "+g.comparison()+pick(g, []string{" ANY", " ALL"})+" (#))", []*Expr{g.expr(s, t, depth-2)}
	}
	return e
}

// scalarSubquery is a subquery of one row: an aggregate.
func (g *generator) scalarSubquery(s *scope, t Type) *Expr {
	g.depth++
	defer func() { g.depth-- }()
	from, inner := g.from(1)
	inner.outer = s
	agg := g.aggregate(inner, t)
	if agg == nil {
		return nil
	}
	sel := &Select{Items: []*Expr{agg}, From: from}
	if g.chance(60) {
		sel.Where = g.correlate(s, inner)
	}
	if g.chance(20) { // of subqueries two levels down, perhaps
		sel.Where = conjunction(sel.Where, g.condition(inner, 1))
	}
	return &Expr{Type: t, Skein: "(#)", Sub: &Query{Select: sel, Limit: -1}, Lazy: true}
}

// subquery makes a query of the given columns.
func (g *generator) subquery(outer *scope, types []Type, correlated bool) *Query {
	from, inner := g.from(1)
	inner.outer = outer
	sel := &Select{From: from}
	for _, t := range types {
		item := g.expr(inner, t, 1)
		if out := outer.named(t); correlated && len(out) > 0 && g.chance(10) {
			item = pick(g, out).clone()
		}
		sel.Items = append(sel.Items, item)
	}
	if correlated {
		sel.Where = g.correlate(outer, inner)
	}
	if g.chance(40) {
		sel.Where = conjunction(sel.Where, g.condition(inner, 1))
	}
	return &Query{Select: sel, Limit: -1}
}

// correlate is a comparison, mostly an equality, of a column inside with one
// outside, sometimes two of them; nil if no types meet.
func (g *generator) correlate(outer, inner *scope) *Expr {
	if outer == nil {
		return nil
	}
	if outer.outer != nil && g.chance(30) {
		outer = outer.outer
	}
	for range 8 {
		in := pick(g, inner.columns)
		if out := outer.named(in.Type); len(out) > 0 && !in.Type.unordered() {
			op := "="
			if g.chance(25) {
				op = g.comparison()
			}
			e := &Expr{Type: Bool, Skein: "($1 " + op + " $2)", Args: []*Expr{in.clone(), pick(g, out).clone()}}
			if g.chance(20) {
				return conjunction(e, g.correlate(outer, inner))
			}
			return e
		}
	}
	return nil
}

func conjunction(a, b *Expr) *Expr {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &Expr{Type: Bool, Skein: "($1 AND $2)", Args: []*Expr{a, b}, Lazy: true}
}

// aggregate makes an aggregate of a result type, nil if there is none.
func (g *generator) aggregate(s *scope, t Type) *Expr {
	inner := &scope{columns: s.columns, outer: s.outer}
	arg := func(t Type) *Expr { return g.expr(inner, t, 1) }
	e := &Expr{Type: t, Whole: true}
	set := func(skein, duck string, args ...*Expr) {
		e.Skein, e.Duck, e.Args = skein, duck, args
	}
	distinct := ""
	if g.chance(15) {
		distinct = "DISTINCT "
	}
	switch t {
	case Big:
		switch g.r.IntN(4) {
		case 0:
			set("count(*)", "")
		case 1:
			set("count("+distinct+"$1)", "", arg(pick(g, comparableTypes)))
		default:
			set("sum("+distinct+"$1)", "CAST(sum("+distinct+"$1) AS BIGINT)", arg(pick(g, []Type{Small, Int, Big})))
		}
	case Double:
		set(pick(g, []string{"sum($1)", "min($1)", "max($1)"}), "", arg(t))
	case Dec:
		set(pick(g, []string{"CAST(sum($1) AS DECIMAL(18,4))", "min($1)", "max($1)"}), "", arg(t))
	case Approx:
		set(pick(g, []string{"avg($1)", "stddev($1)", "var_pop($1)", "stddev_pop($1)", "variance($1)", "avg(DISTINCT $1)"}), "", arg(pick(g, []Type{Small, Int})))
		if g.chance(15) {
			set("percentile_cont(0.5) WITHIN GROUP (ORDER BY $1)", "", arg(Int))
		}
	case Bool:
		set(pick(g, []string{"bool_and($1)", "bool_or($1)", "min($1)"}), "", arg(t))
		if e.Skein == "min($1)" {
			set("every($1)", "bool_and($1)", e.Args...)
		}
	case Text:
		if g.chance(40) {
			e.Skein, e.Args = "string_agg("+distinct+"$1, ',' ORDER BY $1)", []*Expr{pick(g, append(inner.of(Text), g.leaf(Text))).clone()}
			break
		}
		set(pick(g, []string{"min($1)", "max($1)"}), "", arg(t))
	case UUID, Bytes, Elapsed, Listed:
		return nil
	default:
		set(pick(g, []string{"min($1)", "max($1)"}), "", arg(t))
	}
	if g.chance(15) && !strings.Contains(e.Skein, "CAST") && !strings.Contains(e.Duck, "CAST") {
		e.Args = append(e.Args, g.condition(inner, 1))
		filter := fmt.Sprintf(" FILTER (WHERE $%d)", len(e.Args))
		e.Skein += filter
		if e.Duck != "" {
			e.Duck += filter
		}
	}
	return e
}
