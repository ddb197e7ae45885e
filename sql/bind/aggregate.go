package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// aggregateRef stands for an aggregate's result while the rest of its SELECT is
// bound; grouping replaces it by a column.
type aggregateRef struct {
	index int // in aggregates.calls
	name  string
	dt    arrow.DataType
	null  bool
}

// Type is the aggregate's result type.
func (a *aggregateRef) Type() arrow.DataType { return a.dt }

// Nullable holds for all aggregates but counts.
func (a *aggregateRef) Nullable() bool { return a.null }

// String is the aggregate's name.
func (a *aggregateRef) String() string { return a.name }

// aggregates are the distinct aggregate calls of one SELECT.
type aggregates struct {
	calls []aggregateCall
}

type aggregateCall struct {
	fn       planner.AggFunc
	args     []planner.Expr // over the FROM columns; none for count(*)
	distinct bool
	order    []aggregateOrder
	dt       arrow.DataType
}

// aggregateOrder is an entry of ORDER BY in an aggregate.
type aggregateOrder struct {
	expr planner.Expr
	key  planner.SortKey // without its column
}

func (c *aggregateCall) equal(d *aggregateCall) bool {
	return !slices.ContainsFunc(c.args, volatile) && c.fn == d.fn && c.distinct == d.distinct && slices.EqualFunc(c.args, d.args, equal) &&
		slices.EqualFunc(c.order, d.order, func(x, y aggregateOrder) bool { return x.key == y.key && equal(x.expr, y.expr) })
}

// aggregateFuncs are the aggregates by name, synonyms included.
var aggregateFuncs = map[string]planner.AggFunc{
	"count": planner.Count, "sum": planner.Sum, "min": planner.Min, "max": planner.Max, "avg": planner.Avg,
	"bool_and": planner.BoolAnd, "every": planner.BoolAnd, "bool_or": planner.BoolOr,
	"stddev": planner.StddevSamp, "stddev_samp": planner.StddevSamp, "stddev_pop": planner.StddevPop,
	"variance": planner.VarSamp, "var_samp": planner.VarSamp, "var_pop": planner.VarPop,
	"any_value": planner.AnyValue, "string_agg": planner.StringAgg, "array_agg": planner.ArrayAgg,
	"percentile_cont": planner.PercentileCont,
}

// aggregateArgument is where the arguments of aggregates stand, for errors.
const aggregateArgument = "the argument of an aggregate"

func aggregateFunc(name string) (planner.AggFunc, bool) {
	fn, ok := aggregateFuncs[name]
	return fn, ok
}

// aggregate binds an aggregate call. Its arguments are over the input rows, and
// equal calls share one result.
func (b *binder) aggregate(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	if b.ofOuterQuery(f, c) {
		return b.outerAggregate(fn, f)
	}
	if c.aggregates == nil {
		return nil, b.errorAt(sqlstate.GroupingError, f.Location, "aggregate functions are not allowed in %s", c.clause)
	}
	call, err := b.aggregateCall(fn, f, c)
	if err != nil {
		return nil, err
	}
	index := -1
	for i := range c.aggregates.calls {
		if c.aggregates.calls[i].equal(call) {
			index = i
		}
	}
	if index < 0 {
		index = len(c.aggregates.calls)
		c.aggregates.calls = append(c.aggregates.calls, *call)
	}
	return b.at(&aggregateRef{index, string(fn), call.dt, fn != planner.Count}, f.Location), nil
}

// ofOuterQuery reports whether an aggregate in a subquery is the query's around:
// all columns that it reads are.
func (b *binder) ofOuterQuery(f *pgquery.FuncCall, c *exprContext) bool {
	if b.frame == nil || b.frame.context == nil || c.scope == nil {
		return false
	}
	own, some := false, false
	var look func(m protoreflect.Message)
	look = func(m protoreflect.Message) {
		if ref, ok := m.Interface().(*pgquery.ColumnRef); ok {
			some = true
			_, err := b.ownColumn(ref, c.scope)
			own = own || err == nil
			return
		}
		if _, ok := m.Interface().(*pgquery.SubLink); ok {
			own = true // what it refers to is not looked into
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.Kind() != protoreflect.MessageKind:
			case f.IsList():
				for i := range v.List().Len() {
					look(v.List().Get(i).Message())
				}
			default:
				look(v.Message())
			}
			return true
		})
	}
	look(f.ProtoReflect())
	return some && !own
}

