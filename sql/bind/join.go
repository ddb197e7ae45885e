package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// cross joins two sources without a condition.
func (b *binder) cross(left, right *source) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil {
		return nil, err
	}
	node := &planner.Join{Kind: planner.CrossJoin, Left: left.node, Right: right.node}
	return &source{node, s, left.width + right.width}, nil
}

// join binds a JOIN of any spelling.
func (b *binder) join(j *pgquery.JoinExpr) (*source, error) {
	if err := b.onlyFields(j, "jointype", "is_natural", "larg", "rarg", "using_clause", "quals"); err != nil {
		return nil, err
	}
	switch j.Jointype {
	case pgquery.JoinType_JOIN_INNER:
	case pgquery.JoinType_JOIN_LEFT:
		return nil, b.unsupported(fromLocation(j.Rarg), "LEFT JOIN")
	case pgquery.JoinType_JOIN_RIGHT:
		return nil, b.unsupported(fromLocation(j.Rarg), "RIGHT JOIN")
	default:
		return nil, b.unsupported(fromLocation(j.Rarg), "FULL JOIN")
	}
	left, err := b.fromItem(j.Larg)
	if err != nil {
		return nil, err
	}
	right, err := b.fromItem(j.Rarg)
	if err != nil {
		return nil, err
	}
	names := stringsOf(j.UsingClause)
	switch {
	case j.IsNatural:
		for _, c := range left.scope.columns {
			if len(find(right.scope.columns, c.name)) > 0 {
				names = append(names, c.name)
			}
		}
		return b.joinUsing(left, right, names, fromLocation(j.Rarg))
	case len(names) > 0:
		return b.joinUsing(left, right, names, fromLocation(j.Rarg))
	case j.Quals != nil:
		return b.joinOn(left, right, j.Quals)
	}
	return b.cross(left, right)
}

// fromLocation is where a FROM entry starts, as well as it is known.
func fromLocation(n *pgquery.Node) int32 {
	if j := n.GetJoinExpr(); j != nil {
		return fromLocation(j.Larg)
	}
	return locationOf(n)
}

func (b *binder) joinOn(left, right *source, quals *pgquery.Node) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil {
		return nil, err
	}
	cond, err := b.expr(quals, &exprContext{scope: s, clause: "JOIN conditions"})
	if err != nil {
		return nil, err
	}
	if cond, err = b.toBoolean(cond, "JOIN/ON"); err != nil {
		return nil, err
	}
	return &source{b.equijoin(left, right, cond), s, left.width + right.width}, nil
}

// joinUsing joins on the equality of like-named columns, which stand first
// and once in the result.
func (b *binder) joinUsing(left, right *source, names []string, location int32) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil || len(names) == 0 {
		if err != nil {
			return nil, err
		}
		return b.cross(left, right)
	}
	var conds []planner.Expr
	var merged []scopeColumn
	used := make(map[string]bool, len(names))
	for _, name := range names {
		if used[name] {
			return nil, b.errorAt(sqlstate.DuplicateColumn, location, "column %q is twice in USING", name)
		}
		used[name] = true
		l, err := b.usingColumn(left.scope.columns, name, "left", location)
		if err != nil {
			return nil, err
		}
		r, err := b.usingColumn(right.scope.columns, name, "right", location)
		if err != nil {
			return nil, err
		}
		r.index += left.width
		equal, err := b.compare("=", b.column(l, location), b.column(r, location), location)
		if err != nil {
			return nil, err
		}
		conds = append(conds, equal)
		merged = append(merged, l)
	}
	for _, c := range s.columns {
		if !used[c.name] {
			merged = append(merged, c)
		}
	}
	s.columns = merged
	node := b.equijoin(left, right, b.connect("and", conds, location))
	return &source{node, s, left.width + right.width}, nil
}

func (b *binder) usingColumn(columns []scopeColumn, name, side string, location int32) (scopeColumn, error) {
	switch matches := find(columns, name); len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return scopeColumn{}, b.errorAt(sqlstate.UndefinedColumn, location, "column %q of USING does not exist in the %s table", name, side)
	}
	return scopeColumn{}, b.errorAt(sqlstate.AmbiguousColumn, location, "column %q of USING is ambiguous in the %s table", name, side)
}

// joinSide is an input of a join under construction: its columns, then the
// computed join keys.
type joinSide struct {
	node  planner.Node
	exprs []planner.Expr
	names []string
	width int
}

