package session

import (
	"sync"
	"sync/atomic"
	"time"

	"skein/sqlstate"
)

// Config bounds the sessions of a gateway.
type Config struct {
	Limit int           // sessions at a time
	Idle  time.Duration // how long an unused session is kept
	// Defaults are the settings that a session begins with.
	Defaults Settings
	// Ended is told of every session that has ended, once, after it can no longer
	// be found.
	Ended func(*Session)
	Now   func() time.Time
}

// Manager is a gateway's sessions. It is safe for concurrent use.
type Manager struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]*Session
	lost     map[string]bool // ids of sessions whose clients know that they are gone
	order    []string        // of lost, oldest first
}

// NewManager returns an empty Manager.
func NewManager(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Manager{cfg: cfg, sessions: make(map[string]*Session), lost: make(map[string]bool)}
}

// Session is one client's. It is safe for concurrent use.
type Session struct {
	ID   string // of its token: to be shown to nobody
	Name string // what others may know it by
	User string // whose it is

	settings atomic.Pointer[Settings]
	set      sync.Mutex // held while settings change
	// temporary says that the session may have temporary tables.
	temporary atomic.Bool
	kept      atomic.Bool
	closed    atomic.Bool

	// Guarded by the manager's mutex.
	used time.Time
	busy int // statements that run
}

// Defaults are the settings of a client without a session.
func (m *Manager) Defaults() *Settings { return &m.cfg.Defaults }

// Find returns the session of a user's token and renews it; nil if there is none.
func (m *Manager) Find(t Token, user string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[t.ID]
	if s == nil || s.User != user {
		return nil
	}
	now := m.cfg.Now()
	if m.expired(s, now) {
		return nil // until the next sweep
	}
	s.used = now
	return s
}

// Open returns the session of a user's token and makes it if there is none. A
// full Manager refuses with 53400.
func (m *Manager) Open(t Token, user string) (*Session, error) {
	if s := m.Find(t, user); s != nil {
		return s, nil
	}
	m.Sweep()
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[t.ID]; s != nil { // another call was faster, or another user has it
		if s.User != user {
			return nil, sqlstate.New(sqlstate.InvalidAuthorization, "the session belongs to another user")
		}
		return s, nil
	}
	if len(m.sessions) >= m.cfg.Limit {
		return nil, sqlstate.New(sqlstate.TooManyRequests, "there are already %d sessions on this gateway", m.cfg.Limit).
			WithHint("close those that are not needed, or retry when some have been idle for %s", m.cfg.Idle)
	}
	s := &Session{ID: t.ID, Name: NewToken().ID[:16], User: user, used: m.cfg.Now()}
	s.settings.Store(&m.cfg.Defaults)
	m.sessions[t.ID] = s
	delete(m.lost, t.ID)
	return s, nil
}

// Lost reports whether the client of a token is still to be told that its session
// is gone, which it then is. Of old ones, those above the limit of sessions, it is
// told again.
func (m *Manager) Lost(t Token) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost[t.ID] {
		return false
	}
	if len(m.order) >= m.cfg.Limit {
		delete(m.lost, m.order[0])
		m.order = m.order[1:]
	}
	m.lost[t.ID] = true
	m.order = append(m.order, t.ID)
	return true
}

func (m *Manager) expired(s *Session, now time.Time) bool {
	return s.busy == 0 && now.Sub(s.used) > m.cfg.Idle
}

// Begin keeps the session from expiring until the function it returns is called.
// A nil session is that of a client without one.
func (m *Manager) Begin(s *Session) (end func()) {
	if s == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.busy++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		s.busy--
		s.used = m.cfg.Now()
	}
}

// Close ends a session and reports whether there was one.
func (m *Manager) Close(s *Session) bool {
	if s == nil {
		return false
	}
	m.mu.Lock()
	found := m.sessions[s.ID] == s
	if found {
		delete(m.sessions, s.ID)
		s.closed.Store(true)
	}
	m.mu.Unlock()
	if found && m.cfg.Ended != nil {
		m.cfg.Ended(s)
	}
	return found
}

// Sweep ends the sessions that have expired.
func (m *Manager) Sweep() {
	m.mu.Lock()
	now := m.cfg.Now()
	var gone []*Session
	for _, s := range m.sessions {
		if m.expired(s, now) {
			gone = append(gone, s)
		}
	}
	m.mu.Unlock()
	for _, s := range gone {
		m.Close(s)
	}
}

// Count is how many sessions there are.
func (m *Manager) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// HoldsTables reports whether any session may have temporary tables.
func (m *Manager) HoldsTables() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sessions {
		if s.temporary.Load() {
			return true
		}
	}
	return false
}

// Settings are the session's of now. Do not modify them.
func (s *Session) Settings() *Settings { return s.settings.Load() }

// Change replaces the settings by what f makes of a copy of them, unless it fails.
func (s *Session) Change(f func(*Settings) error) error {
	s.set.Lock()
	defer s.set.Unlock()
	changed := *s.settings.Load()
	if err := f(&changed); err != nil {
		return err
	}
	s.settings.Store(&changed)
	return nil
}

// Temporary reports whether the session may have temporary tables.
func (s *Session) Temporary() bool { return s.temporary.Load() }

// KeepTemporary notes that it may from now on.
func (s *Session) KeepTemporary() { s.temporary.Store(true) }

// Kept reports whether the client would miss the session: it has settings or
// temporary tables, and not just handles that say so themselves when they are gone.
func (s *Session) Kept() bool { return s.kept.Load() }

// Keep notes that the client would from now on.
func (s *Session) Keep() { s.kept.Store(true) }

// Closed reports whether the session has ended.
func (s *Session) Closed() bool { return s.closed.Load() }
