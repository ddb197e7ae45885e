package consensus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"skein/catalog"
	"skein/storage"
)

// replica is a tablet replica on this host.
type replica struct {
	*group
	tabletID catalog.TabletID
	table    catalog.TableID
	members  atomic.Pointer[members]
	sm       *tabletSM
	reads    *reads
	damage   atomic.Pointer[error] // why the replica must be rebuilt

	uses      atomic.Int64 // reads and writes so far
	proposals atomic.Int64 // of this node, under way
	proposed  atomic.Int64 // when the last one ended, in Unix nanoseconds

	described catalog.Tablet // as it was started with: its bounds never change
}

// members are those of a tablet's group as the metadata knows them.
type members struct {
	nodes map[uint64]catalog.NodeID // by Raft replica id
	// sole says that the tablet is to have one replica. While that moves there are
	// two.
	sole bool
	// listed says that the tablet's description has the local replica.
	listed bool
}

// memberNodes are the group's members by Raft replica id. Do not modify it.
func (r *replica) memberNodes() map[uint64]catalog.NodeID { return r.members.Load().nodes }

// sole reports whether the tablet is to have one replica.
func (r *replica) sole() bool { return r.members.Load().sole }

func (r *replica) setMembers(running, described *catalog.Tablet) {
	m := &members{nodes: make(map[uint64]catalog.NodeID, len(running.Replicas)), sole: len(described.Replicas) == 1}
	for _, member := range running.Replicas {
		m.nodes[member.ID] = member.Node
	}
	m.listed = slices.ContainsFunc(described.Replicas, func(member catalog.Replica) bool { return member.ID == r.replica })
	r.members.Store(m)
}

// StartTablet starts this node's replica of a tablet and returns without
// waiting for a leader. Starting a running replica again does nothing, but is
// ErrOtherTablet where the description gives it other rows. The tablet's replica
// list must be the one it was created with.
func (h *Host) StartTablet(ctx context.Context, table *catalog.Table, tablet catalog.Tablet) error {
	return h.startTablet(ctx, table, tablet, &tablet)
}

// startTablet is StartTablet for a tablet with all replicas that are to run, which
// are one more than its description has while one of them moves.
func (h *Host) startTablet(ctx context.Context, table *catalog.Table, tablet catalog.Tablet, described *catalog.Tablet) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	own := replicaOn(&tablet, h.cfg.NodeID)
	if err := h.replaceOld(ctx, &tablet, own.ID); err != nil {
		return err
	}
	if r, ok := h.replica(tablet.ID); ok {
		if r.table != table.ID || !sameBounds(&r.described, &tablet) {
			return fmt.Errorf("starting tablet %d of %s: %w", tablet.ID, table.QualifiedName(), ErrOtherTablet)
		}
		r.setMembers(&tablet, described)
		if err := r.health(); err != nil {
			return err
		}
		if r.sm.tablet.Table().Version < table.Version { // it was altered
			return r.sm.tablet.SetTable(table)
		}
		return nil
	}
	founders, err := h.foundersOf(&tablet, own)
	if err != nil {
		return fmt.Errorf("starting tablet %d of %s: %w", tablet.ID, table.QualifiedName(), err)
	}
	store, err := h.cfg.Store.OpenTablet(table, tablet.ID)
	h.noteUnopened(damage{tablet: tablet.ID, table: table.ID, replica: own.ID, cause: err})
	if err != nil {
		return fmt.Errorf("opening tablet %d of %s: %w", tablet.ID, table.QualifiedName(), err)
	}
	g := newGroup(h, uint64(tablet.ID), own.ID, h.log.With("tablet", uint64(tablet.ID), "table", table.QualifiedName()))
	reads := newReads(g, store, h.clock)
	g.yield = reads.release
	r := &replica{
		group: g, tabletID: tablet.ID, table: table.ID, reads: reads, described: tablet,
		sm: &tabletSM{group: g, tablet: store, clock: h.clock, reads: reads},
	}
	r.setMembers(&tablet, described)
	h.forwardClock(store)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return fmt.Errorf("starting tablet %d: %w: the host is closing", tablet.ID, ErrNotReady)
	}
	h.tablets[tablet.ID] = r
	h.mu.Unlock()
	g.lone.Store(len(tablet.Replicas) == 1)
	g.learner, g.quick = own.Learner, r.sole() && !g.lone.Load()
	if err := h.startGroup(ctx, g, founders, store.Applied(), r.sm); err != nil {
		h.forget(r)
		return fmt.Errorf("starting tablet %d of %s: %w", tablet.ID, table.QualifiedName(), err)
	}
	h.mu.Lock()
	h.logged[tablet.ID] = own.ID
	h.mu.Unlock()
	h.changed.notify()
	return nil
}

