package consensus

import (
	"fmt"
	"testing"

	"skein/catalog"
	"skein/sqlstate"
)

// moveState is a state of four nodes and a table of three replicas.
func moveState(t *testing.T) (s *metaState, tablet catalog.Tablet, from, to catalog.NodeID) {
	s = stateWithNodes(t, 4)
	table := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "c", Table: plainTable("t", 3)})).Table
	tablet = table.Tablets[0]
	for to = 1; hosts(&tablet, to); to++ {
	}
	return s, tablet, tablet.Replicas[1].Node, to
}

func TestMetaMovesStepThroughTheirPhases(t *testing.T) {
	s, tablet, from, to := moveState(t)
	n := 0
	id := func() string { n++; return fmt.Sprint("request ", n) }
	ask := func(from, to catalog.NodeID) metaAnswer {
		return applyTo(t, s, MetaMoveReplica, MoveReplica{RequestID: id(), Tablet: tablet.ID, From: from, To: to, Cause: "why not", StartedUnixMS: 7})
	}
	mustReject(t, applyTo(t, s, MetaMoveReplica, MoveReplica{RequestID: id(), Tablet: 4711, From: from, To: to}), sqlstate.UndefinedTable)
	mustReject(t, ask(to, from), sqlstate.UndefinedObject)
	mustReject(t, ask(from, tablet.Replicas[0].Node), sqlstate.DuplicateObject)
	mustReject(t, ask(from, 77), sqlstate.UndefinedObject)
	job := mustAccept(t, ask(from, to)).Job
	if job.Kind != JobMove || job.State != JobRunning || job.Phase != "joining" || job.CreatedUnixMS != 7 {
		t.Fatalf("job %+v", job)
	}
	if again := mustAccept(t, ask(from, to)).Job; again.ID != job.ID {
		t.Fatalf("asking again starts job %d", again.ID)
	}
	mustReject(t, ask(tablet.Replicas[0].Node, to), sqlstate.ObjectInUse)
	mustReject(t, applyTo(t, s, MetaRepairReplica, RepairReplica{RequestID: id(), Tablet: tablet.ID, Replica: tablet.Replicas[0].ID}), sqlstate.ObjectInUse)

	under, ok := s.snapshot().Move(tablet.ID)
	if !ok || under.Old != tablet.Replicas[1] || under.New.Node != to || !under.New.Joined || !under.New.Learner {
		t.Fatalf("move %+v", under)
	}
	joins := under.New.ID
	described := func() *catalog.Tablet { record, at := s.tabletRecord(tablet.ID); return &record.Table.Tablets[at] }
	runs := func(node catalog.NodeID) bool { return hosts(s.snapshot().Running(described()), node) }
	if !runs(from) || !runs(to) || hosts(described(), to) {
		t.Fatal("a replica that joins runs without being described")
	}
	vouch := func(round, replica uint64) int {
		mustAccept(t, applyTo(t, s, MetaVouchMove, VouchMove{RequestID: id(), Tablet: tablet.ID, New: joins, Round: round, Replica: replica}))
		now, _ := s.snapshot().Move(tablet.ID)
		return len(now.Vouched)
	}
	mustAccept(t, applyTo(t, s, MetaAskMove, AskMove{RequestID: id(), Tablet: tablet.ID, New: joins}))
	for i, v := range []struct {
		round, replica uint64
		want           int
	}{{1, joins, 1}, {1, joins, 1}, {0, under.Old.ID, 1}, {1, under.Old.ID, 2}} {
		if got := vouch(v.round, v.replica); got != v.want {
			t.Fatalf("vouching %d: %d have vouched, want %d", i, got, v.want)
		}
	}
	advance := func(phase MovePhase) metaAnswer {
		return applyTo(t, s, MetaAdvanceMove, AdvanceMove{RequestID: id(), Tablet: tablet.ID, New: joins, To: phase, AtUnixMS: 9})
	}
	finish := func() metaAnswer {
		return applyTo(t, s, MetaFinishMove, FinishMove{RequestID: id(), Tablet: tablet.ID, New: joins, AtUnixMS: 10})
	}
	mustReject(t, advance(MoveLeaving), sqlstate.ObjectNotInState)
	mustReject(t, finish(), sqlstate.ObjectNotInState)
	mustAccept(t, advance(MovePromoting))
	mustAccept(t, advance(MovePromoting))
	if vouch(1, tablet.Replicas[0].ID) != 0 {
		t.Fatal("who vouched before a phase has not for it")
	}
	mustReject(t, applyTo(t, s, MetaAbortMove, AbortMove{RequestID: id(), Tablet: tablet.ID}), sqlstate.ObjectNotInState)
	mustAccept(t, advance(MoveLeaving))
	mustReject(t, advance(MovePromoting), sqlstate.ObjectNotInState)
	now := described()
	if now.Replicas[1] != under.New || now.Generation != tablet.Generation+1 || now.Founders[1] != under.Old {
		t.Fatalf("the tablet is %+v", now)
	}
	if !runs(from) || !runs(to) || hosts(now, from) {
		t.Fatal("a replica that leaves runs without being described")
	}
	mustReject(t, applyTo(t, s, MetaSetNodeState, SetNodeState{RequestID: id(), Node: from, State: NodeRemoved}), sqlstate.ObjectInUse)
	mustAccept(t, finish())
	if runs(from) || !runs(to) {
		t.Fatal("the move is over, but not who runs what")
	}
	mustReject(t, finish(), sqlstate.UndefinedObject)
	if over, _ := s.snapshot().Job(job.ID); over.State != JobDone || over.UpdatedUnixMS != 10 {
		t.Fatalf("job %+v", over)
	}
}

