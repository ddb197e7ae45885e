package flightproto

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"skein/columnar"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// Transport settings shared by both ends of an internal connection.
const (
	maxGRPCMessage   = 256 << 20
	streamWindow     = 2 << 20
	connectionWindow = 16 << 20
	socketBuffer     = 128 << 10
	streamWorkers    = 32
	keepaliveEvery   = 60 * time.Second
	keepaliveTimeout = 20 * time.Second
)

// ServerOptions are the gRPC options that a server of this protocol needs, so
// that the messages and keepalives of Conn are accepted.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		// Goroutines that stay save growing a new stack for every call.
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxGRPCMessage),
		grpc.MaxSendMsgSize(maxGRPCMessage),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.WriteBufferSize(socketBuffer),
		grpc.ReadBufferSize(socketBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 4, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
	}
}

func dialOptions() []grpc.DialOption {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 50*time.Millisecond, 2*time.Second
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPCMessage), grpc.MaxCallSendMsgSize(maxGRPCMessage), grpc.ForceCodecV2(newCodec())),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithWriteBufferSize(socketBuffer),
		grpc.WithReadBufferSize(socketBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 2 * time.Second}),
		grpc.WithNoProxy(),
	}
}

// Conn is a client of one worker. It is safe for concurrent use; its errors
// have been through FromStatus.
type Conn struct {
	address string
	client  flight.Client
	pulls   sessions
}

// Dial makes a client of the worker at host:port; the connection is made when
// first used and again whenever it is lost. Without options it is plaintext;
// options are applied after the defaults.
func Dial(address string, opts ...grpc.DialOption) (*Conn, error) {
	client, err := flight.NewClientWithMiddleware("passthrough:///"+address, nil, nil, append(dialOptions(), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dialing worker %s: %w", address, err)
	}
	return &Conn{address: address, client: client}, nil
}

// Address is the worker's host:port.
func (c *Conn) Address() string { return c.address }

// Close ends the connection; calls under way fail.
func (c *Conn) Close() error {
	c.pulls.close()
	return c.client.Close()
}

// StartFragments registers fragments on the worker.
func (c *Conn) StartFragments(ctx context.Context, request *pb.StartRequest) (*pb.StartResponse, error) {
	response := &pb.StartResponse{}
	return response, c.call(ctx, ActionStart, request, response)
}

// Cancel ends a query's fragments on the worker and returns how many there
// were. Cancelling an unknown query is no error. The authorization is for the query.
func (c *Conn) Cancel(ctx context.Context, queryID, reason string, authorization []byte) (int, error) {
	response := &pb.CancelResponse{}
	err := c.call(ctx, ActionCancel, &pb.CancelRequest{QueryId: queryID, Reason: reason, Authorization: authorization}, response)
	return int(response.GetFragments()), err
}

// CancelStatement ends the fragments of all queries of a statement, whichever
// gateway runs it, and returns how many there were; the worker refuses further
// ones. The authorization is for the statement's id.
func (c *Conn) CancelStatement(ctx context.Context, statement, reason string, authorization []byte) (int, error) {
	response := &pb.CancelResponse{}
	err := c.call(ctx, ActionCancel, &pb.CancelRequest{QueryId: statement, Reason: reason, Authorization: authorization, Statement: true}, response)
	return int(response.GetFragments()), err
}

// StatementOf is the id of the statement that a query is part of: query ids are
// those of statements with endings that begin with a dot, a hyphen or a plus.
func StatementOf(queryID string) string {
	if end := strings.IndexAny(queryID, ".-+"); end >= 0 {
		return queryID[:end]
	}
	return queryID
}

// Refill lets a fragment that waits behind a portion of its rows send more.
func (c *Conn) Refill(ctx context.Context, request *pb.RefillRequest) error {
	return c.call(ctx, ActionRefill, request, &pb.RefillResponse{})
}

// Transact runs one step of a transaction on one participant. Steps are
// idempotent: after an error of kind Unavailable the caller may repeat it.
func (c *Conn) Transact(ctx context.Context, request *pb.TransactRequest) (*pb.TransactResponse, error) {
	response := &pb.TransactResponse{}
	return response, c.call(ctx, ActionTransact, request, response)
}

// Meta runs one command or read of the meta group; body and the response's
// body are JSON documents of package consensus. The authorization is for
// SubjectMeta; reads need none in a cluster without a secret.
func (c *Conn) Meta(ctx context.Context, command string, body, authorization []byte) (*pb.MetaResponse, error) {
	response := &pb.MetaResponse{}
	return response, c.call(ctx, ActionMeta, &pb.MetaRequest{Command: command, Body: body, Authorization: authorization}, response)
}

// Status asks for the state of the worker and its tablets. The authorization is
// for SubjectStatus.
func (c *Conn) Status(ctx context.Context, authorization []byte) (*WorkerStatus, error) {
	raw, err := c.action(ctx, ActionStatus, authorization)
	if err != nil {
		return nil, err
	}
	status := &WorkerStatus{}
	if err := json.Unmarshal(raw, status); err != nil {
		return nil, fmt.Errorf("worker %s: reading its status: %w", c.address, err)
	}
	return status, nil
}

func (c *Conn) call(ctx context.Context, action string, request, response proto.Message) error {
	body, err := Encode(request, MaxMessageBytes)
	if err != nil {
		return err
	}
	raw, err := c.action(ctx, action, body)
	if err != nil {
		return err
	}
	if err := Decode(raw, response, MaxMessageBytes); err != nil {
		return fmt.Errorf("worker %s: response to %s: %w", c.address, action, err)
	}
	return nil
}

// action runs a DoAction that answers with exactly one result.
func (c *Conn) action(ctx context.Context, action string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.client.DoAction(ctx, &flight.Action{Type: action, Body: body})
	if err != nil {
		return nil, c.failed(err)
	}
	result, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, malformed("worker %s did not answer %s", c.address, action)
		}
		return nil, c.failed(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		if err == nil {
			return nil, malformed("worker %s answered %s twice", c.address, action)
		}
		return nil, c.failed(err)
	}
	return result.GetBody(), nil
}

