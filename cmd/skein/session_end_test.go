package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// sessionClient is a client of the flightsql package that keeps cookies.
func sessionClient(t *testing.T, address string) *flightsql.Client {
	t.Helper()
	c, err := flightsql.NewClient(address, nil, []flight.ClientMiddleware{flight.NewClientCookieMiddleware()},
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func option(t *testing.T, name string, value any) *flight.SetSessionOptionsRequest {
	t.Helper()
	options, err := flight.NewSessionOptionValues(map[string]any{name: value})
	if err != nil {
		t.Fatal(err)
	}
	return &flight.SetSessionOptionsRequest{SessionOptions: options}
}

// temporaryTables lists the temporary tables of all sessions.
func temporaryTables(ctx context.Context, t *testing.T, address string) []string {
	t.Helper()
	lines, err := query(ctx, dial(t, address), "SELECT table_name FROM skein.tables WHERE table_schema LIKE 'pg\\_temp\\_%' ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func awaitNoTemporaryTables(t *testing.T, address string) {
	t.Helper()
	eventually(t, "no temporary tables", func(ctx context.Context) error {
		if left := temporaryTables(ctx, t, address); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	ctx := testContext(t)
	c := sessionClient(t, server.flight)
	result, err := c.SetSessionOptions(ctx, option(t, "timezone", "Asia/Tokyo"))
	if err != nil || len(result.GetErrors()) > 0 {
		t.Fatalf("%v, %v", result, err)
	}
	got, err := c.GetSessionOptions(ctx, &flight.GetSessionOptionsRequest{})
	if zone := got.GetSessionOptions()["TimeZone"].GetStringValue(); err != nil || zone != "Asia/Tokyo" {
		t.Errorf("the time zone is %q, %v", zone, err)
	}
	for _, sql := range []string{"CREATE TEMP TABLE t (a INT)", "INSERT INTO t VALUES (1)", "SET application_name = 'x'"} {
		if _, err := c.ExecuteUpdate(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	prepared, err := c.Prepare(ctx, "SELECT a FROM t")
	if err != nil {
		t.Fatal(err)
	}
	if tables := temporaryTables(ctx, t, server.flight); len(tables) != 1 {
		t.Fatalf("temporary tables: %v", tables)
	}
	closed, err := c.CloseSession(ctx, &flight.CloseSessionRequest{})
	if err != nil || closed.GetStatus() != flight.CloseSessionResultClosed {
		t.Fatalf("%v, %v", closed, err)
	}
	awaitNoTemporaryTables(t, server.flight)
	if _, err := prepared.Execute(ctx); err == nil || !strings.Contains(err.Error(), "prepared statement handle") {
		t.Errorf("a prepared statement of a closed session: %v", err)
	}
	// What comes next is a new session.
	got, err = c.GetSessionOptions(ctx, &flight.GetSessionOptionsRequest{})
	if zone := got.GetSessionOptions()["TimeZone"].GetStringValue(); err != nil || zone != "UTC" {
		t.Errorf("the time zone is %q, %v", zone, err)
	}
	if closed, err := c.CloseSession(ctx, &flight.CloseSessionRequest{}); err != nil || closed.GetStatus() != flight.CloseSessionResultClosed {
		t.Errorf("closing no session: %v, %v", closed, err)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:", "--session-idle", "500ms")
	ctx := testContext(t)
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TEMP TABLE t (a INT)")
	mustExec(t, c, "SET application_name = 'x'")
	awaitNoTemporaryTables(t, server.flight)
	// The client is told once that its session is gone.
	if _, err := query(ctx, c, "SELECT 1"); codeOf(err) != "57P05" {
		t.Errorf("the first statement after: %v", err)
	}
	if lines, err := query(ctx, c, "SHOW application_name"); err != nil || lines[0] != "" {
		t.Errorf("%q, %v", lines, err)
	}
	mustExec(t, c, "SET application_name = 'again'")
}

func TestSessionLimits(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:", "--max-sessions", "2")
	ctx := testContext(t)
	clients := []*flightsql.Client{sessionClient(t, server.flight), sessionClient(t, server.flight), sessionClient(t, server.flight)}
	for i, c := range clients {
		_, err := c.SetSessionOptions(ctx, option(t, "application_name", "x"))
		if (err == nil) != (i < 2) {
			t.Fatalf("session %d: %v", i+1, err)
		}
	}
	for i := range 1001 {
		_, err := clients[0].Prepare(ctx, "SELECT 1")
		if (err == nil) != (i < 1000) {
			t.Fatalf("prepared statement %d of a session: %v", i+1, err)
		}
	}
	if _, err := clients[1].Prepare(ctx, "SELECT 1"); err != nil {
		t.Errorf("another session's prepared statement: %v", err)
	}
}

// A gateway that is stopped takes its sessions' tables along; another one, which
// does not know its sessions, says so.
func TestSessionsOfAStoppedGateway(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	var addresses []string
	for _, member := range c.members {
		_, flight, _ := strings.Cut(member, "/")
		addresses = append(addresses, flight)
	}
	address := freePorts(t, 1)[0]
	other := start(t, "gateway", "--workers", strings.Join(addresses, ","), "--flight", address, "--http", "")
	conn := dial(t, address)
	eventually(t, "a gateway that serves", func(ctx context.Context) error {
		_, err := query(ctx, conn, "CREATE TEMP TABLE IF NOT EXISTS t (a INT)")
		return err
	})
	if tables := temporaryTables(testContext(t), t, c.flight); len(tables) != 1 {
		t.Fatalf("temporary tables: %v", tables)
	}
	other.stop()
	awaitNoTemporaryTables(t, c.flight)
	start(t, "gateway", "--workers", strings.Join(addresses, ","), "--flight", address, "--http", "")
	eventually(t, "an error that says that the session is gone", func(ctx context.Context) error {
		_, err := query(ctx, conn, "SELECT 1")
		if codeOf(err) != "57P05" {
			return errors.Join(errors.New("it does not say so"), err)
		}
		return nil
	})
}
