package system

import (
	"hash/fnv"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// owner is who everything belongs to as long as nothing has an owner.
const owner = "skein"

// schemas are all schemas, sorted.
func (s *State) schemas() []string {
	names := append(Schemas(), catalog.DefaultSchema)
	for _, made := range s.Meta.Schemas {
		names = append(names, made.Name)
	}
	for _, t := range s.Meta.Tables {
		names = append(names, t.Schema)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// relations are all tables, system tables included.
func (s *State) relations() []*catalog.Table { return slices.Concat(s.Meta.Tables, s.system) }

// keyName is the name of a table's primary key.
func keyName(t *catalog.Table) string { return t.Name + "_pkey" }

// The object identifiers of PostgreSQL are numbers. Those that clients know by
// heart are PostgreSQL's; others are made of what names the object for ever.
const (
	ownerOID     = 10
	databaseOID  = 1
	firstOID     = 1 << 14 // of tables: their ids come on top
	hashedOID    = 1 << 30 // from here on, of names
	keyOIDs      = 1 << 40 // of primary keys: their tables' on top
	rowTypeOIDs  = 1 << 41 // of tables' row types
	defaultOIDs  = 1 << 42 // of columns' defaults
	amHeap       = 2
	amBtree      = 403
	catalogOID   = 11
	defaultOID   = 2200
	noLimitModes = -1 // of a type without parameters
)

func hashOID(name string) int64 {
	h := fnv.New32a()
	h.Write([]byte(name)) // never fails
	return hashedOID | int64(h.Sum32()>>2)
}

func schemaOID(name string) int64 {
	switch name {
	case ImplicitSchema:
		return catalogOID
	case catalog.DefaultSchema:
		return defaultOID
	}
	return hashOID(name)
}

func tableOID(t *catalog.Table) int64 {
	if t.System {
		return hashOID(t.Schema + "." + t.Name)
	}
	return firstOID + int64(t.ID)
}

func keyOID(t *catalog.Table) int64 { return keyOIDs + tableOID(t) }

// sqlType is what the standard and PostgreSQL call a type.
type sqlType struct {
	name     string // of the standard, as information_schema has it
	udt      string // PostgreSQL's name
	oid      int64
	length   int64  // of values in bytes, -1 if they differ
	category string // by pg_type
	bits     int64  // of a binary number
	digits   int64  // of the fraction of a second
	timed    bool
}

// typeNames lists the types that pg_type has, by what they are in Arrow.
var typeNames = map[arrow.Type]sqlType{
	arrow.BOOL:                    {name: "boolean", udt: "bool", oid: 16, length: 1, category: "B"},
	arrow.BINARY:                  {name: "bytea", udt: "bytea", oid: 17, length: -1, category: "U"},
	arrow.INT64:                   {name: "bigint", udt: "int8", oid: 20, length: 8, category: "N", bits: 64},
	arrow.INT16:                   {name: "smallint", udt: "int2", oid: 21, length: 2, category: "N", bits: 16},
	arrow.INT32:                   {name: "integer", udt: "int4", oid: 23, length: 4, category: "N", bits: 32},
	arrow.STRING:                  {name: "text", udt: "text", oid: 25, length: -1, category: "S"},
	arrow.FLOAT32:                 {name: "real", udt: "float4", oid: 700, length: 4, category: "N", bits: 24},
	arrow.FLOAT64:                 {name: "double precision", udt: "float8", oid: 701, length: 8, category: "N", bits: 53},
	arrow.DATE32:                  {name: "date", udt: "date", oid: 1082, length: 4, category: "D", timed: true},
	arrow.TIME64:                  {name: "time without time zone", udt: "time", oid: 1083, length: 8, category: "D", timed: true, digits: 6},
	arrow.INTERVAL_MONTH_DAY_NANO: {name: "interval", udt: "interval", oid: 1186, length: 16, category: "T", timed: true, digits: 9},
	arrow.DECIMAL128:              {name: "numeric", udt: "numeric", oid: 1700, length: -1, category: "N"},
	arrow.FIXED_SIZE_BINARY:       {name: "uuid", udt: "uuid", oid: 2950, length: 16, category: "U"},
}

var (
	varcharType     = sqlType{name: "character varying", udt: "varchar", oid: 1043, length: -1, category: "S"}
	timestampType   = sqlType{name: "timestamp without time zone", udt: "timestamp", oid: 1114, length: 8, category: "D", timed: true}
	timestampTZType = sqlType{name: "timestamp with time zone", udt: "timestamptz", oid: 1184, length: 8, category: "D", timed: true}
)

// typeOf is the type of a column. One that PostgreSQL lacks has our name and an
// identifier made of it.
func typeOf(c *catalog.Column) sqlType {
	switch t := c.Type.(type) {
	case *arrow.TimestampType:
		out := timestampType
		if t.TimeZone != "" {
			out = timestampTZType
		}
		out.digits = 3 * int64(t.Unit)
		return out
	case *arrow.StringType:
		if c.MaxLength > 0 {
			return varcharType
		}
	}
	if t, ok := typeNames[c.Type.ID()]; ok {
		return t
	}
	name := catalog.TypeName(c.Type)
	return sqlType{name: name, udt: name, oid: hashOID(name), length: -1, category: "U"}
}

// allTypes are the types of pg_type, by identifier.
func allTypes() []sqlType {
	out := []sqlType{varcharType, timestampType, timestampTZType}
	for _, t := range typeNames {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b sqlType) int { return int(a.oid - b.oid) })
	return out
}

// typeModifier is atttypmod: a type's parameters in PostgreSQL's encoding.
func typeModifier(c *catalog.Column) int64 {
	switch t := c.Type.(type) {
	case *arrow.Decimal128Type:
		return int64(t.Precision)<<16 | int64(t.Scale) + 4
	case *arrow.TimestampType:
		return 3 * int64(t.Unit)
	}
	if c.MaxLength > 0 {
		return int64(c.MaxLength) + 4
	}
	return noLimitModes
}

// orNull is a text, NULL for none.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// yesNo is a truth value as information_schema has it.
func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}

// ordinals are column numbers as PostgreSQL prints its vectors of them.
func ordinals(columns []int, open, separator, end string) string {
	return open + strings.Join(numbersOf(columns), separator) + end
}
