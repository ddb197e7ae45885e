package exec

import (
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// steadyQueries are the operators of TPC-H Q1, Q6 and Q9 over the same rows,
// replayed a number of times.
func steadyQueries() map[string]func(times int) Operator {
	const batches, n = 4, columnar.BatchRows
	short := catalog.PhysicalType(catalog.Decimal(12, 2))
	flags := opSchema(catalog.Text, catalog.Text, catalog.Date, short)
	keys := opSchema(catalog.BigInt, catalog.BigInt, short)
	var flagRows, keyRows []*columnar.Batch
	for k := range batches {
		flagRows = append(flagRows, &columnar.Batch{Len: n, Cols: []*columnar.Vector{benchFlags(n, "ANR"), benchFlags(n, "FO"),
			benchInts(catalog.Date, n, func(i int) int64 { return int64(8000 + i%2500) }), benchInts(short, n, func(i int) int64 { return int64(i * k) })}})
		keyRows = append(keyRows, &columnar.Batch{Len: n, Cols: []*columnar.Vector{
			benchInts(catalog.BigInt, n, func(i int) int64 { return int64((i + k*n) * 37 % 9000) }),
			benchInts(catalog.BigInt, n, func(i int) int64 { return int64(i % 25) }), benchInts(short, n, func(i int) int64 { return int64(i) })}})
	}
	sum := []planner.AggCall{{Func: planner.Sum, Arg: 3, DataType: catalog.Decimal(38, 2)}, {Func: planner.Avg, Arg: 3, DataType: catalog.Double}}
	in := func(schema *arrow.Schema, rows []*columnar.Batch, times int) Operator {
		return &replayOp{memOp: memOp{schema: schema, batches: rows}, times: times}
	}
	before := &planner.Call{Func: "<", Args: []planner.Expr{column(flags, 2), &planner.Literal{Value: int64(9000), DataType: catalog.Date}}, DataType: catalog.Boolean, Null: true}
	return map[string]func(times int) Operator{
		"Q1": func(times int) Operator {
			return must(aggFragment([]Operator{in(flags, flagRows, times)}, []int{0, 1}, sum, nil))
		},
		"Q6": func(times int) Operator {
			return must(aggFragment([]Operator{must(newFilter(in(flags, flagRows, times), before))}, nil, sum, nil))
		},
		"Q9": func(times int) Operator {
			join := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(keys, keys)}
			parts := must(newJoinParts(join, []Operator{in(keys, keyRows, times)}, []Operator{in(keys, keyRows[:2], 1)}, &Env{}))
			calls := []planner.AggCall{{Func: planner.Sum, Arg: 2, DataType: catalog.Decimal(38, 2)}}
			return must(aggFragment(parts, []int{1, 4}, calls, nil))
		},
	}
}

func drained(tb testing.TB, op Operator) {
	for {
		b, err := op.Next(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		if b == nil {
			break
		}
	}
	if err := op.Close(); err != nil {
		tb.Fatal(err)
	}
}

// TestAllocationDoesNotFollowRows compares what is allocated for some rows and
// for nine times as many: the difference is less than one batch.
func TestAllocationDoesNotFollowRows(t *testing.T) {
	for name, build := range steadyQueries() {
		allocated := func(times int) uint64 {
			op := build(times)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			drained(t, op)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		allocated(1)
		few, many := allocated(5), allocated(45)
		t.Logf("%s: %d bytes for %d rows, %d for %d", name, few, 20*columnar.BatchRows, many, 180*columnar.BatchRows)
		if many > few+8*columnar.BatchRows {
			t.Errorf("%s: %d bytes more for nine times the rows", name, many-few)
		}
	}
}

func BenchmarkSteady(b *testing.B) {
	for name, build := range steadyQueries() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				drained(b, build(45))
			}
		})
	}
}
