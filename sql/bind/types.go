package bind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// What NUMERIC means where PostgreSQL has no bound.
const (
	defaultPrecision = catalog.MaxDecimalPrecision
	defaultScale     = 9
)

// maxVarchar is PostgreSQL's bound of VARCHAR(n).
const maxVarchar = 10485760

// sqlType is a type as a statement spells it: the Arrow type and what it
// does not carry.
type sqlType struct {
	arrow.DataType
	maxLength int  // of VARCHAR(n) and CHAR(n), 0 for none
	unbounded bool // NUMERIC without precision
	interval  string
}

// typeNames are the scalar types by every name the grammar yields: its own
// spellings ("pg_catalog.int4") and what users write as plain identifiers.
func typeNames(name string) (arrow.DataType, bool) {
	switch name {
	case "bool", "boolean":
		return catalog.Boolean, true
	case "int2", "smallint":
		return catalog.SmallInt, true
	case "int4", "int", "integer":
		return catalog.Integer, true
	case "int8", "bigint":
		return catalog.BigInt, true
	case "float4", "real":
		return catalog.Real, true
	case "float8", "double":
		return catalog.Double, true
	case "text", "varchar", "bpchar", "string":
		return catalog.Text, true
	case "bytea":
		return catalog.Bytea, true
	case "date":
		return catalog.Date, true
	case "time":
		return catalog.Time, true
	case "timestamp":
		return catalog.Timestamp, true
	case "timestamptz":
		return catalog.TimestampTZ, true
	case "interval":
		return catalog.Interval, true
	case "uuid":
		return catalog.UUID, true
	case "numeric", "decimal":
		return catalog.Decimal(defaultPrecision, defaultScale), true
	}
	return nil, false
}

var knownTypeNames = []string{
	"boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "decimal", "text", "varchar",
	"bytea", "date", "time", "timestamp", "timestamptz", "interval", "uuid",
	"int2", "int4", "int8", "float4", "float8", "bool",
}

// foreignTypes are PostgreSQL's types that the language does not have.
var foreignTypes = []string{
	"serial", "bigserial", "smallserial", "serial2", "serial4", "serial8", "json", "jsonb", "jsonpath", "xml", "money",
	"inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "char", "name", "oid", "regclass", "regtype", "timetz", "point",
	"line", "lseg", "box", "path", "polygon", "circle", "tsvector", "tsquery", "int4range", "int8range", "numrange",
	"daterange", "tsrange", "tstzrange", "hstore", "citext", "geometry", "vector", "record", "void", "any", "pg_lsn",
}

// typeName resolves a type as written.
func (b *binder) typeName(t *pgquery.TypeName) (sqlType, error) {
	if err := b.onlyFields(t, "names", "typmods", "typemod"); err != nil {
		return sqlType{}, err
	}
	parts := stringsOf(t.Names)
	name := parts[len(parts)-1]
	system := len(parts) == 2 && parts[0] == "pg_catalog"
	if len(parts) > 1 && !system {
		return sqlType{}, b.errorAt(sqlstate.UndefinedObject, t.Location, "type %q does not exist", strings.Join(parts, "."))
	}
	dt, ok := typeNames(name)
	if !ok {
		return sqlType{}, b.unknownType(name, t.Location)
	}
	if name == "interval" {
		return b.intervalType(t)
	}
	mods, err := b.typeModifiers(t)
	if err != nil {
		return sqlType{}, err
	}
	return b.applyModifiers(name, dt, mods, t.Location)
}

func (b *binder) unknownType(name string, location int32) error {
	if slices.Contains(foreignTypes, name) {
		return b.unsupported(location, "type %s", name)
	}
	err := b.errorAt(sqlstate.UndefinedObject, location, "type %q does not exist", name)
	if near := nearest(name, knownTypeNames); near != "" {
		err = err.WithHint("Perhaps you meant %s.", near)
	}
	return err
}

// typeModifiers are the integers in parentheses after a type's name.
func (b *binder) typeModifiers(t *pgquery.TypeName) ([]int, error) {
	mods := make([]int, len(t.Typmods))
	for i, m := range t.Typmods {
		c := m.GetAConst()
		if c == nil || c.GetIval() == nil {
			return nil, b.errorAt(sqlstate.InvalidParameter, locationOf(m), "a type modifier must be an integer")
		}
		mods[i] = int(c.GetIval().Ival)
	}
	return mods, nil
}

