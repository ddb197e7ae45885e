package gateway

import (
	"context"
	"sync"
	"time"

	"skein/flightproto"
	"skein/sqlstate"
)

// leases follow which workers have been heard of lately. Attempts that have
// fragments on one that has not are abandoned: its connection may look alive for
// long, on a machine that hangs or behind a network that drops packets.
type leases struct {
	life time.Duration
	now  func() time.Time

	mu       sync.Mutex
	heard    map[string]time.Time // by address
	attempts map[*attempt]struct{}
}

// attempt is one that has fragments on workers.
type attempt struct {
	workers []string
	began   time.Time
	abandon context.CancelCauseFunc
}

func newLeases(life time.Duration) *leases {
	return &leases{life: life, now: time.Now, heard: make(map[string]time.Time), attempts: make(map[*attempt]struct{})}
}

// renew notes that a worker has answered.
func (l *leases) renew(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[addr] = l.now()
}

// hold registers an attempt until the function returned is called.
func (l *leases) hold(workers []string, abandon context.CancelCauseFunc) (end func()) {
	a := &attempt{workers: workers, began: l.now(), abandon: abandon}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[a] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.attempts, a)
	}
}

// sweep abandons the attempts on workers whose lease has run out and returns
// those workers. An attempt's own start counts as hearing of its workers.
func (l *leases) sweep() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	silent := map[string]bool{}
	for a := range l.attempts {
		for _, addr := range a.workers {
			last := l.heard[addr]
			if a.began.After(last) {
				last = a.began
			}
			if now.Sub(last) < l.life {
				continue
			}
			silent[addr] = true
			a.abandon(flightproto.WithReason(flightproto.Unavailable, sqlstate.New(sqlstate.ConnectionFailure,
				"worker %s has not been heard of for %s", addr, now.Sub(last).Round(time.Second)).
				WithHint("Its fragments were given up. Look after the worker.")))
			break
		}
	}
	for addr, last := range l.heard {
		if now.Sub(last) > 10*l.life {
			delete(l.heard, addr)
		}
	}
	out := make([]string, 0, len(silent))
	for addr := range silent {
		out = append(out, addr)
	}
	return out
}
