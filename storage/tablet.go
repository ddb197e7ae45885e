package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
)

// maxFinished is how many outcomes of finished transactions a tablet remembers.
// It is part of the replicated state: all replicas must use the same number.
const maxFinished = 65536

// Tablet is one replica of one tablet. Apply, InstallSnapshot and
// PrepareSnapshot are called in log order by one goroutine at a time; everything
// else is safe for concurrent use.
type Tablet struct {
	store *Store
	id    catalog.TabletID
	table atomic.Pointer[catalog.Table]

	// applyMu orders everything that changes the tablet: Apply, compaction's
	// switch and InstallSnapshot. It guards state, not view.
	applyMu sync.Mutex
	state   *tabletState

	// compactMu lets one goroutine at a time merge segments or delete dead ones.
	// It is taken before applyMu.
	compactMu sync.Mutex

	// pins is guarded by pinMu, as are the storing of view and dead, so that a
	// reader's pin and the view it pins agree.
	pinMu sync.Mutex
	view  atomic.Pointer[view]
	pins  map[uint64]int // open snapshots by view.seq
	dead  []deadData

	broken   atomic.Pointer[error]
	written  atomic.Int64 // when, in nanoseconds, rows were last committed or the tablet was opened
	sketches sketches
}

// tabletState is what the log and compaction change.
type tabletState struct {
	space    *space
	instance uint64 // of the cache keys
	counters counters
	manifest []*segmentRef // ascending firstRow; appended to, never changed in place
	keys     *keyTree      // of the manifest's segments
	txns     map[string]*transaction
	finished map[string]Result
	order    []string // finished transactions, oldest first
	horizon  uint64   // readers below it cannot be served
	local    uint64   // last number of a local segment
	rows     uint64
}

// view is what readers see. It is immutable.
type view struct {
	seq      uint64
	space    *space
	instance uint64
	applied  uint64
	manifest []*segmentRef
	keys     *keyTree
	prepared []InDoubt
	horizon  uint64
	rows     uint64
	lastTS   uint64
	hold     holdCounters
	seal     sealCounters
	// unfinished is how many transactions are not over.
	unfinished int
}

// deadData is what no reader of a view numbered seq or later needs.
type deadData struct {
	seq      uint64
	space    *space
	instance uint64
	segments []deadSegment
	whole    bool // all of the space
}

type deadSegment struct {
	id      uint64
	parts   int
	chunks  int
	bytes   int
	deletes *deleteMarks // whose records go with it
}

// InDoubt is a transaction that is prepared and undecided.
type InDoubt struct {
	Txn      string
	Primary  catalog.TabletID // decides it
	Segments uint32           // to commit with
	Floor    uint64           // its commit timestamp will be above, 0 if unknown
	Deletes  uint32           // lists of rows to delete, to commit with
}

// StagedTxn is a transaction that has staged data and is not prepared.
type StagedTxn struct {
	Txn      string
	Segments int
	Deletes  int // lists of rows to delete, a Truncate included
	Bytes    uint64
	Index    uint64 // about the log index of its first command; may differ a little between replicas
}

func newTablet(s *Store, table *catalog.Table, id catalog.TabletID) (*Tablet, error) {
	sp, err := s.openSpace(spaceTablet, uint64(id))
	if err != nil {
		return nil, err
	}
	t := &Tablet{store: s, id: id, pins: make(map[uint64]int)}
	t.table.Store(table)
	t.written.Store(s.opts.Now().UnixNano())
	if t.state, err = t.load(sp); err != nil {
		return nil, err
	}
	if err := t.deleteOrphans(); err != nil {
		return nil, err
	}
	t.publish()
	return t, nil
}

// ID is the tablet's id.
func (t *Tablet) ID() catalog.TabletID { return t.id }

// Table is the description the tablet was opened with, or was given since.
func (t *Tablet) Table() *catalog.Table { return t.table.Load() }

// SetTable switches to another version of the table: columns may have been
// added, dropped, renamed or moved. Columns keep their type and the primary key
// keeps its columns.
func (t *Tablet) SetTable(table *catalog.Table) error {
	old := t.Table()
	same := table.ID == old.ID && len(table.PrimaryKey) == len(old.PrimaryKey)
	for i := 0; same && i < len(old.PrimaryKey); i++ {
		same = table.ColumnID(table.PrimaryKey[i]) == old.ColumnID(old.PrimaryKey[i])
	}
	for i := 0; same && i < len(table.Columns); i++ {
		if was := old.ColumnByID(table.ColumnID(i)); was >= 0 {
			same = arrow.TypeEqual(table.Columns[i].Type, old.Columns[was].Type)
		}
	}
	if !same {
		return fmt.Errorf("tablet %d of %s cannot take the columns of %s", t.id, old.QualifiedName(), table.QualifiedName())
	}
	t.table.Store(table)
	return nil
}

