package consensus

import (
	"testing"

	"skein/catalog"
	"skein/sqlstate"
)

func TestMetaRepairReplacesOneReplicaAtATime(t *testing.T) {
	s := stateWithNodes(t, 3)
	table := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "c", Table: plainTable("t", 3)})).Table
	tablet := table.Tablets[0]
	old, other := tablet.Replicas[1], tablet.Replicas[2]
	ask := func(id string, replica uint64) metaAnswer {
		return applyTo(t, s, MetaRepairReplica, RepairReplica{RequestID: id, Tablet: tablet.ID, Replica: replica, Cause: "rust"})
	}
	mustReject(t, ask("unknown", 4711), sqlstate.UndefinedObject)
	mustAccept(t, ask("first", old.ID))
	under, ok := s.snapshot().Repair(tablet.ID)
	if !ok || under.Old != old.ID || under.Node != old.Node || under.New <= other.ID || under.Cause != "rust" {
		t.Fatalf("repair %+v", under)
	}
	mustAccept(t, ask("again", old.ID))
	mustReject(t, ask("another", other.ID), sqlstate.ObjectInUse)

	vouch := func(id string, round, replica uint64) int {
		mustAccept(t, applyTo(t, s, MetaVouchRepair, VouchRepair{
			RequestID: id, Tablet: tablet.ID, New: under.New, Round: round, Replica: replica,
		}))
		now, _ := s.snapshot().Repair(tablet.ID)
		return len(now.Vouched)
	}
	round := func(id string, after uint64) uint64 {
		mustAccept(t, applyTo(t, s, MetaAskRepair, AskRepair{RequestID: id, Tablet: tablet.ID, New: under.New, Round: after}))
		now, _ := s.snapshot().Repair(tablet.ID)
		return now.Round
	}
	if r := round("a1", 0); r != 1 || round("a2", 0) != 1 {
		t.Fatal("a round is opened once", r)
	}
	for i, c := range []struct {
		round, replica uint64
		want           int
	}{{0, other.ID, 0}, {1, old.ID, 0}, {1, other.ID, 1}, {1, other.ID, 1}, {1, tablet.Replicas[0].ID, 2}} {
		if got := vouch(string(rune('p'+i)), c.round, c.replica); got != c.want {
			t.Fatalf("vouching %d: %d have vouched, want %d", i, got, c.want)
		}
	}
	if r := round("a3", 1); r != 2 || vouch("late", 1, other.ID) != 0 {
		t.Fatal("vouching ends with its round")
	}

	finish := FinishRepair{RequestID: "f", Tablet: tablet.ID, New: under.New}
	reply := mustAccept(t, applyTo(t, s, MetaFinishRepair, finish))
	now := reply.Table.Tablets[0]
	want := catalog.Replica{ID: under.New, Node: old.Node, Joined: true}
	if now.Replicas[1] != want || now.Generation != 2 || now.Founders[1] != old || reply.Table.Version != table.Version {
		t.Fatalf("the tablet is %+v", now)
	}
	if _, ok := s.snapshot().Repair(tablet.ID); ok || table.Tablets[0].Replicas[1] != old {
		t.Fatal("the repair is not over, or the old description was changed")
	}
	finish.RequestID = "f2"
	mustReject(t, applyTo(t, s, MetaFinishRepair, finish), sqlstate.UndefinedObject)
	mustReject(t, ask("gone", old.ID), sqlstate.UndefinedObject)

	// Dropping the table drops a repair; a lone replica has nothing to come from.
	mustAccept(t, ask("second", other.ID))
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: "d", ID: table.ID}))
	if len(s.snapshot().Repairs) != 0 {
		t.Fatal("the repair outlives its table")
	}
	mustReject(t, ask("dropped", other.ID), sqlstate.UndefinedTable)
	lone := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "l", Table: plainTable("l", 1)})).Table.Tablets[0]
	mustReject(t, applyTo(t, s, MetaRepairReplica, RepairReplica{RequestID: "lone", Tablet: lone.ID, Replica: lone.Replicas[0].ID}), sqlstate.DataCorrupted)
}
