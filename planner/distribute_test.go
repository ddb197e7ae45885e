package planner

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"skein/catalog"
)

// shape is the operator kinds of a fragment, in order.
func shape(f *Fragment) string {
	parts := make([]string, len(f.Operators))
	for i, op := range f.Operators {
		switch op := op.(type) {
		case *TabletScan:
			parts[i] = "scan " + op.Table.Name
		case *HashJoin:
			parts[i] = fmt.Sprintf("%s join build %s", op.Strategy, op.Build)
		case *TopK:
			parts[i] = fmt.Sprintf("topk %d", op.K)
		case *MergeSort:
			parts[i] = fmt.Sprintf("mergesort %d", op.Limit)
		case *LimitOp:
			parts[i] = fmt.Sprintf("limit %d offset %d", op.Limit, op.Offset)
		case *ExchangeSource:
			parts[i] = fmt.Sprintf("source %d", op.Input)
		case *ExchangeSink:
			parts[i] = "sink"
		default:
			parts[i] = strings.ToLower(strings.TrimPrefix(reflect.TypeOf(op).String(), "*planner."))
		}
	}
	return strings.Join(parts, ", ")
}

// checkShapes compares fragments with "place: operators", the place being a
// tablet or c for the coordinator.
func checkShapes(t *testing.T, p *Plan, want ...string) {
	t.Helper()
	var got []string
	for _, f := range p.Fragments {
		place := "c"
		if f.Assignment != Coordinator {
			place = fmt.Sprint(f.Assignment.Tablet)
		}
		got = append(got, place+": "+shape(f))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("fragments:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkEdges compares exchanges with "producer>consumer kind keys part/parts".
func checkEdges(t *testing.T, p *Plan, want ...string) {
	t.Helper()
	var got []string
	for _, x := range p.Exchanges {
		s := fmt.Sprintf("%d>%d %s", x.Producer, x.Consumer, x.Kind)
		if x.Kind == HashRepartitionExchange {
			s += fmt.Sprintf(" %v %d/%d", x.Keys, x.Partition, x.Partitions)
		}
		got = append(got, s)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("exchanges:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func threeTablets(rows, bytes uint64) tableSpec {
	return tableSpec{
		name: "t", columns: []string{"id bigint", "g bigint", "v bigint", "score bigint", "a bigint", "b bigint"},
		hash: []string{"id"}, tablets: ids(1, 2, 3), rows: rows, bytes: bytes,
	}
}

func TestScanRunsOncePerTabletAndGathers(t *testing.T) {
	w := newWorld(t, threeTablets(3000, 3*mib))
	plan := mustDistribute(t, w, w.scan("t"))
	if plan.QueryID != "q" || plan.MetadataVersion != 7 {
		t.Errorf("plan of query %q at version %d", plan.QueryID, plan.MetadataVersion)
	}
	checkShapes(t, plan, "1: scan t, sink", "2: scan t, sink", "3: scan t, sink", "c: source 0, source 0, source 0")
	checkEdges(t, plan, "0>3 merge", "1>3 merge", "2>3 merge")
	for _, f := range plan.Fragments[:3] {
		if f.EstimatedRows != 1000 || f.EstimatedBytes != mib || f.MaxSpill != DefaultMaxSpill {
			t.Errorf("fragment %d: %d rows, %d bytes, spill %d", f.ID, f.EstimatedRows, f.EstimatedBytes, f.MaxSpill)
		}
	}
	if root := plan.Root(); root.ID != 3 || root.EstimatedRows != 3000 {
		t.Errorf("root %d with %d rows", root.ID, root.EstimatedRows)
	}
	for _, x := range plan.Exchanges {
		if x.Fingerprint != plan.Exchanges[0].Fingerprint || x.Fingerprint == 0 {
			t.Errorf("exchange %d has fingerprint %x", x.ID, x.Fingerprint)
		}
	}
	if !plan.Schema.Equal(w.tables["t"].ArrowSchema()) {
		t.Errorf("plan schema %v", plan.Schema)
	}
}

func TestEstimatesRoundUpPerTablet(t *testing.T) {
	w := newWorld(t, threeTablets(100, 1001))
	for _, f := range mustDistribute(t, w, w.scan("t")).Fragments[:3] {
		if f.EstimatedRows != 34 || f.EstimatedBytes != 334 {
			t.Errorf("fragment %d: %d rows, %d bytes", f.ID, f.EstimatedRows, f.EstimatedBytes)
		}
	}
}

func TestSpillAllowanceIsStampedOnEveryFragment(t *testing.T) {
	w := newWorld(t, threeTablets(3000, 3*mib))
	plan := mustDistributeWith(t, w, w.scan("t"), Options{MaxSpill: 1234})
	for _, f := range plan.Fragments {
		if f.MaxSpill != 1234 {
			t.Errorf("fragment %d may spill %d", f.ID, f.MaxSpill)
		}
	}
}

func TestAggregateShapes(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	in := w.scan("t")
	grouped := &Aggregate{Input: in, GroupBy: []int{ordinal(in, "g")}, Calls: []AggCall{countStar(), sumOf(in, "v")}}
	plan := mustDistribute(t, w, grouped)
	checkShapes(t, plan,
		"1: scan t, partialaggregate, sink", "2: scan t, partialaggregate, sink", "3: scan t, partialaggregate, sink",
		"c: source 0, source 0, source 0, finalaggregate")
	checkEdges(t, plan, "0>3 hash-repartition [0] 0/1", "1>3 hash-repartition [0] 0/1", "2>3 hash-repartition [0] 0/1")
	if root := plan.Root(); root.EstimatedRows != 450 || root.EstimatedBytes != 450_000 {
		t.Errorf("grouping estimates %d rows, %d bytes", root.EstimatedRows, root.EstimatedBytes)
	}

	total := &Aggregate{Input: in, Calls: []AggCall{countStar()}}
	plan = mustDistribute(t, w, total)
	checkEdges(t, plan, "0>3 merge", "1>3 merge", "2>3 merge")
	if root := plan.Root(); root.EstimatedRows != 1 || root.EstimatedBytes != 1000 {
		t.Errorf("total estimates %d rows, %d bytes", root.EstimatedRows, root.EstimatedBytes)
	}
}

func TestAggregateOverAggregateStaysOnCoordinator(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	in := w.scan("t")
	inner := &Aggregate{Input: in, GroupBy: []int{1}, Calls: []AggCall{countStar()}}
	outer := &Aggregate{Input: inner, Calls: []AggCall{{Func: Max, Arg: 1, DataType: catalog.BigInt, Name: "max"}}}
	plan := mustDistribute(t, w, outer)
	if got := shape(plan.Root()); got != "source 0, source 0, source 0, finalaggregate, partialaggregate, finalaggregate" {
		t.Error(got)
	}
}

func pair(leftTablets, rightTablets []catalog.TabletID, leftBytes, rightBytes uint64) []tableSpec {
	return []tableSpec{
		{name: "l", columns: []string{"a bigint", "x bigint"}, hash: []string{"a"}, tablets: leftTablets, rows: 8000, bytes: leftBytes},
		{name: "r", columns: []string{"b bigint", "y bigint"}, hash: []string{"b"}, tablets: rightTablets, rows: 9000, bytes: rightBytes},
	}
}

func TestColocatedJoinFusesScans(t *testing.T) {
	w := newWorld(t,
		tableSpec{name: "a", columns: []string{"id bigint"}, hash: []string{"id"}, tablets: ids(1, 2, 3), rows: 6000, bytes: 6 * mib},
		tableSpec{name: "b", columns: []string{"id bigint"}, hash: []string{"id"}, tablets: ids(1, 2, 3), rows: 3000, bytes: 3 * mib})
	plan := mustDistribute(t, w, join(w.scan("a"), w.scan("b"), "id", "id"))
	fused := "scan a, scan b, colocated join build right, sink"
	checkShapes(t, plan, "1: "+fused, "2: "+fused, "3: "+fused, "c: source 0, source 0, source 0")
	checkEdges(t, plan, "0>3 merge", "1>3 merge", "2>3 merge")
	if f := plan.Fragments[0]; f.EstimatedRows != 2000 || f.EstimatedBytes != 2*mib {
		t.Errorf("fused fragment: %d rows, %d bytes", f.EstimatedRows, f.EstimatedBytes)
	}
}

func TestBroadcastReplicatesTheSmallSide(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2, 3), ids(4, 5), 64*mib, mib)...)
	plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "a", "b"))
	big := "scan l, source 0, source 0, broadcast join build right, sink"
	checkShapes(t, plan, "1: "+big, "2: "+big, "3: "+big,
		"4: scan r, sink, sink, sink", "5: scan r, sink, sink, sink", "c: source 0, source 0, source 0")
	checkEdges(t, plan,
		"3>0 broadcast", "3>1 broadcast", "3>2 broadcast", "4>0 broadcast", "4>1 broadcast", "4>2 broadcast",
		"0>5 merge", "1>5 merge", "2>5 merge")
}