// Applied is the index of the last log entry whose effect is here.
func (t *Tablet) Applied() uint64 { return t.view.Load().applied }

// Rows is how many rows are committed and not deleted, at whatever timestamp.
func (t *Tablet) Rows() uint64 { return t.view.Load().rows }

// Bytes is about how much its segments take, encoded.
func (t *Tablet) Bytes() uint64 {
	n := uint64(0)
	for _, s := range t.view.Load().manifest {
		n += uint64(s.meta.head + s.meta.bytes)
	}
	return n
}

// LastTimestamp is the greatest timestamp of a commit that is here, 0 for none.
func (t *Tablet) LastTimestamp() uint64 { return t.view.Load().lastTS }

// InDoubt lists the transactions that are prepared and undecided, ordered by id.
func (t *Tablet) InDoubt() []InDoubt { return slices.Clone(t.view.Load().prepared) }

// Staged lists the transactions that have staged data and are not prepared,
// ordered by id. It waits for a running Apply.
func (t *Tablet) Staged() []StagedTxn {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	var out []StagedTxn
	for _, tx := range t.state.txns {
		if tx.prepared {
			continue
		}
		info := StagedTxn{Txn: tx.id, Segments: len(tx.segments), Deletes: len(tx.deletes), Index: ^uint64(0)}
		for _, d := range tx.deletes {
			info.Bytes += 8 * uint64(len(d.rows))
			info.Index = min(info.Index, d.index)
		}
		for _, s := range tx.segments {
			info.Bytes += s.bytes
			info.Index = min(info.Index, s.index)
		}
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b StagedTxn) int { return strings.Compare(a.Txn, b.Txn) })
	return out
}

// fail stops the tablet: memory and disk may disagree from here on.
func (t *Tablet) fail(err error) error {
	t.broken.CompareAndSwap(nil, &err)
	return err
}

// failure is why the tablet stopped, nil while it works.
func (t *Tablet) failure() error {
	if p := t.broken.Load(); p != nil {
		return *p
	}
	return nil
}

func (t *Tablet) close() {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	_ = t.fail(ErrClosed)
	t.store.cache.dropInstance(t.state.instance)
}

// publish lets readers see the state. The caller holds applyMu or is alone.
func (t *Tablet) publish() {
	st := t.state
	v := &view{
		space: st.space, instance: st.instance, applied: st.counters.applied,
		manifest: st.manifest, keys: st.keys, horizon: st.horizon, rows: st.rows, lastTS: st.counters.lastTS,
		hold: st.counters.holdCounters, seal: st.counters.sealCounters, unfinished: len(st.txns),
	}
	for _, tx := range st.txns {
		if tx.prepared {
			v.prepared = append(v.prepared, InDoubt{tx.id, tx.primary, tx.promised, tx.floor, tx.lists()})
		}
	}
	slices.SortFunc(v.prepared, func(a, b InDoubt) int { return strings.Compare(a.Txn, b.Txn) })
	t.pinMu.Lock()
	defer t.pinMu.Unlock()
	if old := t.view.Load(); old != nil {
		v.seq = old.seq + 1
	}
	t.view.Store(v)
}

// load reads the state of a space.
func (t *Tablet) load(sp *space) (*tabletState, error) {
	txn := t.store.db.NewTransaction(false)
	defer txn.Discard()
	st, err := readState(txn, sp)
	if err != nil {
		return nil, err
	}
	st.instance = t.store.instances.Add(1)
	if have := st.counters.table; have != 0 && have != t.Table().ID {
		return nil, fmt.Errorf("the tablet belongs to table %d, not %d", have, t.Table().ID)
	}
	st.counters.table = t.Table().ID
	err = st.loadSegments(txn, t.id, func(m *segmentMeta) error { return m.matches(t.Table()) })
	if err != nil {
		return nil, err
	}
	return st, nil
}

