package bind

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sql/parse"
	"skein/sqlstate"
)

// MaxTableRefs bounds how many FROM entries one statement may expand to:
// WITH queries are inlined, so that their references can multiply.
const MaxTableRefs = 512

// binder holds the state of binding one statement.
type binder struct {
	ctx     context.Context
	stmt    *parse.Statement
	tables  Catalog
	session Session

	params    []arrow.DataType  // by ordinal-1; nil while not inferred
	ctes      []*cte            // innermost last
	commons   []*planner.Common // of the statement, each before what reads it
	commonIDs planner.CommonID  // the last one given
	clock     bool              // the time of execution is asked for
	frame     *frame            // of the subquery that is being bound; nil outside
	refs      int
	loc       map[planner.Expr]int32 // where expressions stand in the text
	limits    map[*planner.Limit]limitExprs
}

// Bind resolves a statement against the catalog. params gives the types of
// parameters that the client declared: nil entries and missing ones are
// inferred from where they stand, and are text where nothing tells.
func Bind(ctx context.Context, stmt *parse.Statement, session Session, tables Catalog, params []arrow.DataType) (*Bound, error) {
	if len(params) > parse.MaxParams {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the statement declares %d parameters, the limit is %d", len(params), parse.MaxParams)
	}
	b := &binder{
		ctx: ctx, stmt: stmt, tables: tables, session: session,
		params: append([]arrow.DataType(nil), params...),
		loc:    make(map[planner.Expr]int32),
	}
	bound, err := b.statement(stmt.Tree)
	if err != nil {
		return nil, err
	}
	for i, dt := range b.params {
		if dt == nil {
			b.params[i] = catalog.Text
		}
	}
	return &Bound{Statement: bound, Params: b.params, limits: b.limits, zone: session.Zone, clock: b.clock}, nil
}

func (b *binder) statement(n *pgquery.Node) (Statement, error) {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_SelectStmt:
		return b.query(s.SelectStmt)
	case *pgquery.Node_InsertStmt:
		return b.insert(s.InsertStmt)
	case *pgquery.Node_UpdateStmt:
		return b.updateRows(s.UpdateStmt)
	case *pgquery.Node_DeleteStmt:
		return b.deleteRows(s.DeleteStmt)
	case *pgquery.Node_TruncateStmt:
		return b.truncate(s.TruncateStmt)
	case *pgquery.Node_AlterTableStmt:
		return b.alterTable(s.AlterTableStmt)
	case *pgquery.Node_RenameStmt:
		return b.rename(s.RenameStmt)
	case *pgquery.Node_CreateStmt:
		return b.createTable(s.CreateStmt)
	case *pgquery.Node_DropStmt:
		return b.drop(s.DropStmt)
	case *pgquery.Node_AlterObjectSchemaStmt:
		return b.setSchema(s.AlterObjectSchemaStmt)
	case *pgquery.Node_CreateSchemaStmt:
		return b.createSchema(s.CreateSchemaStmt)
	case *pgquery.Node_CreateRoleStmt:
		return b.createUser(s.CreateRoleStmt)
	case *pgquery.Node_AlterRoleStmt:
		return b.alterUser(s.AlterRoleStmt)
	case *pgquery.Node_DropRoleStmt:
		return b.dropUser(s.DropRoleStmt)
	case *pgquery.Node_VariableSetStmt:
		return b.set(s.VariableSetStmt)
	case *pgquery.Node_VariableShowStmt:
		return b.show(s.VariableShowStmt)
	case *pgquery.Node_CallStmt:
		return b.callProcedure(s.CallStmt)
	case *pgquery.Node_ExplainStmt:
		return b.explain(s.ExplainStmt)
	}
	return nil, b.refuseNode(n, "the statement ")
}

func (b *binder) query(s *pgquery.SelectStmt) (*Query, error) {
	out, err := b.selectStmt(s, nil)
	if err != nil {
		return nil, err
	}
	if len(out.fields) == 0 {
		return nil, b.unsupported(-1, "a SELECT without output columns")
	}
	return &Query{Node: b.withCommons(out.node), Schema: arrow.NewSchema(out.fields, nil)}, nil
}

func (b *binder) drop(s *pgquery.DropStmt) (Statement, error) {
	if err := b.onlyFields(s, "objects", "remove_type", "behavior", "missing_ok"); err != nil {
		return nil, err
	}
	switch s.RemoveType {
	case pgquery.ObjectType_OBJECT_TABLE:
		return b.dropTable(s)
	case pgquery.ObjectType_OBJECT_SCHEMA:
		return &DropSchema{
			Names: stringsOf(s.Objects), IfExists: s.MissingOk, Cascade: s.Behavior == pgquery.DropBehavior_DROP_CASCADE,
		}, nil
	}
	return nil, b.unsupported(-1, "DROP %s", objectName(s.RemoveType))
}

// dropTable binds DROP TABLE. CASCADE and RESTRICT are the same: nothing depends
// on a table.
func (b *binder) dropTable(s *pgquery.DropStmt) (*DropTable, error) {
	d := &DropTable{IfExists: s.MissingOk}
	for _, o := range s.Objects {
		parts := stringsOf(o.GetList().GetItems())
		switch len(parts) {
		case 1:
			d.Names = append(d.Names, TableName{"", parts[0]})
		case 2:
			d.Names = append(d.Names, TableName{parts[0], parts[1]})
		default:
			return nil, b.unsupported(-1, "a table name of %d parts", len(parts))
		}
	}
	return d, nil
}

// errorAt is an error at a location of the syntax tree.
func (b *binder) errorAt(code sqlstate.Code, location int32, format string, args ...any) *sqlstate.Error {
	return sqlstate.New(code, format, args...).At(b.stmt.Position(location))
}

// unsupported refuses a construct of the grammar that the language lacks.
func (b *binder) unsupported(location int32, format string, args ...any) *sqlstate.Error {
	return b.errorAt(sqlstate.FeatureNotSupported, location, "%s is not supported", fmt.Sprintf(format, args...))
}

// at records where an expression stands and returns it.
func (b *binder) at(e planner.Expr, location int32) planner.Expr {
	if _, known := b.loc[e]; !known {
		b.loc[e] = location
	}
	return e
}

// where is the recorded location of an expression, -1 if unknown.
func (b *binder) where(e planner.Expr) int32 {
	if location, ok := b.loc[e]; ok {
		return location
	}
	return -1
}

// place adds the location to an error raised below the binder, which knows no
// positions.
func (b *binder) place(err error, location int32) error {
	if e, ok := err.(*sqlstate.Error); ok && e.Position == 0 {
		return e.At(b.stmt.Position(location))
	}
	return err
}

// stringsOf are the values of a list of String nodes.
func stringsOf(nodes []*pgquery.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.GetString_().GetSval()
	}
	return out
}
