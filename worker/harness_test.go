package worker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/internal/faultproxy"
	"skein/planner"
	"skein/storage"
	"skein/worker"
)

func TestMain(m *testing.M) {
	// glog, which the store's database links, flushes for ever.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// cluster is a set of workers in one process. Each tablet has one replica, on
// the node that its descriptor names; proposals are applied at once.
type cluster struct {
	t        *testing.T
	metadata atomic.Pointer[consensus.MetaSnapshot]
	nodes    []*node
}

// node is a worker with a real store and no Raft.
type node struct {
	t       *testing.T
	cluster *cluster
	id      catalog.NodeID
	clock   *consensus.Clock
	store   *storage.Store
	server  *worker.Server
	address string // that other nodes and clients use
	dir     string // of the store
	conn    *flightproto.Conn
	proxy   *faultproxy.Proxy // what everybody reaches this node through, or nil

	mu       sync.Mutex
	tablets  map[catalog.TabletID]*storage.Tablet
	indexes  map[catalog.TabletID]uint64
	proposed []storage.Command
	ahead    atomic.Int64                // how far the store's clock is ahead, in nanoseconds
	pinned   atomic.Int64                // snapshots taken
	released atomic.Int64                // and given back
	damage   atomic.Int64                // reports of damaged data
	healing  bool                        // there are others to rebuild damaged replicas from
	before   func(storage.Command) error // may refuse a proposal
}

// newCluster makes workers that listen on TCP.
func newCluster(t *testing.T, nodes int, configure func(*worker.Config)) *cluster {
	t.Helper()
	return newClusterOn(t, tcp{}, false, nodes, configure)
}

// newClusterOn makes workers on a network, with a fault proxy before each if
// wanted.
func newClusterOn(t *testing.T, over network, proxied bool, nodes int, configure func(*worker.Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	first := &consensus.MetaSnapshot{Version: 1}
	c.metadata.Store(first)
	for i := range nodes {
		n := &node{
			t: t, cluster: c, id: catalog.NodeID(i + 1), clock: consensus.NewClock(),
			tablets: map[catalog.TabletID]*storage.Tablet{}, indexes: map[catalog.TabletID]uint64{}, dir: t.TempDir(),
		}
		store, err := storage.Open(storage.Options{
			Dir: n.dir, Logger: quiet(),
			Now: func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		})
		if err != nil {
			t.Fatal(err)
		}
		n.store = store
		listener := over.listen(t)
		n.address = listener.Addr().String()
		if proxied {
			front := over.listen(t)
			if n.proxy, err = faultproxy.New(front, n.address, over.dial()...); err != nil {
				t.Fatal(err)
			}
			n.address = front.Addr().String()
		}
		c.nodes = append(c.nodes, n)
		first.Nodes = append(first.Nodes, consensus.NodeInfo{ID: n.id, FlightAddress: n.address})
		n.serve(over, listener, configure)
	}
	return c
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (n *node) serve(over network, listener net.Listener, configure func(*worker.Config)) {
	cfg := worker.Config{Node: n, Logger: quiet(), Parallelism: 2, DialOptions: over.dial()}
	if configure != nil {
		configure(&cfg)
	}
	server, err := worker.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.server = server
	g := grpc.NewServer(flightproto.ServerOptions()...)
	server.Register(g)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(listener) })
	if n.conn, err = flightproto.Dial(n.address, over.dial()...); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			n.t.Errorf("closing worker %d: %v", n.id, err)
		}
		if err := n.conn.Close(); err != nil {
			n.t.Error(err)
		}
		if n.proxy != nil {
			if err := n.proxy.Close(); err != nil {
				n.t.Error(err)
			}
		}
		g.Stop()
		wg.Wait()
		if err := n.store.Close(); err != nil {
			n.t.Error(err)
		}
	})
}

// createTable makes a table of (id bigint, grp integer, name text, price
// decimal(12,2)) with one tablet on each of the named nodes.
func (c *cluster) createTable(name string, key []int, on ...int) *catalog.Table {
	c.t.Helper()
	old := c.metadata.Load()
	id := catalog.TableID(100 + len(old.Tables))
	table := &catalog.Table{
		ID: id, Schema: "public", Name: name, Version: old.Version + 1, PrimaryKey: key, Replicas: 1,
		Columns: []catalog.Column{
			{Name: "id", Type: catalog.BigInt}, {Name: "grp", Type: catalog.Integer, Nullable: true},
			{Name: "name", Type: catalog.Text, Nullable: true}, {Name: "price", Type: catalog.Decimal(12, 2), Nullable: true},
		},
		Partitioning: catalog.Partitioning{Kind: catalog.Unpartitioned},
	}
	for i, node := range on {
		table.Tablets = append(table.Tablets, catalog.Tablet{
			ID: catalog.TabletID(1000*uint64(id) + uint64(i)), Generation: 1,
			Replicas: []catalog.Replica{{ID: 1, Node: c.nodes[node].id}},
		})
	}
	for i, node := range on {
		n := c.nodes[node]
		tablet, err := n.store.OpenTablet(table, table.Tablets[i].ID)
		if err != nil {
			c.t.Fatal(err)
		}
		n.mu.Lock()
		n.tablets[tablet.ID()] = tablet
		n.mu.Unlock()
	}
	next := *old
	next.Version++
	next.Tables = append(append([]*catalog.Table(nil), old.Tables...), table)
	c.metadata.Store(&next)
	return table
}

