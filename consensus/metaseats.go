package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lni/dragonboat/v4"

	"skein/catalog"
)

const (
	// seatsPause is between looks at the meta group's members.
	seatsPause = time.Second
	// seatsPatience bounds one change of them.
	seatsPatience = 5 * time.Second
	// aliveFor is how old the last heartbeat of a node may be that is given a vote,
	// or counted on when another's vote is taken away.
	aliveFor = 4 * heartbeatEvery
	// lagForVote is how many entries a node may be behind that is given a vote.
	lagForVote = 1000
)

// seats keeps the meta group's members what the metadata asks for. Each node runs
// one, and the one whose node leads the group acts, one change at a time, each of
// which may be repeated or interrupted:
//
//   - a node that is no member is added without a vote, and follows the group;
//   - while fewer nodes vote than the setting meta_voters asks for, nodes that are
//     there and have caught up get a vote, by twos: an even number of voters bears
//     no more failures than one less;
//   - a node that was removed loses its vote and its membership when enough others
//     are there, after another has got a vote in its stead. A leader that was
//     removed hands over first.
type seats struct {
	host *Host
	meta *Meta
	now  func() time.Time
}

func newSeats(h *Host, m *Meta) *seats { return &seats{host: h, meta: m, now: time.Now} }

// run works until ctx ends.
func (s *seats) run(ctx context.Context) {
	for {
		changed := s.meta.sm.changed.wait()
		if s.meta.IsLeader() {
			if err := s.pass(ctx); err != nil && ctx.Err() == nil {
				s.host.log.Warn("the meta group's members are not what they should be, will retry", "error", err)
			}
		} else {
			select { // followers have nothing to do until one leads
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !wait(ctx, seatsPause/2+rand.N(seatsPause)) {
			return
		}
	}
}

// pass makes the next change, if one is due.
func (s *seats) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seatsPatience)
	defer cancel()
	members, err := s.host.raft.SyncGetShardMembership(ctx, catalog.MetaGroupID)
	if err != nil {
		if temporary(err) || errors.Is(err, dragonboat.ErrShardNotFound) || errors.Is(err, dragonboat.ErrClosed) {
			return nil // no quorum, or stopping
		}
		return fmt.Errorf("reading the members: %w", err)
	}
	snapshot := s.meta.Local()
	if err := s.record(ctx, snapshot, members); err != nil {
		return err
	}
	step := nextSeat(snapshot, members, s.alive(snapshot), uint64(s.host.cfg.NodeID))
	return s.take(ctx, step)
}

// record writes down who votes, which the Raft group has decided.
func (s *seats) record(ctx context.Context, snapshot *MetaSnapshot, members *dragonboat.Membership) error {
	for _, n := range snapshot.Nodes {
		_, votes := members.Nodes[uint64(n.ID)]
		if n.Voter == votes {
			continue
		}
		if _, err := s.meta.setSeat(ctx, SetSeat{RequestID: uuid.NewString(), Node: n.ID, Voter: votes}); err != nil {
			return fmt.Errorf("recording that node %d votes (%t): %w", n.ID, votes, err)
		}
	}
	return nil
}

// alive are the nodes that were heard of lately and have caught up.
func (s *seats) alive(snapshot *MetaSnapshot) map[uint64]bool {
	alive := map[uint64]bool{uint64(s.host.cfg.NodeID): true}
	for id, beat := range snapshot.Seen {
		if s.now().Sub(time.UnixMilli(beat.UnixMS)) < aliveFor && beat.Applied+lagForVote >= s.meta.Applied() {
			alive[uint64(id)] = true
		}
	}
	return alive
}

// seatAction is a change of the meta group's members.
type seatAction int

const (
	seatNone seatAction = iota
	seatAdd
	seatPromote
	seatRemove
	seatHandOver // the leadership, to node
)

type seatStep struct {
	action seatAction
	node   uint64
}

// nextSeat decides on the next change. It depends on its arguments only.
func nextSeat(snapshot *MetaSnapshot, members *dragonboat.Membership, alive map[uint64]bool, leader uint64) seatStep {
	var removed, candidates []uint64
	voters, well := 0, 0 // of the nodes that stay
	for _, n := range snapshot.Nodes {
		id := uint64(n.ID)
		_, votes := members.Nodes[id]
		_, follows := members.NonVotings[id]
		_, gone := members.Removed[id]
		switch {
		case n.State == NodeRemoved:
			if votes || follows {
				removed = append(removed, id)
			}
		case votes:
			voters++
			if alive[id] {
				well++
			}
		case follows:
			if alive[id] && n.State != NodeDraining && n.State != NodeJoining {
				candidates = append(candidates, id)
			}
		case !gone:
			return seatStep{seatAdd, id}
		}
	}
	want := min(int(snapshot.SettingInt(SettingMetaVoters)), voters+len(candidates))
	if want%2 == 0 {
		want--
	}
	if voters < want {
		return seatStep{seatPromote, candidates[0]}
	}
	for _, id := range removed {
		_, votes := members.Nodes[id]
		switch {
		case votes && well <= len(members.Nodes)/2:
			continue // the group may need it for its quorum
		case id == leader:
			if to := slices.IndexFunc(snapshot.Nodes, func(n NodeInfo) bool {
				_, votes := members.Nodes[uint64(n.ID)]
				return votes && n.State != NodeRemoved && alive[uint64(n.ID)]
			}); to >= 0 {
				return seatStep{seatHandOver, uint64(snapshot.Nodes[to].ID)}
			}
			continue
		}
		return seatStep{seatRemove, id}
	}
	return seatStep{}
}

// take makes a change.
func (s *seats) take(ctx context.Context, step seatStep) error {
	raft, group := s.host.raft, s.meta.sm.group
	target := s.host.book.target(catalog.NodeID(step.node))
	what := map[seatAction]string{seatAdd: "added to", seatPromote: "given a vote in", seatRemove: "removed from"}[step.action]
	var err error
	switch step.action {
	case seatNone:
		return nil
	case seatHandOver:
		return group.transfer(ctx, step.node)
	default:
		_, err = group.retry(ctx, seatsPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
			switch step.action {
			case seatAdd:
				return raft.RequestAddNonVoting(group.id, step.node, target, 0, timeout)
			case seatPromote:
				return raft.RequestAddReplica(group.id, step.node, target, 0, timeout)
			}
			return raft.RequestDeleteReplica(group.id, step.node, 0, timeout)
		})
	}
	if err != nil {
		return fmt.Errorf("node %d was not %s the meta group: %w", step.node, cmp.Or(what, "moved in"), err)
	}
	s.host.log.Info("a node was "+what+" the meta group", "member", step.node)
	return nil
}
