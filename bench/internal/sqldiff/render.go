package sqldiff

import (
	"fmt"
	"strings"
)

// Dialect is one of the two languages.
type Dialect int

// The dialects.
const (
	Skein Dialect = iota
	Duck
)

// SQL prints a query for an engine.
func (q *Query) SQL(d Dialect) string {
	var b strings.Builder
	q.render(&b, d)
	return b.String()
}

func (q *Query) render(b *strings.Builder, d Dialect) {
	for i, w := range q.With {
		b.WriteString([]string{"WITH ", ", "}[min(i, 1)])
		b.WriteString(w.Name + " AS (")
		w.Query.render(b, d)
		b.WriteString(")")
	}
	if len(q.With) > 0 {
		b.WriteString(" ")
	}
	if q.Set != nil {
		b.WriteString("(")
		q.Set.Left.render(b, d)
		b.WriteString(") " + q.Set.Op + " (")
		q.Set.Right.render(b, d)
		b.WriteString(")")
	} else {
		q.Select.render(b, d)
	}
	for i, o := range q.Order {
		b.WriteString([]string{" ORDER BY ", ", "}[min(i, 1)])
		fmt.Fprintf(b, "c%d", o.Column)
		b.WriteString(direction(o.Desc, o.Nulls, d))
	}
	if q.Limit >= 0 {
		fmt.Fprintf(b, " LIMIT %d", q.Limit)
	}
	if q.Offset > 0 {
		fmt.Fprintf(b, " OFFSET %d", q.Offset)
	}
}

// direction prints what follows an expression in ORDER BY. PostgreSQL takes
// NULLs as the largest values, DuckDB sorts them last unless told otherwise.
func direction(desc bool, nulls string, d Dialect) string {
	s := ""
	if desc {
		s = " DESC"
	}
	if nulls == "" && d == Duck {
		nulls = "LAST"
		if desc {
			nulls = "FIRST"
		}
	}
	if nulls != "" {
		s += " NULLS " + nulls
	}
	return s
}

func (s *Select) render(b *strings.Builder, d Dialect) {
	b.WriteString("SELECT ")
	if s.Distinct {
		b.WriteString("DISTINCT ")
	}
	for i, c := range s.DistinctOn {
		b.WriteString([]string{"DISTINCT ON (", ", "}[min(i, 1)])
		b.WriteString(s.Items[c-1].SQL(d))
	}
	if len(s.DistinctOn) > 0 {
		b.WriteString(") ")
	}
	for i, e := range s.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s AS c%d", e.SQL(d), i+1)
	}
	if s.From != nil {
		b.WriteString(" FROM ")
		s.From.render(b, d)
	}
	if s.Where != nil {
		b.WriteString(" WHERE " + s.Where.SQL(d))
	}
	if len(s.Group) > 0 {
		b.WriteString(" GROUP BY ")
		s.renderGroup(b, d)
	}
	if s.Having != nil {
		b.WriteString(" HAVING " + s.Having.SQL(d))
	}
}

// renderGroup prints the keys; GROUPING SETS are each key, all keys and none.
func (s *Select) renderGroup(b *strings.Builder, d Dialect) {
	keys := make([]string, len(s.Group))
	for i, e := range s.Group {
		keys[i] = e.SQL(d)
	}
	all := strings.Join(keys, ", ")
	switch s.Grouping {
	case "":
		b.WriteString(all)
	case "GROUPING SETS":
		b.WriteString("GROUPING SETS ((" + all + "), (), (" + strings.Join(keys, "), (") + "))")
	default:
		b.WriteString(s.Grouping + " (" + all + ")")
	}
}

func (f *From) render(b *strings.Builder, d Dialect) {
	switch {
	case f.Join != "":
		b.WriteString("(")
		f.Left.render(b, d)
		b.WriteString(" " + f.Join + " ")
		f.Right.render(b, d)
		if f.Using != "" {
			b.WriteString(" USING (" + f.Using + ")")
		} else if f.On != nil {
			b.WriteString(" ON " + f.On.SQL(d))
		}
		b.WriteString(")")
	case f.Query != nil:
		b.WriteString("(")
		f.Query.render(b, d)
		b.WriteString(") AS " + f.Alias)
	default:
		b.WriteString(f.Table + " AS " + f.Alias)
	}
}

// SQL prints an expression for an engine.
func (e *Expr) SQL(d Dialect) string {
	template := e.Skein
	if d == Duck && e.Duck != "" {
		template = e.Duck
	}
	var b strings.Builder
	for i := 0; i < len(template); i++ {
		c := template[i]
		switch {
		case c == '$' && i+1 < len(template) && template[i+1] >= '1' && template[i+1] <= '9':
			i++
			b.WriteString(e.Args[template[i]-'1'].SQL(d))
		case c == '#' && e.Sub != nil:
			e.Sub.render(&b, d)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
