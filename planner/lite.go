package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Node is one node of the lite IR, the tree that binding produces, rewrites
// transform and Distribute lowers. Nodes refer to their inputs' columns by
// ordinal. A node is immutable once built; rewrites build new ones.
type Node interface {
	// Schema is the node's output: names, public SQL types, nullability.
	Schema() *arrow.Schema
	// Inputs are the children, left to right.
	Inputs() []Node
}

// Scan reads a base table. The output is the Projection, columns of the table
// by ordinal, RowIDColumn and TabletColumn among them. Filter, nil or boolean,
// is over the output columns and is applied by the scan itself.
type Scan struct {
	Table      *catalog.Table
	Alias      string // for display
	Projection []int
	Filter     Expr
}

// Filter keeps the rows for which Predicate is true.
type Filter struct {
	Input     Node
	Predicate Expr
}

// Project computes one output column per expression.
type Project struct {
	Input Node
	Exprs []Expr
	Names []string
}

// Aggregate groups by input columns and computes aggregates: the output is the
// group columns, then one column per call. Without GroupBy it yields exactly
// one row.
type Aggregate struct {
	Input   Node
	GroupBy []int
	Calls   []AggCall
}

// JoinKind is the kind of a join.
type JoinKind string

// The kinds of join. Inner, left, right and full joins output the left's
// columns, then the right's, those of a side that can be missing made nullable.
// Semi and anti joins output the left's columns only: the rows with, and those
// without, a match. A mark join outputs the left's columns and one nullable
// boolean, the value of "left key IN (right keys)" in three-valued logic. A
// single join is a left join that fails with 21000 when a left row has more
// than one match: a scalar subquery. CrossJoin has no keys.
const (
	InnerJoin  JoinKind = "inner"
	LeftJoin   JoinKind = "left"
	RightJoin  JoinKind = "right"
	FullJoin   JoinKind = "full"
	SemiJoin   JoinKind = "semi"
	AntiJoin   JoinKind = "anti"
	MarkJoin   JoinKind = "mark"
	SingleJoin JoinKind = "single"
	CrossJoin  JoinKind = "cross"
)

// Join combines two inputs; JoinKind says what its output is. On holds the
// equalities, which may be none; Residual, nil or boolean, holds the rest of
// the condition, over the left's columns followed by the right's, whatever the
// output. Two rows match when all keys are equal and Residual is true.
//
// For a mark join the keys that are not NullSafe are the comparison of IN, and
// Residual and the NullSafe keys choose the right rows that it looks at: the
// mark is true if one of these is equal in all keys, else NULL if for one of
// these the comparison is NULL, else false.
type Join struct {
	Kind     JoinKind
	Left     Node
	Right    Node
	On       []JoinKey
	Residual Expr
}

// Union is the rows of all its branches, repetitions included. Branches have
// equal types column by column; names are the first one's.
type Union struct {
	Branches []Node
}

// Window computes functions over the rows around each row: the output is the
// input's columns, then one column per call. Rows fall into partitions by the
// PartitionBy columns and are ordered by OrderBy within them; the order of the
// output is not defined.
type Window struct {
	Input       Node
	PartitionBy []int
	OrderBy     []SortKey
	Calls       []WindowCall
}

// Sort orders its input and, when Limit >= 0, keeps the first Limit rows.
type Sort struct {
	Input Node
	Keys  []SortKey
	Limit int64 // -1: all
}

// Limit skips Offset rows and keeps the next Limit ones (-1: all).
type Limit struct {
	Input  Node
	Limit  int64
	Offset int64
}

// Values is an inline table of constant rows.
type Values struct {
	Fields *arrow.Schema
	Rows   [][]Expr
}
