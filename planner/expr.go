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

// The aggregate functions. All but count(*) pass over NULLs, and all but the
// counts are NULL for a group without values. Statistics take and give double
// precision. A percentile takes the double values of Arg, the fraction as
// Args[0] and its direction from OrderBy; a string_agg takes its separator as
// Args[0]; array_agg alone keeps NULLs.
const (
	Count          AggFunc = "count"
	Sum            AggFunc = "sum"
	Min            AggFunc = "min"
	Max            AggFunc = "max"
	Avg            AggFunc = "avg"
	BoolAnd        AggFunc = "bool_and"
	BoolOr         AggFunc = "bool_or"
	StddevSamp     AggFunc = "stddev_samp"
	StddevPop      AggFunc = "stddev_pop"
	VarSamp        AggFunc = "var_samp"
	VarPop         AggFunc = "var_pop"
	AnyValue       AggFunc = "any_value"
	StringAgg      AggFunc = "string_agg"
	ArrayAgg       AggFunc = "array_agg"
	PercentileCont AggFunc = "percentile_cont"
)

// AggCall is one aggregate of an Aggregate node. Arg is a column ordinal of
// the input, -1 only for count(*).
type AggCall struct {
	Func AggFunc
	Arg  int
	// Args are the columns of the further arguments.
	Args []int
	// Distinct folds each different Arg once.
	Distinct bool
	// OrderBy is the order in which rows are folded, over the input's columns;
	// empty where it is up to the operator.
	OrderBy  []SortKey
	DataType arrow.DataType // result
	Name     string         // output column name
}

// Decomposable reports whether the call can be computed from the states of
// PartialAggregates; other calls need a CompleteAggregate.
func (c *AggCall) Decomposable() bool {
	if len(c.OrderBy) > 0 {
		return false
	}
	switch c.Func {
	case StringAgg, ArrayAgg, PercentileCont:
		return false
	case Min, Max, BoolAnd, BoolOr, AnyValue:
		return true // repeated values change nothing
	}
	return !c.Distinct
}

// SortKey orders by one input column.
type SortKey struct {
	Column     int
	Descending bool
	NullsFirst bool
}

// JoinKey is one equality "left.column = right.column" of a join, as ordinals
// of the left and of the right input. NullSafe compares with IS NOT DISTINCT
// FROM: NULLs match one another.
type JoinKey struct {
	Left     int
	Right    int
	NullSafe bool
}

// WindowFunc names a function of a window: one of the constants below or any
// AggFunc.
type WindowFunc string

// The functions that are windows' own. ntile(n), lag and lead(value, offset,
// default), first_value, last_value(value) and nth_value(value, n) take these
// arguments, all of them always given, as input columns. Lag, lead and the
// ranks look at the whole partition, the others at the frame.
const (
	RowNumber   WindowFunc = "row_number"
	Rank        WindowFunc = "rank"
	DenseRank   WindowFunc = "dense_rank"
	PercentRank WindowFunc = "percent_rank"
	CumeDist    WindowFunc = "cume_dist"
	Ntile       WindowFunc = "ntile"
	Lag         WindowFunc = "lag"
	Lead        WindowFunc = "lead"
	FirstValue  WindowFunc = "first_value"
	LastValue   WindowFunc = "last_value"
	NthValue    WindowFunc = "nth_value"
)

// WindowCall is one function of a Window node. Args are input columns, empty
// for count(*).
type WindowCall struct {
	Func     WindowFunc
	Args     []int
	Frame    Frame
	DataType arrow.DataType
	Name     string
}

// Frame is the part of a partition that a window function sees from one row.
type Frame struct {
	Mode    FrameMode
	Start   FrameBound
	End     FrameBound
	Exclude FrameExclude
}

// DefaultFrame is the frame of a window that names none: all rows up to the
// current one's peers.
func DefaultFrame() Frame {
	return Frame{Mode: RangeFrame, Start: FrameBound{Kind: UnboundedPreceding}, End: FrameBound{Kind: CurrentRow}}
}

// FrameMode is what the bounds of a frame count.
type FrameMode string

// The frame modes: rows, differences of the one order key, groups of peers.
const (
	RowsFrame   FrameMode = "rows"
	RangeFrame  FrameMode = "range"
	GroupsFrame FrameMode = "groups"
)

// BoundKind says where a frame begins or ends.
type BoundKind string

// The bounds of a frame.
const (
	UnboundedPreceding BoundKind = "unbounded preceding"
	Preceding          BoundKind = "preceding"
	CurrentRow         BoundKind = "current row"
	Following          BoundKind = "following"
	UnboundedFollowing BoundKind = "unbounded following"
)

// FrameBound is one end of a frame. Offset, of Preceding and Following only, is
// not NULL and not negative: a bigint, or in a range frame a value that the
// order key's type can be moved by (its own type for numbers, an interval for
// dates, times and timestamps).
type FrameBound struct {
	Kind   BoundKind
	Offset *Literal
}

// FrameExclude takes rows around the current one out of its frame.
type FrameExclude string

// What a frame excludes.
const (
	ExcludeNothing FrameExclude = ""
	ExcludeCurrent FrameExclude = "current row"
	ExcludeGroup   FrameExclude = "group"
	ExcludeTies    FrameExclude = "ties"
)
