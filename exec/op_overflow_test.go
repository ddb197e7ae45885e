package exec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// numbered makes rows of a key, a number and a text; key gives the key of row i.
func numbered(rows int, key func(i int) int64) (*arrow.Schema, []*columnar.Batch) {
	schema := opSchema(catalog.BigInt, catalog.BigInt, catalog.Text)
	var out []*columnar.Batch
	for lo := 0; lo < rows; lo += 1000 {
		n := min(1000, rows-lo)
		b := &columnar.Batch{Len: n, Cols: []*columnar.Vector{
			benchInts(catalog.BigInt, n, func(i int) int64 { return key(lo + i) }),
			benchInts(catalog.BigInt, n, func(i int) int64 { return int64((lo + i) * 7919 % rows) }),
			{Type: catalog.Text, Len: n, Offsets: []int32{0}},
		}}
		for i := range n {
			b.Cols[2].Data = fmt.Appendf(b.Cols[2].Data, "text %d", (lo+i)*31%rows)
			b.Cols[2].Offsets = append(b.Cols[2].Offsets, int32(len(b.Cols[2].Data)))
		}
		out = append(out, b)
	}
	return schema, out
}

// overflowCases are operators over about a megabyte of rows that cannot be
// partitioned to fit in memory, or not at first.
func overflowCases() map[string]func(env *Env) (Operator, error) {
	join := func(kind planner.JoinKind, on []planner.JoinKey, residual planner.Expr, leftKey, rightKey func(i int) int64, leftRows int) func(env *Env) (Operator, error) {
		return func(env *Env) (Operator, error) {
			schema, left := numbered(leftRows, leftKey)
			_, right := numbered(20000, rightKey)
			op := &planner.HashJoin{Kind: kind, On: on, Residual: residual, Build: planner.BuildRight, Schema: joinOutput(kind, schema, schema)}
			parts, err := newJoinParts(op, []Operator{&memOp{schema: schema, batches: left}}, []Operator{&memOp{schema: schema, batches: right}}, env)
			return newUnion(parts), err
		}
	}
	same := func(int) int64 { return 5 }
	id := func(i int) int64 { return int64(i) }
	pairs := opSchema(catalog.BigInt, catalog.BigInt, catalog.Text, catalog.BigInt, catalog.BigInt, catalog.Text)
	less := &planner.Call{Func: "=", Args: []planner.Expr{column(pairs, 1), column(pairs, 4)}, DataType: catalog.Boolean, Null: true}
	aggregate := func(groupBy []int, key func(i int) int64, calls ...planner.AggCall) func(env *Env) (Operator, error) {
		return func(env *Env) (Operator, error) {
			schema, batches := numbered(30000, key)
			var fields []arrow.Field
			for _, g := range groupBy {
				fields = append(fields, schema.Field(g))
			}
			for i := range calls {
				calls[i].Name = fmt.Sprint(calls[i].Func, i)
				fields = append(fields, arrow.Field{Name: calls[i].Name, Type: calls[i].DataType, Nullable: true})
			}
			return newCompleteAggregate(&memOp{schema: schema, batches: batches},
				&planner.CompleteAggregate{GroupBy: groupBy, Calls: calls, Schema: arrow.NewSchema(fields, nil)}, env, 0)
		}
	}
	window := func(calls ...planner.WindowCall) func(env *Env) (Operator, error) {
		return func(env *Env) (Operator, error) {
			schema, batches := numbered(20000, same)
			fields := schema.Fields()
			for i := range calls {
				calls[i].Name = fmt.Sprint(calls[i].Func, i)
				fields = append(fields, arrow.Field{Name: calls[i].Name, Type: calls[i].DataType, Nullable: true})
			}
			return newWindow(&memOp{schema: schema, batches: batches}, &planner.WindowOp{PartitionBy: []int{0},
				OrderBy: []planner.SortKey{{Column: 1}}, Calls: calls, Schema: arrow.NewSchema(fields, nil)}, env)
		}
	}
	frame := planner.Frame{Mode: planner.RowsFrame, Start: planner.FrameBound{Kind: planner.Preceding, Offset: &planner.Literal{Value: int64(50), DataType: catalog.BigInt}},
		End: planner.FrameBound{Kind: planner.CurrentRow}}
	half := planner.AggCall{Func: planner.Count, Arg: 1, Distinct: true, DataType: catalog.BigInt}
	joined := planner.AggCall{Func: planner.StringAgg, Arg: 2, Args: []int{2}, OrderBy: []planner.SortKey{{Column: 1}}, DataType: catalog.Text}
	return map[string]func(env *Env) (Operator, error){
		"join without keys":  join(planner.InnerJoin, nil, less, id, id, 50),
		"join of one key":    join(planner.SemiJoin, []planner.JoinKey{{}}, less, same, same, 300),
		"mark join":          join(planner.MarkJoin, []planner.JoinKey{{}}, nil, id, func(i int) int64 { return int64(i * 2) }, 20000),
		"distinct, global":   aggregate(nil, id, half),
		"distinct, a few":    aggregate([]int{0}, func(i int) int64 { return int64(i % 3) }, half),
		"distinct, many":     aggregate([]int{0}, id, half, planner.AggCall{Func: planner.Count, Arg: -1, DataType: catalog.BigInt}),
		"ordered, one group": aggregate([]int{0}, same, joined),
		"ordered, many":      aggregate([]int{0, 1}, id, joined),
		"window": window(planner.WindowCall{Func: planner.RowNumber, DataType: catalog.BigInt}, planner.WindowCall{Func: planner.CumeDist, DataType: catalog.Double},
			planner.WindowCall{Func: "max", Args: []int{1}, DataType: catalog.BigInt, Frame: frame},
			planner.WindowCall{Func: planner.FirstValue, Args: []int{2}, DataType: catalog.Text, Frame: frame}),
		"top-k": func(env *Env) (Operator, error) {
			schema, batches := numbered(20000, id)
			return newTopK(&memOp{schema: schema, batches: batches}, rankTies([]planner.SortKey{{Column: 1}}, schema), 1, 15000, env)
		},
	}
}

