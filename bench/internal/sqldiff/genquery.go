package sqldiff

import (
	"fmt"
	"strings"
)

// query makes a whole query.
func (g *generator) query() *Query {
	g.alias, g.depth, g.ctes = 0, 0, nil
	var with []CTE
	if g.chance(25) {
		for i := range 1 + g.r.IntN(2) {
			w := CTE{Name: fmt.Sprintf("w%d", i), Materialized: pick(g, []string{"", "", "MATERIALIZED", "NOT MATERIALIZED"})}
			if g.chance(25) {
				w.Query, w.Recursive, w.Materialized = g.recursion(w.Name), true, ""
			} else {
				w.Query = g.body(2)
			}
			with = append(with, w)
			g.ctes = append(g.ctes, cteScope{w.Name, w.Query.types(), g.large(w.Query)})
		}
	}
	q := g.one(0)
	if g.chance(20) {
		q = g.set(q)
	}
	if q.Set == nil && len(q.Select.Grouping) == 0 && g.chance(5) {
		q = g.distinctOn(q)
	} else {
		g.order(q)
	}
	q.With = with
	q.Prepared = g.chance(15)
	g.ctes = nil
	return q
}

// body makes one SELECT, or in FROM also a set operation; nested counts how
// deep it stands there.
func (g *generator) body(nested int) *Query {
	q := g.one(nested)
	if nested > 0 && q.Select.Grouping == "" && g.chance(12) {
		return g.set(q)
	}
	return q
}

func (g *generator) one(nested int) *Query {
	s := &Select{}
	q := &Query{Select: s, Limit: -1}
	if nested == 0 && g.chance(12) {
		g.plain(s)
		return q
	}
	from, sc := g.from(nested)
	s.From = from
	if g.chance(60) {
		s.Where = g.condition(sc, 2)
	}
	switch n := g.r.IntN(100); {
	case n < 30:
		g.grouped(s, sc)
	case n < 45 && nested < 2:
		g.windowed(s, sc)
	default:
		for range 1 + g.r.IntN(4) {
			s.Items = append(s.Items, g.item(sc, 3, nested))
		}
		s.Distinct = g.chance(12)
		if s.Distinct {
			g.noApprox(s, sc)
		}
	}
	return q
}

// plain is a SELECT whose every expression is evaluated for every row: errors
// must be the same.
func (g *generator) plain(s *Select) {
	t := pick(g, g.tables)
	a := g.nextAlias()
	s.From = &From{Table: t.Name, Alias: a}
	sc := g.tableScope(t, a)
	for range 1 + g.r.IntN(4) {
		s.Items = append(s.Items, g.item(sc, 3, 0))
	}
}

// item is an output expression; inexact ones only at the top, where nothing
// depends on them.
func (g *generator) item(sc *scope, depth, nested int) *Expr {
	t := g.columnType(sc)
	if nested == 0 && g.chance(10) {
		t = pick(g, []Type{Approx, Approx, Elapsed})
	}
	return g.expr(sc, t, g.r.IntN(depth+1))
}

func (g *generator) noApprox(s *Select, sc *scope) {
	for i, e := range s.Items {
		if e.Type.unordered() {
			s.Items[i] = g.expr(sc, Int, 1)
		}
	}
}

