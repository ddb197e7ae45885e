package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
)

// CheckReport is what Check found in a store.
type CheckReport struct {
	Tablets  int    // with any data
	Groups   int    // record groups
	Segments int    // committed
	Rows     uint64 // committed and not deleted
	Bytes    uint64 // of committed segments
	Records  int    // keys that were read, segment parts included
	// Orphans are keys that nothing refers to: what was being written or
	// deleted when the node stopped. The next start removes them.
	Orphans int
	// Interrupted says that the store was not closed: its next start completes
	// what was under way, and GoesBack that it drops what was not durable first.
	// The report is of what remains.
	Interrupted, GoesBack bool
	// Problems are the damages, each with what it concerns.
	Problems []string
}

// Check reads all that a stopped node's store holds, however it was stopped,
// and verifies it: the checksums of Badger's files, every record, that manifests
// are whole and in order, and the checksum of every chunk of every segment. It
// changes nothing. An error means that the store could not be read at all, with
// code 55006 when a node uses it; damage is in the report.
func Check(dir string) (*CheckReport, error) {
	report, err := check(dir)
	if err != nil {
		return nil, ioError(err, "checking the store in %s", dir)
	}
	return report, nil
}

func check(dir string) (report *CheckReport, err error) {
	files, err := listStore(dir)
	if err != nil {
		return nil, err
	}
	if !files.manifest && len(files.tables)+len(files.mems)+len(files.values) == 0 {
		return nil, errors.New("there is none")
	}
	lock, err := lockStoreToRead(dir)
	if err != nil {
		return nil, err
	}
	if lock != nil {
		defer func() { err = errors.Join(err, lock.Unlock()) }()
	}
	c := &checker{report: &CheckReport{}}
	mark := c.files(dir, files)
	if len(c.report.Problems) > 0 {
		return c.report, nil // Badger cannot read it
	}
	twin, err := os.MkdirTemp("", "skein-check-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(twin)) }()
	if err := c.twin(dir, twin, files, mark); err != nil {
		return nil, err
	}
	opts := Options{Dir: twin, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	db, err := badger.OpenManaged(badgerOptions(opts).WithReadOnly(true))
	if err != nil {
		return nil, err
	}
	c.store = &Store{db: db, opts: opts, log: opts.Logger, cache: newChunkCache(opts.CacheBytes)}
	at := uint64(math.MaxUint64)
	if c.report.GoesBack {
		at = mark.Version
	}
	return c.report, errors.Join(c.run(at), db.Close())
}

type checker struct {
	store  *Store
	txn    *badger.Txn
	report *CheckReport
}

func (c *checker) problem(format string, args ...any) {
	c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
}

// files verifies the files as far as Badger trusts them.
func (c *checker) files(dir string, files storeFiles) *syncMark {
	mark, err := readMark(dir)
	if err != nil {
		c.problem("%v", err)
		return nil
	}
	tables, err := listTables(dir)
	if err != nil {
		c.problem("%v", err)
	}
	for _, t := range tables {
		if err := t.verify(dir); err != nil {
			c.problem("%v", err)
		}
	}
	torn, err := verifyLogs(dir, files, mark)
	if err != nil {
		c.problem("%v", err)
	}
	if mark != nil && !mark.Closed {
		c.report.Interrupted = true
		c.report.GoesBack = mark.lost(torn, bootID())
	}
	return mark
}

// twin makes a directory of the same store that can be opened for reading only,
// which the store's own cannot when a log is to be cut: large files are links,
// logs are copied up to where they are whole.
func (c *checker) twin(dir, twin string, files storeFiles, mark *syncMark) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(files.tables, files.values, files.others) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if info.Size() == 0 || name == lockName {
			continue
		}
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(twin, name)); err != nil {
			return err
		}
	}
	if err := copyHead(dir, twin, manifestName, math.MaxInt64); err != nil {
		return err
	}
	for _, name := range files.mems {
		end, err := scanLog(filepath.Join(dir, name), 0)
		if err != nil {
			return err
		}
		if c.report.GoesBack {
			end.offset = mark.Logs[name]
		}
		if end.offset < logHead {
			continue
		}
		if err := copyHead(dir, twin, name, end.offset); err != nil {
			return err
		}
	}
	return nil
}

// copyHead copies the first so many bytes of a file.
func copyHead(from, to, name string, n int64) error {
	in, err := os.Open(filepath.Join(from, name))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	out, err := os.Create(filepath.Join(to, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, n))
	return errors.Join(err, out.Close())
}

// run verifies what the database holds as of a version.
func (c *checker) run(version uint64) error {
	c.txn = c.store.db.NewTransactionAt(version, false)
	defer c.txn.Discard()
	spaces, err := c.spaces()
	if err != nil {
		return err
	}
	for _, sp := range spaces {
		switch sp.kind {
		case spaceTablet:
			c.report.Tablets++
			if err := c.tablet(sp); err != nil {
				c.problem("tablet %d: %v", sp.id, err)
			}
		case spaceRecords:
			c.report.Groups++
			if err := c.records(sp); err != nil {
				c.problem("record group %d: %v", sp.id, err)
			}
		}
	}
	return nil
}

