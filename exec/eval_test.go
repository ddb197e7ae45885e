package exec

import (
	"flag"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// Property tests draw the same cases in every run unless told otherwise.
func init() { _ = flag.Set("rapid.seed", "1") }

func int32Column(xs ...int32) *columnar.Vector {
	return &columnar.Vector{Type: catalog.Integer, Len: len(xs), Data: columnar.Bytes(xs)}
}

// TestGuards checks that conditions protect expressions that would fail.
func TestGuards(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.Integer}, {Name: "b", Type: catalog.Integer}}, nil)
	batch := &columnar.Batch{Len: 4, Cols: []*columnar.Vector{int32Column(10, 20, 30, 1), int32Column(0, 5, 0, 2)}}
	a, b := columnNamed(schema, "a"), columnNamed(schema, "b")
	quotient := mustBind(t, "/", a, b)
	safe := mustBind(t, "<>", b, value(t, "integer:0"))
	big := mustBind(t, ">", quotient, value(t, "integer:1"))
	guarded := mustBind(t, "and", safe, big)
	run := func(e planner.Expr) *Evaluator {
		ev, err := Compile(e, schema)
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	if got, err := run(guarded).Filter(batch, nil); err != nil || !slices.Equal(got, []int32{1}) {
		t.Errorf("filter: %v, %v", got, err)
	}
	if v, err := run(guarded).Eval(batch); err != nil || !slices.Equal(v.Data, []byte{0, 1, 0, 0}) {
		t.Errorf("eval: %v, %v", v, err)
	}
	orGuarded := mustBind(t, "or", mustBind(t, "not", safe), big)
	if got, err := run(orGuarded).Filter(batch, nil); err != nil || !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("or filter: %v, %v", got, err)
	}
	if v, err := run(orGuarded).Eval(batch); err != nil || !slices.Equal(v.Data, []byte{1, 1, 1, 0}) {
		t.Errorf("or eval: %v, %v", v, err)
	}
	guardedCase := &planner.Case{Whens: []planner.When{{Cond: safe, Then: quotient}}, Else: value(t, "integer:-1"), DataType: catalog.Integer}
	if v, err := run(guardedCase).Eval(batch); err != nil || !slices.Equal(columnar.Values[int32](v), []int32{-1, 4, -1, 0}) {
		t.Errorf("case: %v, %v", v, err)
	}
	first := mustBind(t, "coalesce", a, quotient)
	if _, err := run(first).Eval(batch); err != nil {
		t.Errorf("coalesce: %v", err)
	}
	if _, err := run(quotient).Eval(batch); sqlstate.CodeOf(err) != sqlstate.DivisionByZero {
		t.Errorf("unguarded: %v", err)
	}
	batch.Sel = []int32{1, 3}
	if _, err := run(quotient).Eval(batch); err != nil {
		t.Errorf("unselected rows failed: %v", err)
	}
}

