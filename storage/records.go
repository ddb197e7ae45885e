package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// Record is one pair of a Records group.
type Record struct{ Key, Value []byte }

// Records is a small ordered map for a state machine whose state is not table
// rows. Updates carry the log index they stem from. Reads and updates are safe
// for concurrent use; updates are the caller's to order.
type Records struct {
	store *Store
	id    uint64

	mu      sync.RWMutex
	space   *space
	applied uint64
	err     error // why the group cannot be used
}

const (
	keyApplied    = 'a'
	keyRecord     = 'k'
	recordVersion = 1
)

// Records returns the group with the given id, empty if it never existed. If it
// cannot be opened every method but Applied returns the reason.
func (s *Store) Records(id uint64) *Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return &Records{store: s, id: id, err: ErrClosed}
	}
	if r := s.records[id]; r != nil && r.err == nil {
		return r
	}
	r := &Records{store: s, id: id}
	sp, err := s.openSpace(spaceRecords, id)
	if err == nil {
		r.space = sp
		r.applied, err = readAppliedIndex(sp)
	}
	if err != nil {
		r.err = fmt.Errorf("opening record group %d: %w", id, err)
	}
	s.records[id] = r
	return r
}

func readAppliedIndex(sp *space) (uint64, error) {
	return appliedFrom(sp.store.get(sp.key([]byte{keyApplied})))
}

// appliedFrom reads the record of the applied index, 0 if there is none.
func appliedFrom(v []byte, err error) (uint64, error) {
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(v) != 9 || v[0] != recordVersion {
		return 0, fmt.Errorf("applied index of %d bytes, version unknown to this release", len(v))
	}
	return binary.BigEndian.Uint64(v[1:]), nil
}

// Applied is the log index of the last update, 0 for none.
func (r *Records) Applied() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.applied
}

// usable is why the group cannot be used, if so. The caller holds mu.
func (r *Records) usable() error {
	if r.err == nil && r.store.closed.Load() {
		return ErrClosed
	}
	return r.err
}

// Update stores puts, then deletes keys, and the log index, in one step.
func (r *Records) Update(applied uint64, puts []Record, deletes [][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	txn := r.store.db.NewTransaction(true)
	defer txn.Discard()
	for _, p := range puts {
		// The stored value has a version in front, so it is never empty.
		value := append([]byte{recordVersion}, p.Value...)
		if err := txn.SetEntry(entryOf(r.space.key([]byte{keyRecord}, p.Key), value)); err != nil {
			return ioError(err, "updating record group %d", r.id)
		}
	}
	for _, k := range deletes {
		if err := txn.Delete(r.space.key([]byte{keyRecord}, k)); err != nil {
			return ioError(err, "updating record group %d", r.id)
		}
	}
	value := binary.BigEndian.AppendUint64([]byte{recordVersion}, applied)
	if err := txn.Set(r.space.key([]byte{keyApplied}), value); err != nil {
		return ioError(err, "updating record group %d", r.id)
	}
	if err := txn.Commit(); err != nil {
		return ioError(err, "updating record group %d", r.id)
	}
	r.applied = applied
	return nil
}

// Get returns a copy of a value and whether there is one.
func (r *Records) Get(key []byte) ([]byte, bool, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.usable(); err != nil {
		return nil, false, err
	}
	value, err := r.store.get(r.space.key([]byte{keyRecord}, key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, ioError(err, "reading record group %d", r.id)
	}
	if value[0] != recordVersion {
		return nil, false, fmt.Errorf("reading record group %d: version %d is unknown to this release", r.id, value[0])
	}
	return value[1:], true, nil
}

// Scan calls visit for every record whose key has the prefix, in key order, as
// of one moment. The slices belong to the callee.
func (r *Records) Scan(prefix []byte, visit func(key, value []byte) error) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.usable(); err != nil {
		return err
	}
	txn := r.store.db.NewTransaction(false)
	defer txn.Discard()
	return r.space.scan(txn, append([]byte{keyRecord}, prefix...), func(key, value []byte) error {
		if value[0] != recordVersion {
			return fmt.Errorf("record version %d is unknown to this release", value[0])
		}
		return visit(bytes.Clone(key[1:]), bytes.Clone(value[1:]))
	})
}

// Sync makes all updates durable.
func (r *Records) Sync() error { return r.store.Sync() }

// RecordsSnapshot is a pinned state of a Records group. Release it.
type RecordsSnapshot struct {
	txn     *badger.Txn
	space   *space
	release sync.Once
}

// PrepareSnapshot pins the current state.
func (r *Records) PrepareSnapshot() (*RecordsSnapshot, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.usable(); err != nil {
		return nil, err
	}
	return &RecordsSnapshot{txn: r.store.db.NewTransaction(false), space: r.space}, nil
}

// Save writes the pinned state until it is through or stop is closed.
func (s *RecordsSnapshot) Save(w io.Writer, stop <-chan struct{}) error {
	out, err := newStreamWriter(w, s.space, stop)
	if err != nil {
		return err
	}
	if err := s.space.scan(s.txn, nil, out.put); err != nil {
		return err
	}
	return out.finish()
}

// Release lets go of the pinned state; repeating it is fine.
func (s *RecordsSnapshot) Release() { s.release.Do(s.txn.Discard) }

// InstallSnapshot replaces the group by what Save wrote, durably. On an error
// the group is as before.
func (r *Records) InstallSnapshot(in io.Reader, stop <-chan struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	next, err := r.space.installStream(in, stop)
	if err != nil {
		return fmt.Errorf("installing a snapshot of record group %d: %w", r.id, err)
	}
	applied, err := readAppliedIndex(next)
	if err != nil {
		return fmt.Errorf("installing a snapshot of record group %d: %w", r.id, err)
	}
	if err := next.makeCurrent(); err != nil {
		return err
	}
	r.space, r.applied = next, applied
	return r.store.deleteOthers(next)
}
