package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/sqlstate"
	"skein/storage"
)

const (
	// reshapeEvery is how often jobs are looked at that nothing announces.
	reshapeEvery = time.Second
	// reshapeEpochs is how often a job is begun before it is given up.
	reshapeEpochs = 12
	// reshapePatience bounds each step of a job.
	reshapePatience = 20 * time.Second
	// drainPatience is for how long a sealed tablet waits for the transactions that
	// it knows. Writers wait as long, so it is short, and tried again later.
	drainPatience = 120 * time.Millisecond
	// sealAhead is how far ahead of the clock a seal lies, so that readers go on
	// while the targets take over.
	sealAhead = 250 * time.Millisecond
	// longTransaction is the age from which a transaction is taken for one that goes
	// on: a seal is not tried before it is over.
	longTransaction = time.Second
	// smallRound is how many changes are left for the time when writers wait.
	smallRound = 4096
	// mostRounds without little being left end a job: writes outrun the copy.
	mostRounds = 500
	// reshapeSpace must be free on the driver's disk beyond the store's own reserve.
	reshapeSpace = 256 << 20
	// retireAfter is how long the sources of a published job stay for readers that
	// have not heard of it.
	retireAfter = 2 * time.Second
)

// reshapePoint is a place in a split or merge where its driver may die.
type reshapePoint string

const (
	reshapeClaimed   reshapePoint = "claimed"
	reshapeBuilt     reshapePoint = "built"      // the first round is through
	reshapeCaught    reshapePoint = "caught up"  // and further ones are
	reshapeSealed    reshapePoint = "sealed"     // the sources are
	reshapeComplete  reshapePoint = "complete"   // the targets have everything
	reshapePublished reshapePoint = "published"  // they are tablets of the table
	reshapeEnded     reshapePoint = "ended"      // the job is over
	reshapeReleased  reshapePoint = "seal ended" // after a drain that took too long
)

// reshaper drives the splits and merges whose first source this node leads. Each
// is driven in these steps:
//
//  1. A claim begins an epoch, with new targets on the sources' nodes, whose
//     groups the nodes start as they do those of tablets.
//  2. A copy of the sources as of now goes through the targets' logs, and then
//     what has changed since, until that is little.
//  3. The sources are sealed: new transactions wait, known ones end. The rest of
//     the changes is copied.
//  4. One command of the meta group puts the targets into the sources' place.
//     Whoever waits is told so and turns to the targets.
//  5. After a while the job ends, and the nodes remove the sources' replicas as
//     soon as nobody reads them any more.
//
// A driver that dies before step 4 is followed by another that claims the job,
// and so begins anew; its targets are removed. The seal of a driver that died is
// opened by the next.
type reshaper struct {
	host *Host
	meta *Meta

	mu      sync.Mutex
	driving map[uint64]bool // jobs
	failed  map[uint64]time.Time
	drivers sync.WaitGroup

	// What follows is of surveys. refused has the layouts, plus one, in which a
	// tablet could not be split.
	surveyEvery time.Duration
	surveyed    time.Time
	loads       map[catalog.TabletID]*tabletLoad
	refused     map[catalog.TabletID]uint64
}

func newReshaper(h *Host, m *Meta) *reshaper {
	return &reshaper{
		host: h, meta: m, driving: map[uint64]bool{}, failed: map[uint64]time.Time{},
		surveyEvery: cmp.Or(h.cfg.surveyEvery, surveyEvery), refused: map[catalog.TabletID]uint64{},
	}
}