// spaces lists the current epoch of all spaces that have keys.
func (c *checker) spaces() ([]*space, error) {
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues = false
	it := c.txn.NewIterator(opts)
	defer it.Close()
	current := make(map[string]*space)
	var order []string
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()
		switch {
		case len(key) == 10 && key[0] == 'h':
		case len(key) > 18 && key[0] == 'd' && (key[1] == byte(spaceTablet) || key[1] == byte(spaceRecords)):
			name := string(key[:10])
			if current[name] == nil {
				sp, err := c.current(spaceKind(key[1]), binary.BigEndian.Uint64(key[2:]))
				if err != nil {
					c.problem("%c%d: %v", key[1], binary.BigEndian.Uint64(key[2:]), err)
					continue
				}
				current[name] = sp
				order = append(order, name)
			}
			c.report.Records++
			if binary.BigEndian.Uint64(key[10:]) != current[name].epoch {
				c.report.Orphans++
			}
		default:
			c.problem("key %x is of no known kind", key)
		}
	}
	slices.Sort(order)
	out := make([]*space, len(order))
	for i, name := range order {
		out[i] = current[name]
	}
	return out, nil
}

// current is openSpace without cleaning up.
func (c *checker) current(kind spaceKind, id uint64) (*space, error) {
	epoch, err := epochFrom(c.get(headKey(kind, id)))
	if err != nil {
		return nil, err
	}
	return c.store.space(kind, id, epoch), nil
}

// get returns a copy of a value, badger.ErrKeyNotFound if there is none.
func (c *checker) get(key []byte) (out []byte, err error) {
	return out, c.read(key, func(value []byte) error {
		out = bytes.Clone(value)
		return nil
	})
}

// read is the checker's keyReader.
func (c *checker) read(key []byte, read func([]byte) error) error {
	empty := false
	err := viewItem(c.txn, key, &empty, read)
	if err == nil && empty {
		return errors.New("the value is missing from the value log")
	}
	return err
}

func (c *checker) records(sp *space) error {
	if _, err := appliedFrom(c.get(sp.key([]byte{keyApplied}))); err != nil {
		return err
	}
	return sp.scan(c.txn, []byte{keyRecord}, func(key, value []byte) error {
		if value[0] != recordVersion {
			c.problem("record group %d: key %x has version %d", sp.id, key, value[0])
		}
		return nil
	})
}

func (c *checker) tablet(sp *space) error {
	id := catalog.TabletID(sp.id)
	st, err := readState(c.txn, sp)
	if err != nil {
		return err
	}
	if err := st.loadSegments(c.txn, id, func(*segmentMeta) error { return nil }); err != nil {
		return err
	}
	if err := st.checkParts(c.txn, id); err != nil {
		return err
	}
	c.report.Rows += st.rows
	next := uint64(0)
	for _, seg := range st.manifest {
		c.report.Segments++
		c.report.Bytes += uint64(seg.meta.head + seg.meta.bytes)
		if err := seg.consistent(next, st.counters.nextRow); err != nil {
			c.problem("tablet %d, segment %d: %v", id, seg.id, err)
		}
		next = seg.lastRow() + 1
		c.chunks(st, id, seg.id, seg.meta)
	}
	for _, tx := range st.txns {
		for _, s := range tx.segments {
			if s.complete() {
				c.chunks(st, id, s.id, s.meta)
			}
		}
	}
	return c.orphans(st)
}

// consistent checks the manifest's account of a segment whose rows come from
// next on and below end.
func (s *segmentRef) consistent(next, end uint64) error {
	rows := uint32(s.meta.rows)
	for i, r := range s.runs {
		if r.row >= rows || r.ts == 0 || (i > 0 && r.row <= s.runs[i-1].row) {
			return fmt.Errorf("row times are out of order at row %d", r.row)
		}
	}
	for i, r := range s.ids {
		if r.row >= rows || (i > 0 && (r.row <= s.ids[i-1].row || r.id <= s.rowID(int(r.row)-1))) {
			return fmt.Errorf("row ids are out of order at row %d", r.row)
		}
	}
	if s.firstRow < next || s.lastRow() >= end {
		return fmt.Errorf("row ids %d to %d lie outside %d to %d", s.firstRow, s.lastRow(), next, end)
	}
	return nil
}

// chunks verifies the checksum of every chunk of a segment and decodes what
// can be without knowing column types.
func (c *checker) chunks(st *tabletState, id catalog.TabletID, segment uint64, m *segmentMeta) {
	r := &chunkReader{
		store: c.store, table: &catalog.Table{}, tablet: id, space: st.space,
		read: c.read,
	}
	check := func(ref chunkRef, what string, use func([]byte) error) {
		if err := r.withChunk(segment, m, ref, use); err != nil {
			c.problem("tablet %d, segment %d, %s: %v", id, segment, what, err)
		}
	}
	for i := range m.columns {
		check(m.columns[i].chunk, fmt.Sprintf("column with id %d", m.columns[i].id), func([]byte) error { return nil })
	}
	if m.key != nil {
		check(m.key.chunk, "the key index", func(src []byte) error {
			_, err := decodeKeyIndex(m, src)
			return err
		})
	}
	if m.sketch.size > 0 {
		check(m.sketch, "the sketches", func(src []byte) error {
			return readSketches(src, len(m.columns), func(int, *sketch) {})
		})
	}
}

// orphans counts the parts and marks of segments that are no more.
func (c *checker) orphans(st *tabletState) error {
	live := st.liveSegments()
	for _, kind := range []byte{keyPart, keyDeletes} {
		err := st.space.scanKeys(c.txn, []byte{kind}, func(key []byte) error {
			if len(key) < 9 || !live[binary.BigEndian.Uint64(key[1:])] {
				c.report.Orphans++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
