package consensus

import (
	"context"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// MetaAlterTable changes a table: AlterTable -> TableReply.
const MetaAlterTable = "alter_table"

// AlterTable changes a visible table, all Actions in their order or none. The
// table keeps its id and its tablets; its version changes.
type AlterTable struct {
	RequestID string          `json:"request_id"`
	ID        catalog.TableID `json:"id"`
	Actions   []AlterAction   `json:"actions"`
}

// AlterKind is a kind of AlterAction.
type AlterKind string

// What can be altered.
const (
	AlterAddColumn    AlterKind = "add_column"
	AlterDropColumn   AlterKind = "drop_column"
	AlterRenameColumn AlterKind = "rename_column"
	AlterRenameTable  AlterKind = "rename_table"
	AlterSetSchema    AlterKind = "set_schema"
	AlterAutoSplit    AlterKind = "auto_split" // whether tablets are split and merged unasked
)

// AlterAction is one step of an AlterTable.
type AlterAction struct {
	Kind    AlterKind       `json:"kind"`
	Name    string          `json:"name,omitempty"`     // the column dropped or renamed
	NewName string          `json:"new_name,omitempty"` // of the column or table renamed, or the schema
	Column  *catalog.Column `json:"column,omitempty"`   // the one added; its id is assigned
	// Quiet makes adding a column that exists, or dropping one that does not, do
	// nothing.
	Quiet bool `json:"quiet,omitempty"`
	On    bool `json:"on,omitempty"` // of AlterAutoSplit
}

// AlterTable changes a table. Workers follow soon after; a statement planned
// for the version before is refused by those that have.
func (m *Meta) AlterTable(ctx context.Context, r AlterTable) (TableReply, error) {
	for _, a := range r.Actions {
		if a.Column == nil || a.Column.Type == nil {
			continue // rejected by the meta group where it is needed
		}
		if _, err := catalog.ParseType(catalog.TypeName(a.Column.Type)); err != nil {
			return TableReply{}, sqlstate.New(sqlstate.FeatureNotSupported, "column %q: type %s cannot be stored", a.Column.Name, catalog.TypeName(a.Column.Type))
		}
	}
	return m.command(ctx, MetaAlterTable, r)
}

func (s *metaState) alterTable(r *AlterTable) metaAnswer {
	record, ok := s.tables[r.ID]
	if !ok || record.Hidden {
		return rejected(sqlstate.New(sqlstate.UndefinedTable, "table with id %d does not exist", r.ID))
	}
	t := *record.Table
	t.Columns = slices.Clone(t.Columns)
	t.AssignColumnIDs() // of a table from before columns had ids
	changed := false
	for i := range r.Actions {
		did, err := s.alter(&t, &r.Actions[i])
		if err != nil {
			return rejected(err)
		}
		changed = changed || did
	}
	if !changed {
		return s.accepted(record.Table)
	}
	if err := validateTable(&t); err != nil {
		return rejected(err)
	}
	s.counters.Version++
	t.Version = s.counters.Version
	delete(s.names, tableName{record.Table.Schema, record.Table.Name})
	s.putTable(&tableRecord{Table: &t, CreatedUnixMS: record.CreatedUnixMS})
	return s.accepted(&t)
}

// alter applies one action to a copy of a table, whose columns are its own, and
// reports whether that changed anything.
func (s *metaState) alter(t *catalog.Table, a *AlterAction) (bool, *sqlstate.Error) {
	switch a.Kind {
	case AlterAddColumn:
		return addColumn(t, a)
	case AlterDropColumn:
		return dropColumn(t, a)
	case AlterRenameColumn:
		return renameColumn(t, a)
	case AlterRenameTable:
		name := tableName{t.Schema, a.NewName}
		if owner, taken := s.names[name]; taken && (owner != t.ID || a.NewName == t.Name) {
			return false, duplicateTable(name)
		}
		t.Name = a.NewName
		return true, nil
	case AlterSetSchema:
		return s.setSchema(t, a.NewName)
	case AlterAutoSplit:
		changed := t.ManualSplit == a.On
		t.ManualSplit = !a.On
		return changed, nil
	}
	return false, sqlstate.New(sqlstate.InvalidParameter, "unknown way %q to alter a table", a.Kind)
}

// setSchema moves a table to another schema.
func (s *metaState) setSchema(t *catalog.Table, schema string) (bool, *sqlstate.Error) {
	if t.Schema == schema {
		return false, nil
	}
	if t.Temporary != nil {
		return false, sqlstate.New(sqlstate.FeatureNotSupported, "temporary table %q cannot leave its schema", t.Name)
	}
	t.Schema = schema
	if err := s.checkSchema(t); err != nil {
		return false, err
	}
	if name := (tableName{schema, t.Name}); s.names[name] != 0 {
		return false, duplicateTable(name)
	}
	return true, nil
}

func addColumn(t *catalog.Table, a *AlterAction) (bool, *sqlstate.Error) {
	if a.Column == nil {
		return false, sqlstate.New(sqlstate.InvalidParameter, "no column to add to table %s", t.QualifiedName())
	}
	c := *a.Column
	switch {
	case t.Column(c.Name) >= 0 && a.Quiet:
		return false, nil
	case t.Column(c.Name) >= 0:
		return false, sqlstate.New(sqlstate.DuplicateColumn, "column %q of relation %q already exists", c.Name, t.Name)
	case !c.Nullable && c.Default == "":
		return false, sqlstate.New(sqlstate.InvalidTableDefinition, "column %q of table %s needs a default to be NOT NULL", c.Name, t.QualifiedName())
	}
	c.ID = 0
	t.Columns = append(t.Columns, c)
	t.AssignColumnIDs()
	return true, nil
}

func dropColumn(t *catalog.Table, a *AlterAction) (bool, *sqlstate.Error) {
	at := t.Column(a.Name)
	switch {
	case at < 0 && a.Quiet:
		return false, nil
	case at < 0:
		return false, undefinedColumn(t, a.Name)
	case slices.Contains(t.PrimaryKey, at):
		return false, sqlstate.New(sqlstate.FeatureNotSupported, "column %q of relation %q belongs to the primary key and cannot be dropped", a.Name, t.Name)
	case slices.Contains(t.Partitioning.Columns, at):
		return false, sqlstate.New(sqlstate.FeatureNotSupported, "column %q of relation %q partitions it and cannot be dropped", a.Name, t.Name)
	case len(t.Columns) == 1:
		return false, sqlstate.New(sqlstate.FeatureNotSupported, "column %q is the only one of relation %q and cannot be dropped", a.Name, t.Name).
			WithHint("drop the table")
	}
	t.Columns = slices.Delete(t.Columns, at, at+1)
	t.PrimaryKey = withoutOrdinal(t.PrimaryKey, at)
	t.Partitioning.Columns = withoutOrdinal(t.Partitioning.Columns, at)
	return true, nil
}

// withoutOrdinal renumbers ordinals after one, which is not among them, is gone.
func withoutOrdinal(ordinals []int, gone int) []int {
	out := slices.Clone(ordinals)
	for i, o := range out {
		if o > gone {
			out[i]--
		}
	}
	return out
}

func renameColumn(t *catalog.Table, a *AlterAction) (bool, *sqlstate.Error) {
	at := t.Column(a.Name)
	switch {
	case at < 0:
		return false, undefinedColumn(t, a.Name)
	case t.Column(a.NewName) >= 0:
		return false, sqlstate.New(sqlstate.DuplicateColumn, "column %q of relation %q already exists", a.NewName, t.Name)
	}
	t.Columns[at].Name = a.NewName
	return true, nil
}

func undefinedColumn(t *catalog.Table, name string) *sqlstate.Error {
	return sqlstate.New(sqlstate.UndefinedColumn, "column %q of relation %q does not exist", name, t.Name)
}
