package bind

import (
	"cmp"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/sqlstate"
)

// tempSchema is what a session calls the schema of its temporary tables.
const tempSchema = "pg_temp"

// CreateSchema makes a schema.
type CreateSchema struct {
	Name        string
	IfNotExists bool
}

// DropSchema removes schemas, with Cascade also the tables in them. Without
// IfExists all must exist before any goes.
type DropSchema struct {
	Names    []string
	IfExists bool
	Cascade  bool
}

func (*CreateSchema) statement() {}
func (*DropSchema) statement()   {}

func (b *binder) createSchema(stmt *pgquery.CreateSchemaStmt) (*CreateSchema, error) {
	switch {
	case stmt.Authrole != nil:
		return nil, b.unsupported(stmt.Authrole.Location, "CREATE SCHEMA ... AUTHORIZATION")
	case len(stmt.SchemaElts) > 0:
		return nil, b.unsupported(-1, "creating tables in CREATE SCHEMA").WithHint("Create them afterwards.")
	}
	if err := b.onlyFields(stmt, "schemaname", "if_not_exists"); err != nil {
		return nil, err
	}
	return &CreateSchema{Name: stmt.Schemaname, IfNotExists: stmt.IfNotExists}, nil
}

// setSchema binds ALTER TABLE ... SET SCHEMA.
func (b *binder) setSchema(stmt *pgquery.AlterObjectSchemaStmt) (*AlterTable, error) {
	if err := b.onlyFields(stmt, "object_type", "relation", "newschema", "missing_ok"); err != nil {
		return nil, err
	}
	if stmt.ObjectType != pgquery.ObjectType_OBJECT_TABLE {
		return nil, b.unsupported(-1, "ALTER %s ... SET SCHEMA", objectName(stmt.ObjectType))
	}
	out, err := b.alteration(stmt.Relation, stmt.MissingOk)
	if err != nil {
		return nil, err
	}
	out.Actions = []AlterAction{{Kind: SetSchema, NewName: stmt.Newschema}}
	return out, nil
}

// newTableSchema is the schema that a CREATE TABLE puts its table into, none for
// a temporary one.
func (b *binder) newTableSchema(r *pgquery.RangeVar) (schema string, temporary bool, err error) {
	handled := []string{"schemaname", "relname", "inh", "relpersistence"}
	if err := b.onlyFields(r, handled...); err != nil {
		return "", false, err
	}
	switch {
	case r.Relpersistence == "u":
		return "", false, b.unsupported(r.Location, "an unlogged table")
	case r.Relpersistence == "t" && r.Schemaname != "" && r.Schemaname != tempSchema:
		return "", false, b.errorAt(sqlstate.InvalidTableDefinition, r.Location, "cannot create temporary relation in non-temporary schema")
	case r.Relpersistence == "t" || r.Schemaname == tempSchema:
		return "", true, nil
	case r.Schemaname != "":
		return r.Schemaname, false, nil
	}
	return b.currentSchema(), false, nil
}

// currentSchema is where tables are created whose names have no schema.
func (b *binder) currentSchema() string {
	return cmp.Or(b.session.CreateIn, catalog.DefaultSchema)
}
