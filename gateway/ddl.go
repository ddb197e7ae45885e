package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
	"skein/gateway/system"
	"skein/sqlstate"
)

// tabletsTimeout bounds waiting until the tablets of a new table serve.
const tabletsTimeout = 30 * time.Second

// createTable asks the meta group for a table and waits until its tablets
// serve. A hidden table has no name yet: see publishTable.
func (g *Server) createTable(ctx context.Context, t *catalog.Table, hidden bool) (*catalog.Table, error) {
	switch {
	case t.Schema == noSchema:
		return nil, sqlstate.New(sqlstate.InvalidSchemaName, "no schema has been selected to create in").
			WithHint("name a schema, or set search_path")
	case slices.Contains(system.Schemas(), t.Schema):
		return nil, sqlstate.New(sqlstate.ReservedName, "schema %q is for system tables", t.Schema).WithHint("name another schema")
	}
	var reply consensus.TableReply
	err := g.directory.meta(ctx, consensus.MetaCreateTable, consensus.CreateTable{
		RequestID: newID(), Table: t, Hidden: hidden, CreatedUnixMS: time.Now().UnixMilli(),
	}, &reply)
	if err != nil {
		return nil, err
	}
	if err := g.directory.waitVersion(ctx, reply.Version); err != nil {
		return nil, err
	}
	if err := g.waitTablets(ctx, reply.Table, reply.Version); err != nil {
		return nil, err
	}
	return reply.Table, nil
}

// publishTable gives a hidden table its name, dropping the one that has it
// when replace is set.
func (g *Server) publishTable(ctx context.Context, t *catalog.Table, replace bool) error {
	var reply consensus.TableReply
	err := g.directory.meta(ctx, consensus.MetaPublishTable, consensus.PublishTable{
		RequestID: newID(), ID: t.ID, Schema: t.Schema, Name: t.Name, Replace: replace,
	}, &reply)
	if err != nil {
		return err
	}
	return g.directory.waitVersion(ctx, reply.Version)
}

// dropTable removes a table by id.
func (g *Server) dropTable(ctx context.Context, id catalog.TableID) error {
	var reply consensus.TableReply
	err := g.directory.meta(ctx, consensus.MetaDropTable, consensus.DropTable{RequestID: newID(), ID: id}, &reply)
	if err != nil {
		return err
	}
	return g.directory.waitVersion(ctx, reply.Version)
}

// discardTable drops a hidden table whose statement failed, in the background.
func (g *Server) discardTable(t *catalog.Table) {
	g.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), metaTimeout)
		defer cancel()
		if err := g.dropTable(ctx, t.ID); err != nil {
			g.log.Warn("a table that was never published could not be dropped and will expire", "table", t.Name, "table_id", uint64(t.ID), "err", err)
		}
	})
}

// waitTablets returns when every tablet of a table has a leader. It fails at once
// if the table is dropped meanwhile, and waits for no tablet that another has
// taken the place of.
func (g *Server) waitTablets(ctx context.Context, t *catalog.Table, version uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tabletsTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		g.directory.pollOnce(ctx)
		snap := g.directory.Current()
		now, ok := snap.tableByID(t.ID)
		if !ok && snap.Version() >= version {
			return sqlstate.New(sqlstate.UndefinedTable, "table %s was dropped while it was being created", t.QualifiedName()).
				WithHint("create it again if it is still wanted")
		}
		if ok {
			t = now
		}
		ready := 0
		for _, tablet := range t.Tablets {
			if _, ok := snap.leaders[tablet.ID]; ok {
				ready++
			}
		}
		if ready == len(t.Tablets) {
			return nil
		}
		sleep(ctx, jitter(wait))
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			return flightproto.WithReason(flightproto.Unavailable, sqlstate.New(sqlstate.CannotConnectNow,
				"table %s was created, but only %d of its %d tablets have a leader after %s", t.QualifiedName(), ready, len(t.Tablets), tabletsTimeout).
				WithHint("check that a majority of its replicas' workers is up"))
		} else if err != nil {
			return causeOf(ctx, err)
		}
	}
}

// waitVersion makes the directory at least as new as a metadata version.
func (d *directory) waitVersion(ctx context.Context, version uint64) error {
	for attempt := 1; d.Current().Version() < version; attempt++ {
		if err := d.refresh(ctx, false); err != nil {
			return err
		}
		if attempt > maxAttempts {
			return sqlstate.New(sqlstate.InternalError, "metadata version %d is not readable after it was written", version)
		}
	}
	return nil
}
