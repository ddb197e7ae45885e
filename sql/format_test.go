package sql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/sql"
)

// place gives a bound table the tablets it asked for.
func place(t interface{ Fatal(...any) }, c *sql.CreateTable) *catalog.Table {
	table := *c.Table
	table.Tablets = make([]catalog.Tablet, c.Tablets)
	for i, l := range c.Splits {
		key, err := catalog.AppendKeyValue(nil, l.DataType, l.Value)
		if err != nil {
			t.Fatal(err)
		}
		table.Tablets[i].KeyHigh, table.Tablets[i+1].KeyLow = key, key
	}
	return &table
}

func rebind(t interface{ Fatal(...any) }, text string) *sql.CreateTable {
	statements, err := sql.Parse(text)
	if err != nil {
		t.Fatal(text, err)
	}
	bound, err := sql.Bind(context.Background(), statements[0], memoryCatalog{}, nil)
	if err != nil {
		t.Fatal(text, err)
	}
	return bound.Statement.(*sql.CreateTable)
}

func asJSON(t interface{ Fatal(...any) }, v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFormatCreateTableRoundTrip(t *testing.T) {
	for _, text := range []string{
		"CREATE TABLE x (a int PRIMARY KEY, b varchar(7) DEFAULT 'it''s' NOT NULL) WITH (tablets = 5, replicas = 3)",
		"CREATE TABLE \"Odd Schema\".\"x\"\"y\" (\"A b\" int, \"select\" date) PARTITION BY HASH (\"A b\") WITH (partition_kind = 'tenant', buckets = 16)",
		"CREATE TABLE x (d date) PARTITION BY RANGE (d) WITH (splits = '2020-01-01,2021-01-01', partition_kind = 'time_range')",
		"CREATE TABLE x (a bigint PRIMARY KEY) PARTITION BY RANGE (a) WITH (splits = '-5, 10')",
		"CREATE TABLE x (i interval DEFAULT '1 year 2 days 03:04:05.006', f double precision DEFAULT '-Infinity', b bytea DEFAULT '\\x0001')",
		"CREATE TABLE x (a timestamp(3) DEFAULT '2020-01-01 10:20:30.123', b timestamptz DEFAULT '1969-07-20 20:17:40Z', c time DEFAULT '23:59:59.999999')",
	} {
		first := rebind(t, text)
		table := place(t, first)
		second := rebind(t, sql.FormatCreateTable(table))
		if diff := cmp.Diff(asJSON(t, table), asJSON(t, place(t, second))); diff != "" {
			t.Errorf("%s\n-> %s\n(-want +got):\n%s", text, sql.FormatCreateTable(table), diff)
		}
	}
}

func TestFormatCreateTableProperty(t *testing.T) {
	types := []arrow.DataType{
		catalog.Boolean, catalog.SmallInt, catalog.Integer, catalog.BigInt, catalog.Real, catalog.Double,
		catalog.Text, catalog.Bytea, catalog.Date, catalog.Time, catalog.Timestamp, catalog.TimestampTZ,
		catalog.Interval, catalog.UUID, catalog.Decimal(38, 10), catalog.Decimal(5, 0),
	}
	rapid.Check(t, func(t *rapid.T) {
		table := &catalog.Table{Schema: catalog.DefaultSchema, Name: rapid.StringMatching(`[a-zA-Z "é]{1,8}`).Draw(t, "name")}
		for i := range rapid.IntRange(1, 6).Draw(t, "columns") {
			c := catalog.Column{
				Name:     fmt.Sprintf("%s%d", rapid.StringMatching(`[a-zA-Z_ "]{0,5}`).Draw(t, "column"), i),
				Type:     rapid.SampledFrom(types).Draw(t, "type"),
				Nullable: rapid.Bool().Draw(t, "nullable"),
			}
			if c.Type == catalog.Text {
				c.MaxLength = rapid.IntRange(0, 9).Draw(t, "length")
			}
			table.Columns = append(table.Columns, c)
		}
		table.Partitioning.Kind = catalog.Unpartitioned
		if rapid.Bool().Draw(t, "keyed") {
			table.PrimaryKey = []int{0}
			table.Columns[0].Nullable = false
			table.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: 64}
		}
		table.Replicas = rapid.IntRange(0, 3).Draw(t, "replicas")
		table.Tablets = make([]catalog.Tablet, 1)
		again := place(t, rebind(t, sql.FormatCreateTable(table)))
		if diff := cmp.Diff(asJSON(t, table), asJSON(t, again)); diff != "" {
			t.Fatalf("%s\n(-want +got):\n%s", sql.FormatCreateTable(table), diff)
		}
	})
}