func TestBroadcastOfTheLeftSideComesFirst(t *testing.T) {
	w := newWorld(t, pair(ids(1), ids(4, 5), mib, 64*mib)...)
	plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "a", "b"))
	big := "source 0, scan r, broadcast join build left, sink"
	checkShapes(t, plan, "1: scan l, sink, sink", "4: "+big, "5: "+big, "c: source 0, source 0")
}

func TestBroadcastTieAndThreshold(t *testing.T) {
	for _, c := range []struct {
		left, right uint64
		strategy    JoinStrategy
		build       BuildSide
	}{
		{mib, mib, Broadcast, BuildRight},
		{mib, mib + 1, Broadcast, BuildLeft},
		{64 * mib, DefaultBroadcastThreshold, Broadcast, BuildRight},
		{64 * mib, DefaultBroadcastThreshold + 1, Repartition, BuildRight},
		{10 * mib, 64 * mib, Repartition, BuildLeft},
	} {
		w := newWorld(t, pair(ids(1, 2), ids(3, 4, 5), c.left, c.right)...)
		plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "a", "b"))
		for _, f := range plan.Fragments {
			for _, op := range f.Operators {
				if j, ok := op.(*HashJoin); ok && (j.Strategy != c.strategy || j.Build != c.build) {
					t.Errorf("%d and %d bytes: %s build %s", c.left, c.right, j.Strategy, j.Build)
				}
			}
		}
	}
}

