package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"skein/sqlstate"
)

// handles is a bounded table of things that clients hold by an unguessable
// name: planned queries waiting for their DoGet and prepared statements.
// Entries expire when they have not been used for ttl.
type handles[T any] struct {
	what  string // for error texts
	limit int
	each  int // how many one session may hold; 0 for any number
	ttl   time.Duration
	now   func() time.Time
	// lost, when not nil, is told of values that nobody took.
	lost func(T)

	mu      sync.Mutex
	entries map[string]*handleEntry[T]
	owned   map[string]int // entries by session
	swept   time.Time      // of what has expired
}

type handleEntry[T any] struct {
	value T
	used  time.Time
	owner string // the session's id, "" for none
}

func newHandles[T any](what string, limit int, ttl time.Duration) *handles[T] {
	return &handles[T]{what: what, limit: limit, ttl: ttl, now: time.Now, entries: make(map[string]*handleEntry[T]), owned: make(map[string]int)}
}

// idBytes is how long ids are, before they are written as text.
const idBytes = 16

// newID is 128 random bits in hex.
func newID() string {
	var b [idBytes]byte
	rand.Read(b[:]) // never fails: it aborts the process when the system has no randomness
	return hex.EncodeToString(b[:])
}

// put stores a value of a session, "" for none, under a new handle. What has
// expired is dropped now and then, and before a full table refuses with 53400.
func (h *handles[T]) put(owner string, v T) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); now.Sub(h.swept) > h.ttl/8 {
		h.swept = now
		h.expireLocked()
	}
	if owner != "" && h.each > 0 && h.owned[owner] >= h.each {
		h.expireLocked()
		if h.owned[owner] >= h.each {
			return "", sqlstate.New(sqlstate.TooManyRequests, "the session has already %d open %ss", h.each, h.what).
				WithHint("fetch or close the ones that are open")
		}
	}
	if len(h.entries) >= h.limit {
		h.expireLocked()
		if len(h.entries) >= h.limit {
			return "", sqlstate.New(sqlstate.TooManyRequests, "there are already %d open %ss", h.limit, h.what).
				WithHint("fetch or close the ones that are open")
		}
	}
	id := newID()
	h.entries[id] = &handleEntry[T]{value: v, used: h.now(), owner: owner}
	if owner != "" {
		h.owned[owner]++
	}
	return id, nil
}

func (h *handles[T]) expireLocked() {
	oldest := h.now().Add(-h.ttl)
	for id, e := range h.entries {
		if e.used.Before(oldest) {
			h.deleteLocked(id)
		}
	}
}

// get returns the value and renews it.
func (h *handles[T]) get(id string) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.entries[id]
	if !ok || h.now().Sub(e.used) > h.ttl {
		h.deleteLocked(id)
		return h.unknown()
	}
	e.used = h.now()
	return e.value, nil
}

func (h *handles[T]) unknown() (T, error) {
	var zero T
	return zero, sqlstate.New(sqlstate.InvalidParameter, "unknown or expired %s handle", h.what).
		WithHint("a handle is good for %s after its last use, on the gateway that gave it", h.ttl)
}

// take returns the value and forgets it.
func (h *handles[T]) take(id string) (T, error) {
	return h.takeUnless(id, func(T) bool { return false })
}

// takeUnless returns the value and forgets it, unless it is to be kept.
func (h *handles[T]) takeUnless(id string, keep func(T) bool) (T, error) {
	v, err := h.get(id)
	if err == nil && !keep(v) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.entries[id]; !ok { // another one was quicker
			return h.unknown()
		}
		h.forgetLocked(id)
	}
	return v, err
}

// drop forgets a handle; unknown ones are fine.
func (h *handles[T]) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleteLocked(id)
}

func (h *handles[T]) deleteLocked(id string) {
	if e := h.forgetLocked(id); e != nil && h.lost != nil {
		h.lost(e.value)
	}
}

// forgetLocked takes an entry out, nil if there is none.
func (h *handles[T]) forgetLocked(id string) *handleEntry[T] {
	e, ok := h.entries[id]
	if !ok {
		return nil
	}
	delete(h.entries, id)
	if e.owner != "" {
		if h.owned[e.owner]--; h.owned[e.owner] == 0 {
			delete(h.owned, e.owner)
		}
	}
	return e
}

// dropOwned forgets the handles of a session.
func (h *handles[T]) dropOwned(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owned[owner] == 0 {
		return
	}
	for id, e := range h.entries {
		if e.owner == owner {
			h.deleteLocked(id)
		}
	}
}