// The methods of worker.Node.

func (n *node) ID() catalog.NodeID                                           { return n.id }
func (n *node) Clock() *consensus.Clock                                      { return n.clock }
func (n *node) Metadata() *consensus.MetaSnapshot                            { return n.cluster.metadata.Load() }
func (n *node) Leader(catalog.TabletID) (catalog.NodeID, bool)               { return n.id, true }
func (n *node) ReadAt(context.Context, catalog.TabletID, uint64) error       { return nil }
func (n *node) DoMeta(_ context.Context, c string, b []byte) ([]byte, error) { return echo(c, b) }

func echo(command string, body []byte) ([]byte, error) {
	if command == "fail" {
		return nil, fmt.Errorf("meta: %w", consensus.ErrUnavailable)
	}
	return append([]byte(command+":"), body...), nil
}

func (n *node) WaitMetadata(ctx context.Context, _ uint64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (n *node) Propose(ctx context.Context, id catalog.TabletID, command storage.Command) (storage.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return storage.Result{}, err
	}
	tablet, ok := n.tablets[id]
	if !ok {
		return storage.Result{}, fmt.Errorf("tablet %d: %w", id, consensus.ErrTabletNotHere)
	}
	if n.before != nil {
		if err := n.before(command); err != nil {
			return storage.Result{}, err
		}
	}
	n.proposed = append(n.proposed, command)
	n.indexes[id]++
	results, err := tablet.Apply(n.indexes[id], command)
	if err != nil {
		return storage.Result{}, err
	}
	return results[0], nil
}

func (n *node) Tablet(id catalog.TabletID) (worker.Tablet, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tablet, ok := n.tablets[id]
	if !ok {
		return nil, false
	}
	return countedTablet{Tablet: worker.LocalTablet(tablet), node: n}, true
}

// countedTablet counts the snapshots that are taken and released.
type countedTablet struct {
	worker.Tablet
	node *node
}

func (c countedTablet) Snapshot(timestamp uint64) (worker.Snapshot, error) {
	s, err := c.Tablet.Snapshot(timestamp)
	if err != nil {
		return nil, err
	}
	c.node.pinned.Add(1)
	return &countedSnapshot{Snapshot: s, node: c.node}, nil
}

type countedSnapshot struct {
	worker.Snapshot
	node *node
	once sync.Once
}

func (c *countedSnapshot) Release() {
	c.Snapshot.Release()
	c.once.Do(func() { c.node.released.Add(1) })
}

func (n *node) ReportDamage(catalog.TabletID, error) bool {
	n.damage.Add(1)
	return n.healing
}

func (n *node) MetaStatus() consensus.MetaStatus { return consensus.MetaStatus{} }

func (n *node) Tablets() []consensus.TabletStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []consensus.TabletStatus
	for id, tablet := range n.tablets {
		list = append(list, consensus.TabletStatus{Tablet: id, Table: tablet.Table().ID, Leader: n.id, Applied: tablet.Applied(), Open: true})
	}
	return list
}

func (n *node) refuse(before func(storage.Command) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = before
}

func (n *node) tablet(id catalog.TabletID) *storage.Tablet {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tablets[id]
}

