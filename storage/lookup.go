package storage

import (
	"bytes"
	"sort"
)

// keyRows returns the rows of a segment that have a primary key, ascending:
// compaction may have brought several versions of a row together.
func (r *chunkReader) keyRows(seg *segmentRef, index *keyIndex, key []byte) ([]int, error) {
	if v, ok := r.store.cache.peek(chunkKey{r.instance, seg.id, chunkSortedKeys}); ok {
		return v.(*sortedKeys).rows(key), nil
	}
	windows := make([]frameWindow, len(r.table.PrimaryKey))
	for i, c := range r.table.PrimaryKey {
		windows[i] = frameWindow{reader: r, seg: seg, column: c}
	}
	var failed error
	var buf []byte
	at := func(i int) (row int, k []byte) {
		row = i
		if index.perm != nil {
			row = int(index.perm[i])
		}
		buf = buf[:0]
		for w := range windows {
			buf = windows[w].appendKey(buf, row)
			if windows[w].err != nil {
				failed = windows[w].err
			}
		}
		return row, buf
	}
	lo, hi := 0, seg.meta.rows
	if index.perm == nil {
		lo, hi = r.blockOf(seg.meta, key)
	}
	i := lo + sort.Search(hi-lo, func(i int) bool {
		_, k := at(lo + i)
		return bytes.Compare(k, key) >= 0
	})
	var rows []int
	for ; i < seg.meta.rows && failed == nil; i++ {
		row, k := at(i)
		if !bytes.Equal(k, key) {
			break
		}
		rows = append(rows, row)
	}
	return rows, failed
}

// blockOf bounds, by the block zones of the first key column, where the first
// row with a key at or above the given one can be in a segment in key order.
func (r *chunkReader) blockOf(m *segmentMeta, key []byte) (lo, hi int) {
	at := m.find(r.table.ColumnID(r.table.PrimaryKey[0]))
	zones := m.columns[at].blocks
	if len(zones) == 0 || len(key) < 9 {
		return 0, m.rows
	}
	word, _ := keyWord(key[:9])
	first := sort.Search(len(zones), func(i int) bool { return zones[i].max >= word })
	last := sort.Search(len(zones), func(i int) bool { return zones[i].min > word })
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
