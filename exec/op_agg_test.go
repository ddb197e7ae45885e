package exec

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// aggFragment is partial aggregates over parts and the final one on top.
func aggFragment(parts []Operator, groupBy []int, calls []planner.AggCall, budget *Budget) (Operator, error) {
	in := publicSchema(parts[0].Schema())
	partial := &planner.PartialAggregate{GroupBy: groupBy, Calls: calls, Schema: planner.PartialSchema(in, groupBy, calls)}
	fields := make([]arrow.Field, 0)
	finalBy := make([]int, len(groupBy))
	for i, g := range groupBy {
		finalBy[i] = i
		fields = append(fields, in.Field(g))
	}
	for _, c := range calls {
		fields = append(fields, arrow.Field{Name: c.Name, Type: c.DataType, Nullable: true})
	}
	tops := make([]Operator, len(parts))
	for i, p := range parts {
		op, err := newPartialAggregate(p, partial, budget)
		if err != nil {
			return nil, err
		}
		tops[i] = op
	}
	return newFinalAggregate(newUnion(tops), &planner.FinalAggregate{GroupBy: finalBy, Calls: calls, Schema: arrow.NewSchema(fields, nil)}, &Env{Budget: budget}, 0)
}

func aggResultType(f planner.AggFunc, arg arrow.DataType) arrow.DataType {
	switch f {
	case planner.Count:
		return catalog.BigInt
	case planner.Avg:
		return catalog.Double
	case planner.Sum:
		switch t := arg.(type) {
		case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
			return catalog.BigInt
		case *arrow.Decimal64Type:
			return catalog.Decimal(38, int(t.Scale))
		case *arrow.Decimal128Type:
			return catalog.Decimal(38, int(t.Scale))
		}
		return catalog.Double
	}
	return catalog.PublicType(arg)
}

// naiveAggregate computes one aggregate over the cells of one group.
func naiveAggregate(f planner.AggFunc, t arrow.DataType, cells []any) any {
	var best any
	n := int64(0)
	exact := new(big.Int)
	sum := 0.0
	for _, c := range cells {
		if c == nil {
			continue
		}
		n++
		switch x := c.(type) {
		case int64:
			exact.Add(exact, big.NewInt(x))
		case *big.Int:
			exact.Add(exact, x)
		case float64:
			sum += x
		}
		if f == planner.Min || f == planner.Max {
			if best == nil || (compareCells(c, best) < 0) == (f == planner.Min) && compareCells(c, best) != 0 {
				best = c
			}
		}
	}
	scale := int32(0)
	switch d := t.(type) {
	case *arrow.Decimal64Type:
		scale = d.Scale
	case *arrow.Decimal128Type:
		scale = d.Scale
	}
	isFloat := t.ID() == arrow.FLOAT32 || t.ID() == arrow.FLOAT64
	switch {
	case f == planner.Count:
		return n
	case n == 0:
		return nil
	case f == planner.Min || f == planner.Max:
		return best
	case f == planner.Sum && isFloat:
		return sum
	case f == planner.Avg && isFloat:
		return sum / float64(n)
	case f == planner.Avg:
		den := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		q, _ := new(big.Rat).SetFrac(exact, den.Mul(den, big.NewInt(n))).Float64()
		return q
	case t.ID() == arrow.DECIMAL64 || t.ID() == arrow.DECIMAL128:
		return exact
	}
	return exact.Int64()
}

func summable(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INT16, arrow.INT32, arrow.INT64, arrow.DECIMAL64, arrow.DECIMAL128, arrow.FLOAT32, arrow.FLOAT64:
		return true
	}
	return false
}

