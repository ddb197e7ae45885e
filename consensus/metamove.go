package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands that move a replica of a tablet to another node. Each has a JSON
// request below and answers a TableReply.
const (
	MetaMoveReplica = "move_replica" // MoveReplica
	MetaAdvanceMove = "advance_move" // AdvanceMove
	MetaAskMove     = "ask_move"     // AskMove
	MetaVouchMove   = "vouch_move"   // VouchMove
	MetaAbortMove   = "abort_move"   // AbortMove
	MetaFinishMove  = "finish_move"  // FinishMove
)

// MetaTransferLeader has the node that is asked, or another one with a replica of
// the tablet, lead it: TransferLeader -> TableReply. It is no command of the meta
// group, whose state does not know who leads.
const MetaTransferLeader = "transfer_leader"

// MovePhase is how far a move has come.
type MovePhase string

// The phases of a move. A move begins joining and ends leaving or aborting.
const (
	// MoveJoining: the new replica is added without a vote and catches up. It may
	// be aborted only now.
	MoveJoining MovePhase = "joining"
	// MovePromoting: the new replica is given its vote.
	MovePromoting MovePhase = "promoting"
	// MoveLeaving: the tablet's description names the new replica instead of the
	// old one, which hands over what it does and is removed from the group.
	MoveLeaving MovePhase = "leaving"
	// MoveAborting: the new replica is removed from the group.
	MoveAborting MovePhase = "aborting"
)

// Move is the way of one replica of a tablet to another node. A tablet has one at
// a time.
type Move struct {
	Table         catalog.TableID  `json:"table"`
	Tablet        catalog.TabletID `json:"tablet"`
	Old           catalog.Replica  `json:"old"`
	New           catalog.Replica  `json:"new"`
	Phase         MovePhase        `json:"phase"`
	Cause         string           `json:"cause,omitempty"`
	StartedUnixMS int64            `json:"started_unix_ms"` // by the clock of who asked for it
	Job           uint64           `json:"job"`             // the record of it that stays
	Vouching
}

// MoveReplica asks for the move of a tablet's replica from one node to another,
// which has none of it. The new replica's id is assigned at once.
type MoveReplica struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	From      catalog.NodeID   `json:"from"`
	To        catalog.NodeID   `json:"to"`
	// Cause says why, for those who look at it.
	Cause         string `json:"cause,omitempty"`
	StartedUnixMS int64  `json:"started_unix_ms"`
}

// AdvanceMove takes a move from one phase to the next one, joining to promoting
// or promoting to leaving. It is for the nodes that carry the move out.
type AdvanceMove struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	To        MovePhase        `json:"to"`
	AtUnixMS  int64            `json:"at_unix_ms"` // the caller's clock
}

// AskMove opens the next round of vouching after round Round.
type AskMove struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	Round     uint64           `json:"round"`
}

// VouchMove says that a replica is well and in touch with its group; of the old
// one, in the phase of leaving, that nobody uses it any more.
type VouchMove struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	Round     uint64           `json:"round"`
	Replica   uint64           `json:"replica"`
}

// AbortMove ends the move of a tablet's replica that has not been given its vote.
type AbortMove struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	Cause     string           `json:"cause,omitempty"`
	AtUnixMS  int64            `json:"at_unix_ms"`
}

// FinishMove forgets a move that has been carried out or undone.
type FinishMove struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	AtUnixMS  int64            `json:"at_unix_ms"`
}

// TransferLeader names a tablet and a node with a replica of it.
type TransferLeader struct {
	Tablet catalog.TabletID `json:"tablet"`
	To     catalog.NodeID   `json:"to"`
}

// transferAttempts is how often a leadership is tried to be moved.
const transferAttempts = 5

// transferLeader moves a tablet's leadership, as Host.TransferLeader does, with a
// few attempts: a busy group often needs another one.
func (m *Meta) transferLeader(ctx context.Context, r TransferLeader) (TableReply, error) {
	var err error
	for range transferAttempts {
		if err = m.host.TransferLeader(ctx, r.Tablet, r.To); !errors.Is(err, ErrNotTransferred) {
			break
		}
	}
	return TableReply{Version: m.Local().Version}, err
}

