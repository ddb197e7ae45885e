package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/internal/faultproxy"
	"skein/planner"
	"skein/sqlstate"
)

// brief is a query that a pull starts.
type brief struct {
	*plan
	exchange *planner.Exchange
	ticket   *pb.Ticket
}

func newBrief(t *testing.T, n *node, table *catalog.Table) *brief {
	t.Helper()
	b := &brief{plan: newPlan()}
	b.exchange = b.plan.exchange(b.scan(n, table, 0, nil), coordinator, merge(table))
	b.ticket = b.plan.ticket(b.exchange)
	b.ticket.Start = b.requests(t, n.clock.Now())[n]
	return b
}

// recording keeps what is sent to it.
type recording struct{ sent []*flight.FlightData }

func (r *recording) Send(m *flight.FlightData) error {
	r.sent = append(r.sent, proto.Clone(m).(*flight.FlightData))
	return nil
}

func (r *recording) Recv() (*flight.FlightData, error) {
	if len(r.sent) == 0 {
		return nil, io.EOF
	}
	m := r.sent[0]
	r.sent = r.sent[1:]
	return m, nil
}

// answer pulls the query's rows and returns the ids in their first column.
func (b *brief) answer(ctx context.Context, conn *flightproto.Conn) (ids []int64, clock uint64, err error) {
	schema := flightproto.NewExchangeSchema(b.exchange)
	p, err := conn.Pull(ctx, b.ticket, schema)
	if err != nil {
		return nil, 0, err
	}
	defer p.Close()
	to := &recording{}
	w := flightproto.NewStreamWriter(to, schema, nil)
	for {
		m, err := p.Next()
		if err != nil {
			return nil, 0, err
		}
		if m == nil {
			break
		}
		if err := w.Forward(m); err != nil {
			return nil, 0, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, 0, err
	}
	reader := flightproto.NewBatchReader(to, schema.Schema())
	defer reader.Close()
	for {
		batch, err := reader.Next()
		if err != nil || batch == nil {
			return ids, p.Clock(), err
		}
		ids = append(ids, columnar.Values[int64](batch.Cols[0])...)
	}
}

// Pulls take turns on one connection, whether they end well or not.
func TestPulls(t *testing.T) {
	overNetworks(t, func(t *testing.T, over network) {
		c := newClusterOn(t, over, false, 1, nil)
		n := c.nodes[0]
		table := c.createTable("t", nil, 0)
		n.mustWrite(table, 0, "a", 0, 5000)
		for i := range 20 {
			b := newBrief(t, n, table)
			if i%4 == 3 {
				b.ticket.Start.Fragments = nil
				if _, _, err := b.answer(t.Context(), n.conn); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
					t.Fatalf("pull %d: %v", i, err)
				}
				continue
			}
			ids, clock, err := b.answer(t.Context(), n.conn)
			if err != nil {
				t.Fatal(err)
			}
			checkIDs(t, ids, 0, 5000)
			if clock < b.ticket.Start.GetSnapshot() {
				t.Errorf("clock %d after snapshot %d", clock, b.ticket.Start.GetSnapshot())
			}
		}
		eventually(t, "all is given back", func() bool { return n.fragments() == 0 && n.pinned.Load() == n.released.Load() })
	})
}

// What a pull cannot do is refused, and leaves nothing behind.
func TestPullsAreChecked(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 100)
	for name, test := range map[string]struct {
		spoil func(*brief)
		want  sqlstate.Code
	}{
		"nothing started":  {func(b *brief) { b.ticket.Start = nil }, sqlstate.ProtocolViolation},
		"another query":    {func(b *brief) { b.ticket.QueryId = "other" }, sqlstate.ProtocolViolation},
		"another exchange": {func(b *brief) { b.ticket.Exchange++ }, sqlstate.UndefinedObject},
		"several consumers": {func(b *brief) {
			b.plan.exchange(b.fragments[0], coordinator, merge(table))
			b.ticket.Start = b.requests(t, n.clock.Now())[n]
		}, sqlstate.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBrief(t, n, table)
			test.spoil(b)
			if ids, _, err := b.answer(t.Context(), n.conn); sqlstate.CodeOf(err) != test.want {
				t.Errorf("%d rows, error %v", len(ids), err)
			}
			if _, err := n.conn.Cancel(t.Context(), b.id, "the test is over", nil); err != nil {
				t.Error(err)
			}
			eventually(t, "nothing is left", func() bool { return n.fragments() == 0 })
		})
	}
}