// TestCaseOverText covers results that are assembled from several branches.
func TestCaseOverText(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.Integer}}, nil)
	a := columnNamed(schema, "a")
	text := func(s string) *planner.Literal { return &planner.Literal{Value: s, DataType: catalog.Text} }
	e := &planner.Case{DataType: catalog.Text, Else: &planner.Literal{DataType: catalog.Null}, Whens: []planner.When{
		{Cond: mustBind(t, "=", a, value(t, "integer:1")), Then: text("one")},
		{Cond: mustBind(t, "=", a, value(t, "integer:2")), Then: mustBind(t, "||", text("t"), text("wo"))},
		{Cond: mustBind(t, "<", a, value(t, "integer:3")), Then: &planner.Cast{Arg: a, DataType: catalog.Text}},
	}}
	ev, err := Compile(e, schema)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v, err := ev.Eval(&columnar.Batch{Len: 4, Cols: []*columnar.Vector{int32Column(2, 9, 0, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range v.Len {
			got = append(got, show(v, i))
		}
		if want := []string{"text:two", "text:NULL", "text:0", "text:one"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestInList(t *testing.T) {
	tests := []struct {
		arg    string
		list   []string
		negate bool
		want   string
	}{
		{"integer:1", []string{"integer:2", "integer:1"}, false, "boolean:true"},
		{"integer:3", []string{"integer:2", "integer:1"}, false, "boolean:false"},
		{"integer:3", []string{"integer:2", "integer:NULL"}, false, "boolean:NULL"},
		{"integer:2", []string{"integer:2", "integer:NULL"}, true, "boolean:false"},
		{"integer:3", []string{"integer:2", "integer:NULL"}, true, "boolean:NULL"},
		{"integer:3", []string{"integer:2"}, true, "boolean:true"},
		{"integer:NULL", []string{"integer:2"}, true, "boolean:NULL"},
		{"smallint:9", []string{"smallint:1", "smallint:2", "smallint:3", "smallint:4", "smallint:5", "smallint:6", "smallint:7", "smallint:8", "smallint:9"}, false, "boolean:true"},
		{"bigint:5", []string{"bigint:5"}, false, "boolean:true"},
		{"boolean:true", []string{"boolean:false"}, false, "boolean:false"},
		{"decimal(4,2):1.50", []string{"decimal(2,1):1.5"}, false, "boolean:true"},
		{"decimal(4,2):1.50", []string{"decimal(5,3):1.501"}, false, "boolean:false"},
		{"decimal(22,2):1.50", []string{"decimal(5,3):1.500"}, false, "boolean:true"},
		{"double precision:-0", []string{"double precision:0"}, false, "boolean:true"},
		{"real:NaN", []string{"real:NaN"}, false, "boolean:true"},
		{"text:b", []string{"text:a", "text:b"}, false, "boolean:true"},
		{"text:c", []string{"text:a", "text:b"}, true, "boolean:true"},
		{"date:2024-01-01", []string{"date:2024-01-01"}, false, "boolean:true"},
		{"interval:1 mon", []string{"interval:30 days"}, false, "boolean:true"},
		{"uuid:00000000-0000-0000-0000-000000000001", []string{"uuid:00000000-0000-0000-0000-000000000001"}, false, "boolean:true"},
	}
	for _, c := range tests {
		l := value(t, c.arg)
		in := &planner.InList{Negate: c.negate}
		for _, s := range c.list {
			in.List = append(in.List, value(t, s))
		}
		for _, dict := range []bool{false, true} {
			in.Arg = &planner.Column{Name: "c", DataType: l.DataType, Null: true}
			ev, err := Compile(in, arrow.NewSchema([]arrow.Field{{Name: "c", Type: l.DataType}}, nil))
			if err != nil {
				t.Fatal(err)
			}
			b := &columnar.Batch{Len: 4, Cols: []*columnar.Vector{columnOf(t, l, dict)}}
			v, err := ev.Eval(b)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(v, 3); got != c.want {
				t.Errorf("%s in %v (negate %v): got %s, want %s", c.arg, c.list, c.negate, got, c.want)
			}
			checkFilter(t, ev, b, v)
		}
	}
}

// TestLogicTrees compares random boolean trees with three-valued logic.
func TestLogicTrees(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: catalog.Boolean}, {Name: "y", Type: catalog.Boolean}, {Name: "z", Type: catalog.Boolean}}, nil)
	var tree func(t *rapid.T, depth int) (planner.Expr, func(row [3]int) int)
	tree = func(t *rapid.T, depth int) (planner.Expr, func(row [3]int) int) {
		if depth == 0 || rapid.IntRange(0, 4).Draw(t, "leaf") == 0 {
			k := rapid.IntRange(0, 3).Draw(t, "column")
			if k == 3 {
				return &planner.Literal{DataType: catalog.Boolean}, func([3]int) int { return 1 }
			}
			return &planner.Column{Index: k, DataType: catalog.Boolean, Null: true}, func(row [3]int) int { return row[k] }
		}
		l, fl := tree(t, depth-1)
		if rapid.IntRange(0, 3).Draw(t, "not") == 0 {
			return &planner.Call{Func: "not", Args: []planner.Expr{l}, DataType: catalog.Boolean, Null: true}, func(row [3]int) int { return 2 - fl(row) }
		}
		r, fr := tree(t, depth-1)
		// With 0 false, 1 NULL and 2 true, AND is the minimum and OR the maximum.
		op := rapid.SampledFrom([]string{"and", "or"}).Draw(t, "op")
		return &planner.Call{Func: op, Args: []planner.Expr{l, r}, DataType: catalog.Boolean, Null: true}, func(row [3]int) int {
			if op == "and" {
				return min(fl(row), fr(row))
			}
			return max(fl(row), fr(row))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		e, oracle := tree(t, 4)
		rows := rapid.IntRange(1, 40).Draw(t, "rows")
		b := &columnar.Batch{Len: rows}
		values := make([][3]int, rows)
		for k := range 3 {
			v := &columnar.Vector{Type: catalog.Boolean, Len: rows, Data: make([]byte, rows), Valid: columnar.NewBitmap(rows)}
			for i := range rows {
				values[i][k] = rapid.IntRange(0, 2).Draw(t, "value")
				v.Data[i] = byte(values[i][k] / 2)
				if values[i][k] == 1 {
					columnar.ClearBit(v.Valid, i)
				}
			}
			b.Cols = append(b.Cols, v)
		}
		b.Sel = drawSel(t, rows)
		want := map[int32]string{}
		for i := range rows {
			if b.Sel == nil || slices.Contains(b.Sel, int32(i)) {
				want[int32(i)] = "boolean:" + []string{"false", "NULL", "true"}[oracle(values[i])]
			}
		}
		folded, err := Fold(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []planner.Expr{e, folded} {
			ev, err := Compile(x, schema)
			if err != nil {
				t.Fatal(err)
			}
			requireSameRows(t, ev, b, want, nil)
		}
	})
}

func TestPanicsBecomeErrors(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.Integer}}, nil)
	ev, err := Compile(mustBind(t, "+", columnNamed(schema, "a"), value(t, "integer:1")), schema)
	if err != nil {
		t.Fatal(err)
	}
	broken := &columnar.Batch{Len: 3, Cols: []*columnar.Vector{{Type: catalog.Integer, Len: 3}}}
	if _, err := ev.Eval(broken); sqlstate.CodeOf(err) != sqlstate.InternalError {
		t.Errorf("got %v", err)
	}
}

