package consensus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands that split and merge tablets. Each has a JSON request below and
// answers a TableReply with the job. The other steps are those of jobs.
const (
	MetaReshape        = "reshape"         // ReshapeTablets
	MetaPublishReshape = "publish_reshape" // PublishReshape
)

// Phases of a split or merge: what its record says is complete. A claim before
// the publication begins anew, with other targets.
const (
	PhasePlanned   = "planned"
	PhaseBuilding  = "building"    // the targets exist, outside the table
	PhaseCatching  = "catching_up" // they have the rows that there were at first
	PhasePublished = "published"   // they have taken the sources' place
)

// ReshapeTablets asks for a split of one tablet of a table or for a merge of two
// neighbours. SQLSTATE 0A000 says that they cannot be reshaped so, 55006 that
// one of them has a job or a replica of it is being replaced.
type ReshapeTablets struct {
	RequestID string             `json:"request_id"`
	Kind      JobKind            `json:"kind"`    // JobSplit or JobMerge
	Tablets   []catalog.TabletID `json:"tablets"` // one to split, two to merge in either order
	// At is where to split.
	At *catalog.Splitter `json:"at,omitempty"`
	// Automatic says that no user has asked for it.
	Automatic bool  `json:"automatic,omitempty"`
	AtUnixMS  int64 `json:"at_unix_ms"`
}

// PublishReshape puts the targets of a job into the place of its sources, in one
// step: the point at which it takes effect.
type PublishReshape struct {
	RequestID string `json:"request_id"`
	ID        uint64 `json:"id"`
	Epoch     uint64 `json:"epoch"`
	Note      string `json:"note,omitempty"`
	AtUnixMS  int64  `json:"at_unix_ms"`
}

// Reshape is the record, Job.Detail, of a split or merge.
type Reshape struct {
	At *catalog.Splitter `json:"at,omitempty"` // of a split
	// Sources are the tablets that are split or merged, in the table's order, as
	// they were when the targets took their place, and Targets those.
	Sources   []catalog.Tablet `json:"sources,omitempty"`
	Targets   []catalog.Tablet `json:"targets,omitempty"`
	Automatic bool             `json:"automatic,omitempty"`
}

// Successor says which tablets have taken the place of one that was split or
// merged. They know the outcomes of its transactions.
type Successor struct {
	Tablet    catalog.TabletID   `json:"tablet"`
	Table     catalog.TableID    `json:"table"`
	Followers []catalog.TabletID `json:"followers"`
}

// ReshapeTablets asks for a split or merge.
func (m *Meta) ReshapeTablets(ctx context.Context, r ReshapeTablets) (TableReply, error) {
	return m.command(ctx, MetaReshape, r)
}

// PublishReshape makes the targets of a job tablets of their table.
func (m *Meta) PublishReshape(ctx context.Context, r PublishReshape) (TableReply, error) {
	return m.command(ctx, MetaPublishReshape, r)
}

// Reshape is the record of a split or merge, false for other jobs.
func (j *Job) Reshape() (Reshape, bool) {
	var r Reshape
	if j.Kind != JobSplit && j.Kind != JobMerge {
		return r, false
	}
	return r, json.Unmarshal(j.Detail, &r) == nil
}

// Follow returns the tablets that hold the rows of a tablet now: itself, or those
// that took its place. It is empty for one that never was or whose table is gone.
func (s *MetaSnapshot) Follow(id catalog.TabletID) []catalog.TabletID {
	at, ok := slices.BinarySearchFunc(s.Successors, id, func(s Successor, id catalog.TabletID) int {
		return int(int64(s.Tablet) - int64(id))
	})
	if !ok {
		if s.TableOf(id) == nil {
			return nil
		}
		return []catalog.TabletID{id}
	}
	var all []catalog.TabletID
	for _, next := range s.Successors[at].Followers { // whose ids are greater: there is no circle
		for _, id := range s.Follow(next) {
			if !slices.Contains(all, id) { // as after a split whose tablets were merged
				all = append(all, id)
			}
		}
	}
	return all
}

// Replaced reports whether other tablets have taken a tablet's place.
func (s *MetaSnapshot) Replaced(id catalog.TabletID) bool {
	return slices.ContainsFunc(s.Successors, func(s Successor) bool { return s.Tablet == id })
}

// TableOf returns the table, visible or hidden, that a tablet is of now, or nil.
func (s *MetaSnapshot) TableOf(id catalog.TabletID) (table *catalog.Table) {
	s.all(func(t *catalog.Table) {
		if _, ok := t.Tablet(id); ok {
			table = t
		}
	})
	return table
}

