package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
)

// TabletSnapshot is a pinned state of a tablet, to be written to another
// replica. Release it.
type TabletSnapshot struct {
	tablet  *Tablet
	txn     *badger.Txn
	space   *space
	applied uint64
	release sync.Once
}

// PrepareSnapshot pins the current state.
func (t *Tablet) PrepareSnapshot() (*TabletSnapshot, error) {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return nil, err
	}
	return &TabletSnapshot{
		tablet: t, txn: t.store.db.NewTransaction(false),
		space: t.state.space, applied: t.state.counters.applied,
	}, nil
}

// Applied is the log index of the pinned state.
func (s *TabletSnapshot) Applied() uint64 { return s.applied }

// Release lets go of the pinned state; repeating it is fine.
func (s *TabletSnapshot) Release() { s.release.Do(s.txn.Discard) }

// SaveSnapshot writes a pinned state; see TabletSnapshot.Save.
func (t *Tablet) SaveSnapshot(s *TabletSnapshot, w io.Writer, stop <-chan struct{}) error {
	return s.Save(w, stop)
}

// Save writes the pinned state until it is through or stop is closed. The
// stream is framed and checksummed. What is pinned is compared with its own
// checksums before: damage is an error with SQLSTATE XX001.
func (s *TabletSnapshot) Save(w io.Writer, stop <-chan struct{}) error {
	fail := func(err error) error { return fmt.Errorf("saving a snapshot of tablet %d: %w", s.tablet.id, err) }
	// Damage must not spread: what is wrong here is an error here, not there.
	if err := s.verify(); err != nil {
		return fail(err)
	}
	live, err := s.liveSegments()
	if err != nil {
		return fail(err)
	}
	out, err := newStreamWriter(w, s.space, stop)
	if err != nil {
		return fail(err)
	}
	err = s.space.scan(s.txn, nil, func(key, value []byte) error {
		if (key[0] == keyPart || key[0] == keyDeletes) && !live[binary.BigEndian.Uint64(key[1:])] {
			return nil // replaced by compaction or aborted, not deleted yet
		}
		return out.put(key, value)
	})
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

func (s *TabletSnapshot) liveSegments() (map[uint64]bool, error) {
	live := make(map[uint64]bool)
	err := s.space.scan(s.txn, []byte{keyManifest}, func(key, value []byte) error {
		seg, err := decodeManifest(binary.BigEndian.Uint64(key[1:]), value)
		if err == nil {
			live[seg.id] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return live, s.space.scan(s.txn, []byte{keyStaged}, func(_, value []byte) error {
		seg, err := decodeStaged(0, value)
		if err == nil {
			live[seg.id] = true
		}
		return err
	})
}

// InstallSnapshot replaces the tablet by the state that Save wrote. The stream
// is written next to the live data, verified whole, and made durable before and
// after the switch; on an error the tablet is as it was.
func (t *Tablet) InstallSnapshot(r io.Reader, stop <-chan struct{}) error {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return err
	}
	old := t.state
	st, err := t.receive(r, stop)
	if err != nil {
		// What was written is not current; free it now rather than at the next open.
		if _, cleanup := old.space.next(); cleanup != nil && !errors.Is(cleanup, badger.ErrDBClosed) {
			t.store.log.Warn("deleting a rejected snapshot failed", "tablet", uint64(t.id), "error", cleanup)
		}
		return fmt.Errorf("installing a snapshot of tablet %d: %w", t.id, err)
	}
	if err := st.space.makeCurrent(); err != nil {
		return t.fail(err) // which of the two is current on disk is unknown
	}
	t.store.opts.fault(FaultInstalled)
	t.state = st
	t.publish()
	t.bury(deadData{space: old.space, instance: old.instance, whole: true})
	t.store.kick(t.id)
	return nil
}

// receive writes a stream under the next epoch and loads the state from there.
func (t *Tablet) receive(r io.Reader, stop <-chan struct{}) (*tabletState, error) {
	next, err := t.state.space.installStream(r, stop)
	if err != nil {
		return nil, err
	}
	st, err := t.load(next)
	if err != nil {
		return nil, err
	}
	txn := t.store.db.NewTransaction(false)
	defer txn.Discard()
	return st, st.checkParts(txn, t.id)
}

// checkParts verifies that every committed segment has all its parts.
func (st *tabletState) checkParts(txn *badger.Txn, id catalog.TabletID) error {
	parts := make(map[uint64]int)
	err := st.space.scanKeys(txn, []byte{keyPart}, func(key []byte) error {
		if len(key) != 11 {
			return fmt.Errorf("part key of %d bytes", len(key))
		}
		parts[binary.BigEndian.Uint64(key[1:])]++
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range st.manifest {
		if parts[s.id] != s.meta.parts {
			return corrupted(id, s.id, "the set of parts", fmt.Errorf("%d of %d are there", parts[s.id], s.meta.parts))
		}
	}
	return nil
}
