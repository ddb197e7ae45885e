package storage

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"skein/catalog"
	"skein/columnar"
)

// Compaction merges adjacent small segments, in RowID order, so that inserts of
// a few rows do not leave scans with a segment each, and leaves out rows that
// were deleted so long ago that no reader asks for them. It is local to a
// replica: the ids, times and keys of the rows that remain stay what they are.
//
// Segments are merged when there are enough of a size class and together at
// least twice the largest, so a row is rewritten a logarithmic number of times.
// A tablet that nobody has written to for a while is tidied up further: scans
// are fastest where segments are large and have no marks.

// longRuns of row times are shortened by themselves when they are old.
const longRuns = 64

// compact merges until nothing is left to merge or stop is closed, and deletes
// what no reader needs any more. It reads segments of a view that it does not
// pin, so one at a time does either.
func (t *Tablet) compact(stop <-chan struct{}) error {
	t.compactMu.Lock()
	defer t.compactMu.Unlock()
	if err := t.trimRuns(); err != nil {
		return fmt.Errorf("forgetting row times of tablet %d: %w", t.id, err)
	}
	for !isStopped(stop) {
		done, err := t.compactOnce(stop)
		if err != nil {
			return fmt.Errorf("compacting tablet %d: %w", t.id, err)
		}
		if done {
			break
		}
		if err := t.collect(); err != nil {
			return err
		}
	}
	return t.collect()
}

// compactOnce does the most worthwhile pieces of work, until stop is closed, and
// reports whether there were none.
func (t *Tablet) compactOnce(stop <-chan struct{}) (done bool, err error) {
	v, table := t.view.Load(), t.Table()
	p := picker{
		manifest: v.manifest, table: table, least: t.store.opts.CompactAfter, old: t.deletesStart(),
		defaults: t.store.defaultsOf(table), quiet: t.quiet(),
	}
	runs := p.pick()
	for _, run := range runs {
		if isStopped(stop) {
			break
		}
		m := newMerge(run, p.old)
		if m.rows > 0 {
			if m.segment, err = t.encodeMerged(v, table, m, p.defaults); err != nil {
				return false, err
			}
		}
		t.store.opts.fault(FaultMerged)
		if err := t.replace(v, m); err != nil {
			return false, err
		}
	}
	return runs == nil, nil
}

// merge is the work of making one segment of a run.
type merge struct {
	run     []*segmentRef
	keep    [][]int32 // the rows that remain, by segment; nil for all
	rows    int
	horizon uint64   // readers below it miss rows that were left out
	segment *Segment // nil when no rows remain
}

func newMerge(run []*segmentRef, old uint64) *merge {
	m := &merge{run: run, keep: make([][]int32, len(run))}
	for i, s := range run {
		if s.dropped != 0 && s.dropped <= old {
			m.keep[i] = []int32{}
			m.horizon = max(m.horizon, s.dropped)
			continue
		}
		if s.deletes.countAt(old, 0, s.meta.rows) == 0 && !s.stillborn() {
			m.rows += s.meta.rows
			continue
		}
		m.keep[i] = m.remaining(s, old)
		m.rows += len(m.keep[i])
	}
	return m
}

// stillborn reports whether rows may have been deleted as they were inserted,
// so that nobody ever saw them.
func (s *segmentRef) stillborn() bool { return s.deletes != nil && s.deletes.minTS <= s.maxTS }

// remaining lists the rows of a segment that are not left out.
func (m *merge) remaining(s *segmentRef, old uint64) []int32 {
	keep := make([]int32, 0, s.meta.rows)
	next, run := int32(0), 0
	s.deletes.each(func(d deleteMark) {
		for run+1 < len(s.runs) && s.runs[run+1].row <= d.row {
			run++
		}
		switch {
		case d.ts == s.runs[run].ts: // never seen
		case d.ts <= old:
			m.horizon = max(m.horizon, d.ts)
		default:
			return
		}
		for ; next < int32(d.row); next++ {
			keep = append(keep, next)
		}
		next++
	})
	for ; next < int32(s.meta.rows); next++ {
		keep = append(keep, next)
	}
	return keep
}

// encodeMerged encodes the rows that remain as one segment. It reads past the
// cache, as nobody will ask for these chunks again.
func (t *Tablet) encodeMerged(v *view, table *catalog.Table, m *merge, defaults *columnDefaults) (*Segment, error) {
	r := &chunkReader{
		store: t.store, table: table, tablet: t.id, space: v.space, instance: v.instance, read: t.store.view,
		defaultOf: func(c int) *columnar.Vector { return defaults.values[c] },
	}
	present, ordinals := presentColumns(table, m.run)
	var batches []*columnar.Batch
	for i, seg := range m.run {
		if m.keep[i] != nil && len(m.keep[i]) == 0 {
			continue
		}
		cols, err := r.decodeColumns(seg.id, seg.meta, ordinals)
		if err != nil {
			return nil, err
		}
		batches = append(batches, &columnar.Batch{Len: seg.meta.rows, Cols: cols, Sel: m.keep[i]})
	}
	return EncodeSegment(present, batches)
}

