package consensus

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skein/catalog"
	"skein/sqlstate"
)

func TestJobsStepThroughTheirPhases(t *testing.T) {
	s := stateWithNodes(t, 3)
	table := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "c", Table: hashTable("t", 1, 3)})).Table
	other := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "o", Table: plainTable("o", 3)})).Table
	ids := []catalog.TabletID{table.Tablets[0].ID, table.Tablets[1].ID}
	n := 0
	create := func(tablets ...catalog.TabletID) metaAnswer {
		n++
		return applyTo(t, s, MetaCreateJob, CreateJob{
			RequestID: fmt.Sprint("create", n), Kind: JobMove, Tablets: tablets, Phase: "planned", Detail: json.RawMessage(`{"x":1}`), AtUnixMS: 5,
		})
	}
	mustReject(t, create(), sqlstate.InvalidParameter)
	mustReject(t, create(4711), sqlstate.UndefinedObject)
	mustReject(t, create(ids[0], other.Tablets[0].ID), sqlstate.InvalidParameter)
	job := mustAccept(t, create(ids...)).Job
	want := Job{ID: 1, Kind: JobMove, Table: table.ID, Tablets: ids, State: JobRunning, Phase: "planned", Detail: json.RawMessage(`{"x":1}`), CreatedUnixMS: 5, UpdatedUnixMS: 5}
	if diff := cmp.Diff(&want, job); diff != "" {
		t.Fatal(diff)
	}
	mustReject(t, create(ids[1]), sqlstate.ObjectInUse)

	claim := func(id string, epoch uint64, owner catalog.NodeID) metaAnswer {
		return applyTo(t, s, MetaClaimJob, ClaimJob{RequestID: id, ID: 1, Epoch: epoch, Owner: owner, AtUnixMS: 6})
	}
	mustReject(t, claim("nobody", 0, 0), sqlstate.InvalidParameter)
	mustAccept(t, claim("first", 0, 2))
	mustReject(t, claim("late", 0, 3), sqlstate.SerializationFailure)
	if again := mustAccept(t, claim("first", 0, 2)).Job; again.Epoch != 1 || again.Owner != 2 {
		t.Fatalf("a repeated claim answers %+v", again)
	}
	advance := func(id string, epoch uint64, from, to string) metaAnswer {
		return applyTo(t, s, MetaAdvanceJob, AdvanceJob{RequestID: id, ID: 1, Epoch: epoch, From: from, To: to, Note: "n", AtUnixMS: 7})
	}
	mustReject(t, advance("a0", 0, "planned", "built"), sqlstate.SerializationFailure)
	mustReject(t, advance("a1", 1, "built", "done"), sqlstate.SerializationFailure)
	mustAccept(t, advance("a2", 1, "planned", "built"))
	if j, ok := s.snapshot().JobOf(ids[1]); !ok || j.Phase != "built" || j.Note != "n" || string(j.Detail) != `{"x":1}` || j.UpdatedUnixMS != 7 {
		t.Fatalf("the job is %+v", j)
	}
	end := func(id, from string, state JobState) metaAnswer {
		return applyTo(t, s, MetaEndJob, EndJob{RequestID: id, ID: 1, Epoch: 1, From: from, State: state})
	}
	mustReject(t, end("e0", "planned", JobDone), sqlstate.SerializationFailure)
	mustReject(t, end("e1", "built", JobRunning), sqlstate.InvalidParameter)
	mustAccept(t, end("e2", "built", JobDone))
	mustReject(t, end("e3", "built", JobDone), sqlstate.SerializationFailure)
	mustReject(t, claim("over", 1, 2), sqlstate.SerializationFailure)

	// Jobs outlive a restart, end with their table, and the oldest are forgotten.
	loaded := newMetaState()
	keys, values := s.takeDirty()
	for _, key := range keys {
		if err := loaded.load([]byte(key), values[key]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(s.snapshot().Jobs, loaded.snapshot().Jobs); diff != "" {
		t.Fatal(diff)
	}
	for range rememberedJobs + 2 {
		id := mustAccept(t, create(ids[0])).Job.ID
		mustAccept(t, applyTo(t, s, MetaEndJob, EndJob{RequestID: fmt.Sprint("end", id), ID: id, From: "planned", State: JobAborted, Error: "why"}))
	}
	last := mustAccept(t, create(ids[0])).Job.ID
	if jobs := s.snapshot().Jobs; len(jobs) != rememberedJobs+1 || jobs[0].ID != 4 {
		t.Fatalf("%d jobs are kept, from %d on", len(jobs), jobs[0].ID)
	}
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: "d", ID: table.ID}))
	if j, _ := s.snapshot().Job(last); j.State != JobAborted || j.Error == "" {
		t.Fatalf("after its table was dropped the job is %+v", j)
	}
}
