package bind

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
)

// Returning is a RETURNING clause. Its expressions are over the rows that the
// statement wrote or deleted; see the statement for their columns.
type Returning struct {
	Exprs []planner.Expr
	// Schema is the result as the client is told of it.
	Schema *arrow.Schema
}

// OnConflict says what an INSERT does with a row whose primary key is taken:
// leave it out (Set is nil), or change the stored row.
type OnConflict struct {
	// Set are the values of the changed row, one per column of the table, of
	// exactly the column's type. They and Where are over the columns of the
	// stored row followed by those of the row that was to be inserted.
	Set []planner.Expr
	// Where, when not nil, says which stored rows are changed; rows in conflict
	// with others are left out.
	Where planner.Expr
	// Replace says that the changed row is the row that was to be inserted, so
	// that the stored one need not be read.
	Replace bool
}

// Update changes rows of Table. The columns of Source are the tablet and the
// id of a stored row, both BIGINT and never NULL, and the row's new values, one
// per column of the table, of exactly the column's type; with Returning also
// the columns of FROM. Returning's columns are Source's after the first two.
type Update struct {
	Table   *catalog.Table
	Columns []int // ordinals that SET names
	Source  planner.Node
	// Joined says that Source may have a row of the table more than once; one
	// of the repetitions is as good as another.
	Joined    bool
	Returning *Returning
}

// Delete removes rows of Table. The columns of Source are the tablet and the id
// of a stored row, both BIGINT and never NULL; with Returning also the row's
// columns and those of USING. Returning's columns are Source's after the first
// two.
type Delete struct {
	Table     *catalog.Table
	Source    planner.Node
	Joined    bool // as in Update
	Returning *Returning
}

// Truncate empties tables.
type Truncate struct {
	Tables []*catalog.Table
}

// AlterTable changes the description of a table, all Actions or none.
type AlterTable struct {
	Name     TableName
	IfExists bool
	Actions  []AlterAction
}

// AlterKind is a kind of AlterAction.
type AlterKind string

// What can be altered.
const (
	AddColumn    AlterKind = "add column"
	DropColumn   AlterKind = "drop column"
	RenameColumn AlterKind = "rename column"
	RenameTable  AlterKind = "rename"
	SetSchema    AlterKind = "set schema"
	SetAutoSplit AlterKind = "set auto_split"
)

// AlterAction is one step of an AlterTable.
type AlterAction struct {
	Kind    AlterKind
	Name    string          // the column
	NewName string          // of RenameColumn and RenameTable, the schema of SetSchema
	Column  *catalog.Column // of AddColumn, without an id
	// Quiet is IF NOT EXISTS or IF EXISTS.
	Quiet bool
	On    bool // of SetAutoSplit
}

func (*Update) statement()     {}
func (*Delete) statement()     {}
func (*Truncate) statement()   {}
func (*AlterTable) statement() {}
