package sql_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

func literal(v any, dt arrow.DataType) *planner.Literal {
	return &planner.Literal{Value: v, DataType: dt}
}

func TestSubstitute(t *testing.T) {
	text := literal("2020-01-02", catalog.Text)
	tests := []struct {
		sql    string
		values []*planner.Literal
		want   string // a line of the plan
	}{
		{"SELECT id FROM u WHERE id = ?", []*planner.Literal{literal(int64(5), catalog.Integer)}, "filter id = 5"},
		{"SELECT id FROM u WHERE id = ?", []*planner.Literal{literal(int64(5), catalog.BigInt)}, "filter id = 5"},
		{"SELECT id FROM u WHERE day > ?", []*planner.Literal{text}, "filter day > date '2020-01-02'"},
		{"SELECT id FROM u WHERE day > ?::date - 1", []*planner.Literal{literal(nil, catalog.Date)}, "filter day > null"},
		{"SELECT id FROM u LIMIT ? OFFSET ?", []*planner.Literal{
			literal(int64(7), catalog.BigInt), literal(int64(2), catalog.Integer)}, "limit 7 offset 2"},
		{"SELECT id FROM u LIMIT ? + 1", []*planner.Literal{literal(int64(7), catalog.BigInt)}, "limit 8 offset 0"},
		{"SELECT id FROM u LIMIT ?", []*planner.Literal{nil}, "limit -1 offset 0"},
		{"SELECT id FROM u JOIN v ON u.id < v.a + ?", []*planner.Literal{literal(int64(3), catalog.Integer)}, "inner join on () residual id < a + 3"},
		{"SELECT sum(id + ?) FROM u", []*planner.Literal{literal(int64(3), catalog.Integer)}, "project arg_1 := id + 3: integer"},
		{"INSERT INTO v (a) VALUES (?)", []*planner.Literal{literal(int64(3), catalog.Integer)},
			"(3: integer, 'none': text, 1.50: decimal(8,2), date '2020-02-29': date, null: boolean)"},
		{"EXPLAIN SELECT id FROM u WHERE id IN (?, 2)", []*planner.Literal{literal(int64(3), catalog.Integer)}, "filter id in (2) or id = 3"},
		{"SELECT CASE WHEN id > $1 THEN $2 ELSE name END FROM u", []*planner.Literal{
			literal(int64(3), catalog.Integer), literal("x", catalog.Text)}, "project name := case when id > 3 then 'x' else name end: text"},
	}
	for _, tt := range tests {
		bound := mustBind(t, tt.sql)
		given, err := bound.Substitute(tt.values)
		if err != nil {
			t.Errorf("%s: %v", tt.sql, err)
			continue
		}
		var out strings.Builder
		describeStatement(&out, given.Statement)
		found := false
		for line := range strings.SplitSeq(out.String(), "\n") {
			found = found || strings.TrimSpace(line) == tt.want
		}
		if !found {
			t.Errorf("%s: no line %q in\n%s", tt.sql, tt.want, &out)
		}
		if len(given.Params) != 0 {
			t.Errorf("%s: parameters %v remain", tt.sql, given.Params)
		}
	}
}

func TestSubstituteErrors(t *testing.T) {
	tests := []struct {
		sql    string
		values []*planner.Literal
		code   sqlstate.Code
	}{
		{"SELECT ?", nil, sqlstate.ProtocolViolation},
		{"SELECT 1", []*planner.Literal{nil}, sqlstate.ProtocolViolation},
		{"SELECT id FROM u WHERE id = ?", []*planner.Literal{literal("x", catalog.Text)}, sqlstate.InvalidText},
		{"SELECT id FROM u WHERE id = ?", []*planner.Literal{literal(int64(1)<<40, catalog.BigInt)}, sqlstate.NumericOutOfRange},
		{"SELECT id FROM u WHERE day = ?", []*planner.Literal{literal(true, catalog.Boolean)}, sqlstate.DatatypeMismatch},
		{"SELECT id FROM u LIMIT ?", []*planner.Literal{literal(int64(-1), catalog.BigInt)}, sqlstate.InvalidLimit},
	}
	for _, tt := range tests {
		_, err := mustBind(t, tt.sql).Substitute(tt.values)
		if code := sqlstate.CodeOf(err); code != tt.code {
			t.Errorf("%s with %v: %v, want code %s", tt.sql, tt.values, err, tt.code)
		}
	}
}

// A prepared statement is executed many times: giving it values must leave it
// as it was, and clients have been told one schema.
func TestSubstituteLeavesTheStatement(t *testing.T) {
	bound := mustBind(t, "SELECT ?::integer + id AS n FROM u LIMIT ?")
	before := printNode(bound.Statement.(*sql.Query).Node)
	for i := range int64(3) {
		given, err := bound.Substitute([]*planner.Literal{literal(i, catalog.Integer), literal(i, catalog.BigInt)})
		if err != nil {
			t.Fatal(err)
		}
		if q := given.Statement.(*sql.Query); !q.Schema.Equal(bound.Statement.(*sql.Query).Schema) {
			t.Errorf("the schema became %s", fieldsText(q.Schema))
		}
	}
	if after := printNode(bound.Statement.(*sql.Query).Node); after != before {
		t.Errorf("the statement became\n%s\nfrom\n%s", after, before)
	}
}

func TestDeclaredParameterTypes(t *testing.T) {
	bound := mustBind(t, "SELECT $1 + 1, $2 FROM u WHERE id = $3", catalog.Double, nil)
	want := []string{"double precision", "text", "integer"}
	for i, p := range bound.Params {
		if got := catalog.TypeName(p); got != want[i] {
			t.Errorf("$%d is %s, want %s", i+1, got, want[i])
		}
	}
	if len(bound.Params) != len(want) {
		t.Errorf("%d parameters, want %d", len(bound.Params), len(want))
	}
}
