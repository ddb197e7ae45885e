package planner

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

func TestValidateLiteRejects(t *testing.T) {
	w := newWorld(t, threeTablets(1, 1), tableSpec{name: "s", columns: []string{"n text", "b boolean"}, tablets: ids(9)})
	in, s := w.scan("t"), w.scan("s")
	badColumn := &Column{Index: 17, Name: "x", DataType: catalog.BigInt}
	for _, c := range []struct {
		node Node
		want string
	}{
		{nil, "no root"},
		{&Scan{}, "scan needs a table"},
		{&Scan{Table: &catalog.Table{}}, "scan needs a table"},
		{&Scan{Table: w.tables["t"], Projection: []int{6}}, "projects column 6 of 6"},
		{withFilter(in, col(in, "v")), "not boolean"},
		{withFilter(in, &Column{Index: 0, DataType: catalog.Text}), "read as"},
		{&Filter{Predicate: lit(true)}, "filter needs an input"},
		{&Filter{Input: in}, "missing"},
		{&Filter{Input: in, Predicate: call("=", badColumn, lit(1))}, "column 17 of 6"},
		{&Filter{Input: in, Predicate: call("=", col(in, "v"), &Param{Ordinal: 2, DataType: catalog.BigInt})}, "$2 has no value"},
		{&Project{Input: in, Exprs: []Expr{lit(1)}}, "1 expressions and 0 names"},
		{&Project{Input: in, Exprs: []Expr{&Cast{Arg: badColumn, DataType: catalog.Text}}, Names: []string{"x"}}, "column 17"},
		{&Aggregate{Input: in, Calls: []AggCall{{Func: Sum, Arg: -1, DataType: catalog.BigInt}}}, "sum needs a column"},
		{&Aggregate{Input: in, Calls: []AggCall{{Func: Avg, Arg: -1, DataType: catalog.Double}}}, "avg needs a column"},
		{&Aggregate{Input: in, Calls: []AggCall{{Func: Count, Arg: 6, DataType: catalog.BigInt}}}, "count reads column 6"},
		{&Aggregate{Input: in, Calls: []AggCall{{Func: "median", Arg: 0, DataType: catalog.BigInt}}}, `unknown aggregate "median"`},
		{&Aggregate{Input: in, GroupBy: []int{-1}}, "groups by column -1"},
		{&Join{Kind: InnerJoin, Left: in, Right: in}, "join needs at least one key"},
		{&Join{Kind: CrossJoin, Left: in, Right: in, On: []JoinKey{{}}}, "cross join has keys"},
		{&Join{Kind: "outer", Left: in, Right: in, On: []JoinKey{{}}}, `unknown join kind "outer"`},
		{&Join{Kind: InnerJoin, Left: in, Right: in, On: []JoinKey{{Left: 0, Right: 6}}}, "join key 0 = 6"},
		{&Join{Kind: InnerJoin, Left: in, Right: s, On: []JoinKey{{}}}, "compares bigint with text"},
		{&Join{Kind: InnerJoin, Left: in}, "join needs an input"},
		{&Join{Kind: InnerJoin, Left: in, Right: in, Residual: lit(3)}, "not boolean"},
		{&Sort{Input: in, Limit: -1}, "sort needs at least one key"},
		{&Sort{Input: in, Keys: []SortKey{{Column: 9}}, Limit: -1}, "sort by column 9"},
		{&Sort{Input: in, Keys: []SortKey{{}}, Limit: -2}, "may not be negative"},
		{&Limit{Input: in, Limit: -2}, "neither may be negative"},
		{&Limit{Input: in, Limit: 1, Offset: -1}, "neither may be negative"},
		{&Values{}, "values need a schema"},
		{&Values{Fields: s.Schema(), Rows: [][]Expr{{lit("a")}}}, "has 1 columns instead of 2"},
		{&Values{Fields: s.Schema(), Rows: [][]Expr{{lit("a"), lit(1)}}}, "is bigint instead of boolean"},
	} {
		err := ValidateLite(c.node)
		var invalid *InvalidPlanError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %q", c.node, err, c.want)
		}
		if sqlstate.CodeOf(err) != sqlstate.InternalError {
			t.Errorf("%v has code %s", err, sqlstate.CodeOf(err))
		}
		if _, err := Distribute(Description{Root: c.node}, w, w); !errors.As(err, &invalid) {
			t.Errorf("distributing %T: %v", c.node, err)
		}
		if _, err := Optimize(c.node, w); !errors.As(err, &invalid) && !strings.Contains(c.want, "no value") {
			t.Errorf("optimizing %T: %v", c.node, err)
		}
	}
}

