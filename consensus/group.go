package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftio"
	sm "github.com/lni/dragonboat/v4/statemachine"
)

// group is what the local replicas of all Raft groups have in common: their
// life cycle as told by the state machine and the library's events.
type group struct {
	host    *Host
	id      uint64 // Raft shard
	replica uint64
	log     *slog.Logger

	leader  atomic.Pointer[raftio.LeaderInfo]
	changed notifier // leader or life cycle

	opened  chan struct{} // closed once the state machine is open
	closed  chan struct{} // closed once the state machine is closed
	stopc   <-chan struct{}
	failure atomic.Pointer[error]

	// lone is set where the replica is the group's only one with a vote, until
	// another is about to join, and caughtUp once it has applied all that was
	// committed before it started. After a start lone may be wrong until then.
	lone     atomic.Bool
	caughtUp atomic.Bool
	// learner, first and quick are set before the start: the replica joined its group
	// without a vote; it is the only voter but may get company; and the group has
	// members that are quick to elect themselves.
	learner, first, quick bool

	// yield, if not nil, is called before the leadership is handed over. paused is
	// until when (in Unix nanoseconds) proposals wait for that, and pausedBy the
	// leader then.
	yield    func(context.Context) error
	paused   atomic.Int64
	entries  atomic.Uint64 // groups of entries applied since the start
	pausedBy atomic.Uint64

	// installed counts the snapshots that brought this replica up to date.
	installed atomic.Uint64

	// logged and mark measure the log's growth; only Update touches them.
	logged int64
	mark   uint64
}

func newGroup(h *Host, id, replica uint64, log *slog.Logger) *group {
	return &group{
		host: h, id: id, replica: replica, log: log,
		opened: make(chan struct{}), closed: make(chan struct{}),
	}
}

// open records that the state machine starts at an applied index.
func (g *group) open(stopc <-chan struct{}, applied uint64) {
	g.stopc = stopc
	close(g.opened)
	g.notify()
	g.log.Debug("state machine opened", "applied", applied)
}

// Close implements part of statemachine.IOnDiskStateMachine.
func (g *group) Close() error {
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	g.notify()
	return nil
}

// notify wakes those who wait for this group and those who wait for any.
func (g *group) notify() {
	g.changed.notify()
	g.host.changed.notify()
}

// err is the failure that stopped the replica, wrapping ErrReplicaFailed.
func (g *group) err() error {
	if failed := g.failure.Load(); failed != nil {
		return *failed
	}
	return nil
}

// fail stops the replica because of cause and returns once it is stopping. The
// library would end the process if a state machine returned an error, and go on
// if it did not: so the failing call asks for the stop and holds its entries
// back until the stop has begun, after which nothing is applied or snapshotted.
func (g *group) fail(what string, cause error) {
	err := fmt.Errorf("%w: %s: %w", ErrReplicaFailed, what, cause)
	if !g.failure.CompareAndSwap(nil, &err) {
		return
	}
	g.log.Error("replica stops: its state machine failed", "during", what, "error", cause)
	g.notify()
	g.host.background(func(context.Context) {
		if err := g.host.raft.StopReplica(g.id, g.replica); err != nil {
			g.log.Debug("stopping failed replica", "error", err)
		}
	})
	<-g.stopc
}

// failEntries marks entries as not applied. Those who wait for them are told.
func failEntries(entries []sm.Entry) []sm.Entry {
	for i := range entries {
		entries[i].Result = sm.Result{Value: resultFailed}
	}
	return entries
}

// Values of statemachine.Result.Value. The library treats 0 without data as a
// rejection.
const (
	resultApplied = 1
	resultFailed  = 2
)

// grew accounts for applied entries and, each time the log has grown by the
// configured bytes, asks for a cut that keeps about half of that for followers
// that lag. Without followers it cuts more often and keeps nothing. Cuts by
// number of entries are the library's own.
func (g *group) grew(index uint64, bytes int) {
	g.entries.Add(1)
	limit := g.host.cfg.LogBytes
	g.logged += int64(bytes)
	switch {
	case g.lone.Load():
		limit /= loneLogShare
		g.mark = index
	case g.mark == 0 && g.logged >= limit/2:
		g.mark = index
	}
	if g.logged < limit {
		return
	}
	keepAfter := g.mark
	g.logged, g.mark = 0, 0
	g.host.background(func(ctx context.Context) { g.cut(ctx, keepAfter) })
}

// loneLogShare divides the log's bound for groups of one replica.
const loneLogShare = 4

// cut has the state machine synced and the log removed up to an index.
func (g *group) cut(ctx context.Context, upTo uint64) {
	const patience = time.Minute
	request, err := g.host.raft.RequestSnapshot(g.id, dragonboat.SnapshotOption{
		OverrideCompactionOverhead: true,
		CompactionIndex:            upTo,
	}, patience)
	if err != nil {
		// Busy with another snapshot, or stopping: the next cut takes it along.
		g.log.Debug("log cut not started", "error", err)
		return
	}
	select {
	case result := <-request.ResultC():
		g.log.Debug("log cut", "upto", upTo, "done", result.Completed())
	case <-ctx.Done():
	}
}

// leaderReplica is the group's leader as far as this replica knows, 0 for none.
func (g *group) leaderReplica() uint64 {
	if info := g.leader.Load(); info != nil {
		return info.LeaderID
	}
	return 0
}

func (g *group) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// notifier wakes all waiters at once. The zero value is ready to use.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next notify closes. Get it before checking
// the condition that notify announces.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// leaderEvents tells groups about their leaders.
type leaderEvents struct {
	mu     sync.Mutex
	groups map[uint64]*group
}

// LeaderUpdated implements raftio.IRaftEventListener.
func (l *leaderEvents) LeaderUpdated(info raftio.LeaderInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, ok := l.groups[info.ShardID]; ok && g.replica == info.ReplicaID {
		g.leader.Store(&info)
		g.notify()
	}
}

func (l *leaderEvents) add(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups[g.id] = g
}

func (l *leaderEvents) remove(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[g.id] == g {
		delete(l.groups, g.id)
	}
}
