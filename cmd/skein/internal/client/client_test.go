package client

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitStatements(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
		rest     string
	}{
		{"empty", "", nil, ""},
		{"one without semicolon", "select 1", nil, "select 1"},
		{"two", "select 1; select 2;", []string{"select 1", "select 2"}, ""},
		{"blank statements", ";; \n ;select 1;", []string{"select 1"}, ""},
		{"semicolon in string", "select 'a;''b';", []string{"select 'a;''b'"}, ""},
		{"escape string", `select E'it\';s'; x`, []string{`select E'it\';s'`}, "x"},
		{"plain string ending in backslash", `select 'a\'; x`, []string{`select 'a\'`}, "x"},
		{"word before string", `select type'a\'; x`, []string{`select type'a\'`}, "x"},
		{"quoted name", `select ";" from t;`, []string{`select ";" from t`}, ""},
		{"line comment", "select 1 -- no;\n, 2;", []string{"select 1 -- no;\n, 2"}, ""},
		{"nested comment", "/* a /* ; */ ; */ select 1; -- end", []string{"/* a /* ; */ ; */ select 1"}, ""},
		{"dollar quotes", "select $x$a;$y$;$x$;", []string{"select $x$a;$y$;$x$"}, ""},
		{"bare dollar quotes", "select $$;$$; select $1;", []string{"select $$;$$", "select $1"}, ""},
		{"dollar inside a word", "select a$b$; select 2;", []string{"select a$b$", "select 2"}, ""},
		{"unclosed string", "select 'a; b", nil, "select 'a; b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, rest := SplitStatements(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("statements: %s", diff)
			}
			if rest != tc.rest {
				t.Errorf("rest is %q, want %q", rest, tc.rest)
			}
		})
	}
}

func FuzzSplitStatements(f *testing.F) {
	for _, seed := range []string{"select 1;", "'a;", "$a$;$a$", "/*/**/;*/;", `E'\';';`, "a;b;c", "\xff;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		statements, rest := SplitStatements(script)
		total := len(rest)
		for _, s := range statements {
			if s == "" || !strings.Contains(script, s) {
				t.Fatalf("statement %q is not a part of the script", s)
			}
			total += len(s) + 1
		}
		if total > len(script)+1 {
			t.Fatalf("%d bytes out of %d", total, len(script))
		}
	})
}

func TestParseTable(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Table
		err  string
	}{
		{in: "Orders", want: Table{Name: "orders"}},
		{in: "public.Orders", want: Table{Schema: "public", Name: "orders"}},
		{in: `"Orders"`, want: Table{Name: "Orders"}},
		{in: `s."a.""b"`, want: Table{Schema: "s", Name: `a."b`}},
		{in: "", err: "empty"},
		{in: "a.", err: "empty"},
		{in: "a.b.c", err: "more than"},
		{in: `"a`, err: "not closed"},
		{in: `"a"b`, err: "unexpected"},
		{in: `""`, err: "empty"},
	} {
		got, err := ParseTable(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want one with %q", tc.in, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%q: %v, %v; want %v", tc.in, got, err, tc.want)
		}
	}
}
