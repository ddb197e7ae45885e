package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lni/dragonboat/v4"
	"golang.org/x/sync/errgroup"

	"skein/sqlstate"
)

const (
	// movesAtOnce is how many moves a node looks at side by side.
	movesAtOnce = 8
	// quietTime is how long nobody must have written through a replica that leaves.
	quietTime = time.Second
	// defaultDrain is how long the readers and writers of a replica that leaves its
	// node are waited for.
	defaultDrain = 30 * time.Second
)

// Places in a move where a node may die.
const (
	moveAdded    changePoint = "move added"    // without a vote, by the leader's node, as all up to finished but vouched
	moveAsked    changePoint = "move asked"    // whether the replicas are well
	moveVouched  changePoint = "move vouched"  // for its own replica
	moveDecided  changePoint = "move decided"  // to promote
	movePromoted changePoint = "move promoted" // in the Raft group
	moveSwitched changePoint = "move switched" // in the tablet's description
	moveHanded   changePoint = "move handed"   // the leadership, by the node that the replica leaves
	moveRemoved  changePoint = "move removed"  // the old replica from its group
	moveFinished changePoint = "move finished"
)

// mover moves replicas from one node to another. Each node runs one, and together
// they take these steps, any of which may be repeated or interrupted:
//
//  1. The meta group has the move recorded, with the id of the new replica. The
//     reconciler of the node that it moves to starts it.
//  2. The node that leads the tablet's group has the new replica added without a
//     vote, which gets a snapshot and the log, and opens a round of vouching. The
//     new replica's node vouches when it has all that was committed.
//  3. If in one round the new replica and most of the group vouch, the leader's
//     node records that it is promoted, from where there is no way back, and has
//     it given its vote.
//  4. The tablet's description names the new replica instead of the old one, with
//     a new generation: statements go there from now on. The old one still votes.
//  5. If the old replica leads it hands the leadership on. Its node vouches for it
//     once no statement uses it any more, or after some time.
//  6. If most of the others vouch, the leader's node has the old replica removed
//     from the group, and the move forgotten. The reconciler of the node that it
//     leaves deletes it.
//
// A group never has fewer members than the tablet should have replicas.
type mover struct {
	host  *Host
	meta  *Meta
	asked *vouchers

	mu      sync.Mutex
	leaving map[uint64]time.Time // by new replica: since when the old one is known to leave
}

func newMover(h *Host, m *Meta) *mover {
	return &mover{host: h, meta: m, asked: newVouchers(), leaving: map[uint64]time.Time{}}
}

