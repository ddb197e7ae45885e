package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxRegionLeaves bounds how many inputs are ordered together, at most the
// bits of a leafSet; ordering takes time cubic in it.
const maxRegionLeaves = 32

// joinRegion is a tree of inner and cross joins taken apart: its inputs
// ("leaves") and every condition on them, over global columns, which number
// the leaves' outputs one after another.
type joinRegion struct {
	leaves  []*leaf
	columns []globalColumn
	conds   []Expr // over global columns
	classes *columnClasses
}

// leaf is one input of a region.
type leaf struct {
	node  Node
	first int    // global column of its first output
	width int    // outputs of the original node
	conds []Expr // over the leaf's own columns
	extra []Expr // computed join keys, over the leaf's own columns
	est   estimate
}

// globalColumn is column local of leaf leaf.
type globalColumn struct {
	leaf  int
	local int
	field arrow.Field
}

// throughJoins pushes conditions into a tree of joins and orders it.
func (p *pushdown) throughJoins(n *Join, conds []Expr) (Node, error) {
	r := &joinRegion{}
	out := r.collect(n, maxRegionLeaves)
	for _, c := range conds {
		r.conds = append(r.conds, substitute(c, out))
	}
	r.conds = simplify(r.conds)
	if neverTrue(r.conds) {
		return emptyOf(n), nil
	}
	top := r.distributeConditions()
	if err := r.planLeaves(p); err != nil {
		return nil, err
	}
	joined := r.order(top)
	exprs := make([]Expr, len(out))
	position := joined.positions(len(r.columns))
	for i, e := range out {
		exprs[i] = remap(e, position)
	}
	var above []Expr
	for _, c := range joined.pending {
		above = append(above, remap(c, position))
	}
	fields := outputFields(n)
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Name
	}
	return newProject(filterBy(joined.node, above), exprs, names), nil
}

// collect takes the joins below n apart into at most budget leaves and returns
// n's outputs as expressions over global columns.
func (r *joinRegion) collect(n Node, budget int) []Expr {
	if budget < 2 {
		return r.addLeaf(n)
	}
	switch n := n.(type) {
	case *Join:
		if !regional(n) {
			break
		}
		ours, theirs := countLeaves(n.Left), countLeaves(n.Right)
		ours = min(ours, budget-min(theirs, budget/2))
		left := r.collect(n.Left, ours)
		right := r.collect(n.Right, min(theirs, budget-ours))
		for _, k := range n.On {
			r.conds = append(r.conds, Equal(left[k.Left], right[k.Right]))
		}
		out := append(slices.Clip(left), right...)
		for _, c := range conjuncts(n.Residual) {
			r.conds = append(r.conds, substitute(c, out))
		}
		return out
	case *Filter:
		if containsJoin(n.Input) && !isVolatile(n.Predicate) {
			out := r.collect(n.Input, budget)
			for _, c := range conjuncts(n.Predicate) {
				r.conds = append(r.conds, substitute(c, out))
			}
			return out
		}
	case *Project:
		if containsJoin(n.Input) && onlyColumns(n.Exprs) {
			in := r.collect(n.Input, budget)
			out := make([]Expr, len(n.Exprs))
			for i, e := range n.Exprs {
				out[i] = nullableAs(substitute(e, in), e)
			}
			return out
		}
	}
	return r.addLeaf(n)
}

// regional reports whether a join is part of a region: inputs of other kinds
// of join cannot change places freely.
func regional(n *Join) bool {
	if n.Kind != InnerJoin && n.Kind != CrossJoin {
		return false
	}
	for _, k := range n.On {
		if k.NullSafe {
			return false
		}
	}
	return true
}

// countLeaves is how many leaves collect would make of n.
func countLeaves(n Node) int {
	switch n := n.(type) {
	case *Join:
		if !regional(n) {
			return 1
		}
		return countLeaves(n.Left) + countLeaves(n.Right)
	case *Filter:
		return countLeaves(n.Input)
	case *Project:
		return countLeaves(n.Input)
	}
	return 1
}

// containsJoin reports whether n is a join under filters and projections that
// do not compute anything, so that taking it apart is worthwhile.
func containsJoin(n Node) bool {
	switch n := n.(type) {
	case *Join:
		return regional(n)
	case *Filter:
		return containsJoin(n.Input)
	case *Project:
		return onlyColumns(n.Exprs) && containsJoin(n.Input)
	}
	return false
}

