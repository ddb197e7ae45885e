package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

var (
	protocolCalls = flag.Int("protocol.calls", 1500, "calls with spoilt messages that TestProtocol makes")
	protocolSeed  = flag.Uint64("protocol.seed", 1, "what TestProtocol's messages are made from")
)

const (
	// callLimit is how long a call may take before its client gives it up.
	callLimit = 3 * time.Second
	// hangLimit is how long the server may take after that.
	hangLimit = 20 * time.Second
	// protocolClients call at the same time.
	protocolClients = 6
)

// TestProtocol sends messages of Flight that are spoilt in all ways, against the
// gateway and the worker of a server: bytes changed, cut, swapped and joined,
// streams with messages left out, repeated and in another order, that end early
// or not at all. The server answers each with an error or a result and goes on;
// nothing of it is left at the end.
func TestProtocol(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:", "--statement-timeout", "2s")
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TABLE target (a BIGINT, b TEXT)")
	mustExec(t, c, "CREATE TABLE kept (a BIGINT PRIMARY KEY)")
	mustExec(t, c, "INSERT INTO kept SELECT * FROM generate_series(1, 1000)")
	nodes, err := query(testContext(t), c, "SELECT flight_address FROM skein.nodes")
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes %q, %v", nodes, err)
	}
	t.Logf("seed %d, %d calls", *protocolSeed, *protocolCalls)
	before := goroutines(t, server)

	var next atomic.Int64
	var clients sync.WaitGroup
	answers := make([]map[codes.Code]int, protocolClients)
	for i := range protocolClients {
		answers[i] = map[codes.Code]int{}
		clients.Go(func() {
			f := &protocolFuzz{corpus: protocolCorpus(t), answers: answers[i]}
			for _, address := range []string{server.flight, nodes[0]} {
				conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }() // nothing is left to be sent
				f.conns = append(f.conns, conn)
			}
			for n := next.Add(1); n <= int64(*protocolCalls) && !t.Failed(); n = next.Add(1) {
				f.rng = rand.New(rand.NewPCG(*protocolSeed, uint64(n)))
				if err := f.call(); err != nil {
					t.Errorf("call %d: %v", n, err)
				}
			}
		})
	}
	clients.Wait()

	total := map[codes.Code]int{}
	for _, m := range answers {
		for code, n := range m {
			total[code] += n
		}
	}
	t.Logf("answers: %v", total)
	if total[codes.OK] == 0 || total[codes.InvalidArgument] == 0 {
		t.Errorf("the messages were all good, or all bad: %v", total)
	}
	// Not one came through to where it could do harm.
	rows, err := query(testContext(t), c, "SELECT count(*), sum(a) FROM kept")
	if err != nil || rows[0] != "1000,500500" {
		t.Errorf("afterwards: %q, %v", rows, err)
	}
	if log := server.stderr.String(); strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
		t.Errorf("the server panicked:\n%s", log)
	}
	waitForGoroutines(t, server, before)
	server.stop()
}

var goroutineMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// goroutines is how many a server has.
func goroutines(t *testing.T, server *devServer) int {
	t.Helper()
	response, err := http.Get("http://" + server.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := goroutineMetric.FindSubmatch(body)
	if found == nil {
		t.Fatalf("no go_goroutines in the metrics:\n%s", body)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// goroutineSlack allows for connections that the server keeps to itself.
const goroutineSlack = 25

// waitForGoroutines waits until a server has about as many as it had before.
func waitForGoroutines(t *testing.T, server *devServer, before int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(timeout)
	for {
		n := goroutines(t, server)
		if n <= before+goroutineSlack {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the server had %d goroutines before, %d are left", before, n)
		}
	}
}

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// protocolCase is a call as it should be: the messages of one stream.
type protocolCase struct {
	method   string
	messages [][]byte
}

// protocolFuzz makes spoilt calls. Each is made from its number alone.
type protocolFuzz struct {
	rng     *rand.Rand
	corpus  []protocolCase
	conns   []*grpc.ClientConn
	answers map[codes.Code]int
}

// call makes one call. An error is a failure of the test: the server may answer
// what it likes, but it must.
func (f *protocolFuzz) call() error {
	c := f.corpus[f.rng.IntN(len(f.corpus))]
	messages := f.spoil(c.messages)
	limit := callLimit
	abandon := f.rng.IntN(20) == 0 // without an end of the stream
	if abandon {
		limit = time.Duration(f.rng.IntN(30)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn := f.conns[f.rng.IntN(len(f.conns))]
	done := make(chan error, 1)
	go func() { done <- exchange(ctx, conn, c.method, messages, !abandon) }()
	select {
	case err := <-done:
		code := status.Code(err)
		f.answers[code]++
		if code == codes.Unavailable && !strings.Contains(err.Error(), "SQLSTATE") {
			return fmt.Errorf("%s: the server is gone: %w", c.method, err)
		}
		if err != nil && strings.Contains(err.Error(), "SQLSTATE XX") {
			return fmt.Errorf("%s: the server takes the fault on itself: %w\n%x", c.method, err, messages)
		}
		return nil
	case <-time.After(limit + hangLimit):
		return fmt.Errorf("%s hangs on %x", c.method, messages)
	}
}

// exchange sends messages on one stream and reads what comes back to its end.
func exchange(ctx context.Context, conn *grpc.ClientConn, method string, messages [][]byte, end bool) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/arrow.flight.protocol.FlightService/"+method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	for i := range messages {
		if err := stream.SendMsg(&messages[i]); err != nil {
			break // the answer says why
		}
	}
	if end {
		if err := stream.CloseSend(); err != nil {
			return err
		}
	}
	for {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// spoil changes the messages of a stream: some of them, or which there are.
func (f *protocolFuzz) spoil(good [][]byte) [][]byte {
	out := make([][]byte, len(good))
	for i := range good {
		out[i] = bytes.Clone(good[i])
	}
	for range f.rng.IntN(4) {
		at := f.rng.IntN(len(out))
		switch f.rng.IntN(9) {
		case 0: // leave out
			out = append(out[:at:at], out[at+1:]...)
		case 1: // repeat
			out = append(out[:at+1:at+1], out[at:]...)
		case 2: // another order
			f.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		case 3: // one of another call
			c := f.corpus[f.rng.IntN(len(f.corpus))]
			out[at] = bytes.Clone(c.messages[f.rng.IntN(len(c.messages))])
		case 4:
			out[at] = f.noise(f.rng.IntN(200))
		default:
			out[at] = f.damage(out[at])
		}
		if len(out) == 0 {
			break
		}
	}
	return out
}

func (f *protocolFuzz) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.rng.Uint32())
	}
	return b
}

// damage changes the bytes of one message.
func (f *protocolFuzz) damage(b []byte) []byte {
	if len(b) == 0 {
		return f.noise(8)
	}
	at := f.rng.IntN(len(b))
	switch f.rng.IntN(6) {
	case 0:
		return b[:at]
	case 1:
		return append(b[:at:at], b[min(len(b), at+1+f.rng.IntN(8)):]...)
	case 2:
		return append(append(b[:at:at], f.noise(1+f.rng.IntN(8))...), b[at:]...)
	case 3: // a length or number at its limits
		for i := at; i < min(len(b), at+4); i++ {
			b[i] = []byte{0, 0x7f, 0x80, 0xff}[f.rng.IntN(4)]
		}
	case 4:
		return append(b, b...)
	default:
		b[at] ^= 1 << f.rng.IntN(8)
	}
	return b
}

// protocolCorpus are calls as clients make them.
func protocolCorpus(t *testing.T) []protocolCase {
	var out []protocolCase
	add := func(method string, messages ...proto.Message) {
		c := protocolCase{method: method}
		for _, m := range messages {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Error(err)
			}
			c.messages = append(c.messages, b)
		}
		out = append(out, c)
	}
	packed := func(m proto.Message) []byte {
		a, err := anypb.New(m)
		if err != nil {
			t.Error(err)
			return nil
		}
		b, err := proto.Marshal(a)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	command := func(m proto.Message) *flight.FlightDescriptor {
		return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: packed(m)}
	}
	name, code := "target", int32(93)
	commands := []proto.Message{
		&pb.CommandStatementQuery{Query: "SELECT a, b FROM target WHERE a > 5 ORDER BY b LIMIT 3"},
		&pb.CommandStatementQuery{Query: "SELECT count(*) FROM kept x JOIN kept y ON x.a = y.a", TransactionId: []byte("t")},
		&pb.CommandStatementSubstraitPlan{Plan: &pb.SubstraitPlan{Plan: []byte("plan"), Version: "1"}},
		&pb.CommandPreparedStatementQuery{PreparedStatementHandle: []byte("0123456789abcdef")},
		&pb.CommandPreparedStatementUpdate{PreparedStatementHandle: []byte("0123456789abcdef")},
		&pb.CommandGetCatalogs{}, &pb.CommandGetTableTypes{}, &pb.CommandGetSqlInfo{Info: []uint32{0, 500}},
		&pb.CommandGetDbSchemas{Catalog: &name, DbSchemaFilterPattern: &name},
		&pb.CommandGetTables{TableNameFilterPattern: &name, TableTypes: []string{"TABLE"}, IncludeSchema: true},
		&pb.CommandGetPrimaryKeys{Table: "kept"}, &pb.CommandGetImportedKeys{Table: "kept"}, &pb.CommandGetExportedKeys{Table: "kept"},
		&pb.CommandGetCrossReference{PkTable: "kept", FkTable: "target"}, &pb.CommandGetXdbcTypeInfo{DataType: &code},
	}
	for _, m := range commands {
		add("GetFlightInfo", command(m))
		add("GetSchema", command(m))
		add("PollFlightInfo", command(m))
		add("DoGet", &flight.Ticket{Ticket: packed(m)})
	}
	add("DoGet", &flight.Ticket{Ticket: packed(&pb.TicketStatementQuery{StatementHandle: []byte("0123456789abcdef0123456789abcdef")})})
	add("GetFlightInfo", &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte("SELECT * FROM kept")})
	add("GetFlightInfo", &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"public", "kept"}})
	add("PollFlightInfo", &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte("skein.poll:0123")})
	add("ListFlights", &flight.Criteria{Expression: []byte("x")})
	add("ListActions", &flight.Empty{})
	add("Handshake", &flight.HandshakeRequest{ProtocolVersion: 1, Payload: []byte("user")})
	for kind, body := range map[string][]byte{
		"CreatePreparedStatement": packed(&pb.ActionCreatePreparedStatementRequest{Query: "INSERT INTO target VALUES (?, ?)"}),
		"ClosePreparedStatement":  packed(&pb.ActionClosePreparedStatementRequest{PreparedStatementHandle: []byte("x")}),
		"BeginTransaction":        packed(&pb.ActionBeginTransactionRequest{}),
		"CancelFlightInfo":        packed(&pb.CancelFlightInfoRequest{Info: &pb.FlightInfo{AppMetadata: []byte("x")}}),
		"RenewFlightEndpoint":     packed(&pb.RenewFlightEndpointRequest{Endpoint: &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte("x")}}}),
		"SetSessionOptions":       packed(&pb.SetSessionOptionsRequest{}),
		"skein.cancel_query":      []byte(`{"query_id": "x"}`), "skein.cluster_status": nil,
		"skein.status": nil, "skein.start": {1, 8, 1}, "skein.cancel": {1, 8, 1}, "skein.refill": {1, 8, 1}, "skein.report": {1, 8, 1},
		"skein.transact": {1, 8, 1}, "skein.meta": {1, 8, 1},
	} {
		add("DoAction", &flight.Action{Type: kind, Body: body})
	}
	ingest := &pb.CommandStatementIngest{Table: name, TableDefinitionOptions: &pb.CommandStatementIngest_TableDefinitionOptions{
		IfNotExist: pb.CommandStatementIngest_TableDefinitionOptions_TABLE_NOT_EXIST_OPTION_FAIL,
		IfExists:   pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_APPEND}}
	for _, d := range []*flight.FlightDescriptor{
		command(ingest), {Type: flight.DescriptorPATH, Path: []string{name}},
		command(&pb.CommandPreparedStatementUpdate{PreparedStatementHandle: []byte("x")}), command(&pb.CommandStatementUpdate{Query: "DELETE FROM target WHERE a = 1"}),
	} {
		add("DoPut", flightData(t, d)...)
		add("DoExchange", flightData(t, d)...)
	}
	return out
}

// recorded is a stream that keeps what is written to it.
type recorded struct{ messages []proto.Message }

func (r *recorded) Send(d *flight.FlightData) error {
	r.messages = append(r.messages, proto.Clone(d))
	return nil
}

// flightData is a stream of a few batches under a descriptor.
func flightData(t *testing.T, d *flight.FlightDescriptor) []proto.Message {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	var to recorded
	w := flight.NewRecordWriter(&to, ipc.WithSchema(schema))
	w.SetFlightDescriptor(d)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for batch := range 3 {
		for row := range 5 {
			b.Field(0).(*array.Int64Builder).Append(int64(10*batch + row))
			b.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", row))
		}
		b.Field(0).AppendNull()
		b.Field(1).AppendNull()
		rec := b.NewRecordBatch()
		if err := w.Write(rec); err != nil {
			t.Error(err)
		}
		rec.Release()
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	return to.messages
}
