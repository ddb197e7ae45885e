package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// throughJoin pushes conditions into a join of any kind.
func (p *pushdown) throughJoin(n *Join, conds []Expr) (Node, error) {
	switch n.Kind {
	case InnerJoin, CrossJoin:
		if regional(n) {
			return p.throughJoins(n, conds)
		}
	case RightJoin:
		return p.push(mirrored(n), conds)
	}
	if simpler := simplerOuter(n, conds); simpler != nil {
		return p.push(simpler, conds)
	}
	return p.throughOneSided(n, conds)
}

// mirrored is a right join as the left join of the swapped inputs.
func mirrored(n *Join) Node {
	left, right := outputFields(n.Left), outputFields(n.Right)
	swapped := make([]int, len(left)+len(right))
	for i := range swapped {
		swapped[i] = i + len(right)
		if i >= len(left) {
			swapped[i] = i - len(left)
		}
	}
	on := make([]JoinKey, len(n.On))
	for i, k := range n.On {
		on[i] = JoinKey{Left: k.Right, Right: k.Left, NullSafe: k.NullSafe}
	}
	join := &Join{Kind: LeftJoin, Left: n.Right, Right: n.Left, On: on, Residual: remap(n.Residual, swapped)}
	return selectColumns(join, swapped)
}

// simplerOuter is the join without the rows that the conditions above reject
// anyway, nil when they reject none: a left join whose filled-in rows go becomes
// an inner join, a full join a left, right or inner one.
func simplerOuter(n *Join, conds []Expr) Node {
	width := len(outputFields(n.Left))
	total := width + len(outputFields(n.Right))
	kind := n.Kind
	switch n.Kind {
	case LeftJoin:
		if anyRejects(conds, width, total) {
			kind = InnerJoin
		}
	case FullJoin:
		noLeft, noRight := anyRejects(conds, 0, width), anyRejects(conds, width, total)
		switch {
		case noLeft && noRight:
			kind = InnerJoin
		case noLeft:
			kind = LeftJoin
		case noRight:
			kind = RightJoin
		}
	}
	if kind == n.Kind {
		return nil
	}
	if kind == InnerJoin && len(n.On) == 0 && n.Residual == nil {
		kind = CrossJoin
	}
	return withNullability(&Join{Kind: kind, Left: n.Left, Right: n.Right, On: n.On, Residual: n.Residual}, outputFields(n))
}

// withNullability is a node whose columns count as nullable where the fields
// say so.
func withNullability(n Node, fields []arrow.Field) Node {
	exprs, names := make([]Expr, len(fields)), make([]string, len(fields))
	for i := range fields {
		exprs[i], names[i] = columnOf(fields, i), fields[i].Name
	}
	return newProject(n, exprs, names)
}

// throughOneSided pushes conditions into a join that keeps or fills in rows. On
// the left side may go what reads only the left's columns, unless the join makes
// rows without a left side; the join's own condition may restrict the right
// side, and for a semi join the left one too.
func (p *pushdown) throughOneSided(n *Join, conds []Expr) (Node, error) {
	width := len(outputFields(n.Left))
	total := width + len(outputFields(n.Right))
	moved, kept := partition(conds, func(e Expr) bool {
		return n.Kind != FullJoin && hasColumns(e) && columnsWithin(e, 0, width) && !isVolatile(e)
	})
	residual := simplifyResidual(n.Residual)
	on := slices.Clone(n.On)
	var rightConds []Expr
	if n.Kind != FullJoin {
		own, rest := partition(residual, func(e Expr) bool {
			return hasColumns(e) && columnsWithin(e, width, total) && !isVolatile(e)
		})
		for _, e := range own {
			rightConds = append(rightConds, shiftedColumns(e, -width))
		}
		residual = rest
		for _, e := range moved {
			rightConds = append(rightConds, impliedRight(e, on, n.Right)...)
		}
	}
	if n.Kind == SemiJoin {
		own, rest := partition(residual, func(e Expr) bool { return columnsWithin(e, 0, width) && !isVolatile(e) })
		moved, residual = append(moved, own...), rest
	}
	if n.Kind == SemiJoin || n.Kind == AntiJoin {
		sunk, err := p.sink(n, on, residual, rightConds, moved)
		if sunk != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return filterBy(sunk, kept), nil
		}
	}
	left, err := p.push(n.Left, moved)
	if err != nil {
		return nil, err
	}
	right, err := p.push(n.Right, rightConds)
	if err != nil {
		return nil, err
	}
	out := &Join{Kind: n.Kind, Left: left, Right: right, On: on}
	if len(residual) > 0 {
		out.Residual = And(residual...)
	}
	return filterBy(out, kept), nil
}

