package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"skein/storage"
)

// leaseSpan is how far beyond the clock a lease reaches. A tablet that is read
// all the time costs two small log entries per span; after a change of leaders
// the commits of the new one may lie up to a span ahead of its clock.
const leaseSpan = 2 * time.Second

// reads decides when the local replica of a tablet may answer reads at a
// timestamp, and from where the proposals of this node take theirs.
//
// The invariant, for every replica and whatever node proposes: once a read at
// timestamp R was answered, nothing that the replica had not applied by then
// becomes visible at or below R. A transaction that was prepared is no
// exception, for readers above its floor wait for its outcome, and the floor of
// one that is prepared later lies at or above R.
//
// It holds because the log knows of every read, in one of two ways (see
// storage.Hold):
//
//   - A follower has a Hold applied that closes R to everybody: all replicas
//     move the timestamps of later entries above it. Readers that come together
//     share one entry, and a read that was closed already needs none.
//   - The leader takes a lease: a Hold that moves the entries of all other
//     sessions above the lease's end, for which it answers for its own. Its
//     proposals take timestamps above the reads served before them, and its
//     reads wait for its proposals at or below R that are under way. So under a
//     lease a read needs no other node, neither to be repeatable nor to find
//     all that was acknowledged at or below R.
//
// A lease is counted in timestamps that the log orders, not in anybody's time:
// a node that was paused or has lost its leadership may still answer reads
// below the end of its lease, since whoever comes next commits above it. A
// session, which is a lease's name, ends with the process and whenever the fate
// of a proposal is unknown: should that be applied later, then above the lease.
//
// A lease reaches some way beyond what was read, so that most reads find it. The
// price is that the commits of others lie above its end, and so ahead of the
// clocks, where a gateway that has not heard of them does not read yet. So a
// leader that steps down releases what is left of its lease, and one that sees
// the commits of others applied takes leases no further than they are needed.
//
// The only replica of a group needs no lease, having no others to fear. Where
// the fate of a proposal is unknown it sends another one behind.
type reads struct {
	group  *group
	tablet *storage.Tablet
	clock  *Clock

	mu        sync.Mutex
	session   uint64
	served    uint64               // greatest timestamp of a read
	flights   map[*flight]struct{} // proposals under way
	losses    uint64               // of a lone replica: proposals whose fate is unknown
	settled   uint64               // of those, how many were before one that was applied
	renewal   chan struct{}        // closed when the Hold under way is over; nil for none
	extending bool                 // a lease is being extended ahead of need
	brief     time.Time            // until when leases reach no further than asked for
}

// flight is a proposal under way that commits at or above a timestamp.
type flight struct {
	least uint64
	done  chan struct{} // closed when it has been applied, or lost
}

func newReads(g *group, tablet *storage.Tablet, clock *Clock) *reads {
	return &reads{group: g, tablet: tablet, clock: clock, session: newSession(), flights: map[*flight]struct{}{}}
}

// newSession returns a number that no other session has, and that is not 0.
func newSession() uint64 { return rand.Uint64() | 1 }

// depart bounds a command's timestamp by the reads served so far and keeps
// account of it until arrive is called.
func (r *reads) depart(c storage.Command) (storage.Command, *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bounds := storage.Bounds{After: r.served}
	if !r.group.lone.Load() {
		bounds.Session = r.session
	}
	var timestamp uint64
	switch command := c.(type) {
	case storage.Commit:
		timestamp, command.Bounds = command.Timestamp, bounds
		c = command
	case storage.Truncate:
		timestamp, command.Bounds = command.Timestamp, bounds
		c = command
	case storage.Prepare:
		timestamp, command.Bounds = command.Floor+1, bounds
		c = command
	case storage.Seal:
		// Reads above what was served before wait until it is applied, and then find
		// out whether they lie above the seal.
		timestamp, command.Bounds = 1, bounds
		c = command
	}
	if timestamp == 0 {
		return c, nil
	}
	f := &flight{least: max(timestamp, r.served+1), done: make(chan struct{})}
	r.flights[f] = struct{}{}
	return c, f
}

// arrive ends a flight. An error means that the entry may or may not be applied
// at any later time.
func (r *reads) arrive(f *flight, err error) {
	if f == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, f)
	if err != nil {
		r.session = newSession()
		r.losses++
	}
	close(f.done)
}

// at returns once the local replica may answer reads at a timestamp, which the
// node's clock has observed.
func (r *reads) at(ctx context.Context, timestamp uint64) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	if r.group.lone.Load() { // once after its start: what was committed before
		if err := r.group.readIndex(ctx); err != nil {
			return err
		}
	}
	for {
		if closed, _ := r.tablet.Promised(0); closed >= timestamp && !r.group.lone.Load() {
			return nil
		}
		session, err := r.land(ctx, timestamp)
		if err != nil {
			return err
		}
		if r.covers(session, timestamp) {
			return nil
		}
		if err := r.renew(ctx, timestamp); err != nil {
			return err
		}
	}
}