func TestAggregateMatchesOracle(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			var types []arrow.DataType
			var groupBy []int
			for i := range g.IntN(4) {
				types = append(types, opTypes[g.IntN(len(opTypes))])
				groupBy = append(groupBy, i)
			}
			calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
			for range 1 + g.IntN(5) {
				arg := opTypes[g.IntN(len(opTypes))]
				funcs := []planner.AggFunc{planner.Count, planner.Min, planner.Max}
				if summable(arg) {
					funcs = append(funcs, planner.Sum, planner.Avg)
				}
				f := funcs[g.IntN(len(funcs))]
				calls = append(calls, planner.AggCall{Func: f, Arg: len(types), DataType: aggResultType(f, arg), Name: string(f)})
				types = append(types, arg)
			}
			schema := opSchema(types...)
			batches := g.batches(schema, g.IntN(9000))
			budget := NewBudget("query", 0, nil)
			closed := 0
			parts := 1 + g.IntN(4)
			got := drain(t, must(aggFragment(g.split(schema, batches, parts, &closed), groupBy, calls, budget)))
			equalTexts(t, sortedTexts(roundFloats(got)), sortedTexts(roundFloats(naiveGroups(rowsOf(batches...), schema, groupBy, calls))))
			mustBeEmpty(t, budget)
			if closed != parts {
				t.Errorf("%d of %d inputs were closed", closed, parts)
			}
		})
	}
}

// roundFloats hides the last digits, which depend on the order of summing.
func roundFloats(rows []row) []row {
	for _, r := range rows {
		for i, v := range r {
			if f, ok := v.(float64); ok && !math.IsNaN(f) && !math.IsInf(f, 0) && f != 0 {
				r[i] = fmt.Sprintf("%.9e", f)
			}
		}
	}
	return rows
}

func naiveGroups(rows []row, schema *arrow.Schema, groupBy []int, calls []planner.AggCall) []row {
	members := map[string][]row{}
	var order []string
	if len(groupBy) == 0 {
		order = append(order, "")
	}
	for _, r := range rows {
		key := r[:len(groupBy)].text()
		if _, ok := members[key]; !ok && len(groupBy) > 0 {
			order = append(order, key)
		}
		members[key] = append(members[key], r)
	}
	var out []row
	for _, key := range order {
		var r row
		if len(groupBy) > 0 {
			r = append(r, members[key][0][:len(groupBy)]...)
		}
		for _, c := range calls {
			var cells []any
			for _, m := range members[key] {
				if c.Arg < 0 {
					cells = append(cells, true)
				} else {
					cells = append(cells, m[c.Arg])
				}
			}
			dt := catalog.Boolean
			if c.Arg >= 0 {
				dt = schema.Field(c.Arg).Type
			}
			r = append(r, naiveAggregate(c.Func, dt, cells))
		}
		out = append(out, r)
	}
	return out
}

func intBatch(vals ...int64) *columnar.Batch {
	return &columnar.Batch{Len: len(vals), Cols: []*columnar.Vector{{Type: catalog.BigInt, Len: len(vals), Data: columnar.Bytes(vals)}}}
}

