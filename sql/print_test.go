package sql_test

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
)

// printNode prints a plan as an indented tree, constants with their types.
func printNode(n planner.Node) string {
	var out strings.Builder
	writeNode(&out, n, 0)
	return out.String()
}

func writeNode(out *strings.Builder, n planner.Node, depth int) {
	line := func(format string, args ...any) {
		fmt.Fprintf(out, "%s%s\n", strings.Repeat("  ", depth), fmt.Sprintf(format, args...))
	}
	switch n := n.(type) {
	case *planner.Scan:
		line("scan %s as %s", n.Table.Name, n.Alias)
	case *planner.Filter:
		line("filter %s", n.Predicate)
	case *planner.Project:
		parts := make([]string, len(n.Exprs))
		for i, e := range n.Exprs {
			parts[i] = fmt.Sprintf("%s: %s", e, typeOf(e))
			if n.Names[i] != e.String() {
				parts[i] = n.Names[i] + " := " + parts[i]
			}
		}
		line("project %s", strings.Join(parts, ", "))
	case *planner.Aggregate:
		schema := n.Input.Schema()
		var parts []string
		for _, c := range n.Calls {
			arg := "*"
			if c.Arg >= 0 {
				arg = schema.Field(c.Arg).Name
			}
			if c.Distinct {
				arg = "distinct " + arg
			}
			for _, a := range c.Args {
				arg += ", " + schema.Field(a).Name
			}
			if len(c.OrderBy) > 0 {
				arg += fmt.Sprintf(" order by %v", c.OrderBy)
			}
			parts = append(parts, fmt.Sprintf("%s := %s(%s): %s", c.Name, c.Func, arg, catalog.TypeName(c.DataType)))
		}
		var keys []string
		for _, g := range n.GroupBy {
			keys = append(keys, schema.Field(g).Name)
		}
		line("aggregate by (%s) %s", strings.Join(keys, ", "), strings.Join(parts, ", "))
	case *planner.Join:
		on := make([]string, len(n.On))
		for i, k := range n.On {
			op := "="
			if k.NullSafe {
				op = "is not distinct from"
			}
			on[i] = fmt.Sprintf("%s %s %s", n.Left.Schema().Field(k.Left).Name, op, n.Right.Schema().Field(k.Right).Name)
		}
		line("%s join on (%s) residual %v", n.Kind, strings.Join(on, ", "), n.Residual)
	case *planner.Union:
		line("union")
	case *planner.With:
		names := make([]string, len(n.Commons))
		for i, c := range n.Commons {
			names[i] = c.Name
		}
		line("with %s", strings.Join(names, ", "))
	case *planner.CommonScan:
		line("common %s", n.Name)
	case *planner.Recursive:
		line("recursive %s distinct %t", n.Name, n.Distinct)
	case *planner.WorkingScan:
		line("working %s", n.Name)
	case *planner.Window:
		schema := n.Input.Schema()
		parts := make([]string, len(n.Calls))
		for i, c := range n.Calls {
			args := make([]string, len(c.Args))
			for k, a := range c.Args {
				args[k] = schema.Field(a).Name
			}
			f := c.Frame
			parts[i] = fmt.Sprintf("%s := %s(%s) %s %s..%s %s: %s", c.Name, c.Func, strings.Join(args, ", "), f.Mode,
				boundText(f.Start), boundText(f.End), f.Exclude, catalog.TypeName(c.DataType))
		}
		line("window %v order by %v: %s", n.PartitionBy, n.OrderBy, strings.Join(parts, ", "))
	case *planner.Sort:
		keys := make([]string, len(n.Keys))
		for i, k := range n.Keys {
			keys[i] = fmt.Sprintf("%d", k.Column)
			if k.Descending {
				keys[i] += " desc"
			}
			if k.NullsFirst {
				keys[i] += " nulls first"
			}
		}
		line("sort %s", strings.Join(keys, ", "))
	case *planner.Limit:
		line("limit %d offset %d", n.Limit, n.Offset)
	case *planner.Values:
		line("values %s", fieldsText(n.Fields))
		for _, row := range n.Rows {
			parts := make([]string, len(row))
			for i, e := range row {
				parts[i] = fmt.Sprintf("%s: %s", e, typeOf(e))
			}
			fmt.Fprintf(out, "%s(%s)\n", strings.Repeat("  ", depth+1), strings.Join(parts, ", "))
		}
	}
	for _, in := range n.Inputs() {
		writeNode(out, in, depth+1)
	}
}

func typeOf(e planner.Expr) string { return catalog.TypeName(e.Type()) }

func fieldsText(s *arrow.Schema) string {
	parts := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		parts[i] = f.Name + " " + catalog.TypeName(f.Type)
		if !f.Nullable {
			parts[i] += " not null"
		}
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func boundText(b planner.FrameBound) string {
	if b.Offset == nil {
		return string(b.Kind)
	}
	return fmt.Sprintf("%s %s", b.Offset, b.Kind)
}
