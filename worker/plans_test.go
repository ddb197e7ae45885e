package worker_test

import (
	"testing"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
	"skein/worker"
)

// below is the plan "first column < parameter 1" as a program.
func below(t *testing.T, n *node, table *catalog.Table) (*planner.Exchange, []byte, flightproto.Digest) {
	t.Helper()
	p := newPlan()
	filter := &planner.Call{Func: "<", DataType: catalog.Boolean, Args: []planner.Expr{
		&planner.Column{Index: 0, Name: table.Columns[0].Name, DataType: table.Columns[0].Type}, &planner.Param{Ordinal: 1, DataType: catalog.BigInt},
	}}
	x := p.exchange(p.scan(n, table, 0, filter), coordinator, merge(table))
	request := p.requests(t, n.clock.Now())[n]
	raw, digest, err := flightproto.EncodeProgram(&pb.Program{Fragments: request.Fragments, Exchanges: request.Exchanges})
	if err != nil {
		t.Fatal(err)
	}
	return x, raw, digest
}

// runProgram executes a program by its digest and returns how many rows came.
func runProgram(t *testing.T, n *node, x *planner.Exchange, program []byte, digest []byte, values ...*planner.Literal) (int, error) {
	t.Helper()
	parameters, err := flightproto.EncodeParameters(values)
	if err != nil {
		t.Fatal(err)
	}
	id := newPlan().id
	s, err := n.conn.Fetch(t.Context(), &pb.Ticket{QueryId: id, Fragment: uint32(x.Producer), Exchange: uint32(x.ID), Start: &pb.StartRequest{
		QueryId: id, Snapshot: n.clock.Now(), Plan: program, PlanDigest: digest, Parameters: parameters,
	}}, x.Schema)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	rows := 0
	for {
		b, err := s.Next(t.Context())
		if err != nil || b == nil {
			return rows, err
		}
		rows += b.Rows()
	}
}

func bigint(v any) *planner.Literal { return &planner.Literal{Value: v, DataType: catalog.BigInt} }

// A worker keeps a plan and runs it again with other parameters, until metadata
// changes.
func TestPlansAreKeptByDigest(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	n.mustWrite(table, 0, "w", 0, 1000)
	x, program, digest := below(t, n, table)
	none := bigint(nil)
	if _, err := runProgram(t, n, x, nil, digest[:], none, bigint(int64(7))); flightproto.ReasonOf(err) != flightproto.UnknownPlan {
		t.Fatalf("a plan that was never sent: %v", err)
	}
	for i, step := range []struct {
		program []byte
		limit   any
		rows    int
	}{{program, int64(7), 7}, {nil, int64(100), 100}, {nil, nil, 0}, {nil, int64(5000), 1000}, {program, int64(1), 1}} {
		rows, err := runProgram(t, n, x, step.program, digest[:], none, bigint(step.limit))
		if err != nil || rows != step.rows {
			t.Errorf("step %d: %d rows, %v; want %d", i, rows, err, step.rows)
		}
	}
	c.createTable("another", []int{0}, 0)
	if _, err := runProgram(t, n, x, nil, digest[:], none, bigint(int64(7))); flightproto.ReasonOf(err) != flightproto.UnknownPlan {
		t.Errorf("a plan checked with older metadata: %v", err)
	}
	if rows, err := runProgram(t, n, x, program, digest[:], none, bigint(int64(7))); err != nil || rows != 7 {
		t.Errorf("sent again: %d rows, %v", rows, err)
	}
	eventually(t, "no fragment is left", func() bool { return n.fragments() == 0 })
}

func TestPlansAreChecked(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	x, program, digest := below(t, n, table)
	empty, emptyDigest, err := flightproto.EncodeProgram(&pb.Program{Exchanges: []*pb.Exchange{{Id: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		program, digest []byte
		values          []*planner.Literal
		code            sqlstate.Code
	}{
		"another content":   {program, emptyDigest[:], []*planner.Literal{bigint(nil), bigint(int64(1))}, sqlstate.ProtocolViolation},
		"a short digest":    {program, digest[:5], []*planner.Literal{bigint(nil), bigint(int64(1))}, sqlstate.ProtocolViolation},
		"no fragments":      {empty, emptyDigest[:], nil, sqlstate.ProtocolViolation},
		"a missing value":   {program, digest[:], []*planner.Literal{bigint(nil)}, sqlstate.UndefinedParameter},
		"no values":         {program, digest[:], nil, sqlstate.UndefinedParameter},
		"not of its type":   {program, digest[:], []*planner.Literal{bigint(nil), {Value: "x", DataType: catalog.Text}}, sqlstate.InvalidText},
		"converted to type": {program, digest[:], []*planner.Literal{bigint(nil), {Value: "5", DataType: catalog.Text}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runProgram(t, n, x, tc.program, tc.digest, tc.values...); sqlstate.CodeOf(err) != tc.code {
				t.Errorf("error is %v", err)
			}
		})
	}
	eventually(t, "no fragment is left", func() bool { return n.fragments() == 0 })
}

// A worker with little room forgets plans and says so.
func TestPlansAreBounded(t *testing.T) {
	c := newCluster(t, 1, func(cfg *worker.Config) { cfg.MaxPlans = 1 })
	n := c.nodes[0]
	table, other := c.createTable("t", []int{0}, 0), c.createTable("u", []int{0}, 0)
	x, program, digest := below(t, n, table)
	y, otherProgram, otherDigest := below(t, n, other)
	value := []*planner.Literal{bigint(nil), bigint(int64(1))}
	for range 2 {
		if _, err := runProgram(t, n, x, program, digest[:], value...); err != nil {
			t.Fatal(err)
		}
		if _, err := runProgram(t, n, x, nil, digest[:], value...); err != nil {
			t.Fatal(err)
		}
		if _, err := runProgram(t, n, y, otherProgram, otherDigest[:], value...); err != nil {
			t.Fatal(err)
		}
		if _, err := runProgram(t, n, x, nil, digest[:], value...); flightproto.ReasonOf(err) != flightproto.UnknownPlan {
			t.Fatalf("the plan that had to go: %v", err)
		}
	}
}