// grouped makes a query with GROUP BY, or of aggregates over all rows.
func (g *generator) grouped(s *Select, sc *scope) {
	out := &scope{inside: sc, outer: sc.outer}
	for range g.r.IntN(4) {
		key := pick(g, sc.columns).clone()
		if key.Type.unordered() {
			continue
		}
		if g.chance(20) && key.Type == Int {
			key = &Expr{Type: Int, Skein: "($1 % 3)", Args: []*Expr{key}}
		}
		s.Group = append(s.Group, key)
		out.columns = append(out.columns, key)
	}
	if len(s.Group) > 0 && g.chance(20) {
		s.Grouping = pick(g, []string{"ROLLUP", "CUBE", "GROUPING SETS"})
		if g.chance(50) {
			key := pick(g, s.Group).clone()
			s.Items = append(s.Items, &Expr{Type: Int, Skein: "GROUPING($1)", Duck: "CAST(GROUPING($1) AS INTEGER)", Args: []*Expr{key}, Whole: true})
		}
	}
	for _, key := range s.Group {
		if g.chance(70) {
			s.Items = append(s.Items, key.clone())
		}
	}
	for range 1 + g.r.IntN(3) {
		t := pick(g, []Type{Big, Big, Int, Double, Dec, Text, Date, Bool, Approx})
		if e := g.aggregate(sc, t); e != nil && g.chance(70) {
			s.Items = append(s.Items, e)
		} else {
			s.Items = append(s.Items, g.expr(out, t, 2))
		}
	}
	if g.chance(6) {
		arg := pick(g, sc.columns).clone()
		s.Items = append(s.Items, &Expr{Type: Listed, Skein: "array_agg($1 ORDER BY $1 NULLS FIRST)", Args: []*Expr{arg}, Whole: true})
		if arg.Type.unordered() || arg.Type == Span {
			s.Items = s.Items[:len(s.Items)-1]
		}
	}
	if s.Grouping == "" && g.chance(12) {
		g.groupedWindow(s, sc, out)
	}
	if g.chance(25) {
		s.Having = g.condition(out, 2)
	}
}

// groupedWindow adds a window call over the grouped rows.
func (g *generator) groupedWindow(s *Select, sc, out *scope) {
	count := &Expr{Type: Big, Skein: "count(*)", Whole: true}
	if agg := g.aggregate(sc, Int); agg != nil {
		count = agg
	}
	e := &Expr{Type: Big, Whole: true, Args: []*Expr{count}, Skein: "rank() OVER (ORDER BY $1)", Duck: "rank() OVER (ORDER BY $1 NULLS LAST)"}
	switch {
	case g.chance(40):
		e.Skein, e.Duck = "sum(count(*)) OVER (ORDER BY $1)", "CAST(sum(count(*)) OVER (ORDER BY $1 NULLS LAST) AS BIGINT)"
	case len(out.columns) > 0 && g.chance(50):
		e.Skein, e.Duck = "max($1) OVER (PARTITION BY $2)", ""
		e.Type, e.Args = Int, append(e.Args, pick(g, out.columns).clone())
		if count.Type != Int {
			e.Type = Big
		}
	}
	s.Items = append(s.Items, e)
}

// windowed makes a query of window calls.
func (g *generator) windowed(s *Select, sc *scope) {
	for range 1 + g.r.IntN(2) {
		s.Items = append(s.Items, g.expr(sc, g.columnType(sc), 1))
	}
	for range 1 + g.r.IntN(2) {
		s.Items = append(s.Items, g.window(sc))
	}
}

