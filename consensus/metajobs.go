package consensus

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands about jobs. Each has a JSON request below and answers a TableReply
// with the job as it is then.
const (
	MetaCreateJob  = "create_job"  // CreateJob
	MetaClaimJob   = "claim_job"   // ClaimJob
	MetaAdvanceJob = "advance_job" // AdvanceJob
	MetaEndJob     = "end_job"     // EndJob
)

// rememberedJobs is how many jobs that are over are kept, newest first.
const rememberedJobs = 256

// JobKind is what a job does.
type JobKind string

// The kinds of jobs.
const (
	JobSplit JobKind = "split"
	JobMerge JobKind = "merge"
	JobMove  JobKind = "move"
)

// JobState is where a job stands. All but JobRunning are final.
type JobState string

// The states of a job.
const (
	JobRunning JobState = "running"
	JobDone    JobState = "done"
	JobAborted JobState = "aborted" // before it took effect
)

// Job is the durable record of work on tablets that takes several steps and
// outlives the processes that do them. While a job runs, its tablets have no
// other.
//
// One node drives a job at a time. It claims the job, which begins another
// epoch, and names the epoch in every step: a driver that was taken for dead can
// do no more harm.
type Job struct {
	ID      uint64             `json:"id"`
	Kind    JobKind            `json:"kind"`
	Table   catalog.TableID    `json:"table"`
	Tablets []catalog.TabletID `json:"tablets"`
	State   JobState           `json:"state"`
	// Phase is the last step that is complete, in words of the kind.
	Phase string `json:"phase"`
	// Detail is the kind's own record.
	Detail json.RawMessage `json:"detail,omitempty"`
	Note   string          `json:"note,omitempty"`  // for people: what it waits for, how far it is
	Error  string          `json:"error,omitempty"` // why it was aborted
	// Owner drives the job in its Epoch, 0 before the first.
	Owner         catalog.NodeID `json:"owner,omitempty"`
	Epoch         uint64         `json:"epoch,omitempty"`
	CreatedUnixMS int64          `json:"created_unix_ms"`
	UpdatedUnixMS int64          `json:"updated_unix_ms"`
}

// CreateJob asks for a job on tablets of one table. SQLSTATE 42704 says that
// there is no such tablet, 55006 that one of them has a job or a repair.
type CreateJob struct {
	RequestID string             `json:"request_id"`
	Kind      JobKind            `json:"kind"`
	Tablets   []catalog.TabletID `json:"tablets"`
	Phase     string             `json:"phase"`
	Detail    json.RawMessage    `json:"detail,omitempty"`
	AtUnixMS  int64              `json:"at_unix_ms"` // the caller's clock
}

// ClaimJob makes a node the owner of a running job, in the epoch after Epoch.
type ClaimJob struct {
	RequestID string         `json:"request_id"`
	ID        uint64         `json:"id"`
	Epoch     uint64         `json:"epoch"` // as last seen
	Owner     catalog.NodeID `json:"owner"`
	AtUnixMS  int64          `json:"at_unix_ms"`
}

