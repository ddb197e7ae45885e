package exec

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// samples are texts of values, edges included, from which random columns are
// drawn by casting.
func samples(dt arrow.DataType) []string {
	switch kindOf(dt) {
	case kBool:
		return []string{"true", "false"}
	case kInt2:
		return []string{"0", "1", "-1", "7", "32767", "-32768"}
	case kInt4:
		return []string{"0", "1", "-1", "3", "12", "2147483647", "-2147483648"}
	case kInt8:
		return []string{"0", "1", "-1", "3", "100000", "9223372036854775807", "-9223372036854775808"}
	case kReal, kDouble:
		return []string{"0", "-0", "1", "-1.5", "2.5", "1e30", "NaN", "Infinity", "-Infinity"}
	case kDecimal:
		return []string{"0", "1", "-1.25", "0.05", "12.34", "99.99", "-99.99"}
	case kText:
		return []string{"", "a", "abc", "ABC", "héllo wörld", "a%c", "%b%", "_", "year", "day", "  x  ", "hour"}
	case kBytea:
		return []string{"", "ab", `\x00ff`}
	case kDate:
		return []string{"1970-01-01", "1994-02-28", "2024-02-29", "1999-12-31", "0001-01-01 BC", "2262-04-12"}
	case kTime:
		return []string{"00:00:00", "12:34:56.789", "23:59:59.999999"}
	case kTimestamp, kTimestampTZ:
		return []string{"1970-01-01 00:00:00", "1969-12-31 23:59:59", "2024-02-29 12:34:56", "1900-01-01 00:00:01"}
	case kInterval:
		return []string{"0 days", "1 mon", "-1 year 2 days", "30 days", "25:00:00", "1 day -00:00:01"}
	case kUUID:
		return []string{"00000000-0000-0000-0000-000000000000", "ffffffff-0000-0000-0000-000000000001"}
	}
	return nil
}

// typesFor are the concrete types a parameter is tried with.
func typesFor(k kind) []arrow.DataType {
	short, long := catalog.Decimal(4, 2), catalog.Decimal(22, 3)
	numbers := []arrow.DataType{catalog.SmallInt, catalog.Integer, catalog.BigInt, catalog.Real, catalog.Double, short, long}
	switch k {
	case pNumber:
		return numbers
	case pSame, pCompared, pAny, pPrintable:
		return append(numbers, catalog.Boolean, catalog.Text, catalog.Bytea, catalog.Date, catalog.Time,
			catalog.Timestamp, catalog.Interval, catalog.UUID)
	case kDecimal:
		return []arrow.DataType{short, long}
	case kTimestamp:
		seconds, _ := catalog.TimestampOf(0, false)
		return []arrow.DataType{catalog.Timestamp, seconds}
	}
	return []arrow.DataType{typeOfKind(k)}
}

// drawLiteral draws a value of a type, or NULL.
func drawLiteral(t *rapid.T, dt arrow.DataType) *planner.Literal {
	if rapid.IntRange(0, 5).Draw(t, "null") == 0 {
		return &planner.Literal{DataType: dt}
	}
	text := rapid.SampledFrom(samples(dt)).Draw(t, "value")
	l, err := EvalConst(&planner.Cast{Arg: &planner.Literal{Value: text, DataType: catalog.Text}, DataType: dt})
	if err != nil {
		t.Fatalf("sample %q of %s: %v", text, dt, err)
	}
	return l
}

// drawColumn draws a column as one literal per row, and its vector: plain,
// constant or, for text, with a dictionary.
func drawColumn(t *rapid.T, dt arrow.DataType, rows int) ([]*planner.Literal, *columnar.Vector) {
	lits := make([]*planner.Literal, rows)
	shape := rapid.IntRange(0, 2).Draw(t, "shape")
	if shape == 0 {
		l := drawLiteral(t, dt)
		for i := range lits {
			lits[i] = l
		}
		v, err := ConstVector(l, rows)
		if err != nil {
			t.Fatal(err)
		}
		return lits, v
	}
	b, err := columnar.NewBuilder(catalog.PhysicalType(dt))
	if err != nil {
		t.Fatal(err)
	}
	for i := range lits {
		lits[i] = drawLiteral(t, dt)
		v, err := ConstVector(lits[i], 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.AppendRow(v, 0); err != nil {
			t.Fatal(err)
		}
	}
	v := b.Finish()
	if k := kindOf(dt); shape == 2 && (k == kText || k == kBytea) {
		return lits, encode(v)
	}
	return lits, v
}

// encode gives a text vector a dictionary.
func encode(v *columnar.Vector) *columnar.Vector {
	b, _ := columnar.NewBuilder(v.Type)
	seen := map[string]int32{}
	out := &columnar.Vector{Type: v.Type, Len: v.Len, Valid: v.Valid, Codes: make([]int32, v.Len)}
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		s := string(v.BytesAt(i))
		code, ok := seen[s]
		if !ok {
			code = int32(b.Len())
			seen[s] = code
			_ = b.AppendBytes([]byte(s))
		}
		out.Codes[i] = code
	}
	out.Dict = b.Finish()
	return out
}

func drawSel(t *rapid.T, rows int) []int32 {
	if rapid.Bool().Draw(t, "all") {
		return nil
	}
	sel := []int32{}
	keep := rapid.IntRange(1, 8).Draw(t, "density")
	for i := range rows {
		if rapid.IntRange(1, 8).Draw(t, "keep") <= keep {
			sel = append(sel, int32(i))
		}
	}
	return sel
}

