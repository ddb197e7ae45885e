package storage

import (
	"bytes"
	"fmt"
	"math/bits"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// keyProbe is a primary key to look up.
type keyProbe struct {
	key  []byte
	hash uint64
}

// keyLookup finds a key in a segment by reading single values where the
// database holds them: nothing is decoded but what is compared.
type keyLookup struct {
	r       *chunkReader
	seg     uint64
	meta    *segmentMeta
	index   *chunkBytes
	perm    packedView // of segments that are not in key order
	columns []keyColumn
	buf     []byte
}

// keyColumn reads single values of one key column.
type keyColumn struct {
	encoding encoding
	packed   packedView
	plain    *chunkBytes
	dict     *columnar.Vector
	word     [2]uint64 // the value
	one      columnar.Vector
	cols     [1]*columnar.Vector
	window   *frameWindow // for encodings that are decoded by frames
}

// keyRows returns the rows of a segment that have a primary key, ascending:
// compaction may have brought several versions of a row together.
func (r *chunkReader) keyRows(id uint64, meta *segmentMeta, probe *keyProbe) ([]int, error) {
	k := meta.key
	if bytes.Compare(probe.key, k.min) < 0 || bytes.Compare(probe.key, k.max) > 0 {
		return nil, nil
	}
	if meta.rows == 1 {
		return []int{0}, nil
	}
	if v, ok := r.store.cache.peek(chunkKey{r.instance, id, chunkSortedKeys}); ok {
		return v.(*sortedKeys).rows(probe.key), nil
	}
	l := &keyLookup{r: r, seg: id, meta: meta}
	var rows []int
	err := r.withBytes(id, meta, k.chunk, &k.verified, func(index *chunkBytes) error {
		may, at, err := bloomMayContain(index, probe.hash)
		if err != nil || !may {
			return err
		}
		l.index = index
		if !k.sorted {
			if err := l.perm.reset(index, at, meta.rows); err != nil {
				return err
			}
		}
		l.columns = make([]keyColumn, len(r.table.PrimaryKey))
		return l.open(0, func() (err error) {
			rows, err = l.find(probe.key)
			return err
		})
	})
	return rows, r.named(id, "the key index", err)
}

// bloomMayContain asks the filter of an encoded key index and returns where it
// ends.
func bloomMayContain(index *chunkBytes, hash uint64) (may bool, end int, err error) {
	blocks, err := index.uint32(0)
	if err != nil {
		return false, 0, err
	}
	end = 4 + int(blocks)*bloomBlock
	if blocks == 0 {
		return true, end, nil
	}
	hi, _ := bits.Mul64(hash, uint64(blocks))
	block, err := index.slice(4+int(hi)*bloomBlock, 4+int(hi+1)*bloomBlock)
	if err != nil {
		return false, 0, err
	}
	return bloomHas(block, hash), end, nil
}

// open prepares the key columns from one on and calls use; calls nest, as the
// bytes are valid only so long.
func (l *keyLookup) open(k int, use func() error) error {
	if k == len(l.columns) {
		return use()
	}
	col := l.r.table.PrimaryKey[k]
	at := l.meta.find(l.r.table.ColumnID(col))
	m := &l.meta.columns[at]
	err := l.r.withBytes(l.seg, l.meta, m.chunk, &m.verified, func(chunk *chunkBytes) error {
		if err := l.columns[k].init(l, col, int32(at), chunk); err != nil {
			return err
		}
		return l.open(k+1, use)
	})
	return l.r.named(l.seg, fmt.Sprintf("column %q", l.r.table.Columns[col].Name), err)
}

// named is failed for errors that do not name yet what is damaged; nil stays nil.
func (r *chunkReader) named(id uint64, what string, err error) error {
	if err == nil || sqlstate.CodeOf(err) == sqlstate.DataCorrupted {
		return err
	}
	return r.failed(id, what, err)
}

func (c *keyColumn) init(l *keyLookup, col int, at int32, chunk *chunkBytes) (err error) {
	head, err := chunk.slice(0, 2)
	if err != nil {
		return err
	}
	dt := catalog.PhysicalType(l.r.table.Columns[col].Type)
	rows := l.meta.rows
	c.encoding = encoding(head[0])
	c.one = columnar.Vector{Type: dt, Len: 1}
	c.cols[0] = &c.one
	w := columnar.Width(dt)
	switch {
	case head[1]&flagHasNulls != 0:
		return fmt.Errorf("a key column with nulls")
	case c.encoding == encPacked && w <= 8:
		c.one.Data = columnar.Bytes(c.word[:])[:w]
		return c.packed.reset(chunk, 2, rows)
	case c.encoding == encPlain && head[1]&flagCompressed == 0 && w > 0 && w <= 16:
		if chunk.size != 2+rows*w {
			return fmt.Errorf("%d values of %d bytes in %d bytes", rows, w, chunk.size-2)
		}
		c.plain, c.one.Data = chunk, columnar.Bytes(c.word[:])[:w]
		return nil
	case c.encoding == encDict && w == 0:
		return c.initDict(l, at, dt, chunk)
	case c.encoding == encConst:
		body, err := chunk.slice(2, chunk.size)
		if err != nil {
			return err
		}
		v, err := decodeConst(dt, 1, body)
		if err == nil {
			c.one = *v
		}
		return err
	}
	c.window = &frameWindow{reader: l.r, segment: l.seg, meta: l.meta, column: col}
	return nil
}

func (c *keyColumn) initDict(l *keyLookup, at int32, dt arrow.DataType, chunk *chunkBytes) error {
	n, err := chunk.uint32(2)
	if err != nil {
		return err
	}
	if n == 0 || n > maxDictionary {
		return fmt.Errorf("dictionary of %d entries of type %s", n, dt)
	}
	if err := c.packed.reset(chunk, 6, l.meta.rows); err != nil {
		return err
	}
	c.dict, err = l.r.dictionary(chunkKey{l.r.instance, l.seg, at | chunkDictionary}, dt, chunk, c.packed.end(), int(n))
	return err
}

// appendKey appends the key of a row's value.
func (c *keyColumn) appendKey(dst []byte, row int) ([]byte, error) {
	switch {
	case c.window != nil:
		dst = c.window.appendKey(dst, row)
		return dst, c.window.err
	case c.encoding == encPlain:
		w := len(c.one.Data)
		b, err := c.plain.slice(2+row*w, 2+row*w+w)
		if err != nil {
			return nil, err
		}
		copy(c.one.Data, b)
	case c.encoding == encPacked:
		x, err := c.packed.at(row)
		if err != nil {
			return nil, err
		}
		c.word[0] = uint64(x) // little endian: the low bytes are the value
	case c.encoding == encDict:
		x, err := c.packed.at(row)
		if err != nil {
			return nil, err
		}
		if x < 0 || int(x) >= c.dict.Len {
			return nil, fmt.Errorf("code %d of a dictionary of %d", x, c.dict.Len)
		}
		c.cols[0] = c.dict
		return catalog.AppendKey(dst, c.cols[:], int(x)), nil
	}
	return catalog.AppendKey(dst, c.cols[:], 0), nil
}

// at returns the row at a position in key order and compares its key.
func (l *keyLookup) at(i int, key []byte) (row, order int, err error) {
	row = i
	if !l.meta.key.sorted {
		p, err := l.perm.at(i)
		if err != nil {
			return 0, 0, err
		}
		if row = int(p); p < 0 || row >= l.meta.rows {
			return 0, 0, fmt.Errorf("key index: row %d of %d", p, l.meta.rows)
		}
	}
	l.buf = l.buf[:0]
	for k := range l.columns {
		from := len(l.buf)
		if l.buf, err = l.columns[k].appendKey(l.buf, row); err != nil {
			return 0, 0, err
		}
		// Keys are prefix-free, so what has differed so far decides.
		part := l.buf[from:]
		rest := key[min(from, len(key)):]
		if c := bytes.Compare(part, rest[:min(len(part), len(rest))]); c != 0 {
			return row, c, nil
		}
	}
	return row, bytes.Compare(l.buf, key), nil
}

func (l *keyLookup) find(key []byte) (rows []int, err error) {
	lo, hi := 0, l.meta.rows
	if l.meta.key.sorted {
		lo, hi = l.r.blockOf(l.meta, key)
	}
	i := lo + sort.Search(hi-lo, func(i int) bool {
		_, order, failed := l.at(lo+i, key)
		if failed != nil {
			err = failed
		}
		return order >= 0
	})
	for ; i < l.meta.rows && err == nil; i++ {
		row, order, failed := l.at(i, key)
		if failed != nil || order != 0 {
			return rows, failed
		}
		rows = append(rows, row)
	}
	return rows, err
}

// blockOf bounds, by the block zones of the first key column, where the first
// row with a key at or above the given one can be in a segment in key order.
func (r *chunkReader) blockOf(m *segmentMeta, key []byte) (lo, hi int) {
	at := m.find(r.table.ColumnID(r.table.PrimaryKey[0]))
	c := &m.columns[at]
	if len(c.blocks) == 0 {
		return 0, m.rows
	}
	dt := r.table.Columns[r.table.PrimaryKey[0]].Type
	word, side := c.blockWord(dt, leadingKey(dt, key))
	switch {
	case side < 0:
		return 0, 0
	case side > 0:
		return m.rows, m.rows
	}
	first := sort.Search(len(c.blocks), func(i int) bool { return c.blocks[i].max >= word })
	last := sort.Search(len(c.blocks), func(i int) bool { return c.blocks[i].min > word })
	return min(first*blockRows, m.rows), min(last*blockRows, m.rows)
}

// rows returns the rows of a key.
func (s *sortedKeys) rows(key []byte) []int {
	var rows []int
	for i := s.search(key); i < s.keys.Len(); i++ {
		k, row := s.at(i)
		if !bytes.Equal(k, key) {
			break
		}
		rows = append(rows, row)
	}
	return rows
}
