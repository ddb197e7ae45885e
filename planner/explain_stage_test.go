package planner

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"skein/catalog"
)

// measuredPlan makes up what the fragments of a plan did: numbers that follow
// from fragment and position, so that goldens show where each of them goes.
func measuredPlan(p *Plan) map[FragmentID]*FragmentStats {
	out := make(map[FragmentID]*FragmentStats)
	for _, f := range p.Fragments {
		s := &FragmentStats{Fragment: f.ID, Time: time.Duration(1000*(f.ID+1)) * time.Microsecond, Memory: int64(f.ID+1) << 10}
		if f.Assignment != Coordinator {
			s.Node = uint64(f.Assignment.Tablet)%3 + 1
		}
		for i, op := range f.Operators {
			n := int(f.ID)*10 + i
			o := OperatorStats{
				Parts: 2, Rows: uint64(100 * n), Batches: uint64(n), Time: time.Duration(100*n) * time.Microsecond,
				Self: time.Duration(20*n) * time.Microsecond, CPU: time.Duration(10*n) * time.Microsecond, Memory: int64(n) << 9,
			}
			switch op := op.(type) {
			case *TabletScan:
				o.Dropped = 3
				o.Scan = &ScanStats{Segments: 4, SegmentsRead: 1, Blocks: 40, BlocksRead: 7, Rows: o.Rows + 3}
				if op.Filter != nil {
					o.Scan.Rows += 50
				}
			case *ExchangeSource:
				o.Received = int64(n) << 10
			case *HashJoin:
				o.Spilled = 1 << 21
			case *ExchangeSink:
				o = OperatorStats{}
			}
			s.Operators = append(s.Operators, o)
		}
		out[f.ID] = s
	}
	return out
}

// TestExplainGolden draws plans by stages. Commands: "explain" and "json" with
// the options analyze, verbose, nocosts, notiming and lost=fragment, whose
// figures are missing.
func TestExplainGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/explain", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var query string
			tablets := 3
			d.ScanArgs(t, "query", &query)
			if d.HasArg("tablets") {
				d.ScanArgs(t, "tablets", &tablets)
			}
			w := tpchWorld(t, tablets)
			root, err := Optimize(tpchQueries(w)[query], w)
			if err != nil {
				t.Fatal(err)
			}
			plan := mustDistribute(t, w, root)
			o := ExplainOptions{Costs: !d.HasArg("nocosts"), Verbose: d.HasArg("verbose"), Timing: !d.HasArg("notiming")}
			o.Worker = func(id FragmentID) string {
				return fmt.Sprintf("worker-%d", uint64(plan.Fragments[id].Assignment.Tablet)%3+1)
			}
			if d.HasArg("analyze") {
				o.Measured = measuredPlan(plan)
			}
			if d.HasArg("lost") {
				var lost int
				d.ScanArgs(t, "lost", &lost)
				delete(o.Measured, FragmentID(lost))
			}
			out := ExplainStages(plan, o)
			if d.Cmd == "explain" {
				return out.Text()
			}
			raw, err := json.MarshalIndent(out, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			return string(raw) + "\n"
		})
	})
}

// TestExplainStagesCoversPlans checks for many plans that every fragment is in
// one stage, every operator in its tree once, and that sums are those of the
// fragments.
func TestExplainStagesCoversPlans(t *testing.T) {
	for _, tablets := range []int{1, 3, 8} {
		w := tpchWorld(t, tablets)
		for name, tree := range tpchQueries(w) {
			root, err := Optimize(tree, w)
			if err != nil {
				t.Fatal(err)
			}
			plan := mustDistribute(t, w, root)
			measured := measuredPlan(plan)
			out := ExplainStages(plan, ExplainOptions{Costs: true, Measured: measured, Timing: true, Verbose: true})
			seen := map[FragmentID]bool{}
			edges := 0
			for i, s := range out.Stages {
				if s.ID != i+1 {
					t.Errorf("%s: stage %d is at %d", name, s.ID, i)
				}
				for _, x := range s.Sends {
					edges += x.Edges
					if x.To == s.ID {
						t.Errorf("%s: stage %d sends to itself", name, s.ID)
					}
				}
				for _, id := range s.Fragments {
					if seen[id] {
						t.Errorf("%s: fragment %d is in two stages", name, id)
					}
					seen[id] = true
					checkDrawn(t, name, plan, s, id)
				}
				if s.Actual.Ran != len(s.Fragments) || len(s.Actual.Fragments) != len(s.Fragments) {
					t.Errorf("%s: stage %d: %+v", name, s.ID, s.Actual)
				}
			}
			if len(seen) != len(plan.Fragments) || edges != len(plan.Exchanges) {
				t.Errorf("%s: %d of %d fragments, %d of %d exchanges", name, len(seen), len(plan.Fragments), edges, len(plan.Exchanges))
			}
			checkSums(t, name, out, plan, measured)
		}
	}
}

