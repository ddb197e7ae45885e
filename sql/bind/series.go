package bind

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// Bounds of generate_series: a series of numbers is a join of lists of
// seriesRadix numbers, one of times is written out.
const (
	seriesRadix    = 1024
	maxSeriesLists = 4
	maxSeriesTimes = 100_000
)

// rangeFunction binds a function in FROM: generate_series with constant
// arguments.
func (b *binder) rangeFunction(r *pgquery.RangeFunction) (*source, error) {
	items := r.Functions[0].GetList().GetItems()
	f := items[0].GetFuncCall()
	if f == nil {
		return nil, b.unsupported(locationOf(items[0]), "a function in FROM that is not called by its name")
	}
	name, err := b.functionName(f)
	if err != nil {
		return nil, err
	}
	if name != "generate_series" {
		return nil, b.unsupported(f.Location, "function %s in FROM", name)
	}
	if err := b.onlyFields(r, "functions", "alias"); err != nil {
		return nil, err
	}
	if err := b.onlyFields(f, "funcname", "args"); err != nil {
		return nil, err
	}
	if len(f.Args) < 2 || len(f.Args) > 3 {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "function generate_series takes two or three arguments")
	}
	args := make([]planner.Expr, len(f.Args))
	for i, a := range f.Args {
		if args[i], err = b.expr(a, &exprContext{scope: &scope{}, clause: "FROM", noColumns: "arguments of generate_series"}); err != nil {
			return nil, err
		}
		if hasParam(args[i]) {
			return nil, b.unsupported(locationOf(a), "a parameter in generate_series")
		}
	}
	node, dt, err := b.series(args, f.Location)
	if err != nil {
		return nil, err
	}
	column := name
	if r.Alias != nil {
		column = r.Alias.Aliasname // a function's only column is named after it
	}
	rel := &relation{alias: name, location: f.Location, columns: []scopeColumn{{column, 0, dt, false}}}
	if err := b.applyAlias(rel, r.Alias); err != nil {
		return nil, err
	}
	return &source{node, &scope{[]*relation{rel}, rel.columns}, 1}, nil
}

// series is the plan of a series and the type of its column.
func (b *binder) series(args []planner.Expr, location int32) (planner.Node, arrow.DataType, error) {
	first := args[0].Type()
	switch {
	case isUntyped(args[0]) || isInteger(first):
		return b.integerSeries(args, location)
	case first.ID() == arrow.DATE32 || first.ID() == arrow.TIMESTAMP:
		return b.timeSeries(args, location)
	}
	return nil, nil, b.unsupported(location, "generate_series of %s", typesNamed(first))
}

// seriesArgs evaluates the arguments in the given types; ok is false when one
// is NULL, and the series empty.
func (b *binder) seriesArgs(args []planner.Expr, types ...arrow.DataType) (out []*planner.Literal, ok bool, err error) {
	ok = true
	for i, a := range args {
		if !isUntyped(a) && !implicit(a.Type(), types[i]) {
			return nil, false, b.errorAt(sqlstate.UndefinedFunction, b.where(a), "generate_series cannot take an argument of type %s here", typesNamed(a.Type()))
		}
		e, err := b.convert(a, types[i])
		if err != nil {
			return nil, false, err
		}
		l, err := evaluate(e)
		if err != nil {
			return nil, false, b.place(err, b.where(a))
		}
		ok = ok && l.Value != nil
		out = append(out, l)
	}
	return out, ok, nil
}

func (b *binder) integerSeries(args []planner.Expr, location int32) (planner.Node, arrow.DataType, error) {
	dt := catalog.Integer
	for _, a := range args {
		if !isUntyped(a) && a.Type().ID() == arrow.INT64 {
			dt = catalog.BigInt
		}
	}
	values, ok, err := b.seriesArgs(args, dt, dt, dt)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return list(dt, nil), dt, nil
	}
	from, to, step := values[0].Value.(int64), values[1].Value.(int64), int64(1)
	if len(values) == 3 {
		step = values[2].Value.(int64)
	}
	switch {
	case step == 0:
		return nil, nil, b.errorAt(sqlstate.InvalidParameter, location, "step size cannot equal zero")
	case step > 0 && from > to, step < 0 && from < to:
		return list(dt, nil), dt, nil
	}
	// Differences and steps without their signs, which cannot overflow.
	span, size := uint64(to)-uint64(from), uint64(step)
	if step < 0 {
		span, size = -span, -size
	}
	count := span/size + 1 // 0 stands for 2^64
	if count <= seriesRadix && count > 0 {
		return list(dt, numbers(count, func(i uint64) int64 { return from + int64(i)*step })), dt, nil
	}
	return b.longSeries(from, step, count, dt, location)
}

