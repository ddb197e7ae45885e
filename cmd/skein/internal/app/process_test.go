package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"skein/cmd/skein/internal/config"
)

func TestPartsStopInReverseOrder(t *testing.T) {
	p := newProcess(config.Process{Grace: time.Minute}, "test", slog.New(slog.DiscardHandler))
	var order []string
	for _, name := range []string{"a", "b", "c"} {
		p.onStop(name, func(context.Context) error {
			order = append(order, name)
			if name == "b" {
				return errors.New("boom")
			}
			return nil
		})
	}
	err := p.stop()
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("stopped in the order %v", order)
	}
	if err == nil || err.Error() != "stopping b: boom" {
		t.Errorf("error is %v", err)
	}
	if err := p.stop(); err != nil || len(order) != 3 {
		t.Errorf("a second stop: %v, %v", order, err)
	}
}

func TestHangingPartIsLeftBehind(t *testing.T) {
	p := newProcess(config.Process{Grace: time.Millisecond}, "test", slog.New(slog.DiscardHandler))
	release := make(chan struct{})
	defer close(release)
	below := false
	p.onStop("below", func(context.Context) error { below = true; return nil })
	p.onStop("disk", func(context.Context) error { <-release; return nil })
	err := p.stop()
	if err == nil || !strings.Contains(err.Error(), "stopping disk: it did not end in time") || below {
		t.Errorf("error is %v, part below stopped: %t", err, below)
	}
}

func TestBeingToldToStopIsNoError(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		stopped bool
		err     error
		want    error
	}{
		{true, context.Canceled, nil},
		{true, boom, boom},
		{false, context.Canceled, context.Canceled},
		{false, nil, nil},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if tc.stopped {
			cancel()
		}
		p := newProcess(config.Process{Grace: time.Second}, "test", slog.New(slog.DiscardHandler))
		err := tc.err
		p.finish(ctx, &err)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("stopped %t with %v: %v, want %v", tc.stopped, tc.err, err, tc.want)
		}
		cancel()
	}
}