func TestRepartitionShufflesBothSides(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2), ids(3, 4, 5), 64*mib, 96*mib)...)
	plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "x", "b"))
	joined := "source 0, source 0, source 1, source 1, source 1, repartition join build left, sink"
	checkShapes(t, plan,
		"1: scan l, sink, sink, sink", "2: scan l, sink, sink, sink",
		"3: scan r, sink, sink, sink", "4: scan r, sink, sink, sink", "5: scan r, sink, sink, sink",
		"3: "+joined, "4: "+joined, "5: "+joined, "c: source 0, source 0, source 0")
	var shuffles []*Exchange
	for _, x := range plan.Exchanges {
		if x.Kind == HashRepartitionExchange {
			shuffles = append(shuffles, x)
		}
	}
	if len(shuffles) != 2*3+3*3 {
		t.Fatalf("%d shuffle edges", len(shuffles))
	}
	for i, x := range shuffles {
		key := 1 // l.x
		if x.Producer >= 2 {
			key = 0 // r.b
		}
		if len(x.Keys) != 1 || x.Keys[0] != key || x.Partition != i%3 || x.Partitions != 3 || x.Consumer != FragmentID(5+i%3) {
			t.Errorf("edge %+v", *x)
		}
	}
	if f := plan.Fragments[5]; f.EstimatedRows != 3000 || f.EstimatedBytes != ceilDiv(160*mib, 3) {
		t.Errorf("join fragment: %d rows, %d bytes", f.EstimatedRows, f.EstimatedBytes)
	}
}

func TestSortAndLimitShapes(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	in := w.scan("t")
	key := func(name string, desc bool) SortKey {
		return SortKey{Column: ordinal(in, name), Descending: desc, NullsFirst: desc}
	}
	for _, c := range []struct {
		name         string
		root         Node
		local, root2 string
		rows         uint64
	}{
		{"one descending key with a limit is a top-k", &Sort{Input: in, Keys: []SortKey{key("score", true)}, Limit: 10}, "topk 10", "topk 10, projectop", 10},
		{"one ascending key with a limit is one, too", &Sort{Input: in, Keys: []SortKey{key("score", false)}, Limit: 10}, "topk 10", "topk 10, projectop", 10},
		{"a descending key without a limit is not", &Sort{Input: in, Keys: []SortKey{key("score", true)}, Limit: -1}, "mergesort -1", "mergesort -1", 900},
		{"a plain sort", &Sort{Input: in, Keys: []SortKey{key("a", false)}, Limit: -1}, "mergesort -1", "mergesort -1", 900},
		{"and so are two keys", &Sort{Input: in, Keys: []SortKey{key("a", false), key("b", true)}, Limit: 5}, "topk 5", "topk 5, projectop", 5},
		{"a limit is pushed and applied again", &Limit{Input: in, Limit: 7}, "limit 7 offset 0", "limit 7 offset 0", 7},
		{"an offset is skipped once", &Limit{Input: in, Limit: 7, Offset: 3}, "limit 10 offset 0", "limit 7 offset 3", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := mustDistribute(t, w, c.root)
			local := "scan t, " + c.local + ", sink"
			checkShapes(t, plan, "1: "+local, "2: "+local, "3: "+local, "c: source 0, source 0, source 0, "+c.root2)
			checkEdges(t, plan, "0>3 merge", "1>3 merge", "2>3 merge")
			if root := plan.Root(); root.EstimatedRows != c.rows || root.EstimatedBytes > c.rows*1000 || root.EstimatedBytes < c.rows*1000-1 {
				t.Errorf("%d rows, %d bytes", root.EstimatedRows, root.EstimatedBytes)
			}
		})
	}
	t.Run("an offset without a limit is not pushed", func(t *testing.T) {
		plan := mustDistribute(t, w, &Limit{Input: in, Limit: -1, Offset: 3})
		checkShapes(t, plan, "1: scan t, sink", "2: scan t, sink", "3: scan t, sink", "c: source 0, source 0, source 0, limit -1 offset 3")
	})
	t.Run("on the coordinator there is no extra hop", func(t *testing.T) {
		count := &Aggregate{Input: in, Calls: []AggCall{countStar()}}
		sorted := &Sort{Input: count, Keys: []SortKey{{Column: 0, Descending: true}}, Limit: 3}
		plan := mustDistribute(t, w, &Limit{Input: sorted, Limit: 5, Offset: 1})
		if len(plan.Fragments) != 4 {
			t.Errorf("%d fragments", len(plan.Fragments))
		}
		if got := shape(plan.Root()); got != "source 0, source 0, source 0, finalaggregate, topk 3, limit 5 offset 1" {
			t.Error(got)
		}
	})
}

