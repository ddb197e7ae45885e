package worker_test

import (
	"testing"

	"skein/sqlstate"
)

// A ticket may bring the fragments along; the clock then comes behind the rows.
func TestTicketStartsItsQuery(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	n.mustWrite(table, 0, "w", 0, 10_000)
	p := newPlan()
	x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
	request := p.requests(t, n.clock.Now())[n]
	ticket := p.ticket(x)
	ticket.Start = request
	s, err := n.conn.Fetch(t.Context(), ticket, x.Schema)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
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
	if rows != 10_000 || s.Clock() < request.GetSnapshot() {
		t.Errorf("%d rows, clock %d after snapshot %d", rows, s.Clock(), request.GetSnapshot())
	}
	eventually(t, "the fragment leaves the registry", func() bool { return n.fragments() == 0 })
}

// What a start refuses, a ticket that starts refuses, too.
func TestTicketStartsAreChecked(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	for name, spoil := range map[string]func(query *string, fragments int) int{
		"another query": func(query *string, n int) int { *query = "other"; return n },
		"no fragments":  func(_ *string, _ int) int { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan()
			x := p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
			request := p.requests(t, n.clock.Now())[n]
			request.Fragments = request.Fragments[:spoil(&request.QueryId, len(request.Fragments))]
			ticket := p.ticket(x)
			ticket.Start = request
			s, err := n.conn.Fetch(t.Context(), ticket, x.Schema)
			if err == nil {
				_, err = s.Next(t.Context())
			}
			if sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
				t.Errorf("error is %v", err)
			}
			if n.fragments() != 0 {
				t.Error("fragments are registered")
			}
		})
	}
}
