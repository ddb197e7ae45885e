package storage

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/sqlstate"
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
	// Problems are the damages, each with what it concerns.
	Problems []string
}

// Check reads all that a stopped node's store holds and verifies it: Badger's
// own checksums, every record, that manifests are whole and in order, and the
// checksum of every chunk of every segment. It changes nothing. An error means
// that the store could not be read at all; damage is in the report.
func Check(dir string) (*CheckReport, error) {
	opts := Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	db, err := badger.Open(badgerOptions(opts).WithReadOnly(true))
	if err != nil && strings.Contains(err.Error(), badger.ErrTruncateNeeded.Error()) {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "the store in %s was not closed: its log needs recovery first", dir).
			WithHint("start the node, stop it with SIGTERM, and check again")
	}
	if err != nil {
		return nil, ioError(err, "opening the store in %s to read", dir)
	}
	s := &Store{db: db, opts: opts, log: opts.Logger, cache: newChunkCache(opts.CacheBytes)}
	c := &checker{store: s, report: &CheckReport{}}
	err = c.run()
	if closing := db.Close(); err == nil && closing != nil {
		err = ioError(closing, "closing the store in %s", dir)
	}
	return c.report, err
}

type checker struct {
	store  *Store
	txn    *badger.Txn
	report *CheckReport
}

func (c *checker) problem(format string, args ...any) {
	c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
}

func (c *checker) run() error {
	if err := c.store.db.VerifyChecksum(); err != nil {
		c.problem("the LSM tree: %v", err)
	}
	c.txn = c.store.db.NewTransaction(false)
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
	epoch, err := c.store.epoch(kind, id)
	if err != nil {
		return nil, err
	}
	return c.store.space(kind, id, epoch), nil
}

func (c *checker) records(sp *space) error {
	if _, err := readAppliedIndex(sp); err != nil {
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
		read: func(key []byte, read func([]byte) error) error {
			empty := false
			err := viewItem(c.txn, key, &empty, read)
			if err == nil && empty {
				return fmt.Errorf("the value is missing from the value log")
			}
			return err
		},
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
