package storage

import (
	"context"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
)

// Verify reads all that the tablet holds from disk, past the cache, and compares
// it with its checksums: records, metadata, columns, key indexes and sketches.
// pace is called with the bytes that were read since the last call; it may wait,
// and its error ends the work. An error with SQLSTATE XX001 names the tablet,
// the segment and the column that is damaged. Readers and writers go on.
func (t *Tablet) Verify(ctx context.Context, pace func(ctx context.Context, bytes int) error) error {
	if err := t.failure(); err != nil {
		return err
	}
	t.pinMu.Lock()
	v := t.view.Load()
	t.pins[v.seq]++
	t.pinMu.Unlock()
	pin := &Snapshot{tablet: t, view: v}
	defer pin.Release()
	// One transaction per segment: a long one would keep old values alive.
	err := t.store.db.View(func(txn *badger.Txn) error {
		if _, err := readState(txn, v.space); err != nil {
			return err
		}
		err := v.space.scan(txn, []byte{keyDeletes}, func(_, value []byte) error {
			return readDeletePages(value, map[int]*deletePage{})
		})
		if err != nil {
			return damagedRecords(v.space, "the delete marks", err)
		}
		return nil
	})
	if err != nil {
		return t.verifyFailed(err)
	}
	for _, seg := range v.manifest {
		err := t.store.db.View(func(txn *badger.Txn) error {
			return verifySegment(txn, v.space, t.Table(), seg.id)
		})
		if err != nil {
			return t.verifyFailed(err)
		}
		if err := pace(ctx, seg.meta.head+seg.meta.bytes); err != nil {
			return err
		}
	}
	return nil
}

// verifyFailed prefers the reason of a tablet that was closed meanwhile.
func (t *Tablet) verifyFailed(err error) error {
	if stopped := t.failure(); stopped != nil {
		return stopped
	}
	return fmt.Errorf("verifying: %w", err)
}

// verify compares all committed segments of a pinned state with their checksums.
func (s *TabletSnapshot) verify() error {
	st, err := readState(s.txn, s.space)
	if err != nil {
		return err
	}
	for _, seg := range st.manifest {
		if err := verifySegment(s.txn, s.space, s.tablet.Table(), seg.id); err != nil {
			return err
		}
	}
	return nil
}

// verifySegment reads a segment's metadata and chunks and checks their sums.
func verifySegment(txn *badger.Txn, sp *space, table *catalog.Table, id uint64) error {
	read := func(key []byte, read func([]byte) error) error {
		empty := false
		err := viewItem(txn, key, &empty, read)
		if err == nil && empty {
			return sp.store.view(key, read)
		}
		return err
	}
	r := &chunkReader{store: sp.store, table: table, tablet: catalog.TabletID(sp.id), space: sp, read: read}
	var meta *segmentMeta
	err := read(sp.key(partKey(id, 0)), func(part []byte) (err error) {
		meta, err = decodeSegmentMeta(part)
		return err
	})
	if err != nil {
		return r.failed(id, "metadata", err)
	}
	nothing := func([]byte) error { return nil }
	for i := range meta.columns {
		if err := r.withChunk(id, meta, meta.columns[i].chunk, nothing); err != nil {
			return r.failed(id, columnName(table, meta.columns[i].id), err)
		}
	}
	if meta.key != nil {
		if err := r.withChunk(id, meta, meta.key.chunk, nothing); err != nil {
			return r.failed(id, "the key index", err)
		}
	}
	if meta.sketch.size > 0 {
		if err := r.withChunk(id, meta, meta.sketch, nothing); err != nil {
			return r.failed(id, "the set of sketches", err)
		}
	}
	return nil
}

func columnName(table *catalog.Table, id int) string {
	if at := table.ColumnByID(id); at >= 0 {
		return fmt.Sprintf("column %q", table.Columns[at].Name)
	}
	return fmt.Sprintf("column with id %d", id)
}