func simplifyResidual(e Expr) []Expr {
	if e == nil {
		return nil
	}
	return simplify([]Expr{e})
}

func shiftedColumns(e Expr, by int) Expr {
	return transform(e, func(c *Column) Expr {
		return &Column{Index: c.Index + by, Name: c.Name, DataType: c.DataType, Null: c.Null}
	})
}

// impliedRight restates a comparison of a left key with constants over the
// right key: only right rows that satisfy it can match a row that does.
func impliedRight(e Expr, on []JoinKey, right Node) []Expr {
	column, ok := comparedWithConstant(e)
	if !ok {
		return nil
	}
	fields := outputFields(right)
	var out []Expr
	for _, k := range on {
		if k.Left != column {
			continue
		}
		f := fields[k.Right]
		same := true
		implied := transform(e, func(c *Column) Expr {
			same = same && arrow.TypeEqual(c.DataType, f.Type)
			return &Column{Index: k.Right, Name: f.Name, DataType: f.Type, Null: f.Nullable}
		})
		if same {
			out = append(out, implied)
		}
	}
	return out
}

// sink moves a semi or anti join into the one input of the inner joins on its
// left that it is about, if it is expected to drop many of its rows there: the
// joins above then see fewer. It returns nil to leave the join where it is.
func (p *pushdown) sink(n *Join, on []JoinKey, residual, rightConds, leftConds []Expr) (Node, error) {
	if len(residual) > 0 || len(on) == 0 {
		return nil, nil
	}
	columns := make([]int, len(on))
	for i, k := range on {
		columns[i] = k.Left
	}
	target, at, rebuild := ownerOf(n.Left, columns)
	if target == n.Left {
		return nil, nil
	}
	sunk := &Join{Kind: n.Kind, Left: target, Right: filterBy(n.Right, rightConds)}
	for i, k := range on {
		sunk.On = append(sunk.On, JoinKey{Left: at[i], Right: k.Right, NullSafe: k.NullSafe})
	}
	before, err := p.estimator.node(target)
	if err != nil {
		return nil, err
	}
	after, err := p.estimator.node(sunk)
	if err != nil {
		return nil, err
	}
	if after.rows > before.rows/2 {
		return nil, nil
	}
	return p.push(rebuild(sunk), leftConds)
}

// ownerOf finds the input below inner joins, filters and renamings that has all
// the given output columns of n, where it has them, and what n is with another
// node of the same output in that place. (The same node may be in others, too.)
func ownerOf(n Node, columns []int) (owner Node, at []int, rebuild func(Node) Node) {
	switch n := n.(type) {
	case *Filter:
		if containsJoin(n.Input) {
			return within(n.Input, columns, func(in Node) Node { return &Filter{Input: in, Predicate: n.Predicate} })
		}
	case *Project:
		if !containsJoin(n) {
			break
		}
		below := make([]int, len(columns))
		for i, c := range columns {
			below[i] = n.Exprs[c].(*Column).Index
		}
		return within(n.Input, below, func(in Node) Node { return &Project{Input: in, Exprs: n.Exprs, Names: n.Names} })
	case *Join:
		if n.Kind != InnerJoin && n.Kind != CrossJoin {
			break
		}
		width := len(outputFields(n.Left))
		var ofRight []int
		for _, c := range columns {
			if c >= width {
				ofRight = append(ofRight, c-width)
			}
		}
		switch len(ofRight) {
		case 0:
			return within(n.Left, columns, func(in Node) Node { return withInputs(n, []Node{in, n.Right}) })
		case len(columns):
			return within(n.Right, ofRight, func(in Node) Node { return withInputs(n, []Node{n.Left, in}) })
		}
	}
	return n, columns, func(in Node) Node { return in }
}

// within is ownerOf for the input of a node that around makes.
func within(input Node, columns []int, around func(Node) Node) (Node, []int, func(Node) Node) {
	owner, at, rebuild := ownerOf(input, columns)
	return owner, at, func(in Node) Node { return around(rebuild(in)) }
}
