package consensus

import (
	"fmt"
	"testing"

	"skein/catalog"
	"skein/sqlstate"
)

// busyCase is a state of five nodes with a table of three tablets.
type busyCase struct {
	t     *testing.T
	s     *metaState
	table *catalog.Table
	asked int
}

func newBusyCase(t *testing.T) *busyCase {
	c := &busyCase{t: t, s: stateWithNodes(t, 5)}
	c.table = mustAccept(t, c.do(MetaCreateTable, CreateTable{RequestID: c.id(), Table: hashTable("t", 3, 3)})).Table
	return c
}

func (c *busyCase) id() string { c.asked++; return fmt.Sprint("request ", c.asked) }

func (c *busyCase) do(command string, request any) metaAnswer {
	return applyTo(c.t, c.s, command, request)
}

// split and the others act on one of the table's tablets, or two from it on.
func (c *busyCase) split(ordinal int) metaAnswer {
	tablet := &c.table.Tablets[ordinal]
	return c.do(MetaReshape, ReshapeTablets{
		RequestID: c.id(), Kind: JobSplit, Tablets: []catalog.TabletID{tablet.ID},
		At: &catalog.Splitter{Columns: []int{1}, Buckets: 24, Bucket: tablet.BucketLow + 1},
	})
}

func (c *busyCase) merge(ordinal int) metaAnswer {
	return c.do(MetaReshape, ReshapeTablets{RequestID: c.id(), Kind: JobMerge, Tablets: tabletIDs(c.table.Tablets[ordinal : ordinal+2])})
}

func (c *busyCase) moveOf(tablet *catalog.Tablet) metaAnswer {
	to := catalog.NodeID(1)
	for hosts(tablet, to) {
		to++
	}
	return c.do(MetaMoveReplica, MoveReplica{RequestID: c.id(), Tablet: tablet.ID, From: tablet.Replicas[0].Node, To: to})
}

func (c *busyCase) move(ordinal int) metaAnswer { return c.moveOf(&c.table.Tablets[ordinal]) }

func (c *busyCase) repair(ordinal int) metaAnswer {
	tablet := &c.table.Tablets[ordinal]
	return c.do(MetaRepairReplica, RepairReplica{RequestID: c.id(), Tablet: tablet.ID, Replica: tablet.Replicas[1].ID, Cause: "test"})
}

// TestWorkOnATabletExcludesOtherWork: a tablet is moved, split or merged by one at
// a time, and none of that begins while a replica of it is being replaced.
func TestWorkOnATabletExcludesOtherWork(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*busyCase) metaAnswer
	}{
		{"split, move", func(c *busyCase) metaAnswer { return c.split(1) }, func(c *busyCase) metaAnswer { return c.move(1) }},
		{"move, split", func(c *busyCase) metaAnswer { return c.move(1) }, func(c *busyCase) metaAnswer { return c.split(1) }},
		{"move, repair", func(c *busyCase) metaAnswer { return c.move(1) }, func(c *busyCase) metaAnswer { return c.repair(1) }},
		{"repair, move", func(c *busyCase) metaAnswer { return c.repair(1) }, func(c *busyCase) metaAnswer { return c.move(1) }},
		{"repair, split", func(c *busyCase) metaAnswer { return c.repair(1) }, func(c *busyCase) metaAnswer { return c.split(1) }},
		{"split, split", func(c *busyCase) metaAnswer { return c.split(1) }, func(c *busyCase) metaAnswer { return c.split(1) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newBusyCase(t)
			mustAccept(t, tc.first(c))
			mustReject(t, tc.second(c), sqlstate.ObjectInUse)
			mustAccept(t, c.split(2)) // of another tablet
		})
	}
	t.Run("merge", func(t *testing.T) {
		// Neighbours are on the same nodes where there are no others; a fourth is to move to.
		c := &busyCase{t: t, s: stateWithNodes(t, 3)}
		c.table = mustAccept(t, c.do(MetaCreateTable, CreateTable{RequestID: c.id(), Table: hashTable("t", 3, 3)})).Table
		c.s.putNode(NodeInfo{ID: 4, RaftAddress: "raft-4", FlightAddress: "flight-4", State: NodeActive})
		mustAccept(t, c.merge(0))
		for ordinal := range 2 {
			mustReject(t, c.move(ordinal), sqlstate.ObjectInUse)
			mustReject(t, c.split(ordinal), sqlstate.ObjectInUse)
		}
		mustReject(t, c.merge(1), sqlstate.ObjectInUse)
		mustAccept(t, c.move(2))
	})
}

