package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestPlainFlight uses the server as a client that knows Flight but not Flight
// SQL does: commands are SQL text, paths are tables, actions take JSON.
func TestPlainFlight(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	ctx := testContext(t)
	mustExec(t, dial(t, server.flight), "CREATE TABLE birds (id BIGINT PRIMARY KEY, name TEXT)")
	mustExec(t, dial(t, server.flight), "INSERT INTO birds VALUES (1, 'goose'), (2, 'swan')")
	c, err := flight.NewClientWithMiddleware(server.flight, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, d := range map[string]*flight.FlightDescriptor{
		"command": {Type: flight.DescriptorCMD, Cmd: []byte("SELECT name FROM birds WHERE id = 2")},
		"path":    {Type: flight.DescriptorPATH, Path: []string{"birds"}},
	} {
		want := map[string]int64{"command": 1, "path": 2}[name]
		if got := plainRows(ctx, t, c, d); got != want {
			t.Errorf("%s: %d rows, want %d", name, got, want)
		}
	}
	flights, err := c.ListFlights(ctx, &flight.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := flights.Recv()
	if err != nil || info.FlightDescriptor.Path[1] != "birds" {
		t.Fatalf("the first flight is %v, %v", info, err)
	}
	if _, err := flights.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the one table: %v", err)
	}
	var status struct {
		Workers []json.RawMessage `json:"workers"`
	}
	if err := json.Unmarshal(plainAction(ctx, t, c, "skein.cluster_status", ""), &status); err != nil || len(status.Workers) != 1 {
		t.Errorf("cluster status: %d workers, %v", len(status.Workers), err)
	}
	if got := string(plainAction(ctx, t, c, "skein.cancel_query", `{"query_id": "nobody"}`)); got != `{"cancelled":false}` {
		t.Errorf("cancelling nobody: %s", got)
	}
}

// plainRows gets a descriptor's rows and checks that they have the schema
// that was announced.
func plainRows(ctx context.Context, t *testing.T, c flight.Client, d *flight.FlightDescriptor) int64 {
	t.Helper()
	info, err := c.GetFlightInfo(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.DoGet(ctx, info.Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	announced, err := flight.DeserializeSchema(info.Schema, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	if !announced.Equal(arrow.NewSchema(r.Schema().Fields(), nil)) {
		t.Errorf("announced %s, sent %s", announced, r.Schema())
	}
	var rows int64
	for r.Next() {
		rows += r.RecordBatch().NumRows()
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func plainAction(ctx context.Context, t *testing.T, c flight.Client, name, body string) []byte {
	t.Helper()
	stream, err := c.DoAction(ctx, &flight.Action{Type: name, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	result, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return result.Body
}
