package exec

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// fragmentWorld serves tablets and exchanges from memory.
type fragmentWorld struct {
	g       *generator
	schema  *arrow.Schema
	tablets map[catalog.TabletID][]*columnar.Batch
	sources map[planner.ExchangeID]Operator
	opened  int
	closed  int
}

func (w *fragmentWorld) OpenScan(_ context.Context, scan *planner.TabletScan, parallelism int) ([]Operator, error) {
	batches, ok := w.tablets[scan.Tablet]
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "no tablet %d", scan.Tablet)
	}
	parts := w.g.split(w.schema, batches, 1+w.g.IntN(parallelism), &w.closed)
	w.opened += len(parts)
	return parts, nil
}

func (w *fragmentWorld) OpenExchange(_ context.Context, source *planner.ExchangeSource) (Operator, error) {
	w.opened++
	op, ok := w.sources[source.Exchange]
	if !ok {
		return &memOp{schema: physicalSchema(source.Schema), closed: &w.closed}, nil
	}
	return op, nil
}

func (w *fragmentWorld) table() *catalog.Table {
	t := &catalog.Table{Schema: "public", Name: "t"}
	for _, f := range publicSchema(w.schema).Fields() {
		t.Columns = append(t.Columns, catalog.Column{Name: f.Name, Type: f.Type, Nullable: true})
	}
	return t
}

func column(s *arrow.Schema, i int) planner.Expr {
	return &planner.Column{Index: i, Name: s.Field(i).Name, DataType: catalog.PublicType(s.Field(i).Type), Null: true}
}

func newWorld(seed uint64) *fragmentWorld {
	w := &fragmentWorld{g: newGenerator(seed), schema: opSchema(catalog.BigInt, catalog.Text, catalog.PhysicalType(catalog.Decimal(12, 2)))}
	w.tablets = map[catalog.TabletID][]*columnar.Batch{7: w.g.batches(w.schema, 3000), 8: w.g.batches(w.schema, 900)}
	w.sources = map[planner.ExchangeID]Operator{}
	return w
}

// TestBuildRunsFragments builds whole programs over random parallelism.
func TestBuildRunsFragments(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(seed)
			public := publicSchema(w.schema)
			zero := &planner.Literal{Value: int64(0), DataType: catalog.BigInt}
			positive := &planner.Call{Func: ">", Args: []planner.Expr{column(w.schema, 0), zero}, DataType: catalog.Boolean, Null: true}
			scan := func(id catalog.TabletID) *planner.TabletScan {
				return &planner.TabletScan{Table: w.table(), Tablet: id, Projection: []int{0, 1, 2}, Filter: positive}
			}
			calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
			partial := planner.PartialSchema(public, []int{1}, calls)
			final := arrow.NewSchema([]arrow.Field{public.Field(1), {Name: "n", Type: catalog.BigInt}}, nil)
			keys := []planner.SortKey{{Column: 1, Descending: true}, {Column: 0}}
			var left, right []row
			for _, r := range rowsOf(w.tablets[7]...) {
				if r[0] != nil && r[0].(int64) > 0 {
					left = append(left, r)
				}
			}
			for _, r := range rowsOf(w.tablets[8]...) {
				if r[0] != nil && r[0].(int64) > 0 {
					right = append(right, r)
				}
			}
			sorted := slices.Clone(left)
			slices.SortStableFunc(sorted, compareRows(keys))
			for name, c := range map[string]struct {
				ops  []planner.Operator
				want []string
				got  func([]row) []string
			}{
				"filter": {[]planner.Operator{scan(7), &planner.ExchangeSink{}, &planner.ExchangeSink{}}, sortedTexts(left), sortedTexts},
				"project": {[]planner.Operator{scan(7), &planner.ProjectOp{Exprs: []planner.Expr{column(w.schema, 1)}, Schema: arrow.NewSchema(public.Fields()[1:2], nil)}},
					sortedTexts(pick(left, 1)), sortedTexts},
				"group": {[]planner.Operator{scan(7), &planner.PartialAggregate{GroupBy: []int{1}, Calls: calls, Schema: partial},
					&planner.FinalAggregate{GroupBy: []int{0}, Calls: calls, Schema: final}},
					sortedTexts(naiveGroups(pick(left, 1), opSchema(catalog.Text), []int{0}, calls)), sortedTexts},
				"sort": {[]planner.Operator{scan(7), &planner.MergeSort{Keys: keys, Limit: -1}}, exactTexts(pick(sorted, 1, 0)),
					func(r []row) []string { return exactTexts(pick(r, 1, 0)) }},
				"limit": {[]planner.Operator{scan(7), &planner.MergeSort{Keys: keys, Limit: 20}, &planner.LimitOp{Limit: 10, Offset: 5}},
					exactTexts(pick(clip(sorted, 5, 15), 1, 0)), func(r []row) []string { return exactTexts(pick(r, 1, 0)) }},
				"join": {[]planner.Operator{scan(7), scan(8), &planner.HashJoin{Kind: planner.InnerJoin, Build: planner.BuildRight,
					On: []planner.JoinKey{{Left: 0, Right: 0}, {Left: 1, Right: 1}}, Schema: joinSchema(w.schema, w.schema)}},
					sortedTexts(naiveJoin(left, right, []planner.JoinKey{{}, {Left: 1, Right: 1}})), sortedTexts},
			} {
				t.Run(name, func(t *testing.T) {
					budget := NewBudget("query", 0, nil)
					w.opened, w.closed = 0, 0
					root, err := Build(context.Background(), c.ops, &Env{Tables: w, Parallelism: 4, Budget: budget})
					if err != nil {
						t.Fatal(err)
					}
					equalTexts(t, c.got(drain(t, root)), c.want)
					mustBeEmpty(t, budget)
					if w.closed < w.opened {
						t.Errorf("%d of %d scans were closed", w.closed, w.opened)
					}
				})
			}
		})
	}
}

