package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"skein/storage"
)

// metaSM is the meta group's state machine: metaState in memory, its records in
// the worker's store.
type metaSM struct {
	*group
	records *storage.Records

	// state is touched before the start and by Update and RecoverFromSnapshot,
	// which the library never runs at the same time.
	state *metaState
	// current is what readers see; it is replaced after every change.
	current atomic.Pointer[MetaSnapshot]
	version notifier
	// onChange is called after a change of version became readable.
	onChange func(*MetaSnapshot)
}

var _ sm.IOnDiskStateMachine = (*metaSM)(nil)

func newMetaSM(g *group, records *storage.Records, onChange func(*MetaSnapshot)) *metaSM {
	m := &metaSM{group: g, records: records, onChange: onChange}
	m.current.Store(newMetaState().snapshot())
	return m
}

// Open implements statemachine.IOnDiskStateMachine. The state is loaded already.
func (m *metaSM) Open(stopc <-chan struct{}) (uint64, error) {
	applied := m.records.Applied()
	m.open(stopc, applied)
	return applied, nil
}

func (m *metaSM) reload() error {
	state := newMetaState()
	if err := m.records.Scan(nil, state.load); err != nil {
		return fmt.Errorf("loading the meta group's records: %w", err)
	}
	m.state = state
	m.publish()
	return nil
}

// publish makes the state readable and wakes watchers.
func (m *metaSM) publish() {
	snapshot := m.state.snapshot()
	m.current.Store(snapshot)
	m.version.notify()
	if m.onChange != nil {
		m.onChange(snapshot)
	}
}

// Update implements statemachine.IOnDiskStateMachine. The records of all
// entries are written in one step with the last index.
func (m *metaSM) Update(entries []sm.Entry) ([]sm.Entry, error) {
	if m.err() != nil {
		return failEntries(entries), nil
	}
	before := m.state.counters.Version
	size, beats := 0, false
	for i := range entries {
		command, err := decodeMetaCommand(entries[i].Cmd)
		var answer []byte
		if err == nil {
			answer, err = m.state.apply(command)
			beats = beats || command.Command == MetaHeartbeat || command.Command == MetaReportTablets
		}
		if err != nil {
			m.fail(fmt.Sprintf("applying meta log entry %d", entries[i].Index), err)
			return failEntries(entries), nil
		}
		entries[i].Result = sm.Result{Value: resultApplied, Data: answer}
		size += len(entries[i].Cmd)
	}
	last := entries[len(entries)-1].Index
	if err := m.persist(last); err != nil {
		m.fail(fmt.Sprintf("writing meta records at log entry %d", last), err)
		return failEntries(entries), nil
	}
	switch {
	case m.state.counters.Version != before:
		m.publish()
	case m.state.stirred:
		m.current.Store(m.state.snapshot())
		m.version.notify()
	case beats || m.state.leasesChanged:
		m.current.Store(m.state.snapshot()) // nobody waits for those
	}
	m.state.stirred = false
	m.grew(last, size)
	return entries, nil
}

func (m *metaSM) persist(applied uint64) error {
	var puts []storage.Record
	var deletes [][]byte
	keys, values := m.state.takeDirty()
	for _, key := range keys {
		if value := values[key]; value != nil {
			puts = append(puts, storage.Record{Key: []byte(key), Value: value})
		} else {
			deletes = append(deletes, []byte(key))
		}
	}
	return m.records.Update(applied, puts, deletes)
}

// Lookup implements statemachine.IOnDiskStateMachine. Reads do not come this
// way: they wait for a read index and then use current.
func (m *metaSM) Lookup(any) (any, error) { return m.current.Load(), nil }

// Sync implements statemachine.IOnDiskStateMachine.
func (m *metaSM) Sync() error { return m.sync(m.records.Sync) }

// PrepareSnapshot implements statemachine.IOnDiskStateMachine.
func (m *metaSM) PrepareSnapshot() (any, error) {
	if m.err() != nil {
		return nil, sm.ErrSnapshotAborted
	}
	return m.records.PrepareSnapshot()
}

// SaveSnapshot implements statemachine.IOnDiskStateMachine.
func (m *metaSM) SaveSnapshot(view any, w io.Writer, stopc <-chan struct{}) error {
	return m.saveSnapshot(view, w, stopc)
}

// RecoverFromSnapshot implements statemachine.IOnDiskStateMachine.
func (m *metaSM) RecoverFromSnapshot(r io.Reader, stopc <-chan struct{}) error {
	err := m.records.InstallSnapshot(r, stopc)
	if err == nil {
		err = m.reload()
	}
	return m.recovered(err, stopc)
}
