package storage

import (
	"errors"
	"sync"
	"testing"
)

func TestCacheKeepsItsBudget(t *testing.T) {
	c := newChunkCache(1000)
	loads := 0
	get := func(i int) {
		_, err := c.get(chunkKey{1, uint64(i), 0}, func() (any, int64, error) { loads++; return i, 100, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		get(i)
		if c.used.Load() > 1000 {
			t.Fatalf("%d bytes used", c.used.Load())
		}
	}
	get(99)
	if loads != 100 {
		t.Errorf("%d loads", loads)
	}
	failure := errors.New("no")
	for range 2 {
		if _, err := c.get(chunkKey{2, 0, 0}, func() (any, int64, error) { loads++; return nil, 0, failure }); err != failure {
			t.Error(err)
		}
	}
	if loads != 102 {
		t.Errorf("a failure was kept: %d loads", loads)
	}
	c.dropInstance(1)
	if c.used.Load() != 0 {
		t.Errorf("%d bytes after dropping all", c.used.Load())
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	shared := 0
	for range 8 {
		wg.Go(func() {
			_, err := c.get(chunkKey{3, 0, 0}, func() (any, int64, error) {
				mu.Lock()
				shared++
				mu.Unlock()
				return 1, 1, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if shared != 1 {
		t.Errorf("loaded %d times at once", shared)
	}
}
