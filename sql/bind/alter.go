package bind

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/sqlstate"
)

// alterTable binds ALTER TABLE with its list of actions. Whether the actions fit
// the table is for the catalog to say, which changes it.
func (b *binder) alterTable(stmt *pgquery.AlterTableStmt) (*AlterTable, error) {
	if err := b.onlyFields(stmt, "relation", "cmds", "objtype", "missing_ok"); err != nil {
		return nil, err
	}
	if stmt.Objtype != pgquery.ObjectType_OBJECT_TABLE {
		return nil, b.unsupported(-1, "ALTER %s", objectName(stmt.Objtype))
	}
	out, err := b.alteration(stmt.Relation, stmt.MissingOk)
	if err != nil {
		return nil, err
	}
	for _, n := range stmt.Cmds {
		cmd := n.GetAlterTableCmd()
		var action AlterAction
		switch cmd.GetSubtype() {
		case pgquery.AlterTableType_AT_AddColumn:
			action, err = b.addColumn(cmd)
		case pgquery.AlterTableType_AT_DropColumn:
			err = b.onlyFields(cmd, "subtype", "name", "behavior", "missing_ok")
			action = AlterAction{Kind: DropColumn, Name: cmd.Name, Quiet: cmd.MissingOk}
		case pgquery.AlterTableType_AT_SetRelOptions:
			action, err = b.setOption(cmd)
		default:
			err = b.unsupported(stmt.Relation.Location, "ALTER TABLE ... %s", nodeName(cmd.GetSubtype().String()[len("AT_"):]))
		}
		if err != nil {
			return nil, err
		}
		out.Actions = append(out.Actions, action)
	}
	return out, nil
}

// setOption binds SET (auto_split = ...), the one option that can be changed.
func (b *binder) setOption(cmd *pgquery.AlterTableCmd) (AlterAction, error) {
	if err := b.onlyFields(cmd, "subtype", "def", "behavior"); err != nil {
		return AlterAction{}, err
	}
	list := cmd.Def.GetList().GetItems()
	if len(list) != 1 || list[0].GetDefElem().GetDefname() != "auto_split" || list[0].GetDefElem().GetDefnamespace() != "" {
		return AlterAction{}, b.unsupported(-1, "ALTER TABLE ... SET of other options than auto_split")
	}
	on, err := b.boolOption(list[0].GetDefElem())
	return AlterAction{Kind: SetAutoSplit, On: on}, err
}

// alteration names the table of an ALTER TABLE, without looking it up.
func (b *binder) alteration(r *pgquery.RangeVar, ifExists bool) (*AlterTable, error) {
	if err := b.plainTable(r); err != nil {
		return nil, err
	}
	return &AlterTable{Name: TableName{r.Schemaname, r.Relname}, IfExists: ifExists}, nil
}

// addColumn binds ADD COLUMN as CREATE TABLE binds a column.
func (b *binder) addColumn(cmd *pgquery.AlterTableCmd) (AlterAction, error) {
	if err := b.onlyFields(cmd, "subtype", "def", "behavior", "missing_ok"); err != nil {
		return AlterAction{}, err
	}
	def := cmd.Def.GetColumnDef()
	c := &creation{binder: b, table: &catalog.Table{}}
	if err := c.column(def); err != nil {
		return AlterAction{}, err
	}
	column := &c.table.Columns[0]
	if c.keyed {
		return AlterAction{}, b.unsupported(def.Location, "adding a column to the primary key")
	}
	if !column.Nullable && column.Default == "" {
		return AlterAction{}, b.unsupported(def.Location, "ADD COLUMN ... NOT NULL without a DEFAULT").
			WithHint("Give a DEFAULT, which the rows that are there get.")
	}
	return AlterAction{Kind: AddColumn, Name: column.Name, Column: column, Quiet: cmd.MissingOk}, nil
}

// rename binds ALTER TABLE ... RENAME.
func (b *binder) rename(stmt *pgquery.RenameStmt) (*AlterTable, error) {
	if err := b.onlyFields(stmt, "rename_type", "relation_type", "relation", "subname", "newname", "behavior", "missing_ok"); err != nil {
		return nil, err
	}
	action := AlterAction{Kind: RenameTable, Name: stmt.Newname}
	switch {
	case stmt.RenameType == pgquery.ObjectType_OBJECT_COLUMN && stmt.RelationType == pgquery.ObjectType_OBJECT_TABLE:
		action = AlterAction{Kind: RenameColumn, Name: stmt.Subname, NewName: stmt.Newname}
	case stmt.RenameType == pgquery.ObjectType_OBJECT_TABLE:
	default:
		return nil, b.unsupported(-1, "renaming this kind of object (%s)", objectName(stmt.RenameType))
	}
	if stmt.Newname == "" {
		return nil, b.errorAt(sqlstate.SyntaxError, -1, "a new name cannot be empty")
	}
	out, err := b.alteration(stmt.Relation, stmt.MissingOk)
	if err != nil {
		return nil, err
	}
	if action.Kind == RenameTable {
		action = AlterAction{Kind: RenameTable, NewName: stmt.Newname}
	}
	out.Actions = []AlterAction{action}
	return out, nil
}
