package worker

import (
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
	"skein/planner"
	"skein/storage"
)

func TestPredicates(t *testing.T) {
	table := &catalog.Table{Columns: []catalog.Column{
		{Name: "skipped", Type: catalog.Text}, {Name: "small", Type: catalog.SmallInt}, {Name: "price", Type: catalog.Decimal(12, 2)},
		{Name: "name", Type: catalog.Text}, {Name: "day", Type: catalog.Date}, {Name: "x", Type: catalog.Double}, {Name: "span", Type: catalog.Interval},
		{Name: "big", Type: catalog.BigInt},
	}}
	column := func(i int) *planner.Column {
		return &planner.Column{Index: i - 1, Name: table.Columns[i].Name, DataType: table.Columns[i].Type}
	}
	lit := func(v any, dt arrow.DataType) *planner.Literal { return &planner.Literal{Value: v, DataType: dt} }
	call := func(f string, args ...planner.Expr) planner.Expr {
		return &planner.Call{Func: f, Args: args, DataType: catalog.Boolean}
	}
	cast := func(e planner.Expr, dt arrow.DataType) planner.Expr { return &planner.Cast{Arg: e, DataType: dt} }
	is := func(c int, op storage.Op, values ...any) []storage.Predicate {
		return []storage.Predicate{{Column: c, Op: op, Values: values}}
	}
	dec := decimal128.FromI64
	for name, test := range map[string]struct {
		filter planner.Expr
		want   []storage.Predicate
	}{
		"none":                    {nil, nil},
		"same type":               {call("<", column(7), lit(int64(5), catalog.BigInt)), is(7, storage.OpLess, int64(5))},
		"flipped":                 {call("<", lit(int64(5), catalog.BigInt), column(7)), is(7, storage.OpGreater, int64(5))},
		"text":                    {call("=", column(3), lit("x", catalog.Text)), is(3, storage.OpEqual, "x")},
		"date":                    {call(">=", column(4), lit(int64(9000), catalog.Date)), is(4, storage.OpGreaterEqual, int64(9000))},
		"narrow constant":         {call("=", column(7), lit(int64(5), catalog.Integer)), is(7, storage.OpEqual, int64(5))},
		"widened column":          {call("<=", cast(column(1), catalog.BigInt), lit(int64(300), catalog.BigInt)), is(1, storage.OpLessEqual, int64(300))},
		"out of the column":       {call("<=", cast(column(1), catalog.BigInt), lit(int64(70_000), catalog.BigInt)), nil},
		"narrowed column":         {call("=", cast(column(7), catalog.Integer), lit(int64(1), catalog.Integer)), nil},
		"decimal rescaled":        {call("=", column(2), lit(dec(15), catalog.Decimal(3, 1))), is(2, storage.OpEqual, dec(150))},
		"decimal of a whole":      {call("=", column(2), lit(int64(3), catalog.Integer)), is(2, storage.OpEqual, dec(300))},
		"decimal in between":      {call("=", column(2), lit(dec(12345), catalog.Decimal(6, 3))), nil},
		"widened decimal":         {call(">", cast(column(2), catalog.Decimal(20, 4)), lit(dec(10_000), catalog.Decimal(20, 4))), is(2, storage.OpGreater, dec(100))},
		"integer as decimal":      {call(">", cast(column(7), catalog.Decimal(21, 2)), lit(dec(500), catalog.Decimal(21, 2))), is(7, storage.OpGreater, int64(5))},
		"integer as text":         {call("=", cast(column(7), catalog.Text), lit("1", catalog.Text)), nil},
		"null":                    {call("=", column(7), lit(nil, catalog.BigInt)), nil},
		"nan":                     {call("<", column(5), lit(nan(), catalog.Double)), nil},
		"double":                  {call("<", column(5), lit(1.5, catalog.Double)), is(5, storage.OpLess, 1.5)},
		"integer against double":  {call("<", column(5), lit(int64(1), catalog.BigInt)), nil},
		"interval":                {call("=", column(6), lit(arrow.MonthDayNanoInterval{Days: 30}, catalog.Interval)), nil},
		"is null":                 {call("is null", column(3)), is(3, storage.OpIsNull)},
		"is not null":             {call("is not null", column(3)), is(3, storage.OpIsNotNull)},
		"not":                     {call("not", call("=", column(3), lit("x", catalog.Text))), nil},
		"or":                      {call("or", call("=", column(3), lit("x", catalog.Text)), call("is null", column(3))), nil},
		"two columns":             {call("=", column(7), column(7)), nil},
		"function":                {call("like", column(3), lit("x%", catalog.Text)), nil},
		"in":                      {&planner.InList{Arg: column(3), List: []*planner.Literal{lit("a", catalog.Text), lit(nil, catalog.Text), lit("b", catalog.Text)}}, is(3, storage.OpIn, "a", "b")},
		"not in":                  {&planner.InList{Arg: column(3), Negate: true, List: []*planner.Literal{lit("a", catalog.Text)}}, nil},
		"in something impossible": {&planner.InList{Arg: column(2), List: []*planner.Literal{lit(dec(1), catalog.Decimal(6, 3))}}, nil},
		"and": {call("and", call(">", column(7), lit(int64(1), catalog.BigInt)), call("and", call("random", column(7)), call("<", column(7), lit(int64(9), catalog.BigInt)))),
			append(is(7, storage.OpGreater, int64(1)), is(7, storage.OpLess, int64(9))...)},
	} {
		got := predicates(&planner.TabletScan{Table: table, Projection: []int{1, 2, 3, 4, 5, 6, 7}, Filter: test.filter})
		if !reflect.DeepEqual(got, test.want) && (len(got) > 0 || len(test.want) > 0) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}