// readState reads the records of a tablet's space; segments have no metadata
// yet.
func readState(txn *badger.Txn, sp *space) (*tabletState, error) {
	st := &tabletState{space: sp, txns: make(map[string]*transaction), finished: make(map[string]Result)}
	steps := []struct {
		prefix byte
		read   func(key, value []byte) error
	}{
		{keyApplied, func(_, v []byte) (err error) { st.counters, err = decodeCounters(v); return err }},
		{keyFinished, st.loadFinished},
		{keyHorizon, st.loadHorizon},
		{keyManifest, st.loadManifest},
		{keyStaged, st.loadStaged},
		{keyStagedDelete, st.loadStagedDelete},
		{keyDecided, st.loadDecided},
		{keyPrepared, st.loadPrepared},
	}
	for _, step := range steps {
		if err := sp.scan(txn, []byte{step.prefix}, step.read); err != nil {
			return nil, damagedRecords(sp, fmt.Sprintf("the %q records", step.prefix), err)
		}
	}
	return st, nil
}

// loadSegments completes the state by the segments' metadata and delete marks.
func (st *tabletState) loadSegments(txn *badger.Txn, id catalog.TabletID, match func(*segmentMeta) error) error {
	if err := st.loadMetas(txn, id, match); err != nil {
		return err
	}
	if err := st.loadDeletes(txn); err != nil {
		return err
	}
	for _, tx := range st.txns {
		if tx.prepared {
			tx.effect.rows = mergeRows(tx.doomed(), tx.effect.replaced)
		}
	}
	for _, s := range st.manifest {
		st.rows += uint64(s.live())
		st.keys = st.keys.add(s)
		st.counters.lastTS = max(st.counters.lastTS, s.maxTS, s.dropped)
	}
	return nil
}

func (st *tabletState) loadFinished(_, value []byte) error {
	id, res, err := decodeFinished(value)
	if err != nil {
		return err
	}
	st.finished[id] = res
	st.order = append(st.order, id)
	return nil
}

func (st *tabletState) loadHorizon(_, value []byte) error {
	r := &reader{b: value}
	st.horizon = readBE64(r)
	return r.done()
}

func (st *tabletState) loadManifest(key, value []byte) error {
	if len(key) != 9 {
		return fmt.Errorf("manifest key of %d bytes", len(key))
	}
	seg, err := decodeManifest(binary.BigEndian.Uint64(key[1:]), value)
	if err != nil {
		return err
	}
	st.manifest = append(st.manifest, seg)
	return nil
}

func (st *tabletState) loadStaged(key, value []byte) error {
	id, seq, err := txnAndNumber(key)
	if err != nil {
		return err
	}
	seg, err := decodeStaged(seq, value)
	if err != nil {
		return err
	}
	st.transaction(id).segments[seq] = seg
	return nil
}

func (st *tabletState) loadStagedDelete(key, value []byte) error {
	id, seq, err := txnAndNumber(key)
	if err != nil {
		return err
	}
	list, err := decodeStagedDelete(value)
	if err != nil {
		return err
	}
	st.transaction(id).deletes[seq] = list
	return nil
}

func (st *tabletState) loadDecided(key, value []byte) error {
	id, number, err := txnAndNumber(key)
	if err != nil {
		return err
	}
	return st.transaction(id).loadDecided(number, value)
}

// loadDeletes reads the delete marks of the committed segments, whose metadata
// is there. Those of segments that compaction replaced are left alone.
func (st *tabletState) loadDeletes(txn *badger.Txn) error {
	pages := make(map[uint64]map[int]*deletePage)
	err := st.space.scan(txn, []byte{keyDeletes}, func(key, value []byte) error {
		if len(key) != 9 && len(key) != 11 {
			return fmt.Errorf("key of delete marks of %d bytes", len(key))
		}
		id := binary.BigEndian.Uint64(key[1:])
		if pages[id] == nil {
			pages[id] = make(map[int]*deletePage)
		}
		return readDeletePages(value, pages[id])
	})
	if err != nil {
		return damagedRecords(st.space, "the delete marks", err)
	}
	for _, s := range st.manifest {
		if s.deletes, err = deletesFrom(s.meta.rows, pages[s.id]); err != nil {
			return corrupted(catalog.TabletID(st.space.id), s.id, "the set of delete marks", err)
		}
	}
	return nil
}

func (st *tabletState) loadPrepared(key, value []byte) error {
	return st.transaction(string(key[1:])).decode(value)
}

// transaction returns the unfinished transaction of an id, made if missing.
func (st *tabletState) transaction(id string) *transaction {
	tx := st.txns[id]
	if tx == nil {
		tx = newTransaction(id)
		st.txns[id] = tx
	}
	return tx
}