// MoveReplica starts a move, which goes on by itself, also when nodes restart. Its
// job is in TableReply.Job.
// SQLSTATE 55006 says that something else happens to the tablet, 42704 that a
// node or replica does not exist.
func (m *Meta) MoveReplica(ctx context.Context, r MoveReplica) (TableReply, error) {
	return m.command(ctx, MetaMoveReplica, r)
}

// AdvanceMove takes a move to its next phase.
func (m *Meta) AdvanceMove(ctx context.Context, r AdvanceMove) (TableReply, error) {
	return m.command(ctx, MetaAdvanceMove, r)
}

// AskMove opens a round of vouching.
func (m *Meta) AskMove(ctx context.Context, r AskMove) (TableReply, error) {
	return m.command(ctx, MetaAskMove, r)
}

// VouchMove vouches for a replica.
func (m *Meta) VouchMove(ctx context.Context, r VouchMove) (TableReply, error) {
	return m.command(ctx, MetaVouchMove, r)
}

// AbortMove gives a move up. SQLSTATE 55000 says that it is too late.
func (m *Meta) AbortMove(ctx context.Context, r AbortMove) (TableReply, error) {
	return m.command(ctx, MetaAbortMove, r)
}

// FinishMove forgets a move.
func (m *Meta) FinishMove(ctx context.Context, r FinishMove) (TableReply, error) {
	return m.command(ctx, MetaFinishMove, r)
}

// Move returns the move of a tablet's replica that is under way.
func (s *MetaSnapshot) Move(tablet catalog.TabletID) (Move, bool) {
	at, ok := slices.BinarySearchFunc(s.Moves, tablet, func(m Move, id catalog.TabletID) int { return cmp.Compare(m.Tablet, id) })
	if !ok {
		return Move{}, false
	}
	return s.Moves[at], true
}

// Holds is how many replicas a node has, or is about to have or to give up.
func (s *MetaSnapshot) Holds(node catalog.NodeID) int {
	n := 0
	s.all(func(t *catalog.Table) {
		for i := range t.Tablets {
			if hosts(s.Running(&t.Tablets[i]), node) {
				n++
			}
		}
	})
	return n
}

// Running is a tablet with all replicas that run or should: those of its
// description, and the other one of a move that is under way. It is the
// description itself, not to be modified, where there is none.
func (s *MetaSnapshot) Running(tablet *catalog.Tablet) *catalog.Tablet {
	move, ok := s.Move(tablet.ID)
	if !ok || move.Phase == MoveAborting {
		return tablet
	}
	t := *tablet
	if t.Founders == nil {
		t.Founders = t.Replicas
	}
	other := move.New
	if move.Phase == MoveLeaving {
		other = move.Old
	}
	t.Replicas = append(slices.Clone(t.Replicas), other)
	return &t
}

// applyMove executes one of the commands of moves.
func (s *metaState) applyMove(c MetaCommand) (string, metaAnswer) {
	switch c.Command {
	case MetaMoveReplica:
		return dispatch(s, c.Body, func(r *MoveReplica) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.moveReplica(r) }
		})
	case MetaAdvanceMove:
		return dispatch(s, c.Body, func(r *AdvanceMove) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.advanceMove(r) }
		})
	case MetaAskMove:
		return dispatch(s, c.Body, func(r *AskMove) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.askMove(r) }
		})
	case MetaVouchMove:
		return dispatch(s, c.Body, func(r *VouchMove) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.vouchMove(r) }
		})
	case MetaAbortMove:
		return dispatch(s, c.Body, func(r *AbortMove) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.abortMove(r) }
		})
	}
	return dispatch(s, c.Body, func(r *FinishMove) (string, func() metaAnswer) {
		return r.RequestID, func() metaAnswer { return s.finishMove(r) }
	})
}

