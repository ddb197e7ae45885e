package planner

import (
	"maps"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestGolden prints TPC-H-like trees and plans, and those with common tables. Commands: "lite" is the tree as
// bound, "optimize" the rewritten tree, "plan" the distributed plan of that.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var query string
			tablets := 3
			d.ScanArgs(t, "query", &query)
			if d.HasArg("tablets") {
				d.ScanArgs(t, "tablets", &tablets)
			}
			w := tpchWorld(t, tablets)
			queries := tpchQueries(w)
			maps.Copy(queries, commonQueries(w))
			root, ok := queries[query]
			if !ok {
				t.Fatalf("no query %q", query)
			}
			if d.Cmd == "lite" {
				return ExplainLite(root)
			}
			optimized, err := Optimize(root, w)
			if err != nil {
				t.Fatal(err)
			}
			switch d.Cmd {
			case "optimize":
				return ExplainLite(optimized)
			case "plan":
				return Explain(mustDistribute(t, w, optimized))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func BenchmarkPlanQ5(b *testing.B) {
	w := tpchWorld(b, 3)
	root := tpchQ5(w)
	benchmarkPlan(b, w, root)
}

func BenchmarkPlanPoint(b *testing.B) {
	w := tpchWorld(b, 3)
	benchmarkPlan(b, w, tpchQueries(w)["point"])
}

func benchmarkPlan(b *testing.B, w *world, root Node) {
	for b.Loop() {
		optimized, err := Optimize(root, w)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Distribute(Description{Root: optimized, Options: DefaultOptions()}, w, w); err != nil {
			b.Fatal(err)
		}
	}
}
