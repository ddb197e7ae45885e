package storage

import (
	"sort"
	"sync"
	"sync/atomic"

	"skein/catalog"
	"skein/sqlstate"
)

// Snapshot is the rows of a tablet that were committed at or before one
// timestamp. It pins their data until it is released. Safe for concurrent use.
type Snapshot struct {
	tablet  *Tablet
	ts      uint64
	view    *view
	list    sync.Once
	listed  []*segmentRef // see segments
	release sync.Once
	held    atomic.Int64 // bytes of decoded chunks that scans hold and the cache does not keep
}

// Snapshot pins the state at a timestamp. It returns an *InDoubtError when
// prepared transactions could yet commit at or below it, a *SealedError when
// other tablets hold what may have been committed by then, and error 40001 when
// the timestamp is so old that row times have been forgotten.
func (t *Tablet) Snapshot(ts uint64) (*Snapshot, error) {
	if err := t.failure(); err != nil {
		return nil, err
	}
	v := t.pinView()
	s := &Snapshot{tablet: t, ts: ts, view: v}
	if err := v.readable(t.id, ts); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// segments lists those with at least one visible row, in row order. It is made
// when it is first needed: a look-up by key does without.
func (s *Snapshot) segments() []*segmentRef {
	s.list.Do(func() {
		for _, seg := range s.view.manifest {
			if seg.minTS <= s.ts && !seg.hidden(s.ts) {
				s.listed = append(s.listed, seg)
			}
		}
	})
	return s.listed
}

func (v *view) readable(id catalog.TabletID, ts uint64) error {
	var doubt []InDoubt
	for _, p := range v.prepared {
		if ts > p.Floor {
			doubt = append(doubt, p)
		}
	}
	if len(doubt) > 0 {
		return &InDoubtError{Tablet: id, Txns: doubt}
	}
	if v.seal.sealed != 0 && ts > v.seal.sealed {
		return &SealedError{Tablet: id, Sealed: v.seal.sealed}
	}
	if ts < v.horizon {
		return sqlstate.New(sqlstate.SerializationFailure, "snapshot %d of tablet %d is too old", ts, id).
			WithHint("run the query again")
	}
	return nil
}

// Release lets go of the data; scanners of the snapshot must be done. Repeating
// it is fine.
func (s *Snapshot) Release() {
	s.release.Do(func() {
		t := s.tablet
		s.hold(-s.held.Load()) // of scans that were not read to their end
		t.unpin(s.view)
	})
}

// hold counts what scans hold against the cache's budget.
func (s *Snapshot) hold(n int64) {
	if n != 0 {
		s.held.Add(n)
		s.tablet.store.cache.hold(n)
	}
}

// Timestamp is what the snapshot was taken at.
func (s *Snapshot) Timestamp() uint64 { return s.ts }

// Err says why the tablet has stopped and the snapshot's data may be gone, nil
// while it has not.
func (s *Snapshot) Err() error { return s.tablet.failure() }

// Applied is the log index that the snapshot reflects.
func (s *Snapshot) Applied() uint64 { return s.view.applied }

// Rows is how many rows the snapshot holds.
func (s *Snapshot) Rows() uint64 {
	var n uint64
	for _, seg := range s.segments() {
		n += uint64(seg.visibleRows(s.ts))
	}
	return n
}

// visibleRows is how many rows of the segment were committed and not deleted
// by ts; the segment is not hidden.
func (s *segmentRef) visibleRows(ts uint64) int {
	if s.maxTS <= ts {
		return s.meta.rows - s.deletes.countAt(ts, 0, s.meta.rows)
	}
	n := 0
	for i, r := range s.runs {
		if r.ts <= ts {
			n += s.runEnd(i) - int(r.row) - s.deletes.countAt(ts, int(r.row), s.runEnd(i))
		}
	}
	return n
}

// hidden reports that all rows were deleted by ts.
func (s *segmentRef) hidden(ts uint64) bool {
	return (s.dropped != 0 && s.dropped <= ts) ||
		(s.deletes != nil && s.deletes.count == s.meta.rows && s.deletes.maxTS <= ts)
}

// visible reports that a row was committed and not deleted by ts.
func (s *segmentRef) visible(row int, ts uint64) bool {
	if s.minTS > ts || (s.dropped != 0 && s.dropped <= ts) {
		return false
	}
	if s.maxTS > ts {
		i := sort.Search(len(s.runs), func(i int) bool { return int(s.runs[i].row) > row }) - 1
		if s.runs[i].ts > ts {
			return false
		}
	}
	died, dead := s.deletes.at(row)
	return !dead || died > ts
}

func (s *segmentRef) runEnd(i int) int {
	if i+1 < len(s.runs) {
		return int(s.runs[i+1].row)
	}
	return s.meta.rows
}