func TestFilterAndProjectAreFused(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	in := w.scan("t")
	filter := &Filter{Input: in, Predicate: call("=", col(in, "v"), lit(1))}
	project := &Project{Input: filter, Exprs: []Expr{typed(catalog.BigInt, "+", col(in, "v"), lit(1))}, Names: []string{"w"}}
	plan := mustDistribute(t, w, project)
	checkShapes(t, plan, "1: scan t, filterop, projectop, sink", "2: scan t, filterop, projectop, sink",
		"3: scan t, filterop, projectop, sink", "c: source 0, source 0, source 0")
	if f := plan.Fragments[0]; f.EstimatedRows != 15 || f.EstimatedBytes >= 100_000 {
		t.Errorf("%d rows, %d bytes", f.EstimatedRows, f.EstimatedBytes)
	}
	if plan.Schema.Field(0).Name != "w" {
		t.Error(plan.Schema)
	}
}

func TestValuesRunOnTheCoordinator(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	v := &Values{Fields: w.scan("t", "id").Schema(), Rows: [][]Expr{{lit(1)}, {lit(2)}}}
	checkShapes(t, mustDistribute(t, w, v), "c: valuessource")
	plan := mustDistribute(t, w, join(w.scan("t"), v, "id", "id"))
	checkShapes(t, plan, "1: scan t, sink", "2: scan t, sink", "3: scan t, sink",
		"c: source 0, source 0, source 0, valuessource, gathered join build right")
	plan = mustDistribute(t, w, join(v, w.scan("t"), "id", "id"))
	checkShapes(t, plan, "c: valuessource, source 0, source 0, source 0, gathered join build left",
		"1: scan t, sink", "2: scan t, sink", "3: scan t, sink")
}

func TestTwoCoordinatorStagesJoinInOneFragment(t *testing.T) {
	w := newWorld(t, threeTablets(900, 900_000))
	in := w.scan("t")
	agg := func() Node {
		return &Aggregate{Input: w.scan("t"), GroupBy: []int{ordinal(in, "g")}, Calls: []AggCall{countStar()}}
	}
	plan := mustDistribute(t, w, join(agg(), agg(), "g", "g"))
	if len(plan.Fragments) != 7 || plan.Root().ID != 3 {
		t.Fatal(Explain(plan))
	}
	if got := shape(plan.Root()); got != "source 0, source 0, source 0, finalaggregate, source 1, source 1, source 1, finalaggregate, gathered join build right" {
		t.Error(got)
	}
}

func TestCrossJoinBroadcastsTheSmallerSide(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2), ids(3, 4), 640*mib, 64*mib)...)
	plan := mustDistribute(t, w, &Join{Kind: CrossJoin, Left: w.scan("l"), Right: w.scan("r")})
	big := "scan l, source 0, source 0, broadcast join build right, sink"
	checkShapes(t, plan, "1: "+big, "2: "+big, "3: scan r, sink, sink", "4: scan r, sink, sink", "c: source 0, source 0")
}

func TestNestedJoinKeepsInputsApart(t *testing.T) {
	w := newWorld(t, append(pair(ids(1, 2), ids(3, 4), 64*mib, 64*mib),
		tableSpec{name: "s", columns: []string{"c bigint"}, hash: []string{"c"}, tablets: ids(9), rows: 5, bytes: 100})...)
	shuffled := join(w.scan("l"), w.scan("r"), "x", "y")
	plan := mustDistribute(t, w, join(w.scan("s"), shuffled, "c", "x"))
	want := "source 0, source 1, source 1, source 2, source 2, repartition join build right, broadcast join build left, sink"
	if got := shape(plan.Fragments[5]); got != want {
		t.Errorf("%s\nin %s", got, Explain(plan))
	}
}
