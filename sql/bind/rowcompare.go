package bind

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// rowOperands are the two sides of an operator if one of them is a row
// constructor.
func rowOperands(e *pgquery.A_Expr) (left, right []*pgquery.Node, ok bool) {
	l, r := e.Lexpr.GetRowExpr(), e.Rexpr.GetRowExpr()
	return l.GetArgs(), r.GetArgs(), l != nil || r != nil
}

// compareRows binds (a, b) op (c, d): field by field, from the left, until one
// pair differs.
func (b *binder) compareRows(op string, e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	left, right, _ := rowOperands(e)
	if sub := e.Rexpr.GetSubLink(); sub != nil && sub.SubLinkType == pgquery.SubLinkType_EXPR_SUBLINK {
		return b.sublink(&pgquery.SubLink{
			SubLinkType: pgquery.SubLinkType_ROWCOMPARE_SUBLINK, Testexpr: e.Lexpr, OperName: e.Name,
			Subselect: sub.Subselect, Location: sub.Location,
		}, c)
	}
	if left == nil || right == nil {
		return nil, b.unsupported(e.Location, "comparing a row with what is not a row constructor")
	}
	if len(left) != len(right) || len(left) == 0 {
		return nil, b.errorAt(sqlstate.SyntaxError, e.Location, "rows of %d and %d values cannot be compared", len(left), len(right))
	}
	l, err := b.exprs(left, c)
	if err != nil {
		return nil, err
	}
	r, err := b.exprs(right, c)
	if err != nil {
		return nil, err
	}
	return b.rowComparisonOf(op, l, r, e.Location)
}

// rowComparisonOf compares two rows of values.
func (b *binder) rowComparisonOf(op string, left, right []planner.Expr, location int32) (planner.Expr, error) {
	pairs := func(op string) ([]planner.Expr, error) {
		out := make([]planner.Expr, len(left))
		for i := range left {
			var err error
			if out[i], err = b.compare(op, left[i], right[i], location); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	connective := "and"
	switch op {
	case "<>":
		connective = "or"
		fallthrough
	case "=":
		conds, err := pairs(op)
		if err != nil {
			return nil, err
		}
		return b.connect(connective, conds, location), nil
	case "<", "<=", ">", ">=":
	default:
		return nil, b.unsupported(location, "operator %s over rows", op)
	}
	for _, e := range slices.Concat(left, right) {
		if err := b.repeatable(e, location, "a field of rows in order"); err != nil {
			return nil, err
		}
	}
	equal, err := pairs("=")
	if err != nil {
		return nil, err
	}
	strict, err := pairs(op[:1])
	if err != nil {
		return nil, err
	}
	last, err := b.compare(op, left[len(left)-1], right[len(right)-1], location)
	if err != nil {
		return nil, err
	}
	value := last
	for i := len(left) - 2; i >= 0; i-- {
		rest := b.connect("and", []planner.Expr{equal[i], value}, location)
		value = b.connect("or", []planner.Expr{strict[i], rest}, location)
	}
	return value, nil
}

// rowIn binds (a, b) [NOT] IN ((c, d), ...).
func (b *binder) rowIn(op string, e *pgquery.A_Expr, items []*pgquery.Node, c *exprContext) (planner.Expr, error) {
	conds := make([]planner.Expr, len(items))
	left, err := b.exprs(e.Lexpr.GetRowExpr().GetArgs(), c)
	if err != nil {
		return nil, err
	}
	for _, x := range left {
		if err := b.repeatable(x, e.Location, "the left side of IN"); err != nil {
			return nil, err
		}
	}
	for i, item := range items {
		var err error
		each := &pgquery.A_Expr{Kind: pgquery.A_Expr_Kind_AEXPR_OP, Name: e.Name, Lexpr: e.Lexpr, Rexpr: item, Location: e.Location}
		if conds[i], err = b.compareRows(op, each, c); err != nil {
			return nil, err
		}
	}
	if op == "<>" {
		return b.connect("and", conds, e.Location), nil
	}
	return b.connect("or", conds, e.Location), nil
}
