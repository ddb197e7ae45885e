package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

func TestPlanNavigation(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2, 3), ids(4, 5), 64*mib, mib)...)
	plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "a", "b"))
	var into, from []string
	for _, x := range plan.ExchangesInto(0) {
		into = append(into, fmt.Sprint(x.ID, "<", x.Producer))
	}
	for _, x := range plan.ExchangesFrom(3) {
		from = append(from, fmt.Sprint(x.ID, ">", x.Consumer))
	}
	if fmt.Sprint(into, from) != "[0<3 3<4] [0>0 1>1 2>2]" {
		t.Error(into, from)
	}
	if plan.Fragment(2).ID != 2 || plan.Fragment(6) != nil || plan.Root().ID != 5 || (&Plan{}).Root() != nil {
		t.Error("fragments")
	}
}

func TestFingerprintDependsOnNamesAndTheirBounds(t *testing.T) {
	of := func(names ...string) uint64 {
		var fields []arrow.Field
		for _, n := range names {
			fields = append(fields, arrow.Field{Name: n, Type: catalog.BigInt})
		}
		return fingerprint(arrow.NewSchema(fields, nil))
	}
	if of("a", "b") == of("b", "a") || of("ab", "c") == of("a", "bc") || of("a") == of("a", "") {
		t.Error("fingerprints")
	}
	if of() != 0xcbf29ce484222325 {
		t.Errorf("FNV-1a of nothing is %x", of())
	}
}

func TestCatalogLocator(t *testing.T) {
	replicas := func(nodes ...catalog.NodeID) (out []catalog.Replica) {
		for _, n := range nodes {
			out = append(out, catalog.Replica{ID: uint64(n), Node: n})
		}
		return out
	}
	known := &catalog.Table{ID: 1, Name: "t", Partitioning: catalog.Partitioning{Kind: catalog.Hash, Buckets: 2, Columns: []int{0}},
		Tablets: []catalog.Tablet{{ID: 5, Replicas: replicas(1, 2)}, {ID: 6, Replicas: replicas(3)}, {ID: 7, Replicas: replicas(2, 3)}}}
	l := NewCatalogLocator(known)
	if tablets, err := l.Tablets(known); err != nil || len(tablets) != 3 {
		t.Error(tablets, err)
	}
	if p, err := l.Partitioning(known); err != nil || p.Buckets != 2 {
		t.Error(p, err)
	}
	if l.SameNode(5, 6) || !l.SameNode(5, 7) || !l.SameNode(7, 6) || !l.SameNode(6, 6) || l.SameNode(5, 99) {
		t.Error("same node")
	}
	var unknown *UnknownTableError
	if _, err := l.Tablets(&catalog.Table{ID: 2, Name: "gone"}); !errors.As(err, &unknown) || unknown.Table != "gone" {
		t.Error(err)
	}
	if _, err := l.Partitioning(&catalog.Table{ID: 2, Name: "gone"}); !errors.As(err, &unknown) {
		t.Error(err)
	}
}

func TestValidatePlanRejects(t *testing.T) {
	w := newWorld(t, pair(ids(1, 2), ids(4, 5), 64*mib, mib)...)
	for _, c := range []struct {
		name  string
		spoil func(p *Plan)
		want  string
	}{
		{"fragment id", func(p *Plan) { p.Fragments[1].ID = 7 }, "has id 7"},
		{"exchange id", func(p *Plan) { p.Exchanges[1].ID = 7 }, "has id 7"},
		{"consumer", func(p *Plan) { p.Exchanges[0].Consumer = 50 }, "to 50 of 5"},
		{"partition", func(p *Plan) { p.Exchanges[0].Partition = 1 }, "partition 1 of 1"},
		{"missing stream", func(p *Plan) { p.Fragments[0].Operators = p.Fragments[0].Operators[1:] }, "finds 1 streams instead of 2"},
		{"missing sink", func(p *Plan) { p.Fragments[2].Operators = p.Fragments[2].Operators[:1] }, "do not agree"},
		{"operator after sink", func(p *Plan) { p.Fragments[0].Operators = append(p.Fragments[0].Operators, &LimitOp{}) }, "after a sink"},
		{"other schema", func(p *Plan) { p.Exchanges[0].Schema = w.scan("l", "x").Schema() }, "of that schema"},
		{"foreign source", func(p *Plan) {
			p.Fragments[4].Operators = append(p.Fragments[4].Operators, &ExchangeSource{Exchange: 0, Schema: p.Exchanges[0].Schema})
		}, "to consume"},
		{"two streams", func(p *Plan) {
			p.Fragments[4].Operators = append(p.Fragments[4].Operators, &ValuesSource{Schema: p.Schema})
		}, "leaves 2 streams"},
		{"root on a tablet", func(p *Plan) { p.Fragments[4].Assignment.Tablet = 3 }, "runs on tablet 3"},
		{"two roots", func(p *Plan) {
			p.Fragments = append(p.Fragments, &Fragment{ID: 5, Operators: []Operator{&ValuesSource{Schema: p.Schema}}})
		}, "2 root fragments"},
	} {
		plan := mustDistribute(t, w, join(w.scan("l"), w.scan("r"), "x", "b"))
		c.spoil(plan)
		err := ValidatePlan(plan)
		var invalid *InvalidPlanError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if Explain(plan) == "" { // printing must survive a broken plan
			t.Error("nothing explained")
		}
	}
}

func TestPlansAreReproducible(t *testing.T) {
	w := tpchWorld(t, 3)
	for name, root := range tpchQueries(w) {
		var first string
		for range 3 {
			n, err := Optimize(root, w)
			if err != nil {
				t.Fatal(err)
			}
			text := Explain(mustDistribute(t, w, n))
			if first == "" {
				first = text
			}
			if text != first {
				t.Errorf("%s is planned in two ways:\n%s\n%s", name, first, text)
			}
		}
	}
}
