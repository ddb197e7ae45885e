package exec

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

func (g *generator) bound(mode planner.FrameMode, start bool, offset func() *planner.Literal) planner.FrameBound {
	kinds := []planner.BoundKind{planner.UnboundedPreceding, planner.Preceding, planner.CurrentRow, planner.Following}
	if !start {
		kinds = []planner.BoundKind{planner.Preceding, planner.CurrentRow, planner.Following, planner.UnboundedFollowing}
	}
	b := planner.FrameBound{Kind: kinds[g.IntN(len(kinds))]}
	if b.Kind == planner.Preceding || b.Kind == planner.Following {
		b.Offset = offset()
	}
	return b
}

// windowCase is a random window over columns: partition, order key, value.
type windowCase struct {
	schema  *arrow.Schema
	batches []*columnar.Batch
	op      *planner.WindowOp
}

func (g *generator) windowCase(rows int) *windowCase {
	c := &windowCase{op: &planner.WindowOp{}}
	orderTypes := []arrow.DataType{catalog.BigInt, catalog.Integer, catalog.Double, catalog.PhysicalType(catalog.Decimal(12, 2)), catalog.Decimal(30, 4)}
	orderType := orderTypes[g.IntN(len(orderTypes))]
	value := opTypes[g.IntN(len(opTypes))]
	if g.IntN(2) == 0 {
		value = catalog.BigInt
	}
	c.schema = opSchema(catalog.Integer, orderType, value, catalog.Integer)
	c.batches = g.batches(c.schema, g.IntN(rows))
	if g.IntN(4) > 0 {
		c.op.PartitionBy = []int{0}
	}
	c.op.OrderBy = []planner.SortKey{{Column: 1, Descending: g.IntN(2) == 0, NullsFirst: g.IntN(2) == 0}}
	for range 1 + g.IntN(4) {
		c.op.Calls = append(c.op.Calls, g.windowCall(value, orderType))
	}
	fields := publicSchema(c.schema).Fields()
	for _, call := range c.op.Calls {
		fields = append(fields, arrow.Field{Name: call.Name, Type: call.DataType, Nullable: true})
	}
	c.op.Schema = arrow.NewSchema(fields, nil)
	return c
}

func (g *generator) windowCall(value, order arrow.DataType) planner.WindowCall {
	funcs := []planner.WindowFunc{planner.RowNumber, planner.Rank, planner.DenseRank, planner.PercentRank, planner.CumeDist,
		planner.FirstValue, planner.LastValue, "count", "min", "max", "array_agg"}
	if summable(value) {
		funcs = append(funcs, "sum", "avg")
	}
	call := planner.WindowCall{Func: funcs[g.IntN(len(funcs))], Args: []int{2}}
	call.Name = string(call.Func)
	switch call.Func {
	case planner.RowNumber, planner.Rank, planner.DenseRank:
		call.Args, call.DataType = nil, catalog.BigInt
	case planner.PercentRank, planner.CumeDist:
		call.Args, call.DataType = nil, catalog.Double
	case planner.FirstValue, planner.LastValue:
		call.DataType = catalog.PublicType(value)
	case "array_agg":
		call.DataType = arrow.ListOf(catalog.PublicType(value))
		if !arrow.TypeEqual(catalog.PhysicalType(call.DataType).(*arrow.ListType).Elem(), value) {
			call.Func, call.Name, call.DataType = "count", "count", catalog.BigInt
		}
	default:
		call.DataType = aggResultType(planner.AggFunc(call.Func), value)
	}
	modes := []planner.FrameMode{planner.RowsFrame, planner.RangeFrame, planner.GroupsFrame}
	f := &call.Frame
	f.Mode = modes[g.IntN(3)]
	offset := func() *planner.Literal {
		n := int64(g.IntN(4))
		if f.Mode != planner.RangeFrame {
			return &planner.Literal{Value: n, DataType: catalog.BigInt}
		}
		switch order.ID() {
		case arrow.INT32:
			return &planner.Literal{Value: n * 1000, DataType: order}
		case arrow.FLOAT64:
			return &planner.Literal{Value: float64(n), DataType: order}
		case arrow.DECIMAL64, arrow.DECIMAL128:
			return &planner.Literal{Value: int128Of(n).num(), DataType: order}
		}
		return &planner.Literal{Value: n, DataType: order}
	}
	f.Start, f.End = g.bound(f.Mode, true, offset), g.bound(f.Mode, false, offset)
	excludes := []planner.FrameExclude{planner.ExcludeNothing, planner.ExcludeNothing, planner.ExcludeCurrent, planner.ExcludeGroup, planner.ExcludeTies}
	f.Exclude = excludes[g.IntN(len(excludes))]
	return call
}

