package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"skein/consensus"
	"skein/flightproto"
	"skein/sqlstate"
)

// Identity is who makes a call.
type Identity struct {
	User string
	// Roles go into the envelopes that workers check.
	Roles []string
	// Superuser may administer the cluster and see and end what others do.
	Superuser bool
}

// Directory is where an Authenticator finds users and keys.
type Directory interface {
	// Metadata is what is known of the cluster; it is not changed.
	Metadata() *consensus.MetaSnapshot
	// Refresh asks for newer metadata, as far as it can be had.
	Refresh(ctx context.Context) error
}

// Results of logins, for a counter.
const (
	LoginOK      = "ok"
	LoginFailed  = "failed"
	LoginRefused = "refused" // too many at a time, or after too many failures
)

// Config configures an Authenticator.
type Config struct {
	Directory Directory
	Logger    *slog.Logger
	TokenLife time.Duration
	// Counted is told the result of each login; it must not block.
	Counted func(result string)
	Now     func() time.Time
}

const (
	// loginTimeout bounds one login, waits included.
	loginTimeout = 10 * time.Second
	// knownFor is how long a password that was right need not be hashed again.
	knownFor = 5 * time.Minute
	// keptLogins and keptTokens bound the logins and tokens that are remembered.
	keptLogins = 4096
	keptTokens = 8192
	// refreshEvery bounds how often those who are unknown make the gateway ask.
	refreshEvery = 200 * time.Millisecond
)

// Authenticator tells who makes a call by what the call's headers say. It is safe
// for concurrent use.
type Authenticator struct {
	cfg  Config
	gate *gate
	// key makes what logins are remembered by, and nobody can tell passwords from.
	key    []byte
	decoy  *hash // of nobody, so that unknown users take as long as others
	logins *lru.Cache[[sha256.Size]byte, login]
	tokens *lru.Cache[string, openedToken]
	flight singleflight.Group // logins with the same password at the same time

	refreshed atomic.Pointer[time.Time]
	refresh   sync.Mutex
}

// login is one that succeeded.
type login struct {
	userID, credential uint64
	until              time.Time
}

// openedToken is a token whose signature is right.
type openedToken struct {
	user               string
	userID, credential uint64
	key                uint64
	issued, expires    time.Time
}

// New returns an Authenticator.
func New(cfg Config) (*Authenticator, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Authenticator{cfg: cfg, key: make([]byte, sha256.Size)}
	rand.Read(a.key) // never fails: it aborts the process when the system has no randomness
	a.decoy = &hash{cost: newCost, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}
	rand.Read(a.decoy.key)
	var err error
	if a.gate, err = newGate(cfg.Now); err != nil {
		return nil, err
	}
	if a.logins, err = lru.New[[sha256.Size]byte, login](keptLogins); err != nil {
		return nil, err
	}
	a.tokens, err = lru.New[string, openedToken](keptTokens)
	return a, err
}

// identityOf is what a user is to the gateway.
func identityOf(u consensus.User) Identity {
	id := Identity{User: u.Name, Superuser: u.Superuser}
	if u.Superuser {
		id.Roles = []string{flightproto.RoleSuperuser}
	}
	return id
}

// HashPassword is Hash, when few others are hashing.
func (a *Authenticator) HashPassword(ctx context.Context, password string) (hashed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	if waited := a.gate.hashing(ctx, func() { hashed, err = Hash(password) }); waited != nil {
		return "", waited
	}
	return hashed, err
}

// Header checks the value of an authorization header, of a call from a host. It
// returns who makes the call and, where the client should have a new one, a token.
// Errors have SQLSTATE 28000, 28P01 or 53400.
func (a *Authenticator) Header(ctx context.Context, value, host string) (Identity, string, error) {
	scheme, credential, _ := strings.Cut(strings.TrimSpace(value), " ")
	credential = strings.TrimSpace(credential)
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return a.Token(ctx, credential)
	case strings.EqualFold(scheme, "Basic"):
		user, password, ok := decodeBasic(credential)
		if !ok {
			return Identity{}, "", sqlstate.New(sqlstate.InvalidAuthorization, "the authorization header is not Basic with USER:PASSWORD in base64")
		}
		return a.Password(ctx, user, password, host)
	}
	return Identity{}, "", errNobody
}

