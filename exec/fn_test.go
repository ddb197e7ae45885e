package exec

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// value reads "type:text" as a literal; the text NULL is null and the type
// unknown keeps an untyped literal.
func value(t testing.TB, spec string) *planner.Literal {
	t.Helper()
	name, text, ok := strings.Cut(spec, ":")
	if !ok {
		t.Fatalf("bad value %q", spec)
	}
	dt, err := catalog.ParseType(name)
	if err != nil {
		t.Fatal(err)
	}
	if text == "NULL" {
		return &planner.Literal{DataType: dt}
	}
	if dt.ID() == arrow.NULL {
		t.Fatalf("bad value %q: untyped values are NULL", spec)
	}
	text = unescape(text)
	l, err := EvalConst(&planner.Cast{Arg: &planner.Literal{Value: text, DataType: catalog.Text}, DataType: dt})
	if err != nil {
		t.Fatalf("value %q: %v", spec, err)
	}
	return l
}

// unescape reads \s as a space, which trimming would lose.
func unescape(s string) string { return strings.ReplaceAll(s, `\s`, " ") }

// show prints a vector's row as value reads it.
func show(v *columnar.Vector, row int) string {
	name := catalog.TypeName(v.Type) + ":"
	if v.IsNull(row) {
		return name + "NULL"
	}
	text, ok := FormatValue(nil, v, row)
	if !ok {
		return name + "?"
	}
	return name + string(text)
}

// bind makes a call with the casts that binding would add.
func bind(name string, args ...planner.Expr) (planner.Expr, error) {
	types := make([]arrow.DataType, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	sig, err := ResolveScalar(name, types)
	if err != nil {
		return nil, err
	}
	c := &planner.Call{Func: sig.Name, DataType: sig.Result, Null: true}
	for i, a := range args {
		if !arrow.TypeEqual(a.Type(), sig.Args[i]) {
			a = &planner.Cast{Arg: a, DataType: sig.Args[i]}
		}
		c.Args = append(c.Args, a)
	}
	return c, nil
}

// build is bind, or for the pseudo function "cast" a cast to the type that the
// second argument names.
func build(t *testing.T, name string, args []planner.Expr, castTo string) (planner.Expr, error) {
	t.Helper()
	if name != "cast" {
		return bind(name, args...)
	}
	dt, err := catalog.ParseType(castTo)
	if err != nil {
		t.Fatal(err)
	}
	return &planner.Cast{Arg: args[0], DataType: dt}, nil
}

type functionCase struct {
	line   string
	name   string
	args   []string
	castTo string
	want   string // "type:text" or "!SQLSTATE"
}

// readCases reads lines "name | arg | arg => want".
func readCases(t *testing.T, file string) []functionCase {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []functionCase
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("bad case %q", line)
		}
		sep := " | "
		if strings.Contains(left, " ; ") {
			sep = " ; " // for the operator || itself
		}
		parts := strings.Split(left, sep)
		c := functionCase{line: line, name: strings.TrimSpace(parts[0]), want: unescape(strings.TrimSpace(want))}
		for _, p := range parts[1:] {
			c.args = append(c.args, strings.TrimSpace(p))
		}
		if c.name == "cast" {
			c.castTo, c.args = c.args[1], c.args[:1]
		}
		cases = append(cases, c)
	}
	return cases
}

// TestFunctions evaluates every case over constants, over columns with other
// rows that are NULL or unselected, and over dictionaries.
func TestFunctions(t *testing.T) {
	for _, file := range []string{"testdata/operators.txt", "testdata/functions.txt", "testdata/casts.txt"} {
		for _, c := range readCases(t, file) {
			t.Run(c.line, func(t *testing.T) {
				var args []planner.Expr
				var lits []*planner.Literal
				for _, a := range c.args {
					l := value(t, a)
					lits = append(lits, l)
					args = append(args, l)
				}
				check(t, c, "constants", func() (string, error) {
					e, err := build(t, c.name, args, c.castTo)
					if err != nil {
						return "", err
					}
					ev, err := Compile(e, nil)
					if err != nil {
						return "", err
					}
					v, err := ev.Eval(&columnar.Batch{Len: 1})
					if err != nil {
						return "", err
					}
					return show(v, 0), nil
				})
				for _, dict := range []bool{false, true} {
					for _, constTail := range []bool{false, true} {
						checkColumns(t, c, lits, dict, constTail)
					}
				}
			})
		}
	}
}

