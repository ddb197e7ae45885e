package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"skein/sqlstate"
)

// cancelStatement ends a statement, whichever gateway runs it, and reports
// whether there was one. Others' statements are for superusers to end: 42501.
func (g *Server) cancelStatement(ctx context.Context, id string) (bool, error) {
	if found, err := g.queries.cancelFor(g.cfg.Identify(ctx), id); found || err != nil {
		return found, err
	}
	return g.cancelElsewhere(ctx, id)
}

// cancelElsewhere ends a statement of another gateway by way of the workers, who
// know it as long as fragments of it run: those fail, for a reason that their
// gateway takes for the end of the statement, and further ones are refused. An
// error says that workers could not be asked, and no other knew of it.
func (g *Server) cancelElsewhere(ctx context.Context, id string) (bool, error) {
	if !isID(id) {
		return false, nil
	}
	envelope, err := g.sign(ctx, id)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	var found atomic.Int64
	var group errgroup.Group
	for _, n := range g.directory.Current().meta.InUse() {
		group.Go(func() error {
			conn, err := g.workers.conn(n.FlightAddress)
			if err != nil {
				return err
			}
			fragments, err := conn.CancelStatement(ctx, id, errCancelledByUser.Message, envelope)
			if err != nil {
				return fmt.Errorf("asking worker %s to cancel statement %s: %w", n.FlightAddress, id, err)
			}
			found.Add(int64(fragments))
			return nil
		})
	}
	err = group.Wait()
	if found.Load() > 0 {
		return true, nil
	}
	if sqlstate.CodeOf(err) == sqlstate.InsufficientPrivilege {
		return false, err
	}
	if err != nil {
		return false, sqlstate.New(sqlstate.ConnectionFailure, "whether statement %s runs is not known: %w", id, err).
			WithHint("Cancel it through the gateway that runs it, or retry.")
	}
	return false, nil
}

// isID reports whether a text is an id as newID makes them.
func isID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == idBytes
}
