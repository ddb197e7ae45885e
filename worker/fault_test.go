package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/internal/faultproxy"
	"skein/planner"
	"skein/sqlstate"
)

// shuffle is a plan in which two workers scan, send each other half of their
// rows, and pass what they get on to the coordinator.
type shuffle struct {
	*plan
	between []*planner.Exchange // from scans to consumers
	roots   []*planner.Exchange
}

const shuffleRows = 30_000 // of each node: several messages a stream

func newShuffle(c *cluster, table *catalog.Table) *shuffle {
	s := &shuffle{plan: newPlan()}
	scans := []*planner.Fragment{s.scan(c.nodes[0], table, 0, nil), s.scan(c.nodes[1], table, 1, nil)}
	for k, n := range c.nodes {
		consumer := s.fragment(n, 0)
		for _, scan := range scans {
			x := s.exchange(scan, consumer.ID, planner.Exchange{
				Kind: planner.HashRepartitionExchange, Keys: []int{0}, Partition: k, Partitions: 2, Schema: table.ArrowSchema(),
			})
			s.between = append(s.between, x)
			consumer.Operators = append(consumer.Operators, &planner.ExchangeSource{Exchange: x.ID, Schema: table.ArrowSchema()})
		}
		s.roots = append(s.roots, s.exchange(consumer, coordinator, merge(table)))
	}
	return s
}

// run does what a coordinator does: start, pull all, and cancel after a failure.
func (s *shuffle) run(ctx context.Context, c *cluster) ([]int64, error) {
	ids, err := s.answer(ctx, c)
	if err == nil {
		return ids, nil
	}
	for _, n := range c.nodes {
		n.proxy.Arm(nil)
		if _, cancelErr := n.conn.Cancel(c.t.Context(), s.id, "a failure elsewhere", nil); cancelErr != nil {
			return nil, fmt.Errorf("canceling: %w", cancelErr)
		}
	}
	return nil, err
}

func (s *shuffle) answer(ctx context.Context, c *cluster) (all []int64, err error) {
	for n, request := range s.requests(c.t, s.nodes[0].clock.Now()) {
		if _, err := n.conn.StartFragments(ctx, request); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, x := range s.roots {
		group.Go(func() error {
			ids, err := s.pull(ctx, x)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, ids...)
			return err
		})
	}
	return all, group.Wait()
}

// pulls matches the ticket of an exchange of this query: calls of others may still end.
func (s *shuffle) pulls(x *planner.Exchange) func(string, []byte) bool { return pullsOf(s.id, x) }

func pullsOf(query string, x *planner.Exchange) func(string, []byte) bool {
	return func(method string, request []byte) bool {
		raw, ticket := &flight.Ticket{}, &pb.Ticket{}
		return method == "DoGet" && proto.Unmarshal(request, raw) == nil &&
			flightproto.Decode(raw.GetTicket(), ticket, flightproto.MaxTicketBytes) == nil &&
			ticket.GetQueryId() == query && ticket.GetExchange() == uint32(x.ID)
	}
}

// starts matches the action that starts fragments.
func starts(method string, request []byte) bool {
	action := &flight.Action{}
	return method == "DoAction" && proto.Unmarshal(request, action) == nil && action.GetType() == flightproto.ActionStart
}

// faultCase is one thing that goes wrong. fails says that the query must see it;
// otherwise it may, or the answer is exact.
type faultCase struct {
	fault faultproxy.Fault
	fails bool
}

// faultCases spoil every step of a call whose answer is a stream.
func faultCases() []faultCase {
	const short = 20 * time.Millisecond
	list := []faultCase{
		{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Request, For: short}, false},
		{faultproxy.Fault{Kind: faultproxy.Truncate, Place: faultproxy.Request}, true},
		{faultproxy.Fault{Kind: faultproxy.Duplicate, Place: faultproxy.Request}, false},
		{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.Request}, true},
		{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.End, For: short}, false},
		{faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.End}, true},
		{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.End}, true},
	}
	for n := range 3 { // the schema, the first rows, further rows
		for _, kind := range []faultproxy.Kind{faultproxy.Drop, faultproxy.Truncate, faultproxy.Duplicate, faultproxy.Reset, faultproxy.Finish} {
			list = append(list, faultCase{faultproxy.Fault{Kind: kind, Place: faultproxy.Response, Message: n}, true})
		}
		list = append(list, faultCase{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Response, Message: n, For: short}, false})
	}
	return list
}

