package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"

	"skein/sqlstate"
)

func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// damagedFile says which file of a store is damaged.
func damagedFile(dir, name string, err error) error {
	return sqlstate.New(sqlstate.DataCorrupted, "the store in %s is damaged, file %s: %w", dir, name, oneLine{err}).
		WithHint("restore the whole cluster from a backup, or let the other workers go on without this one")
}

// recoverStore makes a directory ready to be opened by Badger, which believes
// what it reads: tables that fail its checks panic in goroutines of its own,
// and logs are cut at the first damage. So everything is verified here, and
// what a power failure may have torn is taken back to the last Sync.
func recoverStore(opts Options, boot string) error {
	mark, err := readMark(opts.Dir)
	if err != nil {
		return err
	}
	torn, err := verifyFiles(opts.Dir, mark)
	if err != nil {
		return err
	}
	if err := dropEmpty(opts.Dir); err != nil {
		return err
	}
	if err := guardValues(opts, mark); err != nil {
		return err
	}
	if mark == nil || mark.Closed {
		return nil
	}
	if mark.lost(torn, boot) {
		opts.Logger.Info("the store was not closed: going back to what is known to be durable", "directory", opts.Dir)
		if err := cutLogs(opts.Dir, mark); err != nil {
			return err
		}
		if err := rollBack(opts, mark.Version); err != nil {
			return fmt.Errorf("taking back writes that were not synced: %w", err)
		}
		opts.fault(FaultRolledBack)
	}
	return markClosed(opts.Dir)
}

// verifyFiles checks the files of a store that is not open. Logs may be torn
// where they were not durable.
func verifyFiles(dir string, mark *syncMark) (torn bool, err error) {
	files, err := listStore(dir)
	if err != nil {
		return false, err
	}
	if !files.manifest {
		if len(files.tables)+len(files.mems)+len(files.values) > 0 || mark != nil {
			return false, damagedFile(dir, manifestName, errors.New("it is missing"))
		}
		return false, nil
	}
	tables, err := listTables(dir)
	if err != nil {
		return false, err
	}
	for _, t := range tables {
		if err := t.verify(dir); err != nil {
			return false, err
		}
	}
	return verifyLogs(dir, files, mark)
}

