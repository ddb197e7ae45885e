package gateway

import (
	"context"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/catalog"
	"skein/gateway/system"
)

const catalogName = system.Catalog

// The types of tables, as SQL clients name them.
const (
	tableType       = "TABLE"
	systemTableType = "SYSTEM TABLE"
	localTableType  = "LOCAL TEMPORARY"
)

func typeOfTable(t *catalog.Table) string {
	if t.System {
		return systemTableType
	}
	if t.Temporary != nil {
		return localTableType
	}
	return tableType
}

// infoFor answers a metadata command: its own descriptor is the ticket.
func infoFor(d *flight.FlightDescriptor, schema *arrow.Schema) *flight.FlightInfo {
	return &flight.FlightInfo{
		Schema:           flight.SerializeSchema(schema, memory.DefaultAllocator),
		FlightDescriptor: d,
		Endpoint:         []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: d.Cmd}}},
		TotalRecords:     -1,
		TotalBytes:       -1,
	}
}

// oneBatch is the stream of a single, already built batch.
func oneBatch(rec arrow.RecordBatch) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	ch := make(chan flight.StreamChunk, 1)
	ch <- flight.StreamChunk{Data: rec}
	close(ch)
	return rec.Schema(), ch, nil
}

// likePattern compiles a metadata pattern: % any characters, _ one, \ escapes.
func likePattern(pattern *string) *regexp.Regexp {
	if pattern == nil {
		return nil
	}
	var b strings.Builder
	b.WriteString(`(?s)^`)
	escaped := false
	for _, r := range *pattern {
		switch {
		case escaped:
			b.WriteString(regexp.QuoteMeta(string(r)))
			escaped = false
		case r == '\\':
			escaped = true
		case r == '%':
			b.WriteString(".*")
		case r == '_':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

func matches(re *regexp.Regexp, s string) bool { return re == nil || re.MatchString(s) }

func inCatalog(name *string) bool { return name == nil || *name == "" || *name == catalogName }

// visibleTables lists the tables that a session sees, ordered by schema and name.
func (s *sqlService) visibleTables(ctx context.Context) ([]*catalog.Table, error) {
	in, err := s.scope(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := s.gw.directory.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	tables := slices.DeleteFunc(slices.Clone(snap.tables()), func(t *catalog.Table) bool { return !in.sees(t) })
	sort.Slice(tables, func(i, j int) bool {
		if tables[i].Schema != tables[j].Schema {
			return tables[i].Schema < tables[j].Schema
		}
		return tables[i].Name < tables[j].Name
	})
	return tables, nil
}

func (s *sqlService) GetFlightInfoCatalogs(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.Catalogs), nil
}

func (s *sqlService) DoGetCatalogs(context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.Catalogs)
	defer b.Release()
	b.Field(0).(*array.StringBuilder).Append(catalogName)
	return oneBatch(b.NewRecordBatch())
}

func (s *sqlService) GetFlightInfoSchemas(_ context.Context, _ flightsql.GetDBSchemas, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.DBSchemas), nil
}

func (s *sqlService) DoGetDBSchemas(ctx context.Context, cmd flightsql.GetDBSchemas) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	in, err := s.scope(ctx)
	if err != nil {
		return nil, nil, s.fail(ctx, err)
	}
	snap, err := s.gw.directory.Fresh(ctx)
	if err != nil {
		return nil, nil, s.fail(ctx, err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.DBSchemas)
	defer b.Release()
	pattern := likePattern(cmd.GetDBSchemaFilterPattern())
	for _, name := range s.schemaNames(snap, in) {
		if inCatalog(cmd.GetCatalog()) && matches(pattern, name) {
			b.Field(0).(*array.StringBuilder).Append(catalogName)
			b.Field(1).(*array.StringBuilder).Append(name)
		}
	}
	return oneBatch(b.NewRecordBatch())
}

func (s *sqlService) GetFlightInfoTables(_ context.Context, cmd flightsql.GetTables, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if cmd.GetIncludeSchema() {
		return infoFor(d, schema_ref.TablesWithIncludedSchema), nil
	}
	return infoFor(d, schema_ref.Tables), nil
}

func (s *sqlService) DoGetTables(ctx context.Context, cmd flightsql.GetTables) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	schema := schema_ref.Tables
	if cmd.GetIncludeSchema() {
		schema = schema_ref.TablesWithIncludedSchema
	}
	tables, err := s.visibleTables(ctx)
	if err != nil {
		return nil, nil, s.fail(ctx, err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	schemas, names := likePattern(cmd.GetDBSchemaFilterPattern()), likePattern(cmd.GetTableNameFilterPattern())
	for _, t := range append(tables, system.Tables()...) {
		wanted := len(cmd.GetTableTypes()) == 0 || slices.Contains(cmd.GetTableTypes(), typeOfTable(t))
		if !wanted || !inCatalog(cmd.GetCatalog()) || !matches(schemas, t.Schema) || !matches(names, t.Name) {
			continue
		}
		b.Field(0).(*array.StringBuilder).Append(catalogName)
		b.Field(1).(*array.StringBuilder).Append(t.Schema)
		b.Field(2).(*array.StringBuilder).Append(t.Name)
		b.Field(3).(*array.StringBuilder).Append(typeOfTable(t))
		if cmd.GetIncludeSchema() {
			b.Field(4).(*array.BinaryBuilder).Append(flight.SerializeSchema(describedTable(t), memory.DefaultAllocator))
		}
	}
	return oneBatch(b.NewRecordBatch())
}

func (s *sqlService) GetFlightInfoTableTypes(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.TableTypes), nil
}

func (s *sqlService) DoGetTableTypes(context.Context) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.TableTypes)
	defer b.Release()
	for _, name := range []string{localTableType, systemTableType, tableType} {
		b.Field(0).(*array.StringBuilder).Append(name)
	}
	return oneBatch(b.NewRecordBatch())
}

