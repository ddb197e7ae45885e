package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/lni/dragonboat/v4"

	"skein/catalog"
	"skein/sqlstate"
)

// reconciler makes the replicas that run on a host the ones that the metadata
// places there. Each pass compares the two and closes the difference, so a pass
// may be interrupted or repeated at any time.
type reconciler struct {
	host *Host
	meta *Meta
	wake chan struct{} // capacity 1: a pass is due
	// read are the replicas to be removed that are still read, and since when that
	// waits. Only passes use it.
	read map[catalog.TabletID]time.Time
}

func newReconciler(h *Host, m *Meta) *reconciler {
	return &reconciler{host: h, meta: m, wake: make(chan struct{}, 1), read: map[catalog.TabletID]time.Time{}}
}

// changed asks for a pass. It never blocks.
func (r *reconciler) changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run makes a pass now, after every change and, with growing pauses, after a
// pass that failed, until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	pause := &backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: 10 * time.Second,
	}
	pause.Reset()
	for {
		var retry <-chan time.Time
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			wait := pause.NextBackOff()
			level := r.host.log.Warn
			if errors.Is(err, ErrNotReady) || errors.Is(err, ErrUnavailable) {
				level = r.host.log.Debug
			}
			level("replicas differ from the metadata, will retry", "error", err, "in", wait)
			retry = time.After(wait)
		} else {
			pause.Reset()
		}
		select {
		case <-r.wake:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// pass starts what is missing and removes what is gone.
func (r *reconciler) pass(ctx context.Context) error {
	var errs []error
	snapshot := r.meta.Local()
	r.host.book.follow(snapshot.Nodes, r.host.cfg.NodeID, r.host.cfg.Told)
	snapshot.placed(func(t *catalog.Table) {
		for i := range t.Tablets {
			if tablet := snapshot.Running(&t.Tablets[i]); hosts(tablet, r.host.cfg.NodeID) {
				// What a replica is stopped for is logged where it happened.
				if err := r.host.startTablet(ctx, t, *tablet, &t.Tablets[i]); err != nil && !outOfOrder(err) {
					errs = append(errs, err)
				}
			}
		}
	})
	if err := r.removeGone(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// outOfOrder reports whether a replica does not run for a reason that another
// attempt does not mend.
func outOfOrder(err error) bool {
	return errors.Is(err, ErrReplicaFailed) || errors.Is(err, ErrReplicaDamaged) || sqlstate.CodeOf(err) == sqlstate.DataCorrupted
}

// removeGone deletes the replicas that no tablet has here any more. After
// a crash the local metadata may be older than the replicas, so before anything
// is deleted it is brought up to date with the quorum.
func (r *reconciler) removeGone(ctx context.Context) error {
	candidates := r.unplaced(r.meta.Local())
	if len(candidates) == 0 {
		return nil
	}
	snapshot, err := r.meta.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("confirming that %d tablets are gone: %w", len(candidates), err)
	}
	var errs []error
	for id, replica := range r.unplaced(snapshot) {
		if snapshot.Replaced(id) && r.stillRead(id) {
			errs = append(errs, fmt.Errorf("removing tablet %d, which others have replaced: %w: it is still read", id, ErrNotReady))
			continue
		}
		r.host.log.Info("removing a replica that is not placed here", "tablet", uint64(id))
		errs = append(errs, r.host.RemoveTablet(ctx, id, replica))
	}
	return errors.Join(errs...)
}

// readPatience is for how long the rows of a tablet that was split or merged are
// kept for those who still read them.
const readPatience = 15 * time.Minute

// stillRead reports whether snapshots of a tablet are open, for not too long.
func (r *reconciler) stillRead(id catalog.TabletID) bool {
	tablet, ok := r.host.Tablet(id)
	if !ok || tablet.Pins() == 0 {
		delete(r.read, id)
		return false
	}
	if _, seen := r.read[id]; !seen {
		r.read[id] = time.Now()
	}
	return time.Since(r.read[id]) < readPatience
}

// unplaced lists the tablets that have a log or a replica on this host without
// being placed here by the snapshot, with their Raft replica ids.
func (r *reconciler) unplaced(snapshot *MetaSnapshot) map[catalog.TabletID]uint64 {
	found := map[catalog.TabletID]uint64{}
	for _, status := range r.host.Tablets() {
		found[status.Tablet] = status.Replica
	}
	for id, replica := range r.host.logs() {
		found[id] = replica
	}
	snapshot.placed(func(t *catalog.Table) {
		for i := range t.Tablets {
			if hosts(snapshot.Running(&t.Tablets[i]), r.host.cfg.NodeID) {
				delete(found, t.Tablets[i].ID)
			}
		}
	})
	return found
}

// logs lists the tablets that have a Raft log on this host.
func (h *Host) logs() map[catalog.TabletID]uint64 {
	found := map[catalog.TabletID]uint64{}
	info := h.raft.GetNodeHostInfo(dragonboat.NodeHostInfoOption{})
	if info == nil {
		return found
	}
	for _, log := range info.LogInfo {
		if log.ShardID != catalog.MetaGroupID {
			found[catalog.TabletID(log.ShardID)] = log.ReplicaID
		}
	}
	return found
}

func hosts(tablet *catalog.Tablet, node catalog.NodeID) bool {
	for _, r := range tablet.Replicas {
		if r.Node == node {
			return true
		}
	}
	return false
}

// replicaOn is a node's replica of a tablet, the zero Replica if it has none.
func replicaOn(tablet *catalog.Tablet, node catalog.NodeID) catalog.Replica {
	for _, r := range tablet.Replicas {
		if r.Node == node {
			return r
		}
	}
	return catalog.Replica{}
}

// WaitTablets returns once every local replica of a table runs and knows its
// group's leader. The table must be in the local metadata; a table without
// replicas here is ready at once.
func (h *Host) WaitTablets(ctx context.Context, id catalog.TableID) error {
	return h.waitTablets(ctx, id, false)
}

// waitTablets is WaitTablets; with skipFailed it does not wait for replicas that
// have stopped themselves, where WaitTablets returns their failure.
func (h *Host) waitTablets(ctx context.Context, id catalog.TableID, skipFailed bool) error {
	for {
		changed := h.changed.wait()
		table, ok := h.meta.Local().Table(id)
		if !ok {
			return fmt.Errorf("waiting for table %d: %w: it is not in the metadata", id, ErrTabletNotHere)
		}
		pending, err := h.pendingTablet(table, skipFailed)
		if err != nil {
			return fmt.Errorf("waiting for table %s: %w", table.QualifiedName(), err)
		}
		if pending == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for tablet %d of %s: %w: %w", pending, table.QualifiedName(), ErrNotReady, context.Cause(ctx))
		}
	}
}

// pendingTablet returns a tablet of the table that should be led but is not, 0
// if there is none.
func (h *Host) pendingTablet(table *catalog.Table, skipFailed bool) (catalog.TabletID, error) {
	for i := range table.Tablets {
		tablet := &table.Tablets[i]
		if !hosts(tablet, h.cfg.NodeID) {
			continue
		}
		r, ok := h.replica(tablet.ID)
		if !ok && skipFailed && h.isUnopened(tablet.ID) {
			continue
		}
		if !ok || r.replica != replicaOn(tablet, h.cfg.NodeID).ID {
			return tablet.ID, nil
		}
		if err := r.health(); err != nil {
			if skipFailed {
				continue
			}
			return 0, err
		}
		if !r.isOpen() || r.leaderReplica() == 0 {
			return tablet.ID, nil
		}
	}
	return 0, nil
}
