package planner

import (
	"skein/catalog"
)

// Ordinals of the hidden columns that a scan can project beside the table's
// own. Together they name one row of a table: a row id is unique within its
// tablet and stays the row's for as long as it lives.
const (
	RowIDColumn  = -1 // BIGINT, the row's id within its tablet
	TabletColumn = -2 // BIGINT, the id of the tablet that holds the row
)

// Names of the hidden columns in schemas.
const (
	RowIDName  = "__rowid"
	TabletName = "__tablet"
)

// ProjectedColumn describes the column that a projection names: one of the
// table's or a hidden one. The ordinal must be valid: see ValidProjection.
func ProjectedColumn(t *catalog.Table, ordinal int) catalog.Column {
	switch ordinal {
	case RowIDColumn:
		return catalog.Column{Name: RowIDName, Type: catalog.BigInt}
	case TabletColumn:
		return catalog.Column{Name: TabletName, Type: catalog.BigInt}
	}
	return t.Columns[ordinal]
}

// ValidProjection reports whether an ordinal names a column of the table, a
// hidden one included.
func ValidProjection(t *catalog.Table, ordinal int) bool {
	return ordinal >= TabletColumn && ordinal < len(t.Columns)
}