func TestMetaMovesAbortAndEndWithTheirTable(t *testing.T) {
	s, tablet, from, to := moveState(t)
	move := MoveReplica{RequestID: "m", Tablet: tablet.ID, From: from, To: to}
	mustReject(t, applyTo(t, s, MetaAbortMove, AbortMove{RequestID: "a0", Tablet: tablet.ID}), sqlstate.UndefinedObject)
	job := mustAccept(t, applyTo(t, s, MetaMoveReplica, move)).Job
	mustAccept(t, applyTo(t, s, MetaAbortMove, AbortMove{RequestID: "a", Tablet: tablet.ID, Cause: "second thoughts"}))
	mustAccept(t, applyTo(t, s, MetaAbortMove, AbortMove{RequestID: "a2", Tablet: tablet.ID}))
	under, _ := s.snapshot().Move(tablet.ID)
	if running := s.snapshot().Running(&tablet); under.Phase != MoveAborting || hosts(running, to) {
		t.Fatalf("%+v runs as %+v", under, running)
	}
	move.RequestID = "m2"
	mustReject(t, applyTo(t, s, MetaMoveReplica, move), sqlstate.ObjectInUse)
	mustAccept(t, applyTo(t, s, MetaFinishMove, FinishMove{RequestID: "f", Tablet: tablet.ID, New: under.New.ID}))
	if over, _ := s.snapshot().Job(job.ID); over.State != JobAborted || over.Error != "second thoughts" {
		t.Fatalf("job %+v", over)
	}

	// Nodes that drain or are gone take nothing; a node that is joined to may not go.
	state := func(id string, node catalog.NodeID, state NodeState) metaAnswer {
		return applyTo(t, s, MetaSetNodeState, SetNodeState{RequestID: id, Node: node, State: state})
	}
	mustAccept(t, state("drain", to, NodeDraining))
	move.RequestID = "m3"
	mustReject(t, applyTo(t, s, MetaMoveReplica, move), sqlstate.ObjectNotInState)
	mustAccept(t, state("activate", to, NodeActive))
	move.RequestID = "m4"
	mustAccept(t, applyTo(t, s, MetaMoveReplica, move))
	mustReject(t, state("remove", to, NodeRemoved), sqlstate.ObjectInUse)
	again := newMetaState()
	keys, values := s.takeDirty()
	for _, key := range keys {
		if value := values[key]; value != nil {
			if err := again.load([]byte(key), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(again.snapshot().Moves) != 1 {
		t.Fatal("the records do not hold the move")
	}
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: "d", Schema: "public", Name: "t"}))
	if snapshot := s.snapshot(); len(snapshot.Moves) != 0 || snapshot.Jobs[len(snapshot.Jobs)-1].State != JobAborted {
		t.Fatal("the move outlives its table")
	}
}
