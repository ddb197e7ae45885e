package exec

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

var joinKinds = []planner.JoinKind{planner.InnerJoin, planner.LeftJoin, planner.RightJoin, planner.FullJoin,
	planner.SemiJoin, planner.AntiJoin, planner.MarkJoin}

func joinOutput(kind planner.JoinKind, left, right *arrow.Schema) *arrow.Schema {
	fields := left.Fields()
	switch kind {
	case planner.SemiJoin, planner.AntiJoin:
	case planner.MarkJoin:
		fields = append(fields, arrow.Field{Name: "mark", Type: catalog.Boolean, Nullable: true})
	default:
		fields = append(fields, right.Fields()...)
	}
	return publicSchema(arrow.NewSchema(fields, nil))
}

// keyEquality is true, false or nil for the keys of one class.
func keyEquality(l, r row, on []planner.JoinKey, nullSafe bool) any {
	var result any = true
	for _, k := range on {
		if k.NullSafe != nullSafe {
			continue
		}
		a, b := l[k.Left], r[k.Right]
		switch {
		case a == nil && b == nil && nullSafe:
		case a == nil || b == nil:
			if nullSafe {
				return false
			}
			if result == true {
				result = nil
			}
		case compareCells(a, b) != 0:
			return false
		}
	}
	return result
}

// naiveJoinKind is any join by nested loops. residual is over the two rows.
func naiveJoinKind(kind planner.JoinKind, left, right []row, lw, rw int, on []planner.JoinKey, residual func(l, r row) bool) []row {
	var out []row
	rightHit := make([]bool, len(right))
	for _, l := range left {
		hit, unknown := false, false
		for i, r := range right {
			if keyEquality(l, r, on, true) != true || !residual(l, r) {
				continue
			}
			switch keyEquality(l, r, on, false) {
			case nil:
				unknown = true
			case true:
				hit, rightHit[i] = true, true
				switch kind {
				case planner.SemiJoin, planner.AntiJoin, planner.MarkJoin:
				default:
					out = append(out, append(append(row{}, l...), r...))
				}
			}
		}
		switch {
		case kind == planner.MarkJoin && !hit && unknown:
			out = append(out, append(append(row{}, l...), nil))
		case kind == planner.MarkJoin:
			out = append(out, append(append(row{}, l...), hit))
		case kind == planner.SemiJoin && hit, kind == planner.AntiJoin && !hit:
			out = append(out, l)
		case (kind == planner.LeftJoin || kind == planner.FullJoin || kind == planner.SingleJoin) && !hit:
			out = append(out, append(append(row{}, l...), make(row, rw)...))
		}
	}
	if kind == planner.RightJoin || kind == planner.FullJoin {
		for i, r := range right {
			if !rightHit[i] {
				out = append(out, append(make(row, lw), r...))
			}
		}
	}
	return out
}

// joinCase is a random join of one kind.
type joinCase struct {
	left, right *arrow.Schema
	lb, rb      []*columnar.Batch
	op          *planner.HashJoin
	residual    func(l, r row) bool
}

func (g *generator) joinCase(kind planner.JoinKind, size int) *joinCase {
	var keys []arrow.DataType
	for range g.IntN(4) {
		keys = append(keys, opTypes[g.IntN(len(opTypes))])
	}
	c := &joinCase{residual: func(l, r row) bool { return true }}
	c.left = opSchema(append(append([]arrow.DataType{catalog.Integer}, keys...), listType)...)
	c.right = opSchema(append(append([]arrow.DataType{}, keys...), catalog.Integer, catalog.Text)...)
	c.op = &planner.HashJoin{Kind: kind, Build: planner.BuildLeft, Schema: joinOutput(kind, c.left, c.right)}
	for i := range keys {
		c.op.On = append(c.op.On, planner.JoinKey{Left: i + 1, Right: i, NullSafe: g.IntN(3) == 0})
	}
	if g.IntN(2) == 0 {
		c.op.Build = planner.BuildRight
	}
	if len(keys) == 0 {
		size /= 3
	}
	c.lb, c.rb = g.batches(c.left, g.IntN(size)), g.batches(c.right, g.IntN(size))
	if g.IntN(2) == 0 {
		at := c.left.NumFields() + len(keys)
		c.op.Residual = &planner.Call{Func: "<", DataType: catalog.Boolean, Null: true, Args: []planner.Expr{
			&planner.Column{Index: 0, DataType: catalog.Integer, Null: true}, &planner.Column{Index: at, DataType: catalog.Integer, Null: true}}}
		c.residual = func(l, r row) bool {
			return l[0] != nil && r[len(keys)] != nil && l[0].(int64) < r[len(keys)].(int64)
		}
	}
	return c
}

