package storage

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/columnar"
)

// chunkReader reads decoded chunks of one tablet state through the cache.
type chunkReader struct {
	store    *Store
	table    *catalog.Table // whose column ordinals are asked for
	tablet   catalog.TabletID
	space    *space
	instance uint64
	read     keyReader
	// defaultOf is ScanOptions.DefaultOf.
	defaultOf func(column int) *columnar.Vector
}

// keyReader passes the value of a database key to read, which must not keep it.
type keyReader func(key []byte, read func([]byte) error) error

// column returns a whole column of a segment; it is immutable.
func (r *chunkReader) column(id uint64, meta *segmentMeta, col int) (*columnar.Vector, error) {
	v, _, err := r.columnFor(id, meta, col, false)
	return v, err
}

// columnFor is column for a scan, which is larger than the cache or not. It
// returns the column's size unless the cache keeps it.
func (r *chunkReader) columnFor(id uint64, meta *segmentMeta, col int, large bool) (*columnar.Vector, int64, error) {
	at := meta.find(r.table.ColumnID(col))
	if at < 0 {
		v, err := r.missing(col, meta.rows)
		return v, 0, err
	}
	v, unkept, err := r.store.cache.getFor(chunkKey{r.instance, id, int32(at)}, large, func() (any, int64, error) {
		v, err := r.decodeColumn(id, meta, col)
		if err != nil {
			return nil, 0, err
		}
		return v, vectorSize(v), nil
	})
	if err != nil {
		return nil, 0, err
	}
	return v.(*columnar.Vector), unkept, nil
}

// decodeColumn is column without the cache.
func (r *chunkReader) decodeColumn(id uint64, meta *segmentMeta, col int) (v *columnar.Vector, err error) {
	c := &r.table.Columns[col]
	at := meta.find(r.table.ColumnID(col))
	if at < 0 {
		return r.missing(col, meta.rows)
	}
	err = r.withChunk(id, meta, meta.columns[at].chunk, func(src []byte) error {
		v, err = decodeChunk(catalog.PhysicalType(c.Type), meta.rows, src)
		return err
	})
	if err != nil {
		return nil, r.failed(id, fmt.Sprintf("column %q", c.Name), err)
	}
	return v, nil
}