// sameBounds reports whether two descriptions give a tablet the same rows.
func sameBounds(a, b *catalog.Tablet) bool {
	return a.BucketLow == b.BucketLow && a.BucketHigh == b.BucketHigh && bytes.Equal(a.KeyLow, b.KeyLow) && bytes.Equal(a.KeyHigh, b.KeyHigh)
}

// replaceOld removes an earlier replica of a tablet, running or not, when
// another one is to take its place here. Replica ids only grow: one that is less
// than what was here already comes from metadata that is behind.
func (h *Host) replaceOld(ctx context.Context, tablet *catalog.Tablet, own uint64) error {
	h.mu.Lock()
	logged := h.logged[tablet.ID]
	h.mu.Unlock()
	switch {
	case own == 0 || logged == 0 || logged == own:
		return nil
	case logged > own:
		return fmt.Errorf("starting replica %d of tablet %d: %w: replica %d was here before", own, tablet.ID, ErrNotReady, logged)
	}
	h.log.Info("removing a replica that was replaced", "tablet", uint64(tablet.ID), "replica", logged, "by", own)
	return h.removeTablet(ctx, tablet.ID, logged)
}

// forwardClock moves the clock past what a tablet holds: the node must not hand
// out timestamps below those that it stored before it stopped.
func (h *Host) forwardClock(tablet *storage.Tablet) {
	h.clock.forward(tablet.LastTimestamp())
	for _, prepared := range tablet.InDoubt() {
		h.clock.forward(prepared.Floor)
	}
}

// founding says how a replica that has no log yet comes to its group: as one of
// those that it begins with, or by being added to it.
type founding struct {
	members map[uint64]dragonboat.Target // by Raft replica id, nil to be added
	// strict has members compared with the recorded ones at every later start.
	strict bool
}

// foundersOf finds how this node's replica of a tablet comes to its group.
func (h *Host) foundersOf(tablet *catalog.Tablet, own catalog.Replica) (founding, error) {
	for _, member := range tablet.Replicas {
		if !h.book.known(member.Node) {
			return founding{}, fmt.Errorf("%w: the Raft address of node %d is unknown", ErrNotReady, member.Node)
		}
	}
	if own.ID == 0 {
		return founding{}, ErrTabletNotHere
	}
	if own.Joined {
		return founding{}, nil
	}
	founders := tablet.Founders
	if founders == nil {
		founders = tablet.Replicas
	}
	f := founding{members: make(map[uint64]dragonboat.Target, len(founders))}
	for _, member := range founders {
		f.members[member.ID] = h.book.target(member.Node)
	}
	return f, nil
}

// StopTablet stops the local replica and keeps its data. Stopping one that is
// not running does nothing. The reconciler of a Node starts it again when the
// metadata changes next.
func (h *Host) StopTablet(ctx context.Context, id catalog.TabletID) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	return h.stopTablet(ctx, id)
}

func (h *Host) stopTablet(ctx context.Context, id catalog.TabletID) error {
	r, ok := h.replica(id)
	if !ok {
		return nil
	}
	err := h.raft.StopReplica(r.id, r.replica)
	if err != nil && !errors.Is(err, dragonboat.ErrShardNotFound) {
		return fmt.Errorf("stopping tablet %d: %w", id, err)
	}
	select {
	case <-r.closed:
	case <-ctx.Done():
		return fmt.Errorf("stopping tablet %d: %w", id, context.Cause(ctx))
	}
	h.forget(r)
	return nil
}

// RemoveTablet stops the local replica and deletes its log and its rows. The
// replica can never be started again. Removing a removed one does nothing.
// replicaID is the replica's Raft id; a running replica's own id takes its place.
func (h *Host) RemoveTablet(ctx context.Context, id catalog.TabletID, replicaID uint64) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	return h.removeTablet(ctx, id, replicaID)
}

func (h *Host) removeTablet(ctx context.Context, id catalog.TabletID, replicaID uint64) error {
	if r, ok := h.replica(id); ok {
		replicaID = r.replica
	}
	if err := h.stopTablet(ctx, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, defaultPatience)
	defer cancel()
	// The rows go first: what tells a later attempt that there is something left
	// to remove is the log.
	if err := h.cfg.Store.DropTablet(ctx, id); err != nil {
		return fmt.Errorf("removing the rows of tablet %d: %w", id, err)
	}
	h.reached(repairDropped)
	// Rows that came back after a crash would be taken for those of the next
	// replica once their log is gone.
	if err := h.cfg.Store.Sync(); err != nil {
		return fmt.Errorf("removing the rows of tablet %d: %w", id, err)
	}
	h.reached(repairDurable)
	if h.raft.HasNodeInfo(uint64(id), replicaID) {
		if err := h.raft.SyncRemoveData(ctx, uint64(id), replicaID); err != nil {
			return fmt.Errorf("removing the Raft log of tablet %d: %w", id, err)
		}
		// Gives the space back now; it would come back with later cuts anyway.
		if _, err := h.raft.RequestCompaction(uint64(id), replicaID); err != nil {
			h.log.Debug("reclaiming a removed log", "tablet", uint64(id), "error", err)
		}
	}
	h.reached(repairUnlogged)
	h.book.RemoveShard(uint64(id))
	h.mu.Lock()
	delete(h.logged, id)
	delete(h.unopened, id)
	h.mu.Unlock()
	return nil
}