// A consumer that does not read hears of a cancel, one that goes away ends its
// query, and other pulls go on.
func TestStalledPullsEnd(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 400_000) // more than a stream's window
	stall := func(ctx context.Context) (*brief, *flightproto.Puller) {
		b := newBrief(t, n, table)
		p, err := n.conn.Pull(ctx, b.ticket, flightproto.NewExchangeSchema(b.exchange))
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
		return b, p
	}
	b, p := stall(t.Context())
	if _, err := n.conn.Cancel(t.Context(), b.id, "a cancel", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cancelled query is gone", func() bool { return n.fragments() == 0 })
	var err error
	for m := (*flightproto.Message)(nil); err == nil; {
		if m, err = p.Next(); m != nil {
			m.Release()
		} else if err == nil {
			t.Fatal("a cancelled pull came to its end")
		}
	}
	if sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("error is %v", err)
	}
	p.Close()

	_, p = stall(t.Context())
	p.Close()
	eventually(t, "the query of a closed pull is gone", func() bool { return n.fragments() == 0 })

	ctx, cancel := context.WithCancel(t.Context())
	_, p = stall(ctx)
	cancel()
	eventually(t, "the query of a cancelled context is gone", func() bool { return n.fragments() == 0 })
	p.Close()

	small := c.createTable("small", nil, 0)
	n.mustWrite(small, 0, "b", 0, 10)
	ids, _, err := newBrief(t, n, small).answer(t.Context(), n.conn)
	if err != nil {
		t.Fatal(err)
	}
	checkIDs(t, ids, 0, 10)
}

// A worker that closes does not wait for idle sessions.
func TestClosingEndsIdleSessions(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 10)
	if _, _, err := newBrief(t, n, table).answer(t.Context(), n.conn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.server.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, _, err := newBrief(t, n, table).answer(ctx, n.conn); flightproto.ReasonOf(err) != flightproto.Unavailable {
		t.Errorf("error of a closed worker is %v", err)
	}
}

// TestFaultsNeverChangePulls spoils a message of a session: its pull and those
// behind it are exact or fail, and nothing stays behind.
func TestFaultsNeverChangePulls(t *testing.T) {
	c := newClusterOn(t, tcp{}, true, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 20_000) // several messages
	ours := func(method string, _ []byte) bool { return method == "DoExchange" }
	kinds := []faultproxy.Kind{faultproxy.Drop, faultproxy.Truncate, faultproxy.Duplicate, faultproxy.Reset, faultproxy.Finish, faultproxy.Delay}
	for message := range 6 {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s-%d", kind, message), func(t *testing.T) {
				conn, err := flightproto.Dial(n.address) // for a session that is the fault's
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := conn.Close(); err != nil {
						t.Error(err)
					}
				}()
				before := n.proxy.Fired()
				n.proxy.Arm(&faultproxy.Fault{Kind: kind, Place: faultproxy.Response, Message: message, For: 10 * time.Millisecond, Match: ours})
				failed := 0
				for range 4 {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					ids, _, err := newBrief(t, n, table).answer(ctx, conn)
					cancel()
					if err == nil {
						checkIDs(t, ids, 0, 20_000)
						continue
					}
					failed++
					if code := sqlstate.CodeOf(err); !slices.Contains([]sqlstate.Code{
						sqlstate.ConnectionFailure, sqlstate.ProtocolViolation, sqlstate.InternalError, sqlstate.QueryCanceled, "",
					}, code) || code == "" && !isProtocol(err) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("an error that does not say what happened: %v", err)
					}
				}
				if failed > 1 || n.proxy.Fired() != before+1 {
					t.Errorf("%d of 4 pulls failed of %d faults", failed, n.proxy.Fired()-before)
				}
				mustBeIdle(t, c)
			})
		}
	}
}
