package gateway

import (
	"context"
	"slices"

	"skein/catalog"
	"skein/consensus"
	"skein/gateway/system"
	"skein/sql"
	"skein/sqlstate"
)

// createSchema runs CREATE SCHEMA.
func (s *sqlService) createSchema(ctx context.Context, b *sql.CreateSchema) error {
	var reply consensus.TableReply
	err := s.gw.directory.meta(ctx, consensus.MetaCreateSchema, consensus.CreateSchema{RequestID: newID(), Name: b.Name}, &reply)
	if b.IfNotExists && sqlstate.CodeOf(err) == sqlstate.DuplicateSchema {
		return nil
	}
	if err != nil {
		return err
	}
	return s.gw.directory.waitVersion(ctx, reply.Version)
}

// dropSchemas runs DROP SCHEMA.
func (s *sqlService) dropSchemas(ctx context.Context, b *sql.DropSchema) error {
	var names []string
	for _, name := range b.Names {
		snap := s.gw.directory.Current()
		if !snap.meta.HasSchema(name) { // it may be new
			var err error
			if snap, err = s.gw.directory.Fresh(ctx); err != nil {
				return err
			}
		}
		switch {
		case snap.meta.HasSchema(name) || slices.Contains(system.Schemas(), name):
			names = append(names, name)
		case !b.IfExists:
			return sqlstate.New(sqlstate.InvalidSchemaName, "schema %q does not exist", name)
		}
	}
	for _, name := range names {
		var reply consensus.TableReply
		err := s.gw.directory.meta(ctx, consensus.MetaDropSchema, consensus.DropSchema{RequestID: newID(), Name: name, Cascade: b.Cascade}, &reply)
		if b.IfExists && sqlstate.CodeOf(err) == sqlstate.InvalidSchemaName { // somebody was quicker
			continue
		}
		if err == nil {
			err = s.gw.directory.waitVersion(ctx, reply.Version)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// schemaExists reports whether there is a schema of a name, system schemas
// included.
func (s *sqlService) schemaExists(name string) bool {
	return slices.Contains(system.Schemas(), name) || s.gw.directory.Current().meta.HasSchema(name)
}

// schemaNames are all schemas that a session sees, sorted.
func (s *sqlService) schemaNames(snap *snapshot, c *scope) []string {
	names := append([]string{catalog.DefaultSchema}, system.Schemas()...)
	for _, schema := range snap.meta.Schemas {
		names = append(names, schema.Name)
	}
	for _, t := range snap.tables() { // of an older release, without a record of their schema
		if c.sees(t) {
			names = append(names, t.Schema)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
