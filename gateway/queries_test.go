package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	"skein/gateway/session"
	"skein/sqlstate"
)

func TestQueriesCancelTimeoutAndLimit(t *testing.T) {
	q := newQueries(2)
	ctx, end, err := q.start(context.Background(), "a", "ann", "SELECT 1", &session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.start(context.Background(), "a", "ann", "SELECT 1", &session.Settings{}); sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
		t.Fatalf("same id twice: %v", err)
	}
	timed, endTimed, err := q.start(context.Background(), "b", "bob", "SELECT 2", &session.Settings{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.start(context.Background(), "c", "ann", "SELECT 3", &session.Settings{}); sqlstate.CodeOf(err) != sqlstate.TooManyRequests {
		t.Fatalf("beyond the limit: %v", err)
	}
	bob, super := Identity{User: "bob"}, Identity{User: "carl", Superuser: true}
	for _, r := range q.list() {
		if own := r.user == "bob"; (r.textFor(bob) == r.text) != own || r.textFor(super) != r.text {
			t.Errorf("of statement %s bob sees %q, a superuser %q", r.id, r.textFor(bob), r.textFor(super))
		}
	}
	if found, err := q.cancelFor(bob, "a"); found || sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege || ctx.Err() != nil {
		t.Errorf("bob cancelled another user's statement: %t, %v, %v", found, err, ctx.Err())
	}
	if found, err := q.cancelFor(bob, "nobody"); found || err != nil {
		t.Errorf("cancelling nothing: %t, %v", found, err)
	}
	if !q.cancel("a") || q.cancel("nobody") {
		t.Fatal("cancel reports the wrong thing")
	}
	<-ctx.Done()
	if err := causeOf(ctx, ctx.Err()); !errors.Is(err, errCancelledByUser) {
		t.Fatalf("cause of a cancel: %v", err)
	}
	<-timed.Done()
	if err := causeOf(timed, timed.Err()); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Fatalf("cause of a timeout: %v", err)
	}
	end()
	endTimed()
	if n := len(q.list()); n != 0 {
		t.Fatalf("%d statements still registered", n)
	}
}

func TestCauseOfClientGoneIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := causeOf(ctx, ctx.Err())
	if sqlstate.CodeOf(err) != sqlstate.QueryCanceled || !errors.Is(err, context.Canceled) {
		t.Fatalf("cause = %v", err)
	}
	if causeOf(ctx, nil) != nil {
		t.Fatal("success became an error")
	}
}
