package flightproto_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a Flight server made of functions.
type peer struct {
	flight.BaseFlightServer
	action func(ctx context.Context, kind string, body []byte) ([][]byte, error)
	get    func(ticket *pb.Ticket, stream flight.FlightService_DoGetServer) error
	put    func(stream flight.FlightService_DoPutServer) error
}

func (p *peer) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	results, err := p.action(stream.Context(), a.GetType(), a.GetBody())
	for _, r := range results {
		if err := stream.Send(&flight.Result{Body: r}); err != nil {
			return err
		}
	}
	return flightproto.ToStatus(err)
}

func (p *peer) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(t.GetTicket(), ticket, flightproto.MaxTicketBytes); err != nil {
		return flightproto.ToStatus(err)
	}
	return flightproto.ToStatus(p.get(ticket, stream))
}

func (p *peer) DoPut(stream flight.FlightService_DoPutServer) error {
	return flightproto.ToStatus(p.put(stream))
}

// serve starts a peer and returns a connection to it.
func serve(t *testing.T, p *peer) *flightproto.Conn {
	t.Helper()
	return serveFlight(t, p)
}

func serveFlight(t *testing.T, p flight.FlightServer) *flightproto.Conn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(flightproto.ServerOptions()...)
	flight.RegisterFlightServiceServer(server, p)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	conn, err := flightproto.Dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		wg.Wait()
	})
	return conn
}

// finish ends a stream of rows as a worker does.
func finish(w *flightproto.BatchWriter, stream grpc.ServerStream) error {
	err := w.Close()
	stream.SetTrailer(w.Trailer())
	return err
}

// publicSchema has short decimals, which travel as int64.
func publicSchema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: catalog.BigInt},
		{Name: "price", Type: catalog.Decimal(12, 2), Nullable: true},
		{Name: "name", Type: catalog.Text, Nullable: true},
	}, nil)
}

func numbers(t testing.TB, from, rows int, width int) *columnar.Batch {
	t.Helper()
	ids, err := columnar.NewBuilder(catalog.BigInt)
	if err != nil {
		t.Fatal(err)
	}
	prices, err := columnar.NewBuilder(catalog.PhysicalType(catalog.Decimal(12, 2)))
	if err != nil {
		t.Fatal(err)
	}
	names, err := columnar.NewBuilder(catalog.Text)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < from+rows; i++ {
		columnar.AppendFixed(ids, int64(i))
		if i%7 == 0 {
			prices.AppendNull()
		} else {
			columnar.AppendFixed(prices, int64(i)*100)
		}
		if err := names.AppendBytes([]byte(fmt.Sprintf("%0*d", width, i))); err != nil {
			t.Fatal(err)
		}
	}
	return &columnar.Batch{Len: rows, Cols: []*columnar.Vector{ids.Finish(), prices.Finish(), names.Finish()}}
}

// checkNumbers checks a batch of numbers and returns the id after its last.
func checkNumbers(t testing.TB, b *columnar.Batch, from int) int {
	t.Helper()
	ids, prices := columnar.Values[int64](b.Cols[0]), columnar.Values[int64](b.Cols[1])
	for i := range b.Len {
		want := int64(from + i)
		null := want%7 == 0
		if ids[i] != want || b.Cols[1].IsNull(i) != null || !null && prices[i] != want*100 ||
			!strings.HasSuffix(string(b.Cols[2].BytesAt(i)), fmt.Sprint(want)) {
			t.Fatalf("row %d is %d, %v, %q", want, ids[i], b.Cols[1].IsNull(i), b.Cols[2].BytesAt(i))
		}
	}
	return from + b.Len
}

func TestFetchStreamsBatches(t *testing.T) {
	const batches, rows = 20, 3000
	conn := serve(t, &peer{get: func(ticket *pb.Ticket, stream flight.FlightService_DoGetServer) error {
		if ticket.GetQueryId() != "q" || ticket.GetExchange() != 4 {
			return fmt.Errorf("ticket is %v", ticket)
		}
		w := flightproto.NewBatchWriter(stream, flightproto.PhysicalSchema(publicSchema()), nil)
		for i := range batches {
			if err := w.Write(numbers(t, i*rows, rows, 1)); err != nil {
				return err
			}
		}
		return finish(w, stream)
	}})
	stream, err := conn.Fetch(t.Context(), &pb.Ticket{QueryId: "q", Exchange: 4}, publicSchema())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Schema().Field(1).Type.ID() != arrow.DECIMAL64 {
		t.Errorf("schema is %s", stream.Schema())
	}
	next := 0
	for {
		b, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		next = checkNumbers(t, b, next)
	}
	if next != batches*rows {
		t.Errorf("received %d rows", next)
	}
	if b, err := stream.Next(t.Context()); b != nil || err != nil {
		t.Errorf("after the end: %v, %v", b, err)
	}
}