// outerAggregate binds an aggregate of the query around, whose value the subquery
// refers to like to a column.
func (b *binder) outerAggregate(fn planner.AggFunc, f *pgquery.FuncCall) (planner.Expr, error) {
	around := b.frame
	b.frame = around.outer
	value, err := b.aggregate(fn, f, around.context)
	b.frame = around
	if err != nil {
		return nil, err
	}
	return b.at(around.refer(value, string(fn)), f.Location), nil
}

// aggregateCall binds the parts of a call, as an aggregate or in a window.
func (b *binder) aggregateCall(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) (*aggregateCall, error) {
	if err := b.onlyFields(f, "funcname", "args", "agg_star", "agg_distinct", "agg_filter", "agg_order", "agg_within_group", "over"); err != nil {
		return nil, err
	}
	if f.AggWithinGroup != (fn == planner.PercentileCont) {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "aggregate %s is called with WITHIN GROUP or without it in the wrong way", fn).
			WithHint("Write percentile_cont(fraction) WITHIN GROUP (ORDER BY value), and other aggregates without WITHIN GROUP.")
	}
	call := &aggregateCall{fn: fn, distinct: f.AggDistinct, dt: catalog.BigInt}
	var err error
	if call.args, err = b.aggregateArguments(fn, f, c); err != nil {
		return nil, err
	}
	if fn == planner.PercentileCont {
		if err := b.withinGroup(call, f, c); err != nil {
			return nil, err
		}
	} else if err := b.aggregateOrder(call, f, c); err != nil {
		return nil, err
	}
	if len(call.args) > 0 {
		if call.dt, err = b.aggregateType(fn, call.args[0].Type(), f.Location); err != nil {
			return nil, err
		}
	}
	return call, b.aggregateFilter(call, f, c)
}

// aggregateOrder binds ORDER BY in an aggregate, which only those of many
// values care about.
func (b *binder) aggregateOrder(call *aggregateCall, f *pgquery.FuncCall, c *exprContext) error {
	if call.fn != planner.StringAgg && call.fn != planner.ArrayAgg {
		return nil
	}
	for _, n := range f.AggOrder {
		by := n.GetSortBy()
		key, err := b.sortKey(by)
		if err != nil {
			return err
		}
		e, err := b.expr(by.Node, inAggregate(c))
		if err != nil {
			return err
		}
		if e, err = b.settled(e); err != nil {
			return err
		}
		if call.distinct && !equal(e, call.args[0]) {
			return b.errorAt(sqlstate.InvalidColumnReference, f.Location, "in an aggregate with DISTINCT, ORDER BY must name the argument")
		}
		call.order = append(call.order, aggregateOrder{e, key})
	}
	return nil
}

// withinGroup binds percentile_cont(fraction) WITHIN GROUP (ORDER BY value).
func (b *binder) withinGroup(call *aggregateCall, f *pgquery.FuncCall, c *exprContext) error {
	if len(f.AggOrder) != 1 || f.AggDistinct {
		return b.errorAt(sqlstate.UndefinedFunction, f.Location, "percentile_cont takes one value in WITHIN GROUP (ORDER BY ...)")
	}
	by := f.AggOrder[0].GetSortBy()
	key, err := b.sortKey(by)
	if err != nil {
		return err
	}
	value, err := b.expr(by.Node, inAggregate(c))
	if err != nil {
		return err
	}
	if !isUntyped(value) && !isNumeric(value.Type()) {
		return b.unsupported(f.Location, "percentile_cont of %s", catalog.TypeName(value.Type()))
	}
	if value, err = b.convert(value, catalog.Double); err != nil {
		return err
	}
	call.args = []planner.Expr{value, call.args[0]}
	call.order = []aggregateOrder{{value, key}}
	return nil
}

func inAggregate(c *exprContext) *exprContext {
	if c.inWindow {
		inner := *c
		inner.inWindow = false
		return &inner
	}
	return &exprContext{scope: c.scope, clause: aggregateArgument, noColumns: c.noColumns, subqueries: c.subqueries}
}