func functionNames() []string {
	names := []string{}
	for name, f := range functions() {
		if f.volatile() == Volatile {
			continue // no oracle knows what they draw
		}
		if name == f.name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// drawTypes chooses types for an overload's parameters.
func drawTypes(t *rapid.T, o *overload) []arrow.DataType {
	params := slices.Clone(o.params)
	if o.variadic && rapid.Bool().Draw(t, "more") {
		params = append(params, params[len(params)-1])
	}
	var types []arrow.DataType
	for i, p := range params {
		dt := rapid.SampledFrom(typesFor(p)).Draw(t, "type")
		if i > 0 && p.unifies() && p != pNumber {
			dt = types[0] // most pairs of types do not compare
		}
		types = append(types, dt)
	}
	return types
}

// TestVectorizedMatchesRows does so for every function and operator of the
// registry.
func TestVectorizedMatchesRows(t *testing.T) {
	for _, name := range functionNames() {
		f := functions()[name]
		for k := range f.overloads {
			o := &f.overloads[k]
			t.Run(fmt.Sprintf("%s/%d", name, k), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { matchesRows(t, f, drawTypes(t, o)) })
			})
		}
	}
}

// matchesRows evaluates a function over random columns, representations and
// selections, and compares with one evaluation per row over constants.
func matchesRows(t *rapid.T, f *function, types []arrow.DataType) {
	if _, err := ResolveScalar(f.name, types); err != nil {
		return // e.g. % over doubles, products with too large a scale
	}
	rows := rapid.IntRange(1, 40).Draw(t, "rows")
	cols := make([][]*planner.Literal, len(types))
	var fields []arrow.Field
	var args []planner.Expr
	b := &columnar.Batch{Len: rows}
	for k, dt := range types {
		lits, v := drawColumn(t, dt, rows)
		cols[k] = lits
		if v.Const && rapid.Bool().Draw(t, "literal") {
			args = append(args, lits[0])
			continue
		}
		args = append(args, &planner.Column{Index: len(fields), Name: "c", DataType: dt, Null: true})
		fields = append(fields, arrow.Field{Name: "c", Type: dt, Nullable: true})
		b.Cols = append(b.Cols, v)
	}
	e, err := bind(f.name, args...)
	if err != nil {
		t.Fatal(err)
	}
	b.Sel = drawSel(t, rows)
	want, wantErr := rowByRow(t, f.name, cols, b)
	ev, err := Compile(e, arrow.NewSchema(fields, nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run reuses memory and caches
		requireSameRows(t, ev, b, want, wantErr)
	}
}

// rowByRow is the oracle: the value of each selected row, or an error that some
// row raises.
func rowByRow(t *rapid.T, name string, cols [][]*planner.Literal, b *columnar.Batch) (map[int32]string, error) {
	rows := b.Sel
	if rows == nil {
		for i := range b.Len {
			rows = append(rows, int32(i))
		}
	}
	want := map[int32]string{}
	var failed error
	for _, i := range rows {
		var args []planner.Expr
		for _, c := range cols {
			args = append(args, c[i])
		}
		e, err := bind(name, args...)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := Compile(e, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := ev.Eval(&columnar.Batch{Len: 1})
		if err != nil {
			failed = err
			continue
		}
		want[i] = show(v, 0)
	}
	return want, failed
}

func requireSameRows(t *rapid.T, ev *Evaluator, b *columnar.Batch, want map[int32]string, wantErr error) {
	v, err := ev.Eval(b)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("error %v, row by row %v", err, wantErr)
	}
	if err != nil {
		var e *sqlstate.Error
		if !errors.As(err, &e) || e.Code == sqlstate.InternalError {
			t.Fatalf("error without a user-facing code: %v", err)
		}
		return
	}
	var chosen []int32
	for i, w := range want {
		if got := show(v, int(i)); got != w {
			t.Fatalf("row %d: got %s, want %s", i, got, w)
		}
		if w == "boolean:true" {
			chosen = append(chosen, i)
		}
	}
	if v.Type.ID() != arrow.BOOL {
		return
	}
	slices.Sort(chosen)
	got, err := ev.Filter(b, nil)
	if err != nil {
		t.Fatalf("filter: %v", err)
	}
	if !slices.Equal(got, chosen) {
		t.Fatalf("filter chose %v, want %v", got, chosen)
	}
}

// TestCastsMatchRows does the same for every pair of types that casts.
func TestCastsMatchRows(t *testing.T) {
	types := append(typesFor(pAny), catalog.TimestampTZ)
	for _, from := range types {
		for _, to := range types {
			if !CanCast(from, to, true) {
				continue
			}
			t.Run(catalog.TypeName(from)+" to "+catalog.TypeName(to), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					rows := rapid.IntRange(1, 20).Draw(t, "rows")
					lits, v := drawColumn(t, from, rows)
					b := &columnar.Batch{Len: rows, Cols: []*columnar.Vector{v}, Sel: drawSel(t, rows)}
					schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: from, Nullable: true}}, nil)
					ev, err := Compile(&planner.Cast{Arg: &planner.Column{Name: "c", DataType: from, Null: true}, DataType: to}, schema)
					if err != nil {
						t.Fatal(err)
					}
					want := map[int32]string{}
					var wantErr error
					for i, l := range lits {
						if b.Sel != nil && !slices.Contains(b.Sel, int32(i)) {
							continue
						}
						one, err := EvalConst(&planner.Cast{Arg: l, DataType: to})
						if err != nil {
							wantErr = err
							continue
						}
						cv, err := ConstVector(one, 1)
						if err != nil {
							t.Fatal(err)
						}
						want[int32(i)] = show(cv, 0)
					}
					requireSameRows(t, ev, b, want, wantErr)
				})
			})
		}
	}
}
