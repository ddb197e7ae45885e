package planner

import (
	"testing"

	"skein/catalog"
)

func TestHiddenColumns(t *testing.T) {
	table := &catalog.Table{ID: 1, Schema: "public", Name: "t", Columns: []catalog.Column{{Name: "a", Type: catalog.Text, Nullable: true}}}
	for ordinal, want := range map[int]bool{TabletColumn - 1: false, TabletColumn: true, RowIDColumn: true, 0: true, 1: false} {
		if got := ValidProjection(table, ordinal); got != want {
			t.Errorf("projection of %d: %t", ordinal, got)
		}
	}
	scan := &Scan{Table: table, Projection: []int{0, TabletColumn, RowIDColumn}}
	schema := scan.Schema()
	for i, name := range []string{"a", TabletName, RowIDName} {
		if f := schema.Field(i); f.Name != name || f.Nullable != (i == 0) {
			t.Errorf("column %d is %v", i, f)
		}
	}
	if err := ValidateLite(scan); err != nil {
		t.Error(err)
	}
	e := scanEstimate(table, scan.Projection, TableStats{Rows: 10, Bytes: 1000})
	if e.columns[2].distinct != 10 {
		t.Errorf("%d different row ids of 10 rows", e.columns[2].distinct)
	}
	// What nothing reads goes, and what is read keeps its place.
	pruned := pruneColumns(&Project{Input: scan, Exprs: []Expr{ColumnOf(schema, 2)}, Names: []string{"id"}})
	if got := pruned.(*Project).Input.(*Scan).Projection; len(got) != 1 || got[0] != RowIDColumn {
		t.Errorf("the scan projects %v", got)
	}
}
