package bind

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// Subqueries become joins. Where a WHERE or HAVING condition is a subquery, a
// semi or anti join filters; elsewhere a join adds a column with the value: the
// mark of a mark join for EXISTS and IN, the output of a left or single join for
// a subquery used as a value. Columns that are added stand behind the others,
// so that expressions over the node keep their meaning.

// filter keeps the rows of a node that satisfy a condition, which may hold
// subqueries.
func (b *binder) filter(node planner.Node, cond planner.Expr) (planner.Node, error) {
	var plain []planner.Expr
	var hard []planner.Expr
	for _, c := range conjuncts(cond) {
		if hasSubquery(c) {
			hard = append(hard, c)
		} else {
			plain = append(plain, c)
		}
	}
	if len(plain) > 0 {
		folded, err := b.fold(b.connect("and", plain, b.where(cond)))
		if err != nil {
			return nil, err
		}
		node = &planner.Filter{Input: node, Predicate: folded}
	}
	for _, c := range hard {
		var err error
		if node, err = b.filterBySubquery(node, c); err != nil {
			return nil, err
		}
	}
	return node, nil
}

// filterBySubquery filters by one condition with subqueries.
func (b *binder) filterBySubquery(node planner.Node, cond planner.Expr) (planner.Node, error) {
	ref, negated := cond, false
	if not, ok := cond.(*planner.Call); ok && not.Func == "not" {
		ref, negated = not.Args[0], true
	}
	if s, ok := ref.(*subqueryRef); ok && s.kind != scalarSubquery && !argsHaveSubquery(s) {
		if out, err := b.filterJoin(node, s, negated); out != nil || err != nil {
			return out, err
		}
	}
	node, value, err := b.attach(node, cond)
	if err != nil {
		return nil, err
	}
	folded, err := b.fold(value)
	if err != nil {
		return nil, err
	}
	return &planner.Filter{Input: node, Predicate: folded}, nil
}

func argsHaveSubquery(s *subqueryRef) bool {
	for _, a := range s.args {
		if hasSubquery(a) {
			return true
		}
	}
	return s.cond != nil && hasSubquery(s.cond)
}

// filterJoin is the semi or anti join for [NOT] EXISTS and [NOT] IN, nil where
// none has the meaning.
func (b *binder) filterJoin(node planner.Node, s *subqueryRef, negated bool) (planner.Node, error) {
	if negated && s.kind == anySubquery && s.cond.Nullable() {
		return nil, nil // NULL and false differ
	}
	width := node.Schema().NumFields()
	p, err := b.pull(s.query.node)
	if err != nil && sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		return nil, err
	}
	if err != nil {
		if node, p, err = b.byDomain(node, s); err != nil {
			return nil, err
		}
	}
	if p.global {
		return nil, nil
	}
	conds, err := b.pairConditions(p, s, width)
	if err != nil {
		return nil, err
	}
	kind := planner.SemiJoin
	if negated {
		kind = planner.AntiJoin
	}
	return b.joinOf(kind, node, p.node, conds), nil
}

// pairConditions are the conditions under which a row of the subquery counts,
// over the columns of the node around (the first width) and of p's node.
func (b *binder) pairConditions(p *pulled, s *subqueryRef, width int) ([]planner.Expr, error) {
	conds := make([]planner.Expr, 0, len(p.conds)+1)
	for _, c := range p.conds {
		conds = append(conds, s.overPair(c, width))
	}
	if s.kind == anySubquery {
		conds = append(conds, conjuncts(s.comparison(p, width))...)
	}
	return conds, nil
}

// comparison is the condition of IN over the pair.
func (s *subqueryRef) comparison(p *pulled, width int) planner.Expr {
	return replaceLeaves(s.cond, func(e planner.Expr) planner.Expr {
		if i, ok := e.(*innerRef); ok {
			return s.overPair(p.outputs[i.index], width)
		}
		return nil
	})
}

