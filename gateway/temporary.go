package gateway

import (
	"context"
	"sync"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/gateway/session"
	"skein/sqlstate"
)

const (
	// keepEvery is how often sessions are looked after at least: idle ones end, and
	// the lease on temporary tables is renewed.
	keepEvery = 15 * time.Second
	// leaseReserve is how much of a lease must be left for a table to be made.
	leaseReserve = consensus.GatewayLeaseLife * 3 / 4
)

// keeper ends idle sessions, drops the temporary tables of those that have ended
// and keeps the gateway's lease on the others. Run it until the gateway closes.
type keeper struct {
	gw   *Server
	wake chan struct{}

	mu     sync.Mutex
	until  time.Time       // the end of the lease, zero before the first
	ending map[string]bool // names of sessions whose tables are to be dropped
}

func newKeeper(g *Server) *keeper {
	return &keeper{gw: g, wake: make(chan struct{}, 1), ending: make(map[string]bool)}
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	ticker := time.NewTicker(max(min(keepEvery, k.gw.cfg.SessionIdle/4), time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.gw.sessions.Sweep()
			if k.gw.sessions.HoldsTables() {
				if err := k.hold(ctx); err != nil && ctx.Err() == nil {
					k.gw.log.Warn("the lease on the sessions' temporary tables could not be renewed", "err", err)
				}
			}
		case <-k.wake:
		}
		k.drop(ctx)
	}
}

// ended has the tables of a session dropped, soon and until that has worked.
func (k *keeper) ended(s *session.Session) {
	if !s.Temporary() {
		return
	}
	k.mu.Lock()
	k.ending[s.Name] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// drop drops the tables of sessions that have ended. What fails is tried again
// with the next round.
func (k *keeper) drop(ctx context.Context) {
	k.mu.Lock()
	var names []string
	for name := range k.ending {
		names = append(names, name)
	}
	k.mu.Unlock()
	for _, name := range names {
		if err := k.end(ctx, name); err != nil {
			k.gw.log.Warn("the temporary tables of a session that has ended could not be dropped yet", "err", err)
			return
		}
		k.mu.Lock()
		delete(k.ending, name)
		k.mu.Unlock()
	}
}

// end drops the tables of one session, or of all with an empty name.
func (k *keeper) end(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	var reply consensus.TableReply
	return k.gw.directory.meta(ctx, consensus.MetaEndSessions,
		consensus.EndSessions{RequestID: newID(), Gateway: k.gw.id, Session: name}, &reply)
}

// close drops the tables of all sessions.
func (k *keeper) close(ctx context.Context) {
	k.mu.Lock()
	leased := !k.until.IsZero()
	k.mu.Unlock()
	if !leased {
		return
	}
	if err := k.end(ctx, ""); err != nil {
		k.gw.log.Warn("temporary tables are left to be dropped when the gateway's lease ends", "err", err)
	}
}

// lease renews the lease.
func (k *keeper) lease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	until := time.Now().Add(consensus.GatewayLeaseLife)
	var reply consensus.TableReply
	err := k.gw.directory.meta(ctx, consensus.MetaLeaseGateway,
		consensus.LeaseGateway{RequestID: newID(), Gateway: k.gw.id, UntilUnixMS: until.UnixMilli()}, &reply)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if until.After(k.until) {
		k.until = until
	}
	return nil
}

// hold makes sure that the lease lasts long enough for a table to be made.
func (k *keeper) hold(ctx context.Context) error {
	k.mu.Lock()
	enough := time.Until(k.until) > leaseReserve
	k.mu.Unlock()
	if enough {
		return nil
	}
	return k.lease(ctx)
}

// temporaryOf is what marks a session's tables.
func (g *Server) temporaryOf(s *session.Session) *catalog.Temporary {
	return &catalog.Temporary{Gateway: g.id, Session: s.Name}
}

// temporary makes ready for a temporary table of the call's session.
func (s *sqlService) temporary(ctx context.Context) (*session.Session, *catalog.Temporary, error) {
	opened, err := s.openSession(ctx, "a temporary table")
	if err != nil {
		return nil, nil, err
	}
	if err := s.gw.keeper.hold(ctx); err != nil {
		return nil, nil, err
	}
	opened.KeepTemporary()
	return opened, s.gw.temporaryOf(opened), nil
}

// outlived drops the temporary tables of a session that ended while one was made,
// and says so.
func (s *sqlService) outlived(owner *session.Session) error {
	if owner == nil || !owner.Closed() {
		return nil
	}
	s.gw.keeper.ended(owner)
	return sqlstate.New(sqlstate.SessionExpired, "the session ended while the table was made")
}

// own makes a table that is to be created the session's, if it is temporary. The
// session is nil if it is not.
func (s *sqlService) own(ctx context.Context, t *catalog.Table, temporary bool) (*session.Session, error) {
	if !temporary {
		return nil, nil
	}
	owner, mark, err := s.temporary(ctx)
	if err == nil {
		t.Temporary, t.Schema = mark, mark.TempSchema()
	}
	return owner, err
}
