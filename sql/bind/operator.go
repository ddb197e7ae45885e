package bind

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sqlstate"
)

// operator binds an operator expression of any kind.
func (b *binder) operator(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	switch e.Kind {
	case pgquery.A_Expr_Kind_AEXPR_OP:
		return b.plainOperator(e, c)
	case pgquery.A_Expr_Kind_AEXPR_DISTINCT, pgquery.A_Expr_Kind_AEXPR_NOT_DISTINCT:
		return b.distinctFrom(e, c)
	case pgquery.A_Expr_Kind_AEXPR_NULLIF:
		return b.nullIf(e, c)
	case pgquery.A_Expr_Kind_AEXPR_IN:
		return b.in(e, c)
	case pgquery.A_Expr_Kind_AEXPR_LIKE, pgquery.A_Expr_Kind_AEXPR_ILIKE:
		return b.like(e, c)
	case pgquery.A_Expr_Kind_AEXPR_BETWEEN, pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN,
		pgquery.A_Expr_Kind_AEXPR_BETWEEN_SYM, pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		return b.between(e, c)
	case pgquery.A_Expr_Kind_AEXPR_OP_ANY, pgquery.A_Expr_Kind_AEXPR_OP_ALL:
		return b.anyArray(e, c)
	case pgquery.A_Expr_Kind_AEXPR_SIMILAR:
		return nil, b.unsupported(e.Location, "SIMILAR TO")
	}
	return nil, b.unsupported(e.Location, "this operator")
}

func (b *binder) operatorName(e *pgquery.A_Expr) (string, error) {
	parts := stringsOf(e.Name)
	if len(parts) == 2 && parts[0] == "pg_catalog" {
		parts = parts[1:]
	}
	if len(parts) != 1 {
		return "", b.errorAt(sqlstate.UndefinedFunction, e.Location, "operator %s does not exist", strings.Join(parts, "."))
	}
	return parts[0], nil
}

func (b *binder) pair(e *pgquery.A_Expr, c *exprContext) (left, right planner.Expr, err error) {
	if left, err = b.expr(e.Lexpr, c); err != nil {
		return nil, nil, err
	}
	right, err = b.expr(e.Rexpr, c)
	return left, right, err
}

func (b *binder) plainOperator(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	name, err := b.operatorName(e)
	if err != nil {
		return nil, err
	}
	if e.Lexpr == nil {
		return b.unaryOperator(name, e, c)
	}
	if _, _, rows := rowOperands(e); rows {
		return b.compareRows(name, e, c)
	}
	left, right, err := b.pair(e, c)
	if err != nil {
		return nil, err
	}
	switch name {
	case "=", "<>", "<", "<=", ">", ">=":
		return b.compare(name, left, right, e.Location)
	case "||":
		return b.concatenate(left, right, e.Location)
	case "~", "!~", "~*", "!~*", "<<", ">>":
		return b.call(name, []planner.Expr{left, right}, e.Location)
	}
	return b.arithmetic(name, left, right, e.Location)
}

func (b *binder) unaryOperator(name string, e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	arg, err := b.expr(e.Rexpr, c)
	if err != nil {
		return nil, err
	}
	if isUntyped(arg) {
		if arg, err = b.convert(arg, catalog.Double); err != nil {
			return nil, err
		}
	}
	if name == "+" && isNumeric(arg.Type()) {
		return arg, nil
	}
	return b.call(name, []planner.Expr{arg}, e.Location)
}

// compare binds a comparison operator. Constants become the type of the other
// side where they can without changing their value, so that columns are
// compared as they are stored.
func (b *binder) compare(op string, left, right planner.Expr, location int32) (planner.Expr, error) {
	left, right, err := b.comparable(op, left, right, location)
	if err != nil {
		return nil, err
	}
	return b.call(op, []planner.Expr{left, right}, location)
}

// comparable brings two operands to types that can be compared.
func (b *binder) comparable(op string, left, right planner.Expr, location int32) (planner.Expr, planner.Expr, error) {
	left, right, err := b.sameType(left, right)
	if err != nil {
		return nil, nil, err
	}
	lt, rt := left.Type(), right.Type()
	if arrow.TypeEqual(lt, rt) {
		return left, right, nil
	}
	if l, ok := right.(*planner.Literal); ok {
		if same, ok := exactly(l, lt); ok {
			return left, b.at(same, b.where(right)), nil
		}
	}
	if l, ok := left.(*planner.Literal); ok {
		if same, ok := exactly(l, rt); ok {
			return b.at(same, b.where(left)), right, nil
		}
	}
	if isDecimal(lt) && isDecimal(rt) {
		// Compared as they are: a common type could be too wide.
		return left, right, nil
	}
	common, ok := commonType(lt, rt)
	if !ok {
		return nil, nil, b.noOperator(op, lt, rt, location)
	}
	if isDecimal(common) {
		return b.decimals(left, right)
	}
	if left, err = b.convert(left, common); err != nil {
		return nil, nil, err
	}
	right, err = b.convert(right, common)
	return left, right, err
}

