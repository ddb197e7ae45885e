package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/gofrs/flock"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// Options configure a Store. The zero value of every field but Dir has a
// sensible meaning.
type Options struct {
	Dir    string       // created if missing; used by one Store at a time
	Logger *slog.Logger // default: discards
	// CacheBytes bounds the memory of decoded chunks, default 256 MiB.
	CacheBytes int64
	// History is how long the commit times of single rows are kept for readers
	// of the past, default 15 minutes; compaction forgets older ones.
	History time.Duration
	// DeletedHistory is how long deleted rows are kept for readers of the past,
	// default one minute, at most History.
	DeletedHistory time.Duration
	// CompactAfter is how many adjacent small segments are merged, default 8.
	CompactAfter int
	// QuietAfter is how long after the last write a tablet's segments are made as
	// large and as free of deleted rows as they can be, default 30 seconds.
	QuietAfter time.Duration
	// ReserveBytes of the volume must stay free, default 128 MiB: the database
	// writes through memory maps, which a full volume turns into crashes.
	// Negative turns the check off.
	ReserveBytes int64
	// DefaultOf returns, as a constant vector of the physical type, what a
	// column with a default reads as in rows that are older than the column; nil
	// is NULL. Without it compaction leaves segments with and without such a
	// column apart.
	DefaultOf func(table *catalog.Table, column int) (*columnar.Vector, error)
	// Now is the wall clock, default time.Now. It serves History only.
	Now func() time.Time
	// Boot names the run of the machine, default what its kernel says. What was
	// written in another one, and not synced, is taken for lost.
	Boot func() string
	// Fault is called where a crash would be most inconvenient, for tests.
	Fault func(FaultPoint)

	tune func(badger.Options) badger.Options // for tests that need small files
}

const (
	memTableBytes = 16 << 20
	// valueThreshold sends larger values to the value log. Segments of a few
	// rows stay in the LSM tree, which reclaims their space cheaply.
	valueThreshold = 4 << 10
	valueLogBytes  = 64 << 20
	blockCache     = 8 << 20
	maintainEvery  = 15 * time.Second
	// reclaimBytes of deleted values make a pass over the value log worthwhile.
	reclaimBytes = 64 << 20
)

// Store is the data of one worker: one Badger database, one cache, and the
// goroutine that compacts tablets and reclaims space. It is safe for
// concurrent use.
type Store struct {
	db    *badger.DB
	opts  Options
	log   *slog.Logger
	cache *chunkCache
	lock  *flock.Flock

	durable durability

	mu      sync.Mutex
	tablets map[catalog.TabletID]*Tablet
	records map[uint64]*Records
	closed  atomic.Bool // set under mu; read without where a late look is harmless

	instances atomic.Uint64 // numbers tablet states for cache keys
	deleted   atomic.Int64  // bytes deleted since the last reclaim
	work      chan catalog.TabletID
	stop      chan struct{}
	done      sync.WaitGroup
}

// Open opens or creates the store in opts.Dir, after it has verified the files
// that Badger trusts. Commits are not synced: they outlive the process, but
// after a failure of the machine the store is as of the last Sync, and so are
// the applied indexes that it reports. A directory that is damaged is refused
// with error XX001, one that is in use with 55006.
func Open(opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if opts.Dir == "" {
		return nil, errors.New("opening the store: no directory given")
	}
	s, err := open(opts)
	if err != nil {
		return nil, ioError(err, "opening the store in %s", opts.Dir)
	}
	s.done.Add(1)
	go s.maintain()
	return s, nil
}

func open(opts Options) (s *Store, err error) {
	lock, err := lockStore(opts.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Unlock())
		}
	}()
	boot := opts.Boot()
	if err := recoverStore(opts, boot); err != nil {
		return nil, err
	}
	db, err := badger.Open(badgerOptions(opts))
	if err != nil {
		return nil, err
	}
	s = &Store{
		db: db, opts: opts, log: opts.Logger, lock: lock,
		cache:   newChunkCache(opts.CacheBytes),
		tablets: make(map[catalog.TabletID]*Tablet),
		records: make(map[uint64]*Records),
		work:    make(chan catalog.TabletID, 256),
		stop:    make(chan struct{}),
	}
	if err = s.openMark(boot); err != nil {
		s.durable.unpin()
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 256 << 20
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 128 << 20
	}
	if o.History == 0 {
		o.History = 15 * time.Minute
	}
	if o.DeletedHistory == 0 {
		o.DeletedHistory = time.Minute
	}
	o.DeletedHistory = min(o.DeletedHistory, o.History)
	if o.CompactAfter < 2 {
		o.CompactAfter = 8
	}
	if o.QuietAfter <= 0 {
		o.QuietAfter = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Boot == nil {
		o.Boot = bootID
	}
	return o
}

func badgerOptions(opts Options) badger.Options {
	b := badger.DefaultOptions(opts.Dir).
		WithSyncWrites(false).
		WithBypassLockGuard(true).  // the store has a lock of its own
		WithDetectConflicts(false). // one writer per key: applyMu of its tablet
		WithNumVersionsToKeep(1).
		WithMemTableSize(memTableBytes).
		WithNumMemtables(2).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(12).
		WithNumCompactors(2).
		WithNumGoroutines(2).
		WithBaseTableSize(4 << 20).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(valueLogBytes).
		WithBlockCacheSize(blockCache).
		WithCompression(options.None). // chunks are compressed already
		WithMetricsEnabled(false).
		WithLogger(badgerLog{opts.Logger})
	if opts.tune != nil {
		b = opts.tune(b)
	}
	return b
}

