package flightproto

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps the values used last, within a number of entries and of bytes. A
// gateway keeps plans in one by their text, a worker by their digest. It is safe
// for concurrent use; values are shared by all who get them.
type Cache[K comparable, V any] struct {
	maxEntries int
	maxBytes   int64

	mu    sync.Mutex
	list  *simplelru.LRU[K, *cached[V]]
	stats CacheStats
}

type cached[V any] struct {
	value V
	bytes int64
}

// CacheStats tells what a Cache holds and has done. Evictions count what had to
// make room, not what was removed or replaced.
type CacheStats struct {
	Entries, Hits, Misses, Evictions uint64
	Bytes                            int64
}

// NewCache returns an empty cache of at least one entry.
func NewCache[K comparable, V any](maxEntries int, maxBytes int64) *Cache[K, V] {
	// The list itself is unbounded: bounds are kept here, where evictions count.
	list, err := simplelru.NewLRU[K, *cached[V]](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Cache[K, V]{maxEntries: max(maxEntries, 1), maxBytes: maxBytes, list: list}
}

// Get returns the value of a key and counts a hit or a miss.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.list.Get(key)
	if !ok {
		c.stats.Misses++
		var zero V
		return zero, false
	}
	c.stats.Hits++
	return e.value, true
}

// Put stores a value that takes about so many bytes, in place of an older one.
// What is larger than the cache is not kept.
func (c *Cache[K, V]) Put(key K, value V, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(key)
	if bytes > c.maxBytes {
		return
	}
	c.list.Add(key, &cached[V]{value, bytes})
	c.stats.Bytes += bytes
	for c.list.Len() > c.maxEntries || c.stats.Bytes > c.maxBytes {
		_, oldest, ok := c.list.RemoveOldest()
		if !ok {
			return
		}
		c.stats.Bytes -= oldest.bytes
		c.stats.Evictions++
	}
}

// Remove forgets a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(key)
}

func (c *Cache[K, V]) removeLocked(key K) {
	if e, ok := c.list.Peek(key); ok {
		c.list.Remove(key)
		c.stats.Bytes -= e.bytes
	}
}

// Stats returns the counters.
func (c *Cache[K, V]) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries = uint64(c.list.Len())
	return s
}
