package consensus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// logicalBits is how many low bits of a timestamp count events within one
// microsecond; the bits above are microseconds since the Unix epoch.
const logicalBits = 12

// DefaultMaxAhead is how far a foreign timestamp may lie ahead of this
// machine's wall clock before Observe refuses it.
const DefaultMaxAhead = 10 * time.Second

// ErrClockAhead is the cause of an Observe that was refused.
var ErrClockAhead = errors.New("timestamp is too far ahead of the local clock")

// Clock is a hybrid logical clock: timestamps follow the wall clock but never
// repeat or go back, and stay ahead of every timestamp observed from elsewhere.
// It is safe for concurrent use.
type Clock struct {
	wall     func() time.Time
	maxAhead time.Duration
	last     atomic.Uint64
}

// ClockOption adjusts a new Clock.
type ClockOption func(*Clock)

// WithWall replaces the wall clock.
func WithWall(now func() time.Time) ClockOption {
	return func(c *Clock) { c.wall = now }
}

// WithMaxAhead sets how far ahead of the wall clock Observe accepts timestamps.
func WithMaxAhead(d time.Duration) ClockOption {
	return func(c *Clock) { c.maxAhead = d }
}

// NewClock returns a clock that reads the system's wall clock.
func NewClock(options ...ClockOption) *Clock {
	c := &Clock{wall: time.Now, maxAhead: DefaultMaxAhead}
	for _, option := range options {
		option(c)
	}
	return c
}

// Now returns a timestamp greater than every one returned or observed before.
func (c *Clock) Now() uint64 {
	wall := c.wallTimestamp()
	for {
		last := c.last.Load()
		next := max(wall, last+1)
		if c.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Observe makes later timestamps exceed ts. It refuses, with ErrClockAhead, a
// ts that lies further ahead of the wall clock than the clock allows: following
// it would drag the whole cluster into the future.
func (c *Clock) Observe(ts uint64) error {
	if ts <= c.last.Load() {
		return nil
	}
	limit := c.wallTimestamp() + uint64(c.maxAhead.Microseconds())<<logicalBits
	if ts > limit {
		ahead := time.Duration((ts-limit)>>logicalBits)*time.Microsecond + c.maxAhead
		return fmt.Errorf("%w: by %v, at most %v is allowed", ErrClockAhead, ahead.Round(time.Millisecond), c.maxAhead)
	}
	c.forward(ts)
	return nil
}

// forward raises the clock to ts unconditionally, for timestamps that are
// already committed and so can no longer be refused.
func (c *Clock) forward(ts uint64) {
	for {
		last := c.last.Load()
		if ts <= last || c.last.CompareAndSwap(last, ts) {
			return
		}
	}
}

func (c *Clock) wallTimestamp() uint64 {
	micros := c.wall().UnixMicro()
	if micros < 0 {
		return 0
	}
	return uint64(micros) << logicalBits
}

// TimestampOf returns the smallest timestamp at t.
func TimestampOf(t time.Time) uint64 {
	return uint64(max(t.UnixMicro(), 0)) << logicalBits
}

// TimeOf returns the wall-clock part of a timestamp.
func TimeOf(ts uint64) time.Time {
	return time.UnixMicro(int64(ts >> logicalBits))
}
