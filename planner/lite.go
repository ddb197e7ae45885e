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
// by ordinal. Filter, nil or boolean, is over the output columns and is applied
// by the scan itself.
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

// Join combines two inputs: output columns are the left's, then the right's.
// On holds the equalities; Residual, nil or boolean, is over the output and
// holds the rest of the condition.
type Join struct {
	Kind     JoinKind
	Left     Node
	Right    Node
	On       []JoinKey
	Residual Expr
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