// errNobody is the error for a call without authorization.
var errNobody = sqlstate.New(sqlstate.InvalidAuthorization, "this gateway wants to know who you are, and the call says nothing").
	WithHint("Connect with a user and a password.")

func decodeBasic(text string) (user, password string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		if raw, err = base64.RawStdEncoding.DecodeString(text); err != nil {
			return "", "", false
		}
	}
	user, password, ok = strings.Cut(string(raw), ":")
	return user, password, ok && utf8.ValidString(user)
}

// Password checks a user's password, as Header does, and gives out a token.
func (a *Authenticator) Password(ctx context.Context, user, password, host string) (Identity, string, error) {
	found, err := a.login(ctx, user, password, host)
	switch sqlstate.CodeOf(err) {
	case sqlstate.TooManyRequests:
		a.counted(LoginRefused)
	case sqlstate.InvalidPassword:
		a.counted(LoginFailed)
		a.cfg.Logger.Info("a login failed", "user", clip(user), "host", host)
	}
	if err != nil {
		return Identity{}, "", err
	}
	token, err := issue(a.cfg.Directory.Metadata(), found, a.cfg.Now(), a.cfg.TokenLife)
	if err != nil {
		return Identity{}, "", err
	}
	a.counted(LoginOK)
	return identityOf(found), token, nil
}

func (a *Authenticator) counted(result string) {
	if a.cfg.Counted != nil {
		a.cfg.Counted(result)
	}
}

// clip keeps what somebody claims to be from filling the log.
func clip(user string) string {
	if len(user) > 64 {
		return strings.ToValidUTF8(user[:64], "") + "..."
	}
	return user
}

func wrongPassword(user string) error {
	return sqlstate.New(sqlstate.InvalidPassword, "password authentication failed for user %q", clip(user))
}

// login returns the user of a name and password. What was right lately is not
// hashed again, and what comes several times at once is hashed once.
func (a *Authenticator) login(ctx context.Context, user, password, host string) (consensus.User, error) {
	if user == "" || len(password) > maxPassword {
		return consensus.User{}, wrongPassword(user)
	}
	sum := a.sum(user, password)
	if known, ok := a.logins.Get(sum); ok && a.cfg.Now().Before(known.until) {
		u, ok := a.cfg.Directory.Metadata().User(user)
		if ok && u.ID == known.userID && u.Credential == known.credential {
			return u, nil
		}
	}
	result, err, _ := a.flight.Do(host+"\x00"+string(sum[:]), func() (any, error) {
		// Others may share the result, so the end of this call does not matter.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
		defer cancel()
		u, err := a.try(ctx, attempt{user, host}, password)
		if err == nil {
			a.logins.Add(sum, login{u.ID, u.Credential, a.cfg.Now().Add(knownFor)})
		}
		return u, err
	})
	return result.(consensus.User), err
}

func (a *Authenticator) sum(user, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, a.key)
	h.Write([]byte(user))
	h.Write([]byte{0})
	h.Write([]byte(password))
	h.Sum(sum[:0])
	return sum
}

