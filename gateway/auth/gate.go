package auth

import (
	"context"
	"math/bits"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"skein/sqlstate"
)

// Bounds of what logins may take.
const (
	// hashesAtOnce bounds the passwords that are hashed at a time, each of which
	// takes the memory of its cost.
	hashesAtOnce = 3
	// waitingLogins and waitingOfHost bound the logins under way, of all hosts and
	// of one.
	waitingLogins = 128
	waitingOfHost = 32
	// freeFailures is how often a user may fail in a row before it takes time.
	freeFailures = 3
	firstDelay   = 200 * time.Millisecond
	longestDelay = 30 * time.Second
	// patience is how long a login waits for its turn before it is refused.
	patience = 2 * time.Second
	// watchedPairs bounds the users and hosts whose failures are remembered.
	watchedPairs = 10_000
)

// gate bounds what logins cost the gateway and how fast passwords can be tried.
// It is safe for concurrent use.
type gate struct {
	now   func() time.Time
	slots chan struct{} // of hashes under way

	mu       sync.Mutex
	waiting  map[string]int // logins under way, by host
	total    int
	failures *lru.Cache[attempt, *failures]
}

// attempt is who tries to log in, from where. Failures from one host do not keep
// the user out elsewhere.
type attempt struct{ user, host string }

// failures are those of one user and host since the last success. Logins under way
// count, for many may be tried at once.
type failures struct {
	count int
	until time.Time // the next one has to wait
}

func newGate(now func() time.Time) (*gate, error) {
	list, err := lru.New[attempt, *failures](watchedPairs)
	return &gate{now: now, slots: make(chan struct{}, hashesAtOnce), waiting: map[string]int{}, failures: list}, err
}

// delayAfter is how long one has to wait after that many failures in a row.
func delayAfter(count int) time.Duration {
	if count <= freeFailures {
		return 0
	}
	shift := count - freeFailures - 1
	if shift >= bits.Len64(uint64(longestDelay/firstDelay)) {
		return longestDelay
	}
	return min(firstDelay<<shift, longestDelay)
}

// enter admits a login. The caller calls leave when it knows the outcome, which
// may also be that there is none. Errors have SQLSTATE 53400, or are why ctx ended.
func (g *gate) enter(ctx context.Context, a attempt) (leave func(outcome), err error) {
	wait, err := g.reserve(a)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			g.leave(a, undecided)
			return nil, context.Cause(ctx)
		}
	}
	return func(o outcome) { g.leave(a, o) }, nil
}

// outcome is how a login ended.
type outcome int

const (
	undecided outcome = iota // the password was not looked at
	wrong
	right
)

// reserve counts a login as under way and says how long it has to wait.
func (g *gate) reserve(a attempt) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= waitingLogins || g.waiting[a.host] >= waitingOfHost {
		return 0, sqlstate.New(sqlstate.TooManyRequests, "too many logins are under way").WithHint("Retry a little later.")
	}
	now := g.now()
	f, known := g.failures.Get(a)
	if !known {
		f = &failures{}
		g.failures.Add(a, f)
	}
	wait := f.until.Sub(now)
	if wait > patience {
		return 0, sqlstate.New(sqlstate.TooManyRequests, "user %.64q has failed to log in %d times from here", a.user, f.count).
			WithHint("Retry in %s.", wait.Round(time.Second))
	}
	f.count++
	f.until = now.Add(max(wait, 0) + delayAfter(f.count))
	g.total++
	g.waiting[a.host]++
	return max(wait, 0), nil
}

func (g *gate) leave(a attempt, o outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.waiting[a.host]--; g.waiting[a.host] == 0 {
		delete(g.waiting, a.host)
	}
	f, known := g.failures.Peek(a)
	switch {
	case o == right:
		g.failures.Remove(a)
	case o == undecided && known:
		f.count = max(f.count-1, 0)
	}
}

// hashing runs f, which hashes a password, when few others do.
func (g *gate) hashing(ctx context.Context, f func()) error {
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.slots }()
	f()
	return nil
}
