package worker_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
	"skein/worker"
)

// startMeasured registers the plan everywhere, to be reported on.
func (p *plan) startMeasured(t *testing.T) {
	t.Helper()
	for n, request := range p.requests(t, p.nodes[0].clock.Now()) {
		request.Measure, request.MeasureTime = true, true
		if _, err := n.conn.StartFragments(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

// Two workers repartition a table among each other. Each reports on its own
// fragments, and what is sent is what is received.
func TestReportCoversExchangesBetweenWorkers(t *testing.T) {
	const each, consumers = 30_000, 2
	c := newCluster(t, 2, nil)
	table := c.createTable("t", nil, 0, 1)
	c.nodes[0].mustWrite(table, 0, "a", 0, each)
	c.nodes[1].mustWrite(table, 1, "b", each, each)
	p := newPlan()
	producers := []*planner.Fragment{p.scan(c.nodes[0], table, 0, nil), p.scan(c.nodes[1], table, 1, nil)}
	var ends []*planner.Exchange
	for k := range consumers {
		f := p.fragment(c.nodes[k], table.Tablets[k].ID)
		for _, from := range producers {
			x := p.exchange(from, f.ID, planner.Exchange{
				Kind: planner.HashRepartitionExchange, Keys: []int{1}, Partition: k, Partitions: consumers, Schema: table.ArrowSchema(),
			})
			f.Operators = append(f.Operators, &planner.ExchangeSource{Exchange: x.ID, Schema: x.Schema})
		}
		ends = append(ends, p.exchange(f, coordinator, merge(table)))
	}
	p.startMeasured(t)
	var all [consumers][]int64
	group, ctx := errgroup.WithContext(t.Context())
	for k, x := range ends {
		group.Go(func() (err error) {
			all[k], err = p.pull(ctx, x)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	checkIDs(t, append(all[0], all[1]...), 0, 2*each)
	stats := map[planner.FragmentID]planner.FragmentStats{}
	for i, n := range c.nodes {
		fragments, err := n.conn.Report(t.Context(), p.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fragments {
			if f.Node != uint64(n.id) || f.Time <= 0 {
				t.Errorf("node %d reports %+v", i, f)
			}
			stats[f.Fragment] = f
		}
	}
	if len(stats) != 4 {
		t.Fatalf("%d fragments are reported on: %v", len(stats), stats)
	}
	for k := range consumers {
		from, to := stats[planner.FragmentID(k)], stats[planner.FragmentID(2+k)]
		if s := from.Operators[0]; s.Rows != each || s.Scan == nil || s.Scan.Rows != each || s.Scan.Segments == 0 || s.Scan.SegmentsRead != s.Scan.Segments {
			t.Errorf("scan %d: %+v, %+v", k, s, s.Scan)
		}
		if s := from.Operators[1]; s.Rows != each {
			t.Errorf("producer %d sent %+v", k, s)
		}
		a, b := to.Operators[0], to.Operators[1]
		here, there := a, b // what comes from a fragment on the same worker is not sent
		if k == 1 {
			here, there = b, a
		}
		if a.Rows+b.Rows != uint64(len(all[k])) || here.Received != 0 || there.Received < int64(there.Rows) || to.Operators[2].Rows != a.Rows+b.Rows {
			t.Errorf("consumer %d of %d rows: %+v", k, len(all[k]), to.Operators)
		}
	}
	for _, n := range c.nodes {
		if _, err := n.conn.Report(t.Context(), p.id, nil); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
			t.Errorf("a report is given out again: %v", err)
		}
	}
}

// A consumer that has enough leaves early; what ran until then is reported, and
// what never ran is not.
func TestReportOfQueriesThatStopEarly(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0, 0)
	n.mustWrite(table, 0, "a", 0, 300_000)
	p := newPlan()
	read := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	p.exchange(p.scan(n, table, 1, nil), coordinator, merge(table))
	p.startMeasured(t)
	s, err := p.fetch(t.Context(), read)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Next(t.Context()); err != nil || b == nil {
		t.Fatalf("%v, %v", b, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fragments, err := n.conn.Report(t.Context(), p.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(fragments) != 1 || fragments[0].Fragment != 0 || fragments[0].Operators[0].Rows == 0 {
		t.Errorf("reported are %+v", fragments)
	}
	if n.fragments() != 0 {
		t.Error("a report left fragments")
	}
}

// Only measured queries have reports, and those that are cancelled lose theirs.
func TestReportRefusals(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 10)
	for name, prepare := range map[string]func(p *plan){
		"unknown":   func(*plan) {},
		"plain":     func(p *plan) { p.start(t) },
		"cancelled": func(p *plan) { p.startMeasured(t); mustCancel(t, n, p.id) },
	} {
		p := newPlan()
		p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
		prepare(p)
		if _, err := n.conn.Report(t.Context(), p.id, nil); sqlstate.CodeOf(err) != sqlstate.UndefinedObject {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := n.conn.Report(t.Context(), "", nil); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("no query: %v", err)
	}
}

func mustCancel(t *testing.T, n *node, id string) {
	t.Helper()
	if _, err := n.conn.Cancel(t.Context(), id, "test", nil); err != nil {
		t.Fatal(err)
	}
}

// Reports are authorized like everything else.
func TestReportIsAuthorized(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.Authority = authority(1) })
	if _, err := c.nodes[0].conn.Report(t.Context(), "q", nil); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("error is %v", err)
	}
}

// Segments and blocks that bounds rule out are told apart from those read.
func TestReportShowsWhatScansSkip(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "a", 0, 100_000)
	n.mustWrite(table, 0, "b", 100_000, 100_000)
	p := newPlan()
	id := &planner.Column{Index: 0, Name: "id", DataType: catalog.BigInt}
	limit := &planner.Literal{Value: int64(195_000), DataType: catalog.BigInt}
	filter := &planner.Call{Func: ">=", Args: []planner.Expr{id, limit}, DataType: catalog.Boolean}
	x := p.exchange(p.scan(n, table, 0, filter), coordinator, merge(table))
	p.startMeasured(t)
	ids, err := p.pull(t.Context(), x)
	if err != nil || len(ids) != 5000 {
		t.Fatalf("%d rows, %v", len(ids), err)
	}
	fragments, err := n.conn.Report(t.Context(), p.id, nil)
	if err != nil || len(fragments) != 1 {
		t.Fatalf("%+v, %v", fragments, err)
	}
	o := fragments[0].Operators[0]
	if s := o.Scan; o.Rows != 5000 || s.Segments != 2 || s.SegmentsRead != 1 || s.BlocksRead < 2 || s.BlocksRead > 3 || s.Blocks != 50 || s.Rows < o.Rows || s.Rows > 3*4096 {
		t.Errorf("%+v, %+v", o, o.Scan)
	}
}