// land registers a read and waits until the proposals under way at or below its
// timestamp are applied. It returns the session that they were of.
func (r *reads) land(ctx context.Context, timestamp uint64) (session uint64, err error) {
	r.mu.Lock()
	r.served = max(r.served, timestamp)
	session = r.session
	var ahead []*flight
	for f := range r.flights {
		if f.least <= timestamp {
			ahead = append(ahead, f)
		}
	}
	r.mu.Unlock()
	for _, f := range ahead {
		select {
		case <-f.done:
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for writes under way at or below the read's timestamp: %w", unavailable(ctx))
		}
	}
	return session, nil
}

// covers reports whether nothing can be missing at a timestamp to a reader that
// has waited for the proposals of a session.
func (r *reads) covers(session, timestamp uint64) bool {
	_, until := r.tablet.Promised(session)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.group.lone.Load():
		return r.losses == r.settled
	case r.session != session || until < timestamp:
		return false
	}
	if !r.extending && r.group.leads() && until < timestamp+leaseTicks/2 && time.Now().After(r.brief) {
		r.extending = true
		r.group.host.background(r.extend)
	}
	return true
}

// leaseTicks is leaseSpan in units of timestamps.
const leaseTicks = uint64(leaseSpan/time.Microsecond) << logicalBits

// share has the log know of all reads served so far, by a lease that covers them.
// The group must not count as lone any more.
func (r *reads) share(ctx context.Context) error {
	r.mu.Lock()
	served := r.served
	r.mu.Unlock()
	for {
		r.mu.Lock()
		session := r.session
		r.mu.Unlock()
		if _, until := r.tablet.Promised(session); until >= served {
			return nil
		}
		if err := r.renew(ctx, served); err != nil {
			return err
		}
	}
}

// extend renews a lease before it ends.
func (r *reads) extend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseSpan)
	defer cancel()
	if err := r.renew(ctx, r.clock.Now()); err != nil {
		r.group.log.Debug("extending the lease of reads", "error", err)
	}
	r.mu.Lock()
	r.extending = false
	r.mu.Unlock()
}

// renew has a promise made that covers reads at a timestamp, or waits for one
// that another reader has asked for. The caller looks what it is good for.
func (r *reads) renew(ctx context.Context, timestamp uint64) error {
	r.mu.Lock()
	if under := r.renewal; under != nil {
		r.mu.Unlock()
		select {
		case <-under:
			return r.group.err()
		case <-ctx.Done():
			return fmt.Errorf("waiting for a lease of reads: %w", unavailable(ctx))
		}
	}
	done := make(chan struct{})
	r.renewal = done
	losses := r.losses
	entry, err := storage.EncodeCommand(r.request(timestamp))
	r.mu.Unlock()
	if err == nil {
		r.group.gate(ctx)
		_, err = r.group.propose(ctx, entry)
	}
	r.mu.Lock()
	r.renewal = nil
	if err == nil {
		// Entries of one node are applied in the order in which it proposes them.
		r.settled = max(r.settled, losses)
	}
	r.mu.Unlock()
	close(done)
	if err != nil {
		return fmt.Errorf("asking for a lease of reads: %w", err)
	}
	return nil
}

// request is the Hold that reads at a timestamp need. The caller holds r.mu.
func (r *reads) request(timestamp uint64) storage.Hold {
	now := max(timestamp, r.clock.Now())
	switch {
	case r.group.lone.Load():
		return storage.Hold{}
	case !r.group.leads():
		return storage.Hold{Closed: now}
	}
	hold := storage.Hold{Session: r.session, Until: now}
	if time.Now().After(r.brief) {
		// Not beyond the wall clock's span: leases that follow each other must not
		// carry the cluster into the future.
		hold.Until = max(timestamp, r.clock.wallTimestamp()+leaseTicks)
	}
	// What is over for everybody lets followers answer without an entry.
	hold.Closed = r.clock.Now()
	for f := range r.flights {
		hold.Closed = min(hold.Closed, f.least-1)
	}
	r.served = max(r.served, hold.Closed)
	return hold
}

// briefly is for how long leases stay short for a reason.
const briefly = 10 * time.Second

// applied looks at a command that was applied, for commits by others and for
// leaders that step down.
func (r *reads) applied(c storage.Command) {
	if hold, ok := c.(storage.Hold); ok && hold.Release {
		r.group.pause()
		return
	}
	commit, ok := c.(storage.Commit)
	if !ok || r.group.lone.Load() || !r.group.leads() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if commit.Session != r.session {
		r.brief = time.Now().Add(briefly)
	}
}

// release gives the lease up, as far as it was not needed, and has all nodes
// hold their proposals back for a moment.
func (r *reads) release(ctx context.Context) error {
	r.mu.Lock()
	last := storage.Hold{Session: r.session, Until: r.served, Release: true}
	r.session = newSession()
	r.brief = time.Now().Add(briefly)
	entry, err := storage.EncodeCommand(last)
	r.mu.Unlock()
	if err == nil {
		_, err = r.group.propose(ctx, entry)
	}
	if err != nil {
		return fmt.Errorf("releasing the lease of reads: %w", err)
	}
	return nil
}

// unavailable is why a wait that nobody answered has ended.
func unavailable(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrUnavailable
	}
	return context.Cause(ctx)
}