// run works until ctx ends.
func (m *mover) run(ctx context.Context) {
	for {
		host, meta := m.host.changed.wait(), m.meta.sm.version.wait()
		var again <-chan time.Time
		if m.pass(ctx) {
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

// pass takes the next step of every move and reports whether there are any.
func (m *mover) pass(ctx context.Context) bool {
	moves := m.meta.Local().Moves
	m.forget(moves)
	var all errgroup.Group
	all.SetLimit(movesAtOnce)
	for _, under := range moves {
		all.Go(func() error {
			if err := m.help(ctx, under); err != nil && ctx.Err() == nil {
				m.host.log.Info("a move does not advance, will retry", "tablet", uint64(under.Tablet),
					"from", uint64(under.Old.Node), "to", uint64(under.New.Node), "phase", under.Phase, "error", err)
			}
			return nil
		})
	}
	_ = all.Wait() // never fails
	return len(moves) > 0
}

// forget drops what is remembered of moves that are over.
func (m *mover) forget(moves []Move) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.leaving, func(joins uint64, _ time.Time) bool {
		over := !slices.ContainsFunc(moves, func(under Move) bool { return under.New.ID == joins })
		if over {
			m.asked.forget(joins)
		}
		return over
	})
}

// help does what this node has to do in a move.
func (m *mover) help(ctx context.Context, under Move) error {
	r, ok := m.host.replica(under.Tablet)
	if !ok || !r.isOpen() || isClosed(r.closed) {
		return nil
	}
	if r.health() != nil {
		if r.leads() {
			m.host.stepDown(ctx, r)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, repairPatience)
	defer cancel()
	if under.Round > 0 && !slices.Contains(under.Vouched, r.replica) && m.ready(r, under) {
		if err := m.vouch(ctx, r, under); err != nil {
			return err
		}
	}
	if !r.leads() {
		return nil
	}
	members, err := m.host.raft.SyncGetShardMembership(ctx, r.id)
	if err != nil {
		return fmt.Errorf("reading the members: %w", err)
	}
	step := moveStep{mover: m, leader: r, move: under, members: members}
	switch under.Phase {
	case MoveJoining:
		return step.join(ctx)
	case MovePromoting:
		return step.promote(ctx)
	case MoveLeaving:
		return step.leave(ctx)
	}
	return step.undo(ctx)
}

// ready reports whether the local replica may be vouched for.
func (m *mover) ready(r *replica, under Move) bool {
	if under.Phase != MoveLeaving || r.replica != under.Old.ID {
		return true
	}
	return r.unused() || m.leavingFor(under) > m.host.cfg.Drain
}

// leavingFor is how long this node has known that the old replica leaves.
func (m *mover) leavingFor(under Move) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, ok := m.leaving[under.New.ID]
	if !ok {
		since = time.Now()
		m.leaving[under.New.ID] = since
	}
	return time.Since(since)
}

// vouch says that the local replica is in touch with its group and has all that
// was committed when it asked.
func (m *mover) vouch(ctx context.Context, r *replica, under Move) error {
	if err := r.readIndex(ctx); err != nil {
		return fmt.Errorf("vouching for replica %d: %w", r.replica, err)
	}
	_, err := m.meta.VouchMove(ctx, VouchMove{
		RequestID: fmt.Sprintf("vouch-move-%d-%d-%d", under.New.ID, under.Round, r.replica),
		Tablet:    under.Tablet, New: under.New.ID, Round: under.Round, Replica: r.replica,
	})
	m.host.reached(moveVouched)
	return ignoreGone(err)
}

// moveStep is what the leader's node knows when it takes a step of a move.
type moveStep struct {
	*mover
	leader  *replica
	move    Move
	members *dragonboat.Membership
}

// join adds the new replica without a vote and waits for it to catch up.
func (s *moveStep) join(ctx context.Context) error {
	joins := s.move.New
	_, learns := s.members.NonVotings[joins.ID]
	_, votes := s.members.Nodes[joins.ID]
	if !learns && !votes {
		if !s.host.book.known(joins.Node) {
			return fmt.Errorf("adding replica %d: %w: the Raft address of node %d is unknown", joins.ID, ErrNotReady, joins.Node)
		}
		if err := s.leader.share(ctx); err != nil {
			return err
		}
		_, err := s.leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
			return s.host.raft.RequestAddNonVoting(s.leader.id, joins.ID, s.host.book.target(joins.Node), 0, timeout)
		})
		if err != nil {
			return fmt.Errorf("adding replica %d: %w", joins.ID, err)
		}
		s.host.reached(moveAdded)
	}
	well, err := s.well(ctx, append(s.voters(0), joins.ID))
	if err != nil || !well || !slices.Contains(s.move.Vouched, joins.ID) {
		return err
	}
	err = s.advance(ctx, MovePromoting)
	s.host.reached(moveDecided)
	return err
}

// promote gives the new replica its vote and makes it known.
func (s *moveStep) promote(ctx context.Context) error {
	joins := s.move.New
	if _, votes := s.members.Nodes[joins.ID]; !votes {
		if err := s.leader.share(ctx); err != nil {
			return err
		}
		_, err := s.leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
			return s.host.raft.RequestAddReplica(s.leader.id, joins.ID, s.host.book.target(joins.Node), 0, timeout)
		})
		if err != nil {
			return fmt.Errorf("giving replica %d a vote: %w", joins.ID, err)
		}
		s.host.reached(movePromoted)
	}
	err := s.advance(ctx, MoveLeaving)
	s.host.reached(moveSwitched)
	return err
}

// leave removes the old replica when the group does without it.
func (s *moveStep) leave(ctx context.Context) error {
	old := s.move.Old
	leads := s.leader.replica == old.ID
	if _, there := s.members.Nodes[old.ID]; !there {
		return s.finish(ctx)
	}
	// A group of one waits with its leadership until the old replica can go: it is
	// quicker to elect itself than others are to lead it.
	if leads && !s.leader.sole() {
		return s.handOver(ctx)
	}
	remain := s.voters(old.ID)
	well, err := s.well(ctx, remain)
	if err != nil || !well {
		return err
	}
	if !slices.Contains(s.move.Vouched, old.ID) && !s.leader.outOfReach(old.ID) && s.leavingFor(s.move) < s.host.cfg.Drain+vouchLife {
		return nil // it is being used
	}
	if leads {
		return s.handOver(ctx)
	}
	_, err = s.leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
		return s.host.raft.RequestDeleteReplica(s.leader.id, old.ID, 0, timeout)
	})
	if err != nil {
		return fmt.Errorf("removing replica %d: %w", old.ID, err)
	}
	s.host.reached(moveRemoved)
	return s.finish(ctx)
}

