package consensus

import (
	"context"
	"maps"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands about schemas. Each has a JSON request below and answers a
// TableReply without a table.
const (
	MetaCreateSchema = "create_schema" // CreateSchema
	MetaDropSchema   = "drop_schema"   // DropSchema
)

// maxSchemas bounds the schemas of a cluster.
const maxSchemas = 10_000

// Schema is a name space of tables. catalog.DefaultSchema always exists and has
// no record.
type Schema struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
}

// CreateSchema asks for a schema.
type CreateSchema struct {
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
}

// DropSchema removes a schema, with Cascade also the tables in it; without, one
// that has tables is kept.
type DropSchema struct {
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
	Cascade   bool   `json:"cascade,omitempty"`
}

// CreateSchema creates a schema.
func (m *Meta) CreateSchema(ctx context.Context, r CreateSchema) (TableReply, error) {
	return m.command(ctx, MetaCreateSchema, r)
}

// DropSchema removes a schema.
func (m *Meta) DropSchema(ctx context.Context, r DropSchema) (TableReply, error) {
	return m.command(ctx, MetaDropSchema, r)
}

// HasSchema reports whether there is a schema of that name, those of temporary
// tables and system tables left out.
func (s *MetaSnapshot) HasSchema(name string) bool {
	return name == catalog.DefaultSchema || slices.ContainsFunc(s.Schemas, func(c Schema) bool { return c.Name == name })
}

func (s *metaState) createSchema(r *CreateSchema) metaAnswer {
	if err := validateName("schema", r.Name); err != nil {
		return rejected(err)
	}
	_, taken := s.schemas[r.Name]
	switch {
	case r.Name == "":
		return rejected(sqlstate.New(sqlstate.InvalidSchemaName, "a schema needs a name"))
	case catalog.ReservedSchema(r.Name):
		return rejected(sqlstate.New(sqlstate.ReservedName, "unacceptable schema name %q", r.Name).
			WithHint("names that begin with pg_, skein and information_schema belong to the system"))
	case taken || r.Name == catalog.DefaultSchema:
		return rejected(sqlstate.New(sqlstate.DuplicateSchema, "schema %q already exists", r.Name))
	case len(s.schemas) >= maxSchemas:
		return rejected(sqlstate.New(sqlstate.ProgramLimitExceeded, "there are already %d schemas", len(s.schemas)))
	}
	s.counters.Version++
	s.counters.NextSchema++
	schema := Schema{ID: s.counters.NextSchema, Name: r.Name}
	s.schemas[r.Name] = schema
	s.write(recordSchema, schema.ID, schema)
	return s.accepted(nil)
}

func (s *metaState) dropSchema(r *DropSchema) metaAnswer {
	schema, ok := s.schemas[r.Name]
	switch {
	case r.Name == catalog.DefaultSchema || catalog.ReservedSchema(r.Name):
		return rejected(sqlstate.New(sqlstate.FeatureNotSupported, "schema %q cannot be dropped: it belongs to the system", r.Name))
	case !ok:
		return rejected(undefinedSchema(r.Name))
	}
	tables := s.tablesOf(func(t *tableRecord) bool { return t.Table.Schema == r.Name && !t.Hidden })
	if len(tables) > 0 && !r.Cascade {
		return rejected(sqlstate.New(sqlstate.DependentObjects, "cannot drop schema %q because %d tables are in it", r.Name, len(tables)).
			WithDetail("table %s is one of them", s.tables[tables[0]].Table.QualifiedName()).
			WithHint("use DROP SCHEMA ... CASCADE to drop them too"))
	}
	s.counters.Version++
	for _, id := range tables {
		s.removeTable(id)
	}
	delete(s.schemas, r.Name)
	s.dirty[recordKey(recordSchema, schema.ID)] = nil
	return s.accepted(nil)
}

func undefinedSchema(name string) *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidSchemaName, "schema %q does not exist", name).WithHint("create it with CREATE SCHEMA")
}

// checkSchema rejects a table whose schema does not exist, or is not that of
// its session.
func (s *metaState) checkSchema(t *catalog.Table) *sqlstate.Error {
	if t.Temporary != nil {
		return s.checkTemporary(t)
	}
	if _, ok := s.schemas[t.Schema]; !ok && t.Schema != catalog.DefaultSchema {
		return undefinedSchema(t.Schema)
	}
	return nil
}

// tablesOf lists the tables that f holds for, by id.
func (s *metaState) tablesOf(f func(*tableRecord) bool) []catalog.TableID {
	var ids []catalog.TableID
	for id, record := range s.tables {
		if f(record) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *metaState) schemaList() []Schema {
	list := make([]Schema, 0, len(s.schemas))
	for _, name := range slices.Sorted(maps.Keys(s.schemas)) {
		list = append(list, s.schemas[name])
	}
	return list
}
