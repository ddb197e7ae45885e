package parse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"pgregory.net/rapid"

	"skein/sqlstate"
)

func TestParseCountsStatements(t *testing.T) {
	for text, want := range map[string]int{
		"":                           0,
		" -- nothing\n /* at all */": 0,
		";;":                         0,
		"SELECT 1":                   1,
		"SELECT 1; SELECT 2;":        2,
	} {
		got, err := Parse(text)
		if err != nil || len(got) != want {
			t.Errorf("Parse(%q) = %d statements, %v; want %d", text, len(got), err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		text     string
		code     sqlstate.Code
		position int
		message  string
	}{
		{"SELECT 1 FROM FROM", sqlstate.SyntaxError, 15, `"FROM"`},
		{"SELECT '€€', bogus bogus bogus", sqlstate.SyntaxError, 26, `"bogus"`},
		{"SELECT 'abc", sqlstate.SyntaxError, 8, "unterminated"},
		{"SELECT", "", 0, ""},
		{"SELECT 1 WHERE", sqlstate.SyntaxError, 15, "end of input"},
		{"SELECT ? , 'é' = ? FROM )", sqlstate.SyntaxError, 25, `")"`},
		{"SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES", sqlstate.SyntaxError, 0, "WITH TIES"},
		{"SELECT $1, ?", sqlstate.SyntaxError, 12, "mixes"},
		{"SELECT \x00", sqlstate.InvalidByteSequence, 8, "NUL"},
		{"SELECT '\xff'", sqlstate.InvalidByteSequence, 0, "UTF-8"},
		{"SELECT '" + strings.Repeat("x", MaxTextBytes) + "'", sqlstate.ProgramLimitExceeded, 0, "bytes"},
	}
	for _, tt := range tests {
		_, err := Parse(tt.text)
		if sqlstate.CodeOf(err) != tt.code {
			t.Errorf("Parse(%.40q): %v, want code %q", tt.text, err, tt.code)
			continue
		}
		if tt.code == "" {
			continue
		}
		e := err.(*sqlstate.Error)
		if e.Position != tt.position || !strings.Contains(e.Message, tt.message) {
			t.Errorf("Parse(%.40q): %q at %d, want %q at %d", tt.text, e.Message, e.Position, tt.message, tt.position)
		}
	}
}

func TestParseBoundsNesting(t *testing.T) {
	const n = 100_000
	for name, text := range map[string]string{
		"parentheses": "SELECT " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n),
		"sum":         "SELECT 1" + strings.Repeat("+1", n),
		"minus":       "SELECT " + strings.Repeat("- ", n) + "a",
		"not":         "SELECT " + strings.Repeat("NOT ", n) + "a",
		"case":        "SELECT " + strings.Repeat("CASE WHEN a AND ", n/4) + "1",
		"union":       "SELECT 1" + strings.Repeat(" UNION SELECT 1, 2", n/4),
		"join":        "SELECT FROM a" + strings.Repeat(" JOIN b ON c AND d", n/4),
		"subquery":    strings.Repeat("SELECT (", n) + "1",
		"array":       "SELECT " + strings.Repeat("ARRAY[", n) + "1",
		"cast":        "SELECT 1" + strings.Repeat("::int", n),
		"subscript":   "SELECT a" + strings.Repeat("[1]", n),
		"collate":     "SELECT a" + strings.Repeat(` COLLATE "C"`, n/4),
		"quoted":      "SELECT a" + strings.Repeat(` OPERATOR("+") b`, n/4),
	} {
		_, err := Parse(text)
		if code := sqlstate.CodeOf(err); code != sqlstate.ProgramLimitExceeded {
			t.Errorf("%s: %v, want %s", name, err, sqlstate.ProgramLimitExceeded)
		}
	}
}

// The deepest text that the scanner lets through must not trouble the parser.
func TestParseTakesWhatTheScannerAdmits(t *testing.T) {
	for name, text := range map[string]string{
		"sum":      "SELECT 1" + strings.Repeat("+1", maxNesting-20),
		"minus":    "SELECT " + strings.Repeat("- ", maxNesting-20) + "a",
		"not":      "SELECT " + strings.Repeat("NOT ", maxNesting-20) + "a",
		"case":     "SELECT " + strings.Repeat("CASE WHEN a AND ", maxNesting/6) + "b" + strings.Repeat(" THEN 1 END", maxNesting/6),
		"subquery": strings.Repeat("SELECT (", maxNesting/6) + "SELECT 1" + strings.Repeat(")", maxNesting/6),
		"brackets": "SELECT " + strings.Repeat("(", maxNesting/6) + "1" + strings.Repeat(")", maxNesting/6),
	} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseTakesLongFlatTexts(t *testing.T) {
	const n = 20_000
	for name, text := range map[string]string{
		"values": "INSERT INTO t VALUES (1, -2, 'x')" + strings.Repeat(", (1, -2, 'x')", n),
		"or":     "SELECT a FROM t WHERE a = 1" + strings.Repeat(" OR a = b + 1", n),
		"list":   "SELECT a FROM t WHERE a IN (1" + strings.Repeat(", -1", n) + ")",
		"case":   "SELECT CASE" + strings.Repeat(" WHEN a = b THEN c", n) + " ELSE d END FROM t",
		"many":   strings.Repeat("SELECT a + b FROM t;", n),
	} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	tests := []struct{ text, want string }{
		{"SELECT ?", "SELECT $1"},
		{"SELECT ?, ?", "SELECT $1, $2"},
		{"WHERE a=? AND b>=?", "WHERE a=$1 AND b>=$2"},
		{"WHERE a = ?::int", "WHERE a = $1::int"},
		{"WHERE a=?-1 OR b=-?", "WHERE a=$1-1 OR b=-$2"},
		{"SELECT ?||'x'||?", "SELECT $1||'x'||$2"},
		{"LIMIT?OFFSET?", "LIMIT $1 OFFSET $2"},
		{"SELECT a ?| b, a ?& b, a @? b, a ?? b", ""},
		{"SELECT '?', \"?\", E'\\'?', $$?$$, $q$ ? $$ $q$ -- ?\n/* ? /* ? */ ? */", ""},
		{"SELECT E'a'\n'\\'?', ?", "SELECT E'a'\n'\\'?', $1"},
		{"SELECT 'it''s ?', U&'?', b'?', ?", "SELECT 'it''s ?', U&'?', b'?', $1"},
		{"SELECT a$1, ?", "SELECT a$1, $1"},
		{"SELECT ?--?", "SELECT $1--?"},
		{"SELECT ?/* ? */", "SELECT $1/* ? */"},
	}
	for _, tt := range tests {
		s, err := scan(tt.text)
		if err != nil {
			t.Errorf("scan(%q): %v", tt.text, err)
			continue
		}
		want := tt.want
		if want == "" {
			want = tt.text
		}
		if got, _ := s.numberPlaceholders(); got != want {
			t.Errorf("placeholders of %q: got %q, want %q", tt.text, got, want)
		}
	}
}

func TestPositionsSurvivePlaceholders(t *testing.T) {
	text := "SELECT 'ü', ?, aa FROM t WHERE bb=? AND cc"
	statements, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	sel := statements[0].Tree.GetSelectStmt()
	for _, target := range sel.TargetList {
		got = append(got, statements[0].Position(target.GetResTarget().Location))
	}
	args := sel.WhereClause.GetBoolExpr().Args
	eq := args[0].GetAExpr()
	got = append(got, statements[0].Position(eq.Rexpr.GetParamRef().Location),
		statements[0].Position(args[1].GetColumnRef().Location), statements[0].Position(-1))
	want := []int{8, 13, 16, 35, 41, 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

// Numbering must not depend on what surrounds a placeholder, and every
// position of the rewritten text must map into the original.
func TestPlaceholderProperty(t *testing.T) {
	pieces := []string{"?", "a", " ", "= ", "'?'", "\"?\"", "(?)", "-- ?\n", "/*?*/", "$$?$$", ",", "1", "é", "||"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 20).Draw(t, "pieces"), "")
		s, err := scan(text)
		if err != nil {
			t.Fatal(err)
		}
		rewritten, moved := s.numberPlaceholders()
		last := 0
		for i := range len(rewritten) + 1 {
			at := moved.original(i)
			if at < last || at > len(text) {
				t.Fatalf("offset %d of %q maps to %d of %q", i, rewritten, at, text)
			}
			last = at
		}
		for _, p := range s.placeholders {
			if text[p.offset] != '?' {
				t.Fatalf("placeholder at %d of %q", p.offset, text)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"SELECT 1", "SELECT ?, '?' FROM t WHERE a = $q$x$q$ -- c", "INSERT INTO t VALUES (?, E'\\'')",
		"CREATE TABLE t (a int) PARTITION BY HASH (a) WITH (tablets=2)", "SELECT ((((1))))", "/* /* */ ?",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		statements, err := Parse(text)
		if err != nil {
			if sqlstate.CodeOf(err) == sqlstate.InternalError {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		for _, s := range statements {
			if _, ok := s.Tree.GetNode().(*pgquery.Node_SelectStmt); ok {
				s.Position(int32(len(text)))
			}
		}
	})
}

// PostgreSQL cuts long names down; a statement that has one means another name.
func TestLongNamesAreRefused(t *testing.T) {
	name := strings.Repeat("n", MaxNameBytes)
	for text, long := range map[string]bool{
		"SELECT " + name + " FROM t":                                            false,
		"SELECT " + name + "n FROM t":                                           true,
		`SELECT "` + name[2:] + `"" " FROM t`:                                   false,
		`SELECT "` + name + `n" FROM t`:                                         true,
		"SELECT '" + name + name + "', E'" + name + "nn' FROM t":                false,
		"SELECT 1 AS " + name + name + " -- " + name + name + "\n":              true,
		"SELECT 1 -- " + name + name + "\n":                                     false,
		"SELECT $$" + name + name + "$$, $" + name[1:] + "$ $" + name[1:] + "$": false,
	} {
		_, err := scan(text)
		if got := sqlstate.CodeOf(err) == sqlstate.NameTooLong; got != long {
			t.Errorf("%s: %v", text, err)
		}
	}
}
