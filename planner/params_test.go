package planner

import (
	"slices"
	"testing"

	"skein/catalog"
)

func param(n int) *Param { return &Param{Ordinal: n, DataType: catalog.BigInt} }

// valued replaces parameters by literals.
func valued(values ...any) Binder {
	return func(e Expr) (Expr, error) {
		return ReplaceParams(e, func(p *Param) (Expr, error) {
			if p.Ordinal > len(values) {
				return nil, invalid("no $%d", p.Ordinal)
			}
			return &Literal{Value: values[p.Ordinal-1], DataType: p.DataType}, nil
		})
	}
}

func cacheWorld(t *testing.T) *world {
	return newWorld(t,
		tableSpec{name: "t", columns: []string{"v bigint", "id bigint"}, hash: []string{"id"}, tablets: ids(1, 2, 3, 4, 5), rows: 100, bytes: 100},
		tableSpec{name: "u", columns: []string{"v bigint", "id bigint"}, tablets: ids(9), rows: 100, bytes: 100})
}

// A plan with open parameters reads the tablets that a plan with their values
// would, and has the same operators once they are given.
func TestOpenPlansArePrunedByValues(t *testing.T) {
	w := cacheWorld(t)
	s := w.scan("t")
	for _, filter := range []Expr{
		call("=", col(s, "id"), param(1)),
		And(call("=", param(1), col(s, "id")), call("<", col(s, "v"), param(2))),
		call("<", col(s, "id"), param(1)),
	} {
		for v := range int64(30) {
			bind := valued(v, v)
			open := &Sort{Input: withFilter(s, filter), Keys: []SortKey{{}}, Limit: -1}
			closed, err := bind(filter)
			if err != nil {
				t.Fatal(err)
			}
			got := distributeOpen(t, w, open, bind)
			want := distributeOpen(t, w, &Sort{Input: withFilter(s, closed), Keys: []SortKey{{}}, Limit: -1}, nil)
			if !slices.Equal(scanned(got), scanned(want)) {
				t.Fatalf("%s with %d: tablets %v, want %v", filter, v, scanned(got), scanned(want))
			}
			for i, f := range got.Fragments {
				ops, err := BindOperators(f.Operators, bind)
				if err != nil {
					t.Fatal(err)
				}
				if OpenOperators(ops) || shape(&Fragment{Operators: ops}) != shape(want.Fragments[i]) {
					t.Errorf("fragment %d of %s: %s", i, filter, shape(f))
				}
			}
			tablets, err := PrunedTablets(open, bind, w)
			if err != nil || !slices.Equal(tablets, append(scanned(want), 0)) {
				t.Errorf("pruned to %v, %v; want %v", tablets, err, scanned(want))
			}
		}
	}
	if tablets, err := PrunedTablets(w.scan("t"), valued(), w); err != nil || len(tablets) != 0 {
		t.Errorf("a scan without parameters is pruned to %v, %v", tablets, err)
	}
	if _, err := Distribute(Description{Root: withFilter(s, call("=", col(s, "id"), param(1)))}, w, w); err == nil {
		t.Error("parameters without values were distributed")
	}
}

func distributeOpen(t *testing.T, w *world, root Node, bind Binder) *Plan {
	t.Helper()
	p, err := Distribute(Description{Root: root, Bind: bind}, w, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReplaceParams(t *testing.T) {
	c := &Column{Index: 0, Name: "a", DataType: catalog.BigInt}
	for _, tc := range []struct {
		e    Expr
		want string
	}{
		{call("+", c, param(1)), call("+", c, lit(5)).String()},
		{&Cast{Arg: param(1), DataType: catalog.Double}, (&Cast{Arg: lit(5), DataType: catalog.Double}).String()},
		{&InList{Arg: param(1), List: []*Literal{lit(1)}, Negate: true}, (&InList{Arg: lit(5), List: []*Literal{lit(1)}, Negate: true}).String()},
		{&Case{Whens: []When{{Cond: call("=", c, param(1)), Then: param(1)}}, Else: param(1), DataType: catalog.BigInt},
			(&Case{Whens: []When{{Cond: call("=", c, lit(5)), Then: lit(5)}}, Else: lit(5), DataType: catalog.BigInt}).String()},
	} {
		got, err := valued(int64(5))(tc.e)
		if err != nil || got.String() != tc.want || HasParams(got) || !HasParams(tc.e) {
			t.Errorf("%s became %v, %v; want %s", tc.e, got, err, tc.want)
		}
	}
	if same, err := valued()(c); err != nil || same != Expr(c) {
		t.Errorf("an expression without parameters became %v, %v", same, err)
	}
	if _, err := valued()(call("+", c, &Case{Whens: []When{{Cond: lit(true), Then: param(3)}}, Else: c, DataType: catalog.BigInt})); err == nil {
		t.Error("a parameter without a value was replaced")
	}
}

func TestParamsSteer(t *testing.T) {
	w := cacheWorld(t)
	s, u := w.scan("t"), w.scan("u")
	join := func(left Node, residual Expr) Node {
		return &Join{Kind: InnerJoin, Left: left, Right: u, On: []JoinKey{{Left: 1, Right: 1}}, Residual: residual}
	}
	for _, tc := range []struct {
		name string
		n    Node
		want bool
	}{
		{"no parameter", join(s, nil), false},
		{"equality", withFilter(s, call("=", col(s, "id"), param(1))), false},
		{"range of one table", withFilter(s, call("<", col(s, "id"), param(1))), false},
		{"a switch", withFilter(s, call("=", param(1), param(2))), true},
		{"a switch beside", withFilter(s, And(call("=", col(s, "id"), lit(1)), call("is null", param(1)))), true},
		{"a switch above", &Filter{Input: &Limit{Input: s, Limit: 3}, Predicate: call("is null", param(1))}, true},
		{"an alternative", withFilter(s, Or(call("is null", param(1)), call("=", col(s, "id"), param(1)))), false},
		{"equality below a join", join(withFilter(s, call("=", param(1), col(s, "id"))), nil), false},
		{"range below a join", join(withFilter(s, call("<", col(s, "id"), param(1))), nil), true},
		{"range in a residual", join(s, call("<", col(s, "v"), param(1))), true},
		{"output", &Project{Input: join(s, nil), Exprs: []Expr{param(1)}, Names: []string{"p"}}, false},
	} {
		if got := ParamsSteer(tc.n); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