// TestFaultsNeverChangeRows spoils one message of a query at every step, between
// gateway and worker and between workers: the answer is exact or an error that
// says what happened, and nothing stays behind.
func TestFaultsNeverChangeRows(t *testing.T) {
	overNetworks(t, func(t *testing.T, over network) {
		c := newClusterOn(t, over, true, 2, nil)
		table := c.createTable("t", nil, 0, 1)
		c.nodes[0].mustWrite(table, 0, "a", 0, shuffleRows)
		c.nodes[1].mustWrite(table, 1, "b", shuffleRows, shuffleRows)
		for _, f := range faultCases() {
			for edge := range 3 {
				s := newShuffle(c, table)
				x := append(slices.Clone(s.between[1:3]), s.roots[0])[edge] // both directions, and to the coordinator
				f.fault.Match = s.pulls(x)
				t.Run(fmt.Sprintf("%s-%s-%d-edge%d", f.fault.Kind, f.fault.Place, f.fault.Message, edge), func(t *testing.T) {
					checkFault(t, c, s, s.nodes[x.Producer], f)
				})
			}
		}
		for _, f := range []faultCase{
			{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Request, For: time.Millisecond}, false},
			{faultproxy.Fault{Kind: faultproxy.Truncate, Place: faultproxy.Request}, true},
			{faultproxy.Fault{Kind: faultproxy.Duplicate, Place: faultproxy.Request}, false},
			{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.Request}, true},
			{faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.Response}, true},
			{faultproxy.Fault{Kind: faultproxy.Truncate, Place: faultproxy.Response}, true},
			{faultproxy.Fault{Kind: faultproxy.Duplicate, Place: faultproxy.Response}, true},
			{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.Response}, true},
			{faultproxy.Fault{Kind: faultproxy.Finish, Place: faultproxy.Response}, true},
			{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.End}, true},
		} {
			f.fault.Match = starts
			t.Run(fmt.Sprintf("start-%s-%s", f.fault.Kind, f.fault.Place), func(t *testing.T) {
				checkFault(t, c, newShuffle(c, table), c.nodes[1], f)
			})
		}
	})
}

// A message that never comes is an error when the caller's time is up.
func TestLostRequestsEndWithTheirDeadline(t *testing.T) {
	overNetworks(t, func(t *testing.T, over network) {
		c := newClusterOn(t, over, true, 2, nil)
		table := c.createTable("t", nil, 0, 1)
		c.nodes[0].mustWrite(table, 0, "a", 0, shuffleRows)
		c.nodes[1].mustWrite(table, 1, "b", shuffleRows, shuffleRows)
		for edge := range 4 {
			s := newShuffle(c, table)
			f := &faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.Request, Match: starts}
			at := c.nodes[0]
			if edge < 3 {
				x := append(slices.Clone(s.between[1:3]), s.roots[0])[edge]
				f.Match, at = s.pulls(x), s.nodes[x.Producer]
			}
			at.proxy.Arm(f)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			ids, err := s.run(ctx, c)
			cancel()
			if sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
				t.Errorf("edge %d: %d rows, error %v", edge, len(ids), err)
			}
			mustBeIdle(t, c)
		}
	})
}

func checkFault(t *testing.T, c *cluster, s *shuffle, at *node, f faultCase) {
	t.Helper()
	before := at.proxy.Fired()
	at.proxy.Arm(&f.fault)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ids, err := s.run(ctx, c)
	if at.proxy.Fired() != before+1 {
		t.Errorf("the fault did not happen")
	}
	switch {
	case err == nil && f.fails:
		t.Errorf("%d rows came without an error", len(ids))
	case err == nil:
		checkIDs(t, ids, 0, 2*shuffleRows)
	case ctx.Err() != nil:
		t.Errorf("the query hung: %v", err)
	case !typed(err):
		t.Errorf("an error that does not say what happened: %v", err)
	}
	mustBeIdle(t, c)
}

// typed reports whether an error says what a fault did.
func typed(err error) bool {
	code := sqlstate.CodeOf(err)
	return slices.Contains([]sqlstate.Code{
		sqlstate.ConnectionFailure, sqlstate.ProtocolViolation, sqlstate.ObjectInUse, sqlstate.UndefinedObject, sqlstate.InternalError, "",
	}, code) && (code != "" || isProtocol(err))
}

// isProtocol reports whether an error becomes one with the SQLSTATE of a broken
// protocol on its way to the client.
func isProtocol(err error) bool {
	return sqlstate.CodeOf(flightproto.FromStatus(flightproto.ToStatus(err))) == sqlstate.ProtocolViolation
}

// mustBeIdle checks that no query has left anything on the workers.
func mustBeIdle(t *testing.T, c *cluster) {
	t.Helper()
	for _, n := range c.nodes {
		n.proxy.Arm(nil)
		eventually(t, "everything is given back", func() bool {
			status, err := n.conn.Status(t.Context(), nil)
			return err == nil && status.Fragments == 0 && status.MemoryBytes == 0 && n.pinned.Load() == n.released.Load()
		})
	}
}

// refills matches the requests for more rows of an exchange.
func (q *topK) refills(x *planner.Exchange) func(string, []byte) bool {
	return func(method string, request []byte) bool {
		action, refill := &flight.Action{}, &pb.RefillRequest{}
		return method == "DoAction" && proto.Unmarshal(request, action) == nil && action.GetType() == flightproto.ActionRefill &&
			flightproto.Decode(action.GetBody(), refill, flightproto.MaxMessageBytes) == nil &&
			refill.GetQueryId() == q.id && refill.GetExchange() == uint32(x.ID)
	}
}