// loadMetas reads the metadata of all segments.
func (st *tabletState) loadMetas(txn *badger.Txn, tablet catalog.TabletID, match func(*segmentMeta) error) error {
	read := func(id uint64) (meta *segmentMeta, err error) {
		var empty bool
		err = viewItem(txn, st.space.key(partKey(id, 0)), &empty, func(part []byte) error {
			if meta, err = decodeSegmentMeta(part); err == nil {
				err = match(meta)
			}
			return err
		})
		if err == nil && empty {
			err = errors.New("the value is missing from the value log")
		}
		if err != nil {
			return nil, corrupted(tablet, id, "metadata", err)
		}
		return meta, nil
	}
	var err error
	for _, s := range st.manifest {
		if s.meta, err = read(s.id); err != nil {
			return err
		}
		if s.id&localSegment != 0 {
			st.local = max(st.local, s.id&^localSegment)
		}
	}
	for _, tx := range st.txns {
		for _, s := range tx.segments {
			if s.parts == 0 || !s.has(0) {
				continue
			}
			if s.meta, err = read(s.id); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteOrphans deletes parts that nothing refers to: what aborted transactions
// staged and compaction replaced before the last stop. Runs before readers.
func (t *Tablet) deleteOrphans() error {
	live := t.state.liveSegments()
	for _, kind := range []byte{keyPart, keyDeletes} {
		prefix := t.state.space.key([]byte{kind})
		err := t.store.deleteKeys(noCancel, prefix, func(key []byte) bool {
			key = key[len(prefix):]
			return len(key) < 8 || !live[binary.BigEndian.Uint64(key)]
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *tabletState) liveSegments() map[uint64]bool {
	live := make(map[uint64]bool, len(st.manifest))
	for _, s := range st.manifest {
		live[s.id] = true
	}
	for _, tx := range st.txns {
		for _, s := range tx.segments {
			live[s.id] = true
		}
	}
	return live
}

// bury marks data as unneeded by views after the current one. The caller has
// published a view without it.
func (t *Tablet) bury(d deadData) {
	if len(d.segments) == 0 && !d.whole {
		return
	}
	t.pinMu.Lock()
	d.seq = t.view.Load().seq
	t.dead = append(t.dead, d)
	t.pinMu.Unlock()
}

// collect deletes dead data that no snapshot needs any more. The caller holds
// compactMu.
func (t *Tablet) collect() error {
	t.pinMu.Lock()
	oldest := ^uint64(0)
	for seq := range t.pins {
		oldest = min(oldest, seq)
	}
	var free, keep []deadData
	for _, d := range t.dead {
		if d.seq <= oldest {
			free = append(free, d)
		} else {
			keep = append(keep, d)
		}
	}
	t.dead = keep
	t.pinMu.Unlock()
	for _, d := range free {
		t.store.opts.fault(FaultCollect)
		if err := t.deleteDead(d); err != nil {
			return fmt.Errorf("deleting dead data of tablet %d: %w", t.id, err)
		}
		t.store.opts.fault(FaultCollected)
	}
	return nil
}

func (t *Tablet) deleteDead(d deadData) error {
	if d.whole {
		t.store.cache.dropInstance(d.instance)
		return d.space.clear()
	}
	batch := t.store.db.NewWriteBatch()
	defer batch.Cancel()
	for _, s := range d.segments {
		for p := range s.parts {
			if err := batch.Delete(d.space.key(partKey(s.id, p))); err != nil {
				return ioError(err, "deleting segment %d", s.id)
			}
		}
		if s.deletes != nil {
			if err := deleteMarkRecords(batch, d.space, s); err != nil {
				return err
			}
		}
		t.store.cache.dropSegment(d.instance, s.id, s.chunks)
		t.store.deleted.Add(int64(s.bytes))
	}
	return ioError(batch.Flush(), "deleting segments")
}

func deleteMarkRecords(batch *badger.WriteBatch, sp *space, s deadSegment) error {
	if err := batch.Delete(sp.key(deletesKey(s.id))); err != nil {
		return ioError(err, "deleting the marks of segment %d", s.id)
	}
	for k, p := range s.deletes.pages {
		if p == nil {
			continue
		}
		if err := batch.Delete(sp.key(deletePageKey(s.id, k))); err != nil {
			return ioError(err, "deleting the marks of segment %d", s.id)
		}
	}
	return nil
}
