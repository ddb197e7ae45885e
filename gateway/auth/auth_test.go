package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"skein/catalog"
	"skein/consensus"
	"skein/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what a fake cluster knows, and a clock.
type world struct {
	mu        sync.Mutex
	meta      *consensus.MetaSnapshot
	next      *consensus.MetaSnapshot // what a refresh brings
	refreshes int
	now       time.Time
}

func (w *world) Metadata() *consensus.MetaSnapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.meta
}

func (w *world) Refresh(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshes++
	if w.next != nil {
		w.meta, w.next = w.next, nil
	}
	return nil
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) change(f func(m *consensus.MetaSnapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := *w.meta
	changed.Users = append([]consensus.User(nil), w.meta.Users...)
	f(&changed)
	w.meta = &changed
}

func hashed(t *testing.T, password string) string {
	t.Helper()
	h, err := Hash(password)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func signingKey(id uint64) catalog.SigningKey {
	return catalog.SigningKey{ID: id, Secret: bytes.Repeat([]byte{byte(id)}, consensus.MinSecretBytes)}
}

func newWorld(t *testing.T) *world {
	return &world{now: time.Unix(1_700_000_000, 0), meta: &consensus.MetaSnapshot{
		ClusterID: "c1", Keys: []catalog.SigningKey{signingKey(1)},
		Users: []consensus.User{
			{ID: 1, Name: "ann", Superuser: true, PasswordHash: hashed(t, "right"), Credential: 5},
			{ID: 2, Name: "bob", PasswordHash: hashed(t, "bob's"), Credential: 6},
			{ID: 3, Name: "carl", Credential: 7},
		},
	}}
}

func newAuthenticator(t *testing.T, w *world, log *bytes.Buffer) *Authenticator {
	t.Helper()
	a, err := New(Config{Directory: w, Now: w.clock, TokenLife: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLoginsAndTokens(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	var log bytes.Buffer
	a := newAuthenticator(t, w, &log)
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	id, token, err := a.Header(ctx, basic("ann", "right"), "h")
	if err != nil || id.User != "ann" || !id.Superuser || len(id.Roles) != 1 || token == "" {
		t.Fatalf("%+v, %q, %v", id, token, err)
	}
	id, renewed, err := a.Header(ctx, "bearer "+token, "h")
	if err != nil || id.User != "ann" || !id.Superuser || renewed != "" {
		t.Errorf("%+v, %q, %v", id, renewed, err)
	}
	for header, code := range map[string]sqlstate.Code{
		basic("ann", "wrong"): sqlstate.InvalidPassword, basic("ann", ""): sqlstate.InvalidPassword,
		basic("nobody", "right"): sqlstate.InvalidPassword, basic("", ""): sqlstate.InvalidPassword,
		basic("carl", ""): sqlstate.InvalidPassword, basic("carl", "x"): sqlstate.InvalidPassword,
		basic("bob", strings.Repeat("x", maxPassword+1)): sqlstate.InvalidPassword,
		"Basic !": sqlstate.InvalidAuthorization, "Basic " + base64.StdEncoding.EncodeToString([]byte("ann")): sqlstate.InvalidAuthorization,
		"": sqlstate.InvalidAuthorization, "Digest x": sqlstate.InvalidAuthorization, "Bearer": sqlstate.InvalidAuthorization,
		"Bearer x": sqlstate.InvalidAuthorization, "Bearer " + token + "x": sqlstate.InvalidAuthorization,
		"Bearer " + strings.Repeat("x", maxToken+1): sqlstate.InvalidAuthorization,
	} {
		if id, _, err := a.Header(ctx, header, "h"); sqlstate.CodeOf(err) != code || id.User != "" {
			t.Errorf("%.60q: %+v, %v", header, id, err)
		}
	}
	if text := log.String(); !strings.Contains(text, "nobody") || strings.Contains(text, "wrong") || strings.Contains(text, "right") {
		t.Errorf("the log says %s", text)
	}
	bob, err := issue(w.Metadata(), w.Metadata().Users[1], w.clock(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id, _, err := a.Token(ctx, bob); err != nil || id.User != "bob" || id.Superuser || id.Roles != nil {
		t.Errorf("%+v, %v", id, err)
	}

	w.pass(31 * time.Minute)
	_, renewed, err = a.Token(ctx, token)
	if err != nil || renewed == "" || renewed == token {
		t.Errorf("half of its life later: %q, %v", renewed, err)
	}
	w.pass(30 * time.Minute)
	if _, _, err := a.Token(ctx, token); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its life: %v", err)
	}
	fresh := newAuthenticator(t, w, &log) // has not seen it before
	if _, _, err := fresh.Token(ctx, token); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its life, elsewhere: %v", err)
	}
	if _, _, err := fresh.Token(ctx, renewed); err != nil {
		t.Errorf("the renewed one: %v", err)
	}

	// Tokens end with the password, the user and the key.
	w.change(func(m *consensus.MetaSnapshot) { m.Keys = []catalog.SigningKey{signingKey(1), signingKey(2)} })
	if _, _, err := a.Token(ctx, renewed); err != nil {
		t.Errorf("while the old key is known: %v", err)
	}
	w.change(func(m *consensus.MetaSnapshot) { m.Users[0].Credential++ })
	if _, _, err := a.Token(ctx, renewed); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("with another password: %v", err)
	}
	w.change(func(m *consensus.MetaSnapshot) { m.Users[0].Credential--; m.Users[0].ID = 9 })
	if _, _, err := a.Token(ctx, renewed); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("of another user of the name: %v", err)
	}
	w.change(func(m *consensus.MetaSnapshot) { m.Users[0].ID = 1; m.Keys = m.Keys[1:] })
	if _, _, err := a.Token(ctx, renewed); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("without its key: %v", err)
	}
}

// Tokens that others have made, in the ways in which tokens have been forged.
func TestForgedTokens(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	a := newAuthenticator(t, w, &bytes.Buffer{})
	ann := w.meta.Users[0]
	good := claims{UserID: ann.ID, Credential: ann.Credential, RegisteredClaims: jwt.RegisteredClaims{
		Issuer: issuer, Subject: "ann", Audience: jwt.ClaimStrings{"c1"},
		IssuedAt: jwt.NewNumericDate(w.now), ExpiresAt: jwt.NewNumericDate(w.now.Add(time.Hour)),
	}}
	key, err := tokenKey(signingKey(1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := tokenKey(signingKey(2))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(method jwt.SigningMethod, kid any, key any, change func(c *claims)) string {
		c := good
		change(&c)
		token := jwt.NewWithClaims(method, c)
		if kid != nil {
			token.Header["kid"] = kid
		}
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	same := func(*claims) {}
	if _, _, err := a.Token(ctx, sign(jwt.SigningMethodHS256, "1", key, same)); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, token := range map[string]string{
		"none":           sign(jwt.SigningMethodNone, "1", jwt.UnsafeAllowNoneSignatureType, same),
		"method":         sign(jwt.SigningMethodHS512, "1", key, same),
		"key":            sign(jwt.SigningMethodHS256, "1", other, same),
		"envelopes' key": sign(jwt.SigningMethodHS256, "1", signingKey(1).Secret, same),
		"unknown key":    sign(jwt.SigningMethodHS256, "2", other, same),
		"no key id":      sign(jwt.SigningMethodHS256, nil, key, same),
		"key id number":  sign(jwt.SigningMethodHS256, 1, key, same),
		"cluster":        sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.Audience = jwt.ClaimStrings{"c2"} }),
		"issuer":         sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.Issuer = "other" }),
		"endless":        sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.ExpiresAt = nil }),
		"ageless":        sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.IssuedAt = nil }),
		"from tomorrow":  sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.IssuedAt = jwt.NewNumericDate(w.now.Add(24 * time.Hour)) }),
		"user":           sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.Subject = "bob" }),
		"nobody":         sign(jwt.SigningMethodHS256, "1", key, func(c *claims) { c.Subject = "" }),
	} {
		id, _, err := a.Token(ctx, token)
		if sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization || id.User != "" || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	if w.refreshes > 2 {
		t.Errorf("unknown keys made the gateway ask %d times", w.refreshes)
	}
}

