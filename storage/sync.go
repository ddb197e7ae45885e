package storage

import (
	"path/filepath"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// durability is what Sync keeps.
type durability struct {
	mu     sync.Mutex
	failed error // a sync that failed may have lost writes for good
	// pin keeps Badger from dropping what the version of the mark needs.
	pin  *badger.Txn
	boot string
	ends map[string]int64 // of the log files that grow
}

// Sync makes everything applied so far durable. Once it has failed it always
// fails: the operating system may have dropped what it could not write.
func (s *Store) Sync() error {
	if s.closed.Load() {
		return ErrClosed
	}
	return s.sync(false)
}

// sync makes the database durable and moves the mark. Unless forced it does
// nothing when nothing was written since.
func (s *Store) sync(force bool) error {
	d := &s.durable
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return d.failed
	}
	if d.pin == nil {
		return ErrClosed
	}
	pin := s.db.NewTransaction(false) // all versions up to its own are in the files
	if !force && pin.ReadTs() == d.pin.ReadTs() {
		pin.Discard()
		return nil
	}
	if err := s.moveMark(pin); err != nil {
		pin.Discard()
		d.failed = ioError(err, "syncing the store in %s", s.opts.Dir)
		return d.failed
	}
	d.pin.Discard()
	d.pin = pin
	return nil
}

// moveMark syncs the files that hold the versions up to the pin's and marks
// that version as durable. Tables and the manifest Badger syncs itself. Values
// go before the logs that refer to them.
func (s *Store) moveMark(pin *badger.Txn) error {
	s.opts.fault(FaultSyncFiles)
	files, err := listStore(s.opts.Dir)
	if err != nil {
		return err
	}
	ends, values, err := growingLogs(s.opts.Dir, files, s.durable.ends)
	if err != nil {
		return err
	}
	size, first, err := manifestHead(s.opts.Dir)
	if err != nil {
		return err
	}
	for _, names := range [][]string{values, files.mems} {
		for _, name := range names {
			if err := syncPath(filepath.Join(s.opts.Dir, name)); err != nil {
				return err
			}
		}
	}
	if err := syncPath(s.opts.Dir); err != nil {
		return err
	}
	s.opts.fault(FaultSyncMark)
	mark := syncMark{Version: pin.ReadTs(), Boot: s.durable.boot, Logs: ends, Manifest: size, First: first}
	if err := writeMark(s.opts.Dir, mark); err != nil {
		return err
	}
	s.durable.ends = ends
	s.opts.fault(FaultSynced)
	return nil
}

// growingLogs returns where the entries of the memtables' logs and of the last
// value log end, given where they ended before, and the value logs that may
// have grown since.
func growingLogs(dir string, files storeFiles, before map[string]int64) (ends map[string]int64, grown []string, err error) {
	ends = make(map[string]int64, len(files.mems)+1)
	scan := func(name string) error {
		end, err := scanLog(filepath.Join(dir, name), before[name])
		if isGone(err) {
			return nil // flushed meanwhile
		}
		ends[name] = end.offset
		return err
	}
	for _, name := range files.mems {
		if err := scan(name); err != nil {
			return nil, nil, err
		}
	}
	first := uint32(0)
	for name := range before {
		if strings.HasSuffix(name, valueSuffix) {
			first = max(first, fileNumber(name))
		}
	}
	for _, name := range files.values {
		if fileNumber(name) >= first {
			grown = append(grown, name)
		}
	}
	if n := len(files.values); n > 0 {
		if err := scan(files.values[n-1]); err != nil {
			return nil, nil, err
		}
	}
	return ends, grown, nil
}

// openMark marks what the database holds after it was opened as durable, which
// recoverStore has seen to, and pins it.
func (s *Store) openMark(boot string) error {
	s.opts.fault(FaultOpenMark)
	s.durable.boot = boot
	s.durable.pin = s.db.NewTransaction(false)
	return s.moveMark(s.durable.pin)
}

// closeMark follows the closing of the database.
func (s *Store) closeMark() error {
	s.opts.fault(FaultCloseMark)
	return markClosed(s.opts.Dir)
}

// markClosed makes a database that is not open durable and marks it so.
func markClosed(dir string) error {
	if err := syncAll(dir); err != nil {
		return err
	}
	files, err := listStore(dir)
	if err != nil {
		return err
	}
	ends, _, err := growingLogs(dir, files, nil)
	if err != nil {
		return err
	}
	size, first, err := manifestHead(dir)
	if err != nil {
		return err
	}
	return writeMark(dir, syncMark{Closed: true, Logs: ends, Manifest: size, First: first})
}

// unpin lets go of the mark's version before the database is closed, after a
// running Sync. The mark stays.
func (d *durability) unpin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pin != nil {
		d.pin.Discard()
		d.pin = nil
	}
}