// rows makes rows with ids from.. and grp = id % 10.
func rows(t testing.TB, from, n int) *columnar.Batch {
	t.Helper()
	builder := func(i int, table *catalog.Table) *columnar.Builder {
		b, err := columnar.NewBuilder(catalog.PhysicalType(table.Columns[i].Type))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	table := &catalog.Table{Columns: []catalog.Column{{Type: catalog.BigInt}, {Type: catalog.Integer}, {Type: catalog.Text}, {Type: catalog.Decimal(12, 2)}}}
	ids, groups, names, prices := builder(0, table), builder(1, table), builder(2, table), builder(3, table)
	for i := from; i < from+n; i++ {
		columnar.AppendFixed(ids, int64(i))
		columnar.AppendFixed(groups, int32(i%10))
		if err := names.AppendBytes([]byte(fmt.Sprintf("row %d", i))); err != nil {
			t.Fatal(err)
		}
		columnar.AppendFixed(prices, int64(i)*25)
	}
	return &columnar.Batch{Len: n, Cols: []*columnar.Vector{ids.Finish(), groups.Finish(), names.Finish(), prices.Finish()}}
}

// write sends n rows from an id on, in batches, and finishes the stream.
func (n *node) write(table *catalog.Table, tablet int, txn string, auto bool, from, count int) (*pb.WriteResult, error) {
	n.t.Helper()
	w, err := n.conn.Write(n.t.Context(), &pb.WriteHeader{
		TransactionId: txn, TableId: uint64(table.ID), TabletId: uint64(table.Tablets[tablet].ID), AutoCommit: auto,
	}, table.ArrowSchema())
	if err != nil {
		return nil, err
	}
	for at := 0; at < count; at += 10_000 {
		if err := w.Send(rows(n.t, from+at, min(10_000, count-at))); err != nil {
			w.Abort()
			return nil, err
		}
	}
	return w.Finish()
}

func (n *node) mustWrite(table *catalog.Table, tablet int, txn string, from, count int) {
	n.t.Helper()
	result, err := n.write(table, tablet, txn, true, from, count)
	if err != nil {
		n.t.Fatal(err)
	}
	if int(result.GetRows()) != count || result.GetCommitTimestamp() == 0 {
		n.t.Fatalf("write result is %v", result)
	}
}

// plan is a query under construction: fragments and exchanges by id.
type plan struct {
	id        string
	fragments []*planner.Fragment
	exchanges []*planner.Exchange
	nodes     []*node // of the fragments
}

var queries struct {
	sync.Mutex
	n int
}

func newPlan() *plan {
	queries.Lock()
	defer queries.Unlock()
	queries.n++
	return &plan{id: fmt.Sprintf("query-%d", queries.n)}
}

func (p *plan) fragment(on *node, tablet catalog.TabletID, ops ...planner.Operator) *planner.Fragment {
	f := &planner.Fragment{ID: planner.FragmentID(len(p.fragments)), Assignment: planner.Assignment{Tablet: tablet}, Operators: ops}
	p.fragments = append(p.fragments, f)
	p.nodes = append(p.nodes, on)
	return f
}

// exchange connects a producer to a consumer; 99 stands for the coordinator.
func (p *plan) exchange(from *planner.Fragment, to planner.FragmentID, x planner.Exchange) *planner.Exchange {
	x.ID, x.Producer, x.Consumer = planner.ExchangeID(len(p.exchanges)), from.ID, to
	p.exchanges = append(p.exchanges, &x)
	from.Operators = append(from.Operators, &planner.ExchangeSink{Exchange: x.ID})
	return &x
}

// requests encodes the plan per node.
func (p *plan) requests(t testing.TB, snapshot uint64) map[*node]*pb.StartRequest {
	t.Helper()
	out := map[*node]*pb.StartRequest{}
	for i, f := range p.fragments {
		encoded, err := flightproto.EncodeFragment(f, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := p.nodes[i]
		if out[n] == nil {
			out[n] = &pb.StartRequest{QueryId: p.id, Snapshot: snapshot}
			for _, x := range p.exchanges {
				end, err := flightproto.EncodeExchange(x, p.nodes[x.Producer].address)
				if err != nil {
					t.Fatal(err)
				}
				out[n].Exchanges = append(out[n].Exchanges, end)
			}
		}
		out[n].Fragments = append(out[n].Fragments, encoded)
	}
	return out
}

// start registers the plan everywhere.
func (p *plan) start(t testing.TB) {
	t.Helper()
	for n, request := range p.requests(t, p.nodes[0].clock.Now()) {
		if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *plan) fetch(ctx context.Context, x *planner.Exchange) (*flightproto.Stream, error) {
	return p.nodes[x.Producer].conn.Fetch(ctx, p.ticket(x), x.Schema)
}

func (p *plan) ticket(x *planner.Exchange) *pb.Ticket {
	return &pb.Ticket{QueryId: p.id, Fragment: uint32(x.Producer), Exchange: uint32(x.ID)}
}

// pull reads an exchange to its end and returns the first column, as integers.
func (p *plan) pull(ctx context.Context, x *planner.Exchange) ([]int64, error) {
	stream, err := p.fetch(ctx, x)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var out []int64
	for {
		b, err := stream.Next(ctx)
		if err != nil || b == nil {
			return out, err
		}
		out = append(out, columnar.Values[int64](b.Cols[0])[:b.Len]...)
	}
}

// scan is a fragment that scans a whole tablet.
func (p *plan) scan(on *node, table *catalog.Table, tablet int, filter planner.Expr) *planner.Fragment {
	id := table.Tablets[tablet].ID
	return p.fragment(on, id, &planner.TabletScan{Table: table, Tablet: id, Projection: []int{0, 1, 2, 3}, Filter: filter})
}

// eventually waits for a condition that the worker reaches by itself.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// fragmentsOf is how many fragments a worker holds.
func (n *node) fragments() int {
	status, err := n.conn.Status(n.t.Context(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return status.Fragments
}
