package exec

import (
	"fmt"
	"testing"

	"skein/catalog"
	"skein/planner"
)

func TestKeySets(t *testing.T) {
	for name, spread := range map[string]int64{"exact": 3, "bloom": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			vals := make([]int64, 5000)
			for i := range vals {
				vals[i] = (int64(i) - 2500) * spread
			}
			store := must(newColStore(catalog.BigInt, &Account{}))
			if err := store.append(intBatch(vals...).Cols[0], nil, len(vals)); err != nil {
				t.Fatal(err)
			}
			set := newKeySet(store, &Account{})
			if (set.span > 0) != (name == "exact") {
				t.Errorf("span %d", set.span)
			}
			keys := make([]uint64, len(vals))
			for i, v := range vals {
				keys[i] = uint64(v)
			}
			if got := set.choose(keys, nil, nil); len(got) != len(keys) {
				t.Errorf("%d of %d members are found", len(got), len(keys))
			}
			for i := range keys {
				keys[i]++
			}
			if got := set.choose(keys, nil, nil); name == "exact" && len(got) > 0 || len(got) > len(keys)/20 {
				t.Errorf("%d of %d others pass", len(got), len(keys))
			}
		})
	}
}

// TestFiltersReachScans checks that a filter goes below joins, projections and
// aggregates, and that the result is that of the join alone.
func TestFiltersReachScans(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	for seed := range uint64(20) {
		g := newGenerator(seed)
		fact, dim, small := g.batches(schema, 6000), g.batches(schema, 60), g.batches(schema, 5)
		sum := []planner.AggCall{{Func: planner.Count, Arg: 1, DataType: catalog.BigInt, Name: "n"}}
		run := func(filters bool) ([]row, Operator) {
			agg := must(aggFragment([]Operator{&memOp{schema: schema, batches: fact}, &memOp{schema: schema}}, []int{0}, sum, nil))
			inner := &planner.HashJoin{Kind: planner.LeftJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinOutput(planner.LeftJoin, schema, schema)}
			low := must(newJoinParts(inner, []Operator{agg}, []Operator{&memOp{schema: schema, batches: dim}}, &Env{}))
			outer := &planner.HashJoin{Kind: planner.SemiJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: publicSchema(low[0].Schema())}
			if !filters { // a key that is NULL-safe has none
				outer.On[0].NullSafe = true
				outer.Residual = &planner.Call{Func: "is not null", DataType: catalog.Boolean, Args: []planner.Expr{&planner.Column{DataType: catalog.BigInt, Null: true}}}
			}
			top := must(newJoinParts(outer, low, []Operator{&memOp{schema: schema, batches: small}}, &Env{}))[0]
			return drain(t, top), agg
		}
		with, agg := run(true)
		without, _ := run(false)
		equalTexts(t, sortedTexts(with), sortedTexts(without))
		union := agg.(*aggregateOp).input.(*unionOp)
		if _, ok := union.inputs[0].(*aggregateOp).input.(*joinFilterOp); !ok {
			t.Errorf("below the aggregate is %T", union.inputs[0].(*aggregateOp).input)
		}
	}
}

// TestClusteredPartialAggregate checks that groups which come one after
// another leave before the input ends.
func TestClusteredPartialAggregate(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	m := &memOp{schema: schema}
	const groups, perGroup = 100000, 4
	for lo := 0; lo < groups*perGroup; lo += 4000 {
		vals := make([]int64, 4000)
		for i := range vals {
			vals[i] = int64((lo + i) / perGroup)
		}
		m.batches = append(m.batches, intBatch(vals...))
	}
	calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
	budget := NewBudget("query", 4<<20, nil)
	partial := must(newPartialAggregate(m, &planner.PartialAggregate{GroupBy: []int{0}, Calls: calls, Schema: planner.PartialSchema(schema, []int{0}, calls)}, budget))
	counts := map[any]int64{}
	for _, r := range drain(t, partial) {
		counts[r[0]] += r[1].(int64)
	}
	if len(counts) != groups {
		t.Fatalf("%d groups", len(counts))
	}
	for k, n := range counts {
		if n != perGroup {
			t.Fatal(fmt.Sprint("group ", k, " has ", n, " rows"))
		}
	}
	if budget.Peak() > 2<<20 {
		t.Errorf("peak memory %d", budget.Peak())
	}
	mustBeEmpty(t, budget)
}