// longSeries joins lists of digits: the number with the digits (a, b) is
// a*1024+b, and those below count are kept.
func (b *binder) longSeries(from, step int64, count uint64, dt arrow.DataType, location int32) (planner.Node, arrow.DataType, error) {
	rest, lists := count-1, 0
	for ; rest > 0; rest /= seriesRadix {
		lists++
	}
	if lists > maxSeriesLists || count == 0 {
		return nil, nil, b.errorAt(sqlstate.ProgramLimitExceeded, location, "generate_series has more than 2^40 rows")
	}
	// Of a step and its negative, the smaller unsigned number is its size.
	if count-1 > math.MaxInt64/min(uint64(step), -uint64(step)) {
		return nil, nil, b.errorAt(sqlstate.ProgramLimitExceeded, location, "generate_series spans more than 2^63")
	}
	var node planner.Node
	var index planner.Expr
	var err error
	for k := range lists {
		digits := list(catalog.BigInt, numbers(seriesRadix, func(i uint64) int64 { return int64(i) }))
		if k == 0 {
			// The leading digit is no larger than the last number's.
			lead := count - 1
			for range lists - 1 {
				lead /= seriesRadix
			}
			digits = list(catalog.BigInt, numbers(lead+1, func(i uint64) int64 { return int64(i) }))
			node, index = digits, &planner.Column{Index: 0, Name: "digit", DataType: catalog.BigInt}
			continue
		}
		node = &planner.Join{Kind: planner.CrossJoin, Left: node, Right: digits}
		if index, err = b.call("*", []planner.Expr{index, bigint(seriesRadix)}, location); err == nil {
			index, err = b.call("+", []planner.Expr{index, &planner.Column{Index: k, Name: "digit", DataType: catalog.BigInt}}, location)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	within, err := b.call("<", []planner.Expr{index, bigint(int64(count))}, location)
	if err != nil {
		return nil, nil, err
	}
	value, err := b.call("*", []planner.Expr{index, bigint(step)}, location)
	if err == nil {
		value, err = b.call("+", []planner.Expr{value, bigint(from)}, location)
	}
	if err != nil {
		return nil, nil, err
	}
	if !arrow.TypeEqual(dt, catalog.BigInt) {
		value = b.at(&planner.Cast{Arg: value, DataType: dt}, location)
	}
	kept := &planner.Filter{Input: node, Predicate: within}
	return &planner.Project{Input: kept, Exprs: []planner.Expr{value}, Names: []string{"generate_series"}}, dt, nil
}

func bigint(n int64) planner.Expr { return &planner.Literal{Value: n, DataType: catalog.BigInt} }

func numbers(n uint64, at func(i uint64) int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = at(uint64(i))
	}
	return out
}

// list is a table of one column of values.
func list(dt arrow.DataType, values []int64) *planner.Values {
	rows := make([][]planner.Expr, len(values))
	for i, v := range values {
		rows[i] = []planner.Expr{&planner.Literal{Value: v, DataType: dt}}
	}
	return &planner.Values{Fields: arrow.NewSchema([]arrow.Field{{Name: "generate_series", Type: dt}}, nil), Rows: rows}
}

// timeSeries adds the step again and again, as a month is not always as long.
func (b *binder) timeSeries(args []planner.Expr, location int32) (planner.Node, arrow.DataType, error) {
	if len(args) != 3 {
		return nil, nil, b.errorAt(sqlstate.UndefinedFunction, location, "generate_series of times needs a step of type interval")
	}
	dt := catalog.Timestamp
	if t, ok := args[0].Type().(*arrow.TimestampType); ok && t.TimeZone != "" {
		dt = catalog.TimestampTZ
	}
	values, ok, err := b.seriesArgs(args, dt, dt, catalog.Interval)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return list(dt, nil), dt, nil
	}
	at, to, step := values[0], values[1].Value.(int64), values[2]
	var times []int64
	up := 0
	for now := at.Value.(int64); ; {
		next, err := b.call("+", []planner.Expr{&planner.Literal{Value: now, DataType: dt}, step}, location)
		if err == nil {
			next, err = evaluate(next)
		}
		if err != nil {
			return nil, nil, b.place(err, location)
		}
		moved := next.(*planner.Literal).Value.(int64)
		if up == 0 {
			switch {
			case moved > now:
				up = 1
			case moved < now:
				up = -1
			default:
				return nil, nil, b.errorAt(sqlstate.InvalidParameter, location, "step size cannot equal zero")
			}
		}
		if up > 0 && now > to || up < 0 && now < to {
			return list(dt, times), dt, nil
		}
		if len(times) == maxSeriesTimes {
			return nil, nil, b.errorAt(sqlstate.ProgramLimitExceeded, location, "generate_series of times has more than %d rows", maxSeriesTimes)
		}
		times = append(times, now)
		now = moved
	}
}
