package consensus

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skein/catalog"
	"skein/sqlstate"
)

func TestReshapesReplaceTabletsInOneStep(t *testing.T) {
	s := stateWithNodes(t, 3)
	requests := 0
	id := func() string { requests++; return fmt.Sprint("r", requests) }
	table := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: id(), Table: hashTable("t", 3, 3)})).Table
	plain := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: id(), Table: plainTable("p", 3)})).Table
	ask := func(kind JobKind, at *catalog.Splitter, tablets ...catalog.TabletID) metaAnswer {
		return applyTo(t, s, MetaReshape, ReshapeTablets{RequestID: id(), Kind: kind, Tablets: tablets, At: at})
	}
	middle := table.Tablets[1]
	at := &catalog.Splitter{Columns: []int{1}, Buckets: 24, Bucket: 10}
	for name, bad := range map[string]struct {
		answer metaAnswer
		want   sqlstate.Code
	}{
		"no tablet":        {ask(JobSplit, at, 4711), sqlstate.UndefinedObject},
		"outside":          {ask(JobSplit, at, table.Tablets[0].ID), sqlstate.FeatureNotSupported},
		"other buckets":    {ask(JobSplit, &catalog.Splitter{Columns: []int{1}, Buckets: 8, Bucket: 10}, middle.ID), sqlstate.FeatureNotSupported},
		"a key of hashes":  {ask(JobSplit, &catalog.Splitter{Columns: []int{1}, Key: keyOf(1)}, middle.ID), sqlstate.FeatureNotSupported},
		"another column":   {ask(JobSplit, &catalog.Splitter{Columns: []int{2}, Buckets: 24, Bucket: 10}, middle.ID), sqlstate.FeatureNotSupported},
		"nowhere":          {ask(JobSplit, nil, middle.ID), sqlstate.InvalidParameter},
		"not neighbours":   {ask(JobMerge, nil, table.Tablets[0].ID, table.Tablets[2].ID), sqlstate.FeatureNotSupported},
		"two tables":       {ask(JobMerge, nil, table.Tablets[0].ID, plain.Tablets[0].ID), sqlstate.UndefinedObject},
		"one tablet twice": {ask(JobMerge, nil, middle.ID, middle.ID), sqlstate.UndefinedObject},
	} {
		if bad.answer.Rejected == nil || bad.answer.Rejected.Code != bad.want {
			t.Errorf("%s: %+v", name, bad.answer)
		}
	}
	claim := func(job uint64, epoch uint64) Job {
		t.Helper()
		return *mustAccept(t, applyTo(t, s, MetaClaimJob, ClaimJob{RequestID: id(), ID: job, Epoch: epoch, Owner: 1})).Job
	}
	publish := func(job uint64, epoch uint64) metaAnswer {
		return applyTo(t, s, MetaPublishReshape, PublishReshape{RequestID: id(), ID: job, Epoch: epoch})
	}
	advance := func(job, epoch uint64) {
		t.Helper()
		mustAccept(t, applyTo(t, s, MetaAdvanceJob, AdvanceJob{RequestID: id(), ID: job, Epoch: epoch, From: PhaseBuilding, To: PhaseCatching}))
	}
	reshaped := func(kind JobKind, at *catalog.Splitter, tablets ...catalog.TabletID) (Job, *catalog.Table) {
		t.Helper()
		job := mustAccept(t, ask(kind, at, tablets...)).Job
		claim(job.ID, 0)
		advance(job.ID, 1)
		answer := mustAccept(t, publish(job.ID, 1))
		mustAccept(t, applyTo(t, s, MetaEndJob, EndJob{RequestID: id(), ID: job.ID, Epoch: 1, From: PhasePublished, State: JobDone}))
		return *answer.Job, answer.Table
	}

	job := mustAccept(t, ask(JobSplit, at, middle.ID)).Job
	mustReject(t, ask(JobMerge, nil, middle.ID, table.Tablets[2].ID), sqlstate.ObjectInUse)
	first, _ := jobOf(claim(job.ID, 0))
	mustReject(t, publish(job.ID, 1), sqlstate.SerializationFailure) // nothing is built yet
	// Another epoch has other targets, and the first one publishes nothing.
	again := claim(job.ID, 1)
	second, _ := jobOf(again)
	if len(second.Targets) != 2 || second.Targets[0].ID <= first.Targets[1].ID || again.Phase != PhaseBuilding {
		t.Fatalf("targets %+v, then %+v", first.Targets, second.Targets)
	}
	placed := func() (ids []catalog.TabletID) {
		s.snapshot().placed(func(of *catalog.Table) {
			if of.ID == table.ID {
				ids = tabletIDs(of.Tablets)
			}
		})
		return ids
	}
	if got, want := placed(), slices.Concat(tabletIDs(table.Tablets), tabletIDs(second.Targets)); !slices.Equal(got, want) {
		t.Fatalf("placed are %v, not %v", got, want)
	}
	advance(job.ID, 2)
	mustReject(t, publish(job.ID, 1), sqlstate.SerializationFailure)
	version := s.snapshot().Version
	now := mustAccept(t, publish(job.ID, 2)).Table
	want := []catalog.TabletID{table.Tablets[0].ID, second.Targets[0].ID, second.Targets[1].ID, table.Tablets[2].ID}
	if !slices.Equal(tabletIDs(now.Tablets), want) || now.Version != table.Version || now.Layout != version+1 || now.Layout != s.snapshot().Version {
		t.Fatalf("the table is %+v", now)
	}
	if low, high := now.Tablets[1], now.Tablets[2]; low.BucketHigh != 10 || high.BucketLow != 10 || low.Generation != middle.Generation+1 {
		t.Fatalf("the tablets are %+v and %+v", low, high)
	}
	if got := placed(); !slices.Contains(got, middle.ID) {
		t.Fatalf("placed are %v, without the source", got)
	}
	mustReject(t, applyTo(t, s, MetaEndJob, EndJob{RequestID: id(), ID: job.ID, Epoch: 2, From: PhasePublished, State: JobAborted}), sqlstate.ObjectNotInState)
	mustAccept(t, applyTo(t, s, MetaEndJob, EndJob{RequestID: id(), ID: job.ID, Epoch: 2, From: PhasePublished, State: JobDone}))
	if got := placed(); slices.Contains(got, middle.ID) {
		t.Fatalf("placed are %v, with the source", got)
	}
	// Followers of followers, and a table that comes to be partitioned.
	merged, now := reshaped(JobMerge, nil, now.Tablets[2].ID, now.Tablets[1].ID)
	detail, _ := jobOf(merged)
	if got := s.snapshot().Follow(middle.ID); !slices.Equal(got, tabletIDs(detail.Targets)) || len(now.Tablets) != 3 {
		t.Fatalf("tablet %d is followed by %v", middle.ID, got)
	}
	_, ranged := reshaped(JobSplit, &catalog.Splitter{Columns: []int{1}, Key: keyOf(7)}, plain.Tablets[0].ID)
	if p := ranged.Partitioning; p.Kind != catalog.Range || !slices.Equal(p.Columns, []int{0}) || len(ranged.Tablets) != 2 {
		t.Fatalf("the table is %+v", ranged)
	}
	loaded := newMetaState()
	keys, values := s.takeDirty()
	for _, key := range keys {
		if err := loaded.load([]byte(key), values[key]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(s.snapshot().Successors, loaded.snapshot().Successors); diff != "" {
		t.Fatal(diff)
	}
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: id(), ID: table.ID}))
	if got := s.snapshot().Follow(middle.ID); len(got) != 0 || len(s.snapshot().Successors) != 1 {
		t.Fatalf("a dropped table's tablet is followed by %v", got)
	}
}

func jobOf(j Job) (Reshape, bool) { return j.Reshape() }
