package exec

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// profiled builds and drains a fragment under a profile.
func profiled(t *testing.T, w *fragmentWorld, ops []planner.Operator, env Env) ([]planner.OperatorStats, []row) {
	t.Helper()
	env.Tables, env.Exchanges, env.Parallelism = w, w, 4
	root, err := Build(context.Background(), ops, &env)
	if err != nil {
		t.Fatal(err)
	}
	rows := drain(t, root)
	return env.Profile.Operators(), rows
}

// countingScan tells how much of its tablet is looked at.
type countingScan struct{ Operator }

func (countingScan) ScanStats() planner.ScanStats {
	return planner.ScanStats{Segments: 5, SegmentsRead: 2, Blocks: 50, BlocksRead: 20}
}

// scanCounter makes the scans of a world countingScans.
type scanCounter struct{ *fragmentWorld }

func (w scanCounter) OpenScan(ctx context.Context, scan *planner.TabletScan, parallelism int) ([]Operator, error) {
	parts, err := w.fragmentWorld.OpenScan(ctx, scan, parallelism)
	for i := range parts {
		parts[i] = countingScan{parts[i]}
	}
	return parts, err
}

// TestProfileCounts checks, over random data and parallelism, that what is
// measured agrees with what runs.
func TestProfileCounts(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(seed)
			zero := &planner.Literal{Value: int64(0), DataType: catalog.BigInt}
			positive := &planner.Call{Func: ">", Args: []planner.Expr{column(w.schema, 0), zero}, DataType: catalog.Boolean, Null: true}
			scan := func(id catalog.TabletID, filter planner.Expr) *planner.TabletScan {
				return &planner.TabletScan{Table: w.table(), Tablet: id, Projection: []int{0, 1, 2}, Filter: filter}
			}
			join := &planner.HashJoin{Kind: planner.InnerJoin, Build: planner.BuildRight, On: []planner.JoinKey{{Left: 0, Right: 0}},
				Schema: joinSchema(w.schema, w.schema)}
			calls := []planner.AggCall{{Func: planner.Count, Arg: -1, DataType: catalog.BigInt, Name: "n"}}
			partial := planner.PartialSchema(join.Schema, []int{1}, calls)
			final := arrow.NewSchema([]arrow.Field{join.Schema.Field(1), {Name: "n", Type: catalog.BigInt}}, nil)
			ops := []planner.Operator{
				scan(7, nil), scan(8, positive), join,
				&planner.PartialAggregate{GroupBy: []int{1}, Calls: calls, Schema: partial},
				&planner.FinalAggregate{GroupBy: []int{0}, Calls: calls, Schema: final},
				&planner.ExchangeSink{}, &planner.ExchangeSink{},
			}
			env := Env{Budget: NewBudget("query", 0, nil), Profile: NewProfile(seed%2 == 0), Tables: scanCounter{w}, Exchanges: w, Parallelism: 4}
			root, err := Build(context.Background(), ops, &env)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			out := drain(t, root)
			took := time.Since(began)
			stats := env.Profile.Operators()
			all, right := rowsOf(w.tablets[7]...), rowsOf(w.tablets[8]...)
			var kept []row
			for _, r := range right {
				if r[0] != nil && r[0].(int64) > 0 {
					kept = append(kept, r)
				}
			}
			pairs := naiveJoin(all, kept, []planner.JoinKey{{}})
			groups := map[string]bool{}
			for _, p := range pairs {
				groups[fmt.Sprint(p[1])] = true
			}
			left := &stats[0]
			if got := left.Rows + left.Dropped; got != uint64(len(all)) || left.Scan == nil || left.Scan.Rows != got || left.Scan.BlocksRead != 20 {
				t.Errorf("scan of %d rows: %+v, %+v", len(all), left, left.Scan)
			}
			if s := &stats[1]; s.Rows != uint64(len(kept)) || s.Scan.Rows != uint64(len(right)) {
				t.Errorf("filtered scan of %d of %d rows: %+v, %+v", len(kept), len(right), s, s.Scan)
			}
			if stats[2].Rows != uint64(len(pairs)) || stats[2].Memory == 0 && len(kept) > 0 {
				t.Errorf("join of %d rows: %+v", len(pairs), stats[2])
			}
			if stats[3].Rows < uint64(len(groups)) || stats[3].Rows > uint64(len(groups)*stats[3].Parts) {
				t.Errorf("%d groups in parts: %+v", len(groups), stats[3])
			}
			if stats[4].Rows != uint64(len(out)) || stats[4].Parts < 1 || stats[5].Rows != stats[4].Rows || stats[6].Parts != 0 {
				t.Errorf("%d rows sent: %+v", len(out), stats[4:])
			}
			for i, s := range stats {
				if s.Batches > s.Rows || s.Time > took || s.Self < 0 || s.CPU < 0 {
					t.Errorf("operator %d in %v: %+v", i, took, s)
				}
				if seed%2 != 0 && (s.Time != 0 || s.CPU != 0) {
					t.Errorf("operator %d has a time: %+v", i, s)
				}
			}
			if seed%2 == 0 && stats[4].Time == 0 {
				t.Error("no time was measured")
			}
			if env.Profile.Memory() < stats[2].Memory {
				t.Errorf("the fragment held %d bytes, its join %d", env.Profile.Memory(), stats[2].Memory)
			}
			mustBeEmpty(t, env.Budget)
		})
	}
}

