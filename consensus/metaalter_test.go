package consensus

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skein/catalog"
	"skein/sqlstate"
)

func alterIn(t *testing.T, s *metaState, id catalog.TableID, request string, actions ...AlterAction) metaAnswer {
	t.Helper()
	return applyTo(t, s, MetaAlterTable, AlterTable{RequestID: request, ID: id, Actions: actions})
}

func columnsOf(t *catalog.Table) []string {
	var out []string
	for _, c := range t.Columns {
		out = append(out, fmt.Sprintf("%d %s", c.ID, c.Name))
	}
	return out
}

func TestMetaAlterTable(t *testing.T) {
	s := stateWithNodes(t, 1)
	definition := plainTable("a", 1)
	// A key behind other columns, so that ordinals have to move.
	definition.Columns = append([]catalog.Column{{Name: "first", Type: catalog.Text, Nullable: true}}, definition.Columns...)
	definition.PrimaryKey = []int{1}
	created := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "a", Table: definition})).Table
	mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "b", Table: plainTable("b", 1)}))

	column := &catalog.Column{Name: "n", Type: catalog.Integer, Default: "7"}
	a := mustAccept(t, alterIn(t, s, created.ID, "1",
		AlterAction{Kind: AlterAddColumn, Column: column},
		AlterAction{Kind: AlterDropColumn, Name: "first"},
		AlterAction{Kind: AlterRenameColumn, Name: "v", NewName: "first"})).Table
	if diff := cmp.Diff([]string{"2 k", "3 first", "4 n"}, columnsOf(a)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{0}, a.PrimaryKey); diff != "" || a.Version <= created.Version {
		t.Errorf("key %v, version %d after %d", a.PrimaryKey, a.Version, created.Version)
	}
	if diff := cmp.Diff([]string{"1 first", "2 k", "3 v"}, columnsOf(created)); diff != "" {
		t.Errorf("the older version changed: %s", diff)
	}

	// Ids are never used again.
	mustAccept(t, alterIn(t, s, created.ID, "2", AlterAction{Kind: AlterDropColumn, Name: "n"}))
	a = mustAccept(t, alterIn(t, s, created.ID, "3", AlterAction{Kind: AlterAddColumn, Column: column})).Table
	if diff := cmp.Diff([]string{"2 k", "3 first", "5 n"}, columnsOf(a)); diff != "" {
		t.Error(diff)
	}

	version := s.counters.Version
	for name, tc := range map[string]struct {
		action AlterAction
		code   sqlstate.Code
	}{
		"add twice":          {AlterAction{Kind: AlterAddColumn, Column: column}, sqlstate.DuplicateColumn},
		"add nothing":        {AlterAction{Kind: AlterAddColumn}, sqlstate.InvalidParameter},
		"add without values": {AlterAction{Kind: AlterAddColumn, Column: &catalog.Column{Name: "m", Type: catalog.Integer}}, sqlstate.InvalidTableDefinition},
		"drop unknown":       {AlterAction{Kind: AlterDropColumn, Name: "nope"}, sqlstate.UndefinedColumn},
		"drop key":           {AlterAction{Kind: AlterDropColumn, Name: "k"}, sqlstate.FeatureNotSupported},
		"rename unknown":     {AlterAction{Kind: AlterRenameColumn, Name: "nope", NewName: "m"}, sqlstate.UndefinedColumn},
		"rename to another":  {AlterAction{Kind: AlterRenameColumn, Name: "n", NewName: "k"}, sqlstate.DuplicateColumn},
		"name taken":         {AlterAction{Kind: AlterRenameTable, NewName: "b"}, sqlstate.DuplicateTable},
		"own name":           {AlterAction{Kind: AlterRenameTable, NewName: "a"}, sqlstate.DuplicateTable},
		"unknown kind":       {AlterAction{Kind: "paint"}, sqlstate.InvalidParameter},
	} {
		// An earlier action of the same command has no effect either.
		mustReject(t, alterIn(t, s, created.ID, name, AlterAction{Kind: AlterRenameColumn, Name: "n", NewName: "renamed"}, renamed(tc.action)), tc.code)
	}
	mustAccept(t, alterIn(t, s, created.ID, "quiet add", AlterAction{Kind: AlterAddColumn, Column: column, Quiet: true}))
	mustAccept(t, alterIn(t, s, created.ID, "quiet drop", AlterAction{Kind: AlterDropColumn, Name: "nope", Quiet: true}))
	mustReject(t, alterIn(t, s, 99, "no table", AlterAction{Kind: AlterDropColumn, Name: "v"}), sqlstate.UndefinedTable)
	if s.counters.Version != version {
		t.Errorf("version %d after %d without a change", s.counters.Version, version)
	}

	mustAccept(t, alterIn(t, s, created.ID, "rename", AlterAction{Kind: AlterRenameTable, NewName: "c"}))
	snap := s.snapshot()
	if _, ok := snap.TableNamed(catalog.DefaultSchema, "a"); ok {
		t.Error("the old name is still there")
	}
	if renamed, ok := snap.TableNamed(catalog.DefaultSchema, "c"); !ok || renamed.ID != created.ID {
		t.Errorf("the new name is %v", renamed)
	}
	mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "a again", Table: plainTable("a", 1)}))
}

// renamed lets an action follow one that has renamed n.
func renamed(a AlterAction) AlterAction {
	if a.Kind == AlterRenameColumn && a.Name == "n" {
		a.Name = "renamed"
	}
	if a.Kind == AlterAddColumn && a.Column != nil && a.Column.Name == "n" {
		again := *a.Column
		again.Name = "renamed"
		a.Column = &again
	}
	return a
}
