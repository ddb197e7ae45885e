package consensus

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fakeWall is a wall clock that tests set.
type fakeWall struct{ micros atomic.Int64 }

func (w *fakeWall) now() time.Time { return time.UnixMicro(w.micros.Load()) }

func TestClockFollowsTheWallAndNeverGoesBack(t *testing.T) {
	wall := &fakeWall{}
	wall.micros.Store(1_000_000)
	c := NewClock(WithWall(wall.now))
	first := c.Now()
	if want := TimestampOf(wall.now()); first != want {
		t.Fatalf("first timestamp %d, want the wall's %d", first, want)
	}
	if second := c.Now(); second != first+1 {
		t.Fatalf("within a microsecond: %d after %d", second, first)
	}
	wall.micros.Store(500_000)
	if third := c.Now(); third != first+2 {
		t.Fatalf("after the wall stepped back: %d after %d", third, first+1)
	}
	wall.micros.Store(2_000_000)
	if got := c.Now(); got != TimestampOf(wall.now()) {
		t.Fatalf("did not catch up with the wall: %d", got)
	}
	if got := TimeOf(c.Now()); !got.Equal(wall.now()) {
		t.Fatalf("wall part %v, want %v", got, wall.now())
	}
}

func TestClockObserve(t *testing.T) {
	wall := &fakeWall{}
	wall.micros.Store(1_000_000)
	c := NewClock(WithWall(wall.now), WithMaxAhead(time.Second))
	within := TimestampOf(wall.now().Add(time.Second))
	if err := c.Observe(within); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	if got := c.Now(); got != within+1 {
		t.Fatalf("after observing %d: %d", within, got)
	}
	beyond := TimestampOf(wall.now().Add(2 * time.Second))
	if err := c.Observe(beyond); !errors.Is(err, ErrClockAhead) {
		t.Fatalf("beyond the limit: %v", err)
	}
	if got := c.Now(); got >= beyond {
		t.Fatalf("a refused timestamp moved the clock to %d", got)
	}
	c.forward(beyond)
	if got := c.Now(); got != beyond+1 {
		t.Fatalf("a committed timestamp did not move the clock: %d", got)
	}
}

func TestClockIsMonotonicUnderAnyWall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := &fakeWall{}
		c := NewClock(WithWall(wall.now))
		last := uint64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			wall.micros.Store(rapid.Int64Range(-5, 1<<40).Draw(t, "wall"))
			if seen := rapid.Uint64Range(0, 1<<53).Draw(t, "seen"); c.Observe(seen) == nil {
				last = max(last, seen)
			}
			now := c.Now()
			if now <= last {
				t.Fatalf("%d after %d", now, last)
			}
			last = now
		}
	})
}

func TestClockHandsOutEachTimestampOnce(t *testing.T) {
	c := NewClock()
	const workers, each = 8, 500
	seen := make([][]uint64, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for range each {
				seen[w] = append(seen[w], c.Now())
			}
		})
	}
	group.Wait()
	all := map[uint64]bool{}
	for _, list := range seen {
		for _, ts := range list {
			if all[ts] {
				t.Fatalf("timestamp %d twice", ts)
			}
			all[ts] = true
		}
	}
}
