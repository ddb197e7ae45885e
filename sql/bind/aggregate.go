package bind

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

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
	fn  planner.AggFunc
	arg planner.Expr // over the FROM columns; nil for count(*)
	dt  arrow.DataType
}

func aggregateFunc(name string) (planner.AggFunc, bool) {
	switch fn := planner.AggFunc(name); fn {
	case planner.Count, planner.Sum, planner.Min, planner.Max, planner.Avg:
		return fn, true
	}
	return "", false
}

// aggregate binds an aggregate call. Its argument is over the input rows, and
// equal calls share one result.
func (b *binder) aggregate(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	if err := b.onlyFields(f, "funcname", "args", "agg_star", "agg_distinct", "agg_filter"); err != nil {
		return nil, err
	}
	if c.aggregates == nil {
		return nil, b.errorAt(sqlstate.GroupingError, f.Location, "aggregate functions are not allowed in %s", c.clause)
	}
	arg, err := b.aggregateArgument(fn, f, c)
	if err != nil {
		return nil, err
	}
	dt := catalog.BigInt
	if arg != nil {
		if dt, err = b.aggregateType(fn, arg.Type(), f.Location); err != nil {
			return nil, err
		}
	}
	if f.AggDistinct && fn != planner.Min && fn != planner.Max {
		return nil, b.unsupported(f.Location, "DISTINCT in %s", fn)
	}
	if arg, err = b.aggregateFilter(arg, f, c); err != nil {
		return nil, err
	}
	call := aggregateCall{fn, arg, dt}
	index := -1
	for i, known := range c.aggregates.calls {
		if known.fn == fn && (known.arg == nil) == (arg == nil) && (arg == nil || equal(known.arg, arg)) {
			index = i
		}
	}
	if index < 0 {
		index = len(c.aggregates.calls)
		c.aggregates.calls = append(c.aggregates.calls, call)
	}
	return b.at(&aggregateRef{index, string(fn), dt, fn != planner.Count}, f.Location), nil
}

func inAggregate(c *exprContext) *exprContext {
	return &exprContext{scope: c.scope, clause: "the argument of an aggregate", noColumns: c.noColumns}
}

func (b *binder) aggregateArgument(fn planner.AggFunc, f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	if f.AggStar {
		if fn != planner.Count {
			return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "function %s(*) does not exist", fn)
		}
		return nil, nil
	}
	if len(f.Args) != 1 {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "aggregate %s takes one argument, not %d", fn, len(f.Args))
	}
	arg, err := b.expr(f.Args[0], inAggregate(c))
	if err != nil {
		return nil, err
	}
	if isUntyped(arg) && (fn == planner.Sum || fn == planner.Avg) {
		return b.convert(arg, catalog.Double)
	}
	return b.settled(arg)
}

// aggregateType is the result type of an aggregate over an argument type.
func (b *binder) aggregateType(fn planner.AggFunc, dt arrow.DataType, location int32) (arrow.DataType, error) {
	switch fn {
	case planner.Count:
		return catalog.BigInt, nil
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
	return nil, b.errorAt(sqlstate.UndefinedFunction, location, "function %s(%s) does not exist", fn, catalog.TypeName(dt)).
		WithHint("Cast the argument to a type that %s takes.", fn)
}

// aggregateFilter applies FILTER (WHERE ...) by making the argument NULL, which
// every aggregate passes over, where the condition is not true.
func (b *binder) aggregateFilter(arg planner.Expr, f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	if f.AggFilter == nil {
		return arg, nil
	}
	inner := inAggregate(c)
	inner.clause = "FILTER"
	cond, err := b.expr(f.AggFilter, inner)
	if err != nil {
		return nil, err
	}
	if cond, err = b.toBoolean(cond, "FILTER"); err != nil {
		return nil, err
	}
	if arg == nil {
		arg = planner.BoolLiteral(true)
	}
	return &planner.Case{
		Whens: []planner.When{{Cond: cond, Then: arg}},
		Else:  &planner.Literal{DataType: arg.Type()}, DataType: arg.Type(),
	}, nil
}

// grouping is the aggregation of one SELECT: what its expressions may refer to
// once rows are grouped.
type grouping struct {
	b     *binder
	keys  []planner.Expr // over the FROM columns
	names []string
	calls []aggregateCall
	in    *scope

	callNames []string
}

// node aggregates the input by the keys. Keys and arguments that are not
// plain columns are computed by a Project below.
func (g *grouping) node(input planner.Node) planner.Node {
	p := &planner.Project{Input: input}
	plain := true
	place := func(e planner.Expr, name string) int {
		for i, known := range p.Exprs {
			if equal(known, e) {
				return i
			}
		}
		if _, ok := e.(*planner.Column); !ok {
			plain = false
		}
		p.Exprs = append(p.Exprs, e)
		p.Names = append(p.Names, name)
		return len(p.Exprs) - 1
	}
	a := &planner.Aggregate{}
	for i, k := range g.keys {
		a.GroupBy = append(a.GroupBy, place(k, g.names[i]))
	}
	for i, c := range g.calls {
		arg := -1
		if c.arg != nil {
			arg = place(c.arg, argumentName(c.arg, i))
		}
		a.Calls = append(a.Calls, planner.AggCall{Func: c.fn, Arg: arg, DataType: c.dt, Name: g.callNames[i]})
	}
	if len(p.Exprs) == 0 {
		plain = true
	}
	if !plain {
		a.Input = p
		return a
	}
	a.Input = input
	for i, at := range a.GroupBy {
		a.GroupBy[i] = p.Exprs[at].(*planner.Column).Index
	}
	for i := range a.Calls {
		if at := a.Calls[i].Arg; at >= 0 {
			a.Calls[i].Arg = p.Exprs[at].(*planner.Column).Index
		}
	}
	return a
}

func argumentName(e planner.Expr, i int) string {
	if c, ok := e.(*planner.Column); ok {
		return c.Name
	}
	return fmt.Sprintf("arg_%d", i+1)
}

// rewrite turns an expression over the input rows into one over the groups: keys
// and aggregates become columns, and no other column may remain.
func (g *grouping) rewrite(e planner.Expr) (planner.Expr, error) {
	location := g.b.where(e)
	for i, k := range g.keys {
		if equal(k, e) {
			return g.b.at(&planner.Column{Index: i, Name: g.names[i], DataType: k.Type(), Null: k.Nullable()}, location), nil
		}
	}
	switch x := e.(type) {
	case *aggregateRef:
		return g.b.at(&planner.Column{Index: len(g.keys) + x.index, Name: g.callNames[x.index], DataType: x.dt, Null: x.null}, location), nil
	case *planner.Column:
		return nil, g.b.errorAt(sqlstate.GroupingError, location,
			"column %q must appear in GROUP BY or be used in an aggregate function", g.qualified(x))
	}
	out, err := rebuild(e, g.rewrite)
	if err != nil {
		return nil, err
	}
	return g.b.at(out, location), nil
}

// qualified is a column's name with its relation's.
func (g *grouping) qualified(c *planner.Column) string {
	for _, r := range g.in.relations {
		for _, rc := range r.columns {
			if rc.index == c.Index && r.alias != "" {
				return r.alias + "." + rc.name
			}
		}
	}
	return c.Name
}

// hasAggregate reports whether an expression contains an aggregate.
func hasAggregate(e planner.Expr) bool {
	if _, ok := e.(*aggregateRef); ok {
		return true
	}
	found := false
	_, _ = rebuild(e, func(a planner.Expr) (planner.Expr, error) {
		found = found || hasAggregate(a)
		return a, nil
	})
	return found
}