// sameType gives an untyped operand the type of the other one.
func (b *binder) sameType(left, right planner.Expr) (planner.Expr, planner.Expr, error) {
	var err error
	if isUntyped(left) && isUntyped(right) {
		if left, err = b.convert(left, catalog.Text); err != nil {
			return nil, nil, err
		}
	}
	if isUntyped(left) {
		if left, err = b.convert(left, right.Type()); err != nil {
			return nil, nil, err
		}
	}
	if isUntyped(right) {
		if right, err = b.convert(right, left.Type()); err != nil {
			return nil, nil, err
		}
	}
	return left, right, nil
}

// decimals makes the integers among operands decimals: constants of just
// their digits, others of all the digits that their type can have.
func (b *binder) decimals(left, right planner.Expr) (planner.Expr, planner.Expr, error) {
	operands := []planner.Expr{left, right}
	for i, e := range operands {
		if !isInteger(e.Type()) {
			continue
		}
		if l, ok := e.(*planner.Literal); ok {
			operands[i] = b.at(minimalDecimal(l), b.where(e))
			continue
		}
		converted, err := b.convert(e, integerDecimal(e.Type()))
		if err != nil {
			return nil, nil, err
		}
		operands[i] = converted
	}
	return operands[0], operands[1], nil
}

func (b *binder) noOperator(op string, left, right arrow.DataType, location int32) error {
	return b.errorAt(sqlstate.UndefinedFunction, location, "operator does not exist: %s %s %s",
		catalog.TypeName(left), op, catalog.TypeName(right)).
		WithHint("No operator matches these types. Cast one side, as in CAST(... AS %s).", catalog.TypeName(left))
}

// arithmetic binds the other binary operators.
func (b *binder) arithmetic(op string, left, right planner.Expr, location int32) (planner.Expr, error) {
	if isUntyped(left) != isUntyped(right) {
		l, r, err := b.guessOperand(op, left, right)
		if err != nil {
			return nil, err
		}
		left, right = l, r
	}
	lt, rt := left.Type(), right.Type()
	var err error
	switch {
	case !isNumeric(lt) || !isNumeric(rt):
	case isDecimal(lt) && isDecimal(rt):
	case isFloat(lt) || isFloat(rt), isInteger(lt) && isInteger(rt):
		common := commonNumeric(lt, rt)
		if arrow.TypeEqual(lt, rt) {
			common = lt
		}
		if left, err = b.convert(left, common); err == nil {
			right, err = b.convert(right, common)
		}
	default:
		left, right, err = b.decimals(left, right)
	}
	if err != nil {
		return nil, err
	}
	return b.call(op, []planner.Expr{left, right}, location)
}

// guessOperand takes an untyped operand for the type of the other one if
// the operator then exists, and else leaves the choice to the registry. Dates
// and timestamps are moved by intervals.
func (b *binder) guessOperand(op string, left, right planner.Expr) (planner.Expr, planner.Expr, error) {
	known, guess := left, right
	if isUntyped(left) {
		known, guess = right, left
	}
	dt := known.Type()
	if op == "+" && (dt.ID() == arrow.DATE32 || dt.ID() == arrow.TIMESTAMP) {
		dt = catalog.Interval
	}
	if _, err := exec.ResolveScalar(op, []arrow.DataType{dt, dt}); err != nil && dt.ID() != arrow.INTERVAL_MONTH_DAY_NANO {
		return left, right, nil
	}
	settled, err := b.convert(guess, dt)
	if err != nil {
		return nil, nil, err
	}
	if guess == left {
		return settled, right, nil
	}
	return left, settled, nil
}

// concatenate binds ||: with text on one side the other side becomes text.
func (b *binder) concatenate(left, right planner.Expr, location int32) (planner.Expr, error) {
	operands := []planner.Expr{left, right}
	if isUntyped(left) || isUntyped(right) || isText(left.Type()) || isText(right.Type()) {
		for i, e := range operands {
			other := operands[1-i]
			if isUntyped(e) && !isUntyped(other) && other.Type().ID() == arrow.BINARY {
				continue
			}
			if !isUntyped(e) && (isText(e.Type()) || e.Type().ID() == arrow.BINARY) {
				continue
			}
			converted, err := b.convert(e, catalog.Text)
			if err != nil {
				return nil, err
			}
			operands[i] = converted
		}
	}
	l, r, err := b.sameType(operands[0], operands[1])
	if err != nil {
		return nil, err
	}
	return b.call("||", []planner.Expr{l, r}, location)
}

