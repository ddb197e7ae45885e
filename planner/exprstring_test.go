package planner

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/catalog"
)

func TestExprString(t *testing.T) {
	a := &Column{Index: 0, Name: "a", DataType: catalog.BigInt}
	b := &Column{Index: 1, Name: "B c", DataType: catalog.BigInt}
	p := &Column{Index: 2, Name: "p", DataType: catalog.Boolean}
	op := func(name string, args ...Expr) Expr { return typed(catalog.BigInt, name, args...) }
	of := func(v any, dt arrow.DataType) Expr { return &Literal{Value: v, DataType: dt} }
	zoned, _ := catalog.TimestampOf(3, true)
	for _, c := range []struct {
		e    Expr
		want string
	}{
		{a, "a"}, {b, `"B c"`}, {&Column{Index: 4}, "#4"}, {&Param{Ordinal: 3}, "$3"},
		{op("+", a, op("*", a, lit(2))), "a + a * 2"},
		{op("*", a, op("+", a, lit(2))), "a * (a + 2)"},
		{op("-", op("-", a, lit(1)), lit(2)), "a - 1 - 2"},
		{op("-", a, op("-", lit(1), lit(2))), "a - (1 - 2)"},
		{op("-", a, lit(-1)), "a - -1"},
		{op("-", lit(-1)), "-(-1)"},
		{op("-", op("+", a, a)), "-(a + a)"},
		{call("and", p, call("or", p, p)), "p and (p or p)"},
		{call("or", call("and", p, p), p), "p and p or p"},
		{call("or", p, call("or", p, p)), "p or p or p"},
		{call("and", p, p, p), "p and p and p"},
		{call("not", call("=", a, lit(1))), "not a = 1"},
		{call("not", call("and", p, p)), "not (p and p)"},
		{call("=", call("not", p), p), "(not p) = p"},
		{call("=", call("=", a, a), p), "(a = a) = p"},
		{call("is null", op("+", a, a)), "a + a is null"},
		{call("is not null", call("is null", a)), "(a is null) is not null"},
		{call("like", b, lit("x%'y")), `"B c" like 'x%''y'`},
		{call("not", call("like", b, lit("x"))), `not "B c" like 'x'`},
		{&InList{Arg: op("+", a, a), List: []*Literal{lit(1), lit(nil)}}, "a + a in (1, null)"},
		{&InList{Arg: call("=", a, a), List: []*Literal{lit(true)}, Negate: true}, "(a = a) not in (true)"},
		{&Cast{Arg: op("+", a, a), DataType: catalog.Decimal(10, 2)}, "cast(a + a as decimal(10,2))"},
		{&Case{Whens: []When{{p, a}, {p, lit(1)}}, Else: lit(nil), DataType: catalog.BigInt}, "case when p then a when p then 1 else null end"},
		{op("substring", b, lit(1), lit(2)), `substring("B c", 1, 2)`},
		{op("now"), "now()"},
		{of(int64(9204), catalog.Date), "date '1995-03-15'"},
		{of(int64(3_661_000_001), catalog.Time), "time '01:01:01.000001'"},
		{of(int64(1_000_000), catalog.Timestamp), "timestamp '1970-01-01 00:00:01'"},
		{of(int64(1_500), zoned), "timestamptz '1970-01-01 00:00:01.5Z'"},
		{of(decimal128.FromI64(-105), catalog.Decimal(5, 2)), "-1.05"},
		{op("-", of(decimal128.FromI64(-105), catalog.Decimal(5, 2))), "-(-1.05)"},
		{of(1.5, catalog.Double), "1.5"},
		{of([]byte{1, 255}, catalog.Bytea), `'\x01ff'`},
		{of(make([]byte, 16), catalog.UUID), "uuid '00000000-0000-0000-0000-000000000000'"},
		{of(arrow.MonthDayNanoInterval{Months: 1, Days: 2, Nanoseconds: 1500000000}, catalog.Interval), "interval '1 months 2 days 1.5 seconds'"},
	} {
		if got := c.e.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestNullability(t *testing.T) {
	plain := &Column{DataType: catalog.BigInt}
	null := &Column{DataType: catalog.BigInt, Null: true}
	for _, c := range []struct {
		e    Expr
		want bool
	}{
		{plain, false}, {null, true}, {lit(1), false}, {lit(nil), true}, {&Param{}, true},
		{&Cast{Arg: plain}, false}, {&Cast{Arg: null}, true},
		{&InList{Arg: plain, List: []*Literal{lit(1)}}, false},
		{&InList{Arg: plain, List: []*Literal{lit(nil)}}, true},
		{&InList{Arg: null, List: []*Literal{lit(1)}}, true},
		{&Case{Whens: []When{{lit(true), plain}}, Else: lit(1)}, false},
		{&Case{Whens: []When{{lit(true), plain}}, Else: lit(nil)}, true},
		{&Case{Whens: []When{{lit(true), null}}, Else: lit(1)}, true},
		{And(call("=", null, plain), lit(true)), true},
		{Equal(plain, plain), false},
	} {
		if got := c.e.Nullable(); got != c.want {
			t.Errorf("%s nullable: %t", c.e, got)
		}
	}
	if And() != nil || Or(nil, lit(true)).String() != "true" {
		t.Error("empty connectives")
	}
}
