package storage

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"skein/columnar"
)

// Compaction merges adjacent small segments, in RowId order, so that inserts of
// a few rows do not leave scans with a segment each. It is local to a replica:
// row ids, row times and keys stay what they are.
//
// Segments are merged when there are enough of a size class and together at
// least twice the largest, so a row is rewritten a logarithmic number of times.

const (
	sizeClassRatio  = 8
	maxMergedInputs = 4096
	// longRuns of row times are shortened by themselves when they are old.
	longRuns = 64
)

// compact merges until nothing is left to merge or stop is closed.
func (t *Tablet) compact(stop <-chan struct{}) error {
	if err := t.trimRuns(); err != nil {
		return fmt.Errorf("forgetting row times of tablet %d: %w", t.id, err)
	}
	for !isStopped(stop) {
		v := t.view.Load()
		run := pickRun(v.manifest, t.store.opts.CompactAfter)
		if run == nil {
			return nil
		}
		merged, err := t.merge(v, run)
		if err == nil {
			err = t.replace(v, run, merged)
		}
		if err != nil {
			return fmt.Errorf("compacting tablet %d: %w", t.id, err)
		}
		if err := t.collect(); err != nil {
			return err
		}
	}
	return nil
}

// pickRun chooses adjacent segments to merge, the smallest size class first,
// or returns nil.
func pickRun(manifest []*segmentRef, least int) []*segmentRef {
	for class := sizeClassRatio; class <= SegmentRows/2; class *= sizeClassRatio {
		for i := 0; i < len(manifest); {
			total, largest, end := 0, 0, i
			for end < len(manifest) && end-i < maxMergedInputs {
				rows := manifest[end].meta.rows
				if rows > class || total+rows > SegmentRows {
					break
				}
				total, largest, end = total+rows, max(largest, rows), end+1
			}
			if end-i >= least && total >= 2*largest {
				return manifest[i:end:end]
			}
			i = max(end, i+1)
		}
	}
	return nil
}

// merge encodes the rows of a run of segments as one. It reads past the cache,
// as nobody will ask for these chunks again.
func (t *Tablet) merge(v *view, run []*segmentRef) (*Segment, error) {
	r := &chunkReader{t.store, t.Table(), t.id, v.space, v.instance, t.store.view}
	batches := make([]*columnar.Batch, len(run))
	for i, seg := range run {
		b := &columnar.Batch{Len: seg.meta.rows, Cols: make([]*columnar.Vector, len(t.Table().Columns))}
		for c := range b.Cols {
			var err error
			if b.Cols[c], err = r.decodeColumn(seg.id, seg.meta, c); err != nil {
				return nil, err
			}
		}
		batches[i] = b
	}
	return EncodeSegment(t.Table(), batches)
}

// replace switches the manifest from a run of segments to the merged one,
// unless the tablet was replaced by a snapshot meanwhile.
func (t *Tablet) replace(v *view, run []*segmentRef, merged *Segment) error {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return err
	}
	st := t.state
	at := sort.Search(len(st.manifest), func(i int) bool { return st.manifest[i].firstRow >= run[0].firstRow })
	if st.instance != v.instance || at+len(run) > len(st.manifest) || !slices.Equal(st.manifest[at:at+len(run)], run) {
		return errors.New("the manifest changed")
	}
	runs, horizon := shorten(mergeRuns(run), t.historyStart())
	st.local++
	ref := newSegmentRef(localSegment|st.local, merged.meta, run[0].firstRow, runs)
	dead := make([]deadSegment, len(run))
	a := &applier{t: t, st: st, txn: t.store.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	for p, part := range merged.parts {
		if err := a.set(partKey(ref.id, p), part); err != nil {
			return t.fail(err)
		}
	}
	for i, s := range run {
		if err := a.delete(manifestKey(s.firstRow)); err != nil {
			return t.fail(err)
		}
		dead[i] = deadSegment{id: s.id, parts: s.meta.parts, chunks: len(t.Table().Columns), bytes: s.meta.head + s.meta.bytes}
	}
	if err := a.set(manifestKey(ref.firstRow), ref.encode()); err != nil {
		return t.fail(err)
	}
	manifest := slices.Concat(st.manifest[:at], []*segmentRef{ref}, st.manifest[at+len(run):])
	if err := a.switchManifest(manifest, horizon); err != nil {
		return t.fail(err)
	}
	t.bury(deadData{space: st.space, instance: st.instance, segments: dead})
	return nil
}

// switchManifest commits a local change and publishes it.
func (a *applier) switchManifest(manifest []*segmentRef, horizon uint64) error {
	if horizon > a.st.horizon {
		if err := a.set([]byte{keyHorizon}, be64(horizon)); err != nil {
			return err
		}
		a.st.horizon = horizon
	}
	if err := a.flush(a.st.counters.applied); err != nil {
		return err
	}
	a.st.manifest = manifest
	a.t.publish()
	return nil
}

// historyStart is the timestamp before which row times may be forgotten.
func (t *Tablet) historyStart() uint64 {
	const logicalBits = 12 // of a timestamp; the rest are microseconds
	micros := t.store.opts.Now().Add(-t.store.opts.History).UnixMicro()
	return uint64(max(micros, 0)) << logicalBits
}

// mergeRuns joins the row times of adjacent segments.
func mergeRuns(run []*segmentRef) []tsRun {
	var out []tsRun
	base := uint32(0)
	for _, s := range run {
		for _, r := range s.runs {
			out = append(out, tsRun{base + r.row, r.ts})
		}
		base += uint32(s.meta.rows)
	}
	return out
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

// trimRuns rewrites the manifest records of segments with many row times that
// nobody needs any more.
func (t *Tablet) trimRuns() error {
	if !slices.ContainsFunc(t.view.Load().manifest, func(s *segmentRef) bool { return len(s.runs) > longRuns }) {
		return nil
	}
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return err
	}
	old := t.historyStart()
	a := &applier{t: t, st: t.state, txn: t.store.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	manifest := slices.Clone(t.state.manifest)
	var latest uint64
	changed := false
	for i, s := range manifest {
		if len(s.runs) <= longRuns || a.bytes > applyBytes {
			continue
		}
		runs, horizon := shorten(s.runs, old)
		if len(runs) > len(s.runs)/2 {
			continue
		}
		changed, latest = true, max(latest, horizon)
		manifest[i] = newSegmentRef(s.id, s.meta, s.firstRow, runs)
		if err := a.set(manifestKey(s.firstRow), manifest[i].encode()); err != nil {
			return t.fail(err)
		}
	}
	if !changed {
		return nil
	}
	if err := a.switchManifest(manifest, latest); err != nil {
		return t.fail(err)
	}
	return nil
}