// window is a window call whose value does not depend on the order of ties.
func (g *generator) window(sc *scope) *Expr {
	plain := &scope{columns: sc.columns}
	arg := func(t Type) *Expr { return g.expr(plain, t, 1) }
	key := func() *Expr {
		for range 10 {
			if c := pick(g, sc.columns); !c.Type.unordered() {
				return c.clone()
			}
		}
		return arg(Int)
	}
	e := &Expr{Whole: true}
	over, overDuck := "", ""
	add := func(text string, arg *Expr) {
		e.Args = append(e.Args, arg)
		place := fmt.Sprintf(text, len(e.Args))
		over, overDuck = over+place, overDuck+place
	}
	total := sc.unique != nil && g.chance(60)
	kind := g.r.IntN(10)
	var call string
	switch {
	case total && kind < 5:
		t := g.columnType(sc)
		e.Type = t
		switch kind {
		case 0:
			e.Type, call = Big, "row_number()"
		case 1:
			call = "lag($1)"
			e.Args = []*Expr{arg(t)}
		case 2:
			call = "lead($1, 2, $2)"
			if t == Dec { // of one scale: DuckDB rounds the default to that of the argument
				call = "lead(CAST($1 AS DECIMAL(18,4)), 2, $2)"
			}
			e.Args = []*Expr{arg(t), g.leaf(t)}
		case 3:
			call = "first_value($1)"
			e.Args = []*Expr{arg(t)}
		default:
			call = pick(g, []string{"last_value($1)", "nth_value($1, 2)"})
			e.Args = []*Expr{arg(t)}
		}
	case kind < 6:
		e.Type, call = Big, pick(g, []string{"rank()", "dense_rank()", "count(*)"})
	case kind == 6:
		e.Type, call = Approx, pick(g, []string{"percent_rank()", "cume_dist()"})
	case kind == 7:
		e.Type = pick(g, []Type{Int, Date, Text, Dec, Stamp})
		e.Args, call = []*Expr{arg(e.Type)}, pick(g, []string{"min($1)", "max($1)"})
	default:
		e.Type = Big
		e.Args, call = []*Expr{arg(pick(g, []Type{Small, Int}))}, pick(g, []string{"sum($1)", "count($1)"})
	}
	if g.chance(60) {
		add("PARTITION BY $%d ", key())
	}
	keys, numeric := g.windowOrder(sc, total, key, add, &over, &overDuck)
	framed := call[:3] != "row" && call[:3] != "lag" && call[:3] != "lea" && call[:3] != "ran" && call[:3] != "den" && call[:3] != "per" && call[:3] != "cum"
	if framed && g.chance(55) {
		frame := g.frame(keys, total, numeric)
		over, overDuck = over+frame, overDuck+frame
	}
	e.Skein, e.Duck = call+" OVER ("+over+")", call+" OVER ("+overDuck+")"
	if call == "sum($1)" {
		e.Duck = "CAST(" + e.Duck + " AS BIGINT)"
	}
	return e
}

// windowOrder adds ORDER BY, total when asked, and reports how many keys it has and whether it is one
// integer, as RANGE with an offset wants.
func (g *generator) windowOrder(sc *scope, total bool, key func() *Expr, add func(string, *Expr), over, overDuck *string) (count int, numeric bool) {
	var keys []*Expr
	if g.chance(70) {
		keys = append(keys, key())
	} else if ints := sc.of(Int); len(ints) > 0 {
		keys = append(keys, pick(g, ints).clone())
	}
	if total {
		keys = append(keys, cloneAll(sc.unique)...)
	}
	for i, k := range keys {
		add([]string{"ORDER BY $%d", ", $%d"}[min(i, 1)], k)
		desc, nulls := g.chance(35), pick(g, []string{"", "", "FIRST", "LAST"})
		*over += direction(desc, nulls, Skein)
		*overDuck += direction(desc, nulls, Duck)
	}
	*over, *overDuck = *over+" ", *overDuck+" "
	return len(keys), len(keys) == 1 && keys[0].Type == Int && !keys[0].Whole
}

// frame draws a frame; ROWS only where the order has no ties.
func (g *generator) frame(keys int, total, numeric bool) string {
	var modes []string
	if keys > 0 {
		modes = append(modes, "GROUPS", "GROUPS")
	}
	if total {
		modes = append(modes, "ROWS", "ROWS")
	}
	if numeric {
		modes = append(modes, "RANGE")
	}
	if len(modes) == 0 {
		return ""
	}
	mode := pick(g, modes)
	from := pick(g, []string{"UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING"})
	to := pick(g, []string{"UNBOUNDED FOLLOWING", "3 FOLLOWING", "CURRENT ROW"})
	if from == "1 FOLLOWING" && to == "CURRENT ROW" {
		to = "2 FOLLOWING"
	}
	exclude := ""
	if g.chance(20) {
		exclude = pick(g, []string{" EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"})
		if exclude == " EXCLUDE CURRENT ROW" && !total {
			exclude = " EXCLUDE GROUP"
		}
	}
	return mode + " BETWEEN " + from + " AND " + to + exclude
}

