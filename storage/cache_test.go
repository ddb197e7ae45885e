package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
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

// TestLargeScansLeaveTheCacheAlone scans more than the cache holds: part of it
// stays for the next scan, chunks that were there stay, too, and what a scan
// holds counts until it is let go of.
func TestLargeScansLeaveTheCacheAlone(t *testing.T) {
	const budget = 4 << 20
	s := openQuiet(t, t.TempDir(), Options{CacheBytes: budget, Now: func() time.Time { return time.Unix(0, 0) }})
	table := intsTable()
	tab := mustTablet(t, s, table)
	const segments, rows = 20, 60_000 // 960 KB each
	for i := range int64(segments) {
		txn := fmt.Sprint(i)
		mustOutcome(t, tab, Staged, stages(txn, 0, encoded(t, table, intsBatch(sequence(i*rows, rows)...)))...)
		mustOutcome(t, tab, Committed, Commit{Txn: txn, Segments: 1, Timestamp: 1})
	}
	s.cache.dropInstance(tab.state.instance)
	hot := chunkKey{99, 1, 0}
	get := func() (loaded bool) {
		if _, err := s.cache.get(hot, func() (any, int64, error) { loaded = true; return 1, 1000, nil }); err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	get()
	for range 3 {
		snap := mustSnapshot(t, tab, 1)
		if n := drain(t, snap, ScanOptions{Columns: []int{0, 1}}).Len; n != segments*rows {
			t.Fatalf("%d rows", n)
		}
		if used := s.cache.used.Load(); used > budget {
			t.Errorf("%d bytes used after a scan", used)
		}
		if get() {
			t.Error("the scan evicted what was in use")
		}
	}
	if used := s.cache.used.Load(); used < budget/2 {
		t.Errorf("only %d bytes are left in the cache", used)
	}
	before := s.cache.used.Load()
	snap := mustSnapshot(t, tab, 1)
	scanners, err := snap.Scan(ScanOptions{Columns: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for snap.held.Load() == 0 {
		if b, err := scanners[0].Next(context.Background()); err != nil || b == nil {
			t.Fatalf("nothing was held: %v", err)
		}
	}
	if s.cache.used.Load() > budget {
		t.Errorf("%d bytes used while a scan holds %d", s.cache.used.Load(), snap.held.Load())
	}
	snap.Release() // the scan was not read to its end
	if used := s.cache.used.Load(); used > before || snap.held.Load() != 0 {
		t.Errorf("%d bytes used, %d held after all is released; %d before", used, snap.held.Load(), before)
	}
}