func (c *joinCase) check(t *testing.T, g *generator, env *Env) {
	t.Helper()
	closed := 0
	nl, nr := 1+g.IntN(4), 1+g.IntN(4)
	parts := must(newJoinParts(c.op, g.split(c.left, c.lb, nl, &closed), g.split(c.right, c.rb, nr, &closed), env))
	got := drain(t, newUnion(parts))
	want := naiveJoinKind(c.op.Kind, rowsOf(c.lb...), rowsOf(c.rb...), c.left.NumFields(), c.right.NumFields(), c.op.On, c.residual)
	equalTexts(t, sortedTexts(got), sortedTexts(want))
	mustBeEmpty(t, env.Budget)
	if closed < nl+nr {
		t.Errorf("%d of %d inputs were closed", closed, nl+nr)
	}
	if env.spill != nil && env.spill.used.Load() != 0 {
		t.Errorf("%d bytes are still spilled", env.spill.used.Load())
	}
}

func TestJoinKindsMatchOracle(t *testing.T) {
	for _, kind := range joinKinds {
		for seed := range uint64(60) {
			t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
				g := newGenerator(seed)
				c := g.joinCase(kind, 160)
				c.check(t, g, &Env{Budget: NewBudget("query", 0, nil)})
			})
		}
	}
}

// TestJoinSpills runs every kind with hardly any memory.
func TestJoinSpills(t *testing.T) {
	spilled := false
	for _, kind := range joinKinds {
		if kind == planner.MarkJoin {
			continue // needs one side whole
		}
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
				g := newGenerator(seed)
				c := g.joinCase(kind, 900)
				if len(c.op.On) == 0 {
					return // cannot be partitioned
				}
				env := (&Env{Budget: NewBudget("query", 24<<10, nil), SpillDir: t.TempDir(), MaxSpill: 64 << 20}).withSpill()
				defer func() {
					if r := recover(); r != nil {
						t.Fatal(r)
					}
				}()
				closed := 0
				parts := must(newJoinParts(c.op, g.split(c.left, c.lb, 2, &closed), g.split(c.right, c.rb, 2, &closed), env))
				got, err := drainCtx(context.Background(), newUnion(parts))
				spilled = spilled || parts[0].(*joinOp).build.spill != nil || parts[1].(*joinOp).build.spill != nil
				mustBeEmpty(t, env.Budget)
				if env.spill.used.Load() != 0 {
					t.Errorf("%d bytes are still spilled", env.spill.used.Load())
				}
				if sqlstate.CodeOf(err) == sqlstate.OutOfMemory {
					return // one key has too many rows
				}
				if err != nil {
					t.Fatal(err)
				}
				want := naiveJoinKind(c.op.Kind, rowsOf(c.lb...), rowsOf(c.rb...), c.left.NumFields(), c.right.NumFields(), c.op.On, c.residual)
				equalTexts(t, sortedTexts(got), sortedTexts(want))
			})
		}
	}
	if !spilled {
		t.Error("nothing was spilled")
	}
}

func TestJoinSpillsLarge(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Text)
	side := func(n, step int64) []*columnar.Batch {
		var out []*columnar.Batch
		for lo := int64(0); lo < n; lo += 1000 {
			text := &columnar.Vector{Type: catalog.Text, Len: 1000, Offsets: []int32{0}}
			vals := make([]int64, 1000)
			for i := range vals {
				vals[i] = (lo + int64(i)) * step
				text.Data = fmt.Appendf(text.Data, "row %d", vals[i])
				text.Offsets = append(text.Offsets, int32(len(text.Data)))
			}
			b := intBatch(vals...)
			b.Cols = append(b.Cols, text)
			out = append(out, b)
		}
		return out
	}
	for _, kind := range []planner.JoinKind{planner.InnerJoin, planner.FullJoin, planner.AntiJoin} {
		env := (&Env{Budget: NewBudget("query", 256<<10, nil), SpillDir: t.TempDir(), MaxSpill: 64 << 20}).withSpill()
		left, right := &memOp{schema: schema, batches: side(30000, 2)}, &memOp{schema: schema, batches: side(30000, 3)}
		op := &planner.HashJoin{Kind: kind, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinOutput(kind, schema, schema)}
		rows := drain(t, must(newJoinParts(op, []Operator{left}, []Operator{right}, env))[0])
		want := map[planner.JoinKind]int{planner.InnerJoin: 10000, planner.FullJoin: 50000, planner.AntiJoin: 20000}[kind]
		if len(rows) != want {
			t.Errorf("%s: %d rows instead of %d", kind, len(rows), want)
		}
		mustBeEmpty(t, env.Budget)
		if env.spill.used.Load() != 0 {
			t.Error("spill space was not given back")
		}
		// The buffers of both sides' partitions count on top of the budget.
		if peak := env.Budget.Peak(); peak > 256<<10+2*spillFanout*(spillBufferSize+2*spillGatherBytes) {
			t.Errorf("peak memory %d", peak)
		}
	}
}

