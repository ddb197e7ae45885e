package planner

import (
	"slices"
	"strings"
	"testing"
)

// TestTopKCarriesIdentity checks which trees rank ties by tablet and row id, and
// how much their tablets send at first.
func TestTopKCarriesIdentity(t *testing.T) {
	w := newWorld(t, threeTablets(90_000, 900_000))
	in := w.scan("t")
	keys := []SortKey{{Column: 1, Descending: true, NullsFirst: true}}
	filter := &Filter{Input: in, Predicate: call("=", col(in, "v"), lit(1))}
	project := &Project{Input: filter, Exprs: []Expr{col(in, "v"), col(in, "score")}, Names: []string{"v", "score"}}
	distinct := &Aggregate{Input: in, GroupBy: []int{0, 1}}
	for name, c := range map[string]struct {
		root  Node
		ties  bool
		first int64
		final string
	}{
		"a scan":                 {&Sort{Input: in, Keys: keys, Limit: 10}, true, 10, "topk 10, projectop"},
		"a large k":              {&Sort{Input: in, Keys: keys, Limit: 30_000}, true, 10_432, "topk 30000, projectop"},
		"a filter, a projection": {&Sort{Input: project, Keys: keys, Limit: 10}, true, 10, "topk 10, projectop"},
		"an offset":              {&Limit{Input: &Sort{Input: in, Keys: keys, Limit: 15}, Limit: 10, Offset: 5}, true, 15, "topk 15, projectop, limit 10 offset 5"},
		"too many to keep":       {&Sort{Input: in, Keys: keys, Limit: 2 << 20}, true, 0, "mergesort 2097152, projectop"},
		"groups":                 {&Sort{Input: distinct, Keys: keys, Limit: 10}, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			plan := mustDistribute(t, w, c.root)
			if c.final != "" {
				if got := shape(plan.Root()); got != "source 0, source 0, source 0, "+c.final {
					t.Error(got)
				}
			}
			found := false
			for _, f := range plan.Fragments {
				for _, op := range f.Operators {
					top, ok := op.(*TopK)
					if !ok {
						continue
					}
					found = true
					if (len(top.Ties) == 2) != c.ties || !slices.Equal(top.Keys, keys) || f.Assignment != Coordinator && c.ties && top.First != c.first {
						t.Errorf("fragment %d has %+v", f.ID, top)
					}
				}
			}
			if !found {
				t.Error("there is no top-k")
			}
			if !plan.Schema.Equal(c.root.Schema()) {
				t.Errorf("the result is %s", plan.Schema)
			}
		})
	}
	plan := mustDistribute(t, w, &Sort{Input: in, Keys: keys, Limit: 30_000})
	if text := Explain(plan); !strings.Contains(text, "__tablet, __rowid, 10432 at first") {
		t.Errorf("the plan does not show its portions:\n%s", text)
	}
}