// overPair restates an expression over the subquery's node and its arguments
// over the pair of the node around and the subquery's.
func (s *subqueryRef) overPair(e planner.Expr, width int) planner.Expr {
	return replaceLeaves(e, func(x planner.Expr) planner.Expr {
		switch x := x.(type) {
		case *outerRef:
			return s.argument(x)
		case *planner.Column:
			return moved(x, width)
		}
		return nil
	})
}

// attach computes the subqueries of an expression by joins and returns the node
// with their columns and the expression over it.
func (b *binder) attach(node planner.Node, e planner.Expr) (planner.Node, planner.Expr, error) {
	if !hasSubquery(e) {
		return node, e, nil
	}
	var walk func(planner.Expr) (planner.Expr, error)
	walk = func(x planner.Expr) (planner.Expr, error) {
		built, err := rebuild(x, walk)
		if err != nil {
			return nil, err
		}
		b.at(built, b.where(x))
		s, ok := built.(*subqueryRef)
		if !ok {
			return built, nil
		}
		var value planner.Expr
		if node, value, err = b.value(node, s); err != nil {
			return nil, b.place(err, b.where(x))
		}
		return value, nil
	}
	out, err := walk(e)
	return node, out, err
}

// value joins a subquery to a node and returns its value over the result.
func (b *binder) value(node planner.Node, s *subqueryRef) (planner.Node, planner.Expr, error) {
	node, p, err := b.unnest(node, s)
	if err != nil {
		return nil, nil, err
	}
	if p.global {
		return b.globalValue(node, s, p)
	}
	if s.kind == scalarSubquery {
		return b.scalarValue(node, s, p)
	}
	return b.markValue(node, s, p)
}

// markValue adds the marks for EXISTS and IN.
func (b *binder) markValue(node planner.Node, s *subqueryRef, p *pulled) (planner.Node, planner.Expr, error) {
	width := node.Schema().NumFields()
	var chosen []planner.Expr
	for _, c := range p.conds {
		chosen = append(chosen, s.overPair(c, width))
	}
	if s.kind == existsSubquery {
		node = b.markJoin(node, p.node, chosen, nil)
		return node, isTrue(planner.ColumnOf(node.Schema(), width)), nil
	}
	cond := s.comparison(p, width)
	if compared, ok := allEqualities(cond, width); ok {
		node = b.markJoin(node, p.node, chosen, compared)
		return node, planner.ColumnOf(node.Schema(), width), nil
	}
	found := b.markJoin(node, p.node, append(append([]planner.Expr(nil), chosen...), cond), nil)
	value := isTrue(planner.ColumnOf(found.Schema(), width))
	if !cond.Nullable() {
		return found, value, nil
	}
	// A comparison that is NULL for some row leaves the answer open.
	open := &planner.Call{Func: "is null", DataType: catalog.Boolean, Args: []planner.Expr{cond}}
	again := mapColumns(open, func(c *planner.Column) planner.Expr {
		if c.Index >= width {
			return moved(c, 1)
		}
		return c
	})
	shifted := make([]planner.Expr, len(chosen))
	for i, c := range chosen {
		shifted[i] = mapColumns(c, func(c *planner.Column) planner.Expr {
			if c.Index >= width {
				return moved(c, 1)
			}
			return c
		})
	}
	both := b.markJoin(found, p.node, append(shifted, again), nil)
	return both, &planner.Case{
		Whens: []planner.When{
			{Cond: value, Then: planner.BoolLiteral(true)},
			{Cond: isTrue(planner.ColumnOf(both.Schema(), width+1)), Then: &planner.Literal{DataType: catalog.Boolean}},
		},
		Else: planner.BoolLiteral(false), DataType: catalog.Boolean,
	}, nil
}

func isTrue(e planner.Expr) planner.Expr {
	return &planner.Call{Func: "is true", Args: []planner.Expr{e}, DataType: catalog.Boolean}
}

// allEqualities splits the comparison of IN into equalities between the sides,
// if it consists of nothing else.
func allEqualities(cond planner.Expr, width int) ([]planner.Expr, bool) {
	parts := conjuncts(cond)
	for _, c := range parts {
		if _, _, ok := splitEquality(c, width); !ok {
			return nil, false
		}
	}
	return parts, true
}

