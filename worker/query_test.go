package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
	"skein/worker"
)

// coordinator is the consumer of root exchanges in these tests.
const coordinator = planner.FragmentID(99)

func merge(table *catalog.Table) planner.Exchange {
	return planner.Exchange{Kind: planner.MergeExchange, Schema: table.ArrowSchema()}
}

// checkIDs checks that ids are exactly from..from+n-1, each once.
func checkIDs(t *testing.T, ids []int64, from, n int) {
	t.Helper()
	slices.Sort(ids)
	if len(ids) != n {
		t.Fatalf("%d rows instead of %d", len(ids), n)
	}
	for i, id := range ids {
		if id != int64(from+i) {
			t.Fatalf("row %d has id %d", i, id)
		}
	}
}

func TestScanReturnsWrittenRows(t *testing.T) { overNetworks(t, testScanReturnsWrittenRows) }

func testScanReturnsWrittenRows(t *testing.T, over network) {
	c := newClusterOn(t, over, false, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	const large = 300_000 // three segments
	n.mustWrite(table, 0, "large", 0, large)
	n.mustWrite(table, 0, "small", large, 5)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	p.start(t)
	ids, err := p.pull(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	checkIDs(t, ids, 0, large+5)
	eventually(t, "the fragment leaves the registry", func() bool { return n.fragments() == 0 })
}

// Two producers repartition to three consumers: every row arrives once, and rows
// of one key arrive at one consumer.
func TestRepartitionRoutesEveryRowOnce(t *testing.T) {
	overNetworks(t, testRepartitionRoutesEveryRowOnce)
}

func testRepartitionRoutesEveryRowOnce(t *testing.T, over network) {
	const each, consumers = 40_000, 3
	c := newClusterOn(t, over, false, 2, nil)
	table := c.createTable("t", nil, 0, 1)
	c.nodes[0].mustWrite(table, 0, "a", 0, each)
	c.nodes[1].mustWrite(table, 1, "b", each, each)
	p := newPlan()
	var edges [consumers][]*planner.Exchange
	for i, n := range c.nodes {
		f := p.scan(n, table, i, nil)
		for k := range consumers {
			edges[k] = append(edges[k], p.exchange(f, coordinator, planner.Exchange{
				Kind: planner.HashRepartitionExchange, Keys: []int{1}, Partition: k, Partitions: consumers, Schema: table.ArrowSchema(),
			}))
		}
	}
	p.start(t)
	var mu sync.Mutex
	var all []int64
	owner := map[int64]int{}
	group, ctx := errgroup.WithContext(t.Context())
	for k := range consumers {
		for _, x := range edges[k] {
			group.Go(func() error {
				ids, err := p.pull(ctx, x)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, ids...)
				for _, id := range ids {
					if was, ok := owner[id%10]; ok && was != k {
						t.Errorf("key %d came to consumers %d and %d", id%10, was, k)
						return err
					}
					owner[id%10] = k
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	checkIDs(t, all, 0, 2*each)
	for _, n := range c.nodes {
		eventually(t, "all fragments end", func() bool { return n.fragments() == 0 })
	}
}

func TestBroadcastReachesEveryConsumer(t *testing.T) {
	overNetworks(t, testBroadcastReachesEveryConsumer)
}

func testBroadcastReachesEveryConsumer(t *testing.T, over network) {
	const n = 30_000
	c := newClusterOn(t, over, false, 1, nil)
	table := c.createTable("t", nil, 0)
	c.nodes[0].mustWrite(table, 0, "a", 0, n)
	p := newPlan()
	f := p.scan(c.nodes[0], table, 0, nil)
	var edges []*planner.Exchange
	for range 3 {
		edges = append(edges, p.exchange(f, coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: table.ArrowSchema()}))
	}
	p.start(t)
	var group errgroup.Group
	results := make([][]int64, len(edges))
	for i, x := range edges {
		group.Go(func() (err error) {
			results[i], err = p.pull(t.Context(), x)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, ids := range results {
		checkIDs(t, ids, 0, n)
	}
}

// A consumer that has enough leaves; its siblings still get all their rows.
func TestConsumerMayLeaveEarly(t *testing.T) { overNetworks(t, testConsumerMayLeaveEarly) }

func testConsumerMayLeaveEarly(t *testing.T, over network) {
	const n = 200_000
	c := newClusterOn(t, over, false, 1, nil)
	table := c.createTable("t", nil, 0)
	c.nodes[0].mustWrite(table, 0, "a", 0, n)
	p := newPlan()
	f := p.scan(c.nodes[0], table, 0, nil)
	stays := p.exchange(f, coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: table.ArrowSchema()})
	leaves := p.exchange(f, coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: table.ArrowSchema()})
	p.start(t)
	stream, err := p.fetch(t.Context(), leaves)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	ids, err := p.pull(t.Context(), stays)
	if err != nil {
		t.Fatal(err)
	}
	checkIDs(t, ids, 0, n)
	eventually(t, "the fragment ends", func() bool { return c.nodes[0].fragments() == 0 })
}

// Fragments pull their inputs from other workers, and from their own, by gRPC.
func TestExchangesBetweenWorkers(t *testing.T) { overNetworks(t, testExchangesBetweenWorkers) }

func testExchangesBetweenWorkers(t *testing.T, over network) {
	const each = 20_000
	c := newClusterOn(t, over, false, 2, nil)
	table := c.createTable("t", nil, 0, 1)
	c.nodes[0].mustWrite(table, 0, "a", 0, each)
	c.nodes[1].mustWrite(table, 1, "b", each, each)
	p := newPlan()
	a, b := p.scan(c.nodes[0], table, 0, nil), p.scan(c.nodes[1], table, 1, nil)
	gather := p.fragment(c.nodes[1], 0)
	for _, from := range []*planner.Fragment{a, b} {
		x := p.exchange(from, gather.ID, merge(table))
		gather.Operators = append(gather.Operators, &planner.ExchangeSource{Exchange: x.ID, Schema: table.ArrowSchema()})
	}
	root := p.exchange(gather, coordinator, merge(table))
	p.start(t)
	ids, err := p.pull(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	checkIDs(t, ids, 0, 2*each)
}

// An error in the middle of a producer reaches the client through the consumer,
// with its SQLSTATE.
func TestErrorsReachTheClient(t *testing.T) { overNetworks(t, testErrorsReachTheClient) }

func testErrorsReachTheClient(t *testing.T, over network) {
	c := newClusterOn(t, over, false, 2, nil)
	table := c.createTable("t", nil, 0)
	c.nodes[0].mustWrite(table, 0, "a", 0, 50_000)
	id := &planner.Column{Index: 0, Name: "id", DataType: catalog.BigInt}
	// id / (id - 40000) fails in the middle.
	quotient := &planner.Call{Func: "/", DataType: catalog.BigInt, Args: []planner.Expr{id, &planner.Call{
		Func: "-", DataType: catalog.BigInt, Args: []planner.Expr{id, &planner.Literal{Value: int64(40_000), DataType: catalog.BigInt}}}}}
	schema := table.ArrowSchema()
	p := newPlan()
	producer := p.scan(c.nodes[0], table, 0, nil)
	producer.Operators = append(producer.Operators, &planner.ProjectOp{
		Exprs:  []planner.Expr{quotient, &planner.Column{Index: 1, DataType: catalog.Integer, Null: true}, &planner.Column{Index: 2, DataType: catalog.Text, Null: true}, &planner.Column{Index: 3, DataType: catalog.Decimal(12, 2), Null: true}},
		Schema: schema,
	})
	consumer := p.fragment(c.nodes[1], 0)
	x := p.exchange(producer, consumer.ID, merge(table))
	consumer.Operators = append(consumer.Operators, &planner.ExchangeSource{Exchange: x.ID, Schema: schema})
	root := p.exchange(consumer, coordinator, merge(table))
	p.start(t)
	_, err := p.pull(t.Context(), root)
	if sqlstate.CodeOf(err) != sqlstate.DivisionByZero {
		t.Errorf("error is %v", err)
	}
	for _, n := range c.nodes {
		eventually(t, "all fragments end", func() bool { return n.fragments() == 0 })
	}
}

func TestStartAndClaimRules(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.MaxFragments = 4 })
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 10)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	p.start(t)
	request := p.requests(t, 1)[n]
	if _, err := n.conn.StartFragments(t.Context(), request); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("a duplicate start: %v", err)
	}
	wide := newPlan()
	for range 4 {
		wide.exchange(wide.scan(n, table, 0, nil), coordinator, merge(table))
	}
	_, err := n.conn.StartFragments(t.Context(), wide.requests(t, 1)[n])
	if sqlstate.CodeOf(err) != sqlstate.TooManyRequests || flightproto.ReasonOf(err) != flightproto.Reservation {
		t.Errorf("a start beyond the limit: %v", err)
	}
	if n.fragments() != 1 {
		t.Errorf("a refused start left something behind")
	}
	for name, ticket := range map[string]*pb.Ticket{
		"query":    {QueryId: "other"},
		"fragment": {QueryId: p.id, Fragment: 7},
		"exchange": {QueryId: p.id, Exchange: 7},
	} {
		stream, err := n.conn.Fetch(t.Context(), ticket, table.ArrowSchema())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Next(t.Context()); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
			t.Errorf("unknown %s: %v", name, err)
		}
		stream.Close()
	}
	stale := p.ticket(x)
	stale.TabletGeneration = 9
	stream, err := n.conn.Fetch(t.Context(), stale, table.ArrowSchema())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(t.Context()); flightproto.ReasonOf(err) != flightproto.NoReason && flightproto.ReasonOf(err) != flightproto.StaleMetadata || err == nil {
		t.Errorf("another generation: %v", err)
	}
	stream.Close()
	ids, err := p.pull(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	checkIDs(t, ids, 0, 10)
	if _, err := p.pull(t.Context(), x); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
		t.Errorf("a second pull: %v", err)
	}
}

func TestStartRefusesBadRequests(t *testing.T) {
	c := newCluster(t, 2, func(cfg *worker.Config) { cfg.MetadataWait = 20 * time.Millisecond })
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	elsewhere := c.createTable("u", nil, 1)
	for name, test := range map[string]struct {
		change func(*pb.StartRequest)
		code   sqlstate.Code
		reason flightproto.Reason
	}{
		"no query":         {func(r *pb.StartRequest) { r.QueryId = "" }, sqlstate.ProtocolViolation, ""},
		"no fragments":     {func(r *pb.StartRequest) { r.Fragments = nil }, sqlstate.ProtocolViolation, ""},
		"no exchanges":     {func(r *pb.StartRequest) { r.Exchanges = nil }, sqlstate.ProtocolViolation, ""},
		"no sink":          {func(r *pb.StartRequest) { r.Fragments[0].Operators = r.Fragments[0].Operators[:1] }, sqlstate.ProtocolViolation, ""},
		"newer metadata":   {func(r *pb.StartRequest) { r.MetadataVersion = 1 << 40 }, sqlstate.CannotConnectNow, flightproto.Unavailable},
		"far future":       {func(r *pb.StartRequest) { r.Snapshot = 1 << 63 }, sqlstate.InternalError, ""},
		"other generation": {func(r *pb.StartRequest) { r.Fragments[0].TabletGeneration = 8 }, sqlstate.SerializationFailure, flightproto.StaleMetadata},
		"dropped table": {func(r *pb.StartRequest) { r.Fragments[0].Operators[0].GetTabletScan().TableId = 404 },
			sqlstate.UndefinedTable, flightproto.StaleMetadata},
		"altered table": {func(r *pb.StartRequest) { r.Fragments[0].Operators[0].GetTabletScan().TableVersion++ },
			sqlstate.SerializationFailure, flightproto.StaleMetadata},
		"replaced tablet": {func(r *pb.StartRequest) { r.Fragments[0].Operators[0].GetTabletScan().TabletId = 404 },
			sqlstate.SerializationFailure, flightproto.TabletSplit},
		"moved and changed": {func(r *pb.StartRequest) {
			r.Fragments[0].TabletId, r.Fragments[0].TabletGeneration = uint64(elsewhere.Tablets[0].ID), 8
			s := r.Fragments[0].Operators[0].GetTabletScan()
			s.TableId, s.TabletId, s.TableVersion = uint64(elsewhere.ID), uint64(elsewhere.Tablets[0].ID), elsewhere.Version
		}, sqlstate.ConnectionFailure, flightproto.TabletMoved},
		"tablet elsewhere": {func(r *pb.StartRequest) {
			s := r.Fragments[0].Operators[0].GetTabletScan()
			s.TableId, s.TabletId, s.TableVersion = uint64(elsewhere.ID), uint64(elsewhere.Tablets[0].ID), elsewhere.Version
		}, sqlstate.ConnectionFailure, flightproto.TabletMoved},
	} {
		p := newPlan()
		p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
		request := p.requests(t, n.clock.Now())[n]
		test.change(request)
		_, err := n.conn.StartFragments(t.Context(), request)
		if sqlstate.CodeOf(err) != test.code || flightproto.ReasonOf(err) != test.reason {
			t.Errorf("%s: %v (%q)", name, err, flightproto.ReasonOf(err))
		}
	}
	if n.fragments() != 0 {
		t.Error("refused starts left fragments behind")
	}
}

func TestCancelEndsStreamsAndRefusesLateStarts(t *testing.T) {
	overNetworks(t, testCancelEndsStreamsAndRefusesLateStarts)
}

func testCancelEndsStreamsAndRefusesLateStarts(t *testing.T, over network) {
	c := newClusterOn(t, over, false, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 300_000)
	for _, shared := range []bool{false, true} {
		p := newPlan()
		f := p.scan(n, table, 0, nil)
		x := p.exchange(f, coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: table.ArrowSchema()})
		if shared { // the second consumer never comes
			p.exchange(f, coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: table.ArrowSchema()})
		}
		p.start(t)
		stream, err := p.fetch(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ended, err := n.conn.Cancel(t.Context(), p.id, "because", nil); err != nil || ended != 1 {
			t.Errorf("cancel ended %d fragments, %v", ended, err)
		}
		for err == nil {
			_, err = stream.Next(t.Context())
		}
		if sqlstate.CodeOf(err) != sqlstate.QueryCanceled || !strings.Contains(err.Error(), "because") {
			t.Errorf("the stream of a cancelled query: %v", err)
		}
		stream.Close()
		eventually(t, "the fragment ends", func() bool { return n.fragments() == 0 })
		_, err = n.conn.StartFragments(t.Context(), p.requests(t, 1)[n])
		if flightproto.ReasonOf(err) != flightproto.Cancelled {
			t.Errorf("a late start: %v", err)
		}
	}
	early := newPlan()
	early.exchange(early.scan(n, table, 0, nil), coordinator, merge(table))
	if ended, err := n.conn.Cancel(t.Context(), early.id, "", nil); err != nil || ended != 0 {
		t.Errorf("cancelling an unknown query: %d, %v", ended, err)
	}
	if _, err := n.conn.StartFragments(t.Context(), early.requests(t, 1)[n]); flightproto.ReasonOf(err) != flightproto.Cancelled {
		t.Errorf("a start after its cancel: %v", err)
	}
}

func TestLeaseSweepsForgottenQueries(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.SweepInterval = 5 * time.Millisecond })
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 300_000)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	request := p.requests(t, n.clock.Now())[n]
	request.LeaseMillis = 100
	if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	stream, err := p.fetch(t.Context(), x) // claimed and not read on
	if err != nil {
		t.Fatal(err)
	}
	forgotten := newPlan()
	y := forgotten.exchange(forgotten.scan(n, table, 0, nil), coordinator, merge(table))
	request = forgotten.requests(t, n.clock.Now())[n]
	request.LeaseMillis = 100
	if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the query that nobody reads is swept", func() bool { return n.fragments() == 2 })
	if late, err := forgotten.fetch(t.Context(), y); err == nil {
		_, err = late.Next(t.Context())
		if sqlstate.CodeOf(err) != sqlstate.QueryCanceled || !strings.Contains(err.Error(), "cancel") {
			t.Errorf("pulling a swept query: %v", err)
		}
		late.Close()
	}
	// The one that is being read lives on beyond its lease, and once its reader
	// is gone the rest of it is swept.
	if _, err := stream.Next(t.Context()); err != nil {
		t.Errorf("a query that is being read was ended: %v", err)
	}
	stream.Close()
	eventually(t, "the abandoned query is swept", func() bool { return n.fragments() == 0 })
}

