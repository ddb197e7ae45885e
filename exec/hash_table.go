package exec

import (
	"bytes"
	"math"

	"skein/sqlstate"
)

// keyTable maps keys to dense ids in the order of their arrival.
type keyTable interface {
	// reserve makes room for all rows that k has encoded to be new keys, or
	// fails and leaves the table as it was.
	reserve(k *keyCoder) error
	// upsert writes the id of each encoded row's key to ids and appends to
	// fresh the positions of the rows that brought a new key. Room must have
	// been reserved.
	upsert(k *keyCoder, ids, fresh []int32) []int32
	// find writes the id of each encoded row's key to ids, -1 for unknown
	// keys. Several goroutines may call it, each with its own coder.
	find(k *keyCoder, ids []int32)
	// len is the number of keys.
	len() int
	// reset forgets the keys and frees the memory.
	reset()
	// clear forgets the keys and keeps the memory.
	clear()
}

func newKeyTable(shape keyShape, acct *Account) keyTable {
	switch shape {
	case wordShape:
		return &wordTable{acct: acct, nullID: -1}
	case wideShape:
		return &wideTable{acct: acct}
	}
	return &bytesTable{acct: acct, nullID: -1}
}

// slotCount is the size of an open-addressing table of n keys: a power of two
// that they fill by at most 5/8.
func slotCount(n int) int {
	size := 64
	for size*5 < n*8 {
		size *= 2
	}
	return size
}

func checkKeyCount(n int) error {
	if n >= math.MaxInt32 {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a hash table of more than %d keys is not supported", math.MaxInt32)
	}
	return nil
}

// wordTable holds keys of wordShape in the slots themselves.
type wordTable struct {
	acct   *Account
	slots  []wordSlot
	count  int
	nullID int32
}

type wordSlot struct {
	key uint64
	id  int32 // 1 + id; 0 is empty
}

func (t *wordTable) len() int { return t.count }

func (t *wordTable) reset() {
	t.slots = freeSlice(t.acct, t.slots)
	t.count, t.nullID = 0, -1
}

func (t *wordTable) clear() {
	clear(t.slots)
	t.count, t.nullID = 0, -1
}

func (t *wordTable) reserve(k *keyCoder) error {
	want := t.count + k.n
	if err := checkKeyCount(want); err != nil {
		return err
	}
	size := slotCount(want)
	if size <= len(t.slots) {
		return nil
	}
	slots, err := growSlice[wordSlot](t.acct, nil, size)
	if err != nil {
		return err
	}
	slots = slots[:size]
	mask := uint64(size - 1)
	for _, s := range t.slots {
		if s.id == 0 {
			continue
		}
		at := mix64(s.key, k.seed.word) & mask
		for slots[at].id != 0 {
			at = (at + 1) & mask
		}
		slots[at] = s
	}
	freeSlice(t.acct, t.slots)
	t.slots = slots
	return nil
}

func (t *wordTable) upsert(k *keyCoder, ids, fresh []int32) []int32 {
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		if k.nulls != nil && k.nulls[i] {
			if t.nullID < 0 {
				t.nullID = int32(t.count)
				t.count++
				fresh = append(fresh, int32(i))
			}
			ids[i] = t.nullID
			continue
		}
		key := k.words[i]
		for at := hash & mask; ; at = (at + 1) & mask {
			s := &t.slots[at]
			if s.id == 0 {
				t.count++
				*s = wordSlot{key: key, id: int32(t.count)}
				fresh = append(fresh, int32(i))
			} else if s.key != key {
				continue
			}
			ids[i] = s.id - 1
			break
		}
	}
	return fresh
}

func (t *wordTable) find(k *keyCoder, ids []int32) {
	if len(t.slots) == 0 {
		fillMissing(ids, k.n)
		return
	}
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		if k.nulls != nil && k.nulls[i] {
			ids[i] = t.nullID
			continue
		}
		key := k.words[i]
		at := hash & mask
		for t.slots[at].id != 0 && t.slots[at].key != key {
			at = (at + 1) & mask
		}
		ids[i] = t.slots[at].id - 1
	}
}

func fillMissing(ids []int32, n int) {
	for i := range ids[:n] {
		ids[i] = -1
	}
}

// tagSlot is a slot of the tables that keep their keys aside: the upper half
// of the hash, which spares most comparisons with other keys, and 1 + id.
type tagSlot uint64

func makeTag(hash uint64, id int) tagSlot {
	return tagSlot(hash&^math.MaxUint32 | uint64(id+1))
}

func (s tagSlot) id() int32 { return int32(uint32(s)) - 1 }

func (s tagSlot) matches(hash uint64) bool { return uint64(s)>>32 == hash>>32 }

// growTags returns a larger slot array for want keys, whose hashes are given.
func growTags(acct *Account, old []tagSlot, want int, hashes []uint64) ([]tagSlot, error) {
	if err := checkKeyCount(want); err != nil {
		return old, err
	}
	size := slotCount(want)
	if size <= len(old) {
		return old, nil
	}
	slots, err := growSlice[tagSlot](acct, nil, size)
	if err != nil {
		return old, err
	}
	slots = slots[:size]
	mask := uint64(size - 1)
	for id, hash := range hashes {
		at := hash & mask
		for slots[at] != 0 {
			at = (at + 1) & mask
		}
		slots[at] = makeTag(hash, id)
	}
	freeSlice(acct, old)
	return slots, nil
}

// wideTable holds keys of wideShape.
type wideTable struct {
	acct   *Account
	slots  []tagSlot
	hashes []uint64 // by id
	keys   []wideKey
}

