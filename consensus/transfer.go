package consensus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
)

const (
	// transferPatience is how long one member gets to take over. It needs the
	// entries that it misses, and two messages.
	transferPatience = 500 * time.Millisecond
	// handOverPatience bounds the hand-over of all groups when a host closes.
	handOverPatience = 3 * time.Second
	// pausePatience is how long proposals are held back at most, and settleTime
	// how long nothing must have been applied before a member is asked to lead.
	pausePatience = 400 * time.Millisecond
	settleTime    = 25 * time.Millisecond
)

// ErrNotTransferred is the cause of a TransferLeader that came to nothing: the
// member is away, or lags behind, or the group has no leader.
var ErrNotTransferred = errors.New("leadership was not taken over")

// TransferLeader makes a node lead a tablet hosted here and returns when this
// replica knows of it. It may be called on any node that hosts the tablet. The
// group goes on without a pause if the node has caught up. A call that fails
// does no harm, but the transfer may come about later.
func (h *Host) TransferLeader(ctx context.Context, id catalog.TabletID, to catalog.NodeID) error {
	r, ok := h.replica(id)
	if !ok {
		return fmt.Errorf("moving the leadership of tablet %d: %w", id, ErrTabletNotHere)
	}
	for replica, node := range r.memberNodes() {
		if node == to {
			if err := r.transfer(ctx, replica); err != nil {
				return fmt.Errorf("moving the leadership of tablet %d to node %d: %w", id, to, err)
			}
			return nil
		}
	}
	return fmt.Errorf("moving the leadership of tablet %d to node %d, which hosts no replica of it: %w", id, to, ErrTabletNotHere)
}

// transfer makes a member lead the group, within transferPatience.
//
// The Raft library has a member that was asked to lead refuse once and for all
// if at that moment it knows of committed entries that it has not applied, and
// the leader wait for an election timeout. So proposals are held back until all
// members have had time to apply what there is.
func (g *group) transfer(ctx context.Context, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, transferPatience)
	defer cancel()
	asked := false
	for {
		changed := g.changed.wait()
		switch leader := g.leaderReplica(); {
		case leader == to:
			return nil
		case leader != 0 && !asked:
			if err := g.settle(ctx); err != nil {
				return err
			}
			if err := g.host.raft.RequestLeaderTransfer(g.id, to); err != nil {
				return err
			}
			asked = true
		}
		select {
		case <-changed:
		case <-g.closed:
			return fmt.Errorf("%w: the replica is stopping", ErrNotReady)
		case <-ctx.Done():
			return fmt.Errorf("%w within %v", ErrNotTransferred, transferPatience)
		}
	}
}

// settle has proposals held back and returns when nothing was applied for a
// while.
func (g *group) settle(ctx context.Context) error {
	if g.yield == nil {
		return nil
	}
	if err := g.yield(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, pausePatience/2)
	defer cancel()
	for before := g.entries.Load(); wait(bounded, settleTime); {
		now := g.entries.Load()
		if now == before {
			return nil
		}
		before = now
	}
	return ctx.Err() // busy, but it may work
}

// pause holds proposals back while the leader that there is steps down.
func (g *group) pause() {
	if leader := g.leaderReplica(); leader != 0 {
		g.pausedBy.Store(leader)
		g.paused.Store(time.Now().Add(pausePatience).UnixNano())
	}
}

// gate waits, if proposals are held back, until another member leads or that is
// over.
func (g *group) gate(ctx context.Context) {
	for {
		changed := g.changed.wait()
		left := time.Until(time.Unix(0, g.paused.Load()))
		if left <= 0 || g.leaderReplica() != g.pausedBy.Load() {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// HandOver has every group that this host leads led by another member, as far as
// that is possible within a few seconds, while the host goes on: what stops next
// then costs nobody an election. Close does it, too.
func (h *Host) HandOver(ctx context.Context) { h.handOver(ctx) }

// handOver has every group that this host leads led by another member, as far
// as that is possible within handOverPatience, so that stopping costs nobody an
// election.
func (h *Host) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOverPatience)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(64)
	for g, members := range h.led() {
		all.Go(func() error {
			if err := g.handOver(ctx, members); err != nil {
				g.log.Info("stopping while leading: no other member took over", "error", err)
			}
			return nil
		})
	}
	_ = all.Wait() // never fails
}

// led lists the groups that this host leads and that have other members within
// reach, with those.
func (h *Host) led() map[*group][]uint64 {
	found := map[*group][]uint64{}
	add := func(g *group, others []uint64) {
		if len(others) > 0 && g.leads() && g.err() == nil {
			found[g] = others
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.tablets {
		add(r.group, h.othersOf(r))
	}
	if h.meta != nil {
		add(h.meta.sm.group, h.meta.sm.others(h.meta.members()))
	}
	return found
}

// othersOf lists the other members of a replica's group that are within reach.
func (h *Host) othersOf(r *replica) []uint64 {
	return r.others(slices.Sorted(maps.Keys(r.memberNodes())))
}

// others leaves out of members the own replica and those out of reach: a group
// waits long for one that is away before it gives up on it.
func (g *group) others(members []uint64) []uint64 {
	var list []uint64
	for _, id := range members {
		if id != g.replica && !g.outOfReach(id) {
			list = append(list, id)
		}
	}
	return list
}

// outOfReach reports whether a member was away when it was last sent something.
func (g *group) outOfReach(member uint64) bool {
	address, _, err := g.host.book.Resolve(g.id, member)
	return err != nil || g.host.peers.isDown(address)
}

// handOver tries the other members in turn, starting where a group's number
// says so that the groups of a host spread over the others.
func (g *group) handOver(ctx context.Context, others []uint64) error {
	var errs []error
	for i := range others {
		if ctx.Err() != nil {
			break
		}
		err := g.transfer(ctx, others[(int(g.id%uint64(len(others)))+i)%len(others)])
		if err == nil || g.leaderReplica() != g.replica {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
