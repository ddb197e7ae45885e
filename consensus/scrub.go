package consensus

import (
	"context"
	"errors"
	"time"

	"skein/sqlstate"
	"skein/storage"
)

// Defaults of Config. At this rate a node reads 100 GB in seven hours.
const (
	defaultScrubBytes = 4 << 20
	defaultScrubEvery = 6 * time.Hour
)

// scrub reads all that the local replicas hold, slowly and over and over, so
// that damage is found and repaired while the other replicas are well.
func (h *Host) scrub(ctx context.Context) {
	if h.cfg.ScrubBytes < 0 {
		return
	}
	for wait(ctx, h.cfg.ScrubEvery) {
		for _, status := range h.Tablets() {
			store, ok := h.Tablet(status.Tablet)
			if !ok {
				continue
			}
			err := store.Verify(ctx, h.pace)
			switch {
			case ctx.Err() != nil:
				return
			case sqlstate.CodeOf(err) == sqlstate.DataCorrupted:
				h.ReportDamage(status.Tablet, err)
			case err != nil && !errors.Is(err, storage.ErrClosed):
				h.log.Warn("reading a tablet for damage failed", "tablet", uint64(status.Tablet), "error", err)
			}
		}
	}
}

// pace waits as long as bytes take at the configured rate.
func (h *Host) pace(ctx context.Context, bytes int) error {
	if !wait(ctx, time.Duration(float64(bytes)/float64(h.cfg.ScrubBytes)*float64(time.Second))) {
		return context.Cause(ctx)
	}
	return nil
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