// decodeColumns is decodeColumn for several. A small segment is looked up once
// for all of them.
func (r *chunkReader) decodeColumns(id uint64, meta *segmentMeta, ordinals []int) ([]*columnar.Vector, error) {
	cols := make([]*columnar.Vector, len(ordinals))
	if meta.parts > 1 {
		for i, col := range ordinals {
			var err error
			if cols[i], err = r.decodeColumn(id, meta, col); err != nil {
				return nil, err
			}
		}
		return cols, nil
	}
	var failed error
	err := r.read(r.space.key(partKey(id, 0)), func(part []byte) error {
		once := *r
		once.read = func(_ []byte, read func([]byte) error) error { return read(part) }
		for i, col := range ordinals {
			if cols[i], failed = once.decodeColumn(id, meta, col); failed != nil {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, r.failed(id, "its only part", err)
	}
	return cols, failed
}

// columnRange returns the rows [from, to) of a column. Unless the column is in
// the cache it decodes no more than it must, and keeps nothing.
func (r *chunkReader) columnRange(id uint64, meta *segmentMeta, col, from, to int) (*columnar.Vector, error) {
	at := meta.find(r.table.ColumnID(col))
	if at < 0 {
		return r.missing(col, to-from)
	}
	if v, ok := r.store.cache.peek(chunkKey{r.instance, id, int32(at)}); ok {
		return v.(*columnar.Vector).Slice(from, to), nil
	}
	c := &r.table.Columns[col]
	m := &meta.columns[at]
	dt := catalog.PhysicalType(c.Type)
	var v *columnar.Vector
	err := r.withBytes(id, meta, m.chunk, &m.verified, func(chunk *chunkBytes) (err error) {
		v, err = decodeRange(dt, meta.rows, chunk, from, to, func(at2, entries int) (*columnar.Vector, error) {
			return r.dictionary(chunkKey{r.instance, id, int32(at) | chunkDictionary}, dt, chunk, at2, entries)
		})
		return err
	})
	if err != nil {
		return nil, r.failed(id, fmt.Sprintf("column %q", c.Name), err)
	}
	if v != nil {
		return v, nil
	}
	if v, err = r.column(id, meta, col); err != nil {
		return nil, err
	}
	return v.Slice(from, to), nil
}

// dictionary returns the decoded dictionary of a chunk, which starts at a
// position in it.
func (r *chunkReader) dictionary(k chunkKey, dt arrow.DataType, chunk *chunkBytes, at, entries int) (*columnar.Vector, error) {
	v, err := r.store.cache.get(k, func() (any, int64, error) {
		v, err := decodeDictionary(dt, chunk, at, entries)
		if err != nil {
			return nil, 0, err
		}
		return v, vectorSize(v), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*columnar.Vector), nil
}

// missing is a column of a segment that is older than the column.
func (r *chunkReader) missing(col, rows int) (*columnar.Vector, error) {
	c := &r.table.Columns[col]
	dt := catalog.PhysicalType(c.Type)
	var v *columnar.Vector
	if r.defaultOf != nil {
		v = r.defaultOf(col)
	}
	if v == nil {
		return columnar.NewNull(dt, rows), nil
	}
	if !v.Const || !arrow.TypeEqual(v.Type, dt) {
		return nil, fmt.Errorf("the default of column %q is not a constant of type %s", c.Name, dt)
	}
	out := *v
	out.Len = rows
	return &out, nil
}

// keyIndex returns the decoded key index of a segment.
func (r *chunkReader) keyIndex(id uint64, meta *segmentMeta) (*keyIndex, error) {
	x, err := r.store.cache.get(chunkKey{r.instance, id, chunkKeyIndex}, func() (any, int64, error) {
		var x *keyIndex
		err := r.withChunk(id, meta, meta.key.chunk, func(src []byte) (err error) {
			x, err = decodeKeyIndex(meta, src)
			return err
		})
		if err != nil {
			return nil, 0, r.failed(id, "the key index", err)
		}
		return x, int64(x.size()), nil
	})
	if err != nil {
		return nil, err
	}
	return x.(*keyIndex), nil
}

// sortedKeys returns the keys of a segment in order.
func (r *chunkReader) sortedKeys(id uint64, meta *segmentMeta) (*sortedKeys, error) {
	k, err := r.store.cache.get(chunkKey{r.instance, id, chunkSortedKeys}, func() (any, int64, error) {
		index, err := r.keyIndex(id, meta)
		if err != nil {
			return nil, 0, err
		}
		cols := make([]*columnar.Vector, len(r.table.PrimaryKey))
		for i, c := range r.table.PrimaryKey {
			if cols[i], err = r.column(id, meta, c); err != nil {
				return nil, 0, err
			}
		}
		keys := catalog.EncodeKeys(cols, meta.rows)
		return &sortedKeys{keys: keys, perm: index.perm}, int64(keys.Size() + 4*len(index.perm)), nil
	})
	if err != nil {
		return nil, err
	}
	return k.(*sortedKeys), nil
}

// failed classifies what went wrong while reading part of a segment.
func (r *chunkReader) failed(id uint64, what string, err error) error {
	if errors.Is(err, badger.ErrDBClosed) || errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return corrupted(r.tablet, id, what, err)
}

// withBytes passes the bytes of a chunk as the database holds them to use. They
// are checked the first time, which verified remembers.
func (r *chunkReader) withBytes(id uint64, meta *segmentMeta, c chunkRef, verified *atomic.Bool, use func(*chunkBytes) error) error {
	return r.pieces(id, meta, c, int(c.part), &chunkBytes{}, func(chunk *chunkBytes) error {
		if !verified.Load() {
			if chunk.sum() != c.sum {
				return errChecksum
			}
			verified.Store(true)
		}
		return use(chunk)
	})
}

// pieces collects a chunk's pieces from a part on. Calls nest, so that all of
// them stay valid.
func (r *chunkReader) pieces(id uint64, meta *segmentMeta, c chunkRef, part int, chunk *chunkBytes, use func(*chunkBytes) error) error {
	if part >= meta.parts {
		return errShort
	}
	return r.read(r.space.key(partKey(id, part)), func(value []byte) error {
		if part == int(c.part) {
			offset := uint64(c.offset)
			if part == 0 {
				offset += uint64(meta.head)
			}
			if offset > uint64(len(value)) {
				return errShort
			}
			value = value[offset:]
		}
		chunk.add(value[:min(len(value), int(c.size)-chunk.size)])
		if chunk.size == int(c.size) {
			return use(chunk)
		}
		return r.pieces(id, meta, c, part+1, chunk, use)
	})
}

// withChunk passes the bytes of a chunk, checked, to use, which must not keep
// them: they lie in the database's memory unless the chunk spans parts.
func (r *chunkReader) withChunk(id uint64, meta *segmentMeta, c chunkRef, use func([]byte) error) error {
	return r.pieces(id, meta, c, int(c.part), &chunkBytes{}, func(chunk *chunkBytes) error {
		if chunk.sum() != c.sum {
			return errChecksum
		}
		whole, err := chunk.slice(0, chunk.size)
		if err != nil {
			return err
		}
		return use(whole)
	})
}