func (s *sqlService) GetFlightInfoPrimaryKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.PrimaryKeys), nil
}

func (s *sqlService) DoGetPrimaryKeys(ctx context.Context, ref flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	tables, err := s.visibleTables(ctx)
	if err != nil {
		return nil, nil, s.fail(ctx, err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.PrimaryKeys)
	defer b.Release()
	for _, t := range tables {
		if t.Name != ref.Table || !inCatalog(ref.Catalog) || (ref.DBSchema != nil && *ref.DBSchema != t.Schema) {
			continue
		}
		for i, c := range t.PrimaryKey {
			b.Field(0).(*array.StringBuilder).Append(catalogName)
			b.Field(1).(*array.StringBuilder).Append(t.Schema)
			b.Field(2).(*array.StringBuilder).Append(t.Name)
			b.Field(3).(*array.StringBuilder).Append(t.Columns[c].Name)
			b.Field(4).(*array.Int32Builder).Append(int32(i + 1))
			b.Field(5).(*array.StringBuilder).Append(t.Name + "_pkey")
		}
	}
	return oneBatch(b.NewRecordBatch())
}

// Skein has no foreign keys, so the three key listings are empty.

func (s *sqlService) GetFlightInfoExportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.ExportedKeys), nil
}

func (s *sqlService) DoGetExportedKeys(context.Context, flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return emptyBatch(schema_ref.ExportedKeys)
}

func (s *sqlService) GetFlightInfoImportedKeys(_ context.Context, _ flightsql.TableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.ImportedKeys), nil
}

func (s *sqlService) DoGetImportedKeys(context.Context, flightsql.TableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return emptyBatch(schema_ref.ImportedKeys)
}

func (s *sqlService) GetFlightInfoCrossReference(_ context.Context, _ flightsql.CrossTableRef, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.CrossReference), nil
}

func (s *sqlService) DoGetCrossReference(context.Context, flightsql.CrossTableRef) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	return emptyBatch(schema_ref.CrossReference)
}

func emptyBatch(schema *arrow.Schema) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	return oneBatch(b.NewRecordBatch())
}

func (s *sqlService) GetFlightInfoSqlInfo(_ context.Context, _ flightsql.GetSqlInfo, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return infoFor(d, schema_ref.SqlInfo), nil
}
