package exec

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// replayOp emits the same batches again and again without copying them.
type replayOp struct {
	memOp
	times int
}

func (r *replayOp) Close() error { return nil }

func (r *replayOp) Next(context.Context) (*columnar.Batch, error) {
	if r.next == len(r.batches)*r.times {
		return nil, nil
	}
	b := r.batches[r.next%len(r.batches)]
	r.next++
	return b, nil
}

func benchInts(t arrow.DataType, n int, f func(i int) int64) *columnar.Vector {
	v := &columnar.Vector{Type: t, Len: n}
	if columnar.Width(t) == 4 {
		s := make([]int32, n)
		for i := range s {
			s[i] = int32(f(i))
		}
		v.Data = columnar.Bytes(s)
		return v
	}
	s := make([]int64, n)
	for i := range s {
		s[i] = f(i)
	}
	v.Data = columnar.Bytes(s)
	return v
}

func benchFlags(n int, values string) *columnar.Vector {
	dict := &columnar.Vector{Type: catalog.Text, Offsets: []int32{0}, Data: []byte(values), Len: len(values)}
	v := &columnar.Vector{Type: catalog.Text, Dict: dict, Len: n, Codes: make([]int32, n)}
	for i := range values {
		dict.Offsets = append(dict.Offsets, int32(i+1))
	}
	for i := range v.Codes {
		v.Codes[i] = int32(rand.IntN(len(values)))
	}
	return v
}

func reportRows(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}

func drainBench(b *testing.B, op Operator) (rows int) {
	for {
		batch, err := op.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if batch == nil {
			break
		}
		rows += batch.Rows()
	}
	if err := op.Close(); err != nil {
		b.Fatal(err)
	}
	return rows
}

// BenchmarkAggregateQ1 groups by two flags and computes eight aggregates, the
// products being computed already.
func BenchmarkAggregateQ1(b *testing.B) {
	const batches, times = 16, 16
	short := catalog.PhysicalType(catalog.Decimal(12, 2))
	schema := opSchema(catalog.Text, catalog.Text, short, short, catalog.PhysicalType(catalog.Decimal(18, 4)), catalog.PhysicalType(catalog.Decimal(18, 6)), short)
	var data []*columnar.Batch
	for range batches {
		n := columnar.BatchRows
		batch := &columnar.Batch{Len: n, Cols: []*columnar.Vector{benchFlags(n, "ANR"), benchFlags(n, "FO")}}
		for c := 2; c < 7; c++ {
			batch.Cols = append(batch.Cols, benchInts(schema.Field(c).Type, n, func(int) int64 { return rand.Int64N(1e9) }))
		}
		data = append(data, batch)
	}
	var calls []planner.AggCall
	for _, c := range []struct {
		f   planner.AggFunc
		arg int
	}{{planner.Sum, 2}, {planner.Sum, 3}, {planner.Sum, 4}, {planner.Sum, 5}, {planner.Avg, 2}, {planner.Avg, 3}, {planner.Avg, 6}} {
		calls = append(calls, planner.AggCall{Func: c.f, Arg: c.arg, DataType: aggResultType(c.f, schema.Field(c.arg).Type)})
	}
	calls = append(calls, planner.AggCall{Func: planner.Count, Arg: -1, DataType: catalog.BigInt})
	for b.Loop() {
		in := &replayOp{memOp: memOp{schema: schema, batches: data}, times: times}
		drainBench(b, must(aggFragment([]Operator{in}, []int{0, 1}, calls, nil)))
	}
	reportRows(b, batches*times*columnar.BatchRows)
}

// BenchmarkFilterSumQ6 filters by a range of dates and a quantity and sums.
func BenchmarkFilterSumQ6(b *testing.B) {
	const batches, times = 16, 16
	short := catalog.PhysicalType(catalog.Decimal(12, 2))
	schema := opSchema(catalog.Date, short, short)
	var data []*columnar.Batch
	for range batches {
		n := columnar.BatchRows
		data = append(data, &columnar.Batch{Len: n, Cols: []*columnar.Vector{
			benchInts(catalog.Date, n, func(int) int64 { return 8000 + rand.Int64N(2500) }),
			benchInts(short, n, func(int) int64 { return rand.Int64N(5000) }),
			benchInts(short, n, func(int) int64 { return rand.Int64N(1e7) }),
		}})
	}
	date := func(days int64) planner.Expr { return &planner.Literal{Value: days, DataType: catalog.Date} }
	compare := func(op string, l, r planner.Expr) planner.Expr {
		return &planner.Call{Func: op, Args: []planner.Expr{l, r}, DataType: catalog.Boolean, Null: true}
	}
	predicate := compare("and", compare(">=", column(schema, 0), date(8766)), compare("<", column(schema, 0), date(9131)))
	calls := []planner.AggCall{{Func: planner.Sum, Arg: 2, DataType: catalog.Decimal(38, 2)}}
	for b.Loop() {
		in := &replayOp{memOp: memOp{schema: schema, batches: data}, times: times}
		drainBench(b, must(aggFragment([]Operator{must(newFilter(in, predicate))}, nil, calls, nil)))
	}
	reportRows(b, batches*times*columnar.BatchRows)
}

// BenchmarkJoin probes 1 M rows against 100 k build rows with unique keys.
func BenchmarkJoin(b *testing.B) {
	const buildRows, probeRows = 100_000, 1_000_000
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	side := func(rows int, key func(i int) int64) []*columnar.Batch {
		var out []*columnar.Batch
		for lo := 0; lo < rows; lo += columnar.BatchRows {
			n := min(columnar.BatchRows, rows-lo)
			out = append(out, &columnar.Batch{Len: n, Cols: []*columnar.Vector{
				benchInts(catalog.BigInt, n, func(i int) int64 { return key(lo + i) }), benchInts(catalog.BigInt, n, func(i int) int64 { return int64(i) })}})
		}
		return out
	}
	order := rand.Perm(buildRows)
	build := side(buildRows, func(i int) int64 { return int64(order[i]) })
	probe := side(probeRows, func(int) int64 { return rand.Int64N(buildRows * 2) })
	op := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(schema, schema)}
	for b.Loop() {
		in := func(batches []*columnar.Batch) []Operator {
			return []Operator{&replayOp{memOp: memOp{schema: schema, batches: batches}, times: 1}}
		}
		drainBench(b, must(newJoinParts(op, in(probe), in(build), &Env{}))[0])
	}
	reportRows(b, probeRows)
}

func BenchmarkSort(b *testing.B) {
	const rows = 1 << 20
	schema := opSchema(catalog.BigInt, catalog.Date)
	var data []*columnar.Batch
	for range rows / columnar.BatchRows {
		n := columnar.BatchRows
		data = append(data, &columnar.Batch{Len: n, Cols: []*columnar.Vector{
			benchInts(catalog.BigInt, n, func(int) int64 { return rand.Int64() }), benchInts(catalog.Date, n, func(int) int64 { return rand.Int64N(2500) })}})
	}
	for name, keys := range map[string][]planner.SortKey{"bigint": {{Column: 0}}, "date,bigint": {{Column: 1, Descending: true}, {Column: 0}}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				drainBench(b, must(newSort(&replayOp{memOp: memOp{schema: schema, batches: data}, times: 1}, keys, &Env{})))
			}
			reportRows(b, rows)
		})
		b.Run("top 100 by "+name, func(b *testing.B) {
			for b.Loop() {
				drainBench(b, must(newTopK(&replayOp{memOp: memOp{schema: schema, batches: data}, times: 1}, keys, len(keys), 100, &Env{})))
			}
			reportRows(b, rows)
		})
	}
}
