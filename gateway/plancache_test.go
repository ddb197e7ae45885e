package gateway

import (
	"fmt"
	"testing"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
)

func sized(rows uint64) *snapshot {
	return &snapshot{stats: map[catalog.TableID]planner.TableStats{1: {Rows: rows}}}
}

// A tree is optimized anew when a table has doubled or halved.
func TestOpenPlansAgeWithTheirTables(t *testing.T) {
	for _, tc := range []struct {
		was, is uint64
		good    bool
	}{
		{10_000, 10_000, true}, {10_000, 20_000, true}, {10_000, 20_001, false}, {10_000, 5_000, true}, {10_000, 4_999, false},
		{0, 10, true}, {0, 2_000, true}, {0, 2_001, false}, {2_000, 0, true}, {2_001, 0, false},
	} {
		o := &openPlan{sizes: []tableSize{{1, tc.was}}}
		snap := sized(tc.is)
		for range 2 { // the second time from memory
			if got := o.stillGood(snap); got != tc.good {
				t.Errorf("from %d to %d rows: %t", tc.was, tc.is, got)
			}
		}
	}
}

func TestPlanCacheIsBounded(t *testing.T) {
	c := newPlanCache(1 << 20)
	version := uint64(3)
	for i := range 10_000 {
		c.keep(&statement{scope: plainScope(), text: fmt.Sprint("SELECT ", i), version: version, bound: &sql.BoundStatement{Statement: &sql.Query{}}})
	}
	if s := c.statements.Stats(); s.Bytes > 1<<19 || s.Evictions == 0 || s.Entries == 0 {
		t.Errorf("%+v", s)
	}
	if _, ok := c.statement(plainScope(), "SELECT 9999", version); !ok {
		t.Error("the newest statement is gone")
	}
	if _, ok := c.statement(plainScope(), "SELECT 9999", version+1); ok {
		t.Error("a statement of other metadata was found")
	}
	if _, ok := c.statement(plainScope(), "SELECT 0", version); ok {
		t.Error("the oldest statement is there")
	}
	before := c.statements.Stats().Entries
	c.keep(&statement{scope: plainScope(), text: "DROP TABLE t", version: version, bound: &sql.BoundStatement{Statement: &sql.DropTable{}}})
	c.keep(&statement{scope: plainScope(), text: string(make([]byte, maxCachedText+1)), version: version, bound: &sql.BoundStatement{Statement: &sql.Query{}}})
	if now := c.statements.Stats().Entries; now != before {
		t.Errorf("%d statements, were %d", now, before)
	}
}
