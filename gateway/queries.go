package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"skein/gateway/session"
	"skein/sqlstate"
)

// queries is the registry of running statements, by query id, so that they can
// be listed and cancelled.
type queries struct {
	limit int

	mu      sync.Mutex
	running map[string]*runningQuery
}

type runningQuery struct {
	id      string
	text    string
	user    string // who runs it
	started time.Time
	// settings are those of its session when it began.
	settings *session.Settings
	cancel   context.CancelCauseFunc
	// admitted counts its plans that have a permit now.
	admitted *atomic.Int32
	// runs is its last attempt that was started, nil before.
	runs *atomic.Pointer[run]
}

type runningKey struct{}

// runningIn is the statement that a context belongs to, nil for none.
func runningIn(ctx context.Context) *runningQuery {
	r, _ := ctx.Value(runningKey{}).(*runningQuery)
	return r
}

// queryMemory is what the statement's session lets each node hold for it; 0 leaves
// it to the node.
func queryMemory(ctx context.Context) int64 {
	if r := runningIn(ctx); r != nil && r.settings != nil {
		return r.settings.QueryMemory
	}
	return 0
}

// queryMemory is how much the gateway holds for a statement at most.
func (g *Server) queryMemory(asked int64) int64 {
	if asked > 0 {
		return min(asked, g.cfg.QueryMemory)
	}
	return g.cfg.QueryMemory
}

// errCancelledByUser is the cause of contexts cancelled on request.
var errCancelledByUser = sqlstate.New(sqlstate.QueryCanceled, "the query was cancelled on request")

func newQueries(limit int) *queries {
	return &queries{limit: limit, running: make(map[string]*runningQuery)}
}

// start registers a statement and derives its context. The caller calls the
// returned function when the statement has ended. Too many statements at a
// time answer 53400 rather than queueing without bound.
func (q *queries) start(ctx context.Context, id, user, text string, settings *session.Settings) (context.Context, func(), error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.running) >= q.limit {
		return nil, nil, sqlstate.New(sqlstate.TooManyRequests, "%d statements are already running on this gateway", q.limit).
			WithHint("retry when some have ended")
	}
	if _, ok := q.running[id]; ok {
		return nil, nil, sqlstate.New(sqlstate.ObjectInUse, "query %s is already running", id)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() {}
	if timeout := settings.Timeout; timeout > 0 {
		ctx, stop = context.WithTimeoutCause(ctx, timeout, sqlstate.New(sqlstate.QueryCanceled,
			"the statement ran longer than the statement timeout of %s", timeout))
	}
	r := &runningQuery{id: id, user: user, text: text, settings: settings, started: time.Now(), cancel: cancel, admitted: new(atomic.Int32), runs: new(atomic.Pointer[run])}
	q.running[id] = r
	return context.WithValue(ctx, runningKey{}, r), func() {
		stop()
		cancel(nil)
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.running, id)
	}, nil
}

// textFor is the statement as a user may see it: that of others is for superusers.
func (r *runningQuery) textFor(who Identity) string {
	if who.Superuser || r.user == who.User {
		return r.text
	}
	return "<insufficient privilege>"
}

// cancel ends a running statement and reports whether there was one.
func (q *queries) cancel(id string) bool {
	q.mu.Lock()
	r, ok := q.running[id]
	q.mu.Unlock()
	if ok {
		r.cancel(errCancelledByUser)
	}
	return ok
}

// cancelFor is cancel for a user, who may end only the own statements unless the
// user is a superuser: SQLSTATE 42501.
func (q *queries) cancelFor(who Identity, id string) (bool, error) {
	q.mu.Lock()
	r, ok := q.running[id]
	q.mu.Unlock()
	if ok && !who.Superuser && r.user != who.User {
		return false, sqlstate.New(sqlstate.InsufficientPrivilege, "statement %s is another user's", id).
			WithHint("Its user may cancel it, and a superuser.")
	}
	return q.cancel(id), nil
}

// attempt is the last attempt of a running statement, nil if there is none.
func (q *queries) attempt(id string) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r, ok := q.running[id]; ok {
		return r.runs.Load()
	}
	return nil
}

// list returns the running statements in no particular order.
func (q *queries) list() []runningQuery {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]runningQuery, 0, len(q.running))
	for _, r := range q.running {
		out = append(out, *r)
	}
	return out
}

// causeOf replaces the bare context errors by why the context ended: a
// cancelled statement says so, a broken client connection stays as it is.
func causeOf(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	var e *sqlstate.Error
	if errors.As(cause, &e) {
		return e
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return sqlstate.New(sqlstate.QueryCanceled, "the client's deadline passed before the statement ended: %w", cause)
	}
	return fmt.Errorf("the statement was abandoned: %w", sqlstate.New(sqlstate.QueryCanceled, "the client went away: %w", cause))
}
