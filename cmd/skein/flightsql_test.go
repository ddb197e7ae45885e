package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// sqlClient is a bare Flight SQL client of a server.
func sqlClient(t *testing.T, address string) *flightsql.Client {
	t.Helper()
	c, err := flightsql.NewClient(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may be gone by then
	return c
}

// fetched reads all rows behind a FlightInfo.
func fetched(ctx context.Context, c *flightsql.Client, info *flight.FlightInfo) (rows int64, err error) {
	for _, e := range info.Endpoint {
		r, err := c.DoGet(ctx, e.Ticket)
		if err != nil {
			return rows, err
		}
		for r.Next() {
			rows += r.RecordBatch().NumRows()
		}
		err = r.Err()
		r.Release()
		if err != nil && !errors.Is(err, io.EOF) {
			return rows, err
		}
	}
	return rows, nil
}

func mustExecute(t *testing.T, c *flightsql.Client, statement string) *flight.FlightInfo {
	t.Helper()
	info, err := c.Execute(testContext(t), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return info
}

func schemaOf(t *testing.T, serialized []byte) *arrow.Schema {
	t.Helper()
	schema, err := flight.DeserializeSchema(serialized, nil)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestFlightSQLColumnMetadata(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c, ctx := sqlClient(t, server.flight), testContext(t)
	mustExecute(t, c, "CREATE TABLE typed (id BIGINT PRIMARY KEY, word VARCHAR(20), amount DECIMAL(12,3) NOT NULL, at TIMESTAMP(3), zoned TIMESTAMPTZ, key UUID)")

	want := map[string]map[string]string{
		"id":    {"TYPE_NAME": "bigint", "PRECISION": "19", "SCALE": "0", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"},
		"word":  {"TYPE_NAME": "text", "PRECISION": "20", "SCALE": "0", "IS_CASE_SENSITIVE": "1", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"},
		"total": {"TYPE_NAME": "decimal", "PRECISION": "13", "SCALE": "3", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "1", "TABLE_NAME": ""},
		"at":    {"TYPE_NAME": "timestamp", "PRECISION": "23", "SCALE": "3", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"},
		"zoned": {"TYPE_NAME": "timestamptz", "PRECISION": "32", "SCALE": "6", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"},
		"key":   {"TYPE_NAME": "uuid", "PRECISION": "36", "SCALE": "0", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"},
	}
	check := func(what string, schema *arrow.Schema) {
		t.Helper()
		if schema.NumFields() != len(want) {
			t.Errorf("%s has the schema %s", what, schema)
		}
		for _, f := range schema.Fields() {
			got := map[string]string{}
			for key := range want[f.Name] {
				got[key], _ = f.Metadata.GetValue("ARROW:FLIGHT:SQL:" + key)
			}
			if diff := cmp.Diff(want[f.Name], got); diff != "" {
				t.Errorf("%s, column %s: %s", what, f.Name, diff)
			}
			md := flightsql.ColumnMetadata{Data: &f.Metadata}
			if v, ok := md.IsSearchable(); !ok || !v {
				t.Errorf("%s, column %s is not searchable", what, f.Name)
			}
			if v, ok := md.IsAutoIncrement(); !ok || v {
				t.Errorf("%s, column %s counts up", what, f.Name)
			}
			_, inCatalog := md.CatalogName()
			_, inSchema := md.SchemaName()
			if fromTable := want[f.Name]["TABLE_NAME"] != ""; inCatalog != fromTable || inSchema != fromTable {
				t.Errorf("%s, column %s: catalog %v, schema %v", what, f.Name, inCatalog, inSchema)
			}
		}
	}
	text := `WITH w AS (SELECT * FROM typed WHERE id > 0 ORDER BY id LIMIT 10)
		SELECT w.id, x.word, w.amount + 1 AS total, w.at, x.zoned, x.key FROM w LEFT JOIN typed x ON x.id = w.id`
	info := mustExecute(t, c, text)
	check("a query's FlightInfo", schemaOf(t, info.Schema))
	r, err := c.DoGet(ctx, info.Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	check("a query's stream", r.Schema())
	r.Release()
	result, err := c.GetExecuteSchema(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	check("a query's GetSchema", schemaOf(t, result.Schema))
	prepared, err := c.Prepare(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	check("a prepared statement", prepared.DatasetSchema())
	returning, err := c.GetExecuteSchema(ctx, "UPDATE typed SET word = 'x' RETURNING id, word, amount + 1 AS total, at, zoned, key")
	if err != nil {
		t.Fatal(err)
	}
	check("RETURNING", schemaOf(t, returning.Schema))

	name := "typed"
	tables, err := c.GetTables(ctx, &flightsql.GetTablesOpts{TableNameFilterPattern: &name, IncludeSchema: true})
	if err != nil {
		t.Fatal(err)
	}
	listing, err := c.DoGet(ctx, tables.Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	defer listing.Release()
	if !listing.Next() {
		t.Fatal("no table is listed")
	}
	listed := schemaOf(t, listing.RecordBatch().Column(4).(*array.Binary).Value(0))
	want["amount"] = map[string]string{"TYPE_NAME": "decimal", "PRECISION": "12", "SCALE": "3", "IS_READ_ONLY": "0", "TABLE_NAME": "typed"}
	delete(want, "total")
	check("GetTables", listed)
}

func TestFlightSQLTypesAndInfo(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c, ctx := sqlClient(t, server.flight), testContext(t)

	listing := func(info *flight.FlightInfo, err error) arrow.RecordBatch {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.DoGet(ctx, info.Endpoint[0].Ticket)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		if !r.Schema().Equal(schemaOf(t, info.Schema)) {
			t.Errorf("the FlightInfo promises %s, the stream has %s", schemaOf(t, info.Schema), r.Schema())
		}
		if !r.Next() {
			t.Fatalf("no rows: %v", r.Err())
		}
		rec := r.RecordBatch()
		rec.Retain()
		t.Cleanup(rec.Release)
		return rec
	}
	names := func(rec arrow.RecordBatch) []string {
		column := rec.Column(0).(*array.String)
		out := make([]string, column.Len())
		for i := range out {
			out[i] = column.Value(i)
		}
		return out
	}
	all := names(listing(c.GetXdbcTypeInfo(ctx, nil)))
	// Every type that can be declared is listed, and what is listed can be.
	for _, name := range all {
		mustExecute(t, c, fmt.Sprintf("SELECT CAST(NULL AS %s)", name))
	}
	for _, name := range []string{"boolean", "smallint", "integer", "bigint", "real", "double precision", "decimal", "text", "varchar", "char", "bytea", "date", "time", "timestamp", "timestamptz", "interval", "uuid"} {
		if !slices.Contains(all, name) {
			t.Errorf("type %s is not listed", name)
		}
	}
	timestamps := int32(93)
	if got := names(listing(c.GetXdbcTypeInfo(ctx, &timestamps))); !slices.Equal(got, []string{"timestamp", "timestamptz"}) {
		t.Errorf("timestamps are %q", got)
	}

	// Every code that Flight SQL knows has a value.
	var infos []flightsql.SqlInfo
	for code := range pb.SqlInfo_name {
		infos = append(infos, flightsql.SqlInfo(code))
	}
	if got := listing(c.GetSqlInfo(ctx, infos)).NumRows(); int(got) != len(infos) {
		t.Errorf("%d of %d codes of SqlInfo are answered", got, len(infos))
	}
	if got := listing(c.GetSqlInfo(ctx, nil)).NumRows(); int(got) != len(infos) {
		t.Errorf("%d codes of SqlInfo are listed, there are %d", got, len(infos))
	}

	// What SqlInfo denies is unimplemented.
	for what, err := range map[string]error{
		"a transaction": func() error { _, err := c.BeginTransaction(ctx); return err }(),
		"a Substrait plan": func() error {
			_, err := c.ExecuteSubstrait(ctx, flightsql.SubstraitPlan{Plan: []byte("plan")})
			return err
		}(),
		"a prepared Substrait plan": func() error {
			_, err := c.PrepareSubstrait(ctx, flightsql.SubstraitPlan{Plan: []byte("plan")})
			return err
		}(),
		"a savepoint": action(ctx, c, flightsql.BeginSavepointActionType, &pb.ActionBeginSavepointRequest{TransactionId: []byte("t"), Name: "s"}),
		"its end":     action(ctx, c, flightsql.EndSavepointActionType, &pb.ActionEndSavepointRequest{SavepointId: []byte("s"), Action: pb.ActionEndSavepointRequest_END_SAVEPOINT_RELEASE}),
		"a commit":    action(ctx, c, flightsql.EndTransactionActionType, &pb.ActionEndTransactionRequest{TransactionId: []byte("t"), Action: pb.ActionEndTransactionRequest_END_TRANSACTION_COMMIT}),
	} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// action runs a Flight SQL action whose result does not matter.
func action(ctx context.Context, c *flightsql.Client, name string, request proto.Message) error {
	packed, err := anypb.New(request)
	if err != nil {
		return err
	}
	body, err := proto.Marshal(packed)
	if err != nil {
		return err
	}
	stream, err := c.Client.DoAction(ctx, &flight.Action{Type: name, Body: body})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestFlightSQLPoll(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c, ctx := sqlClient(t, server.flight), testContext(t)
	mustExecute(t, c, "CREATE TABLE n (a BIGINT PRIMARY KEY)")
	mustExecute(t, c, "INSERT INTO n SELECT * FROM generate_series(1, 300000)")

	poll, err := c.ExecutePoll(ctx, "SELECT a FROM n WHERE a <= 1000", nil)
	for err == nil && poll.GetFlightDescriptor() != nil {
		poll, err = c.ExecutePoll(ctx, "", poll.GetFlightDescriptor())
	}
	if err != nil {
		t.Fatal(err)
	}
	if poll.GetProgress() != 1 {
		t.Errorf("what is complete has the progress %v", poll.GetProgress())
	}
	if rows, err := fetched(ctx, c, poll.GetInfo()); err != nil || rows != 1000 {
		t.Errorf("%d rows: %v", rows, err)
	}
	if _, err := fetched(ctx, c, poll.GetInfo()); status.Code(err) != codes.InvalidArgument {
		t.Errorf("fetched a second time: %v", err)
	}

	done, err := c.ExecutePoll(ctx, "INSERT INTO n VALUES (-1)", nil)
	if err != nil || done.GetFlightDescriptor() != nil || done.GetInfo().GetTotalRecords() != 1 {
		t.Errorf("an INSERT answers %v, %v", done, err)
	}
	if _, err := c.ExecutePoll(ctx, "SELECT 1/(a - a) FROM n", nil); status.Code(err) == codes.OK {
		t.Error("a query that fails at once was polled without an error")
	}

	// A query that takes for ever tells how far it is, and can be cancelled.
	long, err := c.ExecutePoll(ctx, "SELECT count(*) FROM n x JOIN n y ON x.a % 3 = y.a % 3 WHERE x.a * y.a % 7 = 5", nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0.0
	for tries := 0; seen == 0 && tries < 20; tries++ {
		if long.GetFlightDescriptor() == nil {
			t.Fatal("90 billion pairs were joined")
		}
		if !long.GetExpirationTime().AsTime().After(time.Now()) {
			t.Errorf("the query expires at %s", long.GetExpirationTime().AsTime())
		}
		if seen = long.GetProgress(); seen == 0 {
			if long, err = c.ExecutePoll(ctx, "", long.GetFlightDescriptor()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen <= 0 || seen >= 1 {
		t.Errorf("progress is %v", seen)
	}
	cancelled, err := c.CancelFlightInfo(ctx, &flight.CancelFlightInfoRequest{Info: long.GetInfo()})
	if err != nil || cancelled.GetStatus() != flight.CancelStatusCancelled {
		t.Errorf("cancelled: %v, %v", cancelled, err)
	}
	if _, err := c.ExecutePoll(ctx, "", long.GetFlightDescriptor()); status.Code(err) != codes.Canceled {
		t.Errorf("polled after the cancel: %v", err)
	}
}

func TestFlightSQLRenew(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c, ctx := sqlClient(t, server.flight), testContext(t)
	mustExecute(t, c, "CREATE TABLE n (a BIGINT PRIMARY KEY)")
	for _, statement := range []string{
		"SELECT * FROM (VALUES (1), (2)) v",
		"EXPLAIN ANALYZE SELECT 1",
		"INSERT INTO n VALUES (1), (2) RETURNING a",
	} {
		info := mustExecute(t, c, statement)
		renewed, err := c.RenewFlightEndpoint(ctx, &flight.RenewFlightEndpointRequest{Endpoint: info.Endpoint[0]})
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(renewed.GetExpirationTime().AsTime()); left < time.Minute {
			t.Errorf("%s: expires in %s", statement, left)
		}
		info.Endpoint[0] = renewed
		first, err := fetched(ctx, c, info)
		if err != nil || first == 0 {
			t.Fatalf("%s: %d rows, %v", statement, first, err)
		}
		if again, err := fetched(ctx, c, info); err != nil || (again != first && statement[0] != 'E') {
			t.Errorf("%s: %d rows, then %d, %v", statement, first, again, err)
		}
		if result, err := c.CancelFlightInfo(ctx, &flight.CancelFlightInfoRequest{Info: info}); err != nil || result.GetStatus() != flight.CancelStatusCancelled {
			t.Errorf("%s: cancelled %v, %v", statement, result, err)
		}
		if _, err := fetched(ctx, c, info); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: fetched after the cancel: %v", statement, err)
		}
		if _, err := c.RenewFlightEndpoint(ctx, &flight.RenewFlightEndpointRequest{Endpoint: renewed}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: renewed after the cancel: %v", statement, err)
		}
	}
	once := mustExecute(t, c, "SELECT 1")
	if _, err := fetched(ctx, c, once); err != nil {
		t.Fatal(err)
	}
	if _, err := fetched(ctx, c, once); status.Code(err) != codes.InvalidArgument {
		t.Errorf("fetched twice without having been renewed: %v", err)
	}
}
