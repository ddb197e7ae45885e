package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/flightproto"
)

// windowBytes is the HTTP/2 flow control window: large enough that a stream
// of batches never waits for a window update on a local network.
const windowBytes = 8 << 20

// Client talks to one Flight SQL server. It may be used from several
// goroutines.
type Client struct {
	sql  *flightsql.Client
	addr string

	mu     sync.Mutex
	others map[string]*Client // to workers, by URI
}

// Dial prepares a connection to addr as nobody: see DialAs.
func Dial(addr string) (*Client, error) { return DialAs(addr, Access{}) }

// DialAs prepares a connection to addr, which is host:port with an optional
// grpc:// or grpc+tcp:// in front, or grpc+tls:// with TLS. It does not wait for
// the server.
func DialAs(addr string, access Access) (*Client, error) {
	target, encrypted, err := parseAddress(addr, access)
	if err != nil {
		return nil, err
	}
	transport, err := access.transport(target, encrypted)
	if err != nil {
		return nil, err
	}
	middleware, err := access.middleware()
	if err != nil {
		return nil, err
	}
	// The cookies hold the connection's session: SET and temporary tables.
	c, err := flightsql.NewClient(target, nil, append(middleware, flight.NewClientCookieMiddleware()),
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", target, err)
	}
	return &Client{sql: c, addr: target}, nil
}

// Result is what one statement gave: rows, or a count of changed rows. Use it
// from one goroutine and Close it.
type Result struct {
	schema   *arrow.Schema
	affected int64
	streams  []*flight.FlightEndpoint
	current  *flight.Reader
	client   *Client
	cancel   context.CancelFunc
	ctx      context.Context
}

// Run executes one statement, whatever its kind. Rows are read as Next is
// called; cancelling ctx ends the statement on the server.
func (c *Client) Run(ctx context.Context, statement string) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := c.run(ctx, statement)
	if err != nil {
		cancel()
		return nil, c.explain(err)
	}
	r.client, r.ctx, r.cancel = c, ctx, cancel
	return r, nil
}

func (c *Client) run(ctx context.Context, statement string) (*Result, error) {
	prepared, err := c.sql.Prepare(ctx, statement)
	if err != nil {
		return nil, err
	}
	// The server forgets handles by itself; a failed close loses nothing.
	defer func() { _ = prepared.Close(context.WithoutCancel(ctx)) }()
	if schema := prepared.DatasetSchema(); schema == nil || schema.NumFields() == 0 {
		n, err := prepared.ExecuteUpdate(ctx)
		return &Result{affected: n}, err
	}
	info, err := prepared.Execute(ctx)
	if err != nil {
		return nil, err
	}
	return &Result{schema: prepared.DatasetSchema(), streams: info.Endpoint, affected: info.TotalRecords}, nil
}

// Schema is the schema of the rows, nil where the statement has none.
func (r *Result) Schema() *arrow.Schema { return r.schema }

// Affected is the number of rows changed, -1 where it is not known.
func (r *Result) Affected() int64 { return r.affected }

// Next returns the next batch of rows, nil at the end. The batch is valid
// until the next call.
func (r *Result) Next() (arrow.RecordBatch, error) {
	for {
		if r.current == nil {
			if len(r.streams) == 0 {
				return nil, nil
			}
			reader, err := r.client.fetch(r.ctx, r.streams[0])
			if err != nil {
				return nil, r.client.explain(err)
			}
			r.streams, r.current = r.streams[1:], reader
		}
		if r.current.Next() {
			return r.current.RecordBatch(), nil
		}
		if err := r.current.Err(); err != nil {
			return nil, r.client.explain(err)
		}
		r.current.Release()
		r.current = nil
	}
}

// Close ends the statement, rows unread or not.
func (r *Result) Close() {
	r.cancel()
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
	r.streams = nil
}

// Exec runs a statement and drops its rows; it returns the rows changed.
func (c *Client) Exec(ctx context.Context, statement string) (int64, error) {
	r, err := c.Run(ctx, statement)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		batch, err := r.Next()
		if err != nil {
			return 0, err
		}
		if batch == nil {
			return r.affected, nil
		}
	}
}

// TableSchema returns the Arrow schema of a table, and false where the server
// has no such table.
func (c *Client) TableSchema(ctx context.Context, table Table) (*arrow.Schema, bool, error) {
	// As a LIKE pattern a name matches itself and perhaps more: findSchema
	// looks for the exact one. Only a backslash would not match itself.
	options := &flightsql.GetTablesOpts{IncludeSchema: true}
	if !strings.Contains(table.Name, `\`) {
		options.TableNameFilterPattern = &table.Name
	}
	info, err := c.sql.GetTables(ctx, options)
	if err != nil {
		return nil, false, c.explain(err)
	}
	for _, endpoint := range info.Endpoint {
		schema, err := c.findSchema(ctx, endpoint.Ticket, table)
		if schema != nil || err != nil {
			return schema, schema != nil, err
		}
	}
	return nil, false, nil
}

func (c *Client) findSchema(ctx context.Context, ticket *flight.Ticket, table Table) (*arrow.Schema, error) {
	reader, err := c.sql.DoGet(ctx, ticket)
	if err != nil {
		return nil, c.explain(err)
	}
	defer reader.Release()
	for reader.Next() {
		batch := reader.RecordBatch()
		names, ok := column[*array.String](batch, "table_name")
		parents, ok2 := column[*array.String](batch, "db_schema_name")
		schemas, ok3 := column[*array.Binary](batch, "table_schema")
		if !ok || !ok2 || !ok3 {
			return nil, errors.New("the server's list of tables lacks table_name, db_schema_name or table_schema")
		}
		for i := range int(batch.NumRows()) {
			if names.Value(i) == table.Name && (table.Schema == "" || parents.Value(i) == table.Schema) {
				return flight.DeserializeSchema(schemas.Value(i), c.sql.Alloc)
			}
		}
	}
	if err := reader.Err(); err != nil {
		return nil, c.explain(err)
	}
	return nil, nil
}

func column[A arrow.Array](batch arrow.RecordBatch, name string) (A, bool) {
	var none A
	indices := batch.Schema().FieldIndices(name)
	if len(indices) != 1 {
		return none, false
	}
	a, ok := batch.Column(indices[0]).(A)
	return a, ok
}

// UnreachableError says that no server answers, or that it went away during a
// call.
type UnreachableError struct {
	Addr string
	// Refused: there was nobody to connect to.
	Refused bool
	Err     error
}

// Error says what to do where nothing answers.
func (e *UnreachableError) Error() string {
	if e.Refused {
		return fmt.Sprintf("no Flight SQL server answers at %s; start one with `skein dev` or give --addr (%v)", e.Addr, e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns what the connection said.
func (e *UnreachableError) Unwrap() error { return e.Err }

// explain turns a gRPC status into the error that a person should read, with
// the server's *sqlstate.Error in its chain where it sent one.
func (c *Client) explain(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	// The client library puts words of its own around a status; what the server
	// sent is inside.
	restored := flightproto.FromStatus(s.Err())
	switch {
	case s.Code() == codes.Unavailable && len(s.Details()) == 0:
		return &UnreachableError{Addr: c.addr, Refused: strings.Contains(s.Message(), "connect") && !strings.Contains(s.Message(), "SQLSTATE"), Err: errors.New(s.Message())}
	case s.Code() == codes.Canceled:
		return fmt.Errorf("cancelled: %s: %w", s.Message(), context.Canceled)
	case len(s.Details()) == 0:
		return errors.New(s.Message())
	}
	return restored
}