func onlyColumns(exprs []Expr) bool {
	for _, e := range exprs {
		if _, ok := e.(*Column); !ok {
			return false
		}
	}
	return true
}

func (r *joinRegion) addLeaf(n Node) []Expr {
	fields := outputFields(n)
	l := &leaf{node: n, first: len(r.columns), width: len(fields)}
	out := make([]Expr, len(fields))
	for i, f := range fields {
		c := columnOf(fields, i)
		c.Index = len(r.columns)
		out[i] = c
		r.columns = append(r.columns, globalColumn{leaf: len(r.leaves), local: i, field: f})
	}
	r.leaves = append(r.leaves, l)
	return out
}

// leavesOf is the set of leaves whose columns e reads.
func (r *joinRegion) leavesOf(e Expr) leafSet {
	var set leafSet
	walk(e, func(x Expr) {
		if c, ok := x.(*Column); ok {
			set |= 1 << r.columns[c.Index].leaf
		}
	})
	return set
}

// local restates an expression over one leaf's global columns over the leaf.
func (r *joinRegion) local(e Expr) Expr {
	return transform(e, func(c *Column) Expr {
		return &Column{Index: r.columns[c.Index].local, Name: c.Name, DataType: c.DataType, Null: c.Null}
	})
}

// distributeConditions gives each condition to the place that decides it:
// equalities of columns to the classes, conditions on one leaf to that leaf.
// It returns the others, which joins and the region's top have to check.
func (r *joinRegion) distributeConditions() []Expr {
	r.classes = newColumnClasses()
	var rest []Expr
	for _, c := range r.conds {
		if isVolatile(c) || !hasColumns(c) {
			rest = append(rest, c)
			continue
		}
		if a, b, ok := r.equiJoin(c); ok {
			r.classes.merge(a, b)
			continue
		}
		if set := r.leavesOf(c); set.single() {
			l := r.leaves[set.first()]
			l.conds = append(l.conds, r.local(c))
			continue
		}
		rest = append(rest, c)
		r.implyFromOr(c)
	}
	r.shareConstants()
	r.equateWithinLeaves()
	return rest
}

// equiJoin recognises an equality between two leaves as one of two global
// columns. A side that is an expression over one leaf becomes a computed
// column of that leaf.
func (r *joinRegion) equiJoin(e Expr) (a, b int, ok bool) {
	c, is := e.(*Call)
	if !is || c.Func != "=" || len(c.Args) != 2 || !sameKeyType(c.Args[0].Type(), c.Args[1].Type()) {
		return 0, 0, false
	}
	left, right := r.leavesOf(c.Args[0]), r.leavesOf(c.Args[1])
	if !left.single() || !right.single() || left == right {
		return 0, 0, false
	}
	return r.asColumn(c.Args[0], left.first()), r.asColumn(c.Args[1], right.first()), true
}

// asColumn returns the global column that holds an expression over one leaf.
func (r *joinRegion) asColumn(e Expr, owner int) int {
	if c, ok := e.(*Column); ok {
		return c.Index
	}
	l := r.leaves[owner]
	own := r.local(e)
	at := slices.IndexFunc(l.extra, func(x Expr) bool { return equalExpr(x, own) })
	if at >= 0 {
		return slices.IndexFunc(r.columns, func(g globalColumn) bool { return g.leaf == owner && g.local == l.width+at })
	}
	r.columns = append(r.columns, globalColumn{
		leaf: owner, local: l.width + len(l.extra),
		field: arrow.Field{Type: e.Type(), Nullable: e.Nullable()},
	})
	l.extra = append(l.extra, own)
	return len(r.columns) - 1
}

// implyFromOr derives, from an OR over several leaves, conditions on single
// ones: if every branch restricts a leaf, one of these restrictions holds.
func (r *joinRegion) implyFromOr(e Expr) {
	branches := disjuncts(e)
	if len(branches) < 2 {
		return
	}
	for i, l := range r.leaves {
		var alternatives []Expr
		for _, b := range branches {
			own, _ := partition(conjuncts(b), func(x Expr) bool { return r.leavesOf(x) == 1<<i })
			if len(own) == 0 {
				break
			}
			alternatives = append(alternatives, r.local(And(own...)))
		}
		if len(alternatives) == len(branches) {
			l.conds = append(l.conds, Or(alternatives...))
		}
	}
}