func TestDisconnectAndDeadlineEndFragments(t *testing.T) {
	overNetworks(t, testDisconnectAndDeadlineEndFragments)
}

func testDisconnectAndDeadlineEndFragments(t *testing.T, over network) {
	c := newClusterOn(t, over, false, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 300_000)
	for _, ends := range []func(context.Context) (context.Context, context.CancelFunc){
		context.WithCancel,
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
	} {
		p := newPlan()
		x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
		p.start(t)
		ctx, cancel := ends(t.Context())
		stream, err := p.fetch(ctx, x)
		if err == nil {
			_, err = stream.Next(ctx)
		}
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if stream == nil { // a slow machine met the deadline before the claim
			if _, err := n.conn.Cancel(t.Context(), p.id, "not claimed", nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, timed := ctx.Deadline(); !timed {
			cancel()
		}
		eventually(t, "the fragment ends", func() bool { return n.fragments() == 0 })
		cancel()
		if stream != nil {
			stream.Close()
		}
	}
}

func TestMemoryBudgetIsReleased(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 100_000)
	p := newPlan()
	f := p.scan(n, table, 0, nil)
	f.Operators = append(f.Operators, &planner.MergeSort{Keys: []planner.SortKey{{Column: 2}}, Limit: -1})
	x := p.exchange(f, coordinator, merge(table))
	request := p.requests(t, n.clock.Now())[n]
	request.MemoryBytes = 1 << 20
	if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := p.pull(t.Context(), x); sqlstate.CodeOf(err) != sqlstate.OutOfMemory {
		t.Errorf("a sort beyond its budget: %v", err)
	}
	eventually(t, "the memory is given back", func() bool {
		status, err := n.conn.Status(t.Context(), nil)
		return err == nil && status.MemoryBytes == 0 && status.Fragments == 0
	})
}

// Close cancels what does not finish in time and refuses newcomers.
func TestCloseDrains(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 300_000)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	p.start(t)
	stream, err := p.fetch(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.server.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close with a stream open: %v", err)
	}
	for err == nil {
		_, err = stream.Next(t.Context())
	}
	if flightproto.ReasonOf(err) != flightproto.Unavailable {
		t.Errorf("the stream of a closing worker: %v", err)
	}
	if _, err := n.conn.Status(t.Context(), nil); flightproto.ReasonOf(err) != flightproto.Unavailable {
		t.Errorf("a request to a closed worker: %v", err)
	}
}

