package storage

import (
	"container/list"
	"sync"
	"sync/atomic"

	"skein/columnar"
)

// chunkKey names a decoded chunk: the column, or one of those below.
type chunkKey struct {
	instance uint64 // of a tablet's state
	segment  uint64
	column   int32
}

const (
	chunkKeyIndex   = -1 // *keyIndex
	chunkSortedKeys = -2 // *sortedKeys
	// chunkDictionary is set for the dictionary of a column alone.
	chunkDictionary = 1 << 30
)

// chunkCache holds decoded chunks up to a byte budget and makes concurrent
// readers of one chunk share its decoding. Values are immutable. Each shard
// evicts its least recently used entries; the budget is shared by all, so one
// hot shard may use most of it.
//
// Chunks that a scan holds without their being kept count as used until the
// scan lets go of them: they are memory all the same.
type chunkCache struct {
	budget int64
	used   atomic.Int64
	passes atomic.Uint64 // chunks of large scans that found the cache full
	shards [cacheShards]cacheShard
}

// admitOneIn of the chunks of a scan that is larger than the cache are kept
// once it is full. Keeping all of them would evict each before the next scan
// comes round to it, and everything else as well.
const admitOneIn = 16

const cacheShards = 16

type cacheShard struct {
	mu      sync.Mutex
	entries map[chunkKey]*cacheEntry
	lru     list.List // of *cacheEntry, most recent first; only ready ones
}

type cacheEntry struct {
	key   chunkKey
	ready chan struct{} // closed when value and err are set
	value any
	size  int64
	err   error
	large bool          // wanted only by scans that are larger than the cache
	kept  bool          // set with value
	elem  *list.Element // nil until ready
}

func newChunkCache(budget int64) *chunkCache {
	c := &chunkCache{budget: budget}
	for i := range c.shards {
		c.shards[i].entries = make(map[chunkKey]*cacheEntry)
	}
	return c
}

func (c *chunkCache) shard(k chunkKey) *cacheShard {
	h := (k.instance*31+k.segment)*0x9e3779b97f4a7c15 + uint64(uint32(k.column))*0xc2b2ae3d27d4eb4f
	return &c.shards[h>>60]
}

// get returns the value of a key, loading it once for all who ask meanwhile.
// Failures are not kept.
func (c *chunkCache) get(k chunkKey, load func() (any, int64, error)) (any, error) {
	v, _, err := c.getFor(k, false, load)
	return v, err
}

// getFor is get for a scan, which is larger than the cache or not. It returns
// the size of the value unless the cache keeps it.
func (c *chunkCache) getFor(k chunkKey, large bool, load func() (any, int64, error)) (v any, unkept int64, err error) {
	e := c.entry(k, large, load)
	if !e.kept {
		unkept = e.size
	}
	return e.value, unkept, e.err
}

func (c *chunkCache) entry(k chunkKey, large bool, load func() (any, int64, error)) *cacheEntry {
	s := c.shard(k)
	s.mu.Lock()
	if e := s.entries[k]; e != nil {
		if !large {
			s.touch(e)
		}
		s.mu.Unlock()
		<-e.ready
		return e
	}
	e := &cacheEntry{key: k, large: large, ready: make(chan struct{})}
	s.entries[k] = e
	s.mu.Unlock()
	c.fill(s, e, load)
	return e
}

// admits reports whether a loaded entry is to be kept.
func (c *chunkCache) admits(e *cacheEntry) bool {
	if e.err != nil || e.size > c.budget/4 {
		return false
	}
	return !e.large || c.used.Load()+e.size <= c.budget || c.passes.Add(1)%admitOneIn == 0
}

// hold counts memory that a scan holds, or no longer does when n is negative.
func (c *chunkCache) hold(n int64) {
	if c.used.Add(n) > c.budget && n > 0 {
		c.shrink(&c.shards[0], nil)
	}
}

// peek returns the value of a key if it is there.
func (c *chunkCache) peek(k chunkKey) (any, bool) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil || e.elem == nil {
		return nil, false
	}
	s.touch(e)
	return e.value, true
}

// touch makes an entry the most recent one of its locked shard.
func (s *cacheShard) touch(e *cacheEntry) {
	e.large = false
	if e.elem != nil {
		s.lru.MoveToFront(e.elem)
	}
}

// fill loads an entry that is registered in its shard and releases the waiters
// even when load panics.
func (c *chunkCache) fill(s *cacheShard, e *cacheEntry, load func() (any, int64, error)) {
	e.err = errLoadPanicked
	defer func() {
		s.mu.Lock()
		if s.entries[e.key] == e { // not dropped meanwhile
			if c.admits(e) {
				if e.kept = true; e.large {
					e.elem = s.lru.PushBack(e)
				} else {
					e.elem = s.lru.PushFront(e)
				}
				c.used.Add(e.size)
			} else {
				delete(s.entries, e.key)
			}
		}
		s.mu.Unlock()
		close(e.ready)
		c.shrink(s, e)
	}()
	e.value, e.size, e.err = load()
}

// shrink evicts until the budget holds, first from the shard that grew by the
// entry keep, which stays: it is about to be used. What large scans left goes
// before anything else.
func (c *chunkCache) shrink(s *cacheShard, keep *cacheEntry) {
	for _, largeOnly := range []bool{true, false} {
		for i := -1; i < cacheShards && c.used.Load() > c.budget; i++ {
			if i >= 0 {
				s = &c.shards[i]
			}
			s.mu.Lock()
			for c.used.Load() > c.budget {
				elem := s.lru.Back()
				if elem != nil && elem.Value.(*cacheEntry) == keep {
					elem = elem.Prev()
				}
				if elem == nil || (largeOnly && !elem.Value.(*cacheEntry).large) {
					break
				}
				c.remove(s, elem.Value.(*cacheEntry))
			}
			s.mu.Unlock()
		}
	}
}

// remove takes an entry out of its locked shard.
func (c *chunkCache) remove(s *cacheShard, e *cacheEntry) {
	delete(s.entries, e.key)
	if e.elem != nil {
		s.lru.Remove(e.elem)
		c.used.Add(-e.size)
	}
}

// dropSegment forgets the chunks of a segment of so many columns.
func (c *chunkCache) dropSegment(instance, segment uint64, columns int) {
	for col := int32(chunkSortedKeys); col < int32(columns); col++ {
		c.drop(chunkKey{instance, segment, col})
		if col >= 0 {
			c.drop(chunkKey{instance, segment, col | chunkDictionary})
		}
	}
}

func (c *chunkCache) drop(k chunkKey) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil {
		c.remove(s, e)
	}
}

// dropInstance forgets everything of one tablet state.
func (c *chunkCache) dropInstance(instance uint64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for k, e := range s.entries {
			if k.instance == instance {
				c.remove(s, e)
			}
		}
		s.mu.Unlock()
	}
}

// vectorSize is the memory of a decoded vector, in bytes.
func vectorSize(v *columnar.Vector) int64 {
	n := int64(128 + len(v.Valid) + len(v.Data) + 4*len(v.Offsets) + 4*len(v.Codes))
	if v.Dict != nil {
		n += vectorSize(v.Dict)
	}
	for _, c := range v.Children {
		n += vectorSize(c)
	}
	return n
}
