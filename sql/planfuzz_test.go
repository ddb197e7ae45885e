package sql_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// spreadCluster is the tables of the golden statements with their rows spread
// over tablets on several nodes, all of one size.
type spreadCluster struct {
	*planner.CatalogLocator
	tables memoryCatalog
	rows   uint64
}

func (spreadCluster) Version() uint64 { return 1 }

func (c spreadCluster) TableStats(*catalog.Table) (planner.TableStats, error) {
	return planner.TableStats{Rows: c.rows, Bytes: c.rows * 100}, nil
}

// newSpreadCluster gives every table three tablets, or one if it cannot be
// spread, each on a node of its own.
func newSpreadCluster(t testing.TB, rows uint64) spreadCluster {
	t.Helper()
	tables := memoryCatalog{}
	var all []*catalog.Table
	next := catalog.TabletID(1)
	known := testCatalog(t)
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		table := known[name]
		if table == nil { // stands for a catalog that fails
			tables[name] = nil
			continue
		}
		copied := *table
		copied.Tablets = nil
		copied.ID = catalog.TableID(1000 + next)
		count := uint32(1)
		if copied.Partitioning.Kind == catalog.Hash {
			count = 3
			copied.Partitioning.Buckets = count
		}
		for i := range count {
			copied.Tablets = append(copied.Tablets, catalog.Tablet{
				ID: next, BucketLow: i, BucketHigh: i + 1, Replicas: []catalog.Replica{{ID: 1, Node: catalog.NodeID(1 + i)}},
			})
			next++
		}
		tables[name] = &copied
		all = append(all, &copied)
	}
	return spreadCluster{planner.NewCatalogLocator(all...), tables, rows}
}

// FuzzPlan: whatever the text, each query that binds becomes a valid plan, with
// its parameters open and with values for them.
func FuzzPlan(f *testing.F) {
	for _, s := range goldenStatements(f) {
		f.Add(s)
	}
	small, large := newSpreadCluster(f, 10), newSpreadCluster(f, 10_000_000)
	f.Fuzz(func(t *testing.T, text string) {
		checkPlanning(t, small, text)
		checkPlanning(t, large, text)
	})
}

// TestPlanMutations plans the golden statements, and what becomes of them when
// words of some are spliced into others.
func TestPlanMutations(t *testing.T) {
	golden := goldenStatements(t)
	small, large := newSpreadCluster(t, 10), newSpreadCluster(t, 10_000_000)
	planned := 0
	for _, text := range golden {
		planned += checkPlanning(t, small, text) + checkPlanning(t, large, text)
	}
	if planned < len(golden)/2 {
		t.Errorf("of %d golden statements only %d plans came out", len(golden), planned)
	}
	rapid.Check(t, func(r *rapid.T) {
		text := spliced(r, golden)
		checkPlanning(t, small, text)
		checkPlanning(t, large, text)
		if t.Failed() {
			r.FailNow()
		}
	})
}

// checkPlanning plans the queries in a text and reports how many plans came out.
func checkPlanning(t *testing.T, cluster spreadCluster, text string) int {
	t.Helper()
	statements, err := sql.Parse(text)
	if err != nil {
		return 0 // FuzzBind looks at errors
	}
	planned := 0
	for _, s := range statements {
		bound, err := sql.Bind(context.Background(), s, cluster.tables, nil)
		if err != nil {
			continue
		}
		root := treeOf(bound)
		if root == nil {
			continue
		}
		open, err := planner.Optimize(root, cluster)
		if err != nil {
			t.Errorf("optimizing %q: %v\n%s", text, err, planner.ExplainLite(root))
			continue
		}
		if err := planner.ValidateLite(open); err != nil && len(bound.Params) == 0 && !strings.Contains(err.Error(), "parameter") {
			t.Errorf("%q: %v in\n%s", text, err, planner.ExplainLite(open))
		}
		closed, err := bound.Substitute(make([]*planner.Literal, len(bound.Params)))
		if err != nil {
			continue
		}
		node, err := planner.Optimize(treeOf(closed), cluster)
		if err != nil {
			t.Errorf("optimizing %q: %v", text, err)
			continue
		}
		planned += checkDistributing(t, cluster, text, node)
	}
	return planned
}

// treeOf is what a statement reads, nil if it reads nothing.
func treeOf(bound *sql.BoundStatement) planner.Node {
	switch s := bound.Statement.(type) {
	case *sql.Query:
		return s.Node
	case *sql.Insert:
		return s.Source
	case *sql.Update:
		return s.Source
	case *sql.Delete:
		return s.Source
	}
	return nil
}

func checkDistributing(t *testing.T, cluster spreadCluster, text string, node planner.Node) int {
	t.Helper()
	plan, err := planner.Distribute(planner.Description{QueryID: "q", Root: node, Options: planner.DefaultOptions()}, cluster, cluster)
	switch {
	case err != nil && sqlstate.CodeOf(err) == sqlstate.InternalError:
		t.Errorf("distributing %q: %v\n%s", text, err, planner.ExplainLite(node))
	case err != nil:
	default:
		if err := planner.ValidatePlan(plan); err != nil {
			t.Errorf("%q: %v in\n%s", text, err, planner.Explain(plan))
		}
		if !plan.Schema.Equal(node.Schema()) {
			t.Errorf("%q: told %s, plan yields %s", text, node.Schema(), plan.Schema)
		}
		return 1
	}
	return 0
}