func TestCompileRejects(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.Integer}}, nil)
	for name, e := range map[string]planner.Expr{
		"parameter":    &planner.Param{Ordinal: 1, DataType: catalog.Integer},
		"function":     &planner.Call{Func: "nosuch", DataType: catalog.Integer},
		"missing cast": &planner.Call{Func: "+", Args: []planner.Expr{value(t, "integer:1"), value(t, "bigint:1")}, DataType: catalog.BigInt},
		"column":       &planner.Column{Index: 1, DataType: catalog.Integer},
		"column type":  &planner.Column{Index: 0, DataType: catalog.Text},
		"bad literal":  &planner.Literal{Value: "x", DataType: catalog.Integer},
		"cast":         &planner.Cast{Arg: value(t, "date:2024-01-01"), DataType: catalog.Boolean},
	} {
		if _, err := Compile(e, schema); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args []arrow.DataType
		code sqlstate.Code
		text string
	}{
		{"uper", []arrow.DataType{catalog.Text}, sqlstate.UndefinedFunction, `"upper"`},
		{"upper", []arrow.DataType{catalog.Integer}, sqlstate.UndefinedFunction, "upper(integer)"},
		{"upper", nil, sqlstate.UndefinedFunction, "upper(text)"},
		{"+", []arrow.DataType{catalog.Boolean, catalog.Integer}, sqlstate.UndefinedFunction, "boolean + integer"},
		{"+", []arrow.DataType{catalog.Null, catalog.Null}, sqlstate.AmbiguousFunction, "not unique"},
		{"=", []arrow.DataType{arrow.ListOf(catalog.Integer), arrow.ListOf(catalog.Integer)}, sqlstate.FeatureNotSupported, "integer[]"},
	} {
		_, err := ResolveScalar(c.name, c.args)
		if sqlstate.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	s, err := ResolveScalar("mod", []arrow.DataType{catalog.SmallInt, catalog.BigInt})
	if err != nil || s.Name != "%" || !arrow.TypeEqual(s.Args[0], catalog.BigInt) || !s.Strict || s.Nullable(false, false) {
		t.Errorf("mod: %+v, %v", s, err)
	}
}

func TestDocs(t *testing.T) {
	for _, d := range FunctionDocs() {
		if d.Doc == "" || len(d.Signatures) == 0 {
			t.Errorf("function %s is not documented", d.Name)
		}
	}
	if !slices.Contains(ScalarNames(), "substr") {
		t.Error("aliases are not listed")
	}
}

