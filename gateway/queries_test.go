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
	ctx, end, err := q.start(context.Background(), "a", "SELECT 1", &session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.start(context.Background(), "a", "SELECT 1", &session.Settings{}); sqlstate.CodeOf(err) != sqlstate.ObjectInUse {
		t.Fatalf("same id twice: %v", err)
	}
	timed, endTimed, err := q.start(context.Background(), "b", "SELECT 2", &session.Settings{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.start(context.Background(), "c", "SELECT 3", &session.Settings{}); sqlstate.CodeOf(err) != sqlstate.TooManyRequests {
		t.Fatalf("beyond the limit: %v", err)
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