// run works until ctx ends, and returns when all drivers have stopped.
func (r *reshaper) run(ctx context.Context) {
	defer r.drivers.Wait()
	for {
		changed := r.meta.sm.version.wait()
		r.pass(ctx)
		timer := time.NewTimer(reshapeEvery/2 + rand.N(reshapeEvery))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// pass begins to drive what this node leads and opens what nobody seals.
func (r *reshaper) pass(ctx context.Context) {
	snapshot := r.meta.Local()
	for _, job := range snapshot.Jobs {
		if _, ok := job.Reshape(); !ok || job.State != JobRunning || !r.leads(job.Tablets[0]) || !r.begin(job.ID) {
			continue
		}
		r.drivers.Go(func() {
			err := r.drive(ctx, job)
			r.end(job.ID, err)
			if err != nil && ctx.Err() == nil {
				r.host.log.Warn("a job on tablets has failed, it will be begun again", "job", job.ID, "kind", job.Kind, "error", err)
			}
		})
	}
	r.openForgotten(ctx, snapshot)
	r.survey(ctx, snapshot)
}

func (r *reshaper) leads(id catalog.TabletID) bool {
	replica, ok := r.host.replica(id)
	return ok && replica.isOpen() && replica.health() == nil && replica.leads()
}

// begin notes that a job is driven here, unless it is or has just failed.
func (r *reshaper) begin(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.driving[id] || time.Since(r.failed[id]) < reshapeEvery {
		return false
	}
	r.driving[id] = true
	return true
}

func (r *reshaper) end(id uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.driving, id)
	delete(r.failed, id)
	if err != nil {
		r.failed[id] = time.Now()
	}
}

// openForgotten ends the seals of tablets whose job is over without having taken
// effect.
func (r *reshaper) openForgotten(ctx context.Context, snapshot *MetaSnapshot) {
	for _, status := range r.host.Tablets() {
		tablet, ok := r.host.Tablet(status.Tablet)
		if !ok || !r.leads(status.Tablet) {
			continue
		}
		seal := tablet.Seal()
		if job, known := snapshot.Job(seal.Job); !seal.Sealed || !known || job.State == JobRunning || snapshot.Replaced(status.Tablet) {
			continue
		}
		if err := r.release(ctx, status.Tablet, seal.Job, seal.Number+1); err != nil && ctx.Err() == nil {
			r.host.log.Warn("opening a tablet again failed, will retry", "tablet", uint64(status.Tablet), "error", err)
		}
	}
}

func (r *reshaper) release(ctx context.Context, id catalog.TabletID, job, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	result, err := r.host.Propose(ctx, id, storage.Seal{Job: job, Number: number, Release: true})
	if err == nil && result.Err != nil {
		err = result.Err
	}
	return err
}

// drive takes a job to its end.
func (r *reshaper) drive(ctx context.Context, job Job) error {
	if job.Phase == PhasePublished {
		return r.retire(ctx, job)
	}
	if job.Epoch >= reshapeEpochs {
		return r.abort(ctx, job, fmt.Errorf("it was begun %d times", job.Epoch))
	}
	reply, err := r.meta.ClaimJob(ctx, ClaimJob{
		RequestID: uuid.NewString(), ID: job.ID, Epoch: job.Epoch, Owner: r.host.cfg.NodeID, AtUnixMS: time.Now().UnixMilli(),
	})
	if hopeless(err) {
		return r.abort(ctx, job, err)
	}
	if err != nil {
		return fmt.Errorf("claiming it: %w", err)
	}
	d := &reshape{reshaper: r, job: *reply.Job, younger: map[string]time.Time{}}
	d.detail, _ = d.job.Reshape()
	r.host.reshaped(reshapeClaimed)
	published, err := d.build(ctx)
	if err != nil && hopeless(err) {
		return r.abort(ctx, d.job, err)
	}
	if err != nil {
		return err
	}
	r.host.log.Info("tablets have been replaced", "job", job.ID, "kind", job.Kind, "sources", job.Tablets,
		"targets", tabletIDs(d.detail.Targets), "paused", d.paused)
	return r.retire(ctx, published)
}

// hopeless reports whether an error would come again.
func hopeless(err error) bool {
	switch sqlstate.CodeOf(err) {
	case sqlstate.FeatureNotSupported, sqlstate.UndefinedObject, sqlstate.DataCorrupted, sqlstate.ProgramLimitExceeded, sqlstate.DiskFull:
		return true
	}
	return false
}

// abort ends a job that has not taken effect.
func (r *reshaper) abort(ctx context.Context, job Job, why error) error {
	_, err := r.meta.EndJob(ctx, EndJob{
		RequestID: uuid.NewString(), ID: job.ID, Epoch: job.Epoch, From: job.Phase, State: JobAborted, Error: why.Error(), AtUnixMS: time.Now().UnixMilli(),
	})
	if err != nil {
		return fmt.Errorf("giving it up because %w: %w", why, err)
	}
	r.host.log.Warn("a job on tablets was given up", "job", job.ID, "kind", job.Kind, "tablets", job.Tablets, "error", why)
	return nil
}

// retire ends a job that has taken effect, when readers have had time to hear.
func (r *reshaper) retire(ctx context.Context, job Job) error {
	r.host.reshaped(reshapePublished)
	if !wait(ctx, retireAfter) {
		return context.Cause(ctx)
	}
	_, err := r.meta.EndJob(ctx, EndJob{
		RequestID: uuid.NewString(), ID: job.ID, Epoch: job.Epoch, From: PhasePublished, State: JobDone, AtUnixMS: time.Now().UnixMilli(),
	})
	if err != nil && sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		return fmt.Errorf("ending it: %w", err)
	}
	r.host.reshaped(reshapeEnded)
	return nil
}