// placed calls f for every table with the tablets that nodes are to run: its own,
// those that splits and merges build, and those that they have replaced but that
// may still be read.
func (s *MetaSnapshot) placed(f func(*catalog.Table)) {
	more := map[catalog.TableID][]catalog.Tablet{}
	for i := range s.Jobs {
		r, ok := s.Jobs[i].Reshape()
		switch {
		case !ok || s.Jobs[i].State != JobRunning:
		case s.Jobs[i].Phase == PhasePublished:
			more[s.Jobs[i].Table] = append(more[s.Jobs[i].Table], r.Sources...)
		default:
			more[s.Jobs[i].Table] = append(more[s.Jobs[i].Table], r.Targets...)
		}
	}
	s.all(func(t *catalog.Table) {
		if len(more[t.ID]) > 0 {
			with := *t
			with.Tablets = slices.Concat(t.Tablets, more[t.ID])
			t = &with
		}
		f(t)
	})
}

// applyReshape runs the commands about splits and merges.
func (s *metaState) applyReshape(c MetaCommand) (string, metaAnswer) {
	if c.Command == MetaReshape {
		return dispatch(s, c.Body, func(r *ReshapeTablets) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.reshapeTablets(r) }
		})
	}
	return dispatch(s, c.Body, func(r *PublishReshape) (string, func() metaAnswer) {
		return r.RequestID, func() metaAnswer { return s.publishReshape(r) }
	})
}

func (s *metaState) reshapeTablets(r *ReshapeTablets) metaAnswer {
	tablets := slices.Clone(r.Tablets)
	record, at := s.reshapable(tablets)
	if record == nil {
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "tablets %v are not those of a table", r.Tablets))
	}
	detail := Reshape{At: r.At, Automatic: r.Automatic}
	if err := checkReshape(record.Table, r.Kind, at, &detail); err != nil {
		return rejected(err)
	}
	for i, ordinal := range at {
		tablets[i] = record.Table.Tablets[ordinal].ID
	}
	encoded, err := json.Marshal(detail)
	if err != nil {
		return rejected(sqlstate.New(sqlstate.InternalError, "encoding a job: %w", err))
	}
	return s.createJob(&CreateJob{Kind: r.Kind, Tablets: tablets, Phase: PhasePlanned, Detail: encoded, AtUnixMS: r.AtUnixMS})
}

// reshapable finds the visible table of some tablets, and their places in it in
// its order. It returns nil if there is none that has all of them.
func (s *metaState) reshapable(tablets []catalog.TabletID) (record *tableRecord, at []int) {
	for _, id := range tablets {
		of, ordinal := s.tabletRecord(id)
		if of == nil || of.Hidden || (record != nil && of != record) || slices.Contains(at, ordinal) {
			return nil, nil
		}
		record, at = of, append(at, ordinal)
	}
	slices.SortFunc(at, func(a, b int) int {
		x, y := &record.Table.Tablets[a], &record.Table.Tablets[b]
		if x.BucketLow != y.BucketLow {
			return int(x.BucketLow) - int(y.BucketLow)
		}
		return bytes.Compare(x.KeyLow, y.KeyLow)
	})
	return record, at
}

// checkReshape finds why a reshape of the tablets at some places is not possible.
func checkReshape(t *catalog.Table, kind JobKind, at []int, r *Reshape) *sqlstate.Error {
	no := func(format string, args ...any) *sqlstate.Error {
		return sqlstate.New(sqlstate.FeatureNotSupported, "table %s: %w", t.QualifiedName(), fmt.Errorf(format, args...))
	}
	switch {
	case kind == JobSplit && len(at) == 1 && r.At != nil:
		if len(t.Tablets) >= maxTablets {
			return no("it has %d tablets, which is the limit", len(t.Tablets))
		}
		if !slices.Equal(t.PartitionIDs(), r.At.Columns) || len(r.At.Columns) == 0 || t.Partitioning.Buckets != r.At.Buckets {
			return no("it is not partitioned by what the tablet is to be split at")
		}
		if _, _, err := t.Divide(&t.Tablets[at[0]], r.At); err != nil {
			return no("%w", err)
		}
	case kind == JobMerge && len(at) == 2 && r.At == nil:
		lower, upper := &t.Tablets[at[0]], &t.Tablets[at[1]]
		if _, err := t.Join(lower, upper); err != nil {
			return no("%w", err)
		}
		if !slices.Equal(sortedNodes(lower), sortedNodes(upper)) {
			return no("tablets %d and %d have their replicas on different nodes", lower.ID, upper.ID).
				WithHint("Move the replicas of one of them first.")
		}
	default:
		return sqlstate.New(sqlstate.InvalidParameter, "a %s of %d tablets is not possible", kind, len(at))
	}
	return nil
}

func sortedNodes(t *catalog.Tablet) []catalog.NodeID {
	nodes := make([]catalog.NodeID, len(t.Replicas))
	for i, r := range t.Replicas {
		nodes[i] = r.Node
	}
	slices.Sort(nodes)
	return nodes
}

