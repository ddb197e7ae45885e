package storage

import (
	"fmt"
	"sync"

	"skein/catalog"
)

// Stats describes the data of a snapshot for the planner. Columns are in table
// order. Numbers cover whole segments, so they may include a few rows that are
// too new for the snapshot or deleted; Rows does not.
type Stats struct {
	Rows     uint64
	Bytes    uint64 // encoded
	Segments int
	Columns  []ColumnStats
}

// ColumnStats describes one column. Min and Max bound its values in the forms
// catalog.AppendKeyValue takes; nil is unknown. Bounds of long strings may lie
// outside the values.
type ColumnStats struct {
	Nulls uint64
	Bytes uint64 // encoded
	// Distinct estimates how many different values there are, within a few
	// percent; 0 is unknown.
	Distinct uint64
	Min, Max any
	// MinKey and MaxKey are the same as encoded keys, empty for unknown.
	MinKey, MaxKey []byte
}

// Stats gathers the statistics from segment metadata and sketches; of segments
// that it has not seen before the sketches are read.
func (s *Snapshot) Stats() Stats {
	table := s.tablet.Table()
	out := Stats{Rows: s.Rows(), Segments: len(s.segments()), Columns: make([]ColumnStats, len(table.Columns))}
	distinct := s.distinct()
	for c := range table.Columns {
		col := &out.Columns[c]
		id := table.ColumnID(c)
		var z zone
		known := true
		for _, seg := range s.segments() {
			at := seg.meta.find(id)
			if at < 0 {
				known = false
				continue
			}
			m := &seg.meta.columns[at]
			col.Nulls += uint64(m.nulls)
			col.Bytes += uint64(m.chunk.size)
			if m.nulls == seg.meta.rows {
				continue
			}
			known = known && len(m.zone.min) > 0
			if len(z.min) == 0 {
				z = m.zone
				continue
			}
			z.extend(&m.zone)
		}
		if known {
			col.Min, col.Max = z.values(table.Columns[c])
			col.MinKey, col.MaxKey = encodedBound(table.Columns[c], col.Min), encodedBound(table.Columns[c], col.Max)
		}
		col.Distinct = min(distinct[id], out.Rows)
		out.Bytes += col.Bytes
	}
	return out
}

// encodedBound is a bound as a key, empty for none.
func encodedBound(c catalog.Column, value any) []byte {
	if value == nil {
		return nil
	}
	key, err := catalog.AppendKeyValue(nil, c.Type, value)
	if err != nil {
		return nil // an unknown bound does no harm
	}
	return key
}

// sketches is the union of the sketches of segments. Sketches cannot be
// subtracted, so those of replaced segments stay in until it is built anew.
type sketches struct {
	mu       sync.Mutex
	instance uint64
	seen     map[uint64]bool
	columns  map[int]*sketch // by column id
}

// distinct estimates the different values by column id.
func (s *Snapshot) distinct() map[int]uint64 {
	k := &s.tablet.sketches
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.instance != s.view.instance || len(k.seen) > 2*len(s.segments())+64 {
		k.instance, k.seen, k.columns = s.view.instance, make(map[uint64]bool), make(map[int]*sketch)
	}
	r := s.chunks(nil, s.tablet.Table())
	for _, seg := range s.segments() {
		if k.seen[seg.id] || seg.meta.sketch.size == 0 {
			continue
		}
		if err := k.add(r, seg); err != nil {
			// The planner does without; a scan will report damaged data.
			s.tablet.store.log.Warn("reading the sketches of a segment failed", "tablet", uint64(s.tablet.id), "segment", seg.id, "error", err)
		}
		k.seen[seg.id] = true
	}
	out := make(map[int]uint64, len(k.columns))
	for id, sk := range k.columns {
		out[id] = sk.estimate()
	}
	return out
}

func (k *sketches) add(r *chunkReader, seg *segmentRef) error {
	err := r.withChunk(seg.id, seg.meta, seg.meta.sketch, func(src []byte) error {
		return readSketches(src, len(seg.meta.columns), func(c int, s *sketch) {
			if s == nil {
				return
			}
			id := seg.meta.columns[c].id
			if k.columns[id] == nil {
				k.columns[id] = &sketch{}
			}
			k.columns[id].merge(s)
		})
	})
	if err != nil {
		return fmt.Errorf("reading sketches: %w", err)
	}
	return nil
}