// naiveWindow answers the calls for one sorted partition by definition.
type naiveWindow struct {
	rows  []row
	order planner.SortKey
	value arrow.DataType
}

func (w *naiveWindow) peers(i, j int) bool {
	a, b := w.rows[i][w.order.Column], w.rows[j][w.order.Column]
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return compareCells(a, b) == 0
}

// distance says whether row j is within the range bound of row i.
func (w *naiveWindow) within(i, j int, b planner.FrameBound, end bool) bool {
	a, x := w.rows[i][w.order.Column], w.rows[j][w.order.Column]
	if a == nil {
		return x == nil || (j > i) != end
	}
	if x == nil {
		return (j > i) != end
	}
	sign := 1
	if (b.Kind == planner.Preceding) != w.order.Descending {
		sign = -1
	}
	var limit any
	switch v := a.(type) {
	case float64:
		limit = v + float64(sign)*b.Offset.Value.(float64)
	case int64:
		switch o := b.Offset.Value.(type) {
		case int64:
			limit = v + int64(sign)*o
		default:
			n := b.Offset.Value.(interface{ BigInt() *big.Int }).BigInt()
			limit = v + int64(sign)*n.Int64()
		}
	case *big.Int:
		n := b.Offset.Value.(interface{ BigInt() *big.Int }).BigInt()
		limit = new(big.Int).Add(v, new(big.Int).Mul(big.NewInt(int64(sign)), n))
	}
	c := compareCells(x, limit)
	if w.order.Descending {
		c = -c
	}
	if end {
		return c <= 0
	}
	return c >= 0
}

func (w *naiveWindow) inside(i, j int, f planner.Frame, b planner.FrameBound, end bool) bool {
	sign := 1
	if end {
		sign = -1
	}
	switch b.Kind {
	case planner.UnboundedPreceding:
		return !end
	case planner.UnboundedFollowing:
		return end
	}
	at, to := j, i
	if f.Mode != planner.RowsFrame {
		if b.Kind == planner.CurrentRow {
			return w.peers(i, j) || (j-i)*sign > 0
		}
		if f.Mode == planner.RangeFrame {
			return w.within(i, j, b, end)
		}
		at, to = w.groupOf(j), w.groupOf(i)
	}
	if b.Kind == planner.Preceding {
		to -= int(b.Offset.Value.(int64))
	} else if b.Kind == planner.Following {
		to += int(b.Offset.Value.(int64))
	}
	return (at-to)*sign >= 0
}

func (w *naiveWindow) groupOf(i int) int {
	g := 0
	for k := 1; k <= i; k++ {
		if !w.peers(k-1, k) {
			g++
		}
	}
	return g
}

func (w *naiveWindow) frame(i int, f planner.Frame) []int {
	var out []int
	for j := range w.rows {
		if !w.inside(i, j, f, f.Start, false) || !w.inside(i, j, f, f.End, true) {
			continue
		}
		switch f.Exclude {
		case planner.ExcludeCurrent:
			if i == j {
				continue
			}
		case planner.ExcludeGroup:
			if w.peers(i, j) {
				continue
			}
		case planner.ExcludeTies:
			if w.peers(i, j) && i != j {
				continue
			}
		}
		out = append(out, j)
	}
	return out
}