// scalarValue joins a subquery used as a value: NULL where it has no row, an
// error where it has several.
func (b *binder) scalarValue(node planner.Node, s *subqueryRef, p *pulled) (planner.Node, planner.Expr, error) {
	width := node.Schema().NumFields()
	value := p.outputs[0]
	right := p.node
	at := -1
	if c, ok := value.(*planner.Column); ok {
		at = c.Index
	} else if !hasOuter(value) {
		right, at = withColumn(right, value)
	}
	marker := -1
	if at < 0 {
		right, marker = withColumn(right, planner.BoolLiteral(true))
	}
	var conds []planner.Expr
	for _, c := range p.conds {
		conds = append(conds, s.overPair(c, width))
	}
	kind := planner.SingleJoin
	switch {
	case len(conds) == 0 && b.alwaysOneRow(p.node):
		kind = planner.CrossJoin
	case p.unique:
		kind = planner.LeftJoin
	}
	joined := b.joinOf(kind, node, right, conds)
	schema := joined.Schema()
	if at >= 0 {
		return joined, planner.ColumnOf(schema, width+at), nil
	}
	return joined, &planner.Case{
		Whens: []planner.When{{
			Cond: &planner.Call{Func: "is not null", Args: []planner.Expr{planner.ColumnOf(schema, width+marker)}, DataType: catalog.Boolean},
			Then: s.overPair(value, width),
		}},
		Else: &planner.Literal{DataType: s.dt}, DataType: s.dt,
	}, nil
}

// alwaysOneRow reports whether a node has exactly one row.
func (b *binder) alwaysOneRow(n planner.Node) bool {
	switch n := n.(type) {
	case *planner.Aggregate:
		return len(n.GroupBy) == 0
	case *planner.Project:
		return b.alwaysOneRow(n.Input)
	case *planner.CommonScan:
		return b.alwaysOneRow(b.commonInput(n))
	case *planner.Values:
		return len(n.Rows) == 1
	}
	return false
}

// globalValue joins a correlated aggregate without GROUP BY, which has been
// grouped by what it correlates on. Where no group is found its counts are 0
// and its other aggregates NULL.
func (b *binder) globalValue(node planner.Node, s *subqueryRef, p *pulled) (planner.Node, planner.Expr, error) {
	width := node.Schema().NumFields()
	var conds []planner.Expr
	for _, c := range p.conds {
		conds = append(conds, s.overPair(c, width))
	}
	joined := b.joinOf(planner.LeftJoin, node, p.node, conds)
	schema := joined.Schema()
	over := func(e planner.Expr) planner.Expr {
		return replaceLeaves(e, func(x planner.Expr) planner.Expr {
			switch x := x.(type) {
			case *outerRef:
				return s.argument(x)
			case *planner.Column:
				c := planner.ColumnOf(schema, width+x.Index)
				if !p.counts[x.Index] {
					return c
				}
				return countOrZero(c)
			}
			return nil
		})
	}
	var value planner.Expr
	var missing planner.Expr = planner.BoolLiteral(false)
	switch s.kind {
	case existsSubquery:
		value = planner.BoolLiteral(true)
	case anySubquery:
		value = replaceLeaves(s.cond, func(e planner.Expr) planner.Expr {
			if i, ok := e.(*innerRef); ok {
				return over(p.outputs[i.index])
			}
			return nil
		})
	default:
		value, missing = over(p.outputs[0]), &planner.Literal{DataType: s.dt}
	}
	if p.having == nil {
		return joined, value, nil
	}
	return joined, &planner.Case{
		Whens: []planner.When{{Cond: over(p.having), Then: value}},
		Else:  missing, DataType: value.Type(),
	}, nil
}

