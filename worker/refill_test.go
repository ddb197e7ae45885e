package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
	"skein/worker"
)

// topK is a distributed top-k over all tablets of a table, whose rows are (id,
// grp, tablet, row id), and how many rows its tablets sent.
type topK struct {
	*plan
	op     *planner.TopK
	schema *arrow.Schema
	root   []planner.Operator
	rows   []*countedStream
}

func newTopK(c *cluster, table *catalog.Table, keys []planner.SortKey, k, first int64) *topK {
	projection := []int{0, 1, planner.TabletColumn, planner.RowIDColumn}
	var fields []arrow.Field
	for _, ordinal := range projection {
		column := planner.ProjectedColumn(table, ordinal)
		fields = append(fields, arrow.Field{Name: column.Name, Type: column.Type, Nullable: column.Nullable})
	}
	out := &topK{
		plan: newPlan(), schema: arrow.NewSchema(fields, nil),
		op: &planner.TopK{K: k, Keys: keys, Ties: []planner.SortKey{{Column: 2}, {Column: 3}}, First: first},
	}
	for i := range table.Tablets {
		id := table.Tablets[i].ID
		on := c.nodes[table.Tablets[i].Replicas[0].Node-1]
		f := out.fragment(on, id, &planner.TabletScan{Table: table, Tablet: id, Projection: projection}, out.op)
		x := out.exchange(f, coordinator, planner.Exchange{Kind: planner.MergeExchange, Schema: out.schema})
		out.root = append(out.root, &planner.ExchangeSource{Exchange: x.ID, Schema: out.schema})
	}
	final := *out.op
	final.Refill = true
	out.root = append(out.root, &final)
	return out
}

// OpenExchange implements exec.ExchangeReader.
func (q *topK) OpenExchange(ctx context.Context, source *planner.ExchangeSource) (exec.Operator, error) {
	s, err := q.fetch(ctx, q.exchanges[source.Exchange])
	if err != nil {
		return nil, err
	}
	q.rows = append(q.rows, &countedStream{Stream: s})
	return q.rows[len(q.rows)-1], nil
}

type countedStream struct {
	*flightproto.Stream
	rows, refills int
}

func (s *countedStream) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := s.Stream.Next(ctx)
	if b != nil {
		s.rows += b.Rows()
	}
	return b, err
}

func (s *countedStream) Refill(ctx context.Context, rows int) error {
	s.refills++
	return s.Stream.Refill(ctx, rows)
}

// run starts the query and reads it to its end: the ids in order, the rows that
// came over the wire and how often tablets were asked for more.
func (q *topK) run(t *testing.T) (ids []int64, received, refills int) {
	t.Helper()
	ids, err := q.answer(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range q.rows {
		received += s.rows
		refills += s.refills
	}
	return ids, received, refills
}

// answer is what the query, started now, yields.
func (q *topK) answer(ctx context.Context, t *testing.T) (ids []int64, err error) {
	for n, request := range q.requests(t, q.nodes[0].clock.Now()) {
		if _, err := n.conn.StartFragments(ctx, request); err != nil {
			return nil, err
		}
	}
	root, err := exec.Build(ctx, q.root, &exec.Env{Exchanges: q})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for {
		b, err := root.Next(ctx)
		if err != nil || b == nil {
			return ids, err
		}
		ids = append(ids, columnar.Values[int64](b.Cols[0])[:b.Len]...)
	}
}

// idle checks that workers hold no fragments and no snapshots any more.
func (c *cluster) idle(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		eventually(t, "all fragments end", func() bool { return n.fragments() == 0 })
		eventually(t, "all snapshots are released", func() bool { return n.pinned.Load() == n.released.Load() })
	}
}

