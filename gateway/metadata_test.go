package gateway

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/catalog"
	"skein/sqlstate"
)

func TestLikePattern(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"%", "anything", true},
		{"", "", true},
		{"", "t", false},
		{"line%", "lineitem", true},
		{"line%", "LINEITEM", false},
		{"l_neitem", "lineitem", true},
		{`l\_neitem`, "lineitem", false},
		{`l\_n`, "l_n", true},
		{"a.c", "abc", false},
		{"%item", "lineitem", true},
	} {
		if got := matches(likePattern(&c.pattern), c.name); got != c.want {
			t.Errorf("%q against %q = %v", c.pattern, c.name, got)
		}
	}
	if !matches(likePattern(nil), "x") {
		t.Error("no pattern must match all")
	}
}

func TestSQLTypeOf(t *testing.T) {
	for _, c := range []struct {
		in   arrow.DataType
		want string
	}{
		{arrow.PrimitiveTypes.Int8, "smallint"},
		{arrow.PrimitiveTypes.Uint8, "smallint"},
		{arrow.PrimitiveTypes.Uint16, "integer"},
		{arrow.PrimitiveTypes.Uint32, "bigint"},
		{arrow.PrimitiveTypes.Uint64, "decimal(20,0)"},
		{arrow.FixedWidthTypes.Float16, "real"},
		{arrow.BinaryTypes.LargeString, "text"},
		{arrow.BinaryTypes.StringView, "text"},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, "text"},
		{arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64), "double precision"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "Europe/Berlin"}, "timestamptz(9)"},
		{&arrow.Decimal32Type{Precision: 5, Scale: 2}, "decimal(5,2)"},
		{&arrow.Decimal256Type{Precision: 60, Scale: 2}, "decimal(38,2)"},
		{arrow.FixedWidthTypes.Date64, "date"},
		{arrow.FixedWidthTypes.Time32ms, "time"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 3}, "bytea"},
	} {
		got, err := sqlTypeOf(c.in)
		if err != nil || catalog.TypeName(got) != c.want {
			t.Errorf("%s -> %v, %v; want %s", c.in, got, err, c.want)
		}
	}
	for _, dt := range []arrow.DataType{&arrow.Decimal256Type{Precision: 60, Scale: 50}, &arrow.Decimal128Type{Precision: 10, Scale: -2}, arrow.MapOf(catalog.Text, catalog.Text)} {
		if got, err := sqlTypeOf(dt); err == nil {
			t.Errorf("%s -> %s, want an error", dt, got)
		}
	}
}

func TestIngestColumnsRefusesWhatItCannotName(t *testing.T) {
	twice := arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.Text}, {Name: "a", Type: catalog.Text}}, nil)
	if _, err := ingestColumns(twice); sqlstate.CodeOf(err) != sqlstate.DuplicateColumn {
		t.Errorf("duplicate column: %v", err)
	}
	if _, err := ingestColumns(arrow.NewSchema(nil, nil)); sqlstate.CodeOf(err) != sqlstate.InvalidTableDefinition {
		t.Errorf("no columns: %v", err)
	}
}

func TestIngestModes(t *testing.T) {
	exists, missing, err := ingestModes(nil)
	if err != nil || exists != flightsql.TableDefinitionOptionsTableExistsOptionAppend || missing != flightsql.TableDefinitionOptionsTableNotExistOptionFail {
		t.Errorf("defaults are %v, %v, %v", exists, missing, err)
	}
	if _, _, err := ingestModes(&flightsql.TableDefinitionOptions{IfExists: 99}); sqlstate.CodeOf(err) != sqlstate.InvalidParameter {
		t.Errorf("unknown option: %v", err)
	}
}

func TestTableOfPath(t *testing.T) {
	if schema, name, err := tableOfPath([]string{"t"}); schema != "" || name != "t" || err != nil {
		t.Errorf("one element: %q %q %v", schema, name, err)
	}
	if schema, name, err := tableOfPath([]string{"s", "T"}); schema != "s" || name != "T" || err != nil {
		t.Errorf("two elements: %q %q %v", schema, name, err)
	}
	if _, _, err := tableOfPath([]string{"a", "b", "c"}); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("three elements: %v", err)
	}
}