func newJoinSide(s *source) *joinSide {
	side := &joinSide{node: s.node, width: s.width}
	schema := s.node.Schema()
	for i, f := range schema.Fields() {
		side.exprs = append(side.exprs, planner.ColumnOf(schema, i))
		side.names = append(side.names, f.Name)
	}
	return side
}

// key returns the ordinal of an expression over the side's own columns.
func (s *joinSide) key(e planner.Expr) int {
	if c, ok := e.(*planner.Column); ok {
		return c.Index
	}
	for i := s.width; i < len(s.exprs); i++ {
		if equal(s.exprs[i], e) {
			return i
		}
	}
	s.exprs = append(s.exprs, e)
	s.names = append(s.names, "join_key")
	return len(s.exprs) - 1
}

func (s *joinSide) build() planner.Node {
	if len(s.exprs) == s.width {
		return s.node
	}
	return &planner.Project{Input: s.node, Exprs: s.exprs, Names: s.names}
}

// equijoin is the inner join of two sources on a condition over both: its
// equalities between the sides become keys, computed below the join where they are
// not plain columns, and the rest is the residual.
func (b *binder) equijoin(left, right *source, cond planner.Expr) planner.Node {
	l, r := newJoinSide(left), newJoinSide(right)
	var keys []planner.JoinKey
	var rest []planner.Expr
	for _, c := range conjuncts(cond) {
		x, y, ok := splitEquality(c, left.width)
		if !ok {
			rest = append(rest, c)
			continue
		}
		keys = append(keys, planner.JoinKey{Left: l.key(x), Right: r.key(shiftColumns(y, -left.width))})
	}
	rest = withoutTrue(rest)
	join := &planner.Join{Kind: planner.InnerJoin, Left: l.build(), Right: r.build(), On: keys}
	if len(keys) == 0 && len(rest) == 0 {
		join.Kind = planner.CrossJoin
		return join
	}
	extra := len(l.exprs) - l.width
	if len(rest) > 0 {
		residual := b.connect("and", rest, b.where(cond))
		join.Residual = mapColumns(residual, func(c *planner.Column) planner.Expr {
			if c.Index >= left.width {
				return moved(c, extra)
			}
			return c
		})
	}
	if extra == 0 && len(r.exprs) == r.width {
		return join
	}
	return dropKeys(join, l, r)
}

// dropKeys projects a join back to the columns of its two sources.
func dropKeys(join *planner.Join, l, r *joinSide) planner.Node {
	p := &planner.Project{Input: join}
	schema := join.Schema()
	for i := range l.width + r.width {
		at := i
		if i >= l.width {
			at += len(l.exprs) - l.width
		}
		p.Exprs = append(p.Exprs, planner.ColumnOf(schema, at))
		p.Names = append(p.Names, schema.Field(at).Name)
	}
	return p
}

// splitEquality recognises x = y with x over the left and y over the right
// columns, in either order.
func splitEquality(e planner.Expr, width int) (x, y planner.Expr, ok bool) {
	call, isCall := e.(*planner.Call)
	if !isCall || call.Func != "=" || len(call.Args) != 2 {
		return nil, nil, false
	}
	x, y = call.Args[0], call.Args[1]
	if !arrow.TypeEqual(x.Type(), y.Type()) {
		return nil, nil, false
	}
	if onSide(y, 0, width) {
		x, y = y, x
	}
	return x, y, onSide(x, 0, width) && onSide(y, width, 1<<31)
}

// onSide reports whether an expression reads columns, all in [low, high).
func onSide(e planner.Expr, low, high int) bool {
	some, all := false, true
	mapColumns(e, func(c *planner.Column) planner.Expr {
		some = true
		all = all && c.Index >= low && c.Index < high
		return c
	})
	return some && all
}

// conjuncts splits a condition at its ANDs.
func conjuncts(e planner.Expr) []planner.Expr {
	call, ok := e.(*planner.Call)
	if !ok || call.Func != "and" {
		return []planner.Expr{e}
	}
	var out []planner.Expr
	for _, a := range call.Args {
		out = append(out, conjuncts(a)...)
	}
	return out
}

func withoutTrue(conds []planner.Expr) []planner.Expr {
	var out []planner.Expr
	for _, c := range conds {
		if l, ok := c.(*planner.Literal); ok && l.Value == true {
			continue
		}
		out = append(out, c)
	}
	return out
}
