package exec

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

func compareRows(keys []planner.SortKey) func(a, b row) int {
	return func(a, b row) int {
		for _, k := range keys {
			x, y := a[k.Column], b[k.Column]
			c := 0
			switch {
			case x == nil && y == nil:
				continue
			case x == nil || y == nil:
				if (x == nil) == k.NullsFirst {
					return -1
				}
				return 1
			default:
				c = compareCells(x, y)
			}
			if k.Descending {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	}
}

// sortCase is random input for the ordering operators.
func sortCase(seed uint64, rows int) (g *generator, schema *arrow.Schema, keys []planner.SortKey, batches []*columnar.Batch) {
	g = newGenerator(seed)
	types := []arrow.DataType{catalog.BigInt, listType}
	for range 1 + g.IntN(3) {
		keys = append(keys, planner.SortKey{Column: len(types), Descending: g.IntN(2) == 0, NullsFirst: g.IntN(2) == 0})
		types = append(types, opTypes[g.IntN(len(opTypes))])
	}
	schema = opSchema(types...)
	return g, schema, keys, g.batches(schema, g.IntN(rows))
}

func exactTexts(rows []row) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.text()
	}
	return out
}

func TestSortMatchesOracle(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			_, schema, keys, batches := sortCase(seed, 6000)
			budget := NewBudget("query", 0, nil)
			want := rowsOf(batches...)
			slices.SortStableFunc(want, compareRows(keys))
			got := drain(t, must(newSort(&memOp{schema: schema, batches: batches}, keys, &Env{Budget: budget})))
			equalTexts(t, exactTexts(got), exactTexts(want))
			mustBeEmpty(t, budget)
		})
	}
}

func TestTopKMatchesOracle(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g, schema, keys, batches := sortCase(seed, 9000)
			budget := NewBudget("query", 0, nil)
			want := rowsOf(batches...)
			slices.SortStableFunc(want, compareRows(keys))
			k := []int{0, 1, 10, 100, 2000, 1 << 31}[g.IntN(6)]
			want = want[:min(k, len(want))]
			got := drain(t, must(newTopK(&memOp{schema: schema, batches: batches}, keys, len(keys), int64(k), &Env{Budget: budget})))
			equalTexts(t, exactTexts(got), exactTexts(want))
			mustBeEmpty(t, budget)
		})
	}
}

// TestMergeMatchesOracle sorts several inputs and merges them: the result is a
// stable sort of the inputs one after another.
func TestMergeMatchesOracle(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g, schema, keys, batches := sortCase(seed, 6000)
			budget := NewBudget("query", 0, nil)
			closed := 0
			parts := g.split(schema, batches, 1+g.IntN(5), &closed)
			var want []row
			for i, p := range parts {
				want = append(want, rowsOf(p.(*memOp).batches...)...)
				parts[i] = must(newSort(p, keys, &Env{Budget: budget}))
			}
			slices.SortStableFunc(want, compareRows(keys))
			limit := []int64{-1, 0, 7, 5000}[g.IntN(4)]
			if limit >= 0 {
				want = want[:min(int(limit), len(want))]
			}
			got := drain(t, must(newMerge(parts, keys, limit, budget)))
			equalTexts(t, exactTexts(got), exactTexts(want))
			mustBeEmpty(t, budget)
			if closed != len(parts) {
				t.Errorf("%d of %d inputs were closed", closed, len(parts))
			}
		})
	}
}

func TestSortKeysOfLongStrings(t *testing.T) {
	v := &columnar.Vector{Type: catalog.Text, Offsets: []int32{0}}
	prefix := string(make([]byte, 3000))
	var want []string
	for i := range 800 {
		s := fmt.Sprintf("%s%05d", prefix, (i*7919)%800)
		want = append(want, row{s}.text())
		v.Data = append(v.Data, s...)
		v.Offsets = append(v.Offsets, int32(len(v.Data)))
		v.Len++
	}
	slices.Sort(want)
	in := &memOp{schema: opSchema(catalog.Text), batches: []*columnar.Batch{{Len: v.Len, Cols: []*columnar.Vector{v}}}}
	equalTexts(t, exactTexts(drain(t, must(newSort(in, []planner.SortKey{{}}, &Env{})))), want)
}

func TestSortRefusesLists(t *testing.T) {
	in := &memOp{schema: opSchema(listType)}
	if _, err := newSort(in, []planner.SortKey{{}}, &Env{}); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("error %v", err)
	}
	if _, err := newSort(in, []planner.SortKey{{Column: 3}}, &Env{}); sqlstate.CodeOf(err) != sqlstate.InternalError {
		t.Errorf("error %v", err)
	}
}

// TestBudgetExhaustion gives every memory-hungry operator too little.
func TestBudgetExhaustion(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text)
	g := newGenerator(4)
	g.distinct = 1 << 30
	batches := g.batches(schema, 60000)
	keys := []planner.SortKey{{Column: 0}}
	calls := []planner.AggCall{{Func: planner.Max, Arg: 1, DataType: catalog.Text}}
	join := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildLeft, Schema: joinSchema(schema, schema)}
	in := func() Operator { return &memOp{schema: schema, batches: batches} }
	for name, make := range map[string]func(*Budget) (Operator, error){
		"sort":        func(b *Budget) (Operator, error) { return newSort(in(), keys, &Env{Budget: b}) },
		"top-k":       func(b *Budget) (Operator, error) { return newTopK(in(), keys, len(keys), 30000, &Env{Budget: b}) },
		"aggregation": func(b *Budget) (Operator, error) { return aggFragment([]Operator{in()}, []int{0}, calls, b) },
		"hash join": func(b *Budget) (Operator, error) {
			parts, err := newJoinParts(join, []Operator{in()}, []Operator{in()}, &Env{Budget: b})
			return newUnion(parts), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := NewBudget("node", 200<<10, nil)
			query := NewBudget("query", 0, node)
			op := must(make(query))
			_, err := drainCtx(context.Background(), op)
			if sqlstate.CodeOf(err) != sqlstate.OutOfMemory {
				t.Errorf("error %v", err)
			}
			mustBeEmpty(t, query)
			mustBeEmpty(t, node)
		})
	}
}

func TestBudgetHierarchy(t *testing.T) {
	node := NewBudget("node", 100, nil)
	a, b := NewBudget("query", 80, node), NewBudget("query", 0, node)
	if err := a.Reserve("sort", 81); sqlstate.CodeOf(err) != sqlstate.OutOfMemory || node.Used() != 0 {
		t.Errorf("above the query's limit: %v, node uses %d", err, node.Used())
	}
	if err := a.Reserve("sort", 70); err != nil {
		t.Error(err)
	}
	if err := b.Reserve("sort", 31); sqlstate.CodeOf(err) != sqlstate.OutOfMemory || b.Used() != 0 {
		t.Errorf("above the node's limit: %v, query uses %d", err, b.Used())
	}
	acct := b.Account("join")
	if err := acct.Reserve(30); err != nil {
		t.Error(err)
	}
	acct.Release(10)
	part := acct.split(5)
	acct.Close()
	if node.Used() != 75 || node.Peak() != 100 {
		t.Errorf("node uses %d, peak %d", node.Used(), node.Peak())
	}
	part.Close()
	a.Release(70)
	mustBeEmpty(t, node)
	var none *Budget
	if err := none.Account("x").Reserve(1 << 60); err != nil {
		t.Error(err)
	}
}