// badgerLog passes Badger's messages on: its information is our debugging.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any)   { l.log.Error(badgerText(f, a)) }
func (l badgerLog) Warningf(f string, a ...any) { l.log.Warn(badgerText(f, a)) }
func (l badgerLog) Infof(f string, a ...any)    { l.log.Debug(badgerText(f, a)) }
func (l badgerLog) Debugf(string, ...any)       {}

func badgerText(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}

// CheckSpace returns error 53100 when less than the reserve is free on the
// store's volume. Ask before accepting rows: Apply asks, too, but its error
// stops the replica.
func (s *Store) CheckSpace() error { return s.CheckSpaceFor(0) }

// CheckSpaceFor is CheckSpace for bytes more than the reserve.
func (s *Store) CheckSpaceFor(bytes int64) error {
	if s.opts.ReserveBytes < 0 {
		return nil
	}
	free, err := freeBytes(s.opts.Dir)
	if err != nil {
		return ioError(err, "looking up the free space of %s", s.opts.Dir)
	}
	need := s.opts.ReserveBytes + bytes
	if free >= uint64(need) {
		return nil
	}
	return sqlstate.New(sqlstate.DiskFull, "only %d MiB are free on the volume of %s, %d MiB must stay free",
		free>>20, s.opts.Dir, need>>20).
		WithHint("free space on the volume or move the data directory to a larger one")
}

// Close stops the background work, waits for it and closes the database.
// Snapshots must have been released; tablets and records are unusable after.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed.Swap(true) {
		s.mu.Unlock()
		return nil
	}
	tablets := make([]*Tablet, 0, len(s.tablets))
	for _, t := range s.tablets {
		tablets = append(tablets, t)
	}
	s.mu.Unlock()
	close(s.stop)
	s.done.Wait()
	for _, t := range tablets {
		t.close()
	}
	s.durable.unpin()
	err := s.db.Close()
	if err == nil {
		err = s.closeMark()
	}
	return ioError(errors.Join(err, s.lock.Unlock()), "closing the store in %s", s.opts.Dir)
}

// OpenTablet opens or creates this worker's replica of a tablet. Opening an
// open tablet returns it again, with the description given now.
func (s *Store) OpenTablet(table *catalog.Table, id catalog.TabletID) (*Tablet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if t := s.tablets[id]; t != nil && t.failure() == nil {
		return t, t.SetTable(table)
	}
	t, err := newTablet(s, table, id)
	if err != nil {
		return nil, fmt.Errorf("opening tablet %d of %s: %w", id, table.QualifiedName(), err)
	}
	s.tablets[id] = t
	s.kick(id)
	return t, nil
}

// DropTablet deletes a tablet's data. Snapshots still open fail from then on.
// Dropping a tablet that does not exist is fine.
func (s *Store) DropTablet(ctx context.Context, id catalog.TabletID) error {
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return ErrClosed
	}
	t := s.tablets[id]
	delete(s.tablets, id)
	s.mu.Unlock()
	if t != nil {
		t.close()
	}
	return s.dropSpace(ctx, spaceTablet, uint64(id))
}

// kick asks the maintenance goroutine to look at a tablet; a full queue means
// it will look at all of them soon anyway.
func (s *Store) kick(id catalog.TabletID) {
	select {
	case s.work <- id:
	default:
	}
}

func (s *Store) maintain() {
	defer s.done.Done()
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case id := <-s.work:
			s.mu.Lock()
			t := s.tablets[id]
			s.mu.Unlock()
			s.maintainTablet(t)
		case <-ticker.C:
			for _, t := range s.openTablets() {
				s.maintainTablet(t)
			}
		}
		if s.deleted.Load() > reclaimBytes {
			s.reclaim()
		}
	}
}

func (s *Store) openTablets() []*Tablet {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Tablet, 0, len(s.tablets))
	for _, t := range s.tablets {
		out = append(out, t)
	}
	return out
}

func (s *Store) maintainTablet(t *Tablet) {
	if t == nil || t.failure() != nil {
		return
	}
	if err := t.compact(s.stop); err != nil && !errors.Is(err, ErrClosed) {
		s.log.Warn("tablet maintenance failed", "tablet", uint64(t.id), "error", err)
	}
}

// reclaim lets Badger notice deleted values and rewrite the value log files
// that are mostly dead.
func (s *Store) reclaim() {
	s.deleted.Store(0)
	// Syncing moves the mark, whose version holds deleted values in place.
	if err := s.Sync(); err != nil {
		s.log.Warn("syncing the store before reclaiming space failed", "error", err)
		return
	}
	if err := s.db.Flatten(1); err != nil {
		s.log.Warn("flattening the LSM tree failed", "error", err)
		return
	}
	for !isStopped(s.stop) {
		err := s.reclaimFile()
		if err == nil {
			continue
		}
		if !errors.Is(err, badger.ErrNoRewrite) && !errors.Is(err, badger.ErrRejected) {
			s.log.Warn("reclaiming value log space failed", "error", err)
		}
		return
	}
}

// reclaimFile rewrites one value log file. Badger deletes it at once, though
// what was moved is not durable: an open iterator puts that off until it is. If
// it cannot be made so the iterator stays, and the store takes no more writes
// that count.
func (s *Store) reclaimFile() error {
	txn := s.db.NewTransaction(false)
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues = false
	it := txn.NewIterator(opts)
	err := s.db.RunValueLogGC(0.5)
	if err == nil {
		s.opts.fault(FaultReclaim)
		if err := s.sync(true); err != nil {
			return err
		}
	}
	it.Close()
	txn.Discard()
	return err
}