// spillWatch notes how much of its spill space an operator used.
type spillWatch struct {
	Operator
	env  *Env
	most int64
}

func (s *spillWatch) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := s.Operator.Next(ctx)
	s.most = max(s.most, s.env.spill.used.Load())
	return b, err
}

func TestOverflowMatchesMemory(t *testing.T) {
	for name, build := range overflowCases() {
		t.Run(name, func(t *testing.T) {
			want := sortedTexts(drain(t, must(build((&Env{}).withSpill()))))
			env := (&Env{Budget: NewBudget("query", 192<<10, nil), SpillDir: t.TempDir()}).withSpill()
			watch := &spillWatch{Operator: must(build(env)), env: env}
			equalTexts(t, sortedTexts(drain(t, watch)), want)
			mustBeEmpty(t, env.Budget)
			if watch.most == 0 {
				t.Error("nothing went to disk")
			}
			if left := env.spill.used.Load(); left != 0 {
				t.Errorf("%d bytes of spill space were not given back", left)
			}
		})
	}
}

// TestOverflowLimits checks the error where neither memory nor spill space is
// left, and that a query that ends early gives everything back.
func TestOverflowLimits(t *testing.T) {
	for name, build := range overflowCases() {
		t.Run(name, func(t *testing.T) {
			env := (&Env{Budget: NewBudget("query", 64<<10, nil)}).withSpill()
			_, err := drainCtx(context.Background(), must(build(env)))
			if sqlstate.CodeOf(err) != sqlstate.OutOfMemory || !strings.Contains(err.Error(), "query budget") {
				t.Errorf("without a directory: %v", err)
			}
			mustBeEmpty(t, env.Budget)
			env = (&Env{Budget: NewBudget("query", 64<<10, nil), SpillDir: t.TempDir(), MaxSpill: 64 << 10}).withSpill()
			_, err = drainCtx(context.Background(), must(build(env)))
			if sqlstate.CodeOf(err) != sqlstate.DiskFull || !strings.Contains(err.Error(), "spill budget") {
				t.Errorf("with little space: %v", err)
			}
			mustBeEmpty(t, env.Budget)
			env = (&Env{Budget: NewBudget("query", 192<<10, nil), SpillDir: t.TempDir()}).withSpill()
			ctx, cancel := context.WithCancel(context.Background())
			op := must(build(env))
			if _, err := op.Next(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if _, err := drainCtx(ctx, op); err != nil && sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
				t.Errorf("canceled: %v", err)
			}
			mustBeEmpty(t, env.Budget)
			if left := env.spill.used.Load(); left != 0 {
				t.Errorf("%d bytes of spill space were not given back", left)
			}
		})
	}
}

func TestSortMergesManyRuns(t *testing.T) {
	schema, batches := numbered(60000, func(i int) int64 { return int64(i % 5) })
	keys := []planner.SortKey{{Column: 1}}
	want := exactTexts(drain(t, must(newSort(&memOp{schema: schema, batches: batches}, keys, &Env{}))))
	schema, batches = numbered(60000, func(i int) int64 { return int64(i % 5) })
	env := (&Env{Budget: NewBudget("query", 64<<10, nil), SpillDir: t.TempDir()}).withSpill()
	got := drain(t, must(newSort(&memOp{schema: schema, batches: batches}, keys, env)))
	equalTexts(t, exactTexts(got), want)
	mustBeEmpty(t, env.Budget)
}