// Eight tablets and a large k: less than a fifth of k rows per tablet cross the
// wire, and they are the right ones.
func TestTopKSendsLittleOverTheWire(t *testing.T) {
	const tablets, each, k, first = 8, 20_000, 10_000, 1424
	c := newCluster(t, 2, nil)
	table := c.createTable("t", nil, 0, 1, 0, 1, 0, 1, 0, 1)
	type ranked struct{ id, tablet, row int64 }
	var all []ranked
	for i := range tablets {
		c.nodes[i%2].mustWrite(table, i, fmt.Sprint("w", i), i*each, each)
		for row := range each {
			all = append(all, ranked{int64(i*each + row), int64(i), int64(row)})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return int(b.id%10 - a.id%10) }) // grp desc, tablet, row id
	for name, s := range map[string]struct {
		keys []planner.SortKey
		want func(i int) int64
		most int
	}{
		// Ties of the best group go to the first tablets, which hold 2,000 of it each.
		"ties":              {[]planner.SortKey{{Column: 1, Descending: true}}, func(i int) int64 { return all[i].id }, 3 * k},
		"all on one tablet": {[]planner.SortKey{{Column: 0}}, func(i int) int64 { return int64(i) }, 4 * k},
		"a descending key":  {[]planner.SortKey{{Column: 0, Descending: true, NullsFirst: true}}, func(i int) int64 { return int64(tablets*each - 1 - i) }, 4 * k},
	} {
		t.Run(name, func(t *testing.T) {
			ids, received, refills := newTopK(c, table, s.keys, k, first).run(t)
			if len(ids) != k {
				t.Fatalf("%d rows", len(ids))
			}
			for i, id := range ids {
				if id != s.want(i) {
					t.Fatalf("row %d has id %d instead of %d", i, id, s.want(i))
				}
			}
			if received > s.most || refills == 0 {
				t.Errorf("%d rows were received, of %d tablets that hold up to %d winners each, with %d refills", received, tablets, k, refills)
			}
			c.idle(t)
		})
	}
}

// A thousand random tables, orders, k and portions against one sort of all rows,
// over the network that processes use.
func TestTopKMatchesSortOverTheWire(t *testing.T) {
	c := newCluster(t, 2, nil)
	total := 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		on := make([]int, 1+rng.IntN(5))
		for i := range on {
			on[i] = rng.IntN(2)
		}
		table := c.createTable(fmt.Sprint("t", seed), nil, on...)
		var all []int64
		for i := range on {
			count := rng.IntN(100)
			if count == 0 {
				continue
			}
			from := rng.IntN(1000)
			c.nodes[on[i]].mustWrite(table, i, fmt.Sprint("w", seed, "-", i), from, count)
			for id := from; id < from+count; id++ {
				all = append(all, int64(id))
			}
		}
		down := rng.IntN(2) == 0
		slices.SortStableFunc(all, func(a, b int64) int {
			if down {
				a, b = b, a
			}
			return int(a%10 - b%10)
		})
		k := 1 + rng.Int64N(int64(len(all)+10))
		ids, _, refills := newTopK(c, table, []planner.SortKey{{Column: 1, Descending: down}}, k, 1+rng.Int64N(k)).run(t)
		total += refills
		if want := all[:min(len(all), int(k))]; !slices.Equal(ids, want) {
			t.Fatalf("seed %d, k %d: got %v instead of %v", seed, k, ids, want)
		}
	}
	if total == 0 {
		t.Error("no query needed a refill")
	}
	c.idle(t)
}

