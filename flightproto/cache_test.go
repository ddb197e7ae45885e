package flightproto_test

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"skein/flightproto"
)

// The cache keeps what a list in order of use would, within its bounds.
func TestCacheIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, limit := rapid.IntRange(1, 6).Draw(t, "entries"), rapid.Int64Range(1, 40).Draw(t, "bytes")
		c := flightproto.NewCache[int, int](entries, limit)
		type entry struct {
			key, value int
			bytes      int64
		}
		var model []entry // oldest use first
		var want flightproto.CacheStats
		total := func() (n int64) {
			for _, e := range model {
				n += e.bytes
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 9).Draw(t, "key")
			at := slices.IndexFunc(model, func(e entry) bool { return e.key == key })
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c.Remove(key)
				if at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
			case 1, 2:
				e := entry{key, rapid.Int().Draw(t, "value"), rapid.Int64Range(0, 50).Draw(t, "size")}
				c.Put(key, e.value, e.bytes)
				if at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
				if e.bytes <= limit {
					model = append(model, e)
				}
				for len(model) > entries || total() > limit {
					model = model[1:]
					want.Evictions++
				}
			default:
				got, ok := c.Get(key)
				if ok != (at >= 0) || ok && got != model[at].value {
					t.Fatalf("key %d is %d, %t", key, got, ok)
				}
				if !ok {
					want.Misses++
					continue
				}
				want.Hits++
				e := model[at]
				model = append(slices.Delete(model, at, at+1), e)
			}
			want.Entries, want.Bytes = uint64(len(model)), total()
			if got := c.Stats(); got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	})
}

func TestCacheIsShared(t *testing.T) {
	c := flightproto.NewCache[int, int](4, 100)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 1000 {
				c.Put(n%7, n%7, int64(n%30))
				if v, ok := c.Get((n + i) % 7); ok && v != (n+i)%7 {
					t.Errorf("key %d is %d", (n+i)%7, v)
				}
			}
		})
	}
	group.Wait()
	if s := c.Stats(); s.Entries > 4 || s.Bytes > 100 || s.Hits+s.Misses != 4000 {
		t.Errorf("%+v", s)
	}
}
