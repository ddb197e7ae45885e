package bind

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/exec"
	"skein/planner"
	"skein/sqlstate"
)

// foreignFunctions are PostgreSQL functions that need what the language does
// not have; saying so helps more than "does not exist".
var foreignFunctions = []string{
	"bit_and", "bit_or", "bit_xor", "json_agg", "jsonb_agg", "corr", "percentile_disc", "mode",
	"setseed", "random_normal", "nextval", "currval", "generate_series", "unnest",
	"clock_timestamp", "normalize", "xmlexists",
}

// funcCall binds a call of an aggregate or of a function of the registry.
func (b *binder) funcCall(f *pgquery.FuncCall, c *exprContext) (planner.Expr, error) {
	name, err := b.functionName(f)
	if err != nil {
		return nil, err
	}
	if f.Over != nil {
		return b.windowCall(name, f, c)
	}
	if windowFuncs[name] != "" {
		return nil, b.errorAt(sqlstate.WindowingError, f.Location, "window function %s needs an OVER clause", name)
	}
	if clockFuncs[name] && len(f.Args) == 0 {
		return b.now(f.Location), nil
	}
	if fn, ok := aggregateFunc(name); ok {
		return b.aggregate(fn, f, c)
	}
	if slices.Contains(foreignFunctions, name) {
		return nil, b.unsupported(f.Location, "function %s", name)
	}
	if f.AggStar {
		return nil, b.errorAt(sqlstate.UndefinedFunction, f.Location, "function %s(*) does not exist", name)
	}
	if err := b.onlyFields(f, "funcname", "args"); err != nil {
		return nil, err
	}
	args, err := b.exprs(f.Args, c)
	if err != nil {
		return nil, err
	}
	if fn, ok := infoFuncs(name); ok {
		return b.infoCall(name, fn, args, f.Location)
	}
	if name == "extract" && len(args) > 0 {
		if name, err = b.extractFunction(args[0]); err != nil {
			return nil, err
		}
	}
	switch {
	case name == "concat" || name == "concat_ws":
		if args, err = b.texts(args); err != nil {
			return nil, err
		}
	case name == "timezone" && len(args) == 1: // AT LOCAL
		args = []planner.Expr{zoneName(b.zone()), args[0]}
	case name == "timezone" && isUntyped(args[0]):
		if args[0], err = b.settled(args[0]); err != nil {
			return nil, err
		}
	case name == "age" && len(args) == 1:
		if args, err = b.sinceMidnight(args[0], f.Location); err != nil {
			return nil, err
		}
	}
	e, err := b.call(name, args, f.Location)
	if err == nil && (name == "round" || name == "trunc") && len(args) == 2 {
		return b.toPlaces(e, args), nil
	}
	return e, err
}

// functionName is the plain name of a function; the grammar's own calls are
// qualified with pg_catalog.
func (b *binder) functionName(f *pgquery.FuncCall) (string, error) {
	parts := stringsOf(f.Funcname)
	if len(parts) == 2 && parts[0] == "pg_catalog" {
		parts = parts[1:]
	}
	if len(parts) != 1 {
		return "", b.errorAt(sqlstate.UndefinedFunction, f.Location, "function %s does not exist", strings.Join(parts, "."))
	}
	if parts[0] == "position" {
		// POSITION(a IN b) arrives with its arguments in strpos order.
		return "strpos", nil
	}
	return parts[0], nil
}

// extractFunction picks the function for EXTRACT(field FROM ...): the fields
// with a fraction have a result type of their own.
func (b *binder) extractFunction(field planner.Expr) (string, error) {
	text := ""
	switch f := field.(type) {
	case *untyped:
		text = f.text
	case *planner.Literal:
		text, _ = f.Value.(string)
	}
	name, err := exec.ExtractFunction(text)
	return name, b.place(err, b.where(field))
}

// texts converts arguments that take any type to text.
func (b *binder) texts(args []planner.Expr) ([]planner.Expr, error) {
	for i, a := range args {
		var err error
		boolean := a.Type().ID() == arrow.BOOL
		if args[i], err = b.convert(a, catalog.Text); err != nil {
			return nil, err
		}
		if boolean { // t and f, where a cast gives true and false
			one := &planner.Literal{Value: int64(1), DataType: catalog.Integer}
			if args[i], err = b.call("left", []planner.Expr{args[i], one}, b.where(a)); err != nil {
				return nil, err
			}
		}
	}
	return args, nil
}

// sinceMidnight are the arguments of age with one: from a timestamp to the
// midnight at which today began.
func (b *binder) sinceMidnight(from planner.Expr, location int32) ([]planner.Expr, error) {
	from, err := b.convert(from, catalog.Timestamp)
	if err != nil {
		return nil, err
	}
	today := b.cast(b.now(location), catalog.Date, location)
	return []planner.Expr{b.at(&planner.Cast{Arg: today, DataType: catalog.Timestamp}, location), from}, nil
}

// toPlaces gives a decimal that was rounded to a constant number of places that
// many, as PostgreSQL prints it. The value fits: its digits are no more than before.
func (b *binder) toPlaces(e planner.Expr, args []planner.Expr) planner.Expr {
	places, ok := args[1].(*planner.Literal)
	if !ok {
		return e
	}
	n, ok := places.Value.(int64)
	dt, decimal := e.Type().(*arrow.Decimal128Type)
	if !ok || !decimal {
		return e
	}
	whole := int(dt.Precision - dt.Scale)
	scale := int(min(max(n, 0), int64(catalog.MaxDecimalPrecision-whole)))
	to := catalog.Decimal(max(whole+scale, 1), scale)
	if arrow.TypeEqual(to, e.Type()) {
		return e
	}
	cast := &planner.Cast{Arg: e, DataType: to}
	b.at(cast, b.where(e))
	if folded, err := b.fold(cast); err == nil {
		return folded
	}
	return cast
}