func pick(rows []row, cols ...int) []row {
	var out []row
	for _, r := range rows {
		var p row
		for _, c := range cols {
			p = append(p, r[c])
		}
		out = append(out, p)
	}
	return out
}

func clip(rows []row, lo, hi int) []row {
	return rows[min(lo, len(rows)):min(hi, len(rows))]
}

// TestBuildMergesSortedExchanges checks that a MergeSort over a group of
// exchanges relies on their order, and that other inputs are told apart.
func TestBuildMergesSortedExchanges(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	source := func(id planner.ExchangeID, input int) planner.Operator {
		return &planner.ExchangeSource{Exchange: id, Input: input, Schema: schema}
	}
	w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{
		0: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 4), intBatch(6)}},
		1: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(2, 3, 9)}},
		2: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(3, 6)}},
	}}
	ops := []planner.Operator{
		source(0, 0), source(1, 0), &planner.MergeSort{Keys: []planner.SortKey{{}}, Limit: 5, Sorted: true}, source(2, 1),
		&planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(schema, schema)},
	}
	root, err := Build(context.Background(), ops, &Env{Exchanges: w})
	if err != nil {
		t.Fatal(err)
	}
	equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{int64(3), int64(3)}, {int64(6), int64(6)}}))
}

// TestBuildSortsWhatExchangesBring checks that a sort over exchanges takes
// nothing for sorted unless it is told so.
func TestBuildSortsWhatExchangesBring(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{}}
	for _, sort := range []planner.Operator{
		&planner.MergeSort{Keys: []planner.SortKey{{}}, Limit: -1}, &planner.TopK{K: 3, Keys: []planner.SortKey{{}}, First: 3},
	} {
		w.sources[0] = &memOp{schema: schema, batches: []*columnar.Batch{intBatch(6, 1), intBatch(4)}}
		root, err := Build(context.Background(), []planner.Operator{&planner.ExchangeSource{Schema: schema}, sort}, &Env{Exchanges: w})
		if err != nil {
			t.Fatal(err)
		}
		equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{int64(1)}, {int64(4)}, {int64(6)}}))
	}
}

func TestBuildTopKOverExchanges(t *testing.T) {
	schema := opSchema(catalog.BigInt)
	w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{
		0: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(5, 1, 9)}},
		1: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(7, 9, 2)}},
	}}
	ops := []planner.Operator{&planner.ExchangeSource{Exchange: 0, Schema: schema}, &planner.ExchangeSource{Exchange: 1, Schema: schema},
		&planner.TopK{K: 3, Keys: []planner.SortKey{{Descending: true}}}}
	root, err := Build(context.Background(), ops, &Env{Exchanges: w})
	if err != nil {
		t.Fatal(err)
	}
	equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{int64(9)}, {int64(9)}, {int64(7)}}))
}

func TestBuildValues(t *testing.T) {
	lit := func(v any) planner.Expr { return &planner.Literal{Value: v, DataType: catalog.BigInt} }
	op := &planner.ValuesSource{Schema: opSchema(catalog.BigInt), Rows: [][]planner.Expr{{lit(int64(3))}, {lit(nil)}, {lit(int64(-1))}}}
	budget := NewBudget("query", 0, nil)
	root, err := Build(context.Background(), []planner.Operator{op}, &Env{Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{int64(3)}, {nil}, {int64(-1)}}))
	mustBeEmpty(t, budget)
	one := []planner.Operator{&planner.ValuesSource{Schema: arrow.NewSchema(nil, nil), Rows: [][]planner.Expr{{}}},
		&planner.ProjectOp{Exprs: []planner.Expr{lit(int64(1))}, Schema: opSchema(catalog.BigInt)}}
	if root, err = Build(context.Background(), one, &Env{}); err != nil {
		t.Fatal(err)
	}
	equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{int64(1)}}))
}