func TestAggregateGlobalOverNoRows(t *testing.T) {
	in := &memOp{schema: opSchema(catalog.BigInt)}
	calls := []planner.AggCall{
		{Func: planner.Count, Arg: -1, DataType: catalog.BigInt},
		{Func: planner.Sum, Arg: 0, DataType: catalog.BigInt},
		{Func: planner.Avg, Arg: 0, DataType: catalog.Double},
		{Func: planner.Max, Arg: 0, DataType: catalog.BigInt},
	}
	got := drain(t, must(aggFragment([]Operator{in}, nil, calls, nil)))
	want := row{int64(0), nil, nil, nil}
	if len(got) != 1 || got[0].text() != want.text() {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAggregateOverflow(t *testing.T) {
	big38 := word128{0x098A223FFFFFFFFF, 0x4B3B4CA85A86C47A} // 10^38 - 1
	one := word128{1, 0}
	wide := func(vals ...word128) *columnar.Batch {
		return &columnar.Batch{Len: len(vals), Cols: []*columnar.Vector{{Type: catalog.Decimal(38, 0), Len: len(vals), Data: columnar.Bytes(vals)}}}
	}
	for name, c := range map[string]struct {
		batch *columnar.Batch
		fails bool
	}{
		"bigint maximum":            {intBatch(math.MaxInt64, 1, -1), false},
		"bigint overflow":           {intBatch(math.MaxInt64, 1), true},
		"bigint negative overflow":  {intBatch(math.MinInt64, -1), true},
		"decimal maximum":           {wide(big38), false},
		"decimal overflow":          {wide(big38, one), true},
		"decimal 128-bit overflow":  {wide(big38, big38, big38), true},
		"decimal back within range": {wide(big38, one, word128{math.MaxUint64, math.MaxUint64}), false},
	} {
		t.Run(name, func(t *testing.T) {
			dt := c.batch.Cols[0].Type
			in := &memOp{schema: opSchema(dt), batches: []*columnar.Batch{c.batch}}
			calls := []planner.AggCall{{Func: planner.Sum, Arg: 0, DataType: aggResultType(planner.Sum, dt), Name: "s"}}
			_, err := drainCtx(context.Background(), must(aggFragment([]Operator{in}, nil, calls, nil)))
			if want := map[bool]sqlstate.Code{true: sqlstate.NumericOutOfRange}[c.fails]; sqlstate.CodeOf(err) != want {
				t.Errorf("error %v, want code %q", err, want)
			}
		})
	}
}

func TestAvgIsExact(t *testing.T) {
	in := &memOp{schema: opSchema(catalog.BigInt), batches: []*columnar.Batch{intBatch(math.MaxInt64, math.MaxInt64, math.MaxInt64-2)}}
	calls := []planner.AggCall{{Func: planner.Avg, Arg: 0, DataType: catalog.Double}}
	got := drain(t, must(aggFragment([]Operator{in}, nil, calls, nil)))
	if got[0][0] != float64(math.MaxInt64) {
		t.Errorf("avg is %v", got[0][0])
	}
}

// TestPartialAggregateFlushes checks that a partial aggregate that runs out of
// memory emits what it has, and that the final result is not affected.
func TestPartialAggregateFlushes(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	var batches []*columnar.Batch
	for i := range 40 {
		keys, vals := make([]int64, 1000), make([]int64, 1000)
		for j := range keys {
			keys[j], vals[j] = int64(i*500+j), 1
		}
		batches = append(batches, &columnar.Batch{Len: 1000, Cols: []*columnar.Vector{
			{Type: catalog.BigInt, Len: 1000, Data: columnar.Bytes(keys)}, {Type: catalog.BigInt, Len: 1000, Data: columnar.Bytes(vals)}}})
	}
	in := publicSchema(schema)
	calls := []planner.AggCall{{Func: planner.Sum, Arg: 1, DataType: catalog.BigInt}}
	budget := NewBudget("query", 300<<10, nil)
	partial := must(newPartialAggregate(&memOp{schema: schema, batches: batches},
		&planner.PartialAggregate{GroupBy: []int{0}, Calls: calls, Schema: planner.PartialSchema(in, []int{0}, calls)}, budget))
	rows := drain(t, partial)
	total, distinct := new(big.Int), map[any]bool{}
	for _, r := range rows {
		total.Add(total, r[1].(*big.Int))
		distinct[r[0]] = true
	}
	if total.Int64() != 40000 || len(distinct) != 20500 {
		t.Errorf("total %d of %d groups", total, len(distinct))
	}
	if len(rows) <= len(distinct) {
		t.Errorf("%d rows: nothing was flushed early", len(rows))
	}
	mustBeEmpty(t, budget)
}

func TestAggregateRefusesUnsupported(t *testing.T) {
	for _, c := range []struct {
		types   []arrow.DataType
		groupBy []int
		call    planner.AggCall
	}{
		{[]arrow.DataType{catalog.Text}, nil, planner.AggCall{Func: planner.Sum, Arg: 0, DataType: catalog.Text}},
		{[]arrow.DataType{listType}, nil, planner.AggCall{Func: planner.Max, Arg: 0, DataType: listType}},
		{[]arrow.DataType{listType}, []int{0}, planner.AggCall{Func: planner.Count, Arg: -1, DataType: catalog.BigInt}},
		{[]arrow.DataType{catalog.BigInt}, nil, planner.AggCall{Func: "median", Arg: 0, DataType: catalog.BigInt}},
	} {
		_, err := aggFragment([]Operator{&memOp{schema: opSchema(c.types...)}}, c.groupBy, []planner.AggCall{c.call}, nil)
		if sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
			t.Errorf("%s of %v: %v", c.call.Func, c.types, err)
		}
	}
}
