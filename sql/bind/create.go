package bind

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// Bounds and defaults of a new table.
const (
	defaultBuckets = 256
	maxBuckets     = 1 << 16
	maxTablets     = 4096
	maxReplicas    = 9

	// MaxColumns bounds the columns of a table.
	MaxColumns = 1600
)

// creation is a CREATE TABLE while it is bound.
type creation struct {
	*binder
	stmt    *pgquery.CreateStmt
	out     *CreateTable
	table   *catalog.Table
	keyed   bool // a primary key has been declared
	options tableOptions
}

// createTable binds CREATE TABLE.
func (b *binder) createTable(stmt *pgquery.CreateStmt) (*CreateTable, error) {
	if stmt.Partbound != nil {
		return nil, b.unsupported(stmt.Relation.GetLocation(), "PARTITION OF")
	}
	handled := []string{"relation", "table_elts", "partspec", "options", "if_not_exists"}
	if stmt.Oncommit == pgquery.OnCommitAction_ONCOMMIT_PRESERVE_ROWS {
		handled = append(handled, "oncommit") // what temporary tables do anyway
	}
	if err := b.onlyFields(stmt, handled...); err != nil {
		return nil, err
	}
	schema, temporary, err := b.newTableSchema(stmt.Relation)
	if err != nil {
		return nil, err
	}
	if stmt.Oncommit == pgquery.OnCommitAction_ONCOMMIT_PRESERVE_ROWS && !temporary {
		return nil, b.errorAt(sqlstate.InvalidTableDefinition, stmt.Relation.Location, "ON COMMIT can only be used on temporary tables")
	}
	c := &creation{
		binder: b, stmt: stmt,
		table: &catalog.Table{Schema: schema, Name: stmt.Relation.Relname},
	}
	c.out = &CreateTable{Table: c.table, IfNotExists: stmt.IfNotExists, Temporary: temporary}
	for _, step := range []func() error{c.columns, c.tableConstraints, c.checkKey, c.readOptions, c.partition} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c.out, nil
}

// columns binds the column definitions, so that table constraints can refer
// to columns that follow them.
func (c *creation) columns() error {
	for _, n := range c.stmt.TableElts {
		switch e := n.GetNode().(type) {
		case *pgquery.Node_ColumnDef:
			if err := c.column(e.ColumnDef); err != nil {
				return err
			}
		case *pgquery.Node_Constraint:
		case *pgquery.Node_TableLikeClause:
			return c.unsupported(e.TableLikeClause.GetRelation().GetLocation(), "LIKE in CREATE TABLE")
		default:
			return c.refuseNode(n, "")
		}
	}
	switch n := len(c.table.Columns); {
	case n == 0:
		return c.errorAt(sqlstate.InvalidTableDefinition, c.stmt.Relation.Location, "table %q has no columns", c.table.Name)
	case n > MaxColumns:
		return c.errorAt(sqlstate.ProgramLimitExceeded, c.stmt.Relation.Location, "table %q has %d columns, the limit is %d", c.table.Name, n, MaxColumns)
	}
	return nil
}

func (c *creation) column(def *pgquery.ColumnDef) error {
	if err := c.onlyFields(def, "colname", "type_name", "is_local", "constraints"); err != nil {
		return err
	}
	if c.table.Column(def.Colname) >= 0 {
		return c.errorAt(sqlstate.DuplicateColumn, def.Location, "column %q is defined twice", def.Colname)
	}
	if def.TypeName == nil {
		return c.errorAt(sqlstate.SyntaxError, def.Location, "column %q has no type", def.Colname)
	}
	t, err := c.typeName(def.TypeName)
	if err != nil {
		return err
	}
	if t.interval != "" {
		return c.unsupported(def.TypeName.Location, "an interval of a single field as a column type")
	}
	c.table.Columns = append(c.table.Columns, catalog.Column{
		Name: def.Colname, Type: t.DataType, Nullable: true, MaxLength: t.maxLength,
	})
	return c.columnConstraints(def, len(c.table.Columns)-1)
}

// columnConstraints applies NULL, NOT NULL, DEFAULT and PRIMARY KEY.
func (c *creation) columnConstraints(def *pgquery.ColumnDef, at int) error {
	column := &c.table.Columns[at]
	declaredNull, declaredNotNull := false, false
	for _, n := range def.Constraints {
		k := n.GetConstraint()
		switch k.Contype {
		case pgquery.ConstrType_CONSTR_NULL:
			declaredNull = true
		case pgquery.ConstrType_CONSTR_NOTNULL:
			declaredNotNull = true
			column.Nullable = false
		case pgquery.ConstrType_CONSTR_DEFAULT:
			if column.Default != "" {
				return c.errorAt(sqlstate.SyntaxError, k.Location, "column %q has two defaults", column.Name)
			}
			e, err := c.defaultValue(k.RawExpr, column)
			if err != nil {
				return err
			}
			column.Default = literalSQL(e.(*planner.Literal))
		case pgquery.ConstrType_CONSTR_PRIMARY:
			if err := c.primaryKey(k, []int{at}); err != nil {
				return err
			}
			declaredNotNull = true
		default:
			return c.unsupported(k.Location, "%s", constraintName(k.Contype))
		}
		if declaredNull && declaredNotNull {
			return c.errorAt(sqlstate.SyntaxError, k.Location, "column %q is declared both NULL and NOT NULL", column.Name)
		}
	}
	return nil
}

