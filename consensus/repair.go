package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lni/dragonboat/v4"

	"skein/catalog"
	"skein/sqlstate"
)

const (
	// repairPause is between looks at repairs that are under way.
	repairPause = 500 * time.Millisecond
	// repairPatience bounds each step of a repair.
	repairPatience = 3 * time.Second
)

// changePoint is a place in a repair or a move where a node may die.
type changePoint string

const (
	repairRequested changePoint = "requested" // by the node of the damaged replica
	repairAsked     changePoint = "asked"     // by the leader's node, as all up to finished but vouched
	repairVouched   changePoint = "vouched"
	repairRemoved   changePoint = "removed"
	repairAdded     changePoint = "added"
	repairFinished  changePoint = "finished"
	repairDropped   changePoint = "dropped"  // rows of the old replica
	repairDurable   changePoint = "durable"  // the same
	repairUnlogged  changePoint = "unlogged" // the old replica's Raft log is gone
)

// reached is called at every point.
func (h *Host) reached(p changePoint) {
	if h.cfg.repair != nil {
		h.cfg.repair(p)
	}
}

// repairer replaces damaged replicas. Each node runs one, and together they take
// these steps, any of which may be repeated or interrupted:
//
//  1. The damaged replica's node asks the meta group for a replacement, which
//     allocates the new replica's id. The old one serves nothing any more, but
//     votes and acknowledges as long as it can: its log is not damaged.
//  2. The node that leads the tablet's group opens a round of vouching. Nodes
//     whose replicas are well and in touch with the group vouch for them.
//  3. If those that vouched within some seconds are a majority of the members
//     without the old one, the leader's node has the old one removed from the
//     Raft group and the new one added. So nothing is removed that the group
//     needs for its quorum.
//  4. It has the new replica put into the tablet's description.
//  5. The reconciler of the damaged replica's node finds that its replica is not
//     the described one, deletes its rows and log, and starts the new one, which
//     gets a snapshot from the leader.
type repairer struct {
	host     *Host
	meta     *Meta
	asked    *vouchers
	hopeless map[uint64]bool // old replicas that cannot be replaced
}

func newRepairer(h *Host, m *Meta) *repairer {
	return &repairer{host: h, meta: m, asked: newVouchers(), hopeless: map[uint64]bool{}}
}