// handOver has another member lead, the new one if it can.
func (s *moveStep) handOver(ctx context.Context) error {
	others := s.leader.others(s.voters(s.move.Old.ID))
	slices.SortStableFunc(others, func(a, b uint64) int {
		return cmp.Compare(b2i(a != s.move.New.ID), b2i(b != s.move.New.ID))
	})
	var errs []error
	for _, id := range others {
		err := s.leader.transfer(ctx, id)
		if err == nil || !s.leader.leads() {
			s.host.reached(moveHanded)
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("handing over the leadership: %w", errors.Join(errs...))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// undo removes the new replica, also where nothing is known of it: an entry that
// adds it may be under way.
func (s *moveStep) undo(ctx context.Context) error {
	_, err := s.leader.retry(ctx, repairPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
		return s.host.raft.RequestDeleteReplica(s.leader.id, s.move.New.ID, 0, timeout)
	})
	if err != nil {
		return fmt.Errorf("removing replica %d again: %w", s.move.New.ID, err)
	}
	s.host.reached(moveRemoved)
	return s.finish(ctx)
}

// voters lists the members with a vote except one.
func (s *moveStep) voters(without uint64) []uint64 {
	list := make([]uint64, 0, len(s.members.Nodes)+1)
	for _, id := range slices.Sorted(maps.Keys(s.members.Nodes)) {
		if id != without {
			list = append(list, id)
		}
	}
	return list
}

// well reports whether a majority of members was found well just now, and asks
// them where that is not so.
func (s *moveStep) well(ctx context.Context, members []uint64) (bool, error) {
	fresh, err := s.asked.fresh(ctx, s.move.New.ID, func(ctx context.Context) error {
		_, err := s.meta.AskMove(ctx, AskMove{
			RequestID: uuid.NewString(), Tablet: s.move.Tablet, New: s.move.New.ID, Round: s.move.Round,
		})
		s.host.reached(moveAsked)
		return ignoreGone(err)
	})
	return fresh && s.move.most(members), err
}

func (s *moveStep) advance(ctx context.Context, to MovePhase) error {
	_, err := s.meta.AdvanceMove(ctx, AdvanceMove{
		RequestID: fmt.Sprintf("advance-move-%d-%s", s.move.New.ID, to), Tablet: s.move.Tablet, New: s.move.New.ID, To: to,
		AtUnixMS: time.Now().UnixMilli(),
	})
	if sqlstate.CodeOf(err) == sqlstate.ObjectNotInState { // aborted meanwhile
		return nil
	}
	return ignoreGone(err)
}

func (s *moveStep) finish(ctx context.Context) error {
	_, err := s.meta.FinishMove(ctx, FinishMove{
		RequestID: fmt.Sprintf("finish-move-%d", s.move.New.ID), Tablet: s.move.Tablet, New: s.move.New.ID,
		AtUnixMS: time.Now().UnixMilli(),
	})
	if err = ignoreGone(err); err != nil {
		return err
	}
	s.host.reached(moveFinished)
	s.leader.log.Info("a move of a replica is over", "from", uint64(s.move.Old.Node), "to", uint64(s.move.New.Node),
		"aborted", s.move.Phase == MoveAborting)
	return nil
}

// unused reports whether no statement reads or writes through the replica.
func (r *replica) unused() bool {
	return r.sm.tablet.Pins() == 0 && r.proposals.Load() == 0 &&
		time.Since(time.Unix(0, r.proposed.Load())) > quietTime
}

// share prepares the only replica of a group for others: from now on the log
// knows of the reads that it serves, and of those that it has served.
func (r *replica) share(ctx context.Context) error {
	if !r.sole() {
		return nil
	}
	r.lone.Store(false)
	if err := r.reads.share(ctx); err != nil {
		return fmt.Errorf("preparing the only replica for another: %w", err)
	}
	return nil
}
