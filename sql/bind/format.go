package bind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// FormatCreateTable writes the canonical CREATE TABLE statement of a table,
// with every default visible. Binding it yields the same table without ids;
// a table that is not placed yet counts as one tablet.
func FormatCreateTable(t *catalog.Table) string {
	var out strings.Builder
	if t.Schema == "" || t.Temporary != nil {
		fmt.Fprintf(&out, "CREATE TEMPORARY TABLE %s (\n", quoteIdent(t.Name))
	} else {
		fmt.Fprintf(&out, "CREATE TABLE %s (\n", quoteIdent(t.Schema)+"."+quoteIdent(t.Name))
	}
	for i := range t.Columns {
		if i > 0 {
			out.WriteString(",\n")
		}
		out.WriteString("    " + formatColumn(&t.Columns[i]))
	}
	if len(t.PrimaryKey) > 0 {
		fmt.Fprintf(&out, ",\n    PRIMARY KEY (%s)", columnNames(t, t.PrimaryKey))
	}
	out.WriteString("\n)")
	p := &t.Partitioning
	options := []string{fmt.Sprintf("tablets = %d", max(len(t.Tablets), 1))}
	switch p.Kind {
	case catalog.Hash, catalog.Tenant:
		fmt.Fprintf(&out, " PARTITION BY HASH (%s)", columnNames(t, p.Columns))
		options = append(options, fmt.Sprintf("buckets = %d", p.Buckets))
	case catalog.Range, catalog.TimeRange:
		fmt.Fprintf(&out, " PARTITION BY RANGE (%s)", columnNames(t, p.Columns))
		splits := formatSplits(t)
		if splits == nil {
			options[0] = "tablets = 1" // cut where no value of one column is
		}
		options = append(options, splits...)
	}
	if p.Kind == catalog.Tenant || p.Kind == catalog.TimeRange {
		options = append(options, "partition_kind = "+quoteText(string(p.Kind)))
	}
	if t.Replicas > 0 {
		options = append(options, fmt.Sprintf("replicas = %d", t.Replicas))
	}
	if t.ManualSplit {
		options = append(options, "auto_split = false")
	}
	fmt.Fprintf(&out, " WITH (%s)", strings.Join(options, ", "))
	return out.String()
}

func formatColumn(c *catalog.Column) string {
	typeName := catalog.TypeName(c.Type)
	if c.MaxLength > 0 {
		typeName = fmt.Sprintf("varchar(%d)", c.MaxLength)
	}
	out := quoteIdent(c.Name) + " " + typeName
	if !c.Nullable {
		out += " NOT NULL"
	}
	if c.Default != "" {
		out += " DEFAULT " + c.Default
	}
	return out
}

func columnNames(t *catalog.Table, ordinals []int) string {
	names := make([]string, len(ordinals))
	for i, at := range ordinals {
		names[i] = quoteIdent(t.Columns[at].Name)
	}
	return strings.Join(names, ", ")
}

// quoteIdent quotes a name that is no bare identifier, keywords included.
func quoteIdent(name string) string {
	if slices.Contains(reservedWords, name) {
		return `"` + name + `"`
	}
	return catalog.QuoteIdent(name)
}

// ReservedWords lists the keywords that cannot name a table or column, sorted.
func ReservedWords() []string { return slices.Clone(reservedWords) }

// reservedWords are the keywords that cannot name a table or column.
var reservedWords = strings.Fields(`
all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
unique user using variadic verbose when where window with`)

// formatSplits shows where range tablets are cut, when it is on the values of
// one column.
func formatSplits(t *catalog.Table) []string {
	if len(t.Partitioning.Columns) != 1 || len(t.Tablets) < 2 {
		return nil
	}
	dt := t.Columns[t.Partitioning.Columns[0]].Type
	var splits []string
	for _, tablet := range t.Tablets[1:] {
		text, err := catalog.KeyText([]arrow.DataType{dt}, tablet.KeyLow)
		if err != nil || len(text) != 1 {
			return nil
		}
		splits = append(splits, text[0])
	}
	return []string{"splits = " + quoteText(strings.Join(splits, ", "))}
}