func (t *wideTable) len() int { return len(t.keys) }

func (t *wideTable) reset() {
	t.slots = freeSlice(t.acct, t.slots)
	t.hashes = freeSlice(t.acct, t.hashes)
	t.keys = freeSlice(t.acct, t.keys)
}

func (t *wideTable) clear() {
	clear(t.slots)
	t.hashes, t.keys = t.hashes[:0], t.keys[:0]
}

func (t *wideTable) reserve(k *keyCoder) error {
	var err error
	if t.keys, err = growSlice(t.acct, t.keys, k.n); err != nil {
		return err
	}
	if t.hashes, err = growSlice(t.acct, t.hashes, k.n); err != nil {
		return err
	}
	t.slots, err = growTags(t.acct, t.slots, len(t.keys)+k.n, t.hashes)
	return err
}

func (t *wideTable) upsert(k *keyCoder, ids, fresh []int32) []int32 {
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		for at := hash & mask; ; at = (at + 1) & mask {
			s := t.slots[at]
			if s == 0 {
				ids[i] = int32(len(t.keys))
				t.slots[at] = makeTag(hash, len(t.keys))
				t.keys = append(t.keys, k.wide[i])
				t.hashes = append(t.hashes, hash)
				fresh = append(fresh, int32(i))
				break
			}
			if s.matches(hash) && t.keys[s.id()] == k.wide[i] {
				ids[i] = s.id()
				break
			}
		}
	}
	return fresh
}

func (t *wideTable) find(k *keyCoder, ids []int32) {
	if len(t.slots) == 0 {
		fillMissing(ids, k.n)
		return
	}
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		id := int32(-1)
		for at := hash & mask; t.slots[at] != 0; at = (at + 1) & mask {
			if s := t.slots[at]; s.matches(hash) && t.keys[s.id()] == k.wide[i] {
				id = s.id()
				break
			}
		}
		ids[i] = id
	}
}

// bytesTable holds keys of bytesShape in one arena.
type bytesTable struct {
	acct   *Account
	slots  []tagSlot
	hashes []uint64 // by id
	ends   []int64  // by id: end of the key in arena
	arena  []byte
	nullID int32 // id of the null key, which has no slot
}

func (t *bytesTable) len() int { return len(t.ends) }

func (t *bytesTable) reset() {
	t.slots = freeSlice(t.acct, t.slots)
	t.hashes = freeSlice(t.acct, t.hashes)
	t.ends = freeSlice(t.acct, t.ends)
	t.arena = freeSlice(t.acct, t.arena)
	t.nullID = -1
}

func (t *bytesTable) clear() {
	clear(t.slots)
	t.hashes, t.ends, t.arena, t.nullID = t.hashes[:0], t.ends[:0], t.arena[:0], -1
}

func (t *bytesTable) reserve(k *keyCoder) error {
	var err error
	if t.ends, err = growSlice(t.acct, t.ends, k.n); err != nil {
		return err
	}
	if t.hashes, err = growSlice(t.acct, t.hashes, k.n); err != nil {
		return err
	}
	if t.arena, err = growSlice(t.acct, t.arena, k.keyBytes()); err != nil {
		return err
	}
	// The null key is given a slot of its own when the table grows. It is
	// never matched: lookups of null keys do not come to the slots, and those
	// of empty keys are told apart by id.
	t.slots, err = growTags(t.acct, t.slots, len(t.ends)+k.n, t.hashes)
	return err
}

func (t *bytesTable) key(id int32) []byte {
	start := int64(0)
	if id > 0 {
		start = t.ends[id-1]
	}
	return t.arena[start:t.ends[id]]
}

func (t *bytesTable) add(hash uint64, key []byte) int32 {
	t.arena = append(t.arena, key...)
	t.ends = append(t.ends, int64(len(t.arena)))
	t.hashes = append(t.hashes, hash)
	return int32(len(t.ends) - 1)
}

func (t *bytesTable) upsert(k *keyCoder, ids, fresh []int32) []int32 {
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		key := k.data[k.starts[i]:k.ends[i]]
		if k.nulls != nil && k.nulls[i] {
			if t.nullID < 0 {
				t.nullID = t.add(hash, nil)
				fresh = append(fresh, int32(i))
			}
			ids[i] = t.nullID
			continue
		}
		for at := hash & mask; ; at = (at + 1) & mask {
			s := t.slots[at]
			if s == 0 {
				ids[i] = t.add(hash, key)
				t.slots[at] = makeTag(hash, int(ids[i]))
				fresh = append(fresh, int32(i))
				break
			}
			if s.matches(hash) && t.holds(s.id(), key) {
				ids[i] = s.id()
				break
			}
		}
	}
	return fresh
}

func (t *bytesTable) holds(id int32, key []byte) bool {
	return id != t.nullID && bytes.Equal(t.key(id), key)
}

func (t *bytesTable) find(k *keyCoder, ids []int32) {
	if len(t.slots) == 0 {
		fillMissing(ids, k.n)
		return
	}
	mask := uint64(len(t.slots) - 1)
	for i, hash := range k.hashes {
		if k.nulls != nil && k.nulls[i] {
			ids[i] = t.nullID
			continue
		}
		key := k.data[k.starts[i]:k.ends[i]]
		id := int32(-1)
		for at := hash & mask; t.slots[at] != 0; at = (at + 1) & mask {
			if s := t.slots[at]; s.matches(hash) && t.holds(s.id(), key) {
				id = s.id()
				break
			}
		}
		ids[i] = id
	}
}
