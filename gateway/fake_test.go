package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
)

// fakes are workers that answer what a test wants, and a gateway over them. Table
// t (id BIGINT) has three tablets; each holds the fakeRows ids from fakeRows times
// its id on.
type fakes struct {
	t        *testing.T
	metadata atomic.Pointer[consensus.MetaSnapshot]
	workers  []*fakeWorker
	gateway  *Server
	client   *flightsql.Client
	quorum   atomic.Int32 // reads of the metadata that asked the quorum
}

const fakeRows = 1000

// fakeWorker is one of them. The functions may be set before a query; nil ones do
// nothing.
type fakeWorker struct {
	flight.BaseFlightServer
	all     *fakes
	id      catalog.NodeID
	address string
	server  *grpc.Server

	start func(ctx context.Context, r *pb.StartRequest) error
	// get may fail a stream before it brings anything, or within it: after so many
	// rows, if cut is above 0.
	get func(tablet catalog.TabletID, query string) (cut int, err error)

	mu        sync.Mutex
	started   []*pb.StartRequest
	cancelled []string
	delivered map[string]int    // fragments read to their end, by query
	plans     map[string][]byte // by digest
}

func newFakes(t *testing.T, workers int, configure func(*Config)) *fakes {
	t.Helper()
	f := &fakes{t: t}
	meta := &consensus.MetaSnapshot{Version: 1, Keys: []catalog.SigningKey{{ID: 1, Secret: make([]byte, 32)}}}
	table := &catalog.Table{
		ID: 7, Schema: catalog.DefaultSchema, Name: "t", Version: 1,
		Columns:      []catalog.Column{{ID: 1, Name: "id", Type: catalog.BigInt}},
		Partitioning: catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: 6},
	}
	var addresses []string
	for i := range workers {
		w := f.serve(catalog.NodeID(i + 1))
		f.workers, addresses = append(f.workers, w), append(addresses, w.address)
		meta.Nodes = append(meta.Nodes, consensus.NodeInfo{ID: w.id, FlightAddress: w.address})
	}
	for i := range 3 {
		tablet := catalog.Tablet{ID: catalog.TabletID(i + 1), Generation: 1, BucketLow: uint32(2 * i), BucketHigh: uint32(2*i + 2)}
		for k := range workers {
			tablet.Replicas = append(tablet.Replicas, catalog.Replica{ID: uint64(k + 1), Node: catalog.NodeID((i+k)%workers + 1)})
		}
		table.Tablets = append(table.Tablets, tablet)
	}
	meta.Tables = []*catalog.Table{table}
	f.metadata.Store(meta)
	f.serveGateway(addresses, configure)
	return f
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (f *fakes) serve(id catalog.NodeID) *fakeWorker {
	l := listenLocal(f.t)
	w := &fakeWorker{all: f, id: id, delivered: map[string]int{}, plans: map[string][]byte{}, address: l.Addr().String(), server: grpc.NewServer(flightproto.ServerOptions()...)}
	flight.RegisterFlightServiceServer(w.server, w)
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.server.Serve(l) })
	f.t.Cleanup(func() {
		w.server.Stop()
		wg.Wait()
	})
	return w
}

func (f *fakes) serveGateway(workers []string, configure func(*Config)) {
	t := f.t
	cfg := Config{Workers: workers, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), SpillDir: t.TempDir()}
	if configure != nil {
		configure(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.gateway = g
	l := listenLocal(t)
	server := grpc.NewServer(ServerOptions()...)
	g.Register(server)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	if f.client, err = flightsql.NewClient(l.Addr().String(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.client.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	f.eventually("the gateway knows the workers", func() bool { return g.Ready() == nil })
}

// eventually waits for what happens by itself.
func (f *fakes) eventually(what string, condition func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			f.t.Fatalf("never happened: %s", what)
		}
		<-pace.C
	}
}

// change makes newer metadata, which the gateway does not hear of by itself.
func (f *fakes) change(edit func(table *catalog.Table)) {
	old := f.metadata.Load()
	next, table := *old, *old.Tables[0]
	table.Tablets = slices.Clone(table.Tablets)
	edit(&table)
	next.Tables, next.Version = []*catalog.Table{&table}, old.Version+1
	f.metadata.Store(&next)
}

// ids runs a query of one BIGINT column.
func (f *fakes) ids(ctx context.Context, query string) ([]int64, error) {
	info, err := f.client.Execute(ctx, query)
	if err != nil {
		return nil, flightproto.FromStatus(err)
	}
	r, err := f.client.DoGet(ctx, info.Endpoint[0].Ticket)
	if err != nil {
		return nil, flightproto.FromStatus(err)
	}
	defer r.Release()
	var out []int64
	for r.Next() {
		out = append(out, r.RecordBatch().Column(0).(*array.Int64).Int64Values()...)
	}
	return out, flightproto.FromStatus(r.Err())
}

// wantIDs are all ids of some tablets, in order.
func wantIDs(tablets ...catalog.TabletID) []int64 {
	var out []int64
	for _, tablet := range tablets {
		for i := range int64(fakeRows) {
			out = append(out, int64(tablet)*fakeRows+i)
		}
	}
	slices.Sort(out)
	return out
}

// starts are the start requests so far, of all workers.
func (f *fakes) starts() []*pb.StartRequest {
	var out []*pb.StartRequest
	for _, w := range f.workers {
		w.mu.Lock()
		out = append(out, w.started...)
		w.mu.Unlock()
	}
	return out
}

// mustEndAll checks that every query that was started is read to its end or
// cancelled, everywhere.
func (f *fakes) mustEndAll() {
	f.t.Helper()
	f.eventually("all that was started is ended", func() bool {
		for _, w := range f.workers {
			w.mu.Lock()
			done := true
			for _, r := range w.started {
				done = done && (slices.Contains(w.cancelled, r.GetQueryId()) || w.delivered[r.GetQueryId()] == len(r.GetFragments()))
			}
			w.mu.Unlock()
			if !done {
				return false
			}
		}
		return true
	})
}

// DoAction implements the worker's actions.
func (w *fakeWorker) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	body, err := w.act(stream.Context(), a)
	if err != nil {
		return flightproto.ToStatus(err)
	}
	return stream.Send(&flight.Result{Body: body})
}

