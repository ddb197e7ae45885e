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
	p := &printer{dialect: d}
	q.render(p)
	return p.String()
}

func (q *Query) render(b *printer) {
	q.renderWith(b)
	ties := q.Ties && b.dialect == Duck
	if ties { // which DuckDB does not have
		b.WriteString("SELECT * FROM (")
	}
	q.renderBody(b)
	if ties {
		b.WriteString(") AS ties QUALIFY rank() OVER (")
	}
	for i, o := range q.Order {
		b.WriteString([]string{" ORDER BY ", ", "}[min(i, 1)])
		fmt.Fprintf(b, "c%d", o.Column)
		b.WriteString(direction(o.Desc, o.Nulls, b.dialect))
	}
	switch {
	case ties:
		fmt.Fprintf(b, ") <= %d", q.Limit)
	case q.Ties:
		fmt.Fprintf(b, " FETCH FIRST %d ROWS WITH TIES", q.Limit)
	case q.Limit >= 0:
		fmt.Fprintf(b, " LIMIT %d", q.Limit)
	}
	if q.Offset > 0 {
		fmt.Fprintf(b, " OFFSET %d", q.Offset)
	}
}

func (q *Query) renderWith(b *printer) {
	recursive := ""
	for _, w := range q.With {
		if w.Recursive {
			recursive = "RECURSIVE "
		}
	}
	for i, w := range q.With {
		b.WriteString([]string{"WITH " + recursive, ", "}[min(i, 1)])
		b.WriteString(w.Name + " AS ")
		if w.Materialized != "" {
			b.WriteString(w.Materialized + " ")
		}
		b.WriteString("(")
		w.Query.render(b)
		b.WriteString(")")
	}
	if len(q.With) > 0 {
		b.WriteString(" ")
	}
}

func (q *Query) renderBody(b *printer) {
	if q.Set != nil {
		b.WriteString("(")
		q.Set.Left.render(b)
		b.WriteString(") " + q.Set.Op + " (")
		q.Set.Right.render(b)
		b.WriteString(")")
	} else {
		q.Select.render(b)
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

func (s *Select) render(b *printer) {
	b.WriteString("SELECT ")
	if s.Distinct {
		b.WriteString("DISTINCT ")
	}
	for i, c := range s.DistinctOn {
		b.WriteString([]string{"DISTINCT ON (", ", "}[min(i, 1)])
		s.Items[c-1].render(b)
	}
	if len(s.DistinctOn) > 0 {
		b.WriteString(") ")
	}
	for i, e := range s.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		e.render(b)
		fmt.Fprintf(b, " AS c%d", i+1)
	}
	if s.From != nil {
		b.WriteString(" FROM ")
		s.From.render(b)
	}
	if s.Where != nil {
		b.WriteString(" WHERE ")
		s.Where.render(b)
	}
	if len(s.Group) > 0 {
		b.WriteString(" GROUP BY ")
		s.renderGroup(b)
	}
	if s.Having != nil {
		b.WriteString(" HAVING ")
		s.Having.render(b)
	}
}

// renderGroup prints the keys; GROUPING SETS are each key, all keys and none.
func (s *Select) renderGroup(b *printer) {
	keys := make([]string, len(s.Group))
	for i, e := range s.Group {
		keys[i] = b.aside(e)
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

func (f *From) render(b *printer) {
	switch {
	case f.Join != "":
		b.WriteString("(")
		f.Left.render(b)
		b.WriteString(" " + f.Join + " ")
		f.Right.render(b)
		if f.Using != "" {
			b.WriteString(" USING (" + f.Using + ")")
		} else if f.On != nil {
			b.WriteString(" ON ")
			f.On.render(b)
		}
		b.WriteString(")")
	case f.Query != nil:
		if f.Lateral {
			b.WriteString("LATERAL ")
		}
		b.WriteString("(")
		f.Query.render(b)
		b.WriteString(") AS " + f.Alias)
	default:
		b.WriteString(f.Table + " AS " + f.Alias)
	}
}

// printer writes a text for one engine, with parameters in place of constants
// when it has a list of them.
type printer struct {
	strings.Builder
	dialect Dialect
	params  *params
}

// aside prints an expression that is going to stand in more than one place.
func (p *printer) aside(e *Expr) string {
	apart := &printer{dialect: p.dialect, params: p.params}
	e.render(apart)
	return apart.String()
}

// SQL prints an expression for an engine.
func (e *Expr) SQL(d Dialect) string { return (&printer{dialect: d}).aside(e) }

func (e *Expr) render(b *printer) {
	if b.params != nil && e.Leaf {
		if text, ok := b.params.of(e); ok {
			b.WriteString(text)
			return
		}
	}
	template := e.Skein
	if b.dialect == Duck && e.Duck != "" {
		template = e.Duck
	}
	for i := 0; i < len(template); i++ {
		c := template[i]
		switch {
		case c == '$' && i+1 < len(template) && template[i+1] >= '1' && template[i+1] <= '9':
			i++
			e.Args[template[i]-'1'].render(b)
		case c == '#' && e.Sub != nil:
			e.Sub.render(b)
		default:
			b.WriteByte(c)
		}
	}
}