func (b *binder) distinctFrom(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	left, right, err := b.pair(e, c)
	if err != nil {
		return nil, err
	}
	name := "is distinct from"
	if e.Kind == pgquery.A_Expr_Kind_AEXPR_NOT_DISTINCT {
		name = "is not distinct from"
	}
	if left, right, err = b.comparable("=", left, right, e.Location); err != nil {
		return nil, err
	}
	return b.call(name, []planner.Expr{left, right}, e.Location)
}

// nullIf has the type of its first argument.
func (b *binder) nullIf(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	left, right, err := b.pair(e, c)
	if err != nil {
		return nil, err
	}
	if left, right, err = b.sameType(left, right); err != nil {
		return nil, err
	}
	if arrow.TypeEqual(left.Type(), right.Type()) {
		return b.call("nullif", []planner.Expr{left, right}, e.Location)
	}
	equals, err := b.compare("=", left, right, e.Location)
	if err != nil {
		return nil, err
	}
	null := &planner.Literal{DataType: left.Type()}
	return b.at(&planner.Case{
		Whens: []planner.When{{Cond: equals, Then: null}}, Else: left, DataType: left.Type(),
	}, e.Location), nil
}

// like binds LIKE and ILIKE with an optional ESCAPE.
func (b *binder) like(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	symbol, err := b.operatorName(e)
	if err != nil {
		return nil, err
	}
	name := "like"
	if e.Kind == pgquery.A_Expr_Kind_AEXPR_ILIKE {
		name = "ilike"
	}
	if strings.HasPrefix(symbol, "!") {
		name = "not " + name
	}
	nodes := []*pgquery.Node{e.Lexpr, e.Rexpr}
	if f := e.Rexpr.GetFuncCall(); f != nil && isLikeEscape(f) {
		nodes = append(nodes[:1], f.Args...)
	}
	args, err := b.exprs(nodes, c)
	if err != nil {
		return nil, err
	}
	for i, a := range args {
		if !isUntyped(a) && !isText(a.Type()) {
			return nil, b.noOperator(strings.ToUpper(name), args[0].Type(), args[1].Type(), e.Location)
		}
		if args[i], err = b.convert(a, catalog.Text); err != nil {
			return nil, err
		}
	}
	return b.call(name, args, e.Location)
}

// isLikeEscape recognises what the grammar makes of LIKE ... ESCAPE.
func isLikeEscape(f *pgquery.FuncCall) bool {
	parts := stringsOf(f.Funcname)
	return len(parts) == 2 && parts[0] == "pg_catalog" && parts[1] == "like_escape" && len(f.Args) == 2
}

// between binds [NOT] BETWEEN [SYMMETRIC] as comparisons.
func (b *binder) between(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	subject, err := b.expr(e.Lexpr, c)
	if err != nil {
		return nil, err
	}
	bounds, err := b.exprs(e.Rexpr.GetList().GetItems(), c)
	if err != nil {
		return nil, err
	}
	if isUntyped(subject) {
		for _, bound := range bounds {
			if isUntyped(subject) && !isUntyped(bound) {
				if subject, err = b.convert(subject, bound.Type()); err != nil {
					return nil, err
				}
			}
		}
	}
	negate := e.Kind == pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN || e.Kind == pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM
	symmetric := e.Kind == pgquery.A_Expr_Kind_AEXPR_BETWEEN_SYM || e.Kind == pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM
	within, err := b.within(subject, bounds[0], bounds[1], negate, e.Location)
	if err != nil || !symmetric {
		return within, err
	}
	reverse, err := b.within(subject, bounds[1], bounds[0], negate, e.Location)
	if err != nil {
		return nil, err
	}
	op := "or"
	if negate {
		op = "and"
	}
	return b.connect(op, []planner.Expr{within, reverse}, e.Location), nil
}

// within is low <= e AND e <= high, or its negation.
func (b *binder) within(e, low, high planner.Expr, negate bool, location int32) (planner.Expr, error) {
	above, below, op := ">=", "<=", "and"
	if negate {
		above, below, op = "<", ">", "or"
	}
	x, err := b.compare(above, e, low, location)
	if err != nil {
		return nil, err
	}
	y, err := b.compare(below, e, high, location)
	if err != nil {
		return nil, err
	}
	return b.connect(op, []planner.Expr{x, y}, location), nil
}