func (w *fakeWorker) act(ctx context.Context, a *flight.Action) ([]byte, error) {
	decode := func(m proto.Message) error { return flightproto.Decode(a.GetBody(), m, flightproto.MaxMessageBytes) }
	encode := func(m proto.Message) ([]byte, error) { return flightproto.Encode(m, flightproto.MaxMessageBytes) }
	switch a.GetType() {
	case flightproto.ActionStatus:
		return json.Marshal(&flightproto.WorkerStatus{Node: w.id})
	case flightproto.ActionMeta:
		request := &pb.MetaRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		reply, err := w.meta(ctx, request)
		if err != nil {
			return nil, err
		}
		return encode(&pb.MetaResponse{Body: reply})
	case flightproto.ActionStart:
		request := &pb.StartRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		if err := w.register(ctx, request); err != nil {
			return nil, err
		}
		return encode(&pb.StartResponse{})
	case flightproto.ActionCancel:
		request := &pb.CancelRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cancelled = append(w.cancelled, request.GetQueryId())
		return encode(&pb.CancelResponse{})
	}
	return nil, fmt.Errorf("a fake has no action %s", a.GetType())
}

func (w *fakeWorker) meta(ctx context.Context, request *pb.MetaRequest) ([]byte, error) {
	switch request.GetCommand() {
	case consensus.MetaReadSnapshot:
		var r consensus.SnapshotRequest
		if err := json.Unmarshal(request.GetBody(), &r); err != nil {
			return nil, err
		}
		if !r.Stale {
			w.all.quorum.Add(1)
		}
		return json.Marshal(w.all.metadata.Load())
	case consensus.MetaWatch:
		<-ctx.Done() // nothing is ever announced
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("a fake has no meta command %s", request.GetCommand())
}

func (w *fakeWorker) register(ctx context.Context, r *pb.StartRequest) error {
	if w.start != nil {
		if err := w.start(ctx, r); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if digest := string(r.GetPlanDigest()); digest != "" {
		if len(r.GetPlan()) > 0 {
			w.plans[digest] = r.GetPlan()
		}
		program := &pb.Program{}
		if err := proto.Unmarshal(w.plans[digest], program); err != nil {
			return err
		}
		r.Fragments, r.Exchanges = program.GetFragments(), program.GetExchanges()
	}
	w.started = append(w.started, r)
	return nil
}

// DoGet sends the ids of the fragment's tablet.
func (w *fakeWorker) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(t.GetTicket(), ticket, flightproto.MaxTicketBytes); err != nil {
		return flightproto.ToStatus(err)
	}
	return flightproto.ToStatus(w.deliver(ticket, stream))
}

func (w *fakeWorker) deliver(ticket *pb.Ticket, stream flight.FlightService_DoGetServer) error {
	tablet, ok := w.tablet(ticket)
	if !ok {
		return flightproto.WithReason(flightproto.NotStarted, fmt.Errorf("fragment %d of %s is not started", ticket.GetFragment(), ticket.GetQueryId()))
	}
	cut := 0
	if w.get != nil {
		var err error
		if cut, err = w.get(tablet, ticket.GetQueryId()); err != nil && cut == 0 {
			return err
		}
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: catalog.BigInt}}, nil)
	out := flightproto.NewBatchWriter(stream, flightproto.PhysicalSchema(schema), nil)
	b, err := columnar.NewBuilder(catalog.BigInt)
	if err != nil {
		return err
	}
	for i := range int64(fakeRows) {
		if int64(cut) == i && cut > 0 {
			break
		}
		columnar.AppendFixed(b, int64(tablet)*fakeRows+i)
	}
	v := b.Finish()
	if err := out.Write(&columnar.Batch{Cols: []*columnar.Vector{v}, Len: v.Len}); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if cut > 0 {
		return errFake
	}
	stream.SetTrailer(out.Trailer())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delivered[ticket.GetQueryId()]++
	return nil
}

// tablet is the tablet of the fragment that a ticket is for.
func (w *fakeWorker) tablet(ticket *pb.Ticket) (catalog.TabletID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.started {
		for _, f := range r.GetFragments() {
			if r.GetQueryId() == ticket.GetQueryId() && f.GetId() == ticket.GetFragment() {
				return catalog.TabletID(f.GetTabletId()), true
			}
		}
	}
	return 0, false
}

// restarts are the start requests of fragments that were started again.
func (f *fakes) restarts() (again []*pb.StartRequest) {
	for _, r := range f.starts() {
		if strings.Contains(r.GetQueryId(), "+") {
			again = append(again, r)
		}
	}
	return again
}