// checkDrawn finds every position of a fragment's program, sinks aside, in its
// stage's tree.
func checkDrawn(t *testing.T, name string, plan *Plan, s *ExplainedStage, id FragmentID) {
	t.Helper()
	ops := plan.Fragments[id].Operators
	found := make([]int, len(ops))
	var visit func(*ExplainedOperator)
	visit = func(op *ExplainedOperator) {
		for _, at := range op.at {
			found[at]++
			if got := fmt.Sprintf("%T", ops[at]); !strings.Contains(got, "."+op.Name) && op.Name != "Exchange" &&
				!strings.HasPrefix(got, "*planner."+op.Name) && op.Name != "Values" {
				t.Errorf("%s: %s is drawn as %s", name, got, op.Name)
			}
		}
		for _, in := range op.Inputs {
			visit(in)
		}
	}
	visit(s.Root)
	for at, n := range found {
		if _, sink := ops[at].(*ExchangeSink); (n == 1) == sink {
			t.Errorf("%s: operator %d of fragment %d is drawn %d times", name, at, id, n)
		}
	}
	if len(plan.Fragments[id].OperatorRows) != len(ops) {
		t.Errorf("%s: fragment %d has estimates of %d of %d operators", name, id, len(plan.Fragments[id].OperatorRows), len(ops))
	}
}

// checkSums compares the sums over all stages with those over all fragments.
func checkSums(t *testing.T, name string, out *Explained, plan *Plan, measured map[FragmentID]*FragmentStats) {
	t.Helper()
	var rows, received, wantRows, wantReceived uint64
	var visit func(*ExplainedOperator)
	visit = func(op *ExplainedOperator) {
		rows += op.Actual.Rows
		received += uint64(op.Actual.Received)
		in := uint64(0)
		for _, input := range op.Inputs {
			visit(input)
			in += input.Actual.Rows
		}
		if len(op.Inputs) > 0 && *op.Actual.RowsIn != in {
			t.Errorf("%s: %s has %d rows in, its inputs %d out", name, op.Name, *op.Actual.RowsIn, in)
		}
		if s := op.Actual.RowSpread; s != nil && (s.Min > s.Avg || s.Avg > s.Max) {
			t.Errorf("%s: %s spreads %+v", name, op.Name, s)
		}
	}
	for _, s := range out.Stages {
		visit(s.Root)
	}
	for _, f := range plan.Fragments {
		for _, o := range measured[f.ID].Operators {
			wantRows += o.Rows
			wantReceived += uint64(o.Received)
		}
	}
	if rows != wantRows || received != wantReceived {
		t.Errorf("%s: %d rows and %d bytes of %d and %d", name, rows, received, wantRows, wantReceived)
	}
}

func TestRanges(t *testing.T) {
	for want, ids := range map[string][]catalog.TabletID{
		"": nil, "4": {4}, "4, 5": {4, 5}, "4-6": {4, 5, 6}, "1, 3-5, 9, 10": {1, 3, 4, 5, 9, 10}, "5, 5, 4": {5, 5, 4},
	} {
		if got := ranges(ids); got != want {
			t.Errorf("%v is written %q, want %q", ids, got, want)
		}
	}
}
