// Package system owns the tables that describe the cluster, schema skein, and
// those that describe what is in it to programs that know SQL's
// information_schema or PostgreSQL's pg_catalog. Each is a catalog.Table like any
// other to the binder and the planner, which plans its scan on the coordinator;
// its rows are made when a statement reads it, from what the gateway knows at
// that moment.
//
// It may import what gateway may, and must never know gRPC, sessions or the
// coordinator: the gateway hands it a State.
package system

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto"
	"skein/planner"
	"skein/sqlstate"
)

// Schema is the SQL schema of the tables about the cluster.
const Schema = "skein"

// ImplicitSchema is the schema whose tables need not be named with it.
const ImplicitSchema = "pg_catalog"

// informationSchema is the schema that the SQL standard defines.
const informationSchema = "information_schema"

// Schemas are the schemas of system tables, sorted.
func Schemas() []string { return []string{informationSchema, ImplicitSchema, Schema} }

// Catalog is the one SQL catalog, or database, of a cluster.
const Catalog = "skein"

// State is what the tables tell about; nothing in it is changed.
type State struct {
	Meta    *consensus.MetaSnapshot
	Status  []*flightproto.WorkerStatus // of the workers that answer
	Queries []Query
	Version string // of the server
	User    string // who asks
	// Stats has the size of a table as workers last told it.
	Stats func(*catalog.Table) planner.TableStats

	system []*catalog.Table // set by Read
}

// Query is a running statement.
type Query struct {
	ID      string
	User    string
	Text    string // as the reader may see it
	Started time.Time
}

// table is one system table: its descriptor, and what fills it.
type table struct {
	descriptor *catalog.Table
	fill       func(*State, *rows)
}

// tableName is the key of a system table.
type tableName struct{ schema, name string }

// tables are all system tables; the map is never changed.
var tables = byName(slices.Concat(
	[]table{tablesTable, columnsTable, tabletsTable, replicasTable, rangesTable, nodesTable, settingsTable, jobsTable, queriesTable, usersTable, functionsTable},
	informationTables, pgTables,
))

func byName(all []table) map[tableName]table {
	m := make(map[tableName]table, len(all))
	for _, t := range all {
		m[tableName{t.descriptor.Schema, t.descriptor.Name}] = t
	}
	return m
}

// Lookup returns the descriptor of a system table.
func Lookup(schema, name string) (*catalog.Table, bool) {
	t, ok := tables[tableName{schema, name}]
	return t.descriptor, ok
}

// Tables lists the system tables by schema and name.
func Tables() []*catalog.Table {
	out := make([]*catalog.Table, 0, len(tables))
	for _, t := range tables {
		out = append(out, t.descriptor)
	}
	slices.SortFunc(out, func(a, b *catalog.Table) int {
		return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Read makes the rows of a system table, in physical types.
func Read(t *catalog.Table, state *State) (*columnar.Batch, error) {
	found, ok := tables[tableName{t.Schema, t.Name}]
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "there is no system table %s", t.QualifiedName())
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, found.descriptor.ArrowSchema())
	defer b.Release()
	known := *state
	known.system = Tables()
	filled := &rows{b: b}
	found.fill(&known, filled)
	if filled.surplus > 0 {
		return nil, sqlstate.New(sqlstate.InternalError, "the rows of %s have more values than columns", t.QualifiedName())
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	fields := slices.Clone(rec.Schema().Fields())
	for i := range fields {
		fields[i].Type = catalog.PhysicalType(fields[i].Type)
	}
	batch, err := columnar.FromRecord(rec, arrow.NewSchema(fields, nil))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.QualifiedName(), err)
	}
	return batch, nil
}

// define describes a table of schema skein. Columns may be NULL where nothing is
// known.
func define(name string, fill func(*State, *rows), columns ...catalog.Column) table {
	return defineIn(Schema, name, fill, columns...)
}

func defineIn(schema, name string, fill func(*State, *rows), columns ...catalog.Column) table {
	t := &catalog.Table{Schema: schema, Name: name, System: true, Columns: columns}
	t.AssignColumnIDs()
	return table{descriptor: t, fill: fill}
}

func text(name string) catalog.Column {
	return catalog.Column{Name: name, Type: catalog.Text, Nullable: true}
}

func number(name string) catalog.Column {
	return catalog.Column{Name: name, Type: catalog.BigInt, Nullable: true}
}

func flag(name string) catalog.Column {
	return catalog.Column{Name: name, Type: catalog.Boolean, Nullable: true}
}

// texts, numbers and flags are several columns, named in one string.
func texts(names string) []catalog.Column   { return each(names, text) }
func numbers(names string) []catalog.Column { return each(names, number) }
func flags(names string) []catalog.Column   { return each(names, flag) }

func each(names string, column func(string) catalog.Column) []catalog.Column {
	var out []catalog.Column
	for _, name := range strings.Fields(names) {
		out = append(out, column(name))
	}
	return out
}

func moment(name string) catalog.Column {
	return catalog.Column{Name: name, Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}
}

// rows gathers the rows of a table.
type rows struct {
	b       *array.RecordBuilder
	surplus int // values that there was no column for
}

// add appends a row: a value per column, nil for NULL, which those are that are
// left out at the end. Numbers and ids of any integer type go into number columns.
func (r *rows) add(values ...any) {
	fields := r.b.Fields()
	r.surplus += max(0, len(values)-len(fields))
	for i := range fields {
		var v any
		if i < len(values) {
			v = values[i]
		}
		switch b := r.b.Field(i).(type) {
		case *array.StringBuilder:
			if s, ok := v.(string); ok {
				b.Append(s)
				continue
			}
		case *array.BooleanBuilder:
			if x, ok := v.(bool); ok {
				b.Append(x)
				continue
			}
		case *array.TimestampBuilder:
			if x, ok := v.(time.Time); ok {
				b.Append(arrow.Timestamp(x.UnixMicro()))
				continue
			}
		case *array.Int64Builder:
			if x, ok := integer(v); ok {
				b.Append(x)
				continue
			}
		}
		r.b.Field(i).AppendNull()
	}
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), true
	case catalog.TableID:
		return int64(v), true
	case catalog.TabletID:
		return int64(v), true
	case catalog.NodeID:
		return int64(v), true
	}
	return 0, false
}