// try compares a password with its hash.
func (a *Authenticator) try(ctx context.Context, who attempt, password string) (consensus.User, error) {
	leave, err := a.gate.enter(ctx, who)
	if err != nil {
		return consensus.User{}, err
	}
	ended := undecided
	defer func() { leave(ended) }()
	u, ok := a.cfg.Directory.Metadata().User(who.user)
	match, err := a.matches(ctx, u, ok, password)
	if err == nil && !match {
		// The user, or the password, may be new.
		before := u.Credential
		a.renewMetadata(ctx)
		if u, ok = a.cfg.Directory.Metadata().User(who.user); ok && u.Credential != before {
			match, err = a.matches(ctx, u, ok, password)
		}
	}
	switch {
	case err != nil:
		return consensus.User{}, sqlstate.New(sqlstate.TooManyRequests, "the login took too long, because of many others: %w", err).
			WithHint("Retry a little later.")
	case !match:
		ended = wrong
		return consensus.User{}, wrongPassword(who.user)
	}
	ended = right
	return u, nil
}

// matches takes as long for a user who does not exist, or has no password.
func (a *Authenticator) matches(ctx context.Context, u consensus.User, exists bool, password string) (bool, error) {
	h := a.decoy
	real := exists && u.PasswordHash != ""
	if real {
		var err error
		if h, err = parseHash(u.PasswordHash); err != nil {
			a.cfg.Logger.Error("the hash of a user's password cannot be read", "user", u.Name, "err", err)
			h, real = a.decoy, false
		}
	}
	match := false
	if err := a.gate.hashing(ctx, func() { match = h.matches(password) }); err != nil {
		return false, err
	}
	return match && real, nil
}

// renewMetadata asks for newer metadata, unless that was done a moment ago.
func (a *Authenticator) renewMetadata(ctx context.Context) {
	a.refresh.Lock()
	defer a.refresh.Unlock()
	now := a.cfg.Now()
	if last := a.refreshed.Load(); last != nil && now.Sub(*last) < refreshEvery {
		return
	}
	if err := a.cfg.Directory.Refresh(ctx); err != nil {
		a.cfg.Logger.Debug("users could not be asked for anew", "err", err)
	}
	now = a.cfg.Now()
	a.refreshed.Store(&now)
}

// Token checks a token that was given out before. One that has lived half of its
// life is renewed, so that clients which take up new ones stay connected.
func (a *Authenticator) Token(ctx context.Context, token string) (Identity, string, error) {
	opened, err := a.open(token)
	if errors.Is(err, errUnknownKey) {
		ctx, cancel := context.WithTimeout(ctx, loginTimeout)
		defer cancel()
		a.renewMetadata(ctx)
		if opened, err = a.open(token); errors.Is(err, errUnknownKey) {
			err = refusedToken("was not given out by this cluster, or long ago")
		}
	}
	if err != nil {
		return Identity{}, "", err
	}
	meta, now := a.cfg.Directory.Metadata(), a.cfg.Now()
	u, ok := meta.User(opened.user)
	if !ok || u.ID != opened.userID || u.Credential != opened.credential || u.PasswordHash == "" {
		return Identity{}, "", refusedToken("is void: the user was dropped or has another password now")
	}
	if now.Sub(opened.issued) < opened.expires.Sub(opened.issued)/2 {
		return identityOf(u), "", nil
	}
	renewed, err := issue(meta, u, now, a.cfg.TokenLife)
	return identityOf(u), renewed, err
}

// open checks a token's signature, unless it is known, and that it has not expired.
func (a *Authenticator) open(token string) (openedToken, error) {
	meta := a.cfg.Directory.Metadata()
	if known, ok := a.tokens.Get(token); ok {
		if !a.cfg.Now().Before(known.expires.Add(tokenSkew)) {
			a.tokens.Remove(token)
			return known, refusedToken("has expired")
		}
		for _, key := range meta.Keys {
			if key.ID == known.key {
				return known, nil
			}
		}
		return known, errUnknownKey
	}
	c, key, err := openToken(meta, token, a.cfg.Now)
	if err != nil {
		return openedToken{}, err
	}
	if c.IssuedAt == nil {
		return openedToken{}, refusedToken("does not say when it was given out")
	}
	opened := openedToken{c.Subject, c.UserID, c.Credential, key, c.IssuedAt.Time, c.ExpiresAt.Time}
	a.tokens.Add(token, opened)
	return opened, nil
}