// dropEmpty removes logs without content, which Badger does not open: it was
// making them when there was no more space, or deleting them.
func dropEmpty(dir string) error {
	files, err := listStore(dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(files.mems, files.values) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if info.Size() == 0 {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyLogs checks the logs that Badger cuts at the first damage: those of the
// memtables and the last value log. A value log that is damaged where it was
// durable is left to the checksums of its values; see guardValues.
func verifyLogs(dir string, files storeFiles, mark *syncMark) (torn bool, err error) {
	if mark != nil {
		if err := verifySet(dir, files, mark); err != nil {
			return false, err
		}
	}
	if err := verifyHeads(dir, files); err != nil {
		return false, err
	}
	logs := slices.Clone(files.mems)
	if n := len(files.values); n > 0 {
		logs = append(logs, files.values[n-1])
	}
	for _, name := range logs {
		end, err := scanLog(filepath.Join(dir, name), 0)
		if err != nil {
			return false, err
		}
		if mark == nil || (end.offset == 0 && strings.HasSuffix(name, memSuffix)) {
			continue // or it was being deleted
		}
		damaged := end.damaged(mark, name)
		if damaged && strings.HasSuffix(name, valueSuffix) && end.offset > 0 {
			continue
		}
		if damaged {
			return false, damagedFile(dir, name, fmt.Errorf("the entry at byte %d fails its checksum", end.offset))
		}
		torn = torn || end.torn
	}
	return torn, nil
}

// damaged reports whether a log ends where it was durable.
func (e logEnd) damaged(mark *syncMark, name string) bool {
	return e.offset < mark.Logs[name] || (e.torn && mark.Closed)
}

// guardValues keeps Badger from cutting the last value log where it is damaged
// and taking the good values behind with it: an empty file after it is the last
// one then.
func guardValues(opts Options, mark *syncMark) error {
	files, err := listStore(opts.Dir)
	if err != nil || mark == nil || len(files.values) == 0 {
		return err
	}
	name := files.values[len(files.values)-1]
	end, err := scanLog(filepath.Join(opts.Dir, name), 0)
	if err != nil || !end.damaged(mark, name) {
		return err
	}
	opts.Logger.Error("a value log is damaged", "directory", opts.Dir, "file", name, "byte", end.offset)
	next := fmt.Sprintf("%06d%s", fileNumber(name)+1, valueSuffix)
	return os.WriteFile(filepath.Join(opts.Dir, next), make([]byte, logHead), 0o644)
}

// verifyHeads checks what Badger needs to decrypt files, which these are not.
func verifyHeads(dir string, files storeFiles) error {
	if slices.Contains(files.others, badger.KeyRegistryFileName) {
		_, err := badger.OpenKeyRegistry(badger.KeyRegistryOptions{Dir: dir, ReadOnly: true})
		if err != nil {
			return damagedFile(dir, badger.KeyRegistryFileName, err)
		}
	}
	for _, name := range slices.Concat(files.mems, files.values) {
		keyed, err := hasKey(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if keyed {
			return damagedFile(dir, name, errors.New("its head names a key, but nothing is encrypted"))
		}
	}
	return nil
}

// verifySet looks for what was there at the mark. Memtables' logs go whenever
// they are flushed, so one that is missing is not noticed here: the applied
// indexes are then lower, which the Raft log repairs if it reaches so far back.
func verifySet(dir string, files storeFiles, mark *syncMark) error {
	size, first, err := manifestHead(dir)
	if err != nil {
		return err
	}
	if first == mark.First && size < mark.Manifest {
		return damagedFile(dir, manifestName, fmt.Errorf("it has %d bytes, %d are missing", size, mark.Manifest-size))
	}
	for _, name := range slices.Sorted(maps.Keys(mark.Logs)) {
		if strings.HasSuffix(name, valueSuffix) && !slices.Contains(files.values, name) && mark.Logs[name] > logHead {
			return damagedFile(dir, name, errors.New("it is missing"))
		}
	}
	return nil
}

// tableFile is a table of the list.
type tableFile struct {
	name        string
	compression options.CompressionType
}

// listTables reads the manifest.
func listTables(dir string) ([]tableFile, error) {
	path := filepath.Join(dir, manifestName)
	if err := checkManifest(path); err != nil {
		return nil, damagedFile(dir, manifestName, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	manifest, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		return nil, damagedFile(dir, manifestName, err)
	}
	out := make([]tableFile, 0, len(manifest.Tables))
	for _, id := range slices.Sorted(maps.Keys(manifest.Tables)) {
		out = append(out, tableFile{filepath.Base(table.NewFilename(id, dir)), manifest.Tables[id].Compression})
	}
	return out, nil
}

// verify reads a table as Badger does, which panics on some damages, and
// verifies the checksums of its index and of every block.
func (f tableFile) verify(dir string) (err error) {
	data, err := os.ReadFile(filepath.Join(dir, f.name))
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("it does not parse or fails its checksums")
		}
		if err != nil {
			err = damagedFile(dir, f.name, err)
		}
	}()
	if err != nil {
		return err
	}
	t, err := table.OpenInMemoryTable(data, uint64(fileNumber(f.name)),
		&table.Options{ChkMode: options.NoVerification, Compression: f.compression, BlockSize: 4 << 10})
	if err != nil {
		return err
	}
	return t.VerifyChecksum()
}

// cutLogs forgets what the memtables' logs hold beyond the mark. Besides later
// versions, that is where values were moved to that are perhaps not there.
func cutLogs(dir string, mark *syncMark) error {
	files, err := listStore(dir)
	if err != nil {
		return err
	}
	for _, name := range files.mems {
		path := filepath.Join(dir, name)
		if end, ok := mark.Logs[name]; ok && end >= logHead {
			err = os.Truncate(path, end)
		} else {
			err = os.Remove(path) // it came later
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rollBack restores every key to what it was at a version: Badger has kept
// that, and keeps it here until all is done. A crash on the way is harmless,
// the next start does it again.
func rollBack(opts Options, version uint64) (err error) {
	db, err := badger.Open(badgerOptions(opts).
		WithNumCompactors(0).
		WithNumVersionsToKeep(math.MaxInt).
		WithNumLevelZeroTablesStall(math.MaxInt32))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	txn := db.NewTransaction(false)
	defer txn.Discard()
	all := badger.DefaultIteratorOptions
	all.AllVersions, all.PrefetchValues = true, false
	it := txn.NewIterator(all)
	defer it.Close()
	batch := db.NewWriteBatch()
	defer batch.Cancel()
	for it.Rewind(); it.Valid(); {
		if err := rollBackKey(it, batch, version); err != nil {
			return err
		}
		opts.fault(FaultRollback)
	}
	return batch.Flush()
}

// rollBackKey handles one key, whose versions come latest first.
func rollBackKey(it *badger.Iterator, batch *badger.WriteBatch, version uint64) error {
	key := it.Item().KeyCopy(nil)
	changed, restored := it.Item().Version() > version, false
	for ; it.Valid() && string(it.Item().Key()) == string(key); it.Next() {
		item := it.Item()
		if !changed || restored || item.Version() > version {
			continue
		}
		restored = true
		if item.IsDeletedOrExpired() {
			if err := batch.Delete(key); err != nil {
				return err
			}
			continue
		}
		value, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return errors.New("the value is missing from the value log")
		}
		if err := batch.SetEntry(badger.NewEntry(key, value).WithMeta(item.UserMeta())); err != nil {
			return err
		}
	}
	if changed && !restored {
		return batch.Delete(key)
	}
	return nil
}