// Propose replicates a command of a tablet hosted here and returns the outcome,
// which may carry an error for the user. It returns when the command is durable
// on a quorum and applied here. Commands are idempotent, so Propose repeats
// them until ctx ends (30 seconds if it has no deadline). While the tablet is
// sealed a transaction that is new to it waits: for the seal's end, or for
// ErrTabletReplaced. Ask the tablets that took its place then, which know the
// outcomes of its transactions.
func (h *Host) Propose(ctx context.Context, id catalog.TabletID, command storage.Command) (storage.Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	for {
		if h.replaced(id) {
			return storage.Result{}, fmt.Errorf("tablet %d: %w", id, ErrTabletReplaced)
		}
		result, err := h.proposeOnce(ctx, id, command)
		if _, seals := command.(storage.Seal); err != nil || seals || result.Outcome != storage.Sealed {
			return result, err
		}
		if err := h.awaitSeal(ctx, id); err != nil {
			return storage.Result{}, fmt.Errorf("proposing to tablet %d: %w", id, err)
		}
	}
}

// sealPoll is how often a sealed tablet is looked at.
const sealPoll = 10 * time.Millisecond

// replaced reports whether the metadata known here has other tablets in the
// place of one.
func (h *Host) replaced(id catalog.TabletID) bool {
	h.mu.Lock()
	meta := h.meta
	h.mu.Unlock()
	return meta != nil && meta.Local().Replaced(id)
}

// awaitSeal returns when a tablet is not sealed any more, and ErrTabletReplaced
// when others have taken its place.
func (h *Host) awaitSeal(ctx context.Context, id catalog.TabletID) error {
	ticker := time.NewTicker(sealPoll)
	defer ticker.Stop()
	for {
		changed := h.changed.wait()
		if h.replaced(id) {
			return ErrTabletReplaced
		}
		r, err := h.running(id)
		if err != nil {
			return err
		}
		if !r.sm.tablet.Seal().Sealed {
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: the tablet is being split or merged", ErrNotReady)
		}
	}
}

func (h *Host) proposeOnce(ctx context.Context, id catalog.TabletID, command storage.Command) (storage.Result, error) {
	r, err := h.running(id)
	if err != nil {
		return storage.Result{}, err
	}
	r.uses.Add(1)
	r.proposals.Add(1)
	defer func() {
		r.proposed.Store(time.Now().UnixNano())
		r.proposals.Add(-1)
	}()
	r.gate(ctx)
	command, flight := r.reads.depart(command)
	entry, err := storage.EncodeCommand(command)
	if err != nil {
		r.reads.arrive(flight, err)
		return storage.Result{}, fmt.Errorf("proposing to tablet %d: %w", id, err)
	}
	result, err := r.propose(ctx, entry)
	r.reads.arrive(flight, err)
	if err != nil {
		return storage.Result{}, fmt.Errorf("proposing to tablet %d: %w", id, err)
	}
	answer, err := storage.DecodeResult(result.Data)
	if err != nil {
		return storage.Result{}, fmt.Errorf("decoding the answer of tablet %d: %w", id, err)
	}
	return answer, nil
}

// ReadIndex returns once the local replica has applied everything that was
// committed to the tablet before the call.
func (h *Host) ReadIndex(ctx context.Context, id catalog.TabletID) error {
	r, err := h.running(id)
	if err != nil {
		return err
	}
	if err := r.readIndex(ctx); err != nil {
		return fmt.Errorf("reading tablet %d: %w", id, err)
	}
	return nil
}

// ReadAt returns once the local replica can be read at a timestamp, which this
// node's clock must have observed: all that was acknowledged at or below it is
// applied, and nothing else will ever appear there. See reads.
func (h *Host) ReadAt(ctx context.Context, id catalog.TabletID, timestamp uint64) error {
	r, err := h.running(id)
	if err != nil {
		return err
	}
	r.uses.Add(1)
	if err := r.reads.at(ctx, timestamp); err != nil {
		return fmt.Errorf("reading tablet %d: %w", id, err)
	}
	return nil
}

// Leader returns the node that leads a tablet hosted here, as far as the local
// replica knows.
func (h *Host) Leader(id catalog.TabletID) (catalog.NodeID, bool) {
	r, ok := h.replica(id)
	if !ok {
		return 0, false
	}
	node, ok := r.memberNodes()[r.leaderReplica()]
	return node, ok
}

