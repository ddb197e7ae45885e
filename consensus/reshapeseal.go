package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"skein/sqlstate"
	"skein/storage"
)

// takeOver seals the sources, copies the rest and publishes the targets. It
// answers false if known transactions did not end in time; the sources are open
// again then.
func (d *reshape) takeOver(ctx context.Context) (job Job, done bool, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	sealed, err := d.seal(ctx)
	if err == nil && sealed != 0 {
		d.host.reshaped(reshapeSealed)
		job, err = d.publish(ctx, sealed, began)
		if err == nil {
			d.paused = time.Since(began)
			return job, true, nil
		}
	}
	if err != nil && sealed != 0 {
		// It may have been published: only the meta group can tell.
		published, known := d.wasPublished(ctx)
		if !known {
			return d.job, false, err // sealed until the next epoch begins
		}
		if published != nil {
			return *published, true, nil
		}
	}
	for i := range d.detail.Sources {
		if open := d.release(context.WithoutCancel(ctx), d.detail.Sources[i].ID, d.job.ID, d.sealNumber()); open != nil {
			return d.job, false, errors.Join(err, fmt.Errorf("opening tablet %d: %w", d.detail.Sources[i].ID, open))
		}
	}
	d.host.reshaped(reshapeReleased)
	return d.job, false, err
}

// sealNumber numbers the Seals of all epochs of a job in their order.
func (d *reshape) sealNumber() uint64 {
	d.seals++
	return d.job.Epoch<<32 | d.seals
}

// seal seals the sources and waits until nothing changes in them any more. It
// returns the greatest timestamp of a seal, or 0 if that takes too long.
func (d *reshape) seal(ctx context.Context) (sealed uint64, err error) {
	least := d.host.clock.Now() + uint64(sealAhead/time.Microsecond)<<logicalBits
	for i := range d.detail.Sources {
		id := d.detail.Sources[i].ID
		result, err := d.host.Propose(ctx, id, storage.Seal{Job: d.job.ID, Number: d.sealNumber(), Timestamp: least})
		if err == nil && result.Err != nil {
			err = result.Err
		}
		if err != nil {
			return 0, fmt.Errorf("sealing tablet %d: %w", id, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	for {
		busy := false
		sealed = 0
		for _, tablet := range d.sources {
			state := tablet.Seal()
			busy = busy || state.Unfinished > 0
			sealed = max(sealed, state.Timestamp)
		}
		if !busy {
			return sealed, nil
		}
		if !wait(ctx, time.Millisecond) {
			return 0, nil
		}
	}
}

// publish copies what is left and makes the targets tablets of the table. None of
// them ever commits at or below the seal.
func (d *reshape) publish(ctx context.Context, sealed uint64, began time.Time) (Job, error) {
	if _, err := d.rounds(ctx); err != nil {
		return d.job, err
	}
	for i := range d.detail.Targets {
		if err := d.adopt(ctx, storage.CopyStep{Target: i, Adopt: storage.Adopt{Closed: sealed}}); err != nil {
			return d.job, err
		}
	}
	d.host.reshaped(reshapeComplete)
	reply, err := d.meta.PublishReshape(ctx, PublishReshape{
		RequestID: fmt.Sprintf("publish-%d-%d", d.job.ID, d.job.Epoch), ID: d.job.ID, Epoch: d.job.Epoch,
		Note:     fmt.Sprintf("writers waited for %d ms", time.Since(began).Milliseconds()),
		AtUnixMS: time.Now().UnixMilli(),
	})
	if err != nil {
		return d.job, fmt.Errorf("publishing the tablets: %w", err)
	}
	return *reply.Job, nil
}

// wasPublished asks the meta group whether this epoch has taken effect, and sees
// to it that it does not any more if it has not. It answers the published job, nil
// if there is none, and false if it does not get to know: as long as that is so
// nobody may write to the sources.
func (d *reshape) wasPublished(ctx context.Context) (published *Job, known bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reshapePatience)
	defer cancel()
	// With a claim that succeeds this epoch is over; one that is refused tells that
	// it was over, or the job.
	if _, err := d.meta.ClaimJob(ctx, ClaimJob{
		RequestID: uuid.NewString(), ID: d.job.ID, Epoch: d.job.Epoch, Owner: d.host.cfg.NodeID, AtUnixMS: time.Now().UnixMilli(),
	}); err != nil && sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		return nil, false
	}
	snapshot, err := d.meta.Snapshot(ctx)
	if err != nil {
		return nil, false
	}
	job, ok := snapshot.Job(d.job.ID)
	if !ok {
		return nil, false
	}
	if job.Phase == PhasePublished || job.State == JobDone {
		return &job, true
	}
	return nil, true
}