// TestProfileSeesRuntimeFilters checks that meters do not keep runtime filters
// from scans, and that dropped rows are counted there.
func TestProfileSeesRuntimeFilters(t *testing.T) {
	w := newWorld(1)
	schema := opSchema(catalog.BigInt)
	w.schema = schema
	values := make([]int64, 4000)
	for i := range values {
		values[i] = int64(i)
	}
	w.tablets = map[catalog.TabletID][]*columnar.Batch{7: {intBatch(values...)}, 8: {intBatch(5, 70)}}
	scan := func(id catalog.TabletID) planner.Operator {
		return &planner.TabletScan{Table: w.table(), Tablet: id, Projection: []int{0}}
	}
	identity := &planner.ProjectOp{Exprs: []planner.Expr{column(schema, 0)}, Schema: publicSchema(schema)}
	ops := []planner.Operator{scan(7), identity, scan(8), &planner.HashJoin{
		Kind: planner.InnerJoin, On: []planner.JoinKey{{}}, Build: planner.BuildRight, Schema: joinSchema(schema, schema)}}
	stats, rows := profiled(t, w, ops, Env{Profile: NewProfile(true)})
	if len(rows) != 2 || stats[0].Dropped != 3998 || stats[0].Rows != 2 || stats[1].Dropped != 0 {
		t.Errorf("%d rows, %+v", len(rows), stats)
	}
}

// receiver is an exchange that knows its size.
type receiver struct{ *memOp }

func (receiver) ReceivedBytes() int64 { return 1000 }

func TestProfileCountsExchangesAndSpills(t *testing.T) {
	g := newGenerator(3)
	schema := opSchema(catalog.BigInt, catalog.Text)
	w := &fragmentWorld{g: g, schema: schema, sources: map[planner.ExchangeID]Operator{
		0: receiver{&memOp{schema: schema, batches: g.batches(schema, 60000)}},
		1: receiver{&memOp{schema: schema, batches: g.batches(schema, 60000)}},
	}}
	source := func(id planner.ExchangeID) planner.Operator {
		return &planner.ExchangeSource{Exchange: id, Schema: publicSchema(schema)}
	}
	keys := []planner.SortKey{{Column: 0}}
	// A limit makes the sources one input of a sort rather than sorted streams.
	ops := []planner.Operator{source(0), source(1), &planner.LimitOp{Limit: -1}, &planner.MergeSort{Keys: keys, Limit: -1}}
	var total atomic.Int64
	stats, rows := profiled(t, w, ops, Env{
		Budget: NewBudget("query", 1<<20, nil), SpillDir: t.TempDir(), MaxSpill: 64 << 20, Profile: NewProfile(false), Spilled: &total,
	})
	if total.Load() != stats[3].Spilled {
		t.Errorf("%d bytes were spilled, %d by the sort", total.Load(), stats[3].Spilled)
	}
	for i := range 2 {
		if stats[i].Received != 1000 || stats[i].Parts != 1 {
			t.Errorf("exchange %d: %+v", i, stats[i])
		}
	}
	if sum := stats[0].Rows + stats[1].Rows; sum != uint64(len(rows)) || stats[3].Rows != sum {
		t.Errorf("%d rows, %+v", len(rows), stats)
	}
	if s := stats[3]; s.Spilled == 0 || s.Memory == 0 || s.Memory > 4<<20 || stats[2].Spilled != 0 {
		t.Errorf("the sort spilled: %+v", s)
	}
}

// TestNoProfileNoMeters makes sure that ordinary runs carry nothing.
func TestNoProfileNoMeters(t *testing.T) {
	w := newWorld(2)
	ops := []planner.Operator{
		&planner.TabletScan{Table: w.table(), Tablet: 7, Projection: []int{0, 1, 2}},
		&planner.MergeSort{Keys: []planner.SortKey{{}}, Limit: 3},
	}
	root, err := Build(context.Background(), ops, &Env{Tables: w, Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, metered := root.(*rootOp).input.(*meterOp); metered {
		t.Error("an operator is metered without a profile")
	}
	drain(t, root)
}
