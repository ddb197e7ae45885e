package planner

import (
	"strings"
	"testing"
)

func TestGroupKeysThatOthersDetermine(t *testing.T) {
	w := abcWorld(t)
	a, b := w.scan("a", "a1", "a2", "a3"), w.scan("b", "b1", "b2")
	inner := join(a, b, "a2", "b1")
	outer := &Join{Kind: LeftJoin, Left: a, Right: b, On: inner.On}
	shifted := computed(w.scan("b", "b1", "b2"), "next", typed(b.Schema().Field(0).Type, "coalesce", col(b, "b2"), lit(1)), "b1", "b2")
	filledIn := &Join{Kind: LeftJoin, Left: a, Right: shifted, On: inner.On}
	group := func(in Node, columns ...string) Node {
		return &Aggregate{Input: in, GroupBy: by(in, columns...), Calls: []AggCall{countStar()}}
	}
	for name, c := range map[string]struct {
		root Node
		want string // the aggregate
	}{
		"key":                       {group(a, "a1", "a3"), "Aggregate [any_value(a3), count(*)] by a1"},
		"key last":                  {group(a, "a2", "a1"), "Aggregate [any_value(a2), count(*)] by a1"},
		"no key":                    {group(a, "a2", "a3"), "Aggregate [count(*)] by a2, a3"},
		"equal by a join":           {group(inner, "a2", "b1", "b2"), "Aggregate [any_value(b1), any_value(b2), count(*)] by a2"},
		"through another table":     {group(inner, "a1", "b2"), "Aggregate [any_value(b2), count(*)] by a1"},
		"outer joins equate not":    {group(outer, "a2", "b1"), "Aggregate [count(*)] by a2, b1"},
		"key of the filled-in side": {group(outer, "b1", "b2"), "Aggregate [any_value(b2), count(*)] by b1"},
		"filled-in rows are NULL":   {group(filledIn, "b2", "next"), "Aggregate [count(*)] by b2, next"},
		"an expression of another":  {group(shifted, "b2", "next"), "Aggregate [any_value(next), count(*)] by b2"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Optimize(c.root, w)
			if err != nil {
				t.Fatal(err)
			}
			for {
				p, ok := n.(*Project)
				if !ok {
					break
				}
				n = p.Input
			}
			agg, ok := n.(*Aggregate)
			if !ok {
				t.Fatalf("no aggregate in\n%s", ExplainLite(n))
			}
			if got, _, _ := strings.Cut(ExplainLite(agg), "\n"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