// refillFaults spoil a request for more rows and its answer. Whoever asks twice is
// told so, but the first answer counts.
func refillFaults() []faultCase {
	return []faultCase{
		{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Request, For: 5 * time.Millisecond}, false},
		{faultproxy.Fault{Kind: faultproxy.Truncate, Place: faultproxy.Request}, true},
		{faultproxy.Fault{Kind: faultproxy.Duplicate, Place: faultproxy.Request}, false},
		{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.Request}, true},
		{faultproxy.Fault{Kind: faultproxy.Delay, Place: faultproxy.Response, For: 5 * time.Millisecond}, false},
		{faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.Response}, true},
		{faultproxy.Fault{Kind: faultproxy.Truncate, Place: faultproxy.Response}, true},
		{faultproxy.Fault{Kind: faultproxy.Duplicate, Place: faultproxy.Response}, true},
		{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.Response}, true},
		{faultproxy.Fault{Kind: faultproxy.Finish, Place: faultproxy.Response}, true},
		{faultproxy.Fault{Kind: faultproxy.Reset, Place: faultproxy.End}, true},
	}
}

// TestFaultsNeverChangeTopK spoils the streams of portions, and the requests for
// more of them, at every step: the winners are exact, or there is an error.
func TestFaultsNeverChangeTopK(t *testing.T) {
	const k, first = 300, 20
	overNetworks(t, func(t *testing.T, over network) {
		c := newClusterOn(t, over, true, 2, nil)
		table := c.createTable("t", nil, 0, 1)
		c.nodes[0].mustWrite(table, 0, "a", 0, 1000) // all winners are here
		c.nodes[1].mustWrite(table, 1, "b", 1000, 1000)
		streams := faultCases()
		for i := range streams {
			f := &streams[i]
			// A gateway that has its rows does not read on: what comes late is not seen.
			f.fails = f.fails && f.fault.Place == faultproxy.Request || f.fault.Place == faultproxy.Response && f.fault.Kind != faultproxy.Delay
		}
		check := func(f faultCase, match func(*topK) func(string, []byte) bool) {
			t.Run(fmt.Sprintf("%s-%s-%d", f.fault.Kind, f.fault.Place, f.fault.Message), func(t *testing.T) {
				q := newTopK(c, table, []planner.SortKey{{Column: 0}}, k, first)
				f.fault.Match = match(q)
				checkTopKFault(t, c, q, f, k)
			})
		}
		for _, f := range streams {
			check(f, func(q *topK) func(string, []byte) bool { return pullsOf(q.id, q.exchanges[0]) })
		}
		for _, f := range refillFaults() {
			check(f, func(q *topK) func(string, []byte) bool { return q.refills(q.exchanges[0]) })
		}
		if t.Failed() {
			return
		}
		// A request that is lost on its way ends with the caller's time.
		q := newTopK(c, table, []planner.SortKey{{Column: 0}}, k, first)
		c.nodes[0].proxy.Arm(&faultproxy.Fault{Kind: faultproxy.Drop, Place: faultproxy.Request, Match: q.refills(q.exchanges[0])})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if ids, err := q.answer(ctx, t); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
			t.Errorf("%d rows, error %v", len(ids), err)
		}
		c.cancelAll(q.plan)
		mustBeIdle(t, c)
	})
}

func checkTopKFault(t *testing.T, c *cluster, q *topK, f faultCase, k int) {
	at := c.nodes[0]
	before := at.proxy.Fired()
	at.proxy.Arm(&f.fault)
	patience := 20 * time.Second
	// Where a whole portion is lost on a stream that goes on, both ends wait for the
	// other one, and the caller's time is what ends it.
	lost := f.fault.Kind == faultproxy.Drop && f.fault.Place == faultproxy.Response && f.fault.Message > 0
	if lost {
		patience = 300 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ids, err := q.answer(ctx, t)
	// Streams that are left early may end before their fault.
	if at.proxy.Fired() != before+1 && f.fault.Place != faultproxy.End {
		t.Error("the fault did not happen")
	}
	if err != nil {
		c.cancelAll(q.plan)
	}
	switch {
	case lost && sqlstate.CodeOf(err) == sqlstate.QueryCanceled:
	case ctx.Err() != nil:
		t.Errorf("the query hung: %v", err)
	case err == nil && f.fails:
		t.Errorf("%d rows came without an error", len(ids))
	case err == nil:
		checkIDs(t, ids, 0, k)
	case !typed(err):
		t.Errorf("an error that does not say what happened: %v", err)
	}
	mustBeIdle(t, c)
}

// cancelAll does what a coordinator does after a failure.
func (c *cluster) cancelAll(p *plan) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.proxy.Arm(nil)
		if _, err := n.conn.Cancel(c.t.Context(), p.id, "a failure elsewhere", nil); err != nil {
			c.t.Errorf("canceling: %v", err)
		}
	}
}
