package bind

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
)

// Catalog answers what the binder asks about tables.
type Catalog interface {
	// Table returns the table, or an error with code UndefinedTable (or nil,
	// nil) when there is none of that name. An empty schema stands for a name
	// without one, which is looked for where the session says.
	Table(ctx context.Context, schema, name string) (*catalog.Table, error)
	// TableNames lists the tables of a schema, with an empty one those that can be
	// named without, for hints in errors.
	TableNames(ctx context.Context, schema string) []string
}

// Session is what binding takes from the client's session. The zero value is
// that of a client that has set nothing.
type Session struct {
	// CreateIn is the schema of new tables whose names have none; "" is
	// catalog.DefaultSchema.
	CreateIn string
	// Zone is the time zone, as exec.CheckZone takes it; "" is UTC.
	Zone string
	// User is who asks, "" where nobody has to say who they are.
	User string
}

// Statement is a bound statement: one of *Query, *Insert, *Update, *Delete,
// *Truncate, *CreateTable, *AlterTable, *DropTable, *CreateSchema, *DropSchema,
// *Set, *Show, *Call and *Explain.
type Statement interface {
	statement()
}

// Bound is a statement ready for planning once its parameters have values.
type Bound struct {
	Statement Statement
	// Params are the types of $1, $2, ...
	Params []arrow.DataType

	limits map[*planner.Limit]limitExprs
	zone   string // of the session
	clock  bool   // the statement asks for the time of its execution
}

// Timeless reports whether the statement may be executed as it is: it has no
// parameters and does not ask for the time. Otherwise Substitute makes what is
// executed.
func (b *Bound) Timeless() bool { return len(b.Params) == 0 && !b.clock }

// Query is a SELECT or VALUES statement.
type Query struct {
	Node planner.Node
	// Schema is what the client is told and what must be streamed to it. It
	// does not change when parameters get values, while Node's nullability may
	// become stricter.
	Schema *arrow.Schema
}

// Insert appends the rows of Source to Table. Source has one column per column
// of the table, in table order, of exactly the column's type: expressions are
// cast, defaults filled in, other unnamed columns NULL. What depends on
// values (NOT NULL, MaxLength, keys) is for the writer to check.
type Insert struct {
	Table *catalog.Table
	// Columns are the ordinals that the statement names, in its order.
	Columns []int
	Source  planner.Node
	// Conflict is nil when a taken key is an error.
	Conflict *OnConflict
	// Returning is over the columns of the table, of the rows as stored.
	Returning *Returning
}

// CreateTable describes a new table. Its Table has no ids, tablets or version;
// Replicas and Partitioning.Buckets hold the values of this struct.
type CreateTable struct {
	Table       *catalog.Table
	IfNotExists bool
	// Temporary tables are the session's own; their schema, which is empty here, is
	// for whoever runs the statement to give.
	Temporary bool
	// Tablets is how many tablets to cut the table into: for hash partitioning
	// even runs of buckets, for ranges len(Splits)+1, else 1.
	Tablets int
	// Replicas of each tablet; 0 leaves the choice to the cluster.
	Replicas int
	// Buckets of the hash space, 0 when the table is not hash partitioned.
	Buckets uint32
	// Splits are the lowest keys of the second and later range tablets, one
	// literal of the partition column's type each, ascending.
	Splits []*planner.Literal
}

// TableName is the name of a table, with an empty schema if it has none.
type TableName struct {
	Schema string
	Name   string
}

// DropTable removes tables. Without IfExists all must exist before any goes.
type DropTable struct {
	Names    []TableName
	IfExists bool
}

func (*Query) statement()       {}
func (*Insert) statement()      {}
func (*CreateTable) statement() {}
func (*DropTable) statement()   {}
