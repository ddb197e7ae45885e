package exec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

func completeAggregate(in Operator, groupBy []int, calls []planner.AggCall, budget *Budget) (Operator, error) {
	var fields []arrow.Field
	for _, g := range groupBy {
		fields = append(fields, in.Schema().Field(g))
	}
	for _, c := range calls {
		fields = append(fields, arrow.Field{Name: c.Name, Type: c.DataType, Nullable: true})
	}
	return newCompleteAggregate(in, &planner.CompleteAggregate{GroupBy: groupBy, Calls: calls, Schema: publicSchema(arrow.NewSchema(fields, nil))}, &Env{Budget: budget}, 0)
}

// TestCompleteAggregateMatchesOracle covers distinct and plain aggregates.
func TestCompleteAggregateMatchesOracle(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			types := []arrow.DataType{opTypes[g.IntN(len(opTypes))]}
			groupBy := []int{0}[:g.IntN(2)]
			calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
			for range 1 + g.IntN(5) {
				arg := opTypes[g.IntN(len(opTypes))]
				funcs := []planner.AggFunc{planner.Count, planner.Min, planner.Max}
				if summable(arg) {
					funcs = append(funcs, planner.Sum, planner.Avg)
				}
				f := funcs[g.IntN(len(funcs))]
				calls = append(calls, planner.AggCall{Func: f, Arg: len(types), Distinct: g.IntN(2) == 0, DataType: aggResultType(f, arg), Name: string(f)})
				types = append(types, arg)
			}
			schema := opSchema(types...)
			batches := g.batches(schema, g.IntN(9000))
			budget := NewBudget("query", 0, nil)
			got := drain(t, must(completeAggregate(&memOp{schema: schema, batches: batches}, groupBy, calls, budget)))
			mustBeEmpty(t, budget)
			members := map[string][]row{}
			if len(groupBy) == 0 {
				members[""] = nil
			}
			for _, r := range rowsOf(batches...) {
				k := r[:len(groupBy)].text()
				members[k] = append(members[k], r)
			}
			var want []row
			for _, rows := range members {
				var out row
				if len(groupBy) > 0 {
					out = append(out, rows[0][0])
				}
				for _, c := range calls {
					var cells []any
					seen := map[string]bool{}
					dt := catalog.Boolean
					for _, r := range rows {
						var v any = true
						if c.Arg >= 0 {
							v, dt = r[c.Arg], schema.Field(c.Arg).Type
						}
						if k := (row{v}).text(); !c.Distinct || !seen[k] {
							seen[k] = true
							cells = append(cells, v)
						}
					}
					if c.Arg >= 0 {
						dt = schema.Field(c.Arg).Type
					}
					out = append(out, naiveAggregate(c.Func, dt, cells))
				}
				want = append(want, out)
			}
			equalTexts(t, sortedTexts(roundFloats(got)), sortedTexts(roundFloats(want)))
		})
	}
}

// TestCollectingAggregates checks the aggregates that see all values at once.
func TestCollectingAggregates(t *testing.T) {
	schema := opSchema(catalog.Integer, catalog.Text, catalog.Text, catalog.Double, catalog.Double)
	for seed := range uint64(20) {
		g := newGenerator(seed)
		batches := g.batches(schema, g.IntN(3000))
		for _, b := range batches { // one fraction for all, numbers that interpolate well
			b.Cols[4] = columnar.NewConst(catalog.Double, columnar.Bytes([]float64{0.4}), b.Len)
			b.Cols[3] = &columnar.Vector{Type: catalog.Double, Len: b.Len, Valid: g.validity(b.Len), Data: fill(b.Len, func() float64 { return float64(g.IntN(100)) })}
		}
		calls := []planner.AggCall{
			{Func: planner.StringAgg, Arg: 1, Args: []int{2}, OrderBy: []planner.SortKey{{Column: 1}, {Column: 2, Descending: true}}, DataType: catalog.Text, Name: "s"},
			{Func: planner.StringAgg, Arg: 1, Args: []int{2}, DataType: catalog.Text, Name: "plain"},
			{Func: planner.ArrayAgg, Arg: 3, Distinct: true, OrderBy: []planner.SortKey{{Column: 3}}, DataType: arrow.ListOf(catalog.Double), Name: "a"},
			{Func: planner.PercentileCont, Arg: 3, Args: []int{4}, OrderBy: []planner.SortKey{{Column: 3}}, DataType: catalog.Double, Name: "p"},
			{Func: planner.PercentileCont, Arg: 3, Args: []int{4}, OrderBy: []planner.SortKey{{Column: 3, Descending: true}}, DataType: catalog.Double, Name: "q"},
		}
		budget := NewBudget("query", 0, nil)
		got := drain(t, must(completeAggregate(&memOp{schema: schema, batches: batches}, []int{0}, calls, budget)))
		mustBeEmpty(t, budget)
		members := map[string][]row{}
		for _, r := range rowsOf(batches...) {
			k := r[:1].text()
			members[k] = append(members[k], r)
		}
		var want []row
		for _, rows := range members {
			plain := joinTexts(rows)
			sorted := slices.Clone(rows)
			slices.SortStableFunc(sorted, func(a, b row) int {
				return cmp.Or(compareByKey(a[1], b[1], planner.SortKey{}), compareByKey(a[2], b[2], planner.SortKey{Descending: true}))
			})
			numbers := slices.Clone(rows)
			slices.SortStableFunc(numbers, func(a, b row) int { return compareByKey(a[3], b[3], planner.SortKey{}) })
			list := []any{}
			var vals []float64
			for i, r := range numbers {
				if i == 0 || r[3] != numbers[i-1][3] {
					list = append(list, r[3])
				}
				if r[3] != nil {
					vals = append(vals, r[3].(float64))
				}
			}
			want = append(want, row{rows[0][0], joinTexts(sorted), plain, list, percentile(vals, 0.4), percentile(reversed(vals), 0.4)})
		}
		equalTexts(t, sortedTexts(roundFloats(got)), sortedTexts(roundFloats(want)))
	}
}