// IsLeader reports whether the local replica leads the tablet.
func (h *Host) IsLeader(id catalog.TabletID) bool {
	node, ok := h.Leader(id)
	return ok && node == h.cfg.NodeID
}

// Tablet returns the rows of a tablet whose local replica is open and well.
// Call ReadIndex first for reads that must see all committed rows.
func (h *Host) Tablet(id catalog.TabletID) (*storage.Tablet, bool) {
	r, err := h.running(id)
	if err != nil {
		return nil, false
	}
	return r.sm.tablet, true
}

// running returns an open replica in good health.
func (h *Host) running(id catalog.TabletID) (*replica, error) {
	r, ok := h.replica(id)
	switch {
	case !ok:
		return nil, fmt.Errorf("tablet %d: %w", id, ErrTabletNotHere)
	case r.health() != nil:
		return nil, fmt.Errorf("tablet %d: %w", id, r.health())
	case !r.isOpen():
		return nil, fmt.Errorf("tablet %d: %w: the replica is starting", id, ErrNotReady)
	case isClosed(r.closed) && !r.members.Load().listed:
		return nil, fmt.Errorf("tablet %d: %w: it has moved", id, ErrTabletNotHere)
	}
	return r, nil
}

func (h *Host) replica(id catalog.TabletID) (*replica, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.tablets[id]
	return r, ok
}

func (h *Host) forget(r *replica) {
	h.leaders.remove(r.group)
	h.mu.Lock()
	delete(h.tablets, r.tabletID)
	h.mu.Unlock()
	h.changed.notify()
}

// TabletStatus describes one local replica.
type TabletStatus struct {
	Tablet  catalog.TabletID `json:"tablet"`
	Table   catalog.TableID  `json:"table"`
	Replica uint64           `json:"replica"`
	Leader  catalog.NodeID   `json:"leader"` // 0 if unknown
	Applied uint64           `json:"applied"`
	Open    bool             `json:"open"`
	Failure string           `json:"failure,omitempty"`
}

// Tablets lists the local replicas by tablet id.
func (h *Host) Tablets() []TabletStatus {
	h.mu.Lock()
	replicas, unopened := slices.Collect(maps.Values(h.tablets)), slices.Collect(maps.Values(h.unopened))
	h.mu.Unlock()
	list := make([]TabletStatus, len(replicas))
	for i, r := range replicas {
		list[i] = TabletStatus{
			Tablet: r.tabletID, Table: r.table, Replica: r.replica,
			Leader: r.memberNodes()[r.leaderReplica()], Applied: r.sm.tablet.Applied(), Open: r.isOpen(),
		}
		if err := r.health(); err != nil {
			list[i].Failure = err.Error()
		}
	}
	for _, d := range unopened {
		list = append(list, TabletStatus{Tablet: d.tablet, Table: d.table, Replica: d.replica, Failure: d.cause.Error()})
	}
	slices.SortFunc(list, func(a, b TabletStatus) int { return cmp.Compare(a.Tablet, b.Tablet) })
	return list
}

// hasLog reports whether the Raft log knows a group. The library panics where
// its files cannot be read.
func (h *Host) hasLog(g *group) (known bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reading the Raft log of group %d in %s: %.300s", g.id, h.cfg.DataDir, fmt.Sprint(r))
		}
	}()
	return h.raft.HasNodeInfo(g.id, g.replica), nil
}

// startGroup starts a local replica. applied is what the store holds for it.
func (h *Host) startGroup(ctx context.Context, g *group, found founding, applied uint64, machine sm.IOnDiskStateMachine) error {
	known, err := h.hasLog(g)
	if err != nil {
		return err
	}
	if applied > 0 && !known {
		// A group that lost its log would be elected as a new, empty one.
		return fmt.Errorf("the store in use has applied entry %d of group %d but its Raft log is missing; restore the Raft directory", applied, g.id)
	}
	members, join := found.members, found.members == nil
	if known && !found.strict {
		members, join = nil, false // as recorded, and changed since
	}
	h.leaders.add(g)
	factory := func(uint64, uint64) sm.IOnDiskStateMachine { return machine }
	for {
		err := h.raft.StartOnDiskReplica(members, join, factory, h.groupConfig(g))
		if err == nil {
			return nil
		}
		if !errors.Is(err, dragonboat.ErrShardAlreadyExist) {
			h.leaders.remove(g)
			if errors.Is(err, dragonboat.ErrInvalidShardSettings) {
				return fmt.Errorf("%w: group %d", ErrMembership, g.id)
			}
			return err
		}
		// An earlier replica of the group is still unloading.
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			h.leaders.remove(g)
			return fmt.Errorf("%w: the previous replica is still stopping", ErrNotReady)
		}
	}
}
