package storage

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// midpointKeys is about how many keys of a tablet are looked at for the one in
// the middle.
const midpointKeys = 1 << 16

// Midpoint finds where a tablet of a table is to be divided so that both halves
// get about as many rows: the bucket, or an existing key, from which on the upper
// half begins. SQLSTATE 0A000 says that it cannot be divided.
func (t *Tablet) Midpoint(ctx context.Context, table *catalog.Table, tablet *catalog.Tablet) (*catalog.Splitter, error) {
	at := &catalog.Splitter{Columns: table.PartitionIDs(), Buckets: table.Partitioning.Buckets}
	switch {
	case len(at.Columns) == 0:
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "table %s has neither partition columns nor a primary key by which tablet %d could be divided",
			table.QualifiedName(), t.id)
	case at.Buckets > 0 && tablet.BucketHigh-tablet.BucketLow < 2:
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "tablet %d of table %s owns one hash bucket, which cannot be divided", t.id, table.QualifiedName()).
			WithHint("create the table with more buckets")
	}
	v := t.pinView()
	defer t.unpin(v)
	m := midpoint{tablet: t, view: v, table: table, at: at}
	if at.Buckets > 0 {
		return m.bucket(ctx, tablet)
	}
	return m.key(ctx, tablet)
}

type midpoint struct {
	tablet *Tablet
	view   *view
	table  *catalog.Table
	at     *catalog.Splitter
}

// each passes the partition keys of every stride-th row that lives to visit.
func (m *midpoint) each(ctx context.Context, stride int, visit func(key []byte)) error {
	r := &chunkReader{
		store: m.tablet.store, table: m.table, tablet: m.tablet.id, space: m.view.space, instance: m.view.instance, read: m.tablet.store.view,
	}
	at := 0
	for _, seg := range m.view.manifest {
		if seg.live() == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		cols := make([]*columnar.Vector, len(m.at.Columns))
		for i, id := range m.at.Columns {
			v, err := r.decodeColumn(seg.id, seg.meta, m.table.ColumnByID(id))
			if err != nil {
				return err
			}
			if cols[i], err = v.Flatten(); err != nil {
				return err
			}
		}
		keys := catalog.EncodeKeys(cols, seg.meta.rows)
		for row := range seg.meta.rows {
			if _, dead := seg.deletes.at(row); dead {
				continue
			}
			if at%stride == 0 {
				visit(keys.Key(row))
			}
			at++
		}
	}
	return nil
}

func (m *midpoint) bucket(ctx context.Context, tablet *catalog.Tablet) (*catalog.Splitter, error) {
	counts, total := make([]uint64, tablet.BucketHigh-tablet.BucketLow), uint64(0)
	err := m.each(ctx, 1, func(key []byte) {
		if b := catalog.HashBucket(key, m.at.Buckets); b >= tablet.BucketLow && b < tablet.BucketHigh {
			counts[b-tablet.BucketLow]++
			total++
		}
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the middle of tablet %d: %w", m.tablet.id, err)
	}
	m.at.Bucket = tablet.BucketLow + uint32(len(counts)/2)
	below, best := uint64(0), total+1
	for i := 1; total > 0 && i < len(counts); i++ {
		below += counts[i-1]
		if larger := max(below, total-below); larger < best {
			best, m.at.Bucket = larger, tablet.BucketLow+uint32(i)
		}
	}
	return m.at, nil
}

func (m *midpoint) key(ctx context.Context, tablet *catalog.Tablet) (*catalog.Splitter, error) {
	var keys [][]byte
	stride := int(m.view.rows/midpointKeys) + 1
	if err := m.each(ctx, stride, func(key []byte) { keys = append(keys, bytes.Clone(key)) }); err != nil {
		return nil, fmt.Errorf("looking for the middle of tablet %d: %w", m.tablet.id, err)
	}
	slices.SortFunc(keys, bytes.Compare)
	// The middle one, or the nearest that leaves keys below itself.
	for i := len(keys) / 2; i < len(keys); i++ {
		if bytes.Compare(keys[i], keys[0]) > 0 {
			m.at.Key = keys[i]
			break
		}
	}
	if m.at.Key == nil || bytes.Compare(m.at.Key, tablet.KeyLow) <= 0 {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "tablet %d of table %s has no two different partition keys to be divided between",
			m.tablet.id, m.table.QualifiedName())
	}
	return m.at, nil
}
