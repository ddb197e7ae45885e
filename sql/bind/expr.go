package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sql/parse"
	"skein/sqlstate"
)

// exprContext is where an expression stands.
type exprContext struct {
	scope *scope
	// aggregates collects aggregate calls; nil where they are not allowed.
	aggregates *aggregates
	// clause names the place for errors, as in "WHERE".
	clause string
	// windows says that window functions may stand here.
	windows bool
	// inWindow says that an aggregate being bound is a window's, whose argument
	// is over the grouped rows.
	inWindow bool
	// named are the windows of the WINDOW clause.
	named []*pgquery.WindowDef
	// subqueries says that subqueries may stand here.
	subqueries bool
	// noColumns, when not empty, is why columns cannot be named here.
	noColumns string
}

// expr binds a scalar expression. The result may be untyped.
func (b *binder) expr(n *pgquery.Node, c *exprContext) (planner.Expr, error) {
	switch e := n.GetNode().(type) {
	case *pgquery.Node_ColumnRef:
		if c.noColumns != "" {
			return nil, b.errorAt(sqlstate.InvalidColumnReference, e.ColumnRef.Location, "%s must not refer to columns", c.noColumns)
		}
		return b.columnRef(e.ColumnRef, c.scope)
	case *pgquery.Node_AConst:
		return b.constant(e.AConst)
	case *pgquery.Node_ParamRef:
		return b.param(e.ParamRef)
	case *pgquery.Node_AExpr:
		return b.operator(e.AExpr, c)
	case *pgquery.Node_BoolExpr:
		return b.boolExpr(e.BoolExpr, c)
	case *pgquery.Node_TypeCast:
		return b.typeCast(e.TypeCast, c)
	case *pgquery.Node_FuncCall:
		return b.funcCall(e.FuncCall, c)
	case *pgquery.Node_CaseExpr:
		return b.caseExpr(e.CaseExpr, c)
	case *pgquery.Node_CoalesceExpr:
		return b.variadic("coalesce", "COALESCE", e.CoalesceExpr.Args, e.CoalesceExpr.Location, c)
	case *pgquery.Node_MinMaxExpr:
		if e.MinMaxExpr.Op == pgquery.MinMaxOp_IS_GREATEST {
			return b.variadic("greatest", "GREATEST", e.MinMaxExpr.Args, e.MinMaxExpr.Location, c)
		}
		return b.variadic("least", "LEAST", e.MinMaxExpr.Args, e.MinMaxExpr.Location, c)
	case *pgquery.Node_NullTest:
		return b.nullTest(e.NullTest, c)
	case *pgquery.Node_BooleanTest:
		return b.booleanTest(e.BooleanTest, c)
	case *pgquery.Node_GroupingFunc:
		return b.groupingFunc(e.GroupingFunc, c)
	case *pgquery.Node_SqlvalueFunction:
		return b.sqlValue(e.SqlvalueFunction)
	case *pgquery.Node_SubLink:
		return b.sublink(e.SubLink, c)
	case *pgquery.Node_SetToDefault:
		return nil, b.errorAt(sqlstate.SyntaxError, e.SetToDefault.Location, "DEFAULT is not allowed here")
	}
	return nil, b.refuseNode(n, "")
}