func check(t *testing.T, c functionCase, how string, run func() (string, error)) {
	t.Helper()
	got, err := run()
	if err != nil {
		got = "!" + string(sqlstate.CodeOf(err))
	}
	if got != c.want {
		t.Errorf("%s: got %s, want %s (error %v)", how, got, c.want, err)
	}
}

// checkColumns runs a case over columns whose rows are NULL, value, NULL,
// value; with constTail all arguments but the first stay constant.
func checkColumns(t *testing.T, c functionCase, lits []*planner.Literal, dict, constTail bool) {
	t.Helper()
	batch := &columnar.Batch{Len: 4}
	var fields []arrow.Field
	var args []planner.Expr
	for i, l := range lits {
		if (constTail && i > 0) || l.DataType.ID() == arrow.NULL {
			args = append(args, l)
			continue
		}
		batch.Cols = append(batch.Cols, columnOf(t, l, dict))
		fields = append(fields, arrow.Field{Name: "c", Type: l.DataType, Nullable: true})
		args = append(args, &planner.Column{Index: len(fields) - 1, Name: "c", DataType: l.DataType, Null: true})
	}
	e, err := build(t, c.name, args, c.castTo)
	if err != nil {
		check(t, c, "columns", func() (string, error) { return "", err })
		return
	}
	for _, sel := range [][]int32{nil, {1, 2, 3}, {3}, {0, 2}} {
		ev, err := Compile(e, arrow.NewSchema(fields, nil))
		if err != nil {
			check(t, c, "columns", func() (string, error) { return "", err })
			return
		}
		batch.Sel = sel
		v, err := ev.Eval(batch)
		if len(sel) == 2 { // only NULL rows: nothing may fail
			if err != nil && len(fields) == len(lits) {
				t.Errorf("NULL rows failed: %v", err)
			}
			continue
		}
		check(t, c, "columns", func() (string, error) {
			if err != nil {
				return "", err
			}
			return show(v, 3), nil
		})
		if err == nil && v.Type.ID() == arrow.BOOL {
			checkFilter(t, ev, batch, v)
		}
	}
}

// checkFilter compares Filter with the truth values of Eval.
func checkFilter(t *testing.T, ev *Evaluator, batch *columnar.Batch, v *columnar.Vector) {
	t.Helper()
	rows := batch.Sel
	if rows == nil {
		rows = []int32{0, 1, 2, 3}
	}
	want := []int32{99}
	for _, i := range rows {
		if !v.IsNull(int(i)) && at[byte](v, int(i)) != 0 {
			want = append(want, i)
		}
	}
	got, err := ev.Filter(batch, []int32{99})
	if err != nil {
		t.Fatalf("filter: %v", err)
	}
	if len(got) != len(want) {
		t.Fatalf("filter chose %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("filter chose %v, want %v", got, want)
		}
	}
}

// columnOf is a column of NULL, value, NULL, value.
func columnOf(t *testing.T, l *planner.Literal, dict bool) *columnar.Vector {
	t.Helper()
	one, err := ConstVector(l, 1)
	if err != nil {
		t.Fatal(err)
	}
	if id := one.Type.ID(); dict && l.Value != nil && (id == arrow.STRING || id == arrow.BINARY) {
		b, _ := columnar.NewBuilder(one.Type)
		_ = b.AppendBytes([]byte("another entry"))
		_ = b.AppendRow(one, 0)
		return &columnar.Vector{Type: one.Type, Len: 4, Valid: []byte{0b1010}, Codes: []int32{0, 1, 0, 1}, Dict: b.Finish()}
	}
	b, err := columnar.NewBuilder(one.Type)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.AppendNull()
		if err := b.AppendRow(one, 0); err != nil {
			t.Fatal(err)
		}
	}
	return b.Finish()
}
