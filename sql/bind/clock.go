package bind

import (
	"time"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
)

// clockParam is the ordinal of the parameter that stands for the time at which
// a statement is executed.
const clockParam = 0

// clockFuncs are the functions that return it.
var clockFuncs = map[string]bool{"now": true, "statement_timestamp": true, "transaction_timestamp": true}

// now is the time of the statement, the same wherever it is asked for.
func (b *binder) now(location int32) planner.Expr {
	b.clock = true
	return b.at(&planner.Param{Ordinal: clockParam, DataType: catalog.TimestampTZ}, location)
}

// sqlValue binds CURRENT_DATE and its like, in the session's time zone.
func (b *binder) sqlValue(f *pgquery.SQLValueFunction) (planner.Expr, error) {
	if e, ok := b.who(f); ok {
		return e, nil
	}
	now := b.now(f.Location)
	switch f.Op {
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP:
		return now, nil
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_SCHEMA:
		return b.at(&planner.Literal{Value: b.currentSchema(), DataType: catalog.Text}, f.Location), nil
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_DATE:
		return b.cast(now, catalog.Date, f.Location), nil
	case pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP:
		return b.cast(now, catalog.Timestamp, f.Location), nil
	case pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME:
		return b.at(&planner.Cast{Arg: b.cast(now, catalog.Timestamp, f.Location), DataType: catalog.Time}, f.Location), nil
	}
	return nil, b.unsupported(f.Location, "this form of CURRENT_TIME or its like")
}

// clockValue is the current time as the value of the clock parameter.
func clockValue() *planner.Literal {
	return &planner.Literal{Value: time.Now().UnixMicro(), DataType: catalog.TimestampTZ}
}