// TestAggregateShards compares an aggregate that several parts build with one
// that a single one does, for every kind of ending.
func TestAggregateShards(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			schema := opSchema(opTypes[g.IntN(len(opTypes))], opTypes[g.IntN(len(opTypes))], catalog.BigInt)
			batches := g.batches(schema, 8000)
			calls := []planner.AggCall{
				{Func: planner.Count, Arg: 2, Distinct: true, DataType: catalog.BigInt, Name: "d"},
				{Func: planner.Max, Arg: 2, DataType: catalog.BigInt, Name: "m"},
			}
			op := &planner.CompleteAggregate{GroupBy: []int{0, 1}, Calls: calls, Schema: publicSchema(opSchema(
				schema.Field(0).Type, schema.Field(1).Type, catalog.BigInt, catalog.BigInt))}
			closed := 0
			parts := g.split(schema, batches, 3, &closed)
			budget := NewBudget("query", 0, nil)
			env := &Env{Budget: budget}
			build := func(in Operator) (Operator, error) { return newCompleteAggregate(in, op, env, 0) }
			want := sortedTexts(drain(t, must(build(&memOp{schema: schema, batches: batches}))))
			got := sortedTexts(drain(t, newUnion(must(newAggShards(parts, op.GroupBy, 4, build)))))
			equalTexts(t, got, want)
			mustBeEmpty(t, budget)
			if closed != 3 {
				t.Errorf("%d inputs were closed", closed)
			}
		})
	}
}

func TestAggregateShardsFail(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	op := &planner.FinalAggregate{GroupBy: []int{0}, Schema: schema}
	broken := errors.New("broken input")
	ok := func() Operator {
		return &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 2)}, endless: true}
	}
	for name, c := range map[string]struct {
		bad  Operator
		code sqlstate.Code
		want string
	}{
		"error": {&memOp{schema: schema, failAt: broken}, "", "broken input"},
		"panic": {&panicOp{memOp{schema: schema}}, sqlstate.InternalError, "in the operator panic: broken kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget("query", 0, nil)
			parts := must(newAggShards([]Operator{ok(), c.bad, ok()}, op.GroupBy, 2, func(in Operator) (Operator, error) {
				return newFinalAggregate(in, op, &Env{Budget: budget}, 0)
			}))
			_, err := drainCtx(context.Background(), newUnion(parts))
			if err == nil || !strings.Contains(err.Error(), c.want) || c.code != "" && sqlstate.CodeOf(err) != c.code {
				t.Errorf("error %v", err)
			}
			mustBeEmpty(t, budget)
		})
	}
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		parts := must(newAggShards([]Operator{ok(), &cancelOp{memOp: memOp{schema: schema, batches: []*columnar.Batch{intBatch(1)}, endless: true}, cancel: cancel}},
			op.GroupBy, 2, func(in Operator) (Operator, error) { return newFinalAggregate(in, op, &Env{}, 0) }))
		if _, err := drainCtx(ctx, newUnion(parts)); sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
			t.Errorf("error %v", err)
		}
	})
}

// cancelOp cancels a query when it is first read.
type cancelOp struct {
	memOp
	cancel context.CancelFunc
}

func (c *cancelOp) Next(ctx context.Context) (*columnar.Batch, error) {
	c.cancel()
	return c.memOp.Next(ctx)
}

// TestTopKTies deals the same rows to parts in different ways: the winners are
// the same.
func TestTopKTies(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	var want []string
	for seed := range uint64(10) {
		g := newGenerator(seed)
		var batches []*columnar.Batch
		for _, i := range g.Perm(12) {
			batches = append(batches, &columnar.Batch{Len: 1000, Cols: []*columnar.Vector{
				benchInts(catalog.BigInt, 1000, func(k int) int64 { return int64((i*1000 + k) % 3) }),
				benchInts(catalog.BigInt, 1000, func(k int) int64 { return int64(i*1000 + k) }),
			}})
		}
		w := &fragmentWorld{}
		b := &builder{env: &Env{Exchanges: w}, parallelism: 2, stack: []*stream{{parts: g.split(schema, batches, 3, nil)}}}
		if err := b.sorted([]planner.SortKey{{Column: 0, Descending: true}}, 50); err != nil {
			t.Fatal(err)
		}
		got := exactTexts(drain(t, b.stack[0].parts[0]))
		if want == nil {
			want = got
		}
		equalTexts(t, got, want)
	}
}
