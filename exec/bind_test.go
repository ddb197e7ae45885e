package exec

import (
	"testing"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

func TestBinder(t *testing.T) {
	column := &planner.Column{Index: 0, Name: "a", DataType: catalog.Integer, Null: true}
	one := &planner.Param{Ordinal: 1, DataType: catalog.BigInt}
	literal := func(v any) *planner.Literal { return &planner.Literal{Value: v, DataType: catalog.BigInt} }
	sum := &planner.Call{Func: "+", DataType: catalog.BigInt, Args: []planner.Expr{one, literal(int64(1))}}
	for _, tc := range []struct {
		name  string
		e     planner.Expr
		value *planner.Literal
		want  string
		code  sqlstate.Code
	}{
		{"constants are folded", sum, literal(int64(4)), "5", ""},
		{"the cast of a column is taken away", &planner.Call{Func: "=", DataType: catalog.Boolean, Args: []planner.Expr{
			&planner.Cast{Arg: column, DataType: catalog.BigInt}, one,
		}}, literal(int64(4)), (&planner.Call{Func: "=", DataType: catalog.Boolean, Args: []planner.Expr{
			column, &planner.Literal{Value: int64(4), DataType: catalog.Integer},
		}}).String(), ""},
		{"another type is converted", sum, &planner.Literal{Value: "41", DataType: catalog.Text}, "42", ""},
		{"a value that cannot be", sum, &planner.Literal{Value: "x", DataType: catalog.Text}, "", sqlstate.InvalidText},
		{"no value", sum, nil, "", sqlstate.UndefinedParameter},
		{"no parameter", column, nil, column.String(), ""},
	} {
		got, err := Binder([]*planner.Literal{nil, tc.value})(tc.e)
		if sqlstate.CodeOf(err) != tc.code || err == nil && got.String() != tc.want {
			t.Errorf("%s: %v, %v; want %s", tc.name, got, err, tc.want)
		}
	}
	if _, err := Binder(nil)(sum); sqlstate.CodeOf(err) != sqlstate.UndefinedParameter {
		t.Errorf("without values: %v", err)
	}
}