// presentColumns returns the table less the columns that no segment of a run
// has, and the ordinals of the others.
func presentColumns(table *catalog.Table, run []*segmentRef) (*catalog.Table, []int) {
	present := *table
	present.Columns, present.PrimaryKey = nil, make([]int, len(table.PrimaryKey))
	var ordinals []int
	for i, c := range table.Columns {
		c.ID = table.ColumnID(i)
		if !slices.ContainsFunc(run, func(s *segmentRef) bool { return s.meta.find(c.ID) >= 0 }) {
			continue
		}
		for k, ord := range table.PrimaryKey {
			if ord == i {
				present.PrimaryKey[k] = len(ordinals)
			}
		}
		present.Columns = append(present.Columns, c)
		ordinals = append(ordinals, i)
	}
	return &present, ordinals
}

// replace switches the manifest from a run of segments to the merged one. Marks
// that were made meanwhile move along.
func (t *Tablet) replace(v *view, m *merge) error {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return err
	}
	st := t.state
	run := m.current(v, st)
	if run == nil {
		return nil // replaced or truncated meanwhile: look again
	}
	at := sort.Search(len(st.manifest), func(i int) bool { return st.manifest[i].firstRow >= run[0].firstRow })
	a := &applier{t: t, st: st, txn: t.store.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	dead := make([]deadSegment, len(run))
	for i, s := range run {
		if err := a.delete(manifestKey(s.firstRow)); err != nil {
			return t.fail(err)
		}
		dead[i] = deadSegment{
			id: s.id, parts: s.meta.parts, chunks: len(s.meta.columns), bytes: s.meta.head + s.meta.bytes, deletes: s.deletes,
		}
	}
	var merged []*segmentRef
	horizon := m.horizon
	if m.segment != nil {
		ref, forgotten, err := a.writeMerged(m, run)
		if err != nil {
			return t.fail(err)
		}
		merged = []*segmentRef{ref}
		horizon = max(horizon, forgotten)
	}
	manifest := slices.Concat(st.manifest[:at], merged, st.manifest[at+len(run):])
	keys := st.keys
	for _, s := range run {
		keys = keys.remove(s)
	}
	for _, s := range merged {
		keys = keys.add(s)
	}
	t.store.opts.fault(FaultManifestSwitch)
	if err := a.switchManifest(manifest, keys, horizon); err != nil {
		return t.fail(err)
	}
	t.store.opts.fault(FaultSwitched)
	t.bury(deadData{space: st.space, instance: st.instance, segments: dead})
	return nil
}

// current returns the run as it is now, with marks made since, or nil if it can
// no longer be replaced.
func (m *merge) current(v *view, st *tabletState) []*segmentRef {
	at := sort.Search(len(st.manifest), func(i int) bool { return st.manifest[i].firstRow >= m.run[0].firstRow })
	if st.instance != v.instance || at+len(m.run) > len(st.manifest) {
		return nil
	}
	run := st.manifest[at : at+len(m.run)]
	for i, s := range run {
		if s.id != m.run[i].id || s.dropped != m.run[i].dropped {
			return nil
		}
	}
	return slices.Clone(run)
}

// writeMerged writes the merged segment and its manifest record. It returns the
// latest row time that was forgotten on the way.
func (a *applier) writeMerged(m *merge, run []*segmentRef) (*segmentRef, uint64, error) {
	times, ids, marks := m.rowDetails(run)
	runs, forgotten := shorten(times, a.t.historyStart())
	a.st.local++
	ref := newSegmentRef(localSegment|a.st.local, m.segment.meta, ids[0].id, runs)
	if len(ids) > 1 {
		ref.ids = ids
	}
	ref.deletes = marksOf(m.rows, marks)
	for p, part := range m.segment.parts {
		if err := a.set(partKey(ref.id, p), part); err != nil {
			return nil, 0, err
		}
	}
	if ref.deletes != nil {
		if err := a.set(deletesKey(ref.id), ref.deletes.encode()); err != nil {
			return nil, 0, err
		}
	}
	return ref, forgotten, a.set(manifestKey(ref.firstRow), ref.encode())
}

// rowDetails lists the times, ids and marks of the rows that remain, numbered
// as in the merged segment.
func (m *merge) rowDetails(run []*segmentRef) (times []tsRun, ids []idRun, marks []deleteMark) {
	base := uint32(0)
	for i, s := range run {
		keep := m.keep[i]
		times, ids = appendDetails(times, ids, s, keep, base)
		next := 0
		s.deletes.each(func(d deleteMark) {
			if keep == nil {
				marks = append(marks, deleteMark{base + d.row, d.ts})
				return
			}
			for next < len(keep) && keep[next] < int32(d.row) {
				next++
			}
			if next < len(keep) && keep[next] == int32(d.row) {
				marks = append(marks, deleteMark{base + uint32(next), d.ts})
			}
		})
		if keep == nil {
			base += uint32(s.meta.rows)
		} else {
			base += uint32(len(keep))
		}
	}
	return times, ids, marks
}