// reshaped is called at every point.
func (h *Host) reshaped(p reshapePoint) {
	if h.cfg.reshape != nil {
		h.cfg.reshape(p)
	}
}

// reshape is one epoch of a job.
type reshape struct {
	*reshaper
	job     Job
	detail  Reshape
	sources []*storage.Tablet
	copies  []*storage.Copy
	adopts  int
	seals   uint64               // Seals proposed
	younger map[string]time.Time // transactions on the sources, when they were first seen
	paused  time.Duration        // for which writers had to wait
}

// build does all up to the publication and returns the job then.
func (d *reshape) build(ctx context.Context) (Job, error) {
	if err := d.open(ctx); err != nil {
		return d.job, err
	}
	defer func() {
		for _, c := range d.copies {
			c.Release()
		}
	}()
	if _, err := d.rounds(ctx); err != nil {
		return d.job, err
	}
	d.host.reshaped(reshapeBuilt)
	if err := d.advance(ctx, PhaseCatching, ""); err != nil {
		return d.job, err
	}
	pause := 100 * time.Millisecond
	for {
		if err := d.catchUp(ctx); err != nil {
			return d.job, err
		}
		d.host.reshaped(reshapeCaught)
		if waits := d.waitsFor(); waits != "" {
			if err := d.advance(ctx, PhaseCatching, waits); err != nil {
				return d.job, err
			}
		} else if job, done, err := d.takeOver(ctx); done || err != nil {
			return job, err
		}
		if !wait(ctx, pause/2+rand.N(pause)) {
			return d.job, context.Cause(ctx)
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// catchUp copies until little is left.
func (d *reshape) catchUp(ctx context.Context) error {
	for range mostRounds {
		if changes, err := d.rounds(ctx); err != nil || changes <= smallRound {
			return err
		}
	}
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "after %d rounds of copying there were still more than %d changes since the last",
		mostRounds, smallRound).WithHint("Try again when less is written to the table.")
}

// open waits for the replicas of sources and targets and opens sources that an
// earlier epoch has sealed, which at once keeps that from sealing again.
func (d *reshape) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	for i := range d.detail.Targets {
		if err := d.host.awaitLed(ctx, d.detail.Targets[i].ID); err != nil {
			return err
		}
	}
	next := make([]uint64, len(d.detail.Targets))
	since := d.host.clock.Now()
	for i := range d.detail.Sources {
		id := d.detail.Sources[i].ID
		if err := d.host.awaitLed(ctx, id); err != nil {
			return err
		}
		if err := d.release(ctx, id, d.job.ID, d.sealNumber()); err != nil {
			return fmt.Errorf("opening tablet %d: %w", id, err)
		}
		tablet, ok := d.host.Tablet(id)
		if !ok {
			return fmt.Errorf("tablet %d: %w", id, ErrTabletNotHere)
		}
		d.sources = append(d.sources, tablet)
		d.copies = append(d.copies, tablet.NewCopy(d.detail.At, next, since))
	}
	return nil
}

// awaitLed waits until a local replica is open and its group has a leader.
func (h *Host) awaitLed(ctx context.Context, id catalog.TabletID) error {
	for {
		changed := h.changed.wait()
		if r, ok := h.replica(id); ok && r.isOpen() && r.health() == nil && r.leaderReplica() != 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for tablet %d: %w: %w", id, ErrNotReady, context.Cause(ctx))
		}
	}
}

