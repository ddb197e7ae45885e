package system

import (
	"fmt"
	"strings"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
)

// tablesTable has a row per table. ddl is the statement that makes the table
// again, with every default that was chosen for it.
var tablesTable = define("tables", fillTables,
	text("table_schema"), text("table_name"), number("table_id"), number("version"), text("partition_kind"),
	text("partition_columns"), number("buckets"), number("tablets"), number("replicas"), text("primary_key"),
	number("row_count"), number("bytes"), text("ddl"))

func fillTables(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		stats := s.Stats(t)
		var buckets any
		if t.Partitioning.Buckets > 0 {
			buckets = t.Partitioning.Buckets
		}
		r.add(t.Schema, t.Name, t.ID, t.Version, string(t.Partitioning.Kind), columnNames(t, t.Partitioning.Columns),
			buckets, len(t.Tablets), t.Replicas, columnNames(t, t.PrimaryKey), stats.Rows, stats.Bytes, sql.FormatCreateTable(t))
	}
}

// columnNames lists columns by ordinal, nil when there are none.
func columnNames(t *catalog.Table, ordinals []int) any {
	if len(ordinals) == 0 {
		return nil
	}
	names := make([]string, len(ordinals))
	for i, c := range ordinals {
		names[i] = catalog.QuoteIdent(t.Columns[c].Name)
	}
	return strings.Join(names, ", ")
}

// columnsTable has a row per column, with the statistics that plans are made
// from.
var columnsTable = define("columns", fillColumns,
	text("table_schema"), text("table_name"), text("column_name"), number("ordinal"), text("type"), flag("nullable"),
	text("default_value"), number("distinct_count"), number("null_count"), text("min_value"), text("max_value"))

func fillColumns(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		stats := s.Stats(t).Columns
		for i := range t.Columns {
			c := &t.Columns[i]
			var distinct, nulls, low, high, fallback any
			if i < len(stats) {
				distinct, nulls = stats[i].Distinct, stats[i].Nulls
				low, high = shown(c, stats[i].Min), shown(c, stats[i].Max)
			}
			if c.Default != "" {
				fallback = c.Default
			}
			r.add(t.Schema, t.Name, c.Name, i+1, typeName(c), c.Nullable, fallback, distinct, nulls, low, high)
		}
	}
}

func typeName(c *catalog.Column) string {
	if c.MaxLength > 0 {
		return fmt.Sprintf("varchar(%d)", c.MaxLength)
	}
	return catalog.TypeName(c.Type)
}

// shown is a statistic's value as SQL, nil for unknown.
func shown(c *catalog.Column, value any) any {
	if value == nil {
		return nil
	}
	return (&planner.Literal{DataType: c.Type, Value: value}).String()
}
