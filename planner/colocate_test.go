package planner

import (
	"fmt"
	"testing"

	"skein/catalog"
)

// strategies lists the joins of a plan in fragment order, once per fragment.
func strategies(p *Plan) []JoinStrategy {
	var out []JoinStrategy
	for _, f := range p.Fragments {
		for _, op := range f.Operators {
			if j, ok := op.(*HashJoin); ok {
				out = append(out, j.Strategy)
			}
		}
	}
	return out
}

func colocationWorld(t *testing.T) *world {
	big := uint64(64 * mib)
	return newWorld(t,
		tableSpec{name: "o", columns: []string{"ok bigint", "ck bigint", "od bigint"}, hash: []string{"ok"}, tablets: ids(11, 12), rows: 1000, bytes: big},
		tableSpec{name: "l", columns: []string{"lk bigint", "pk bigint", "q bigint"}, hash: []string{"lk"}, tablets: ids(21, 22), rows: 4000, bytes: 4 * big},
		tableSpec{name: "x", columns: []string{"xk bigint", "xv bigint"}, hash: []string{"xk"}, tablets: ids(31, 32), rows: 500, bytes: big},
		tableSpec{name: "wide", columns: []string{"k1 bigint", "k2 bigint"}, hash: []string{"k1", "k2"}, tablets: ids(41, 42), rows: 500, bytes: big},
		tableSpec{name: "wide2", columns: []string{"j1 bigint", "j2 bigint"}, hash: []string{"j1", "j2"}, tablets: ids(51, 52), rows: 500, bytes: big},
		tableSpec{name: "small", columns: []string{"k integer"}, hash: []string{"k"}, tablets: ids(61, 62), rows: 500, bytes: big},
		tableSpec{name: "three", columns: []string{"tk bigint"}, hash: []string{"tk"}, tablets: ids(71, 72, 73), rows: 500, bytes: big},
		tableSpec{name: "one", columns: []string{"u bigint"}, tablets: ids(81), rows: 500, bytes: big},
		tableSpec{name: "other", columns: []string{"z bigint"}, tablets: ids(91), rows: 500, bytes: big},
	)
}

func TestColocation(t *testing.T) {
	w := colocationWorld(t)
	project := func(n Node, columns ...int) Node { return selectColumns(n, columns) }
	for _, c := range []struct {
		name  string
		root  Node
		apart [][2]catalog.TabletID
		want  JoinStrategy
	}{
		{name: "same ranges, partition columns paired", root: join(w.scan("o"), w.scan("l"), "ok", "lk"), want: Colocated},
		{name: "further keys do no harm", root: join(w.scan("o"), w.scan("l"), "od", "q", "ok", "lk"), want: Colocated},
		{name: "another key", root: join(w.scan("o"), w.scan("l"), "ck", "lk"), want: Repartition},
		{name: "no common worker", root: join(w.scan("o"), w.scan("l"), "ok", "lk"), apart: [][2]catalog.TabletID{{12, 22}}, want: Repartition},
		{name: "both partition columns", root: join(w.scan("wide"), w.scan("wide2"), "k1", "j1", "k2", "j2"), want: Colocated},
		{name: "crossed partition columns", root: join(w.scan("wide"), w.scan("wide2"), "k1", "j2", "k2", "j1"), want: Repartition},
		{name: "one of two partition columns", root: join(w.scan("wide"), w.scan("wide2"), "k1", "j1"), want: Repartition},
		{name: "another number of tablets", root: join(w.scan("o"), w.scan("three"), "ok", "tk"), want: Repartition},
		{name: "single tablets on one worker", root: join(w.scan("one"), w.scan("other"), "u", "z"), want: Colocated},
		{name: "single tablets apart", root: join(w.scan("one"), w.scan("other"), "u", "z"), apart: [][2]catalog.TabletID{{81, 91}}, want: Repartition},
		{name: "through filter and projection", want: Colocated,
			root: join(&Filter{Input: project(w.scan("o"), 2, 0), Predicate: lit(true)}, project(w.scan("l"), 1, 0), "ok", "lk")},
		{name: "partition column projected away", root: join(project(w.scan("o"), 1), w.scan("l"), "ck", "lk"), want: Repartition},
		{name: "scan without the partition column", root: join(w.scan("o", "ck"), w.scan("l"), "ck", "lk"), want: Repartition},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.apart = make(map[[2]catalog.TabletID]bool)
			for _, pair := range c.apart {
				w.apart[pair] = true
			}
			plan := mustDistribute(t, w, c.root)
			got := strategies(plan)
			if len(got) == 0 || got[0] != c.want {
				t.Errorf("%v, want %s\n%s", got, c.want, Explain(plan))
			}
		})
	}
}