// A user, a password and a key that were made through another gateway are found.
func TestNewsFromElsewhere(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	a := newAuthenticator(t, w, &bytes.Buffer{})
	if _, _, err := a.Password(ctx, "ann", "right", "h"); err != nil {
		t.Fatal(err)
	}
	next := *w.meta
	next.Users = append([]consensus.User{{ID: 1, Name: "ann", PasswordHash: hashed(t, "new"), Credential: 8}}, w.meta.Users[1:]...)
	next.Keys = append(next.Keys, signingKey(2))
	w.next = &next
	token, err := issue(&next, next.Users[0], w.clock(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id, _, err := a.Password(ctx, "ann", "new", "h"); err != nil || id.User != "ann" {
		t.Errorf("the new password: %+v, %v", id, err)
	}
	if _, _, err := a.Password(ctx, "ann", "right", "h"); sqlstate.CodeOf(err) != sqlstate.InvalidPassword {
		t.Errorf("the old password, which was right a moment ago: %v", err)
	}
	b := newAuthenticator(t, newWorld(t), &bytes.Buffer{})
	b.cfg.Directory.(*world).next = &next
	if id, _, err := b.Token(ctx, token); err != nil || id.User != "ann" {
		t.Errorf("a token of a new key: %+v, %v", id, err)
	}
}

func TestDelays(t *testing.T) {
	last := time.Duration(0)
	for n := range 200 {
		d := delayAfter(n)
		if d < last || d > longestDelay || (n <= freeFailures) != (d == 0) {
			t.Errorf("%v after %d failures, %v before", d, n, last)
		}
		last = d
	}
	if last != longestDelay {
		t.Errorf("it ends at %v", last)
	}
}

// However many passwords are tried at once, few are hashed in a time; those who
// wait and those who are refused cost nothing, and other hosts are let in.
func TestGuessing(t *testing.T) {
	w := newWorld(t)
	var results sync.Map
	a := newAuthenticator(t, w, &bytes.Buffer{})
	a.cfg.Counted = func(result string) {
		n, _ := results.LoadOrStore(result, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
	}
	count := func(result string) int32 {
		n, ok := results.Load(result)
		if !ok {
			return 0
		}
		return n.(*atomic.Int32).Load()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	guess := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, _, err := a.Password(ctx, "bob", fmt.Sprint("guess ", i, n), "evil")
				if code := sqlstate.CodeOf(err); code != sqlstate.InvalidPassword && code != sqlstate.TooManyRequests {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	guess(60)
	failed, refused := count(LoginFailed), count(LoginRefused)
	// 3 for free, then 0.2, 0.4, 0.8, 1.6, ... s: what would wait longer than 2 s is refused.
	if failed < freeFailures || failed > freeFailures+5 || failed+refused != 60 {
		t.Errorf("of 60 guesses at once %d were looked at, %d refused", failed, refused)
	}
	guess(20)
	if again := count(LoginFailed); again != failed {
		t.Errorf("%d more were looked at at once", again-failed)
	}
	if _, _, err := a.Password(ctx, "bob", "bob's", "evil"); sqlstate.CodeOf(err) != sqlstate.TooManyRequests {
		t.Errorf("the right one from there: %v", err)
	}
	if _, _, err := a.Password(ctx, "bob", "bob's", "home"); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	w.pass(10 * time.Minute)
	if _, _, err := a.Password(ctx, "bob", "bob's", "evil"); err != nil {
		t.Errorf("from there when time has passed: %v", err)
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	if a.gate.total != 0 || len(a.gate.waiting) != 0 || a.gate.failures.Contains(attempt{"bob", "evil"}) {
		t.Errorf("what is left: %d, %v", a.gate.total, a.gate.waiting)
	}
}

// Many connections of one client are one login.
func TestManyConnections(t *testing.T) {
	w := newWorld(t)
	a := newAuthenticator(t, w, &bytes.Buffer{})
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, _, err := a.Password(t.Context(), "ann", "right", "pool"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A login whose client goes away while it waits for its turn is none.
func TestAbandonedLogin(t *testing.T) {
	w := newWorld(t)
	a := newAuthenticator(t, w, &bytes.Buffer{})
	who := attempt{"bob", "h"}
	for range freeFailures + 2 {
		leave, err := a.gate.enter(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		leave(wrong)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.gate.enter(gone, who); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if a.gate.total != 0 {
		t.Errorf("%d are under way", a.gate.total)
	}
}