// set combines a query with others of the same types.
func (g *generator) set(q *Query) *Query {
	for _, t := range q.types() {
		if t.unordered() {
			return q
		}
	}
	right := &Query{Select: &Select{}, Limit: -1}
	from, sc := g.from(1)
	right.Select.From = from
	for _, t := range q.types() {
		right.Select.Items = append(right.Select.Items, g.expr(sc, t, 1))
	}
	if g.chance(50) {
		right.Select.Where = g.condition(sc, 1)
	}
	op := pick(g, []string{"UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"})
	return &Query{Set: &SetOp{op, q, right}, Limit: -1}
}

// distinctOn keeps one row per group of a query's rows, the first in an order of
// all columns.
func (g *generator) distinctOn(q *Query) *Query {
	types := q.types()
	s := &Select{From: &From{Query: q, Alias: "d"}}
	for i, t := range types {
		if t.unordered() {
			g.order(q)
			return q
		}
		s.Items = append(s.Items, &Expr{Type: t, Skein: fmt.Sprintf("d.c%d", i+1)})
	}
	s.DistinctOn = []int{1}
	out := &Query{Select: s, Limit: -1}
	for i := range types {
		out.Order = append(out.Order, Order{Column: i + 1, Desc: g.chance(40), Nulls: pick(g, []string{"", "FIRST", "LAST"})})
	}
	return out
}

// order sorts by all columns, with a LIMIT perhaps, or by some.
func (g *generator) order(q *Query) {
	types := q.types()
	var columns []int
	for i, t := range types {
		if !t.unordered() {
			columns = append(columns, i+1)
		}
	}
	g.r.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
	add := func(c int) {
		q.Order = append(q.Order, Order{Column: c, Desc: g.chance(40), Nulls: pick(g, []string{"", "", "FIRST", "LAST"})})
	}
	switch {
	case g.chance(45):
		for _, c := range columns {
			add(c)
		}
		if len(columns) == len(types) && g.chance(50) {
			q.Limit = pick(g, []int{0, 1, 3, 10, 100})
			if g.chance(40) {
				q.Offset = 1 + g.r.IntN(8)
			}
		}
	case g.chance(30) && len(columns) > 0:
		add(columns[0])
		if g.chance(50) {
			q.Limit, q.Ties = 1+g.r.IntN(8), true
		}
	}
}

func (g *generator) nextAlias() string {
	g.alias++
	return fmt.Sprintf("x%d", g.alias)
}

func (g *generator) tableScope(t *Table, alias string) *scope {
	sc := &scope{}
	for _, c := range t.Columns {
		e := &Expr{Type: c.Type, Skein: alias + "." + c.Name}
		if c.SQL == "REAL" {
			e.Skein = "CAST(" + e.Skein + " AS FLOAT8)"
		}
		sc.columns = append(sc.columns, e)
	}
	sc.unique = []*Expr{sc.columns[0]}
	return sc
}

// source makes one entry of FROM that is no join, and reports whether it may be
// large.
func (g *generator) source(nested int) (*From, *scope, bool) {
	a := g.nextAlias()
	named := func(types []Type) *scope {
		sc := &scope{}
		for i, t := range types {
			sc.columns = append(sc.columns, &Expr{Type: t, Skein: fmt.Sprintf("%s.c%d", a, i+1)})
		}
		return sc
	}
	switch {
	case len(g.ctes) > 0 && g.chance(50):
		c := pick(g, g.ctes)
		return &From{Table: c.name, Alias: a}, named(c.types), c.large
	case nested < 2 && g.depth == 0 && g.chance(15):
		q := g.body(nested + 2)
		if g.chance(25) {
			g.order(q)
		}
		return &From{Query: q, Alias: a}, named(q.types()), g.large(q)
	}
	t := pick(g, g.tables)
	return &From{Table: t.Name, Alias: a}, g.tableScope(t, a), t.Large
}

