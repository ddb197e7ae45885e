package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/lni/dragonboat/v4"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"skein/sqlstate"
)

const (
	// defaultPatience bounds a call whose context has no deadline.
	defaultPatience = 30 * time.Second
	// An attempt may go unanswered for minPatience, and for a second more per
	// patienceBytes of its entry but at most maxPatience, before it is taken for
	// lost and repeated. Bulk entries wait behind a slow disk, and repeating them
	// would add to its load.
	minPatience   = 2 * time.Second
	maxPatience   = 10 * time.Second
	patienceBytes = 128 << 10
	// smallEntry is up to where entries do not count as in flight, so that
	// commits do not queue behind bulk loads.
	smallEntry = 16 << 10
)

// errLeaderChanged ends an attempt that may have been lost with the old leader.
var errLeaderChanged = errors.New("the leader changed")

// propose replicates an entry and returns the state machine's result. It
// repeats the proposal when the group is busy, has no leader, changes leaders
// or does not answer, so entries must be idempotent.
func (g *group) propose(ctx context.Context, entry []byte) (sm.Result, error) {
	if len(entry) > smallEntry {
		weight := min(int64(len(entry)), g.host.cfg.InFlightBytes)
		if err := g.host.inFlight.Acquire(ctx, weight); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = ErrUnavailable
			}
			return sm.Result{}, fmt.Errorf("waiting for proposals in flight: %w", err)
		}
		defer g.host.inFlight.Release(weight)
	}
	session := g.host.raft.GetNoOPSession(g.id)
	patience := min(minPatience+time.Duration(len(entry)/patienceBytes)*time.Second, maxPatience)
	return g.retry(ctx, patience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
		return g.host.raft.Propose(session, entry, timeout)
	})
}

// readIndex returns once this replica has applied everything that was
// acknowledged before the call. The only replica of a group acknowledges what
// it has applied itself, so that it need ask only once, after it has started.
func (g *group) readIndex(ctx context.Context) error {
	if g.lone.Load() && g.caughtUp.Load() && !isClosed(g.closed) {
		return g.err()
	}
	_, err := g.retry(ctx, minPatience, func(timeout time.Duration) (*dragonboat.RequestState, error) {
		return g.host.raft.ReadIndex(g.id, timeout)
	})
	if err == nil && g.lone.Load() {
		err = g.checkLone(ctx)
	}
	if err == nil {
		g.caughtUp.Store(true)
	}
	return err
}

// checkLone looks, once the replica has applied all that was committed before it
// started, whether it is the only one: the metadata that said so may have been old.
func (g *group) checkLone(ctx context.Context) error {
	if g.caughtUp.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, minPatience)
	defer cancel()
	members, err := g.host.raft.SyncGetShardMembership(ctx, g.id)
	if err != nil {
		return fmt.Errorf("reading the members: %w", err)
	}
	if len(members.Nodes)+len(members.NonVotings) > 1 {
		g.lone.Store(false)
	}
	return nil
}

// startFunc makes one asynchronous request that is given up after a while.
type startFunc func(timeout time.Duration) (*dragonboat.RequestState, error)

// retry repeats an asynchronous request until it completes, fails for good or
// ctx ends.
func (g *group) retry(ctx context.Context, patience time.Duration, start startFunc) (sm.Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	pause := &backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: 500 * time.Millisecond,
	}
	pause.Reset()
	for {
		changed := g.changed.wait()
		result, err := g.attempt(ctx, patience, start)
		if err == nil || !temporary(err) {
			return result, g.permanent(ctx, err)
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return sm.Result{}, g.permanent(ctx, err)
		}
		timer.Stop()
	}
}

// attempt makes one request and waits for its answer.
func (g *group) attempt(ctx context.Context, patience time.Duration, start startFunc) (sm.Result, error) {
	if err := g.err(); err != nil {
		return sm.Result{}, err
	}
	timeout := patience
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	leader, changed := g.leaderReplica(), g.changed.wait()
	// Timeouts are counted in ticks; less than one is refused.
	request, err := start(max(timeout, 2*g.host.cfg.RTT))
	if err != nil {
		return sm.Result{}, err
	}
	for {
		select {
		case r := <-request.ResultC():
			return g.outcome(request, r)
		case <-changed:
			changed = g.changed.wait()
			if err := g.err(); err != nil {
				return sm.Result{}, err
			}
			if now := g.leaderReplica(); now != 0 && now != leader && leader != 0 {
				return sm.Result{}, errLeaderChanged
			}
		case <-ctx.Done():
			return sm.Result{}, dragonboat.ErrTimeout
		}
	}
}

func (g *group) outcome(request *dragonboat.RequestState, r dragonboat.RequestResult) (sm.Result, error) {
	switch {
	case r.Completed():
		result := r.GetResult()
		request.Release()
		if result.Value == resultFailed {
			return sm.Result{}, g.err()
		}
		return result, nil
	case r.Timeout():
		return sm.Result{}, dragonboat.ErrTimeout
	case r.Dropped():
		return sm.Result{}, dragonboat.ErrShardNotReady
	case r.Terminated():
		return sm.Result{}, dragonboat.ErrShardClosed
	case r.Aborted():
		return sm.Result{}, dragonboat.ErrAborted
	}
	return sm.Result{}, dragonboat.ErrRejected
}

// temporary errors are worth another attempt.
func temporary(err error) bool {
	return errors.Is(err, errLeaderChanged) || errors.Is(err, dragonboat.ErrSystemBusy) ||
		errors.Is(err, dragonboat.ErrShardNotReady) || errors.Is(err, dragonboat.ErrShardNotInitialized) ||
		errors.Is(err, dragonboat.ErrTimeout) || errors.Is(err, dragonboat.ErrAborted)
}

// permanent translates the last attempt's error for the caller.
func (g *group) permanent(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrReplicaFailed):
		return err
	case g.err() != nil:
		return g.err()
	case errors.Is(err, dragonboat.ErrShardNotFound), errors.Is(err, dragonboat.ErrShardClosed), errors.Is(err, dragonboat.ErrClosed):
		return fmt.Errorf("%w: the replica is stopping", ErrNotReady)
	case errors.Is(err, dragonboat.ErrPayloadTooBig):
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a replicated entry exceeds %d bytes", maxLogInMemory)
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case temporary(err):
		return fmt.Errorf("%w (last attempt: %w)", ErrUnavailable, err)
	}
	return err
}
