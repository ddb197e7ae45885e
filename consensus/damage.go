package consensus

import (
	"context"
	"fmt"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// ReportDamage says that a tablet's local replica was found to be damaged: data
// that failed its checksum, SQLSTATE XX001. Where the tablet has other replicas
// this one serves nothing from now on, hands on its leadership and is rebuilt,
// and the answer is true. The only replica goes on, for what can still be read.
func (h *Host) ReportDamage(id catalog.TabletID, cause error) bool {
	r, ok := h.replica(id)
	return ok && h.damaged(r, cause)
}

func (h *Host) damaged(r *replica, cause error) bool {
	lonely := r.sole()
	err := fmt.Errorf("%w: %w", ErrReplicaDamaged, cause)
	if !r.damage.CompareAndSwap(nil, &err) {
		return !lonely
	}
	if lonely {
		r.log.Error("the only replica of this tablet is damaged: there is nothing to rebuild it from", "error", cause)
		return false
	}
	r.log.Error("replica is damaged and will be rebuilt", "error", cause)
	r.notify()
	if r.leads() {
		h.background(func(ctx context.Context) { h.stepDown(ctx, r) })
	}
	return true
}

// stepDown moves the leadership of a damaged replica's group to another one.
func (h *Host) stepDown(ctx context.Context, r *replica) {
	others := h.othersOf(r)
	if len(others) == 0 {
		return
	}
	if err := r.handOver(ctx, others); err != nil {
		r.log.Warn("damaged replica leads: no other member took over", "error", err)
	}
}

// damage is why a replica must be replaced.
type damage struct {
	tablet  catalog.TabletID
	table   catalog.TableID
	replica uint64
	cause   error
}

// damages lists the local replicas that were found damaged and are not the only
// ones, and those that could not be opened, by tablet.
func (h *Host) damages() []damage {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]damage, 0, len(h.unopened))
	for _, d := range h.unopened {
		list = append(list, d)
	}
	for id, r := range h.tablets {
		if cause := r.damage.Load(); cause != nil && !r.sole() {
			list = append(list, damage{tablet: id, table: r.table, replica: r.replica, cause: *cause})
		}
	}
	slices.SortFunc(list, func(a, b damage) int { return int(a.tablet) - int(b.tablet) })
	return list
}

// noteUnopened keeps account of replicas that could not be opened because of
// damage; a cause that is nil or of another kind ends it.
func (h *Host) noteUnopened(d damage) {
	h.mu.Lock()
	_, known := h.unopened[d.tablet]
	bad := d.cause != nil && sqlstate.CodeOf(d.cause) == sqlstate.DataCorrupted
	if bad {
		h.unopened[d.tablet] = d
	} else {
		delete(h.unopened, d.tablet)
	}
	h.mu.Unlock()
	if bad && !known {
		h.log.Error("replica cannot be opened, its data is damaged", "tablet", uint64(d.tablet), "error", d.cause)
		h.changed.notify()
	}
}

func (h *Host) isUnopened(tablet catalog.TabletID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.unopened[tablet]
	return ok
}

// health is why a replica serves nothing, nil if it does.
func (r *replica) health() error {
	if err := r.err(); err != nil {
		return err
	}
	if cause := r.damage.Load(); cause != nil && !r.sole() {
		return *cause
	}
	return nil
}

func (g *group) leads() bool { return g.leaderReplica() == g.replica }