func (s *metaState) moveReplica(r *MoveReplica) metaAnswer {
	record, at := s.tabletRecord(r.Tablet)
	if record == nil {
		if job, ok := s.building(r.Tablet); ok {
			return rejected(sqlstate.New(sqlstate.ObjectInUse, "tablet %d is being built by job %d, a %s", r.Tablet, job.ID, job.Kind).
				WithHint("Retry when that is done: see the table skein.jobs."))
		}
		return rejected(sqlstate.New(sqlstate.UndefinedTable, "tablet %d does not exist", r.Tablet))
	}
	tablet := &record.Table.Tablets[at]
	if under, moving := s.moves[r.Tablet]; moving {
		if under.Old.Node == r.From && under.New.Node == r.To && under.Phase != MoveAborting {
			answer := s.accepted(record.Table)
			job := s.jobs[under.Job]
			answer.Job = &job
			return answer
		}
		return rejected(sqlstate.New(sqlstate.ObjectInUse, "a replica of tablet %d is being moved from node %d to node %d",
			r.Tablet, under.Old.Node, under.New.Node).WithHint("Retry when that is done."))
	}
	if busy := s.tabletBusy(r.Tablet); busy != nil {
		return rejected(busy)
	}
	old := replicaOn(tablet, r.From)
	switch {
	case old.ID == 0:
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "node %d has no replica of tablet %d", r.From, r.Tablet))
	case hosts(tablet, r.To):
		return rejected(sqlstate.New(sqlstate.DuplicateObject, "node %d has a replica of tablet %d already", r.To, r.Tablet))
	}
	if err := s.mayHost(r.To); err != nil {
		return rejected(err)
	}
	s.counters.NextJob++
	job := Job{
		ID: s.counters.NextJob, Kind: JobMove, Table: record.Table.ID, Tablets: []catalog.TabletID{r.Tablet}, State: JobRunning,
		Phase: string(MoveJoining), Note: fmt.Sprintf("from node %d to node %d: %s", r.From, r.To, cmp.Or(r.Cause, "asked for")),
		CreatedUnixMS: r.StartedUnixMS, UpdatedUnixMS: r.StartedUnixMS,
	}
	s.forgetJobs()
	s.putMove(Move{
		Table: record.Table.ID, Tablet: r.Tablet, Old: old, Job: job.ID,
		New:   catalog.Replica{ID: s.counters.NextReplica, Node: r.To, Joined: true, Learner: true},
		Phase: MoveJoining, Cause: r.Cause, StartedUnixMS: r.StartedUnixMS,
	})
	s.counters.NextReplica++
	answer := s.acceptedJob(job)
	answer.Table = record.Table
	return answer
}

// noteJob keeps the job of a move in step with it.
func (s *metaState) noteJob(id uint64, at int64, change func(*Job)) {
	if job, ok := s.jobs[id]; ok {
		job.UpdatedUnixMS = at
		change(&job)
		s.putJob(job)
	}
}

// mayHost says why a node may not be given replicas.
func (s *metaState) mayHost(node catalog.NodeID) *sqlstate.Error {
	n, err := s.nodeNamed(node)
	if err == nil && n.Status() != NodeActive {
		err = sqlstate.New(sqlstate.ObjectNotInState, "node %d is %s and takes no replicas", node, n.Status())
	}
	return err
}

// drainable refuses to drain a node whose replicas have nowhere to go.
func (s *metaState) drainable(n NodeInfo) *sqlstate.Error {
	others := len(slices.DeleteFunc(s.placeable(), func(other NodeInfo) bool { return other.ID == n.ID }))
	for _, t := range s.tableList() {
		for i := range t.Tablets {
			if tablet := &t.Tablets[i]; hosts(tablet, n.ID) && len(tablet.Replicas) > others {
				return sqlstate.New(sqlstate.ObjectNotInState, "node %d cannot be drained: tablets of table %s have %d replicas and %d other nodes take any",
					n.ID, t.QualifiedName(), len(tablet.Replicas), others).WithHint("Add a node first.")
			}
		}
	}
	return nil
}

// move finds the move that a request is about.
func (s *metaState) move(tablet catalog.TabletID, joins uint64) (Move, *sqlstate.Error) {
	under, ok := s.moves[tablet]
	if !ok || under.New.ID != joins {
		return under, sqlstate.New(sqlstate.UndefinedObject, "no move of tablet %d by replica %d is under way", tablet, joins)
	}
	return under, nil
}