// Two producers send to two consumers, each in the order of ids, one all rows of
// the first consumer first and the other those of the second. The consumers
// merge: each waits for rows behind those that only the other one can take.
func TestMergesOfCrossedProducersEnd(t *testing.T) { overNetworks(t, testMergesOfCrossedProducersEnd) }

func testMergesOfCrossedProducersEnd(t *testing.T, over network) {
	const each = 400_000 // more than the windows of the transport hold
	c := newClusterOn(t, over, false, 2, func(cfg *worker.Config) { cfg.SpillDir = t.TempDir(); cfg.QueryMemoryBytes = 64 << 20 })
	table := c.createTable("t", []int{0}, 0, 1)
	schema := table.ArrowSchema()
	p := newPlan()
	id, half := planner.ColumnOf(schema, 0), &planner.Literal{Value: int64(each / 2), DataType: catalog.BigInt}
	call := func(op string, x, y planner.Expr) planner.Expr {
		return &planner.Call{Func: op, Args: []planner.Expr{x, y}, DataType: catalog.BigInt, Null: true}
	}
	other := &planner.Literal{Value: int64(3), DataType: catalog.BigInt} // in another partition than 0
	second := call("*", call("/", id, half), other)
	first := call("-", other, second)
	fields := append(schema.Fields(), arrow.Field{Name: "key", Type: catalog.BigInt, Nullable: true})
	keyed := arrow.NewSchema(fields, nil)
	edges := make([][]*planner.Exchange, 2)
	for i, n := range c.nodes {
		n.mustWrite(table, i, "w", 0, each)
		f := p.scan(n, table, i, nil)
		project := &planner.ProjectOp{Schema: keyed}
		for k := range schema.NumFields() {
			project.Exprs = append(project.Exprs, planner.ColumnOf(schema, k))
		}
		project.Exprs = append(project.Exprs, []planner.Expr{second, first}[i])
		f.Operators = append(f.Operators, &planner.MergeSort{Keys: []planner.SortKey{{Column: 0}}, Limit: -1}, project)
		for k := range 2 {
			edges[k] = append(edges[k], p.exchange(f, planner.FragmentID(2+k), planner.Exchange{
				Kind: planner.HashRepartitionExchange, Keys: []int{4}, Partition: k, Partitions: 2, Schema: keyed,
			}))
		}
	}
	var roots []*planner.Exchange
	for k, n := range c.nodes {
		f := p.fragment(n, 0)
		for _, x := range edges[k] {
			f.Operators = append(f.Operators, &planner.ExchangeSource{Exchange: x.ID, Schema: keyed})
		}
		f.Operators = append(f.Operators, &planner.MergeSort{Keys: []planner.SortKey{{Column: 0}}, Limit: -1})
		roots = append(roots, p.exchange(f, coordinator, planner.Exchange{Kind: planner.MergeExchange, Schema: keyed}))
	}
	p.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	got := make([][]int64, 2)
	for k, x := range roots {
		group.Go(func() (err error) {
			got[k], err = p.pull(ctx, x)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for k, ids := range got {
		if !slices.IsSorted(ids) {
			t.Errorf("the rows of consumer %d are not in order", k)
		}
		if len(ids) != each { // keys of one partition would prove nothing
			t.Errorf("consumer %d has %d rows instead of %d", k, len(ids), each)
		}
	}
	for _, n := range c.nodes {
		eventually(t, "everything is given back", func() bool {
			status, err := n.conn.Status(t.Context(), nil)
			return err == nil && status.Fragments == 0 && status.MemoryBytes == 0
		})
	}
}