func reversed(v []float64) []float64 {
	v = slices.Clone(v)
	slices.Reverse(v)
	return v
}

func percentile(vals []float64, f float64) any {
	if len(vals) == 0 {
		return nil
	}
	at := f * float64(len(vals)-1)
	lo := int(math.Floor(at))
	hi := min(lo+1, len(vals)-1)
	return vals[lo] + (at-float64(lo))*(vals[hi]-vals[lo])
}

func joinTexts(rows []row) any {
	var out any
	for _, r := range rows {
		switch {
		case r[1] == nil:
		case out == nil:
			out = r[1]
		default:
			sep, _ := r[2].(string)
			out = out.(string) + sep + r[1].(string)
		}
	}
	return out
}

func TestPercentileFraction(t *testing.T) {
	b := &columnar.Batch{Len: 2, Cols: []*columnar.Vector{
		{Type: catalog.Double, Len: 2, Data: columnar.Bytes([]float64{1, 2})}, columnar.NewConst(catalog.Double, columnar.Bytes([]float64{1.5}), 2)}}
	calls := []planner.AggCall{{Func: planner.PercentileCont, Arg: 0, Args: []int{1}, OrderBy: []planner.SortKey{{}}, DataType: catalog.Double}}
	op := must(completeAggregate(&memOp{schema: opSchema(catalog.Double, catalog.Double), batches: []*columnar.Batch{b}}, nil, calls, nil))
	_, err := drainCtx(t.Context(), op)
	if sqlstate.CodeOf(err) != sqlstate.NumericOutOfRange {
		t.Errorf("error %v", err)
	}
}