// from makes a FROM clause of up to three sources.
func (g *generator) from(nested int) (*From, *scope) {
	f, sc, large := g.source(nested)
	joins := 0
	switch n := g.r.IntN(10); {
	case large || nested > 1:
		joins = n / 8
	case n < 4:
	case n < 8:
		joins = 1
	default:
		joins = 2
	}
	for range joins {
		var big bool
		if f, sc, big = g.join(f, sc, large, nested); big {
			large = true
			break
		}
	}
	return f, sc
}

// join adds one source. Joins with large inputs are by equality.
func (g *generator) join(left *From, ls *scope, large bool, nested int) (*From, *scope, bool) {
	if !large && nested < 2 && g.depth == 0 && g.chance(8) {
		if f, sc := g.lateral(left, ls); f != nil {
			return f, sc, true // no more joins, which it could be in the way of
		}
	}
	right, rs, big := g.source(nested + 1)
	both := &scope{}
	for _, c := range ls.columns {
		if strings.Contains(c.Skein, ".") { // a merged column might become ambiguous
			both.columns = append(both.columns, c)
		}
	}
	ls = &scope{columns: both.columns, unique: ls.unique}
	both.columns = append(append([]*Expr(nil), ls.columns...), rs.columns...)
	if ls.unique != nil && rs.unique != nil {
		both.unique = append(append([]*Expr(nil), ls.unique...), rs.unique...)
	}
	f := &From{Left: left, Right: right}
	f.Join = pick(g, []string{"JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"})
	tables := left.Table != "" && right.Table != "" && left.Table[0] == 't' && right.Table[0] == 't'
	switch {
	case tables && f.Join != "CROSS JOIN" && g.chance(20):
		f.Using = pick(g, []string{"k", "id"})
		both.columns = append(both.columns, &Expr{Type: Int, Skein: f.Using})
		if large || big {
			f.Using = "id"
			both.columns[len(both.columns)-1].Skein = "id"
		}
		return f, both, large || big
	case large || big:
		if f.Join == "CROSS JOIN" {
			f.Join = "JOIN"
		}
		on := equality(g, ls, rs)
		if on == nil || !strings.HasSuffix(on.Args[0].Skein, ".id") && !strings.HasSuffix(on.Args[1].Skein, ".id") {
			return left, ls, large
		}
		f.On = on
	case f.Join != "CROSS JOIN":
		f.On = g.joinCondition(ls, rs, both)
	}
	return f, both, large || big
}

// joinCondition is an equality, with more conditions or not, or any condition.
func (g *generator) joinCondition(ls, rs, both *scope) *Expr {
	if on := equality(g, ls, rs); on != nil && g.chance(75) {
		if g.chance(30) {
			g.depth += 2 // without subqueries, which stand in inner joins only
			on = conjunction(on, g.condition(both, 1))
			g.depth -= 2
		}
		return on
	}
	g.depth += 2
	defer func() { g.depth -= 2 }()
	return g.condition(both, 2)
}

func equality(g *generator, ls, rs *scope) *Expr {
	for range 10 {
		l := pick(g, ls.columns)
		if r := rs.of(l.Type); len(r) > 0 && !l.Type.unordered() {
			return &Expr{Type: Bool, Skein: "($1 = $2)", Args: []*Expr{l.clone(), pick(g, r).clone()}}
		}
	}
	return nil
}

// large reports that a query reads a large table, or joins much.
func (g *generator) large(q *Query) bool {
	used := make(map[string]bool)
	q.tables(used)
	for _, t := range g.tables {
		if used[t.Name] && t.Large {
			return true
		}
	}
	for _, c := range g.ctes {
		if used[c.name] && c.large {
			return true
		}
	}
	return len(used) > 2
}