func TestSpillLimit(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	var batches []*columnar.Batch
	g := newGenerator(1)
	for range 40 {
		vals := make([]int64, 1000)
		for i := range vals {
			vals[i] = g.Int64()
		}
		batches = append(batches, intBatch(vals...))
	}
	env := (&Env{Budget: NewBudget("query", 64<<10, nil), SpillDir: t.TempDir(), MaxSpill: 100 << 10}).withSpill()
	op := &planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinOutput(planner.InnerJoin, schema, schema)}
	parts := must(newJoinParts(op, []Operator{&memOp{schema: schema, batches: batches}}, []Operator{&memOp{schema: schema, batches: batches}}, env))
	_, err := drainCtx(context.Background(), parts[0])
	if sqlstate.CodeOf(err) != sqlstate.DiskFull {
		t.Errorf("error %v", err)
	}
	mustBeEmpty(t, env.Budget)
	if env.spill.used.Load() != 0 {
		t.Error("spill space was not given back")
	}
}

func TestSingleJoin(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	for _, build := range []planner.BuildSide{planner.BuildLeft, planner.BuildRight} {
		for _, on := range [][]planner.JoinKey{{{}}, nil} {
			for name, c := range map[string]struct {
				right []int64
				fails bool
			}{
				"none": {nil, false},
				"one":  {[]int64{2}, false},
				"two":  {[]int64{2, 2}, true},
			} {
				t.Run(fmt.Sprint(build, len(on), name), func(t *testing.T) {
					left := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 2)}}
					right := &memOp{schema: schema, batches: []*columnar.Batch{intBatch(c.right...)}}
					op := &planner.HashJoin{Kind: planner.SingleJoin, On: on, Build: build, Schema: joinOutput(planner.SingleJoin, schema, schema)}
					rows, err := drainCtx(context.Background(), must(newJoinParts(op, []Operator{left}, []Operator{right}, &Env{}))[0])
					if c.fails {
						if sqlstate.CodeOf(err) != sqlstate.CardinalityViolation {
							t.Errorf("error %v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					want := naiveJoinKind(planner.SingleJoin, []row{{int64(1)}, {int64(2)}}, rowsOf(intBatch(c.right...)), 1, 1, on, func(l, r row) bool { return true })
					equalTexts(t, sortedTexts(rows), sortedTexts(want))
				})
			}
		}
	}
}

// TestLongLoopStops cancels a join of 10^10 pairs.
func TestLongLoopStops(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	many := func() Operator {
		m := &memOp{schema: schema}
		for range 25 {
			m.batches = append(m.batches, intBatch(make([]int64, 4000)...))
		}
		return m
	}
	never := &planner.Call{Func: "<>", DataType: catalog.Boolean, Args: []planner.Expr{
		&planner.Column{Index: 0, DataType: catalog.BigInt}, &planner.Column{Index: 1, DataType: catalog.BigInt}}}
	for _, kind := range []planner.JoinKind{planner.InnerJoin, planner.FullJoin, planner.SemiJoin, planner.MarkJoin} {
		op := &planner.HashJoin{Kind: kind, Build: planner.BuildRight, Residual: never, Schema: joinOutput(kind, schema, schema)}
		join := must(newJoinParts(op, []Operator{many()}, []Operator{many()}, &Env{}))[0]
		ctx, cancel := context.WithCancel(context.Background())
		var asked time.Time
		timer := time.AfterFunc(30*time.Millisecond, func() { asked = time.Now(); cancel() })
		_, err := drainCtx(ctx, join)
		if took := time.Since(asked); sqlstate.CodeOf(err) != sqlstate.QueryCanceled || took > 50*time.Millisecond {
			t.Errorf("%s: error %v after %s", kind, err, took)
		}
		timer.Stop()
	}
}