func (b *binder) applyModifiers(name string, dt arrow.DataType, mods []int, location int32) (sqlType, error) {
	switch name {
	case "varchar", "bpchar":
		return b.characterType(name, mods, location)
	case "numeric", "decimal":
		return b.decimalType(mods, location)
	case "timestamp", "timestamptz":
		if len(mods) == 1 {
			precise, err := catalog.TimestampOf(mods[0], name == "timestamptz")
			if err != nil {
				return sqlType{}, b.errorAt(sqlstate.InvalidParameter, location, "%w", err)
			}
			return sqlType{DataType: precise}, nil
		}
	case "time":
		if len(mods) == 1 && mods[0] != 6 {
			return sqlType{}, b.unsupported(location, "time(%d), other than time(6),", mods[0])
		}
		return sqlType{DataType: dt}, nil
	}
	if len(mods) > 0 {
		return sqlType{}, b.errorAt(sqlstate.SyntaxError, location, "type %s takes no such modifier", name)
	}
	return sqlType{DataType: dt}, nil
}

func (b *binder) characterType(name string, mods []int, location int32) (sqlType, error) {
	if len(mods) == 0 {
		return sqlType{DataType: catalog.Text}, nil
	}
	if len(mods) != 1 || mods[0] < 1 || mods[0] > maxVarchar {
		return sqlType{}, b.errorAt(sqlstate.InvalidParameter, location, "the length of type %s must be 1 to %d", name, maxVarchar)
	}
	return sqlType{DataType: catalog.Text, maxLength: mods[0]}, nil
}

func (b *binder) decimalType(mods []int, location int32) (sqlType, error) {
	switch len(mods) {
	case 0:
		return sqlType{DataType: catalog.Decimal(defaultPrecision, defaultScale), unbounded: true}, nil
	case 1:
		mods = append(mods, 0)
	case 2:
	default:
		return sqlType{}, b.errorAt(sqlstate.InvalidParameter, location, "type numeric takes a precision and a scale")
	}
	precision, scale := mods[0], mods[1]
	if precision < 1 || precision > catalog.MaxDecimalPrecision || scale < 0 || scale > precision {
		return sqlType{}, b.errorAt(sqlstate.InvalidParameter, location,
			"numeric(%d,%d): the precision must be 1 to %d and the scale 0 to the precision", precision, scale, catalog.MaxDecimalPrecision)
	}
	return sqlType{DataType: catalog.Decimal(precision, scale)}, nil
}

// The grammar encodes the fields of INTERVAL ... YEAR and its like as a bit mask.
const allIntervalFields = 0x7fff

func intervalField(mask int) string {
	switch mask {
	case 1 << 1:
		return "month"
	case 1 << 2:
		return "year"
	case 1 << 3:
		return "day"
	case 1 << 10:
		return "hour"
	case 1 << 11:
		return "minute"
	case 1 << 12:
		return "second"
	}
	return ""
}

func (b *binder) intervalType(t *pgquery.TypeName) (sqlType, error) {
	mods, err := b.typeModifiers(t)
	if err != nil || len(mods) == 0 {
		return sqlType{DataType: catalog.Interval}, err
	}
	if len(mods) > 1 {
		return sqlType{}, b.unsupported(t.Location, "the precision of an interval")
	}
	field := intervalField(mods[0])
	if field == "" && mods[0] != allIntervalFields {
		return sqlType{}, b.unsupported(t.Location, "an interval of several fields (such as YEAR TO MONTH)")
	}
	return sqlType{DataType: catalog.Interval, interval: field}, nil
}

// intervalText gives a bare number the unit that the type names, so that
// INTERVAL '90' DAY reads as '90 day'.
func (b *binder) intervalText(text, field string, location int32) (string, error) {
	if field == "" {
		return text, nil
	}
	number := strings.TrimSpace(text)
	if _, err := strconv.ParseFloat(number, 64); err != nil {
		return "", b.unsupported(location, "interval %s with a unit of its own before %s", quoteText(text), strings.ToUpper(field))
	}
	return number + " " + field, nil
}

// typesNamed joins type names for messages.
func typesNamed(dt ...arrow.DataType) string {
	names := make([]string, len(dt))
	for i, t := range dt {
		names[i] = catalog.TypeName(t)
	}
	return strings.Join(names, " and ")
}

// nearest is the candidate closest to a misspelt name, "" if none is close.
func nearest(name string, candidates []string) string {
	best, distance := "", min(max(len(name)/3, 1)+1, len(name))
	for _, c := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// literalSQL is a constant as SQL that binds to the same value when cast to its
// type.
func literalSQL(l *planner.Literal) string {
	if f, ok := l.Value.(float64); ok && (f != f || f-f != 0) {
		return quoteText(fmt.Sprint(f))
	}
	return l.String()
}
