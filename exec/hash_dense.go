package exec

import "math"

// Bounds of the range of keys that a denseTable is made for.
const (
	denseSpan   = 1 << 12 // always
	denseFactor = 8       // as many times the keys
	// Groups have to be found for every row, so that for many rows an array is
	// worth more memory than its keys alone would justify.
	denseRowFactor = 64
	denseRowSpan   = 1 << 20
)

// denseTable is a keyTable for integers of wordShape within a small range: an
// array by key.
type denseTable struct {
	acct   *Account
	low    uint64
	ids    []int32 // by key - low: 1 + id; 0 is unknown
	count  int
	nullID int32
}

func newDenseTable(low uint64, span int, acct *Account) (*denseTable, error) {
	ids, err := growSlice[int32](acct, nil, span)
	if err != nil {
		return nil, err
	}
	return &denseTable{acct: acct, low: low, ids: ids[:span], nullID: -1}, nil
}

func (t *denseTable) reserve(*keyCoder) error { return nil }
func (t *denseTable) len() int                { return t.count }

func (t *denseTable) reset() {
	t.ids = freeSlice(t.acct, t.ids)
	t.count, t.nullID = 0, -1
}

func (t *denseTable) clear() {
	clear(t.ids)
	t.count, t.nullID = 0, -1
}

func (t *denseTable) upsert(k *keyCoder, ids, fresh []int32) []int32 {
	for i, key := range k.words[:k.n] {
		if k.nulls != nil && k.nulls[i] {
			if t.nullID < 0 {
				t.nullID = int32(t.count)
				t.count++
				fresh = append(fresh, int32(i))
			}
			ids[i] = t.nullID
			continue
		}
		at := &t.ids[key-t.low]
		if *at == 0 {
			t.count++
			*at = int32(t.count)
			fresh = append(fresh, int32(i))
		}
		ids[i] = *at - 1
	}
	return fresh
}

func (t *denseTable) find(k *keyCoder, ids []int32) {
	if k.nulls == nil {
		for i, key := range k.words[:k.n] {
			id := int32(0)
			if at := key - t.low; at < uint64(len(t.ids)) {
				id = t.ids[at]
			}
			ids[i] = id - 1
		}
		return
	}
	for i, key := range k.words[:k.n] {
		id := int32(0)
		if at := key - t.low; at < uint64(len(t.ids)) {
			id = t.ids[at]
		}
		if ids[i] = id - 1; k.nulls[i] {
			ids[i] = t.nullID
		}
	}
}

// groupTable is a keyTable for integers of wordShape that arrive little by
// little: an array as long as they lie close together, then a hash table.
type groupTable struct {
	denseTable
	based       bool  // there is a range
	first, last int64 // the keys so far, and those that room was made for
	rows        int   // that were looked up so far
	hash        *wordTable
}

// newGroupTable returns a table for the keys that a coder makes.
func newGroupTable(k *keyCoder, acct *Account) keyTable {
	if k.shape != wordShape || !filterable(k.types[0]) {
		return newKeyTable(k.shape, acct)
	}
	k.unhashed = true
	return &groupTable{denseTable: denseTable{acct: acct, nullID: -1}}
}

func (t *groupTable) len() int {
	if t.hash != nil {
		return t.hash.len()
	}
	return t.count
}

func (t *groupTable) reset() {
	t.denseTable.reset()
	t.based, t.rows = false, 0
	if t.hash != nil {
		t.hash.reset()
	}
}

// clear forgets the range, too: the next keys may be others.
func (t *groupTable) clear() {
	if t.hash != nil {
		t.hash.clear()
		return
	}
	t.denseTable.clear()
	t.based = false
}

func (t *groupTable) reserve(k *keyCoder) error {
	if t.hash != nil {
		return t.hash.reserve(k)
	}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	if t.based {
		low, high = t.first, t.last
	}
	for i, w := range k.words[:k.n] {
		if k.nulls == nil || !k.nulls[i] {
			low, high = min(low, int64(w)), max(high, int64(w))
		}
	}
	t.rows += k.n
	if low > high {
		return nil // nothing but nulls
	}
	span := uint64(high) - uint64(low) // one less than the keys in the range
	limit := max(denseSpan, 2*denseFactor*uint64(t.count+k.n), min(denseRowFactor*uint64(t.rows), denseRowSpan))
	if span >= limit {
		return t.toHash(k)
	}
	if err := t.cover(uint64(low), int(span)+1); err != nil {
		return err
	}
	t.based, t.first, t.last = true, low, high
	return nil
}

// cover makes the array reach over span keys from low on. What it grows by is
// room on both sides, so that it is never more than twice as long as the range of
// keys, in whatever order they come, and a range that grows on one side is
// moved seldom.
func (t *groupTable) cover(low uint64, span int) error {
	if t.based && low-t.low <= uint64(len(t.ids)) && low-t.low+uint64(span) <= uint64(len(t.ids)) {
		return nil
	}
	if !t.based && span <= len(t.ids) {
		t.low = low
		return nil
	}
	size, base := max(span, 64), low
	if t.based {
		size = 2 * span
		base -= uint64(span / 2) // below the least key of all it wraps around, as the indexes do
	}
	ids, err := growSlice[int32](t.acct, nil, size)
	if err != nil {
		return err
	}
	ids = ids[:size]
	if t.based {
		used := t.ids[uint64(t.first)-t.low : uint64(t.last)-t.low+1]
		copy(ids[uint64(t.first)-base:], used)
	}
	freeSlice(t.acct, t.ids)
	t.ids, t.low = ids, base
	return nil
}

// toHash moves the keys to a hash table that has room for those of k.
func (t *groupTable) toHash(k *keyCoder) error {
	hash := &wordTable{acct: t.acct, nullID: t.nullID, count: t.count}
	if err := hash.reserve(k); err != nil {
		return err
	}
	mask := uint64(len(hash.slots) - 1)
	for i, id := range t.ids {
		if id == 0 {
			continue
		}
		key := t.low + uint64(i)
		at := mix64(key, k.seed.word) & mask
		for hash.slots[at].id != 0 {
			at = (at + 1) & mask
		}
		hash.slots[at] = wordSlot{key: key, id: id}
	}
	t.denseTable.reset()
	t.hash, k.unhashed = hash, false
	k.hashWords()
	return nil
}

func (t *groupTable) upsert(k *keyCoder, ids, fresh []int32) []int32 {
	if t.hash != nil {
		return t.hash.upsert(k, ids, fresh)
	}
	return t.denseTable.upsert(k, ids, fresh)
}

func (t *groupTable) find(k *keyCoder, ids []int32) {
	if t.hash != nil {
		t.hash.find(k, ids)
		return
	}
	t.denseTable.find(k, ids)
}
