package sql_test

import (
	"fmt"
	"strings"

	"skein/catalog"
	"skein/planner"
	"skein/sql"
)

// describeChange prints the statements that change rows or tables.
func describeChange(out *strings.Builder, s sql.Bound) {
	switch s := s.(type) {
	case *sql.Update:
		names := make([]string, len(s.Columns))
		for i, at := range s.Columns {
			names[i] = s.Table.Columns[at].Name
		}
		fmt.Fprintf(out, "update %s (%s) joined=%t\n%s", s.Table.QualifiedName(), strings.Join(names, ", "), s.Joined, printNode(s.Source))
		describeReturning(out, s.Returning)
	case *sql.Delete:
		fmt.Fprintf(out, "delete from %s joined=%t\n%s", s.Table.QualifiedName(), s.Joined, printNode(s.Source))
		describeReturning(out, s.Returning)
	case *sql.Truncate:
		for _, t := range s.Tables {
			fmt.Fprintf(out, "truncate %s\n", t.QualifiedName())
		}
	case *sql.CreateSchema:
		fmt.Fprintf(out, "create schema %q if-not-exists=%t\n", s.Name, s.IfNotExists)
	case *sql.DropSchema:
		fmt.Fprintf(out, "drop schema %q if-exists=%t cascade=%t\n", s.Names, s.IfExists, s.Cascade)
	case *sql.CreateUser:
		fmt.Fprintf(out, "create user %q password=%v:%d superuser=%t\n", s.Name, s.Password, len(s.Password), s.Superuser)
	case *sql.AlterUser:
		fmt.Fprintf(out, "alter user %q", s.Name)
		if s.Password != nil {
			fmt.Fprintf(out, " password=%v:%d", s.Password, len(*s.Password))
		}
		if s.Superuser != nil {
			fmt.Fprintf(out, " superuser=%t", *s.Superuser)
		}
		out.WriteString("\n")
	case *sql.DropUser:
		fmt.Fprintf(out, "drop user %q if-exists=%t\n", s.Names, s.IfExists)
	case *sql.Set:
		fmt.Fprintf(out, "set %q %q reset=%t\n", s.Name, s.Values, s.Reset)
	case *sql.Show:
		fmt.Fprintf(out, "show %q\n", s.Name)
	case *sql.Call:
		fmt.Fprintf(out, "call %s %v\n", s.Procedure, s.Args)
	case *sql.AlterTable:
		fmt.Fprintf(out, "alter %s.%s if-exists=%t\n", s.Name.Schema, s.Name.Name, s.IfExists)
		for _, a := range s.Actions {
			fmt.Fprintf(out, "  %s %q %q quiet=%t", a.Kind, a.Name, a.NewName, a.Quiet)
			if c := a.Column; c != nil {
				fmt.Fprintf(out, " %s nullable=%t default=%q max=%d", catalog.TypeName(c.Type), c.Nullable, c.Default, c.MaxLength)
			}
			out.WriteByte('\n')
		}
	}
}

// describeConflict prints ON CONFLICT; columns are named with their ordinals,
// for stored and incoming rows have the same names.
func describeConflict(out *strings.Builder, t *catalog.Table, c *sql.OnConflict) {
	switch {
	case c == nil:
		return
	case c.Set == nil:
		out.WriteString("on conflict do nothing\n")
		return
	}
	fmt.Fprintf(out, "on conflict do update replace=%t\n", c.Replace)
	for i, e := range c.Set {
		if col, ok := e.(*planner.Column); ok {
			fmt.Fprintf(out, "  %s := #%d\n", t.Columns[i].Name, col.Index)
			continue
		}
		fmt.Fprintf(out, "  %s := %s: %s\n", t.Columns[i].Name, e, typeOf(e))
	}
	if c.Where != nil {
		fmt.Fprintf(out, "  where %s\n", c.Where)
	}
}

func describeReturning(out *strings.Builder, r *sql.Returning) {
	if r == nil {
		return
	}
	parts := make([]string, len(r.Exprs))
	for i, e := range r.Exprs {
		parts[i] = e.String()
	}
	fmt.Fprintf(out, "returning %s: %s\n", fieldsText(r.Schema), strings.Join(parts, ", "))
}
