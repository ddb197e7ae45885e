package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"skein/catalog"
	"skein/gateway/session"
	"skein/gateway/system"
	"skein/sql"
	"skein/sqlstate"
)

// session returns the session that a call belongs to, nil for one of a client
// that has none. A client that comes with the token of a session which is gone is
// told so once, by an error: to run its statement with other settings than it has
// made would be worse. After that the token stands for a new session.
func (s *sqlService) session(ctx context.Context) (*session.Session, error) {
	token, ok := incomingToken(ctx)
	if !ok {
		return nil, nil
	}
	found := s.gw.sessions.Find(token, s.gw.cfg.Identify(ctx).User)
	switch {
	case found != nil && found.Kept() && !token.Kept:
		s.tellKept(ctx, token) // clients that do not read a stream to its end miss its headers
		return found, nil
	case found != nil || !token.Kept || !s.gw.sessions.Lost(token):
		return found, nil
	}
	return nil, sqlstate.New(sqlstate.SessionExpired, "the session has ended: it was closed, idle for longer than %s, or of another gateway", s.gw.cfg.SessionIdle).
		WithHint("its settings and temporary tables are gone; the next statement begins a new session")
}

// incomingToken is the token that the client of a call has.
func incomingToken(ctx context.Context) (session.Token, bool) {
	headers := metadata.ValueFromIncomingContext(ctx, "cookie")
	if len(headers) == 0 {
		return session.Token{}, false
	}
	return session.ParseCookies(headers)
}

// openSession is session for what needs one, which is made if the client can have
// one: why says what for.
func (s *sqlService) openSession(ctx context.Context, why string) (*session.Session, error) {
	found, err := s.session(ctx)
	if err != nil || (found != nil && found.Kept()) {
		return found, err
	}
	token, ok := incomingToken(ctx)
	if !ok {
		s.offerSession(ctx)
		return nil, sqlstate.New(sqlstate.ConnectionMissing, "%s needs a session, and the client sent no session cookie", why).
			WithHint("turn cookies on in the client (ADBC: adbc.flight.sql.rpc.with_cookie_middleware=true); where they are on and this was the first call, repeat it")
	}
	return s.keepSession(ctx, token)
}

// keepSession opens the session of a token and tells the client that there is
// something to lose now.
func (s *sqlService) keepSession(ctx context.Context, token session.Token) (*session.Session, error) {
	opened, err := s.gw.sessions.Open(token, s.gw.cfg.Identify(ctx).User)
	if err != nil {
		return nil, err
	}
	opened.Keep()
	if !token.Kept {
		s.tellKept(ctx, token)
	}
	return opened, nil
}

// tellKept gives a client its token as one that stands for something.
func (s *sqlService) tellKept(ctx context.Context, token session.Token) {
	token.Kept = true
	s.setCookie(ctx, token.SetCookie())
}

// offerSession gives a client without a token one. Nothing is kept for it yet.
func (s *sqlService) offerSession(ctx context.Context) {
	if _, ok := incomingToken(ctx); !ok {
		s.setCookie(ctx, session.NewToken().SetCookie())
	}
}

func (s *sqlService) setCookie(ctx context.Context, cookie string) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("set-cookie", cookie)); err != nil {
		s.gw.log.Debug("a session cookie could not be sent", "err", err)
	}
}

// settings are those of the call's session.
func (s *sqlService) settings(ctx context.Context) (*session.Settings, error) {
	found, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return s.gw.sessions.Defaults(), nil
	}
	return found.Settings(), nil
}

// scope is what names and texts mean in a session, as of one metadata version. It
// is immutable.
type scope struct {
	sql.Session
	// path are the schemas, all of which exist, where names without one are looked
	// for, after those of temporary and system tables.
	path []string
	temp *catalog.Temporary // the session's own; nil if it has no temporary tables
	// key tells scopes apart in which a text may be bound differently.
	key string
}

// plainScope is that of clients without a session and a name.
func plainScope() *scope { return &scope{path: []string{catalog.DefaultSchema}} }

// of makes the scope a user's, whose name a text may ask for.
func (c *scope) of(user string) *scope {
	if c.User = user; user != "" {
		c.key = user + "\x02" + c.key
	}
	return c
}

// scope returns what names mean for a call.
func (s *sqlService) scope(ctx context.Context) (*scope, error) {
	found, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	user := s.gw.cfg.Identify(ctx).User
	if user == AnonymousUser {
		user = ""
	}
	defaults := s.gw.sessions.Defaults()
	if found == nil || (found.Settings() == defaults && !found.Temporary()) {
		if user == "" {
			return s.plainScope, nil
		}
		return plainScope().of(user), nil
	}
	settings := found.Settings()
	out := &scope{}
	if settings.Zone != defaults.Zone {
		out.Zone = settings.Zone
	}
	snap := s.gw.directory.Current()
	for _, name := range settings.SearchPath {
		if name == session.UserSchema {
			name = s.gw.cfg.Identify(ctx).User
		}
		if snap.meta.HasSchema(name) || slices.Contains(system.Schemas(), name) {
			out.path = append(out.path, name)
		}
	}
	// Without a schema that exists, the first one's absence is what the user is told.
	out.CreateIn = cmp.Or(append(slices.Clone(out.path), settings.SearchPath...)...)
	if out.CreateIn == "" {
		out.CreateIn = noSchema
	}
	if found.Temporary() {
		out.temp = s.gw.temporaryOf(found)
	}
	out.key = out.cacheKey()
	return out.of(user), nil
}

// noSchema is the schema of new tables where the search path is empty: no schema
// has this name.
const noSchema = "pg_none"

func (c *scope) cacheKey() string {
	parts := append([]string{c.Zone, c.CreateIn}, c.path...)
	if c.temp != nil {
		parts = append(parts, "", c.temp.Session)
	}
	key := strings.Join(parts, "\x00")
	if key == "\x00"+catalog.DefaultSchema+"\x00"+catalog.DefaultSchema {
		return "" // as without a session
	}
	return key
}

// schemas are where a table is looked for: a schema's own, or without one where
// the session says.
func (c *scope) schemas(schema string) []string {
	switch schema {
	case "":
		list := make([]string, 0, len(c.path)+2)
		if c.temp != nil {
			list = append(list, c.temp.TempSchema())
		}
		return append(append(list, system.ImplicitSchema), c.path...)
	case tempSchema:
		if c.temp == nil {
			return nil
		}
		return []string{c.temp.TempSchema()}
	}
	return []string{schema}
}

// tempSchema is what a session calls the schema of its temporary tables.
const tempSchema = "pg_temp"

// sees reports whether a table is not another session's.
func (c *scope) sees(t *catalog.Table) bool {
	return t.Temporary == nil || (c.temp != nil && *t.Temporary == *c.temp)
}

// find looks a table up in a snapshot.
func (c *scope) find(snap *snapshot, schema, name string) (*catalog.Table, bool) {
	for _, schema := range c.schemas(schema) {
		if t, ok := system.Lookup(schema, name); ok {
			return t, true
		}
		if t, ok := snap.meta.TableNamed(schema, name); ok && c.sees(t) {
			return t, true
		}
	}
	return nil, false
}
