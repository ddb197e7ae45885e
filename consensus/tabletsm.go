package consensus

import (
	"errors"
	"fmt"
	"io"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"skein/sqlstate"
	"skein/storage"
)

// tabletSM applies one tablet's log to the tablet store.
type tabletSM struct {
	*group
	tablet *storage.Tablet
	clock  *Clock
	reads  *reads
}

var _ sm.IOnDiskStateMachine = (*tabletSM)(nil)

// Entries are applied in groups that share one transaction of the store. Bulk
// entries of a MiB or two go alone, small ones share.
const (
	applyGroupBytes = 1 << 20
	applyGroupCount = 64
)

// Open implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) Open(stopc <-chan struct{}) (uint64, error) {
	applied := t.tablet.Applied()
	t.open(stopc, applied)
	return applied, nil
}

// Update implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) Update(entries []sm.Entry) ([]sm.Entry, error) {
	if t.err() != nil {
		return failEntries(entries), nil
	}
	commands := make([]storage.Command, 0, min(len(entries), applyGroupCount))
	for done := 0; done < len(entries); {
		end, size := applyGroup(entries, done)
		if err := t.apply(entries[done:end], commands); err != nil {
			t.fail(fmt.Sprintf("applying log entries %d to %d", entries[done].Index, entries[end-1].Index), err)
			t.reportDamage(err)
			failEntries(entries[done:])
			return entries, nil
		}
		t.grew(entries[end-1].Index, size)
		done = end
	}
	return entries, nil
}

// applyGroup ends the group of entries that starts at first.
func applyGroup(entries []sm.Entry, first int) (end, size int) {
	size = len(entries[first].Cmd)
	for end = first + 1; end < len(entries) && end-first < applyGroupCount; end++ {
		if size+len(entries[end].Cmd) > applyGroupBytes {
			break
		}
		size += len(entries[end].Cmd)
	}
	return end, size
}

// apply applies one group. A command that does not decode is damage or comes
// from a newer release: skipping it would make replicas differ.
func (t *tabletSM) apply(entries []sm.Entry, commands []storage.Command) error {
	commands = commands[:0]
	for i := range entries {
		command, err := storage.DecodeCommand(entries[i].Cmd)
		if err != nil {
			return fmt.Errorf("decoding entry %d: %w", entries[i].Index, err)
		}
		commands = append(commands, command)
	}
	results, err := t.tablet.Apply(entries[len(entries)-1].Index, commands...)
	if err != nil {
		return err
	}
	if len(results) != len(entries) {
		return fmt.Errorf("%d results for %d commands", len(results), len(entries))
	}
	for i := range results {
		// Whoever leads next must not hand out timestamps below a committed one.
		t.clock.forward(results[i].Timestamp)
		t.reads.applied(commands[i])
		entries[i].Result = sm.Result{Value: resultApplied, Data: storage.EncodeResult(results[i])}
	}
	return nil
}

// Lookup implements statemachine.IOnDiskStateMachine. Reads do not come this
// way: they wait for a read index and then use the tablet.
func (t *tabletSM) Lookup(any) (any, error) { return t.tablet, nil }

// Sync implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) Sync() error { return t.sync(t.host.cfg.Store.Sync) }

// PrepareSnapshot implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) PrepareSnapshot() (any, error) {
	if t.err() != nil {
		return nil, sm.ErrSnapshotAborted
	}
	return t.tablet.PrepareSnapshot()
}

// reportDamage has the replica rebuilt if that is what an error calls for.
func (t *tabletSM) reportDamage(err error) {
	if sqlstate.CodeOf(err) == sqlstate.DataCorrupted {
		t.host.ReportDamage(t.tablet.ID(), err)
	}
}

// SaveSnapshot implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) SaveSnapshot(view any, w io.Writer, stopc <-chan struct{}) error {
	err := t.saveSnapshot(view, w, stopc)
	t.reportDamage(err)
	if err != nil && sqlstate.CodeOf(err) == sqlstate.DataCorrupted {
		return sm.ErrSnapshotAborted
	}
	return err
}

// RecoverFromSnapshot implements statemachine.IOnDiskStateMachine.
func (t *tabletSM) RecoverFromSnapshot(r io.Reader, stopc <-chan struct{}) error {
	return t.recovered(t.tablet.InstallSnapshot(r, stopc), stopc)
}

// snapshotView is a pinned state that can be written out and must be released.
type snapshotView interface {
	Save(w io.Writer, stop <-chan struct{}) error
	Release()
}

// saveSnapshot streams a pinned state to a follower and releases it. A stream
// that fails only leaves the follower behind, so it never stops this replica.
func (g *group) saveSnapshot(view any, w io.Writer, stopc <-chan struct{}) error {
	pinned, ok := view.(snapshotView)
	if !ok {
		return fmt.Errorf("snapshot of group %d: unexpected view %T", g.id, view)
	}
	defer pinned.Release()
	err := pinned.Save(w, stopc)
	switch {
	case err == nil:
		return nil
	case isClosed(stopc):
		return sm.ErrSnapshotStopped
	case errors.Is(err, sm.ErrSnapshotStreaming):
		return sm.ErrSnapshotStreaming
	case sqlstate.CodeOf(err) == sqlstate.DataCorrupted:
		return err
	}
	g.log.Warn("streaming a snapshot failed", "error", err)
	return sm.ErrSnapshotAborted
}

// recovered turns the outcome of installing a snapshot into what the library
// expects. A replica that cannot install has no way on: it stops.
func (g *group) recovered(err error, stopc <-chan struct{}) error {
	switch {
	case err == nil:
		g.logged, g.mark = 0, 0
		g.installed.Add(1)
		return nil
	case isClosed(stopc):
		return sm.ErrSnapshotStopped
	}
	g.fail("installing a snapshot", err)
	return sm.ErrSnapshotStopped
}

// sync makes applied entries durable ahead of a cut of the log. The library
// ends the process when this fails, which is right: the store is shared by all
// replicas of the node, and after a failed sync none of them can trust it.
func (g *group) sync(flush func() error) error {
	if err := g.err(); err != nil {
		return err
	}
	if err := flush(); err != nil {
		g.log.Error("syncing the store failed: this process must not go on", "error", err)
		return fmt.Errorf("syncing the store of group %d: %w", g.id, err)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
