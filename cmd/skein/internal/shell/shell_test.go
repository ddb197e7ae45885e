package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skein/sqlstate"
)

func TestComplete(t *testing.T) {
	for text, want := range map[string]bool{
		"":                               true,
		"  -- nothing\n":                 true,
		"select 1":                       false,
		"select 1;":                      true,
		"select 1; select":               false,
		"select ';":                      false,
		`\d`:                             true,
		"\\timing\nselect 1;":            true,
		"select 1; \\x\n":                true,
		"/* half":                        true, // a blank text; the server would say the same
		"select $$;$$":                   false,
		"-- note\n\\d t":                 true,
		"select 'a\n\\d': not a command": false,
	} {
		if got := complete(text); got != want {
			t.Errorf("%q: complete is %v", text, got)
		}
	}
}

func TestNext(t *testing.T) {
	script := "-- first\nselect 1;\\timing off\n;\\d a;\nselect\n2;select 3"
	var got []item
	for {
		it, rest := next(script)
		if it.text == "" && rest == "" {
			break
		}
		got, script = append(got, it), rest
	}
	want := []item{
		{"-- first\nselect 1", false, true}, {`\timing off`, true, true}, {"", false, true}, {`\d a;`, true, true},
		{"select\n2", false, true}, {"select 3", false, false},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(item{})); diff != "" {
		t.Error(diff)
	}
}

func TestCaret(t *testing.T) {
	for _, tc := range []struct {
		statement string
		position  int
		want      string
	}{
		{"select nope", 8, "LINE 1: select nope\n               ^"},
		{"select\n\tnope,\n2", 9, "LINE 2:  nope,\n         ^"},
		{"select 'ä界', x", 14, "LINE 1: select 'ä界', x\n                      ^"},
		{"select", 7, "LINE 1: select\n              ^"},
		{"select 1", 0, ""},
		{"select 1", 10, ""},
		{"select " + strings.Repeat("a, ", 30) + "nope, " + strings.Repeat("b, ", 30), 98,
			"LINE 1: ..." + strings.Repeat("a, ", 12) + "nope, " + strings.Repeat("b, ", 10) + "...\n" + strings.Repeat(" ", 47) + "^"},
	} {
		if diff := cmp.Diff(tc.want, caret(tc.statement, tc.position)); diff != "" {
			t.Errorf("%q at %d: %s", tc.statement, tc.position, diff)
		}
	}
	err := &StatementError{"select nope", sqlstate.New(sqlstate.UndefinedColumn, "no column").At(8)}
	if want := "no column (SQLSTATE 42703, at character 8)\nLINE 1: select nope\n               ^"; err.Error() != want {
		t.Errorf("%q", err.Error())
	}
}

func TestLike(t *testing.T) {
	for pattern, want := range map[string]string{
		"Birds":      `c LIKE 'birds'`,
		"b*":         `c LIKE 'b%'`,
		"b?_d":       `c LIKE 'b_\_d'`,
		`"Bi*"`:      `c LIKE 'Bi*'`,
		"it's":       `c LIKE 'it''s'`,
		`"a""b"`:     `c LIKE 'ab'`,
		`back\slash`: `c LIKE 'back\\slash'`,
	} {
		if got := like("c", pattern); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
	if got := likeName("s", "n", `"a.b".c*`); got != `s LIKE 'a.b' AND n LIKE 'c%'` {
		t.Error(got)
	}
}

func TestCompletion(t *testing.T) {
	known := names{
		read:    time.Now(),
		schemas: []string{"public", "skein"},
		tables: []tableNames{
			{"public", "birds", []string{"id", "species"}}, {"public", "Bridges", []string{"span"}},
			{"skein", "queries", []string{"query_id"}},
		},
		functions: []string{"substr", "sum"},
	}
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"SEL", []string{"SELECT"}},
		{"sel", []string{"select"}},
		{"SELECT * FROM bi", []string{"birds"}},
		{"SELECT * FROM ", []string{`"Bridges"`, "birds", "public", "skein"}},
		{"SELECT * FROM skein.", []string{"skein.queries"}},
		{"UPDATE public.b", []string{"public.birds"}},
		{"INSERT INTO \"B", []string{`"Bridges"`}},
		{"SELECT * FROM birds WHERE spec", []string{"species"}},
		{"SELECT * FROM birds WHERE birds.i", []string{"birds.id"}},
		{"SELECT * FROM birds AS b WHERE b.", []string{"b.id", "b.species"}},
		{"SELECT * FROM birds b WHERE b.s", []string{"b.species"}},
		{"SELECT su", []string{"substr", "sum"}},
		{"SELECT nothing_like_it", nil},
		{`\ti`, []string{"timing"}},
		{`\d bi`, []string{"birds"}},
		{"SELECT 1;\nSELECT * FROM birds WHERE sp", []string{"species"}},
	} {
		var got []string
		for _, c := range known.complete(tc.text) {
			got = append(got, c.text)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q: %s", tc.text, diff)
		}
	}
	known.ran("  create TABLE x (a int)")
	if !known.read.IsZero() {
		t.Error("a definition does not make names old")
	}
}

func TestHistoryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "history")
	h, err := openHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"select 1;", " select 'hidden';", "CREATE USER a PASSWORD 'x';", "select\n2;"} {
		if _, err := h.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again, err := openHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range again.Len() {
		line, err := again.GetLine(i)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"select 1;", "select\n2;"}, got); diff != "" {
		t.Error(diff)
	}
	long := strings.Repeat(`{"block":"select 1;"}`+"\n", maxHistory+1) + `{"block":"last"}` + "\n"
	if err := os.WriteFile(path, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err = openHistory(path); err != nil {
		t.Fatal(err)
	}
	last, err := again.GetLine(again.Len() - 1)
	if again.Len() != maxHistory/2 || last != "last" || err != nil {
		t.Errorf("%d lines, the last %q, %v", again.Len(), last, err)
	}
}
