package gateway

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
)

// described is the public schema of a statement's result with the column
// metadata of Flight SQL, which JDBC's ResultSetMetaData and ADBC's GetObjects
// are made from.
func (st *statement) described() *arrow.Schema {
	schema := st.schema()
	var from []planner.Origin
	switch b := st.bound.Statement.(type) {
	case *sql.Query:
		from = planner.Origins(b.Node)
	case *sql.Explain, *sql.Show:
		from = make([]planner.Origin, schema.NumFields())
	default:
		from = returningOrigins(st.returning(), st.target())
	}
	fields := schema.Fields()
	for i := range fields {
		fields[i].Metadata = columnMetadata(fields[i].Type, from[i])
	}
	return arrow.NewSchema(fields, nil)
}

// returningOrigins are those of a RETURNING clause, whose first columns are the
// table's; what stands behind them belongs to other tables of the statement.
func returningOrigins(r *sql.Returning, t *catalog.Table) []planner.Origin {
	if r == nil {
		return nil
	}
	from := make([]planner.Origin, len(r.Exprs))
	for i, e := range r.Exprs {
		if c, ok := e.(*planner.Column); ok && c.Index < len(t.Columns) {
			from[i] = planner.Origin{Table: t, Column: c.Index}
		}
	}
	return from
}

// describedTable is a table's schema with column metadata.
func describedTable(t *catalog.Table) *arrow.Schema {
	fields := t.ArrowSchema().Fields()
	for i := range fields {
		fields[i].Metadata = columnMetadata(fields[i].Type, planner.Origin{Table: t, Column: i})
	}
	return arrow.NewSchema(fields, nil)
}

// columnMetadata describes a column of a type. Only those of tables that can be
// changed are not read-only; nothing counts up by itself.
func columnMetadata(dt arrow.DataType, from planner.Origin) arrow.Metadata {
	md := flightsql.NewColumnMetadataBuilder().TypeName(baseTypeName(dt))
	size, scale := sizeOf(dt)
	if from.Table != nil {
		md = md.CatalogName(catalogName).SchemaName(from.Table.Schema).TableName(from.Table.Name)
		if n := from.Table.Columns[from.Column].MaxLength; n > 0 {
			size = int32(n)
		}
	}
	if size > 0 {
		md = md.Precision(size).Scale(scale)
	}
	return md.IsAutoIncrement(false).IsCaseSensitive(dt.ID() == arrow.STRING).
		IsReadOnly(from.Table == nil || from.Table.System).IsSearchable(searchable(dt)).Metadata()
}

// searchable reports whether values can stand in a WHERE clause's comparison.
func searchable(dt arrow.DataType) bool { return dt.ID() != arrow.STRUCT }

// baseTypeName is a type's name without its parameters, as the listing of types
// has it.
func baseTypeName(dt arrow.DataType) string {
	name := catalog.TypeName(dt)
	if arrow.IsNested(dt.ID()) {
		return name
	}
	name, _, _ = strings.Cut(name, "(")
	return name
}

// sizeOf is a type's size as JDBC counts it, digits of numbers and characters
// of all else, and its digits behind the point; 0 where there is no bound.
func sizeOf(dt arrow.DataType) (size, scale int32) {
	switch t := dt.(type) {
	case *arrow.Decimal128Type:
		return t.Precision, t.Scale
	case *arrow.TimestampType:
		digits := int32(t.Unit) * 3
		size = int32(len("2006-01-02 15:04:05")) + digits
		if digits > 0 {
			size++ // the point
		}
		if t.TimeZone != "" {
			size += int32(len("+00:00"))
		}
		return size, digits
	}
	switch dt.ID() {
	case arrow.BOOL:
		return 1, 0
	case arrow.INT16:
		return 5, 0
	case arrow.INT32:
		return 10, 0
	case arrow.INT64:
		return 19, 0
	case arrow.FLOAT32:
		return 8, 8
	case arrow.FLOAT64:
		return 17, 17
	case arrow.DATE32:
		return int32(len("2006-01-02")), 0
	case arrow.TIME64:
		return int32(len("15:04:05.000000")), 6
	case arrow.FIXED_SIZE_BINARY:
		return int32(len("00000000-0000-0000-0000-000000000000")), 0
	}
	return 0, 0
}