// rounds copies what is new in all sources and returns how much that was.
func (d *reshape) rounds(ctx context.Context) (uint64, error) {
	changes := uint64(0)
	for i, c := range d.copies {
		if !d.leads(d.detail.Sources[0].ID) {
			return 0, fmt.Errorf("%w: another node leads tablet %d", ErrNotReady, d.detail.Sources[0].ID)
		}
		round, err := c.Round(ctx, func(step storage.CopyStep) error { return d.adopt(ctx, step) })
		if err != nil {
			return 0, fmt.Errorf("copying tablet %d: %w", d.detail.Sources[i].ID, err)
		}
		changes += round.Rows + round.Marks
	}
	return changes, nil
}

// adopt proposes one step of a copy to its target.
func (d *reshape) adopt(ctx context.Context, step storage.CopyStep) error {
	target := d.detail.Targets[step.Target].ID
	command := step.Adopt
	command.Txn = fmt.Sprintf("adopt-%d-%d-%d", d.job.ID, d.job.Epoch, d.adopts)
	d.adopts++
	if step.Segment != nil {
		// A replica stops where it cannot write, so a disk that fills up ends the job.
		if err := d.host.cfg.Store.CheckSpaceFor(reshapeSpace); err != nil {
			return err
		}
		parts := step.Segment.Parts()
		if len(parts) == 1 {
			command.Inline = parts[0]
		} else {
			command.Segments = 1
			if err := d.stage(ctx, target, command.Txn, parts); err != nil {
				return err
			}
		}
	}
	return d.propose(ctx, target, command, storage.Committed)
}

// stage proposes the parts of a segment, which may arrive in any order.
func (d *reshape) stage(ctx context.Context, target catalog.TabletID, txn string, parts [][]byte) error {
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, part := range parts {
		group.Go(func() {
			errs[i] = d.propose(ctx, target, storage.Stage{Txn: txn, Part: uint32(i), Parts: uint32(len(parts)), Data: part}, storage.Staged)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (d *reshape) propose(ctx context.Context, target catalog.TabletID, command storage.Command, want storage.Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	result, err := d.host.Propose(ctx, target, command)
	switch {
	case err != nil:
		return err
	case result.Err != nil:
		return fmt.Errorf("tablet %d: %w", target, result.Err)
	case result.Outcome != want:
		return fmt.Errorf("tablet %d answers %s, not %s", target, result.Outcome, want)
	}
	return nil
}

// advance records a phase and what the job waits for.
func (d *reshape) advance(ctx context.Context, phase, note string) error {
	if d.job.Phase == phase && d.job.Note == note {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	reply, err := d.meta.AdvanceJob(ctx, AdvanceJob{
		RequestID: uuid.NewString(), ID: d.job.ID, Epoch: d.job.Epoch, From: d.job.Phase, To: phase, Note: note, AtUnixMS: time.Now().UnixMilli(),
	})
	if err != nil {
		return fmt.Errorf("recording phase %s: %w", phase, err)
	}
	d.job = *reply.Job
	return nil
}

// waitsFor names a transaction on the sources that has been going on for so long
// that it will hardly end while writers wait, "" for none.
func (d *reshape) waitsFor() string {
	now, seen, old := time.Now(), map[string]time.Time{}, ""
	look := func(txn string) {
		first, known := d.younger[txn]
		if !known {
			first = now
		}
		seen[txn] = first
		if now.Sub(first) >= longTransaction {
			old = txn
		}
	}
	for _, tablet := range d.sources {
		for _, t := range tablet.Staged() {
			look(t.Txn)
		}
		for _, t := range tablet.InDoubt() {
			look(t.Txn)
		}
	}
	d.younger = seen
	if old != "" {
		return fmt.Sprintf("waits for transaction %s to end", old)
	}
	return ""
}
