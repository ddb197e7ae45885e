package sql_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
)

// tpchRows are the tables' sizes at scale factor 1, and tpchWidth their mean
// bytes per row.
var (
	tpchRows = map[string]uint64{
		"region": 5, "nation": 25, "part": 200_000, "supplier": 10_000, "partsupp": 800_000,
		"customer": 150_000, "orders": 1_500_000, "lineitem": 6_001_215,
	}
	tpchWidth = uint64(120)
)

// tpchCluster is the TPC-H tables spread over tablets by the first column of
// their key, nation and region whole.
type tpchCluster struct {
	*planner.CatalogLocator
	tables memoryCatalog
}

func (tpchCluster) Version() uint64 { return 1 }

func (tpchCluster) TableStats(t *catalog.Table) (planner.TableStats, error) {
	rows := tpchRows[t.Name]
	return planner.TableStats{Rows: rows, Bytes: rows * tpchWidth}, nil
}

// TestTPCHPlans shows what the TPC-H queries become, from their text: "optimize"
// the rewritten tree, "plan" the plan over so many tablets.
func TestTPCHPlans(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			tablets := 2
			if d.HasArg("tablets") {
				d.ScanArgs(t, "tablets", &tablets)
			}
			cluster := newTPCHCluster(t, tablets)
			text := string(readTPCH(t, d.CmdArgs[0].String()+".sql"))
			statements, err := sql.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			bound, err := sql.Bind(t.Context(), statements[0], cluster.tables, nil)
			if err != nil {
				t.Fatal(err)
			}
			node, err := planner.Optimize(bound.Statement.(*sql.Query).Node, cluster)
			if err != nil {
				t.Fatal(err)
			}
			if d.Cmd == "optimize" {
				return planner.ExplainLite(node)
			}
			plan, err := planner.Distribute(planner.Description{QueryID: "q", Root: node, Options: planner.DefaultOptions()}, cluster, cluster)
			if err != nil {
				t.Fatal(err)
			}
			if err := planner.ValidatePlan(plan); err != nil {
				t.Fatal(err)
			}
			return planner.Explain(plan)
		})
	})
}

func newTPCHCluster(t *testing.T, tablets int) tpchCluster {
	t.Helper()
	var tables []*catalog.Table
	named := memoryCatalog{}
	next := catalog.TabletID(100)
	for _, name := range []string{"region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem"} {
		table := testCatalog(t)["public."+name]
		if table == nil {
			t.Fatalf("no table %q", name)
		}
		count := tablets
		if tpchRows[name] < 100 {
			count = 1
		}
		copied := *table
		copied.ID = catalog.TableID(next)
		copied.Tablets = nil
		for i := range count {
			copied.Tablets = append(copied.Tablets, catalog.Tablet{
				ID:        next + catalog.TabletID(i),
				BucketLow: uint32(i), BucketHigh: uint32(i + 1),
				Replicas: []catalog.Replica{{ID: 1, Node: catalog.NodeID(1)}},
			})
		}
		copied.Partitioning.Buckets = uint32(count)
		named["public."+name] = &copied
		tables = append(tables, &copied)
		next = next/100*100 + 100
	}
	return tpchCluster{planner.NewCatalogLocator(tables...), named}
}

// TestTPCHBinds binds all 22 queries.
func TestTPCHBinds(t *testing.T) {
	for n := 1; n <= 22; n++ {
		text := string(readTPCH(t, fmt.Sprintf("q%02d.sql", n)))
		checkContract(t, text, mustBind(t, text))
	}
}