func TestFold(t *testing.T) {
	date := &planner.Column{Name: "d", DataType: catalog.Date, Null: true}
	small := &planner.Column{Name: "s", DataType: catalog.SmallInt, Null: true}
	asStamp := &planner.Cast{Arg: date, DataType: catalog.Timestamp}
	lit := func(s string) planner.Expr { return value(t, s) }
	yes, no := lit("boolean:true"), lit("boolean:false")
	isNull := mustBind(t, "is null", date)
	tests := []struct {
		in   planner.Expr
		want planner.Expr
	}{
		{mustBind(t, "+", lit("integer:1"), lit("integer:2")), lit("integer:3")},
		{mustBind(t, "<=", asStamp, mustBind(t, "-", lit("date:1998-12-01"), lit("interval:90 days"))), mustBind(t, "<=", date, lit("date:1998-09-02"))},
		{mustBind(t, "<", asStamp, lit("timestamp(6):1998-12-01 12:00:00")), mustBind(t, "<=", date, lit("date:1998-12-01"))},
		{mustBind(t, ">", lit("timestamp(6):1998-12-01 00:00:00"), asStamp), mustBind(t, "<", date, lit("date:1998-12-01"))},
		{mustBind(t, ">=", asStamp, lit("timestamp(6):1998-12-01 12:00:00")), mustBind(t, ">", date, lit("date:1998-12-01"))},
		{mustBind(t, "=", asStamp, lit("timestamp(6):1998-12-01 12:00:00")), nil},
		{mustBind(t, "=", small, lit("integer:5")), mustBind(t, "=", small, lit("smallint:5"))},
		{mustBind(t, "=", small, lit("integer:70000")), nil},
		{mustBind(t, "/", lit("integer:1"), lit("integer:0")), nil},
		{mustBind(t, "and", yes, isNull), isNull},
		{mustBind(t, "and", isNull, no), no},
		{mustBind(t, "or", isNull, yes), yes},
		{mustBind(t, "or", no, no), no},
		{&planner.Case{Whens: []planner.When{{Cond: no, Then: lit("integer:1")}, {Cond: yes, Then: lit("integer:2")}}, Else: lit("integer:3"), DataType: catalog.Integer}, lit("integer:2")},
		{&planner.InList{Arg: lit("integer:1"), List: []*planner.Literal{value(t, "integer:1")}}, yes},
		{&planner.Cast{Arg: lit("text:2024-01-01"), DataType: catalog.Date}, lit("date:2024-01-01")},
		{&planner.Cast{Arg: lit("text:nope"), DataType: catalog.Date}, nil},
	}
	for _, c := range tests {
		want := c.want
		if want == nil {
			want = c.in
		}
		got, err := Fold(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() || !arrow.TypeEqual(got.Type(), c.in.Type()) {
			t.Errorf("%s folds to %s, want %s", c.in, got, want)
		}
	}
}

func TestCalendar(t *testing.T) {
	check := func(days int64) {
		y, m, d := civil(days)
		fy, fm, fd := civilFar(days)
		if y != fy || m != fm || d != fd || daysOf(y, m, d) != days {
			t.Fatalf("day %d: %d-%d-%d, %d-%d-%d", days, y, m, d, fy, fm, fd)
		}
		at := time.Unix(days*secondsPerDay, 0).UTC()
		if int64(at.Year()) != y || int(at.Month()) != m || at.Day() != d {
			t.Fatalf("day %d: got %d-%d-%d, want %s", days, y, m, d, at)
		}
		wy, w := isoWeek(days)
		if ty, tw := at.ISOWeek(); int64(ty) != wy || tw != w {
			t.Fatalf("day %d: week %d of %d, want %d of %d", days, w, wy, tw, ty)
		}
	}
	for days := int64(-800_000); days < 800_000; days += 7 {
		check(days)
	}
	for days := int64(-30_000); days < 60_000; days++ {
		check(days)
	}
	check(36_524_249 - 719_468)
	check(36_524_250 - 719_468)
}

func TestInt128MatchesBig(t *testing.T) {
	word := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, 1, -1, 10, 1 << 62, -1 << 63, 1<<63 - 1}))
	wide := rapid.Custom(func(t *rapid.T) int128 {
		if rapid.Bool().Draw(t, "short") {
			return int128Of(word.Draw(t, "value"))
		}
		return int128{uint64(word.Draw(t, "low")), word.Draw(t, "high") >> 1}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := wide.Draw(t, "a"), wide.Draw(t, "b"), wide.Draw(t, "c")
		x, y, z := a.big(), b.big(), c.big()
		if back, ok := int128OfBig(x); !ok || back != a {
			t.Fatalf("%s does not survive", x)
		}
		if a.cmp(b) != x.Cmp(y) {
			t.Fatalf("order of %s and %s", x, y)
		}
		product := new(big.Int).Mul(x, y)
		if got, exact := a.mul(b); exact != (product.BitLen() <= 127) && product.BitLen() != 128 || exact && got.big().Cmp(product) != 0 {
			t.Fatalf("%s * %s = %s (%v)", x, y, got.big(), exact)
		}
		if !c.isZero() {
			want, wantOK := divRounded(product, z)
			if got, ok := mulDiv128(a, b, c); ok != wantOK || ok && got != want {
				t.Fatalf("%s * %s / %s: got %s %v, want %s %v", x, y, z, got.big(), ok, want.big(), wantOK)
			}
		}
		if b.hi == 0 && b.lo != 0 {
			q, r := a.divmod64(b.lo)
			if new(big.Int).Quo(x, y).Cmp(q.big()) != 0 || b.lo < 1<<63 && new(big.Int).Rem(x, y).Int64() != r {
				t.Fatalf("%s / %s = %s rest %d", x, y, q.big(), r)
			}
		}
	})
}
