package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// The database is divided into spaces, one per tablet or record group. A space
// holds its keys under the prefix of its current epoch, so that a snapshot can
// be written next to the live data and take its place with one small write.
//
//	'h' kind id         -> version, epoch; missing means epoch 1
//	'd' kind id epoch k -> value
type spaceKind byte

const (
	spaceTablet  spaceKind = 't'
	spaceRecords spaceKind = 'r'

	firstEpoch  = 1
	headVersion = 1
)

// space is one epoch of a space. It is immutable.
type space struct {
	store  *Store
	kind   spaceKind
	id     uint64
	epoch  uint64
	prefix []byte
}

func (s *Store) space(kind spaceKind, id, epoch uint64) *space {
	prefix := binary.BigEndian.AppendUint64(spacePrefix(kind, id), epoch)
	return &space{store: s, kind: kind, id: id, epoch: epoch, prefix: prefix}
}

func spacePrefix(kind spaceKind, id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{'d', byte(kind)}, id)
}

func headKey(kind spaceKind, id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{'h', byte(kind)}, id)
}

// key is the database key of a key of the space.
func (sp *space) key(parts ...[]byte) []byte {
	n := len(sp.prefix)
	for _, p := range parts {
		n += len(p)
	}
	out := append(make([]byte, 0, n), sp.prefix...)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// openSpace returns the current epoch of a space and deletes what other epochs
// left behind.
func (s *Store) openSpace(kind spaceKind, id uint64) (*space, error) {
	epoch, err := s.epoch(kind, id)
	if err != nil {
		return nil, err
	}
	sp := s.space(kind, id, epoch)
	if err := s.deleteOthers(sp); err != nil {
		return nil, err
	}
	return sp, nil
}

// epoch is the number of a space's current epoch.
func (s *Store) epoch(kind spaceKind, id uint64) (uint64, error) {
	return epochFrom(s.get(headKey(kind, id)))
}

// epochFrom reads a space's header.
func epochFrom(head []byte, err error) (uint64, error) {
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return firstEpoch, nil
	case err != nil:
		return 0, err
	case len(head) != 9 || head[0] != headVersion:
		return 0, fmt.Errorf("space header of %d bytes, version unknown to this release", len(head))
	}
	return binary.BigEndian.Uint64(head[1:]), nil
}

// next is the epoch after sp, emptied of what a failed attempt left there.
// Earlier epochs stay: readers may still use them.
func (sp *space) next() (*space, error) {
	n := sp.store.space(sp.kind, sp.id, sp.epoch+1)
	if err := n.clear(); err != nil {
		return nil, err
	}
	return n, nil
}

// clear deletes everything in the epoch.
func (sp *space) clear() error { return sp.store.deleteKeys(noCancel, sp.prefix, nil) }

// makeCurrent switches the space to this epoch and makes everything durable,
// the switch last.
func (sp *space) makeCurrent() error {
	s := sp.store
	s.opts.fault(FaultInstallStaged)
	if err := s.sync(true); err != nil {
		return ioError(err, "syncing a snapshot")
	}
	s.opts.fault(FaultInstallHead)
	head := binary.BigEndian.AppendUint64([]byte{headVersion}, sp.epoch)
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(headKey(sp.kind, sp.id), head) })
	if err == nil {
		err = s.sync(true)
	}
	return ioError(err, "switching to a snapshot")
}

// deleteOthers deletes the keys of every epoch but sp.
func (s *Store) deleteOthers(sp *space) error {
	all := spacePrefix(sp.kind, sp.id)
	return s.deleteKeys(noCancel, all, func(key []byte) bool { return !bytes.HasPrefix(key, sp.prefix) })
}

// dropSpace deletes all epochs and the header.
func (s *Store) dropSpace(ctx context.Context, kind spaceKind, id uint64) error {
	if err := s.deleteKeys(ctx, spacePrefix(kind, id), nil); err != nil {
		return err
	}
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Delete(headKey(kind, id)) })
	return ioError(err, "dropping %c%d", kind, id)
}

// deleteKeys deletes the keys under a prefix, those that doomed picks if it is
// not nil. It is not atomic.
func (s *Store) deleteKeys(ctx context.Context, prefix []byte, doomed func(key []byte) bool) error {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues = false
	opts.Prefix = prefix
	it := txn.NewIterator(opts)
	defer it.Close()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for it.Rewind(); it.Valid(); it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if item := it.Item(); doomed == nil || doomed(item.Key()) {
			s.deleted.Add(item.EstimatedSize())
			if err := batch.Delete(item.KeyCopy(nil)); err != nil {
				return ioError(err, "deleting data")
			}
		}
	}
	return ioError(batch.Flush(), "deleting data")
}

// get returns a copy of one value, badger.ErrKeyNotFound if there is none.
func (s *Store) get(key []byte) ([]byte, error) {
	var out []byte
	err := s.view(key, func(value []byte) error {
		out = bytes.Clone(value)
		return nil
	})
	return out, err
}

// view passes a value to read, which must not keep it. Values are never empty:
// Badger answers with nothing when a value log file is rewritten between the
// look-up and the read, so an empty value is looked up again.
func (s *Store) view(key []byte, read func([]byte) error) error {
	const attempts = 3
	for range attempts {
		if s.closed.Load() {
			return ErrClosed
		}
		empty := false
		err := s.db.View(func(txn *badger.Txn) error { return viewItem(txn, key, &empty, read) })
		if err != nil || !empty {
			return err
		}
	}
	return errors.New("the value is missing from the value log")
}

func viewItem(txn *badger.Txn, key []byte, empty *bool, read func([]byte) error) error {
	item, err := txn.Get(key)
	if err != nil {
		return err
	}
	return itemValue(item, false, func(value []byte) error {
		if *empty = len(value) == 0; *empty {
			return nil
		}
		return read(value)
	})
}

// scan calls read with the key, less the space's prefix, and the value of
// everything in the space whose key starts with prefix, in key order. Both are
// valid during the call only.
func (sp *space) scan(txn *badger.Txn, prefix []byte, read func(key, value []byte) error) error {
	opts := badger.DefaultIteratorOptions
	opts.Prefix = sp.key(prefix)
	opts.PrefetchValues = false // goroutines of Badger's would read them, which damage could end
	it := txn.NewIterator(opts)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		err := itemValue(item, true, func(value []byte) error {
			if len(value) == 0 {
				return fmt.Errorf("the value of key %x is missing from the value log", item.Key())
			}
			return read(item.Key()[len(sp.prefix):], value)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scanKeys is scan without values.
func (sp *space) scanKeys(txn *badger.Txn, prefix []byte, read func(key []byte) error) error {
	opts := badger.DefaultIteratorOptions
	opts.Prefix = sp.key(prefix)
	opts.PrefetchValues = false
	it := txn.NewIterator(opts)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if err := read(it.Item().Key()[len(sp.prefix):]); err != nil {
			return err
		}
	}
	return nil
}