// failed restores a worker's error; those of the transport are told where.
func (c *Conn) failed(err error) error {
	err = FromStatus(err)
	var user *sqlstate.Error
	if errors.As(err, &user) && user.Code == sqlstate.ConnectionFailure && user.Detail == "" {
		user.Detail = "worker " + c.address
	}
	return err
}

// unread is failed for an error in reading rows, which may be that of a decoder
// that met damaged bytes.
func (c *Conn) unread(ctx context.Context, err error) error {
	_, transport := status.FromError(err)
	var user *sqlstate.Error
	if transport || ctx.Err() != nil || errors.As(err, &user) {
		return c.failed(err)
	}
	return malformed("worker %s sent rows that cannot be decoded: %v", c.address, err)
}

// Fetch pulls one exchange of a registered fragment, whose plan says it sends
// schema (public or physical types). Ctx bounds the whole stream; end it with
// Close, which cancels the fragment if rows were left. The ticket is the stream's
// from here on.
func (c *Conn) Fetch(ctx context.Context, ticket *pb.Ticket, schema *arrow.Schema) (*Stream, error) {
	ticket.Dictionaries = true
	get, cancel, err := c.get(ctx, ticket)
	if err != nil {
		return nil, err
	}
	return &Stream{conn: c, cancel: cancel, get: get, ticket: ticket, reader: NewBatchReader(get, PhysicalSchema(schema))}, nil
}

func (c *Conn) get(ctx context.Context, ticket *pb.Ticket) (flight.FlightService_DoGetClient, context.CancelFunc, error) {
	raw, err := Encode(ticket, MaxTicketBytes)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	get, err := c.client.DoGet(ctx, &flight.Ticket{Ticket: raw})
	if err != nil {
		cancel()
		return nil, nil, c.failed(err)
	}
	return get, cancel, nil
}

// Stream is the consuming end of an exchange. It satisfies exec.Cursor.
type Stream struct {
	conn   *Conn
	cancel context.CancelFunc
	get    flight.FlightService_DoGetClient
	ticket *pb.Ticket
	reader *BatchReader
	over   bool // the end was read
}

// Schema is what comes, with physical types.
func (s *Stream) Schema() *arrow.Schema { return s.reader.Schema() }

// Next returns the next batch, nil at the end, which is one only with the end
// marker of a stream that came whole. The batch is valid until the next call.
// When ctx ends, so does the stream.
func (s *Stream) Next(ctx context.Context) (*columnar.Batch, error) {
	var batch *columnar.Batch
	err := withContext(ctx, s.cancel, func() (err error) {
		batch, err = s.reader.Next()
		return err
	})
	if err != nil {
		return nil, s.conn.unread(ctx, err)
	}
	if batch == nil && !s.over {
		if err := s.reader.from.came.check(s.conn.address, s.get.Trailer()); err != nil {
			return nil, err
		}
		s.over = true
	}
	return batch, nil
}

// Clock is the worker's clock at the end of the stream, 0 before.
func (s *Stream) Clock() uint64 {
	if !s.over {
		return 0
	}
	return clockOf(s.get.Trailer())
}

// Unseen is the bound that the newest message carries, nil for none: the worker
// then waits for a Refill, and has no rows whose sort key is below it.
func (s *Stream) Unseen() ([]byte, error) {
	raw := s.reader.Metadata()
	if len(raw) == 0 || s.over {
		return nil, nil
	}
	unseen := &pb.Unseen{}
	if err := Decode(raw, unseen, MaxTicketBytes); err != nil {
		return nil, fmt.Errorf("worker %s: bound of a top-k: %w", s.conn.address, err)
	}
	if len(unseen.GetBound()) == 0 {
		return nil, malformed("worker %s: the bound of a top-k is empty", s.conn.address)
	}
	return unseen.GetBound(), nil
}