func TestUnknownTableAndEmptyLayout(t *testing.T) {
	w := newWorld(t, tableSpec{name: "e", columns: []string{"id bigint"}, hash: []string{"id"}})
	elsewhere := newWorld(t, tableSpec{name: "x", columns: []string{"id bigint"}}, tableSpec{name: "nope", columns: []string{"id bigint"}, tablets: ids(3)})
	_, err := Distribute(Description{Root: elsewhere.scan("nope")}, w, w)
	var unknown *UnknownTableError
	if !errors.As(err, &unknown) || unknown.Table != "nope" || sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
		t.Error(err)
	}
	_, err = Optimize(join(elsewhere.scan("nope"), elsewhere.scan("nope"), "id", "id"), w)
	if !errors.As(err, &unknown) {
		t.Error(err)
	}
	for _, root := range []Node{w.scan("e"), join(w.scan("e"), w.scan("e"), "id", "id")} {
		_, err = Distribute(Description{Root: root}, w, w)
		var empty *EmptyLayoutError
		if !errors.As(err, &empty) || empty.Table != "e" || sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Error(err)
		}
	}
}

func TestPartialSchema(t *testing.T) {
	in := arrow.NewSchema([]arrow.Field{
		{Name: "g", Type: catalog.Text, Nullable: true}, {Name: "i", Type: catalog.Integer}, {Name: "d", Type: catalog.Decimal(15, 2)}, {Name: "r", Type: catalog.Real},
	}, nil)
	calls := []AggCall{{Func: Count, Arg: -1}, {Func: Sum, Arg: 1}, {Func: Sum, Arg: 2}, {Func: Avg, Arg: 3}, {Func: Min, Arg: 0}, {Func: Avg, Arg: 1}}
	want := []arrow.Field{
		{Name: "g", Type: catalog.Text, Nullable: true},
		{Name: "__partial_0", Type: catalog.BigInt},
		{Name: "__partial_1", Type: catalog.Decimal(38, 0), Nullable: true},
		{Name: "__partial_2", Type: catalog.Decimal(38, 2), Nullable: true},
		{Name: "__partial_3_sum", Type: catalog.Double, Nullable: true},
		{Name: "__partial_3_count", Type: catalog.BigInt},
		{Name: "__partial_4", Type: catalog.Text, Nullable: true},
		{Name: "__partial_5_sum", Type: catalog.Decimal(38, 0), Nullable: true},
		{Name: "__partial_5_count", Type: catalog.BigInt},
	}
	if got := PartialSchema(in, []int{0}, calls); !got.Equal(arrow.NewSchema(want, nil)) {
		t.Error(got)
	}
}

func TestNodeSchemas(t *testing.T) {
	w := newWorld(t, tableSpec{name: "s", columns: []string{"n text?", "b boolean"}, tablets: ids(9)})
	s := w.scan("s")
	agg := &Aggregate{Input: s, GroupBy: []int{0}, Calls: []AggCall{
		{Func: Count, Arg: 0, DataType: catalog.BigInt, Name: "c"}, {Func: Max, Arg: 1, DataType: catalog.Boolean, Name: "m"}}}
	want := []arrow.Field{{Name: "n", Type: catalog.Text, Nullable: true}, {Name: "c", Type: catalog.BigInt}, {Name: "m", Type: catalog.Boolean, Nullable: true}}
	if !agg.Schema().Equal(arrow.NewSchema(want, nil)) {
		t.Error(agg.Schema())
	}
	if got := join(s, agg, "n", "n").Schema().NumFields(); got != 5 {
		t.Errorf("join has %d columns", got)
	}
	if len(s.Inputs()) != 0 || len(agg.Inputs()) != 1 || len(join(s, agg, "n", "n").Inputs()) != 2 {
		t.Error("inputs")
	}
}