// AdvanceJob takes a job from one phase to another, or changes what it records
// within one. SQLSTATE 40001 says that the epoch or the phase is not current.
type AdvanceJob struct {
	RequestID string          `json:"request_id"`
	ID        uint64          `json:"id"`
	Epoch     uint64          `json:"epoch"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	Detail    json.RawMessage `json:"detail,omitempty"` // nil keeps what there is
	Note      string          `json:"note,omitempty"`
	AtUnixMS  int64           `json:"at_unix_ms"`
}

// EndJob ends a job.
type EndJob struct {
	RequestID string   `json:"request_id"`
	ID        uint64   `json:"id"`
	Epoch     uint64   `json:"epoch"`
	From      string   `json:"from"` // the current phase
	State     JobState `json:"state"`
	Error     string   `json:"error,omitempty"`
	AtUnixMS  int64    `json:"at_unix_ms"`
}

// CreateJob creates a job, which is in TableReply.Job then.
func (m *Meta) CreateJob(ctx context.Context, r CreateJob) (TableReply, error) {
	return m.command(ctx, MetaCreateJob, r)
}

// ClaimJob begins another epoch of a job.
func (m *Meta) ClaimJob(ctx context.Context, r ClaimJob) (TableReply, error) {
	return m.command(ctx, MetaClaimJob, r)
}

// AdvanceJob takes a job to its next phase.
func (m *Meta) AdvanceJob(ctx context.Context, r AdvanceJob) (TableReply, error) {
	return m.command(ctx, MetaAdvanceJob, r)
}

// EndJob ends a job.
func (m *Meta) EndJob(ctx context.Context, r EndJob) (TableReply, error) {
	return m.command(ctx, MetaEndJob, r)
}

// Job returns a job by id, which may be over.
func (s *MetaSnapshot) Job(id uint64) (Job, bool) {
	for _, j := range s.Jobs {
		if j.ID == id {
			return j, true
		}
	}
	return Job{}, false
}

// JobOf returns the running job of a tablet.
func (s *MetaSnapshot) JobOf(tablet catalog.TabletID) (Job, bool) {
	for _, j := range s.Jobs {
		if j.State == JobRunning && slices.Contains(j.Tablets, tablet) {
			return j, true
		}
	}
	return Job{}, false
}

func (s *metaState) createJob(r *CreateJob) metaAnswer {
	if r.Kind == "" || r.Phase == "" || len(r.Tablets) == 0 {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a job needs a kind, a phase and tablets"))
	}
	var table *catalog.Table
	for _, id := range r.Tablets {
		record, _ := s.tabletRecord(id)
		if record == nil {
			return rejected(sqlstate.New(sqlstate.UndefinedObject, "tablet %d does not exist", id))
		}
		if table != nil && table.ID != record.Table.ID {
			return rejected(sqlstate.New(sqlstate.InvalidParameter, "tablets %d and %d are of different tables", r.Tablets[0], id))
		}
		table = record.Table
		if busy := s.tabletBusy(id); busy != nil {
			return rejected(busy)
		}
	}
	job := Job{
		ID: s.counters.NextJob + 1, Kind: r.Kind, Table: table.ID, Tablets: slices.Clone(r.Tablets), State: JobRunning,
		Phase: r.Phase, Detail: r.Detail, CreatedUnixMS: r.AtUnixMS, UpdatedUnixMS: r.AtUnixMS,
	}
	s.counters.NextJob = job.ID
	s.forgetJobs()
	return s.acceptedJob(job)
}

// tabletBusy says why no job can begin on a tablet, nil if one can.
func (s *metaState) tabletBusy(id catalog.TabletID) *sqlstate.Error {
	if _, repairing := s.repairs[id]; repairing {
		return sqlstate.New(sqlstate.ObjectInUse, "a replica of tablet %d is being replaced", id).WithHint("Retry when that is done.")
	}
	for _, j := range s.jobs {
		if j.State == JobRunning && slices.Contains(j.Tablets, id) {
			return sqlstate.New(sqlstate.ObjectInUse, "tablet %d has a job already: %s, number %d", id, j.Kind, j.ID).
				WithHint("Retry when that is done: see the table skein.jobs.")
		}
	}
	return nil
}

// runningJob finds the job that a step is about.
func (s *metaState) runningJob(id, epoch uint64) (Job, *sqlstate.Error) {
	job, ok := s.jobs[id]
	switch {
	case !ok:
		return job, sqlstate.New(sqlstate.UndefinedObject, "job %d does not exist", id)
	case job.State != JobRunning:
		return job, sqlstate.New(sqlstate.SerializationFailure, "job %d is over: it is %s", id, job.State)
	case job.Epoch != epoch:
		return job, sqlstate.New(sqlstate.SerializationFailure, "job %d is in epoch %d, owned by node %d, not %d", id, job.Epoch, job.Owner, epoch)
	}
	return job, nil
}

// jobInPhase is runningJob for a step from a phase.
func (s *metaState) jobInPhase(id, epoch uint64, phase string) (Job, *sqlstate.Error) {
	job, err := s.runningJob(id, epoch)
	if err == nil && job.Phase != phase {
		err = sqlstate.New(sqlstate.SerializationFailure, "job %d is at phase %q, not %q", id, job.Phase, phase)
	}
	return job, err
}

func (s *metaState) claimJob(r *ClaimJob) metaAnswer {
	job, err := s.runningJob(r.ID, r.Epoch)
	if err != nil {
		return rejected(err)
	}
	if r.Owner == 0 {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a job is claimed by a node"))
	}
	if err := s.beginReshape(&job); err != nil {
		return rejected(err)
	}
	job.Owner, job.UpdatedUnixMS = r.Owner, r.AtUnixMS
	job.Epoch++
	return s.acceptedJob(job)
}

func (s *metaState) advanceJob(r *AdvanceJob) metaAnswer {
	job, err := s.jobInPhase(r.ID, r.Epoch, r.From)
	if err != nil {
		return rejected(err)
	}
	job.Phase, job.Note, job.UpdatedUnixMS = r.To, r.Note, r.AtUnixMS
	if r.Detail != nil {
		job.Detail = r.Detail
	}
	return s.acceptedJob(job)
}

func (s *metaState) endJob(r *EndJob) metaAnswer {
	job, err := s.jobInPhase(r.ID, r.Epoch, r.From)
	if err != nil {
		return rejected(err)
	}
	if r.State != JobDone && r.State != JobAborted {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a job cannot end as %q", r.State))
	}
	if _, reshapes := job.Reshape(); reshapes && (job.Phase == PhasePublished) != (r.State == JobDone) {
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "job %d cannot be %s in phase %q", r.ID, r.State, job.Phase))
	}
	job.State, job.Error, job.UpdatedUnixMS = r.State, r.Error, r.AtUnixMS
	if r.State == JobAborted {
		job.Note = "" // it waits for nothing any more
	}
	return s.acceptedJob(job)
}

// acceptedJob stores a job and answers it.
func (s *metaState) acceptedJob(job Job) metaAnswer {
	s.counters.Version++
	s.putJob(job)
	answer := s.accepted(nil)
	answer.Job = &job
	return answer
}

func (s *metaState) putJob(job Job) {
	s.jobs[job.ID] = job
	s.write(recordJob, job.ID, job)
}

// forgetJobs drops the oldest jobs that are over, above the limit.
func (s *metaState) forgetJobs() {
	var over []uint64
	for id, job := range s.jobs {
		if job.State != JobRunning {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for len(over) > rememberedJobs {
		delete(s.jobs, over[0])
		s.dirty[recordKey(recordJob, over[0])] = nil
		over = over[1:]
	}
}

// abortJobsOf ends the jobs of a table that is dropped.
func (s *metaState) abortJobsOf(table catalog.TableID) {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		if job := s.jobs[id]; job.Table == table && job.State == JobRunning {
			job.State, job.Error, job.Note = JobAborted, "the table was dropped", ""
			s.putJob(job)
		}
	}
}
