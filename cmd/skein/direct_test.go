package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

const directTablets, directRows = 6, 5000

// directTable makes a table of several tablets on all workers.
func directTable(t *testing.T, address string) {
	t.Helper()
	c := dial(t, address)
	eventually(t, "three workers", func(ctx context.Context) error {
		rows, err := query(ctx, c, "SELECT count(*) FROM skein.nodes")
		if err == nil && !slices.Equal(rows, []string{"3"}) {
			err = fmt.Errorf("there are %v", rows)
		}
		return err
	})
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS d (id BIGINT PRIMARY KEY, v DECIMAL(12, 2), s TEXT)
			PARTITION BY HASH (id) WITH (tablets = %d, replicas = 1)`, directTablets))
		return err
	})
	values := make([]string, directRows)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, %d.%02d, 's%d')", i, i, i%100, i%17)
	}
	mustExec(t, c, "INSERT INTO d VALUES "+strings.Join(values, ","))
}

// directClient is a client whose session takes rows from the workers.
func directClient(t *testing.T, address string) *flightsql.Client {
	t.Helper()
	c := sessionClient(t, address)
	if _, err := c.SetSessionOptions(testContext(t), option(t, "skein.direct_endpoints", true)); err != nil {
		t.Fatal(err)
	}
	return c
}

// fetchDirect reads an endpoint where it is, as any client of Flight would.
func fetchDirect(ctx context.Context, t *testing.T, e *flight.FlightEndpoint, want *arrow.Schema) ([]string, error) {
	t.Helper()
	if len(e.Location) != 1 || !strings.HasPrefix(e.Location[0].Uri, "grpc+tcp://") {
		return nil, fmt.Errorf("the endpoint is at %v", e.Location)
	}
	r, err := sqlClient(t, strings.TrimPrefix(e.Location[0].Uri, "grpc+tcp://")).DoGet(ctx, e.Ticket)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	if got := r.Schema(); !got.Equal(want) || !got.Field(0).Metadata.Equal(want.Field(0).Metadata) {
		return nil, fmt.Errorf("the stream is of %s, the FlightInfo of %s", got, want)
	}
	var rows []string
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			row := make([]string, rec.NumCols())
			for c := range row {
				row[c] = rec.Column(c).ValueStr(i)
				if d, ok := rec.Column(c).(*array.Decimal128); ok { // with its zeros
					row[c] = d.Value(i).ToString(2)
				}
			}
			rows = append(rows, strings.Join(row, ","))
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return rows, nil
}

// fetchAllDirect reads all endpoints at the same time.
func fetchAllDirect(ctx context.Context, t *testing.T, info *flight.FlightInfo) ([]string, error) {
	t.Helper()
	schema := schemaOf(t, info.Schema)
	parts := make([][]string, len(info.Endpoint))
	var group errgroup.Group
	for i, e := range info.Endpoint {
		group.Go(func() (err error) {
			parts[i], err = fetchDirect(ctx, t, e, schema)
			return err
		})
	}
	err := group.Wait()
	all := slices.Concat(parts...)
	slices.Sort(all)
	return all, err
}

// refused reports whether an error is one that a worker gives, with the code.
func refusedWith(err error, allowed ...sqlstate.Code) bool {
	return err != nil && slices.Contains(allowed, sqlstate.CodeOf(flightproto.FromStatus(err)))
}

func TestDirectEndpoints(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	directTable(t, cluster.flight)
	const text = "SELECT id + 1 AS next, v, s FROM d WHERE id % 10 <> 3"
	var want []string
	for i := range directRows {
		if i%10 != 3 {
			want = append(want, fmt.Sprintf("%d,%d.%02d,s%d", i+1, i, i%100, i%17))
		}
	}
	slices.Sort(want)

	if info := mustExecute(t, sessionClient(t, cluster.flight), text); len(info.Endpoint) != 1 || len(info.Endpoint[0].Location) != 0 {
		t.Fatalf("a session that has not asked gets the endpoints %v", info.Endpoint)
	}
	c := directClient(t, cluster.flight)
	ctx := testContext(t)
	info := mustExecute(t, c, text)
	places := map[string]bool{}
	for _, e := range info.Endpoint {
		places[e.Location[0].Uri] = true
		if left := time.Until(e.ExpirationTime.AsTime()); left < 10*time.Second || left > time.Minute {
			t.Errorf("an endpoint expires in %s", left)
		}
	}
	if len(info.Endpoint) != directTablets || len(places) != 3 || info.Ordered {
		t.Fatalf("%d endpoints at %v", len(info.Endpoint), places)
	}
	// All read one snapshot, that of the FlightInfo.
	mustExec(t, dial(t, cluster.flight), "UPDATE d SET s = 'later' WHERE id % 2 = 0")
	refuseForgeries(ctx, t, info)
	got, err := fetchAllDirect(ctx, t, info)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d rows instead of %d, error %v", len(got), len(want), err)
	}
	if _, err := fetchAllDirect(ctx, t, info); !refusedWith(err, sqlstate.UndefinedObject) {
		t.Errorf("a second fetch: %v", err)
	}
	w := watch(t, cluster)
	w.await(ctx, "the workers keep nothing", func(busy, _ int, memory int64) bool { return busy == 0 && memory == 0 })

	shell := dial(t, cluster.flight)
	mustExec(t, shell, "SET skein.direct_endpoints = on")
	if lines, err := query(ctx, shell, text); err != nil || len(lines) != len(want) {
		t.Errorf("the shell has %d rows, %v", len(lines), err)
	}
	prepared, err := c.Prepare(ctx, "SELECT id, v FROM d WHERE v >= 0")
	if err != nil {
		t.Fatal(err)
	}
	if info, err = prepared.Execute(ctx); err != nil || len(info.Endpoint) != directTablets {
		t.Fatalf("%d endpoints of a prepared statement, %v", len(info.Endpoint), err)
	}
	if got, err := fetchAllDirect(ctx, t, info); err != nil || len(got) != directRows {
		t.Errorf("%d rows of a prepared statement, %v", len(got), err)
	}
	for _, text := range []string{
		"SELECT id FROM d WHERE id = 7", "SELECT id FROM d ORDER BY id", "SELECT id FROM d LIMIT 3", "SELECT sum(v) FROM d",
		"SELECT a.id FROM d AS a JOIN d AS b ON a.id = b.id", "SELECT setting FROM pg_settings", "VALUES (1)",
	} {
		if info := mustExecute(t, c, text); len(info.Endpoint) != 1 || len(info.Endpoint[0].Location) != 0 {
			t.Errorf("%s: the endpoints are %v", text, info.Endpoint)
		} else if _, err := fetched(ctx, c, info); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	info = mustExecute(t, c, text)
	cancelled, err := c.CancelFlightInfo(ctx, &flight.CancelFlightInfoRequest{Info: info})
	if err != nil || cancelled.Status != flight.CancelStatusCancelled {
		t.Errorf("cancelling: %v, %v", cancelled, err)
	}
	if _, err := fetchAllDirect(ctx, t, info); !refusedWith(err, sqlstate.QueryCanceled) {
		t.Errorf("after a cancel: %v", err)
	}
	loseWorker(ctx, t, cluster, mustExecute(t, c, text))
}

// refuseForgeries asks the workers for what the tickets are not good for; that
// uses none of them up.
func refuseForgeries(ctx context.Context, t *testing.T, info *flight.FlightInfo) {
	t.Helper()
	schema := schemaOf(t, info.Schema)
	first := info.Endpoint[0]
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(first.Ticket.Ticket, ticket, flightproto.MaxTicketBytes); err != nil {
		t.Fatal(err)
	}
	envelope := bytes.Clone(ticket.Authorization)
	for name, change := range map[string]func(){
		"another fragment": func() { ticket.Fragment++ },
		"a longer life":    func() { ticket.Authorization[len(ticket.Authorization)-5] ^= 1 },
		"no authorization": func() { ticket.Authorization = nil },
		"as a node":        func() { ticket.Client = false },
		"a start": func() {
			ticket.Start = &pb.StartRequest{QueryId: ticket.QueryId, Authorization: envelope, Fragments: []*pb.Fragment{{Id: 99}}}
		},
	} {
		if err := flightproto.Decode(first.Ticket.Ticket, ticket, flightproto.MaxTicketBytes); err != nil {
			t.Fatal(err)
		}
		change()
		raw, err := flightproto.Encode(ticket, flightproto.MaxTicketBytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fetchDirect(ctx, t, &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: raw}, Location: first.Location}, schema)
		if !refusedWith(err, sqlstate.InvalidAuthorization, sqlstate.InsufficientPrivilege) {
			t.Errorf("a ticket with %s: %v", name, err)
		}
	}
	conn, err := flightproto.Dial(strings.TrimPrefix(first.Location[0].Uri, "grpc+tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Cancel(ctx, ticket.QueryId, "", envelope); sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
		t.Errorf("a cancel with a client's authorization: %v", err)
	}
}

// loseWorker kills a worker behind a FlightInfo: its endpoints fail as away, the
// others give their rows.
func loseWorker(ctx context.Context, t *testing.T, cluster *cluster, info *flight.FlightInfo) {
	t.Helper()
	_, lost, _ := strings.Cut(cluster.members[0], "/")
	cluster.workers[0].kill()
	schema := schemaOf(t, info.Schema)
	failed, rows := 0, 0
	for _, e := range info.Endpoint {
		got, err := fetchDirect(ctx, t, e, schema)
		if !strings.HasSuffix(e.Location[0].Uri, lost) {
			if rows += len(got); err != nil {
				t.Errorf("at %s: %v", e.Location[0].Uri, err)
			}
			continue
		}
		if failed++; status.Code(err) != codes.Unavailable || len(got) > 0 {
			t.Errorf("at the lost worker: %d rows, %v", len(got), err)
		}
	}
	if failed == 0 || rows == 0 {
		t.Errorf("%d endpoints were at the lost worker, %d rows at the others", failed, rows)
	}
}

// TestDirectEndpointsExpire leaves results where they are: workers drop them when
// their tickets expire, and the gateway gives their reservation to who waits.
func TestDirectEndpointsExpire(t *testing.T) {
	t.Parallel()
	const life = 2 * time.Second
	cluster, _ := startFaultyCluster(t, "--direct-ticket-life", life.String(), "--max-fragments", fmt.Sprint(directTablets))
	directTable(t, cluster.flight)
	c := directClient(t, cluster.flight)
	ctx := testContext(t)
	began := time.Now()
	left := mustExecute(t, c, "SELECT id, v FROM d")
	if len(left.Endpoint) != directTablets {
		t.Fatalf("%d endpoints", len(left.Endpoint))
	}
	// There is no room for another query until the first one's tickets are over.
	info := mustExecute(t, sessionClient(t, cluster.flight), "SELECT id, v FROM d")
	rows, err := fetched(ctx, c, info)
	if waited := time.Since(began); err != nil || rows != directRows || waited < life {
		t.Errorf("%d rows after %s, %v", rows, waited, err)
	}
	schema := schemaOf(t, left.Schema)
	for _, e := range left.Endpoint {
		if _, err := fetchDirect(ctx, t, e, schema); !refusedWith(err, sqlstate.QueryCanceled, sqlstate.InsufficientPrivilege) {
			t.Errorf("an expired ticket: %v", err)
		}
	}
	watch(t, cluster).await(ctx, "the workers keep nothing", func(busy, _ int, memory int64) bool { return busy == 0 && memory == 0 })
	if info := mustExecute(t, c, "SELECT id, v FROM d"); len(info.Endpoint) != directTablets {
		t.Errorf("%d endpoints", len(info.Endpoint))
	} else if got, err := fetchAllDirect(ctx, t, info); err != nil || len(got) != directRows {
		t.Errorf("%d rows, %v", len(got), err)
	}
	// A statement that may not take as long as its client does is ended.
	if _, err := c.SetSessionOptions(ctx, option(t, "statement_timeout", "300ms")); err != nil {
		t.Fatal(err)
	}
	late := mustExecute(t, c, "SELECT id, v FROM d")
	watch(t, cluster).await(ctx, "the workers keep nothing", func(busy, _ int, memory int64) bool { return busy == 0 && memory == 0 })
	if _, err := fetchAllDirect(ctx, t, late); !refusedWith(err, sqlstate.QueryCanceled) {
		t.Errorf("after the statement timeout: %v", err)
	}
}
