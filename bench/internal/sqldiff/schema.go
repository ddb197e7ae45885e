package sqldiff

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Column is a column of a generated table.
type Column struct {
	Name    string
	Type    Type
	SQL     string // its declared type
	NotNull bool
	skew    int // values are drawn from so many, 0 for any
}

// Table is a generated table with its rows.
type Table struct {
	Name    string
	Columns []Column // the first one, id, is different in every row
	Key     bool     // id is the primary key
	Options string   // Skein's partitioning
	Rows    [][]Literal
	Large   bool
}

// Literal is a constant in both dialects.
type Literal struct{ Skein, Duck string }

func same(s string) Literal { return Literal{s, s} }

func (l Literal) in(d Dialect) string {
	if d == Duck {
		return l.Duck
	}
	return l.Skein
}

// generator makes everything of one round from its random numbers.
type generator struct {
	r      *rand.Rand
	tables []*Table
	ctes   []cteScope
	alias  int
	depth  int // of subqueries
	share  int // of large tables, in percent
}

type cteScope struct {
	name  string
	types []Type
	large bool
}

func newGenerator(seed, round uint64, large int) *generator {
	g := &generator{r: rand.New(rand.NewPCG(seed, round)), share: large}
	for i := range 3 + g.r.IntN(2) {
		g.tables = append(g.tables, g.table(i))
	}
	return g
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, list []T) T { return list[g.r.IntN(len(list))] }

// table makes a table. Every one has id, a unique integer, and k, a skewed
// integer to join by; the rest is random.
func (g *generator) table(n int) *Table {
	t := &Table{Name: fmt.Sprintf("t%d", n), Key: g.chance(70)}
	t.Columns = []Column{
		{Name: "id", Type: Int, SQL: "INTEGER", NotNull: true},
		{Name: "k", Type: Int, SQL: "INTEGER", skew: 1 + g.r.IntN(8)},
	}
	choices := []Column{
		{Type: Bool}, {Type: Small}, {Type: Int}, {Type: Int, skew: 5}, {Type: Big}, {Type: Big, skew: 12}, {Type: Double}, {Type: Double, skew: 6},
		{Type: Double, SQL: "REAL"}, {Type: Dec}, {Type: Dec, SQL: "DECIMAL(9,2)"}, {Type: Dec, SQL: "DECIMAL(30,4)"}, {Type: Text}, {Type: Text, skew: 4},
		{Type: Text, SQL: "VARCHAR(40)"}, {Type: Date}, {Type: Date, skew: 7}, {Type: Stamp}, {Type: Clock}, {Type: Span}, {Type: UUID}, {Type: Bytes},
	}
	for i := range 3 + g.r.IntN(8) {
		c := pick(g, choices)
		c.Name = fmt.Sprintf("a%d", i)
		if c.SQL == "" {
			c.SQL = c.Type.String()
		}
		c.NotNull = g.chance(15)
		t.Columns = append(t.Columns, c)
	}
	if t.Key {
		t.Options = pick(g, []string{
			"", " PARTITION BY HASH (id) WITH (tablets = 3)", " PARTITION BY HASH (id) WITH (tablets = 2, buckets = 8)",
			" PARTITION BY RANGE (id) WITH (splits = '5, 40')",
		})
	} else {
		t.Options = pick(g, []string{"", " PARTITION BY HASH (k) WITH (tablets = 3)", " PARTITION BY RANGE (k) WITH (splits = '2')"})
	}
	rows := pick(g, []int{0, 1, 7, 15, 30, 60})
	if g.chance(g.share) {
		rows, t.Large = 5000, true
	}
	for i := range rows {
		t.Rows = append(t.Rows, g.row(t, i))
	}
	return t
}

func (g *generator) row(t *Table, id int) []Literal {
	row := make([]Literal, len(t.Columns))
	for i, c := range t.Columns {
		switch {
		case i == 0:
			row[i] = same(fmt.Sprint(id))
		case !c.NotNull && g.chance(12):
			row[i] = same("NULL")
		default:
			row[i] = g.cell(c)
		}
	}
	return row
}

// cell draws a value; a skewed column takes most of its few values from the
// low end.
func (g *generator) cell(c Column) Literal {
	if c.skew > 0 {
		n := min(g.r.IntN(c.skew), g.r.IntN(c.skew))
		switch c.Type {
		case Text:
			return same(pick(g, []string{"''", "'a'", "'goose'", "'Ünïcode'"}[:max(n, 1)]))
		case Date:
			return same(fmt.Sprintf("CAST('2024-02-%02d' AS DATE)", 26+n%4))
		case Double:
			return same(fmt.Sprintf("CAST('%g' AS FLOAT8)", float64(n)/2-1))
		}
		return same(fmt.Sprintf("CAST(%d AS %s)", n, c.Type))
	}
	l := g.value(c.Type)
	if c.SQL == "DECIMAL(9,2)" {
		return same(fmt.Sprintf("CAST(%d.%02d AS DECIMAL(9,2))", g.r.IntN(400)-200, g.r.IntN(100)))
	}
	return l
}

// CreateSQL is the statement that makes the table.
func (t *Table) CreateSQL(d Dialect) string {
	var cols []string
	for i, c := range t.Columns {
		s := c.Name + " " + c.SQL
		switch {
		case i == 0 && t.Key:
			s += " PRIMARY KEY"
		case c.NotNull:
			s += " NOT NULL"
		}
		cols = append(cols, s)
	}
	s := "CREATE TABLE " + t.Name + " (" + strings.Join(cols, ", ") + ")"
	if d == Skein {
		s += t.Options
	}
	return s
}

// insertRows is how many rows one INSERT has.
const insertRows = 500

// InsertSQL are the statements that fill the table.
func (t *Table) InsertSQL(d Dialect) []string {
	var out []string
	for from := 0; from < len(t.Rows); from += insertRows {
		var rows []string
		for _, row := range t.Rows[from:min(from+insertRows, len(t.Rows))] {
			cells := make([]string, len(row))
			for i, l := range row {
				cells[i] = l.in(d)
			}
			rows = append(rows, "("+strings.Join(cells, ", ")+")")
		}
		out = append(out, "INSERT INTO "+t.Name+" VALUES "+strings.Join(rows, ", "))
	}
	return out
}