func TestBuildRefusesBadPrograms(t *testing.T) {
	w := newWorld(1)
	scan := &planner.TabletScan{Table: w.table(), Tablet: 7, Projection: []int{0, 1, 2}}
	for name, ops := range map[string][]planner.Operator{
		"empty":           {},
		"two streams":     {scan, scan},
		"no input":        {&planner.LimitOp{}},
		"join of one":     {scan, &planner.HashJoin{}},
		"after the sink":  {scan, &planner.ExchangeSink{}, &planner.LimitOp{}},
		"no sort key":     {scan, &planner.MergeSort{}},
		"merge of a scan": {scan, &planner.MergeSort{Keys: []planner.SortKey{{}}, Sorted: true}},
		"bad sort key":    {scan, &planner.MergeSort{Keys: []planner.SortKey{{Column: 5}}}},
		"bad projection":  {scan, &planner.ProjectOp{Exprs: []planner.Expr{column(w.schema, 0)}, Schema: opSchema()}},
		"narrow scan":     {&planner.TabletScan{Table: w.table(), Tablet: 7, Projection: []int{0}}},
		"missing tablet":  {&planner.TabletScan{Table: w.table(), Tablet: 9, Projection: []int{0, 1, 2}}, scan},
		"unknown":         {scan, nil},
		"no such reader":  {&planner.ExchangeSource{}},
		"grouped by hole": {scan, &planner.PartialAggregate{GroupBy: []int{9}, Schema: opSchema()}},
	} {
		t.Run(name, func(t *testing.T) {
			w.opened, w.closed = 0, 0
			if _, err := Build(context.Background(), ops, &Env{Tables: w, Parallelism: 3}); err == nil {
				t.Error("the program was accepted")
			}
			if w.opened != w.closed {
				t.Errorf("%d of %d scans were closed", w.closed, w.opened)
			}
		})
	}
}

func TestRootRecoversPanics(t *testing.T) {
	w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{0: &panicOp{memOp{schema: opSchema(catalog.BigInt)}}}}
	root, err := Build(context.Background(), []planner.Operator{&planner.ExchangeSource{Schema: opSchema(catalog.BigInt)}}, &Env{Exchanges: w})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := drainCtx(context.Background(), root); sqlstate.CodeOf(err) != sqlstate.InternalError ||
		!strings.Contains(err.Error(), "in the operator panic: broken kernel") {
		t.Errorf("error %v", err)
	}
}

// TestBuildNullConstants sends NULL constants of every type through keys,
// aggregates and sorts.
func TestBuildNullConstants(t *testing.T) {
	for _, dt := range opTypes {
		t.Run(catalog.TypeName(dt), func(t *testing.T) {
			public := catalog.PublicType(dt)
			schema := opSchema(catalog.BigInt)
			both := arrow.NewSchema([]arrow.Field{{Name: "k", Type: public, Nullable: true}, {Name: "v", Type: public, Nullable: true}}, nil)
			null := &planner.Literal{DataType: public}
			calls := []planner.AggCall{{Func: planner.Max, Arg: 1, DataType: public}, {Func: planner.Count, Arg: 1, DataType: catalog.BigInt}}
			final := arrow.NewSchema([]arrow.Field{both.Field(0), {Name: "m", Type: public, Nullable: true}, {Name: "n", Type: catalog.BigInt}}, nil)
			w := &fragmentWorld{sources: map[planner.ExchangeID]Operator{0: &memOp{schema: schema, batches: []*columnar.Batch{intBatch(1, 2, 3)}}}}
			ops := []planner.Operator{
				&planner.ExchangeSource{Schema: schema},
				&planner.ProjectOp{Exprs: []planner.Expr{null, null}, Schema: both},
				&planner.MergeSort{Keys: []planner.SortKey{{Column: 0}, {Column: 1, Descending: true}}, Limit: -1},
				&planner.PartialAggregate{GroupBy: []int{0}, Calls: calls, Schema: planner.PartialSchema(both, []int{0}, calls)},
				&planner.FinalAggregate{GroupBy: []int{0}, Calls: calls, Schema: final},
			}
			root, err := Build(context.Background(), ops, &Env{Exchanges: w})
			if err != nil {
				t.Fatal(err)
			}
			equalTexts(t, exactTexts(drain(t, root)), exactTexts([]row{{nil, nil, int64(0)}}))
		})
	}
}

// TestBuildGroupsNullConstants is the same without a sort that would copy the
// constants first.
func TestBuildGroupsNullConstants(t *testing.T) {
	for _, dt := range opTypes {
		v := &columnar.Vector{Type: dt, Len: 3, Const: true, Valid: []byte{0}}
		p := partitionHasher{keys: []int{0}}
		batch := &columnar.Batch{Len: 3, Cols: []*columnar.Vector{v}}
		if dt.ID() == arrow.STRING || dt.ID() == arrow.BINARY {
			v.Offsets = []int32{0, 0}
		} else {
			v.Data = make([]byte, columnar.Width(dt))
		}
		if h := p.hash(batch); h[0] != h[2] {
			t.Errorf("%s: hashes %x", dt, h)
		}
		calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt}}
		in := &memOp{schema: opSchema(dt), batches: []*columnar.Batch{batch}}
		equalTexts(t, exactTexts(drain(t, must(aggFragment([]Operator{in}, []int{0}, calls, nil)))), exactTexts([]row{{nil, int64(3)}}))
	}
}