// TestTabletsOfASplitMoveWhenItHasTakenEffect, and not before; a repair of the
// source that is under way then ends.
func TestTabletsOfASplitMoveWhenItHasTakenEffect(t *testing.T) {
	c := newBusyCase(t)
	job := mustAccept(t, c.split(1)).Job
	claimed := mustAccept(t, c.do(MetaClaimJob, ClaimJob{RequestID: c.id(), ID: job.ID, Owner: 1})).Job
	detail, _ := claimed.Reshape()
	mustAccept(t, c.repair(1))
	repair, _ := c.s.snapshot().Repair(c.table.Tablets[1].ID)
	for i := range detail.Targets {
		mustReject(t, c.moveOf(&detail.Targets[i]), sqlstate.ObjectInUse)
	}
	mustAccept(t, c.do(MetaAdvanceJob, AdvanceJob{RequestID: c.id(), ID: job.ID, Epoch: 1, From: PhaseBuilding, To: PhaseCatching}))
	mustReject(t, c.moveOf(&detail.Targets[0]), sqlstate.ObjectInUse)
	mustAccept(t, c.do(MetaPublishReshape, PublishReshape{RequestID: c.id(), ID: job.ID, Epoch: 1}))
	if left := c.s.snapshot().Repairs; len(left) != 0 {
		t.Fatalf("repairs of tablets that were replaced: %+v", left)
	}
	mustReject(t, c.do(MetaFinishRepair, FinishRepair{RequestID: c.id(), Tablet: repair.Tablet, New: repair.New}), sqlstate.UndefinedObject)
	mustReject(t, c.move(1), sqlstate.UndefinedTable)
	for i := range detail.Targets {
		mustAccept(t, c.moveOf(&detail.Targets[i]))
	}
}

// TestDroppedTablesEndTheWorkOnTheirTablets: no step of it is possible any more,
// and no node is to run anything of it.
func TestDroppedTablesEndTheWorkOnTheirTablets(t *testing.T) {
	c := newBusyCase(t)
	moved := mustAccept(t, c.move(0)).Job
	under, _ := c.s.snapshot().Move(c.table.Tablets[0].ID)
	split := mustAccept(t, c.split(1)).Job
	mustAccept(t, c.do(MetaClaimJob, ClaimJob{RequestID: c.id(), ID: split.ID, Owner: 1}))
	mustAccept(t, c.do(MetaAdvanceJob, AdvanceJob{RequestID: c.id(), ID: split.ID, Epoch: 1, From: PhaseBuilding, To: PhaseCatching}))
	mustAccept(t, c.repair(2))
	mustAccept(t, c.do(MetaDropTable, DropTable{RequestID: c.id(), ID: c.table.ID}))

	snapshot := c.s.snapshot()
	for _, id := range []uint64{moved.ID, split.ID} {
		if job, _ := snapshot.Job(id); job.State != JobAborted || job.Error == "" {
			t.Errorf("job %+v", job)
		}
	}
	if len(snapshot.Moves)+len(snapshot.Repairs)+len(snapshot.Successors) != 0 {
		t.Errorf("moves %+v, repairs %+v, successors %+v", snapshot.Moves, snapshot.Repairs, snapshot.Successors)
	}
	snapshot.placed(func(left *catalog.Table) { t.Errorf("nodes are to run %+v", left) })
	mustReject(t, c.do(MetaPublishReshape, PublishReshape{RequestID: c.id(), ID: split.ID, Epoch: 1}), sqlstate.SerializationFailure)
	mustReject(t, c.do(MetaClaimJob, ClaimJob{RequestID: c.id(), ID: split.ID, Epoch: 1, Owner: 2}), sqlstate.SerializationFailure)
	mustReject(t, c.do(MetaAdvanceMove, AdvanceMove{RequestID: c.id(), Tablet: under.Tablet, New: under.New.ID, To: MovePromoting}), sqlstate.UndefinedObject)
	mustReject(t, c.do(MetaFinishMove, FinishMove{RequestID: c.id(), Tablet: under.Tablet, New: under.New.ID}), sqlstate.UndefinedObject)
}