// waiting is a fragment that waits behind its first rows.
func waiting(t *testing.T, configure func(*worker.Config)) (*cluster, *topK, *flightproto.Stream) {
	t.Helper()
	c := newCluster(t, 1, configure)
	table := c.createTable("t", nil, 0)
	c.nodes[0].mustWrite(table, 0, "w", 0, 1000)
	q := newTopK(c, table, []planner.SortKey{{Column: 0}}, 100, 10)
	q.start(t)
	s, err := q.fetch(t.Context(), q.exchanges[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Next(t.Context())
	if err != nil || b.Rows() != 10 {
		t.Fatalf("first portion is %v, error %v", b, err)
	}
	if bound, err := s.Unseen(); err != nil || len(bound) == 0 {
		t.Fatalf("bound %x, error %v", bound, err)
	}
	return c, q, s
}

func TestWaitingFragmentIsReleased(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *cluster, q *topK, s *flightproto.Stream){
		"by its consumer": func(t *testing.T, _ *cluster, _ *topK, s *flightproto.Stream) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		},
		"by a lost connection": func(t *testing.T, c *cluster, _ *topK, _ *flightproto.Stream) {
			conn, err := flightproto.Dial(c.nodes[0].address)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.nodes[0].conn.Close(); err != nil {
				t.Error(err)
			}
			c.nodes[0].conn = conn
		},
		"by cancel": func(t *testing.T, c *cluster, q *topK, s *flightproto.Stream) {
			if n, err := c.nodes[0].conn.Cancel(t.Context(), q.id, "enough", nil); n != 1 || err != nil {
				t.Errorf("%d fragments were cancelled, error %v", n, err)
			}
			if _, err := s.Next(t.Context()); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
				t.Errorf("error %v", err)
			}
			if err := s.Refill(t.Context(), 5); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
				t.Errorf("a refill after the cancel: %v", err)
			}
		},
		"at its end": func(t *testing.T, _ *cluster, _ *topK, s *flightproto.Stream) {
			if err := s.Refill(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
			rows := 0
			for {
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				rows += b.Rows()
			}
			if rows != 90 {
				t.Errorf("%d rows behind the first ten of a hundred", rows)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, q, s := waiting(t, nil)
			defer s.Close()
			end(t, c, q, s)
			c.idle(t)
		})
	}
}

func TestWaitingFragmentHasALease(t *testing.T) {
	c, _, s := waiting(t, func(cfg *worker.Config) { cfg.DefaultLease, cfg.MaxLease = 50*time.Millisecond, 50*time.Millisecond })
	defer s.Close()
	if _, err := s.Next(t.Context()); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("error %v", err)
	}
	c.idle(t)
}

func TestRefillRules(t *testing.T) {
	c, q, s := waiting(t, nil)
	defer s.Close()
	plain := newPlan() // what it starts ends with the worker
	table := c.metadata.Load().Tables[0]
	plain.exchange(plain.scan(c.nodes[0], table, 0, nil), coordinator, merge(table))
	plain.start(t)
	unread := newTopK(c, table, []planner.SortKey{{Column: 0}}, 100, 10)
	unread.start(t)
	for name, r := range map[string]struct {
		request *pb.RefillRequest
		code    sqlstate.Code
	}{
		"no query":        {&pb.RefillRequest{Rows: 1}, sqlstate.ProtocolViolation},
		"no rows":         {&pb.RefillRequest{QueryId: q.id}, sqlstate.ProtocolViolation},
		"other query":     {&pb.RefillRequest{QueryId: "other", Rows: 1}, sqlstate.UndefinedObject},
		"other fragment":  {&pb.RefillRequest{QueryId: q.id, Fragment: 7, Rows: 1}, sqlstate.UndefinedObject},
		"other exchange":  {&pb.RefillRequest{QueryId: q.id, Exchange: 7, Rows: 1}, sqlstate.ProtocolViolation},
		"not in portions": {&pb.RefillRequest{QueryId: plain.id, Rows: 1}, sqlstate.ProtocolViolation},
		"not being read":  {&pb.RefillRequest{QueryId: unread.id, Rows: 1}, sqlstate.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.nodes[0].conn.Refill(t.Context(), r.request); sqlstate.CodeOf(err) != r.code {
				t.Errorf("error %v", err)
			}
		})
	}
	fanned := newTopK(c, table, []planner.SortKey{{Column: 0}}, 100, 10)
	fanned.exchanges[0].Kind = planner.BroadcastExchange
	fanned.exchange(fanned.fragments[0], coordinator, planner.Exchange{Kind: planner.BroadcastExchange, Schema: fanned.schema})
	_, err := c.nodes[0].conn.StartFragments(t.Context(), fanned.requests(t, 1)[c.nodes[0]])
	var user *sqlstate.Error
	if !errors.As(err, &user) || user.Code != sqlstate.ProtocolViolation {
		t.Errorf("portions for several consumers: %v", err)
	}
}