func (w *naiveWindow) answer(i int, call planner.WindowCall) any {
	first, last := i, i
	for first > 0 && w.peers(first-1, i) {
		first--
	}
	for last+1 < len(w.rows) && w.peers(last+1, i) {
		last++
	}
	switch call.Func {
	case planner.RowNumber:
		return int64(i + 1)
	case planner.Rank:
		return int64(first + 1)
	case planner.DenseRank:
		return int64(w.groupOf(i) + 1)
	case planner.PercentRank:
		if len(w.rows) == 1 {
			return 0.0
		}
		return float64(first) / float64(len(w.rows)-1)
	case planner.CumeDist:
		return float64(last+1) / float64(len(w.rows))
	}
	var cells []any
	for _, j := range w.frame(i, call.Frame) {
		cells = append(cells, w.rows[j][call.Args[0]])
	}
	switch {
	case call.Func == "array_agg" && len(cells) == 0:
		return nil
	case call.Func == "array_agg":
		return cells
	case call.Func == planner.FirstValue || call.Func == planner.LastValue:
		if len(cells) == 0 {
			return nil
		}
		if call.Func == planner.FirstValue {
			return cells[0]
		}
		return cells[len(cells)-1]
	}
	return naiveAggregate(planner.AggFunc(call.Func), w.value, cells)
}

func TestWindowMatchesOracle(t *testing.T) {
	for seed := range uint64(250) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGenerator(seed)
			c := g.windowCase(120)
			budget := NewBudget("query", 0, nil)
			got := drain(t, must(newWindow(&memOp{schema: c.schema, batches: c.batches}, c.op, (&Env{Budget: budget}).withSpill())))
			mustBeEmpty(t, budget)
			rows := rowsOf(c.batches...)
			order := c.op.OrderBy[0]
			keyed := func(r row) (string, row) {
				if len(c.op.PartitionBy) == 0 {
					return "", r
				}
				return r[:1].text(), r
			}
			parts := map[string][]row{}
			for _, r := range rows {
				k, r := keyed(r)
				parts[k] = append(parts[k], r)
			}
			var want []row
			for _, part := range parts {
				slices.SortStableFunc(part, func(a, b row) int { return compareByKey(a[order.Column], b[order.Column], order) })
				w := &naiveWindow{rows: part, order: order, value: c.schema.Field(2).Type}
				for i, r := range part {
					out := slices.Clone(r)
					for _, call := range c.op.Calls {
						out = append(out, w.answer(i, call))
					}
					want = append(want, out)
				}
			}
			equalTexts(t, sortedTexts(roundFloats(got)), sortedTexts(roundFloats(want)))
		})
	}
}

func compareByKey(a, b any, k planner.SortKey) int {
	if a == nil || b == nil {
		switch {
		case a == nil && b == nil:
			return 0
		case (a == nil) == k.NullsFirst:
			return -1
		}
		return 1
	}
	if c := compareCells(a, b); !k.Descending {
		return c
	} else {
		return -c
	}
}

func TestWindowShifts(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.Integer, catalog.BigInt)
	batch := func() *columnar.Batch {
		b := intBatch(10, 20, 30, 40, 50)
		b.Cols = append(b.Cols,
			&columnar.Vector{Type: catalog.Integer, Len: 5, Data: columnar.Bytes([]int32{1, 1, 2, -1, 1})},
			&columnar.Vector{Type: catalog.BigInt, Len: 5, Data: columnar.Bytes([]int64{7, 7, 7, 7, 7})})
		return b
	}
	run := func(f planner.WindowFunc, out arrow.DataType, args ...int) ([]row, error) {
		op := &planner.WindowOp{OrderBy: []planner.SortKey{{}}, Calls: []planner.WindowCall{{Func: f, Args: args, DataType: out, Name: "x"}},
			Schema: publicSchema(arrow.NewSchema(append(schema.Fields(), arrow.Field{Name: "x", Type: out, Nullable: true}), nil))}
		w, err := newWindow(&memOp{schema: schema, batches: []*columnar.Batch{batch()}}, op, &Env{})
		if err != nil {
			return nil, err
		}
		return drainCtx(context.Background(), w)
	}
	last := func(rows []row) []any {
		var out []any
		for _, r := range rows {
			out = append(out, r[len(r)-1])
		}
		return out
	}
	for _, c := range []struct {
		f    planner.WindowFunc
		out  arrow.DataType
		args []int
		want string
	}{
		{planner.Lag, catalog.BigInt, []int{0, 1, 2}, "[7 10 10 50 40]"},
		{planner.Lead, catalog.BigInt, []int{0, 1, 2}, "[20 30 50 30 7]"},
		{planner.NthValue, catalog.BigInt, []int{0, 2}, "[<nil> <nil> <nil> <nil> <nil>]"},
	} {
		rows, err := run(c.f, c.out, c.args...)
		if err != nil || fmt.Sprint(last(rows)) != c.want {
			t.Errorf("%s: %v, error %v", c.f, last(rows), err)
		}
	}
	if _, err := run(planner.Ntile, catalog.BigInt, 1); err != nil {
		t.Errorf("ntile: %v", err)
	}
	if _, err := run("median", catalog.BigInt, 0); sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Errorf("median: %v", err)
	}
}