// run works until ctx ends.
func (r *repairer) run(ctx context.Context) {
	for {
		host, meta := r.host.changed.wait(), r.meta.sm.version.wait()
		var again <-chan time.Time
		if r.pass(ctx) {
			again = time.After(repairPause/2 + rand.N(repairPause))
		}
		select {
		case <-host:
		case <-meta:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// pass takes the next step of every repair and reports whether some must be
// looked at again.
func (r *repairer) pass(ctx context.Context) (pending bool) {
	for _, d := range r.host.damages() {
		if err := r.request(ctx, d); err != nil && ctx.Err() == nil {
			pending = true
			r.host.log.Debug("asking for a replica's replacement", "tablet", uint64(d.tablet), "error", err)
		}
	}
	repairs := r.meta.Local().Repairs
	for _, under := range repairs {
		if err := r.help(ctx, under); err != nil && ctx.Err() == nil {
			r.host.log.Warn("replacing a damaged replica does not advance, will retry",
				"tablet", uint64(under.Tablet), "replica", under.Old, "error", err)
		}
	}
	return pending || len(repairs) > 0
}

// request takes the first step.
func (r *repairer) request(ctx context.Context, d damage) error {
	snapshot := r.meta.Local()
	if under, ok := snapshot.Repair(d.tablet); r.hopeless[d.replica] || (ok && under.Old == d.replica) || !describes(snapshot, d) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	_, err := r.meta.RepairReplica(ctx, RepairReplica{
		RequestID: uuid.NewString(), Tablet: d.tablet, Replica: d.replica, Cause: d.cause.Error(),
	})
	r.host.reached(repairRequested)
	if sqlstate.CodeOf(err) == sqlstate.DataCorrupted {
		r.hopeless[d.replica] = true
		r.host.log.Error("a damaged replica cannot be replaced", "tablet", uint64(d.tablet), "error", err)
		return nil
	}
	return err
}

// describes reports whether the tablet's description still has the replica.
func describes(snapshot *MetaSnapshot, d damage) (found bool) {
	snapshot.all(func(t *catalog.Table) {
		if tablet, ok := t.Tablet(d.tablet); ok {
			found = slices.ContainsFunc(tablet.Replicas, func(member catalog.Replica) bool { return member.ID == d.replica })
		}
	})
	return found
}

// help does what this node has to do in a repair.
func (r *repairer) help(ctx context.Context, under Repair) error {
	replica, ok := r.host.replica(under.Tablet)
	if !ok {
		return nil
	}
	if replica.replica == under.Old {
		r.host.damaged(replica, errors.New(under.Cause)) // known already unless the process was restarted
		if replica.leads() {
			r.host.stepDown(ctx, replica)
		}
		return nil
	}
	if !replica.isOpen() || replica.health() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	if under.Round > 0 && !slices.Contains(under.Vouched, replica.replica) {
		if err := r.vouch(ctx, replica, under); err != nil {
			return err
		}
	}
	if !replica.leads() {
		return nil
	}
	return r.replace(ctx, replica, under)
}

// vouch says that the local replica is well if it is in touch with its group.
func (r *repairer) vouch(ctx context.Context, replica *replica, under Repair) error {
	if err := replica.readIndex(ctx); err != nil {
		return fmt.Errorf("vouching for replica %d: %w", replica.replica, err)
	}
	_, err := r.meta.VouchRepair(ctx, VouchRepair{
		RequestID: fmt.Sprintf("vouch-%d-%d-%d", under.New, under.Round, replica.replica),
		Tablet:    under.Tablet, New: under.New, Round: under.Round, Replica: replica.replica,
	})
	r.host.reached(repairVouched)
	return ignoreGone(err)
}

// ignoreGone passes over the rejection of a step of a repair that is over.
func ignoreGone(err error) error {
	if sqlstate.CodeOf(err) == sqlstate.UndefinedObject {
		return nil
	}
	return err
}

// replace changes the group's members, as its leader, and then the description.
func (r *repairer) replace(ctx context.Context, leader *replica, under Repair) error {
	raft := r.host.raft
	members, err := raft.SyncGetShardMembership(ctx, leader.id)
	if err != nil {
		return fmt.Errorf("reading the members: %w", err)
	}
	if _, there := members.Nodes[under.Old]; there {
		safe, err := r.safe(ctx, members, under)
		if err != nil || !safe {
			return err
		}
		_, err = leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
			return raft.RequestDeleteReplica(leader.id, under.Old, 0, timeout)
		})
		if err != nil {
			return fmt.Errorf("removing replica %d: %w", under.Old, err)
		}
		r.host.reached(repairRemoved)
		leader.log.Info("removed a damaged replica from its group", "replica", under.Old, "node", uint64(under.Node))
	}
	if _, there := members.Nodes[under.New]; !there {
		target := r.host.book.target(under.Node)
		_, err := leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
			return raft.RequestAddReplica(leader.id, under.New, target, 0, timeout)
		})
		if err != nil {
			return fmt.Errorf("adding replica %d: %w", under.New, err)
		}
		r.host.reached(repairAdded)
	}
	_, err = r.meta.FinishRepair(ctx, FinishRepair{
		RequestID: fmt.Sprintf("finish-repair-%d", under.New), Tablet: under.Tablet, New: under.New,
	})
	if err = ignoreGone(err); err == nil {
		r.host.reached(repairFinished)
		r.asked.forget(under.New)
		leader.log.Info("a new replica takes the place of a damaged one", "replica", under.New, "node", uint64(under.Node))
	}
	return err
}

// safe reports whether enough of the other members are known to be well, and
// asks them where that is not so.
func (r *repairer) safe(ctx context.Context, members *dragonboat.Membership, under Repair) (bool, error) {
	remain := make([]uint64, 0, len(members.Nodes))
	for id := range members.Nodes {
		if id != under.Old {
			remain = append(remain, id)
		}
	}
	fresh, err := r.asked.fresh(ctx, under.New, func(ctx context.Context) error {
		_, err := r.meta.AskRepair(ctx, AskRepair{
			RequestID: uuid.NewString(), Tablet: under.Tablet, New: under.New, Round: under.Round,
		})
		r.host.reached(repairAsked)
		return ignoreGone(err)
	})
	return fresh && under.most(remain), err
}
