package gateway

import (
	"context"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto/pb"
	"skein/sql"
	"skein/sql/bind"
	"skein/sqlstate"
)

// alterTable runs ALTER TABLE: one step of the meta group. Rows are not
// touched; workers give old ones the default of a new column when they read
// them.
func (s *sqlService) alterTable(ctx context.Context, b *sql.AlterTable) error {
	in, err := s.scope(ctx)
	if err != nil {
		return err
	}
	t, err := s.target(ctx, in, b.Name.Schema, b.Name.Name)
	if err != nil {
		if b.IfExists && sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			return nil
		}
		return err
	}
	request := consensus.AlterTable{RequestID: newID(), ID: t.ID}
	for _, a := range b.Actions {
		kind, err := alterKind(a.Kind)
		if err != nil {
			return err
		}
		request.Actions = append(request.Actions, consensus.AlterAction{
			Kind: kind, Name: a.Name, NewName: a.NewName, Column: a.Column, Quiet: a.Quiet, On: a.On,
		})
	}
	var reply consensus.TableReply
	if err := s.gw.directory.meta(ctx, consensus.MetaAlterTable, request, &reply); err != nil {
		return err
	}
	return s.gw.directory.waitVersion(ctx, reply.Version)
}

func alterKind(k bind.AlterKind) (consensus.AlterKind, error) {
	switch k {
	case bind.AddColumn:
		return consensus.AlterAddColumn, nil
	case bind.DropColumn:
		return consensus.AlterDropColumn, nil
	case bind.RenameColumn:
		return consensus.AlterRenameColumn, nil
	case bind.RenameTable:
		return consensus.AlterRenameTable, nil
	case bind.SetSchema:
		return consensus.AlterSetSchema, nil
	case bind.SetAutoSplit:
		return consensus.AlterAutoSplit, nil
	}
	return "", sqlstate.New(sqlstate.InternalError, "no way to %s", k)
}

// truncate runs TRUNCATE: a transaction for each table, over all its tablets.
func (s *sqlService) truncate(ctx context.Context, b *sql.Truncate) error {
	for _, t := range b.Tables {
		for attempt := 1; ; attempt++ {
			err := s.gw.truncateTable(ctx, t)
			if err == nil {
				break
			}
			if attempt == changeAttempts || ctx.Err() != nil || (sqlstate.CodeOf(err) != sqlstate.SerializationFailure && !unplanned(err)) {
				return causeOf(ctx, err)
			}
			if !unplanned(err) {
				sleep(ctx, jitter(changePause<<attempt))
				continue
			}
			if rerr := s.gw.directory.recover(ctx, attempt, err); rerr != nil {
				return rerr
			}
			if now, ok := s.gw.directory.Current().tableByID(t.ID); ok {
				t = now // its tablets are others
			}
		}
	}
	s.gw.directory.Kick()
	return nil
}

func (g *Server) truncateTable(ctx context.Context, t *catalog.Table) error {
	w, err := g.newTableWriter(g.directory.Current(), t)
	if err != nil {
		return err
	}
	var parts []*writePart
	for i := range t.Tablets {
		p := w.part(i)
		p.result = &pb.WriteResult{}
		if p.addr, err = g.workers.place(w.snap, p.tablet); err == nil {
			_, err = g.transact(ctx, w.snap, &pb.TransactRequest{
				Step: pb.TransactRequest_TRUNCATE, TransactionId: w.txn, TabletId: uint64(p.tablet),
			})
		}
		if err != nil {
			w.Abort()
			return err
		}
		parts = append(parts, p)
	}
	return w.decide(ctx, parts)
}