func TestNtile(t *testing.T) {
	for n := 1; n < 12; n++ {
		for buckets := int64(1); buckets < 15; buckets++ {
			vals := make([]int64, n)
			for i := range vals {
				vals[i] = buckets
			}
			schema := opSchema(catalog.BigInt)
			op := &planner.WindowOp{Calls: []planner.WindowCall{{Func: planner.Ntile, Args: []int{0}, DataType: catalog.BigInt, Name: "x"}},
				Schema: opSchema(catalog.BigInt, catalog.BigInt)}
			rows := drain(t, must(newWindow(&memOp{schema: schema, batches: []*columnar.Batch{intBatch(vals...)}}, op, &Env{})))
			sizes := map[int64]int{}
			for i, r := range rows {
				sizes[r[1].(int64)]++
				if i > 0 && r[1].(int64) < rows[i-1][1].(int64) {
					t.Fatalf("buckets are not in order: %v", rows)
				}
			}
			for b := int64(1); b <= buckets; b++ {
				want := n / int(buckets)
				if int(b) <= n%int(buckets) {
					want++
				}
				if sizes[b] != want {
					t.Errorf("ntile(%d) of %d rows: bucket %d has %d rows", buckets, n, b, sizes[b])
				}
			}
		}
	}
}

// TestWindowOverManyBatches has partitions that cross batches, and spills.
func TestWindowOverManyBatches(t *testing.T) {
	schema := opSchema(catalog.BigInt, catalog.BigInt)
	m := &memOp{schema: schema}
	g := newGenerator(3)
	const rows = 60000
	for range rows / 1000 {
		keys, vals := make([]int64, 1000), make([]int64, 1000)
		for i := range keys {
			keys[i], vals[i] = int64(g.IntN(40)), g.Int64()
		}
		m.batches = append(m.batches, &columnar.Batch{Len: 1000, Cols: []*columnar.Vector{
			{Type: catalog.BigInt, Len: 1000, Data: columnar.Bytes(keys)}, {Type: catalog.BigInt, Len: 1000, Data: columnar.Bytes(vals)}}})
	}
	env := (&Env{Budget: NewBudget("query", 1<<20, nil), SpillDir: t.TempDir()}).withSpill()
	op := &planner.WindowOp{PartitionBy: []int{0}, OrderBy: []planner.SortKey{{Column: 1}},
		Calls:  []planner.WindowCall{{Func: planner.RowNumber, DataType: catalog.BigInt, Name: "n"}},
		Schema: opSchema(catalog.BigInt, catalog.BigInt, catalog.BigInt)}
	got := drain(t, must(newWindow(m, op, env)))
	mustBeEmpty(t, env.Budget)
	if len(got) != rows || env.spill.used.Load() != 0 {
		t.Fatalf("%d rows, %d bytes spilled at the end", len(got), env.spill.used.Load())
	}
	next := map[any]int64{}
	last := map[any]int64{}
	for _, r := range got {
		if next[r[0]]++; r[2] != next[r[0]] || next[r[0]] > 1 && r[1].(int64) < last[r[0]] {
			t.Fatalf("row %v where number %d was due", r, next[r[0]])
		}
		last[r[0]] = r[1].(int64)
	}
}