// withColumn adds a computed column to a node and returns where it is.
func withColumn(n planner.Node, e planner.Expr) (planner.Node, int) {
	p := identity(n)
	p.Exprs = append(p.Exprs, e)
	p.Names = append(p.Names, "value")
	return p, len(p.Exprs) - 1
}

// identity is a projection of all columns as they are.
func identity(n planner.Node) *planner.Project {
	schema := n.Schema()
	p := &planner.Project{Input: n}
	for i, f := range schema.Fields() {
		p.Exprs = append(p.Exprs, planner.ColumnOf(schema, i))
		p.Names = append(p.Names, f.Name)
	}
	return p
}

// markJoin joins on a condition that chooses the right rows and one, of
// equalities, that compares them. Choosing is a matter of true or not, so its
// equalities are made safe of NULLs.
func (b *binder) markJoin(left, right planner.Node, chosen, compared []planner.Expr) planner.Node {
	l, r := newJoinSide(nodeSource(left)), newJoinSide(nodeSource(right))
	join := &planner.Join{Kind: planner.MarkJoin}
	var rest []planner.Expr
	for _, c := range compared {
		x, y, _ := splitEquality(c, l.width)
		join.On = append(join.On, planner.JoinKey{Left: l.key(x), Right: r.key(shiftColumns(y, -l.width))})
	}
	var present []planner.Expr
	for _, c := range chosen {
		x, y, safe, ok := splitKey(c, l.width)
		if !ok {
			rest = append(rest, c)
			continue
		}
		y = shiftColumns(y, -l.width)
		join.On = append(join.On, planner.JoinKey{Left: l.key(x), Right: r.key(y), NullSafe: true})
		if y.Nullable() && !safe {
			present = append(present, &planner.Call{Func: "is not null", Args: []planner.Expr{y}, DataType: catalog.Boolean})
		}
	}
	if len(present) > 0 {
		r.node = &planner.Filter{Input: r.node, Predicate: b.connect("and", present, -1)}
	}
	return b.finishJoin(join, l, r, rest)
}

func nodeSource(n planner.Node) *source {
	return &source{node: n, width: n.Schema().NumFields()}
}

// joinOf joins two nodes of any kind on conditions over the pair. The output is
// what the kind says of the two nodes' own columns.
func (b *binder) joinOf(kind planner.JoinKind, left, right planner.Node, conds []planner.Expr) planner.Node {
	l, r := newJoinSide(nodeSource(left)), newJoinSide(nodeSource(right))
	if kind == planner.CrossJoin {
		kind = planner.InnerJoin // finishJoin makes it a cross join if there are no conditions
	}
	join := &planner.Join{Kind: kind}
	var rest []planner.Expr
	for _, c := range withoutTrue(conds) {
		x, y, safe, ok := splitKey(c, l.width)
		if !ok {
			rest = append(rest, c)
			continue
		}
		join.On = append(join.On, planner.JoinKey{Left: l.key(x), Right: r.key(shiftColumns(y, -l.width)), NullSafe: safe})
	}
	return b.finishJoin(join, l, r, rest)
}

// finishJoin gives a join its sides and residual, and projects computed keys
// away.
func (b *binder) finishJoin(join *planner.Join, l, r *joinSide, rest []planner.Expr) planner.Node {
	join.Left, join.Right = l.build(), r.build()
	extra := len(l.exprs) - l.width
	if len(rest) > 0 {
		residual := b.connect("and", rest, -1)
		join.Residual = mapColumns(residual, func(c *planner.Column) planner.Expr {
			if c.Index >= l.width {
				return moved(c, extra)
			}
			return c
		})
	}
	if join.Kind == planner.InnerJoin && len(join.On) == 0 && len(rest) == 0 {
		join.Kind = planner.CrossJoin
	}
	if extra == 0 && len(r.exprs) == r.width {
		return join
	}
	return dropKeys(join, l, r)
}

// fieldColumn is the column at i, of which the field is known.
func fieldColumn(i int, f arrow.Field) *planner.Column {
	return &planner.Column{Index: i, Name: f.Name, DataType: f.Type, Null: f.Nullable}
}
