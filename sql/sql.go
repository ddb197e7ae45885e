package sql

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sql/bind"
	"skein/sql/parse"
)

// The vocabulary of bound statements; see package bind.
type (
	// Statement is one parsed statement, immutable and shareable.
	Statement = parse.Statement
	// Catalog answers what binding asks about tables.
	Catalog = bind.Catalog
	// BoundStatement is a bound statement with the types of its parameters.
	BoundStatement = bind.Bound
	// Bound is one of *Query, *Insert, *Update, *Delete, *Truncate,
	// *CreateTable, *AlterTable, *DropTable, *CreateSchema, *DropSchema, *CreateUser,
	// *AlterUser, *DropUser, *Set,
	// *Show, *Call, *Explain.
	Bound = bind.Statement
	// Query is a bound SELECT or VALUES.
	Query = bind.Query
	// Insert is a bound INSERT.
	Insert = bind.Insert
	// OnConflict is the ON CONFLICT of an Insert.
	OnConflict = bind.OnConflict
	// Returning is the RETURNING of an Insert, Update or Delete.
	Returning = bind.Returning
	// Update is a bound UPDATE.
	Update = bind.Update
	// Delete is a bound DELETE.
	Delete = bind.Delete
	// Truncate is a bound TRUNCATE.
	Truncate = bind.Truncate
	// AlterTable is a bound ALTER TABLE.
	AlterTable = bind.AlterTable
	// AlterAction is one step of an AlterTable.
	AlterAction = bind.AlterAction
	// CreateTable is a bound CREATE TABLE.
	CreateTable = bind.CreateTable
	// DropTable is a bound DROP TABLE.
	DropTable = bind.DropTable
	// CreateSchema is a bound CREATE SCHEMA.
	CreateSchema = bind.CreateSchema
	// DropSchema is a bound DROP SCHEMA.
	DropSchema = bind.DropSchema
	// CreateUser is a bound CREATE USER.
	CreateUser = bind.CreateUser
	// AlterUser is a bound ALTER USER.
	AlterUser = bind.AlterUser
	// DropUser is a bound DROP USER.
	DropUser = bind.DropUser
	// Password is one as a statement spells it, which prints as stars.
	Password = bind.Password
	// Set is a bound SET or RESET.
	Set = bind.Set
	// Show is a bound SHOW.
	Show = bind.Show
	// Session is what binding takes from the client's session.
	Session = bind.Session
	// Call is a bound CALL of a Procedure.
	Call = bind.Call
	// Procedure names what a CALL can run.
	Procedure = bind.Procedure
	// Explain is a bound EXPLAIN.
	Explain = bind.Explain
	// TableName is a resolved table name.
	TableName = bind.TableName
)

// The procedures, described where package bind defines them.
const (
	CancelQuery    = bind.CancelQuery
	RotateKey      = bind.RotateKey
	SetSetting     = bind.SetSetting
	MoveReplica    = bind.MoveReplica
	AbortMove      = bind.AbortMove
	TransferLeader = bind.TransferLeader
	DrainNode      = bind.DrainNode
	ActivateNode   = bind.ActivateNode
	RemoveNode     = bind.RemoveNode
	SplitTablet    = bind.SplitTablet
	MergeTablets   = bind.MergeTablets
)

// Parse cuts text into statements; a text of white space and comments has
// none. `?` placeholders count as $1, $2, ... from left to right. Errors are
// *sqlstate.Error with the position of the offending token.
func Parse(text string) ([]*Statement, error) { return parse.Parse(text) }

// Bind resolves a statement against the catalog, as a session without settings
// sees it: see BindIn.
func Bind(ctx context.Context, stmt *Statement, tables Catalog, params []arrow.DataType) (*BoundStatement, error) {
	return bind.Bind(ctx, stmt, Session{}, tables, params)
}

// BindIn resolves a statement against the catalog for a session. params gives
// the types of parameters the client knows, nil entries and missing ones are
// inferred; BoundStatement.Params holds them all. Errors are *sqlstate.Error
// with position and hint, or what the catalog returned.
func BindIn(ctx context.Context, stmt *Statement, session Session, tables Catalog, params []arrow.DataType) (*BoundStatement, error) {
	return bind.Bind(ctx, stmt, session, tables, params)
}

// CastIn is the cast of an expression to a type in a session with a time zone.
func CastIn(zone string, e planner.Expr, dt arrow.DataType) planner.Expr {
	return bind.CastIn(zone, e, dt)
}

// Default is the constant that a column takes when a write leaves it out.
func Default(ctx context.Context, c *catalog.Column) (planner.Expr, error) {
	return bind.Default(ctx, c)
}

// FormatCreateTable writes the canonical CREATE TABLE statement of a table,
// with every default visible. Binding it yields the same table again.
func FormatCreateTable(t *catalog.Table) string { return bind.FormatCreateTable(t) }

// ReservedWords lists the keywords that cannot name a table or column, sorted.
func ReservedWords() []string { return bind.ReservedWords() }

// The bounds of a statement's text in bytes, of the tables that it refers to,
// and of a table's columns.
const (
	MaxTextBytes = parse.MaxTextBytes
	MaxTableRefs = bind.MaxTableRefs
	MaxColumns   = bind.MaxColumns
)

// PostgresVersion is the version of PostgreSQL whose grammar is read.
const PostgresVersion = "17.0"