// TestPartialStatistics checks bool_and, bool_or, any_value, variances and
// deviations through partial states.
func TestPartialStatistics(t *testing.T) {
	schema := opSchema(catalog.Integer, catalog.Boolean, catalog.Double)
	for seed := range uint64(20) {
		g := newGenerator(seed)
		batches := g.batches(schema, g.IntN(4000))
		for _, b := range batches {
			b.Cols[2] = &columnar.Vector{Type: catalog.Double, Len: b.Len, Valid: g.validity(b.Len), Data: fill(b.Len, func() float64 { return 1e6 + float64(g.IntN(100)) })}
		}
		calls := []planner.AggCall{
			{Func: planner.BoolAnd, Arg: 1, DataType: catalog.Boolean}, {Func: planner.BoolOr, Arg: 1, DataType: catalog.Boolean},
			{Func: planner.VarSamp, Arg: 2, DataType: catalog.Double}, {Func: planner.VarPop, Arg: 2, DataType: catalog.Double},
			{Func: planner.StddevSamp, Arg: 2, DataType: catalog.Double}, {Func: planner.StddevPop, Arg: 2, DataType: catalog.Double},
			{Func: planner.AnyValue, Arg: 0, DataType: catalog.Integer},
		}
		closed := 0
		got := drain(t, must(aggFragment(g.split(schema, batches, 3, &closed), []int{0}, calls, NewBudget("query", 0, nil))))
		members := map[string][]row{}
		for _, r := range rowsOf(batches...) {
			members[r[:1].text()] = append(members[r[:1].text()], r)
		}
		var want []row
		for _, rows := range members {
			var all, any any
			sum, n := 0.0, 0.0
			for _, r := range rows {
				if r[1] != nil {
					all = r[1].(bool) && (all == nil || all.(bool))
					any = r[1].(bool) || any != nil && any.(bool)
				}
				if r[2] != nil {
					sum += r[2].(float64)
					n++
				}
			}
			m2 := 0.0
			for _, r := range rows {
				if r[2] != nil {
					d := r[2].(float64) - sum/n
					m2 += d * d
				}
			}
			out := row{rows[0][0], all, any, nil, nil, nil, nil, rows[0][0]}
			if n > 1 {
				out[3], out[5] = m2/(n-1), math.Sqrt(m2/(n-1))
			}
			if n > 0 {
				out[4], out[6] = m2/n, math.Sqrt(m2/n)
			}
			want = append(want, out)
		}
		coarse := func(rows []row) []row {
			for _, r := range rows {
				for i, v := range r {
					if f, ok := v.(float64); ok {
						r[i] = fmt.Sprintf("%.6g", f+1e-9)
					}
				}
			}
			return rows
		}
		equalTexts(t, sortedTexts(coarse(got)), sortedTexts(coarse(want)))
	}
}

func TestAggregateSpills(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text, catalog.BigInt, catalog.Double)
	g := newGenerator(5)
	g.distinct = 1 << 20
	batches := g.batches(schema, 40000)
	calls := []planner.AggCall{
		{Func: planner.Count, Arg: -1, DataType: catalog.BigInt}, {Func: planner.Sum, Arg: 2, DataType: catalog.BigInt},
		{Func: planner.Avg, Arg: 3, DataType: catalog.Double}, {Func: planner.Max, Arg: 1, DataType: catalog.Text},
	}
	run := func(env *Env) []string {
		in := publicSchema(schema)
		partial := &planner.PartialAggregate{GroupBy: []int{0, 1}, Calls: calls, Schema: planner.PartialSchema(in, []int{0, 1}, calls)}
		fields := []arrow.Field{in.Field(0), in.Field(1)}
		for _, c := range calls {
			fields = append(fields, arrow.Field{Type: c.DataType, Nullable: true})
		}
		// The partial aggregate has memory of its own, as on another node.
		below := must(newPartialAggregate(&memOp{schema: schema, batches: batches}, partial, NewBudget("other", 1<<20, nil)))
		final := must(newFinalAggregate(below, &planner.FinalAggregate{GroupBy: []int{0, 1}, Calls: calls, Schema: arrow.NewSchema(fields, nil)}, env, 0))
		rows := drain(t, final)
		mustBeEmpty(t, env.Budget)
		if env.spills() && (final.(*aggregateOp).spill.set == nil || env.spill.used.Load() != 0) {
			t.Error("nothing was spilled, or it was not removed")
		}
		return sortedTexts(roundFloats(rows))
	}
	small := (&Env{Budget: NewBudget("query", 512<<10, nil), SpillDir: t.TempDir()}).withSpill()
	equalTexts(t, run(small), run(&Env{Budget: NewBudget("query", 0, nil)}))
}

func TestSortSpills(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text, catalog.Integer)
	for seed := range uint64(4) {
		g := newGenerator(seed)
		g.distinct = 1 << 12
		batches := g.batches(schema, 40000)
		keys := []planner.SortKey{{Column: 0, Descending: seed%2 == 0}, {Column: 1}}
		run := func(env *Env) []row {
			op := must(newSort(&memOp{schema: schema, batches: batches}, keys, env))
			rows := drain(t, op)
			mustBeEmpty(t, env.Budget)
			if env.spills() && (len(op.(*sortOp).runs) < 2 || env.spill.used.Load() != 0) {
				t.Error("nothing was spilled, or it was not removed")
			}
			return rows
		}
		small := (&Env{Budget: NewBudget("query", 400<<10, nil), SpillDir: t.TempDir()}).withSpill()
		got, want := run(small), run(&Env{Budget: NewBudget("query", 0, nil)})
		if len(got) != len(want) {
			t.Fatalf("%d rows instead of %d", len(got), len(want))
		}
		for i := range want {
			if got[i].text() != want[i].text() {
				t.Fatalf("row %d is %s instead of %s", i, got[i].text(), want[i].text())
			}
		}
	}
}
