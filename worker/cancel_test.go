package worker_test

import (
	"testing"

	"skein/flightproto"
	"skein/sqlstate"
)

// Cancelling a statement ends all its queries, those of other statements go on,
// and what it starts later is refused.
func TestCancellingAStatementEndsItsQueries(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", nil, 0)
	n.mustWrite(table, 0, "w", 0, 100)
	started := func(id string) (*plan, error) {
		p := newPlan()
		p.id = id
		p.exchange(p.scan(n, table, 0, nil), coordinator, merge(table))
		_, err := n.conn.StartFragments(t.Context(), p.requests(t, n.clock.Now())[n])
		return p, err
	}
	var ended []*plan
	for _, id := range []string{"aa.1", "aa-2.1", "aa.1+1", "ab.1", "a.1"} {
		p, err := started(id)
		if err != nil {
			t.Fatal(err)
		}
		ended = append(ended, p)
	}
	if count, err := n.conn.CancelStatement(t.Context(), "aa", "enough of it", nil); err != nil || count != 3 {
		t.Errorf("%d fragments were ended, error %v", count, err)
	}
	for i, p := range ended {
		ids, err := p.pull(t.Context(), p.exchanges[0])
		switch {
		case i < 3 && (sqlstate.CodeOf(err) != sqlstate.QueryCanceled || flightproto.ReasonOf(err) != flightproto.Cancelled):
			t.Errorf("%s: error %v", p.id, err)
		case i >= 3 && (err != nil || len(ids) != 100):
			t.Errorf("%s: %d rows, error %v", p.id, len(ids), err)
		}
	}
	if _, err := started("aa.2"); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("a later query: %v", err)
	}
	if count, err := n.conn.CancelStatement(t.Context(), "never", "", nil); err != nil || count != 0 {
		t.Errorf("an unknown statement: %d fragments, error %v", count, err)
	}
	c.idle(t)
}