// A selection is applied on the way, and a huge batch is cut into messages.
func TestFetchSelectionsAndLargeBatches(t *testing.T) {
	const rows = 3000
	conn := serve(t, &peer{get: func(ticket *pb.Ticket, stream flight.FlightService_DoGetServer) error {
		w := flightproto.NewBatchWriter(stream, flightproto.PhysicalSchema(publicSchema()), nil)
		if ticket.GetQueryId() == "large" {
			return errors.Join(w.Write(numbers(t, 0, rows, 20_000)), finish(w, stream))
		}
		b := numbers(t, 0, rows, 1)
		for i := 5; i < rows; i += 10 {
			b.Sel = append(b.Sel, int32(i))
		}
		return errors.Join(w.Write(b), finish(w, stream))
	}})
	for query, want := range map[string]int{"large": rows, "selected": rows / 10} {
		stream, err := conn.Fetch(t.Context(), &pb.Ticket{QueryId: query}, publicSchema())
		if err != nil {
			t.Fatal(err)
		}
		got, messages := 0, 0
		for {
			b, err := stream.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			messages++
			if query == "large" {
				checkNumbers(t, b, got)
			} else if first := columnar.Values[int64](b.Cols[0])[0]; first != 5 {
				t.Errorf("selection starts at %d", first)
			}
			got += b.Rows()
		}
		if got != want {
			t.Errorf("%s: %d rows instead of %d", query, got, want)
		}
		if query == "large" && messages < 3 {
			t.Errorf("60 MB came in %d messages", messages)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	conn := serve(t, &peer{get: func(ticket *pb.Ticket, stream flight.FlightService_DoGetServer) error {
		switch ticket.GetQueryId() {
		case "early":
			return flightproto.WithReason(flightproto.TabletMoved, sqlstate.New(sqlstate.ConnectionFailure, "tablet is elsewhere"))
		case "schema":
			w := flightproto.NewBatchWriter(stream, arrow.NewSchema([]arrow.Field{{Name: "x", Type: catalog.Text}}, nil), nil)
			return w.Close()
		case "late":
			w := flightproto.NewBatchWriter(stream, flightproto.PhysicalSchema(publicSchema()), nil)
			if err := w.Write(numbers(t, 0, 10, 1)); err != nil {
				return err
			}
			return sqlstate.New(sqlstate.DivisionByZero, "division by zero")
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}})
	pull := func(ctx context.Context, query string) (int, error) {
		stream, err := conn.Fetch(t.Context(), &pb.Ticket{QueryId: query}, publicSchema())
		if err != nil {
			return 0, err
		}
		defer stream.Close()
		rows := 0
		for {
			b, err := stream.Next(ctx)
			if err != nil || b == nil {
				return rows, err
			}
			rows += b.Rows()
		}
	}
	if _, err := pull(t.Context(), "early"); sqlstate.CodeOf(err) != sqlstate.ConnectionFailure || flightproto.ReasonOf(err) != flightproto.TabletMoved {
		t.Errorf("early: %v", err)
	}
	if _, err := pull(t.Context(), "schema"); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("schema: %v", err)
	}
	if rows, err := pull(t.Context(), "late"); rows != 10 || sqlstate.CodeOf(err) != sqlstate.DivisionByZero {
		t.Errorf("late: %d rows, %v", rows, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := pull(ctx, "never"); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("never: %v", err)
	}
	if _, err := conn.Fetch(t.Context(), &pb.Ticket{Authorization: make([]byte, flightproto.MaxTicketBytes)}, publicSchema()); err == nil {
		t.Error("an oversized ticket was sent")
	}
}

func TestWrite(t *testing.T) {
	var header pb.WriteHeader
	failing := false
	conn := serve(t, &peer{put: func(stream flight.FlightService_DoPutServer) error {
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		header.Reset()
		if err := flightproto.Decode(first.GetFlightDescriptor().GetCmd(), &header, flightproto.MaxMessageBytes); err != nil {
			return err
		}
		reader := flightproto.NewUploadReader(&firstThen{first, stream}, flightproto.PhysicalSchema(publicSchema()))
		defer reader.Close()
		rows := 0
		for {
			b, err := reader.Next()
			if err != nil {
				return err
			}
			if b == nil {
				break
			}
			rows = checkNumbers(t, b, rows)
			if failing {
				return sqlstate.New(sqlstate.UniqueViolation, "duplicate key").WithDetail("Key (id)=(1) already exists.")
			}
		}
		raw, err := flightproto.Encode(&pb.WriteResult{Rows: uint64(rows), Segments: 1}, flightproto.MaxMessageBytes)
		if err != nil {
			return err
		}
		return stream.Send(&flight.PutResult{AppMetadata: raw})
	}})
	for _, batches := range []int{0, 1, 30} {
		w, err := conn.Write(t.Context(), &pb.WriteHeader{TransactionId: "t", TabletId: 3}, publicSchema())
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			if err := w.Send(numbers(t, i*1000, 1000, 1)); err != nil {
				t.Fatal(err)
			}
		}
		result, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if int(result.GetRows()) != batches*1000 || header.GetTabletId() != 3 {
			t.Errorf("result is %v, header was %v", result, &header)
		}
		w.Abort()
	}
	failing = true
	w, err := conn.Write(t.Context(), &pb.WriteHeader{TransactionId: "t"}, publicSchema())
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i < 100_000; i++ {
		err = w.Send(numbers(t, i*1000, 1000, 1))
	}
	if sqlstate.CodeOf(err) != sqlstate.UniqueViolation || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a write that fails midway: %v", err)
	}
	w.Abort()
}

// firstThen replays a message that was read ahead.
type firstThen struct {
	first *flight.FlightData
	rest  flight.DataStreamReader
}

func (f *firstThen) Recv() (*flight.FlightData, error) {
	if m := f.first; m != nil {
		f.first = nil
		return m, nil
	}
	return f.rest.Recv()
}

func TestActions(t *testing.T) {
	conn := serve(t, &peer{action: func(_ context.Context, kind string, body []byte) ([][]byte, error) {
		one := func(m interface{ GetClock() uint64 }) [][]byte {
			switch m := m.(type) {
			case *pb.StartResponse:
				return [][]byte{mustEncode(t, m)}
			case *pb.TransactResponse:
				return [][]byte{mustEncode(t, m)}
			case *pb.MetaResponse:
				return [][]byte{mustEncode(t, m)}
			}
			return nil
		}
		switch kind {
		case flightproto.ActionStart:
			request := &pb.StartRequest{}
			if err := flightproto.Decode(body, request, flightproto.MaxMessageBytes); err != nil {
				return nil, err
			}
			return one(&pb.StartResponse{Clock: request.GetSnapshot() + 1}), nil
		case flightproto.ActionCancel:
			return [][]byte{mustEncode(t, &pb.CancelResponse{Fragments: 2})}, nil
		case flightproto.ActionTransact:
			return one(&pb.TransactResponse{Outcome: pb.TransactResponse_PREPARED}), nil
		case flightproto.ActionMeta:
			request := &pb.MetaRequest{}
			if err := flightproto.Decode(body, request, flightproto.MaxMessageBytes); err != nil {
				return nil, err
			}
			switch request.GetCommand() {
			case "silent":
				return nil, nil
			case "twice":
				return append(one(&pb.MetaResponse{}), one(&pb.MetaResponse{})...), nil
			case "garbage":
				return [][]byte{[]byte("garbage")}, nil
			}
			return nil, sqlstate.New(sqlstate.DuplicateTable, "relation %q already exists", "t")
		}
		raw, err := json.Marshal(flightproto.WorkerStatus{Node: 7})
		return [][]byte{raw}, err
	}})
	ctx := t.Context()
	if r, err := conn.StartFragments(ctx, &pb.StartRequest{Snapshot: 41}); err != nil || r.GetClock() != 42 {
		t.Errorf("start: %v, %v", r, err)
	}
	if n, err := conn.Cancel(ctx, "q", "why", nil); err != nil || n != 2 {
		t.Errorf("cancel: %v, %v", n, err)
	}
	if r, err := conn.Transact(ctx, &pb.TransactRequest{}); err != nil || r.GetOutcome() != pb.TransactResponse_PREPARED {
		t.Errorf("transact: %v, %v", r, err)
	}
	if s, err := conn.Status(ctx, nil); err != nil || s.Node != 7 {
		t.Errorf("status: %v, %v", s, err)
	}
	if _, err := conn.Meta(ctx, "create_table", nil, nil); sqlstate.CodeOf(err) != sqlstate.DuplicateTable {
		t.Errorf("meta: %v", err)
	}
	var form *flightproto.MalformedError
	for _, command := range []string{"silent", "twice", "garbage"} {
		if _, err := conn.Meta(ctx, command, nil, nil); !errors.As(err, &form) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestPool(t *testing.T) {
	conn := serve(t, &peer{action: func(context.Context, string, []byte) ([][]byte, error) { return nil, io.ErrUnexpectedEOF }})
	pool := flightproto.NewPool()
	a, err := pool.Conn(conn.Address())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := pool.Conn(conn.Address()); err != nil || a != b {
		t.Errorf("second connection to one address: %v", err)
	}
	if _, err := a.Status(t.Context(), nil); sqlstate.CodeOf(err) != sqlstate.InternalError {
		t.Errorf("status: %v", err)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
	if _, err := pool.Conn(conn.Address()); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("a closed pool: %v", err)
	}
	// Nobody listens on a port that was just closed.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	lost, err := flightproto.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	_, err = lost.Status(t.Context(), nil)
	if sqlstate.CodeOf(err) != sqlstate.ConnectionFailure || flightproto.ReasonOf(err) != flightproto.Unavailable || !strings.Contains(err.Error(), address) {
		t.Errorf("a dead worker: %v", err)
	}
}