// appendDetails appends the runs of times and ids of a segment's rows, or of
// those in keep if it is not nil, which become rows from base on.
func appendDetails(times []tsRun, ids []idRun, s *segmentRef, keep []int32, base uint32) ([]tsRun, []idRun) {
	addID := func(row uint32, id uint64) {
		if n := len(ids); n == 0 || ids[n-1].id+uint64(row-ids[n-1].row) != id {
			ids = append(ids, idRun{row, id})
		}
	}
	if keep == nil {
		for _, r := range s.runs {
			times = append(times, tsRun{base + r.row, r.ts})
		}
		if s.ids == nil {
			addID(base, s.firstRow)
		}
		for _, r := range s.ids {
			addID(base+r.row, r.id)
		}
		return times, ids
	}
	run, idRun := 0, 0
	for i, row := range keep {
		for run+1 < len(s.runs) && int32(s.runs[run+1].row) <= row {
			run++
		}
		if n := len(times); n == 0 || times[n-1].ts != s.runs[run].ts {
			times = append(times, tsRun{base + uint32(i), s.runs[run].ts})
		}
		id := s.firstRow + uint64(row)
		if s.ids != nil {
			for idRun+1 < len(s.ids) && int32(s.ids[idRun+1].row) <= row {
				idRun++
			}
			id = s.ids[idRun].id + uint64(row) - uint64(s.ids[idRun].row)
		}
		addID(base+uint32(i), id)
	}
	return times, ids
}

// switchManifest commits a local change and publishes it.
func (a *applier) switchManifest(manifest []*segmentRef, keys *keyTree, horizon uint64) error {
	if horizon > a.st.horizon {
		if err := a.set([]byte{keyHorizon}, be64(horizon)); err != nil {
			return err
		}
		a.st.horizon = horizon
	}
	if err := a.flush(a.st.counters.applied); err != nil {
		return err
	}
	a.st.manifest, a.st.keys = manifest, keys
	a.t.publish()
	return nil
}

// quiet reports whether nobody has written to the tablet for a while.
func (t *Tablet) quiet() bool {
	return t.store.opts.Now().UnixNano()-t.written.Load() >= int64(t.store.opts.QuietAfter)
}

// historyStart is the timestamp before which row times may be forgotten.
func (t *Tablet) historyStart() uint64 { return t.store.opts.before(t.store.opts.History) }

// deletesStart is the timestamp up to which deleted rows may be left out.
func (t *Tablet) deletesStart() uint64 { return t.store.opts.before(t.store.opts.DeletedHistory) }

// before is the timestamp that lies so far in the past.
func (o Options) before(d time.Duration) uint64 {
	const logicalBits = 12 // of a timestamp; the rest are microseconds
	return uint64(max(o.Now().Add(-d).UnixMicro(), 0)) << logicalBits
}

// shorten joins neighbours with equal times, and those at or below old into one
// with the latest of their times: readers at that time and later see the same.
// It returns that latest time, 0 if no times were forgotten.
func shorten(runs []tsRun, old uint64) (out []tsRun, horizon uint64) {
	for _, r := range runs {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if last.ts == r.ts {
				continue
			}
			if last.ts <= old && r.ts <= old {
				last.ts = max(last.ts, r.ts)
				horizon = max(horizon, last.ts)
				continue
			}
		}
		out = append(out, r)
	}
	return out, horizon
}

// worthTrimming reports whether there are many row times of which about half
// are old: rows come nearly in the order of their times.
func (s *segmentRef) worthTrimming(old uint64) bool {
	return len(s.runs) > longRuns && s.runs[len(s.runs)/2].ts <= old
}

// trimRuns rewrites the manifest records of segments with many row times that
// nobody needs any more.
func (t *Tablet) trimRuns() error {
	old := t.historyStart()
	if !slices.ContainsFunc(t.view.Load().manifest, func(s *segmentRef) bool { return s.worthTrimming(old) }) {
		return nil
	}
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return err
	}
	a := &applier{t: t, st: t.state, txn: t.store.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	manifest := slices.Clone(t.state.manifest)
	var latest uint64
	changed := false
	for i, s := range manifest {
		if !s.worthTrimming(old) || a.bytes > applyBytes {
			continue
		}
		runs, horizon := shorten(s.runs, old)
		if len(runs) > len(s.runs)/2 {
			continue
		}
		changed, latest = true, max(latest, horizon)
		ref := newSegmentRef(s.id, s.meta, s.firstRow, runs)
		ref.ids, ref.dropped, ref.deletes = s.ids, s.dropped, s.deletes
		manifest[i] = ref
		if err := a.set(manifestKey(s.firstRow), manifest[i].encode()); err != nil {
			return t.fail(err)
		}
	}
	if !changed {
		return nil
	}
	if err := a.switchManifest(manifest, t.state.keys, latest); err != nil {
		return t.fail(err)
	}
	return nil
}