// aggregateArguments binds the arguments in parentheses.
func (b *binder) aggregateArguments(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) ([]planner.Expr, error) {
	if f.AggStar {
		if fn != planner.Count {
			return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "function %s(*) does not exist", fn)
		}
		return nil, nil
	}
	wanted := 1
	if fn == planner.StringAgg {
		wanted = 2
	}
	if len(f.Args) != wanted {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "aggregate %s takes %d argument(s), not %d", fn, wanted, len(f.Args))
	}
	args, err := b.exprs(f.Args, inAggregate(c))
	if err != nil {
		return nil, err
	}
	for i, a := range args {
		switch fn {
		case planner.StddevPop, planner.StddevSamp, planner.VarPop, planner.VarSamp, planner.PercentileCont:
			if !isUntyped(a) && !isNumeric(a.Type()) {
				return nil, b.noAggregate(fn, a.Type(), f.Location)
			}
			args[i], err = b.convert(a, catalog.Double)
		case planner.StringAgg:
			if !isUntyped(a) && a.Type().ID() != arrow.STRING {
				return nil, b.noAggregate(fn, a.Type(), f.Location)
			}
			args[i], err = b.convert(a, catalog.Text)
		case planner.BoolAnd, planner.BoolOr:
			args[i], err = b.toBoolean(a, string(fn))
		default:
			if isUntyped(a) && (fn == planner.Sum || fn == planner.Avg) {
				args[i], err = b.convert(a, catalog.Double)
			} else {
				args[i], err = b.settled(a)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return args, nil
}

// aggregateType is the result type of an aggregate over an argument type.
func (b *binder) aggregateType(fn planner.AggFunc, dt arrow.DataType, location int32) (arrow.DataType, error) {
	switch fn {
	case planner.Count:
		return catalog.BigInt, nil
	case planner.StddevPop, planner.StddevSamp, planner.VarPop, planner.VarSamp, planner.PercentileCont:
		return catalog.Double, nil
	case planner.BoolAnd, planner.BoolOr:
		return catalog.Boolean, nil
	case planner.StringAgg:
		return catalog.Text, nil
	case planner.ArrayAgg:
		if catalog.KeyableType(dt) {
			return arrow.ListOf(dt), nil
		}
	case planner.AnyValue:
		if catalog.KeyableType(dt) {
			return dt, nil
		}
	case planner.Avg:
		if isNumeric(dt) {
			return catalog.Double, nil
		}
	case planner.Sum:
		switch {
		case isInteger(dt):
			return catalog.BigInt, nil
		case isDecimal(dt):
			return catalog.Decimal(catalog.MaxDecimalPrecision, int(asDecimal(dt).Scale)), nil
		case isFloat(dt):
			return catalog.Double, nil
		}
	default:
		if catalog.KeyableType(dt) && dt.ID() != arrow.BOOL {
			return dt, nil
		}
	}
	return nil, b.noAggregate(fn, dt, location)
}

func (b *binder) noAggregate(fn planner.AggFunc, dt arrow.DataType, location int32) error {
	return b.errorAt(sqlstate.UndefinedFunction, location, "function %s(%s) does not exist", fn, catalog.TypeName(dt)).
		WithHint("Cast the argument to a type that %s takes.", fn)
}

// aggregateFilter applies FILTER (WHERE ...) by making the argument NULL, which
// nearly every aggregate passes over, where the condition is not true.
func (b *binder) aggregateFilter(call *aggregateCall, f *pgquery.FuncCall, c *exprContext) error {
	if f.AggFilter == nil {
		return nil
	}
	if call.fn == planner.ArrayAgg {
		return b.unsupported(f.Location, "FILTER on array_agg")
	}
	inner := inAggregate(c)
	inner.clause = "FILTER"
	cond, err := b.expr(f.AggFilter, inner)
	if err != nil {
		return err
	}
	if cond, err = b.toBoolean(cond, "FILTER"); err != nil {
		return err
	}
	if len(call.args) == 0 {
		call.args = []planner.Expr{planner.BoolLiteral(true)}
	}
	arg := call.args[0]
	call.args[0] = &planner.Case{
		Whens: []planner.When{{Cond: cond, Then: arg}},
		Else:  &planner.Literal{DataType: arg.Type()}, DataType: arg.Type(),
	}
	return nil
}