// beginReshape gives a job that is claimed new targets, unless it has taken
// effect already.
func (s *metaState) beginReshape(job *Job) *sqlstate.Error {
	r, ok := job.Reshape()
	if !ok || job.Phase == PhasePublished {
		return nil
	}
	record, at := s.reshapable(job.Tablets)
	if record == nil {
		return sqlstate.New(sqlstate.UndefinedObject, "tablets %v are not those of a table", job.Tablets)
	}
	t := record.Table
	if err := checkReshape(t, job.Kind, at, &r); err != nil {
		return err
	}
	r.Sources, r.Targets = nil, nil
	generation := uint64(0)
	for _, ordinal := range at {
		r.Sources = append(r.Sources, t.Tablets[ordinal])
		generation = max(generation, t.Tablets[ordinal].Generation)
	}
	if job.Kind == JobSplit {
		lower, upper, _ := t.Divide(&r.Sources[0], r.At)
		r.Targets = []catalog.Tablet{lower, upper}
	} else {
		joined, _ := t.Join(&r.Sources[0], &r.Sources[1])
		r.Targets = []catalog.Tablet{joined}
	}
	nodes := make([]catalog.NodeID, len(r.Sources[0].Replicas))
	for i, replica := range r.Sources[0].Replicas {
		nodes[i] = replica.Node
	}
	for i := range r.Targets {
		s.assign(&r.Targets[i], nodes)
		r.Targets[i].Generation = generation + 1
	}
	return job.record(PhaseBuilding, r)
}

// record stores a phase and a detail.
func (j *Job) record(phase string, r Reshape) *sqlstate.Error {
	encoded, err := json.Marshal(r)
	if err != nil {
		return sqlstate.New(sqlstate.InternalError, "encoding a job: %w", err)
	}
	j.Phase, j.Detail, j.Note = phase, encoded, ""
	return nil
}

func (s *metaState) publishReshape(r *PublishReshape) metaAnswer {
	job, err := s.jobInPhase(r.ID, r.Epoch, PhaseCatching)
	if err != nil {
		return rejected(err)
	}
	detail, ok := job.Reshape()
	record, at := s.reshapable(job.Tablets)
	if !ok || record == nil {
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "job %d has no tablets to publish", r.ID))
	}
	t := *record.Table
	if t.Partitioning.Kind == catalog.Unpartitioned || t.Partitioning.Kind == "" {
		t.Partitioning = catalog.Partitioning{Kind: catalog.Range, Columns: slices.Clone(t.PrimaryKey)}
	}
	first := slices.Min(at)
	detail.Sources = detail.Sources[:0:0]
	tablets := make([]catalog.Tablet, 0, len(t.Tablets)+1)
	for i := range t.Tablets {
		if i == first {
			tablets = append(tablets, detail.Targets...)
		}
		if !slices.Contains(at, i) {
			tablets = append(tablets, t.Tablets[i])
		}
	}
	for _, ordinal := range at {
		detail.Sources = append(detail.Sources, t.Tablets[ordinal])
	}
	t.Tablets, t.Layout = tablets, s.counters.Version+1
	if err := validateTable(&t); err != nil {
		return rejected(err)
	}
	if err := job.record(PhasePublished, detail); err != nil {
		return rejected(err)
	}
	job.Note, job.UpdatedUnixMS = r.Note, r.AtUnixMS
	for i := range detail.Sources {
		s.dropRepair(detail.Sources[i].ID) // nobody needs the replica any more
		s.putSuccessor(Successor{Tablet: detail.Sources[i].ID, Table: t.ID, Followers: tabletIDs(detail.Targets)})
	}
	s.putTable(&tableRecord{Table: &t, CreatedUnixMS: record.CreatedUnixMS})
	answer := s.acceptedJob(job)
	answer.Table = &t
	return answer
}

// building finds the running job that makes a tablet which is not one of its
// table yet.
func (s *metaState) building(id catalog.TabletID) (Job, bool) {
	for _, n := range slices.Sorted(maps.Keys(s.jobs)) {
		job := s.jobs[n]
		r, ok := job.Reshape()
		if ok && job.State == JobRunning && job.Phase != PhasePublished && slices.Contains(tabletIDs(r.Targets), id) {
			return job, true
		}
	}
	return Job{}, false
}

func tabletIDs(tablets []catalog.Tablet) []catalog.TabletID {
	ids := make([]catalog.TabletID, len(tablets))
	for i := range tablets {
		ids[i] = tablets[i].ID
	}
	return ids
}

func (s *metaState) putSuccessor(x Successor) {
	s.successors[x.Tablet] = x
	s.write(recordSuccessor, uint64(x.Tablet), x)
}

// dropSuccessorsOf forgets the tablets that a table had.
func (s *metaState) dropSuccessorsOf(table catalog.TableID) {
	for _, id := range slices.Sorted(maps.Keys(s.successors)) {
		if s.successors[id].Table == table {
			delete(s.successors, id)
			s.dirty[recordKey(recordSuccessor, uint64(id))] = nil
		}
	}
}

func (s *metaState) successorList() []Successor {
	var list []Successor
	for _, id := range slices.Sorted(maps.Keys(s.successors)) {
		list = append(list, s.successors[id])
	}
	return list
}