func constraintName(t pgquery.ConstrType) string {
	switch t {
	case pgquery.ConstrType_CONSTR_CHECK:
		return "a CHECK constraint"
	case pgquery.ConstrType_CONSTR_UNIQUE:
		return "a UNIQUE constraint beside the primary key"
	case pgquery.ConstrType_CONSTR_FOREIGN:
		return "a foreign key (REFERENCES)"
	case pgquery.ConstrType_CONSTR_IDENTITY:
		return "GENERATED AS IDENTITY"
	case pgquery.ConstrType_CONSTR_GENERATED:
		return "a generated column"
	case pgquery.ConstrType_CONSTR_EXCLUSION:
		return "an exclusion constraint"
	}
	return "a deferrable constraint"
}

// defaultValue is the constant that a DEFAULT expression stands for.
func (b *binder) defaultValue(n *pgquery.Node, column *catalog.Column) (planner.Expr, error) {
	params := len(b.params)
	e, err := b.expr(n, &exprContext{scope: &scope{}, clause: "DEFAULT expressions", noColumns: "a DEFAULT expression"})
	if err != nil {
		return nil, err
	}
	if len(b.params) > params {
		return nil, b.errorAt(sqlstate.UndefinedParameter, locationOf(n), "a DEFAULT expression cannot have parameters")
	}
	if b.clock || volatile(e) {
		return nil, b.unsupported(locationOf(n), "a DEFAULT that is not a constant")
	}
	if e, err = b.assign(e, column); err != nil {
		return nil, err
	}
	l, err := evaluate(e)
	if err != nil {
		if sqlstate.CodeOf(err) == sqlstate.InternalError {
			return nil, b.unsupported(locationOf(n), "a DEFAULT that is not a constant")
		}
		return nil, b.place(err, locationOf(n))
	}
	return l, nil
}

func (c *creation) tableConstraints() error {
	for _, n := range c.stmt.TableElts {
		k := n.GetConstraint()
		if k == nil {
			continue
		}
		if k.Contype != pgquery.ConstrType_CONSTR_PRIMARY {
			return c.unsupported(k.Location, "%s", constraintName(k.Contype))
		}
		ordinals, err := c.ordinals(stringsOf(k.Keys), k.Location)
		if err != nil {
			return err
		}
		if err := c.primaryKey(k, ordinals); err != nil {
			return err
		}
	}
	return nil
}

func (c *creation) primaryKey(k *pgquery.Constraint, ordinals []int) error {
	if err := c.onlyFields(k, "contype", "keys"); err != nil {
		if k.Conname == "" {
			return err
		}
		return c.unsupported(k.Location, "a named PRIMARY KEY constraint")
	}
	if c.keyed {
		return c.errorAt(sqlstate.InvalidTableDefinition, k.Location, "table %q has two primary keys", c.table.Name)
	}
	c.keyed = true
	c.table.PrimaryKey = ordinals
	for _, at := range ordinals {
		c.table.Columns[at].Nullable = false
	}
	return nil
}

// ordinals resolves the columns of a key.
func (c *creation) ordinals(names []string, location int32) ([]int, error) {
	columns := make([]scopeColumn, len(c.table.Columns))
	for i, column := range c.table.Columns {
		columns[i].name = column.Name
	}
	out := make([]int, len(names))
	seen := make(map[int]bool, len(names))
	for i, name := range names {
		at := c.table.Column(name)
		if at < 0 {
			return nil, c.noColumn(name, name, columns, location)
		}
		if seen[at] {
			return nil, c.errorAt(sqlstate.DuplicateColumn, location, "column %q is named twice in a key", name)
		}
		seen[at] = true
		out[i] = at
	}
	return out, nil
}

// checkKey checks that the key's columns can be encoded as one.
func (c *creation) checkKey() error {
	for _, at := range c.table.PrimaryKey {
		if column := &c.table.Columns[at]; !catalog.KeyableType(column.Type) {
			return c.unsupported(c.stmt.Relation.Location, "column %q of type %s in a primary key", column.Name, catalog.TypeName(column.Type))
		}
	}
	return nil
}