// shareConstants copies comparisons of a column with constants to the columns
// that equal it, so that each scan can use them.
func (r *joinRegion) shareConstants() {
	for i, l := range r.leaves {
		for _, c := range slices.Clone(l.conds) {
			column, ok := comparedWithConstant(c)
			if !ok {
				continue
			}
			for _, g := range r.classes.membersWith(l.first + column) {
				other := r.columns[g]
				target := r.leaves[other.leaf]
				if other.leaf == i || other.local >= target.width || !arrow.TypeEqual(other.field.Type, r.columns[l.first+column].field.Type) {
					continue
				}
				copied := transform(c, func(x *Column) Expr {
					return &Column{Index: other.local, Name: other.field.Name, DataType: x.DataType, Null: other.field.Nullable}
				})
				if !slices.ContainsFunc(target.conds, func(x Expr) bool { return equalExpr(x, copied) }) {
					target.conds = append(target.conds, copied)
				}
			}
		}
	}
}

// comparedWithConstant recognises "column op constant" and column IN (...),
// the conditions that are false or NULL for equal values alike.
func comparedWithConstant(e Expr) (column int, ok bool) {
	switch e := e.(type) {
	case *InList:
		c, is := e.Arg.(*Column)
		if is {
			return c.Index, true
		}
	case *Call:
		switch e.Func {
		case "=", "<", "<=", ">", ">=", "<>":
		default:
			return 0, false
		}
		for i, a := range e.Args {
			if c, is := a.(*Column); is && len(e.Args) == 2 && !hasColumns(e.Args[1-i]) && !isVolatile(e.Args[1-i]) {
				return c.Index, true
			}
		}
	}
	return 0, false
}

// equateWithinLeaves turns equalities of two columns of one leaf, direct or
// through other leaves, into conditions on the leaf. From then on members of a
// class are equal wherever they occur together.
func (r *joinRegion) equateWithinLeaves() {
	for _, members := range r.classes.all() {
		first := make(map[int]int) // leaf -> member
		for _, g := range members {
			c := r.columns[g]
			f, seen := first[c.leaf]
			if !seen {
				first[c.leaf] = g
				continue
			}
			l := r.leaves[c.leaf]
			l.conds = append(l.conds, Equal(r.ownExpr(f), r.ownExpr(g)))
		}
	}
}

// ownExpr is a global column as an expression over its leaf.
func (r *joinRegion) ownExpr(g int) Expr {
	c := r.columns[g]
	l := r.leaves[c.leaf]
	if c.local >= l.width {
		return l.extra[c.local-l.width]
	}
	return &Column{Index: c.local, Name: c.field.Name, DataType: c.field.Type, Null: c.field.Nullable}
}

// planLeaves pushes the leaves' conditions into them, adds their computed keys
// and estimates them.
func (r *joinRegion) planLeaves(p *pushdown) error {
	for _, l := range r.leaves {
		n, err := p.push(l.node, l.conds)
		if err != nil {
			return err
		}
		if len(l.extra) > 0 {
			fields := outputFields(n)
			exprs, names := make([]Expr, 0, len(fields)+len(l.extra)), make([]string, 0, len(fields)+len(l.extra))
			for i := range fields {
				exprs, names = append(exprs, columnOf(fields, i)), append(names, fields[i].Name)
			}
			for _, e := range l.extra {
				exprs, names = append(exprs, e), append(names, e.String())
			}
			n = newProject(n, exprs, names)
		}
		l.node = n
		if l.est, err = p.estimator.node(n); err != nil {
			return err
		}
	}
	r.shareDistinct()
	return nil
}

// shareDistinct bounds the unknown distinct counts in a class by the known
// ones: columns that are compared tend to range over the same keys.
func (r *joinRegion) shareDistinct() {
	for _, members := range r.classes.all() {
		var known uint64
		for _, g := range members {
			c := r.columns[g]
			known = max(known, r.leaves[c.leaf].est.columns[c.local].distinct)
		}
		for _, g := range members {
			c := r.columns[g]
			column := &r.leaves[c.leaf].est.columns[c.local]
			if column.distinct == 0 {
				column.distinct = known
			}
		}
	}
}
