package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"

	"skein/catalog"
)

// The key index of a segment answers whether, and in which row, a primary key
// occurs. Its chunk holds a blocked Bloom filter and, unless the rows are
// sorted by key, the permutation that sorts them; the keys themselves are
// re-encoded from the key columns when they are needed.
//
//	blocks       4 bytes: Bloom blocks of 64 bytes
//	bloom        blocks * 64 bytes
//	permutation  packed row numbers in key order, absent when sorted

const (
	bloomBlock   = 64 // bytes: one cache line answers a probe
	bloomPerKey  = 10 // bits
	bloomProbes  = 6
	bloomMinRows = 64 // smaller segments have no filter
)

// buildKeyIndex appends the chunk for the keys of a segment's rows in row order
// and returns its metadata.
func buildKeyIndex(dst []byte, keys *catalog.Keys) (*keyMeta, []byte) {
	m := &keyMeta{sorted: true}
	n := keys.Len()
	for i := 1; i < n; i++ {
		if bytes.Compare(keys.Key(i-1), keys.Key(i)) >= 0 {
			m.sorted = false
			break
		}
	}
	var perm []int32
	first, last := 0, n-1
	if !m.sorted {
		perm = sortKeys(keys)
		first, last = int(perm[0]), int(perm[n-1])
		for i := 1; i < n; i++ {
			if bytes.Equal(keys.Key(int(perm[i-1])), keys.Key(int(perm[i]))) {
				m.dup = bytes.Clone(keys.Key(int(perm[i])))
				break
			}
		}
	}
	m.min, m.max = bytes.Clone(keys.Key(first)), bytes.Clone(keys.Key(last))
	dst = appendBloom(dst, keys)
	if perm != nil {
		dst = appendPacked(dst, perm)
	}
	return m, dst
}

// sortKeys returns the rows in key order, equal keys in row order.
func sortKeys(keys *catalog.Keys) []int32 {
	type entry struct {
		prefix uint64 // of the key, after the first tag
		row    int32
	}
	entries := make([]entry, keys.Len())
	for i := range entries {
		entries[i] = entry{keyPrefix(keys.Key(i)), int32(i)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		if c := bytes.Compare(keys.Key(int(a.row)), keys.Key(int(b.row))); c != 0 {
			return c
		}
		return int(a.row - b.row)
	})
	perm := make([]int32, len(entries))
	for i, e := range entries {
		perm[i] = e.row
	}
	return perm
}

// keyPrefix packs the bytes after a key's first tag, which is the same for all
// keys as key columns hold no nulls.
func keyPrefix(key []byte) uint64 {
	key = key[1:]
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func appendBloom(dst []byte, keys *catalog.Keys) []byte {
	n := keys.Len()
	blocks := 0
	if n >= bloomMinRows {
		blocks = (n*bloomPerKey + bloomBlock*8 - 1) / (bloomBlock * 8)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(blocks))
	at := len(dst)
	dst = append(dst, make([]byte, blocks*bloomBlock)...)
	if blocks == 0 {
		return dst
	}
	filter := dst[at:]
	for i := range n {
		h := xxhash.Sum64(keys.Key(i))
		block := bloomAt(filter, h)
		for range bloomProbes {
			h = bits.RotateLeft64(h, 9)
			block[h>>3&63] |= 1 << (h & 7)
		}
	}
	return dst
}

// bloomAt returns the block of a hash; the hash's high bits choose it.
func bloomAt(filter []byte, h uint64) []byte {
	hi, _ := bits.Mul64(h, uint64(len(filter)/bloomBlock))
	return filter[hi*bloomBlock : hi*bloomBlock+bloomBlock]
}

// keyIndex is a decoded key index.
type keyIndex struct {
	bloom []byte
	perm  []int32 // nil when the rows are sorted
}

func decodeKeyIndex(m *segmentMeta, src []byte) (*keyIndex, error) {
	r := &reader{b: src}
	blocks := r.uint32()
	x := &keyIndex{bloom: bytes.Clone(r.take(uint64(blocks) * bloomBlock))}
	if r.err != nil {
		return nil, fmt.Errorf("key index: %w", r.err)
	}
	if m.key.sorted {
		return x, r.done()
	}
	perm, rest, err := unpackNew[int32](m.rows, r.b)
	if err != nil {
		return nil, fmt.Errorf("key index: %w", err)
	}
	for _, row := range perm {
		if row < 0 || int(row) >= m.rows {
			return nil, fmt.Errorf("key index: row %d of %d", row, m.rows)
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("key index: %d bytes too many", len(rest))
	}
	x.perm = perm
	return x, nil
}

// mayContain is false only for keys that do not occur.
func (x *keyIndex) mayContain(hash uint64) bool {
	if len(x.bloom) == 0 {
		return true
	}
	return bloomHas(bloomAt(x.bloom, hash), hash)
}

// bloomHas asks the block of a hash.
func bloomHas(block []byte, hash uint64) bool {
	for range bloomProbes {
		hash = bits.RotateLeft64(hash, 9)
		if block[hash>>3&63]&(1<<(hash&7)) == 0 {
			return false
		}
	}
	return true
}

func (x *keyIndex) size() int { return len(x.bloom) + 4*len(x.perm) }

// sortedKeys is the keys of a segment with their order.
type sortedKeys struct {
	keys *catalog.Keys
	perm []int32 // nil when sorted
}

// at returns the i-th smallest key and its row.
func (s *sortedKeys) at(i int) (key []byte, row int) {
	row = i
	if s.perm != nil {
		row = int(s.perm[i])
	}
	return s.keys.Key(row), row
}

// search returns how many keys are below key.
func (s *sortedKeys) search(key []byte) int {
	return sort.Search(s.keys.Len(), func(i int) bool {
		k, _ := s.at(i)
		return bytes.Compare(k, key) >= 0
	})
}

// span returns the positions [first, last) of the keys from lo to hi.
func (s *sortedKeys) span(lo, hi []byte) (first, last int) {
	n := s.keys.Len()
	first = s.search(lo)
	last = sort.Search(n, func(i int) bool {
		k, _ := s.at(i)
		return bytes.Compare(k, hi) > 0
	})
	return first, last
}
