package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSQLCommand(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	file := filepath.Join(t.TempDir(), "script.sql")
	script := "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);\n-- a comment;\nINSERT INTO t VALUES (1, 'x;y'), (2, NULL);\nSELECT * FROM t ORDER BY a"
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, stdin string
		args        []string
		out, err    string
		code        int
	}{
		{"file", "", []string{file, "--format", "csv"}, "a,b\n1,x;y\n2,\n", "", 0},
		{"json", "", []string{"-c", "SELECT a, b FROM t ORDER BY a DESC", "--format", "json"}, `{"a":2,"b":null}` + "\n" + `{"a":1,"b":"x;y"}` + "\n", "", 0},
		{"standard input", "select 1 as one; select 2 as two;", []string{"--format", "csv"}, "one\n1\ntwo\n2\n", "", 0},
		{"stops at the first error", "select 1 as one; select nope; select 2", []string{"--format", "csv"}, "one\n1\n", "42703", 1},
		{"format", "", []string{"-c", "select 1", "--format", "xml"}, "", `format "xml" is not one of table, csv, json`, 1},
		{"both ways", "", []string{"-c", "select 1", file}, "", "not both", 1},
		{"nothing", "", nil, "", "", 0},
		{"file by flag", "", []string{"-f", file, "--format", "csv"}, "", "42P07", 1},
		{"commands", "\\format csv\nselect 1 as one;\\x\n", nil, "format is csv\none\n1\nexpanded is on\n", "", 0},
		{"caret", "", []string{"-c", "select nope"}, "", "\nLINE 1: select nope\n               ^", 1},
		{"markdown", "", []string{"-c", "SELECT a, b FROM t ORDER BY a", "--format", "markdown"}, "| a | b |\n| ---:|:--- |\n| 1 | x;y |\n| 2 | NULL |\n2 rows", "", 0},
		{"expanded", "", []string{"-c", "SELECT a, b FROM t WHERE a = 2", "--format", "expanded"}, "─[ 1 ]─\na │ 2\nb │ NULL\n1 row", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, stderr, code := command(t, tc.stdin, append([]string{"sql", "--addr", server.flight}, tc.args...)...)
			out, _, _ = strings.Cut(out, " (") // the time
			if diff := cmp.Diff(tc.out, out); diff != "" {
				t.Error(diff)
			}
			if code != tc.code || !strings.Contains(stderr, tc.err) {
				t.Errorf("code %d, %q; want %d with %q", code, stderr, tc.code, tc.err)
			}
		})
	}
	out, _, _ := command(t, "", "sql", "--addr", "grpc://"+server.flight, "-c", "select 1 as one")
	if !strings.Contains(out, "│ one │") || !strings.Contains(out, "1 row (") {
		t.Errorf("table output is\n%s", out)
	}
	server.stop()
	_, stderr, code := command(t, "", "sql", "--addr", server.flight, "-c", "select 1")
	if code != exitUnreachable || !strings.Contains(stderr, "no Flight SQL server answers at "+server.flight) {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestLoadCommand(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.csv", "id,day,amount\n1,2024-02-29,1.50\n2,,\n")
	bad := write("bad.csv", "id,day,amount\n3,2024-03-01,2.00\n4,yesterday,1\n")
	other := write("other.csv", "colour\nred\n")
	load := func(args ...string) (string, string, int) {
		return command(t, "", append([]string{"load", "--addr", server.flight}, args...)...)
	}
	c := dial(t, server.flight)
	mustExec(t, c, "CREATE TABLE typed (id BIGINT PRIMARY KEY, day DATE, amount DECIMAL(10,2), note TEXT DEFAULT 'none')")

	for _, tc := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{"table must exist", []string{good, "--table", "nope"}, "table nope does not exist; create it first or give --create", 1},
		{"append to a table", []string{good, "--table", "typed"}, "2 rows into typed", 0},
		{"a bad row", []string{bad, "--table", "typed"}, `near line 3, column "day": "yesterday"`, 1},
		{"a duplicate key", []string{good, "--table", "typed"}, "23505", 1},
		{"duplicate keys ignored", []string{good, "--table", "typed", "--on-conflict", "ignore"}, "0 rows into typed", 0},
		{"duplicate keys replaced", []string{good, "--table", "typed", "--on-conflict", "replace"}, "2 rows into typed", 0},
		{"on-conflict", []string{good, "--table", "typed", "--on-conflict", "merge"}, `on-conflict "merge" is not`, 1},
		{"a wrong header", []string{other, "--table", "typed"}, `"colour" of the header is not a column`, 1},
		{"create", []string{good, "--table", "made", "--create"}, "2 rows into made", 0},
		{"append to what was made", []string{good, "--table", "made", "--create"}, "2 rows into made", 0},
		{"create again", []string{good, "--table", "made", "--mode", "create"}, "42P07", 1},
		{"replace", []string{good, "--table", "made", "--mode", "replace"}, "2 rows into made", 0},
		{"mode", []string{good, "--table", "made", "--mode", "upsert"}, `mode "upsert" is not`, 1},
		{"table name", []string{good, "--table", "a.b.c"}, "more than a schema and a name", 1},
		{"no table", []string{good}, "with --table", 1},
		{"no file", []string{filepath.Join(dir, "nope.csv"), "--table", "typed"}, "nope.csv", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, stderr, code := load(tc.args...)
			if code != tc.code || !strings.Contains(out+stderr, tc.want) {
				t.Errorf("code %d, %q %q; want %d with %q", code, out, stderr, tc.code, tc.want)
			}
		})
	}
	for statement, want := range map[string][]string{
		"SELECT id, day, amount, note FROM typed ORDER BY id": {"1,2024-02-29,1.50,none", "2,,,none"},
		"SELECT id, day, amount FROM made ORDER BY id":        {"1,2024-02-29,1.5", "2,,"},
	} {
		got, err := query(testContext(t), c, statement)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", statement, diff)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, _, code := command(t, "", "version")
	if code != 0 || !strings.HasPrefix(out, "skein ") {
		t.Errorf("code %d, %q", code, out)
	}
}