func TestChainsStayColocated(t *testing.T) {
	w := colocationWorld(t)
	for _, c := range []struct {
		name string
		root Node
	}{
		{"on the left key", join(join(w.scan("o"), w.scan("l"), "ok", "lk"), w.scan("x"), "ok", "xk")},
		{"on the right key", join(join(w.scan("o"), w.scan("l"), "ok", "lk"), w.scan("x"), "lk", "xk")},
		{"from the right", join(w.scan("x"), join(w.scan("o"), w.scan("l"), "ok", "lk"), "xk", "lk")},
		{"when only the right key is kept", join(selectColumns(join(w.scan("o"), w.scan("l"), "ok", "lk"), []int{3, 4}), w.scan("x"), "lk", "xk")},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := mustDistribute(t, w, c.root)
			if got := fmt.Sprint(strategies(plan)); got != "[colocated colocated colocated colocated]" {
				t.Errorf("%s\n%s", got, Explain(plan))
			}
			if len(plan.Fragments) != 3 || len(plan.Fragments[0].Tablets()) != 3 {
				t.Error(Explain(plan))
			}
		})
	}
}

func TestBroadcastKeepsThePlacementOfTheLargeSide(t *testing.T) {
	w := colocationWorld(t)
	w.stats[w.tables["x"].ID] = TableStats{Rows: 10, Bytes: 1000}
	first := join(w.scan("x"), w.scan("o"), "xv", "ck")
	plan := mustDistribute(t, w, join(w.scan("l"), first, "lk", "ok"))
	if got := fmt.Sprint(strategies(plan)); got != "[broadcast colocated broadcast colocated]" {
		t.Errorf("%s\n%s", got, Explain(plan))
	}
	want := "scan l, source 0, source 0, scan o, broadcast join build left, colocated join build right, sink"
	if got := shape(plan.Fragments[0]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestColocationNeedsOneCommonWorker(t *testing.T) {
	w := colocationWorld(t)
	// Every two of the three tablets share a worker, but no worker has all.
	hosts := map[string][]catalog.NodeID{"o": {1, 2}, "l": {2, 3}, "x": {1, 3}}
	for name, nodes := range hosts {
		for i := range w.tables[name].Tablets {
			for _, n := range nodes {
				w.tables[name].Tablets[i].Replicas = append(w.tables[name].Tablets[i].Replicas, catalog.Replica{Node: n})
			}
		}
	}
	plan := mustDistribute(t, w, join(join(w.scan("o"), w.scan("l"), "ok", "lk"), w.scan("x"), "ok", "xk"))
	if got := strategies(plan); got[0] != Colocated || got[len(got)-1] != Repartition {
		t.Errorf("%v\n%s", got, Explain(plan))
	}
}

func TestSelfJoinOnThePartitionColumn(t *testing.T) {
	w := colocationWorld(t)
	plan := mustDistribute(t, w, join(w.scan("o"), w.scan("o"), "ok", "ok"))
	if got := fmt.Sprint(strategies(plan)); got != "[colocated colocated]" {
		t.Error(Explain(plan))
	}
	if got := plan.Fragments[0].Tablets(); len(got) != 1 {
		t.Errorf("scans tablets %v", got)
	}
}

func TestRepartitionedStageFusedWithASingleScanRunsAtTheScan(t *testing.T) {
	w := newWorld(t, append(pair(ids(1), ids(2), 64*mib, 64*mib),
		tableSpec{name: "s", columns: []string{"c bigint"}, tablets: ids(9), rows: 5, bytes: 64 * mib})...)
	w.apart = map[[2]catalog.TabletID]bool{{1, 2}: true, {1, 9}: true}
	plan := mustDistribute(t, w, join(join(w.scan("l"), w.scan("r"), "x", "y"), w.scan("s"), "x", "c"))
	if got := fmt.Sprint(strategies(plan)); got != "[repartition colocated]" {
		t.Fatal(Explain(plan))
	}
	if f := plan.Fragments[2]; f.Assignment.Tablet != 9 || len(f.Tablets()) != 1 {
		t.Error(Explain(plan))
	}
}