func (s *metaState) advanceMove(r *AdvanceMove) metaAnswer {
	under, err := s.move(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	var table *catalog.Table
	switch {
	case under.Phase == r.To:
		return s.accepted(nil)
	case under.Phase == MoveJoining && r.To == MovePromoting:
	case under.Phase == MovePromoting && r.To == MoveLeaving:
		table = s.replaceReplica(r.Tablet, under.Old.ID, under.New)
	default:
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "a move of tablet %d that is %s cannot become %s", r.Tablet, under.Phase, r.To))
	}
	// What was vouched for before does not count: it meant less.
	under.Phase, under.Vouching = r.To, Vouching{Round: under.Round + 1}
	s.counters.Version++
	s.putMove(under)
	s.noteJob(under.Job, r.AtUnixMS, func(j *Job) { j.Phase = string(r.To) })
	return s.accepted(table)
}

// replaceReplica puts a new replica into a tablet's description in place of an
// old one and returns the table's new description.
func (s *metaState) replaceReplica(id catalog.TabletID, old uint64, replica catalog.Replica) *catalog.Table {
	record, at := s.tabletRecord(id)
	t := *record.Table
	t.Tablets = slices.Clone(t.Tablets)
	tablet := &t.Tablets[at]
	if tablet.Founders == nil {
		tablet.Founders = tablet.Replicas
	}
	tablet.Replicas = slices.Clone(tablet.Replicas)
	for i := range tablet.Replicas {
		if tablet.Replicas[i].ID == old {
			tablet.Replicas[i] = replica
		}
	}
	tablet.Generation++
	s.putTable(&tableRecord{Table: &t, Hidden: record.Hidden, CreatedUnixMS: record.CreatedUnixMS})
	return &t
}

func (s *metaState) askMove(r *AskMove) metaAnswer {
	under, err := s.move(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	if opened, ok := under.open(r.Round); ok {
		under.Vouching = opened
		s.stirred = true
		s.putMove(under)
	}
	return s.accepted(nil)
}

func (s *metaState) vouchMove(r *VouchMove) metaAnswer {
	under, err := s.move(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	if more, ok := under.with(r.Round, r.Replica); ok {
		under.Vouching = more
		s.stirred = true
		s.putMove(under)
	}
	return s.accepted(nil)
}

func (s *metaState) abortMove(r *AbortMove) metaAnswer {
	under, ok := s.moves[r.Tablet]
	switch {
	case !ok:
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "no replica of tablet %d is being moved", r.Tablet))
	case under.Phase == MoveAborting:
		return s.accepted(nil)
	case under.Phase != MoveJoining:
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "the move of tablet %d to node %d cannot be aborted any more: it is %s",
			r.Tablet, under.New.Node, under.Phase).WithHint("Move the replica back when that is done."))
	}
	under.Phase, under.Vouching = MoveAborting, Vouching{Round: under.Round + 1}
	s.counters.Version++
	s.putMove(under)
	s.noteJob(under.Job, r.AtUnixMS, func(j *Job) { j.Phase, j.Error = string(MoveAborting), cmp.Or(r.Cause, "asked for") })
	return s.accepted(nil)
}

func (s *metaState) finishMove(r *FinishMove) metaAnswer {
	under, err := s.move(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	if under.Phase != MoveLeaving && under.Phase != MoveAborting {
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "the move of tablet %d is not over: it is %s", r.Tablet, under.Phase))
	}
	s.counters.Version++
	s.dropMove(r.Tablet)
	s.noteJob(under.Job, r.AtUnixMS, func(j *Job) {
		j.State = JobDone
		if under.Phase == MoveAborting {
			j.State = JobAborted
		}
	})
	return s.accepted(nil)
}

func (s *metaState) putMove(m Move) {
	s.moves[m.Tablet] = m
	s.write(recordMove, uint64(m.Tablet), m)
}

func (s *metaState) dropMove(tablet catalog.TabletID) {
	if _, ok := s.moves[tablet]; ok {
		delete(s.moves, tablet)
		s.dirty[recordKey(recordMove, uint64(tablet))] = nil
	}
}

func (s *metaState) moveList() []Move {
	list := make([]Move, 0, len(s.moves))
	for _, id := range slices.Sorted(maps.Keys(s.moves)) {
		list = append(list, s.moves[id])
	}
	return list
}