func (b *binder) exprs(nodes []*pgquery.Node, c *exprContext) ([]planner.Expr, error) {
	out := make([]planner.Expr, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = b.expr(n, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (b *binder) param(p *pgquery.ParamRef) (planner.Expr, error) {
	n := int(p.Number)
	if n < 1 || n > parse.MaxParams {
		return nil, b.errorAt(sqlstate.UndefinedParameter, p.Location, "there is no parameter $%d", n)
	}
	for len(b.params) < n {
		b.params = append(b.params, nil)
	}
	if known := b.params[n-1]; known != nil {
		return b.at(&planner.Param{Ordinal: n, DataType: known}, p.Location), nil
	}
	return b.at(&untyped{param: n}, p.Location), nil
}

func (b *binder) boolExpr(e *pgquery.BoolExpr, c *exprContext) (planner.Expr, error) {
	args, err := b.exprs(e.Args, c)
	if err != nil {
		return nil, err
	}
	name := "AND"
	switch e.Boolop {
	case pgquery.BoolExprType_OR_EXPR:
		name = "OR"
	case pgquery.BoolExprType_NOT_EXPR:
		name = "NOT"
	}
	for i, a := range args {
		if args[i], err = b.toBoolean(a, name); err != nil {
			return nil, err
		}
	}
	switch name {
	case "AND":
		return b.connect("and", args, e.Location), nil
	case "OR":
		return b.connect("or", args, e.Location), nil
	}
	return b.predicate("not", e.Location, args[0].Nullable(), args[0])
}

func (b *binder) nullTest(t *pgquery.NullTest, c *exprContext) (planner.Expr, error) {
	arg, err := b.expr(t.Arg, c)
	if err != nil {
		return nil, err
	}
	if arg, err = b.settled(arg); err != nil {
		return nil, err
	}
	name := "is null"
	if t.Nulltesttype == pgquery.NullTestType_IS_NOT_NULL {
		name = "is not null"
	}
	return b.predicate(name, t.Location, false, arg)
}

func (b *binder) booleanTest(t *pgquery.BooleanTest, c *exprContext) (planner.Expr, error) {
	names := map[pgquery.BoolTestType]string{
		pgquery.BoolTestType_IS_TRUE:        "is true",
		pgquery.BoolTestType_IS_NOT_TRUE:    "is not true",
		pgquery.BoolTestType_IS_FALSE:       "is false",
		pgquery.BoolTestType_IS_NOT_FALSE:   "is not false",
		pgquery.BoolTestType_IS_UNKNOWN:     "is null",
		pgquery.BoolTestType_IS_NOT_UNKNOWN: "is not null",
	}
	name, ok := names[t.Booltesttype]
	if !ok {
		return nil, b.unsupported(t.Location, "this test of a boolean")
	}
	arg, err := b.expr(t.Arg, c)
	if err != nil {
		return nil, err
	}
	if arg, err = b.toBoolean(arg, "IS TRUE and its like"); err != nil {
		return nil, err
	}
	return b.predicate(name, t.Location, false, arg)
}

func (b *binder) typeCast(t *pgquery.TypeCast, c *exprContext) (planner.Expr, error) {
	target, err := b.typeName(t.TypeName)
	if err != nil {
		return nil, err
	}
	arg, err := b.expr(t.Arg, c)
	if err != nil {
		return nil, err
	}
	location := t.Location
	if location < 0 {
		location = t.TypeName.Location
	}
	return b.explicitCast(arg, target, location)
}

// variadic binds COALESCE, GREATEST and LEAST, whose arguments share one type.
func (b *binder) variadic(name, shown string, nodes []*pgquery.Node, location int32, c *exprContext) (planner.Expr, error) {
	args, err := b.exprs(nodes, c)
	if err != nil {
		return nil, err
	}
	if args, _, err = b.unify(shown, args); err != nil {
		return nil, err
	}
	return b.call(name, args, location)
}

// caseExpr binds both forms of CASE as the searched one.
func (b *binder) caseExpr(e *pgquery.CaseExpr, c *exprContext) (planner.Expr, error) {
	var subject planner.Expr
	var err error
	if e.Arg != nil {
		if subject, err = b.expr(e.Arg, c); err != nil {
			return nil, err
		}
		if subject, err = b.settled(subject); err != nil {
			return nil, err
		}
		if err := b.repeatable(subject, e.Location, "the operand of CASE"); err != nil {
			return nil, err
		}
	}
	out := &planner.Case{Whens: make([]planner.When, len(e.Args))}
	results := make([]planner.Expr, len(e.Args)+1)
	for i, n := range e.Args {
		when := n.GetCaseWhen()
		if out.Whens[i].Cond, err = b.whenCondition(subject, when, c); err != nil {
			return nil, err
		}
		if results[i], err = b.expr(when.Result, c); err != nil {
			return nil, err
		}
	}
	last := len(e.Args)
	if e.Defresult == nil {
		results[last] = b.at(&untyped{null: true}, e.Location)
	} else if results[last], err = b.expr(e.Defresult, c); err != nil {
		return nil, err
	}
	converted, common, err := b.unify("CASE", results)
	if err != nil {
		return nil, err
	}
	for i := range out.Whens {
		out.Whens[i].Then = converted[i]
	}
	out.Else, out.DataType = converted[last], common
	return b.at(out, e.Location), nil
}

func (b *binder) whenCondition(subject planner.Expr, when *pgquery.CaseWhen, c *exprContext) (planner.Expr, error) {
	cond, err := b.expr(when.Expr, c)
	if err != nil {
		return nil, err
	}
	if subject != nil {
		return b.compare("=", subject, cond, when.Location)
	}
	return b.toBoolean(cond, "CASE/WHEN")
}

// constantExpr binds an expression that must have a value now, of a type.
func (b *binder) constantExpr(n *pgquery.Node, dt arrow.DataType, what string) (planner.Expr, error) {
	e, err := b.expr(n, &exprContext{scope: &scope{}, clause: what, noColumns: what})
	if err != nil {
		return nil, err
	}
	if !isUntyped(e) && !implicit(e.Type(), dt) && !(isNumeric(e.Type()) && isNumeric(dt)) {
		return nil, b.errorAt(sqlstate.DatatypeMismatch, locationOf(n), "%s must be of type %s, not %s", what, typesNamed(dt), typesNamed(e.Type()))
	}
	return b.convert(e, dt)
}
