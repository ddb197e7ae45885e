// Package system owns the tables that describe the cluster: schema skein. Each
// is a catalog.Table like any other to the binder and the planner, which plans
// its scan on the coordinator; its rows are made when a statement reads it,
// from what the gateway knows at that moment.
//
// It may import what gateway may, and must never know gRPC, sessions or the
// coordinator: the gateway hands it a State.
package system

import (
	"fmt"
	"slices"
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

// Schema is the SQL schema of the tables.
const Schema = "skein"

// State is what the tables tell about; nothing in it is changed.
type State struct {
	Meta    *consensus.MetaSnapshot
	Status  []*flightproto.WorkerStatus // of the workers that answer
	Queries []Query
	// Stats has the size of a table as workers last told it.
	Stats func(*catalog.Table) planner.TableStats
}

// Query is a running statement.
type Query struct {
	ID      string
	Text    string
	Started time.Time
}

// table is one system table: its descriptor, and what fills it.
type table struct {
	descriptor *catalog.Table
	fill       func(*State, *rows)
}

// tables are all system tables by name; the map is never changed.
var tables = byName(tablesTable, columnsTable, tabletsTable, replicasTable, nodesTable, jobsTable, queriesTable, functionsTable)

func byName(all ...table) map[string]table {
	m := make(map[string]table, len(all))
	for _, t := range all {
		m[t.descriptor.Name] = t
	}
	return m
}

// Lookup returns the descriptor of a system table.
func Lookup(schema, name string) (*catalog.Table, bool) {
	if schema != Schema {
		return nil, false
	}
	t, ok := tables[name]
	return t.descriptor, ok
}

// Tables lists the system tables by name.
func Tables() []*catalog.Table {
	out := make([]*catalog.Table, 0, len(tables))
	for _, t := range tables {
		out = append(out, t.descriptor)
	}
	slices.SortFunc(out, func(a, b *catalog.Table) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// Read makes the rows of a system table, in physical types.
func Read(t *catalog.Table, state *State) (*columnar.Batch, error) {
	found, ok := tables[t.Name]
	if !ok || t.Schema != Schema {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "there is no system table %s", t.QualifiedName())
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, found.descriptor.ArrowSchema())
	defer b.Release()
	found.fill(state, &rows{b})
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

// define describes a system table. Columns may be NULL where nothing is known.
func define(name string, fill func(*State, *rows), columns ...catalog.Column) table {
	t := &catalog.Table{Schema: Schema, Name: name, System: true, Columns: columns}
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

func moment(name string) catalog.Column {
	return catalog.Column{Name: name, Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}
}

// rows gathers the rows of a table.
type rows struct{ b *array.RecordBuilder }

// add appends a row: a value per column, nil for NULL. Numbers and ids of any
// integer type go into number columns.
func (r *rows) add(values ...any) {
	for i, v := range values {
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