// EncodeUnseen is the app_metadata that tells a bound.
func EncodeUnseen(bound []byte) ([]byte, error) {
	return Encode(&pb.Unseen{Bound: bound}, MaxTicketBytes)
}

// Refill asks the worker, which waits behind a portion of rows, for the next
// ones, at most so many. They come on the stream.
func (s *Stream) Refill(ctx context.Context, rows int) error {
	envelope := s.ticket.GetAuthorization()
	if start := s.ticket.GetStart(); start != nil {
		envelope = start.GetAuthorization()
	}
	return s.conn.Refill(ctx, &pb.RefillRequest{
		Authorization: envelope,
		QueryId:       s.ticket.GetQueryId(), Fragment: s.ticket.GetFragment(), Exchange: s.ticket.GetExchange(), Rows: uint64(max(rows, 0)),
	})
}

// ReceivedBytes is the size of the messages received so far.
func (s *Stream) ReceivedBytes() int64 { return s.reader.ReceivedBytes() }

// Metadata is the app_metadata of the newest message.
func (s *Stream) Metadata() []byte { return s.reader.Metadata() }

// Close ends the stream and releases it. It may be called more than once.
func (s *Stream) Close() error {
	s.cancel()
	s.reader.Close()
	return nil
}

// Write opens a stream of rows to one tablet, in the table's column order, with
// the schema's types in public or physical form. Ctx bounds the whole stream.
// The caller ends it with Finish or Abort.
func (c *Conn) Write(ctx context.Context, header *pb.WriteHeader, schema *arrow.Schema) (*Writer, error) {
	raw, err := Encode(header, MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	put, err := c.client.DoPut(ctx)
	if err != nil {
		cancel()
		return nil, c.failed(err)
	}
	descriptor := &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: raw}
	return &Writer{
		conn: c, cancel: cancel, put: put,
		batches: NewBatchWriter(put, PhysicalSchema(schema), descriptor),
	}, nil
}

// Writer sends rows to one tablet. It is used by one goroutine.
type Writer struct {
	conn    *Conn
	cancel  context.CancelFunc
	put     flight.FlightService_DoPutClient
	batches *BatchWriter
}

// Send sends the selected rows of a batch and keeps no reference to it. It
// blocks while the worker has enough to do. After an error only Abort helps.
func (w *Writer) Send(b *columnar.Batch) error {
	if err := w.batches.Write(b); err != nil {
		return w.failed(err)
	}
	return nil
}

// Finish ends the stream and waits until its rows are staged or, with
// auto-commit, committed. The Writer is released in any case.
func (w *Writer) Finish() (*pb.WriteResult, error) {
	defer w.cancel()
	if err := w.batches.Close(); err != nil {
		return nil, w.failed(err)
	}
	end, err := w.batches.payloads.sent.endOf()
	if err != nil {
		return nil, err
	}
	if err := w.put.Send(end); err != nil {
		return nil, w.failed(err)
	}
	if err := w.put.CloseSend(); err != nil {
		return nil, w.failed(err)
	}
	answer, err := w.put.Recv()
	if err != nil {
		return nil, w.failed(err)
	}
	result := &pb.WriteResult{}
	if err := Decode(answer.GetAppMetadata(), result, MaxMessageBytes); err != nil {
		return nil, fmt.Errorf("worker %s: result of a write: %w", w.conn.address, err)
	}
	if _, err := w.put.Recv(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = malformed("worker %s answered a write twice", w.conn.address)
		}
		return nil, w.failed(err)
	}
	return result, nil
}

// Abort breaks the stream off; the worker drops what it staged. Calling it
// after Finish does nothing.
func (w *Writer) Abort() { w.cancel() }

// failed finds out why the stream broke: gRPC reports a broken send as io.EOF
// and keeps the cause for the receiver.
func (w *Writer) failed(err error) error {
	if errors.Is(err, io.EOF) {
		for {
			if _, err = w.put.Recv(); err != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			return malformed("worker %s ended a write early", w.conn.address)
		}
	}
	w.cancel()
	return w.conn.failed(err)
}

// Pool keeps one Conn per address. It is safe for concurrent use.
type Pool struct {
	opts []grpc.DialOption

	mu     sync.Mutex
	conns  map[string]*Conn
	closed bool
}

// NewPool returns an empty pool; opts go to Dial.
func NewPool(opts ...grpc.DialOption) *Pool {
	return &Pool{opts: opts, conns: map[string]*Conn{}}
}

// Conn returns the pool's connection to a worker. The pool owns it.
func (p *Pool) Conn(address string) (*Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "this node is shutting down")
	}
	if c, ok := p.conns[address]; ok {
		return c, nil
	}
	c, err := Dial(address, p.opts...)
	if err != nil {
		return nil, err
	}
	p.conns[address] = c
	return c, nil
}

// Close closes all connections.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for address, c := range p.conns {
		errs = append(errs, c.Close())
		delete(p.conns, address)
	}
	return errors.Join(errs...)
}
