package exec

import (
	"errors"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// FuzzCastFromText checks that no text makes a cast fail without a user-facing
// code, and that what is read prints as text that reads back as the same value.
func FuzzCastFromText(f *testing.F) {
	types := append(typesFor(pAny), catalog.TimestampTZ)
	for _, dt := range types {
		for _, s := range samples(dt) {
			f.Add(s)
		}
	}
	for _, s := range []string{"P1Y2M3DT4H", "1-2", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "1e-400", "2024-02-29T10:00:00+15:59", "-.5e7", "10:00 PM", `\x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, dt := range types {
			l, err := EvalConst(&planner.Cast{Arg: &planner.Literal{Value: s, DataType: catalog.Text}, DataType: dt})
			var e *sqlstate.Error
			if errors.As(err, &e) && e.Code != sqlstate.InternalError {
				continue
			}
			if err != nil {
				t.Fatalf("%q as %s: %v", s, dt, err)
			}
			v, err := ConstVector(l, 1)
			if err != nil {
				t.Fatal(err)
			}
			printed, _ := FormatValue(nil, v, 0)
			again, err := EvalConst(&planner.Cast{Arg: &planner.Literal{Value: string(printed), DataType: catalog.Text}, DataType: dt})
			if err != nil {
				t.Fatalf("%q as %s prints as %q, which fails: %v", s, dt, printed, err)
			}
			av, _ := ConstVector(again, 1)
			if reprinted, _ := FormatValue(nil, av, 0); string(reprinted) != string(printed) {
				t.Fatalf("%q as %s prints as %q, then %q", s, dt, printed, reprinted)
			}
		}
	})
}

// likeOracle matches by trying every length for each wildcard.
func likeOracle(s, p string) bool {
	if p == "" {
		return s == ""
	}
	r, n := utf8.DecodeRuneInString(p)
	switch r {
	case '%':
		for i := 0; ; {
			if likeOracle(s[i:], p[n:]) {
				return true
			}
			if i >= len(s) {
				return false
			}
			_, w := utf8.DecodeRuneInString(s[i:])
			i += w
		}
	case '_':
		if s == "" {
			return false
		}
		_, w := utf8.DecodeRuneInString(s)
		return likeOracle(s[w:], p[n:])
	}
	return len(s) >= n && s[:n] == p[:n] && likeOracle(s[n:], p[n:])
}

func FuzzLike(f *testing.F) {
	for _, p := range []string{"", "%", "a%", "%a", "%a%b%", "_%a_", "a_b", "__", "%_%", "a%_c", "é_%"} {
		f.Add("abacab", p)
		f.Add("é_a", p)
	}
	f.Fuzz(func(t *testing.T, s, p string) {
		if len(s) > 40 || len(p) > 12 || !utf8.ValidString(s) || !utf8.ValidString(p) {
			return
		}
		c, err := compileLike([]byte(p), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := c.match([]byte(s)), likeOracle(s, p); got != want {
			t.Fatalf("%q like %q: got %v, want %v", s, p, got, want)
		}
	})
}

// FuzzKernels evaluates functions over random vectors in all layouts and
// compares with one evaluation per row.
func FuzzKernels(f *testing.F) {
	var overloads []struct {
		f *function
		o *overload
	}
	for _, name := range functionNames() {
		fn := functions()[name]
		for k := range fn.overloads {
			overloads = append(overloads, struct {
				f *function
				o *overload
			}{fn, &fn.overloads[k]})
		}
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		c := rapid.SampledFrom(overloads).Draw(t, "function")
		matchesRows(t, c.f, drawTypes(t, c.o))
	}))
}
