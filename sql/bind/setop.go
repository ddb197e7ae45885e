package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// setOperation binds UNION, INTERSECT and EXCEPT with their ORDER BY and LIMIT,
// which see the output columns only.
func (b *binder) setOperation(stmt *pgquery.SelectStmt, wanted []arrow.DataType) (*output, error) {
	restore, err := b.with(stmt.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	left, right, err := b.operands(stmt, wanted)
	if err != nil {
		return nil, err
	}
	name := map[pgquery.SetOperation]string{
		pgquery.SetOperation_SETOP_UNION: "UNION", pgquery.SetOperation_SETOP_INTERSECT: "INTERSECT",
		pgquery.SetOperation_SETOP_EXCEPT: "EXCEPT",
	}[stmt.Op]
	if len(left.fields) != len(right.fields) {
		location := int32(-1)
		if targets := stmt.Rarg.GetTargetList(); len(targets) > 0 {
			location = locationOf(targets[0])
		}
		return nil, b.errorAt(sqlstate.SyntaxError, location, "each %s query must have the same number of columns", name)
	}
	l, r, err := b.sameColumns(name, left, right)
	if err != nil {
		return nil, err
	}
	node := b.combined(stmt.Op, stmt.All, l, r)
	return b.orderedRows(stmt, node)
}

// operands binds both sides of a set operation. Constants without a type, as NULL
// and texts, take that of the other side's column.
func (b *binder) operands(stmt *pgquery.SelectStmt, wanted []arrow.DataType) (left, right *output, err error) {
	first, second := &left, &right
	sides := [2]*pgquery.SelectStmt{stmt.Larg, stmt.Rarg}
	if slices.Contains(untypedColumns(sides[0]), true) && !slices.Contains(untypedColumns(sides[1]), true) {
		first, second = second, first
		sides[0], sides[1] = sides[1], sides[0]
	}
	if *first, err = b.selectStmt(sides[0], wanted); err != nil {
		return nil, nil, err
	}
	types := typesOf((*first).fields)
	for i, open := range untypedColumns(sides[0]) {
		if open && i < len(types) {
			types[i] = nil
		}
	}
	for i, dt := range wanted {
		if dt != nil && i < len(types) {
			types[i] = dt
		}
	}
	if *second, err = b.selectStmt(sides[1], types); err != nil {
		return nil, nil, err
	}
	err = b.retyped(first, sides, (*second).fields, wanted)
	return left, right, err
}

// retyped binds the first side of a set operation anew if it has constants
// without a type where the other side's columns have one.
func (b *binder) retyped(first **output, sides [2]*pgquery.SelectStmt, other []arrow.Field, wanted []arrow.DataType) error {
	types := slices.Clone(wanted)
	again := false
	typed := untypedColumns(sides[1])
	for i, open := range untypedColumns(sides[0]) {
		if !open || i >= len(other) || i < len(typed) && typed[i] || i < len(wanted) && wanted[i] != nil {
			continue
		}
		for len(types) <= i {
			types = append(types, nil)
		}
		types[i], again = other[i].Type, true
	}
	if !again {
		return nil
	}
	var err error
	*first, err = b.selectStmt(sides[0], types)
	return err
}

// untypedColumns tells which columns of a query are plain constants without a
// type.
func untypedColumns(stmt *pgquery.SelectStmt) []bool {
	if stmt.Op != pgquery.SetOperation_SETOP_NONE {
		out := untypedColumns(stmt.Larg)
		for i, open := range untypedColumns(stmt.Rarg) {
			if i < len(out) {
				out[i] = out[i] && open
			}
		}
		return out
	}
	untyped := func(n *pgquery.Node) bool {
		c := n.GetAConst()
		return c != nil && (c.Isnull || c.GetSval() != nil)
	}
	var out []bool
	for _, n := range stmt.TargetList {
		out = append(out, untyped(n.GetResTarget().GetVal()))
	}
	for r, row := range stmt.ValuesLists {
		for i, n := range row.GetList().GetItems() {
			switch {
			case r == 0:
				out = append(out, untyped(n))
			case i < len(out):
				out[i] = out[i] && untyped(n)
			}
		}
	}
	return out
}

// sameColumns projects two queries to columns of common types, under the left
// one's names.
func (b *binder) sameColumns(what string, left, right *output) (l, r planner.Node, err error) {
	width := len(left.fields)
	projections := [2]*planner.Project{{Input: left.node}, {Input: right.node}}
	changed := [2]bool{}
	for i := range width {
		pair, _, err := b.unify(what, []planner.Expr{fieldColumn(i, left.fields[i]), fieldColumn(i, right.fields[i])})
		if err != nil {
			return nil, nil, err
		}
		for k, e := range pair {
			projections[k].Exprs = append(projections[k].Exprs, e)
			projections[k].Names = append(projections[k].Names, left.fields[i].Name)
			_, plain := e.(*planner.Column)
			changed[k] = changed[k] || !plain
		}
		changed[1] = changed[1] || right.fields[i].Name != left.fields[i].Name
	}
	l, r = projections[0], projections[1]
	if !changed[0] && left.node.Schema().NumFields() == width {
		l = left.node
	}
	if !changed[1] && right.node.Schema().NumFields() == width {
		r = right.node
	}
	return l, r, nil
}

// combined applies the operation. INTERSECT and EXCEPT look for equal rows by
// semi and anti joins that take NULLs as equal; with ALL, the copies of a row are
// numbered, so that each finds one partner.
func (b *binder) combined(op pgquery.SetOperation, all bool, l, r planner.Node) planner.Node {
	width := l.Schema().NumFields()
	if op == pgquery.SetOperation_SETOP_UNION {
		node := planner.Node(&planner.Union{Branches: []planner.Node{l, r}})
		if !all {
			node = distinctRows(node, width)
		}
		return node
	}
	kind := planner.SemiJoin
	if op == pgquery.SetOperation_SETOP_EXCEPT {
		kind = planner.AntiJoin
	}
	keys := width
	if all {
		l, r = numbered(l), numbered(r)
		keys++
	} else {
		l = distinctRows(l, width)
	}
	join := &planner.Join{Kind: kind, Left: l, Right: r}
	for i := range keys {
		join.On = append(join.On, planner.JoinKey{Left: i, Right: i, NullSafe: true})
	}
	if all {
		return firstColumns(join, width)
	}
	return join
}

// numbered adds a column that tells equal rows apart.
func numbered(n planner.Node) planner.Node {
	w := &planner.Window{Input: n, Calls: []planner.WindowCall{rowNumber()}}
	for i := range n.Schema().NumFields() {
		w.PartitionBy = append(w.PartitionBy, i)
	}
	return w
}
