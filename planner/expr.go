package planner

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Expr is a bound, typed scalar expression over the columns of one input.
// Types are public SQL types (catalog.TypeName), never physical ones. Exprs
// are immutable once built and may be shared between plans.
type Expr interface {
	// Type is the SQL type of the result.
	Type() arrow.DataType
	// Nullable reports whether the result may be NULL.
	Nullable() bool
	// String prints the expression as SQL, with parentheses where needed.
	String() string
}

// Column reads column Index of the input.
type Column struct {
	Index    int
	Name     string // for display only
	DataType arrow.DataType
	Null     bool
}

// Literal is a constant. Value is nil for NULL, else by type: bool; int64 for
// smallint, integer, bigint, date (days), time (microseconds) and timestamps
// (their unit); float64 for real and double precision; decimal128.Num for
// decimals (unscaled); string for text; []byte for bytea and uuid;
// arrow.MonthDayNanoInterval for intervals.
type Literal struct {
	Value    any
	DataType arrow.DataType
}

// Call applies a function or operator of the registry, named as there:
// operators by symbol ("+", "=", "and", "not", "is null", "like"), functions by
// name. Arguments already have the types that the chosen signature takes.
type Call struct {
	Func     string
	Args     []Expr
	DataType arrow.DataType
	Null     bool
}

// Cast converts Arg to DataType, failing at run time when a value does not fit.
type Cast struct {
	Arg      Expr
	DataType arrow.DataType
}

// Case is the searched CASE: the Then of the first When that is true, else
// Else (never nil; a missing ELSE is a NULL literal).
type Case struct {
	Whens    []When
	Else     Expr
	DataType arrow.DataType
}

// When is one branch of a Case.
type When struct {
	Cond Expr
	Then Expr
}

// InList is "Arg [NOT] IN (constants)"; the list holds literals of Arg's type.
type InList struct {
	Arg    Expr
	List   []*Literal
	Negate bool
}

// Param is a statement parameter, numbered from 1, before a value is bound.
type Param struct {
	Ordinal  int
	DataType arrow.DataType
}

// AggFunc names an aggregate function.
type AggFunc string

// The aggregate functions of the first language.
const (
	Count AggFunc = "count"
	Sum   AggFunc = "sum"
	Min   AggFunc = "min"
	Max   AggFunc = "max"
	Avg   AggFunc = "avg"
)

// AggCall is one aggregate of an Aggregate node. Arg is a column ordinal of
// the input, -1 only for count(*).
type AggCall struct {
	Func     AggFunc
	Arg      int
	DataType arrow.DataType // result
	Name     string         // output column name
}

// SortKey orders by one input column.
type SortKey struct {
	Column     int
	Descending bool
	NullsFirst bool
}

// JoinKey is one equality "left.column = right.column" of a join, as ordinals
// of the left and of the right input.
type JoinKey struct {
	Left  int
	Right int
}
