package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// maxGroupingSets bounds what CUBE and its like may multiply to.
const maxGroupingSets = 4096

// groupingRef is GROUPING(...) until its group is known.
type groupingRef struct{ args []planner.Expr }

// Type is integer.
func (g *groupingRef) Type() arrow.DataType { return catalog.Integer }

// Nullable is false.
func (g *groupingRef) Nullable() bool { return false }

// String is the function's name.
func (g *groupingRef) String() string { return "grouping" }

func (b *binder) groupingFunc(f *pgquery.GroupingFunc, c *exprContext) (planner.Expr, error) {
	if c.aggregates == nil {
		return nil, b.errorAt(sqlstate.GroupingError, f.Location, "GROUPING is not allowed in %s", c.clause)
	}
	if len(f.Args) > 31 {
		return nil, b.errorAt(sqlstate.ProgramLimitExceeded, f.Location, "GROUPING takes at most 31 arguments")
	}
	args, err := b.exprs(f.Args, inAggregate(c))
	if err != nil {
		return nil, err
	}
	return b.at(&groupingRef{args}, f.Location), nil
}

// groupingValue is the bits of the arguments that a row's grouping set lacks.
func (g *grouping) groupingValue(r *groupingRef) (planner.Expr, error) {
	keys := make([]int, len(r.args))
	for i, a := range r.args {
		keys[i] = slices.IndexFunc(g.keys, func(k planner.Expr) bool { return equal(k, a) })
		if keys[i] < 0 {
			return nil, g.b.errorAt(sqlstate.GroupingError, g.b.where(a), "arguments of GROUPING must be expressions of GROUP BY")
		}
	}
	value := func(set []int) planner.Expr {
		bits := int64(0)
		for _, k := range keys {
			bits <<= 1
			if !slices.Contains(set, k) {
				bits |= 1
			}
		}
		return &planner.Literal{Value: bits, DataType: catalog.Integer}
	}
	if g.sets == nil {
		all := make([]int, len(g.keys))
		for i := range all {
			all[i] = i
		}
		return value(all), nil
	}
	out := &planner.Case{DataType: catalog.Integer, Else: value(nil)}
	for i, set := range g.sets {
		out.Whens = append(out.Whens, planner.When{Cond: setIs(g.setColumn(len(g.keys)), i), Then: value(set)})
	}
	return out, nil
}

func (g *grouping) setColumn(at int) *planner.Column {
	return &planner.Column{Index: at, Name: "grouping_set", DataType: catalog.Integer}
}

func setIs(column *planner.Column, set int) planner.Expr {
	return &planner.Call{
		Func: "=", DataType: catalog.Boolean,
		Args: []planner.Expr{column, &planner.Literal{Value: int64(set), DataType: catalog.Integer}},
	}
}

// firstCall is where the aggregates' results begin in the grouped node.
func (g *grouping) firstCall() int {
	if g.sets != nil {
		return len(g.keys) + 1
	}
	return len(g.keys)
}

// setsNode aggregates by all grouping sets: every input row is repeated for
// each of them, with the keys that the set lacks made NULL and the set's number
// as one more key. Empty sets, which have a group even over no rows, are
// aggregates of their own. a is over the columns of p.
func (g *grouping) setsNode(a *planner.Aggregate, p *planner.Project) planner.Node {
	if len(p.Exprs) == 0 {
		p.Exprs, p.Names = []planner.Expr{planner.BoolLiteral(true)}, []string{"one"}
	}
	number := func(i int) planner.Expr { return &planner.Literal{Value: int64(i), DataType: catalog.Integer} }
	field := arrow.Field{Name: "grouping_set", Type: catalog.Integer}
	values := &planner.Values{Fields: arrow.NewSchema([]arrow.Field{field}, nil)}
	var branches []planner.Node
	for i, set := range g.sets {
		if len(set) > 0 {
			values.Rows = append(values.Rows, []planner.Expr{number(i)})
			continue
		}
		global := &planner.Aggregate{Input: p, Calls: a.Calls}
		out := &planner.Project{Input: global}
		for k, key := range g.keys {
			out.Exprs, out.Names = append(out.Exprs, &planner.Literal{DataType: key.Type()}), append(out.Names, g.names[k])
		}
		out.Exprs, out.Names = append(out.Exprs, number(i)), append(out.Names, field.Name)
		schema := global.Schema()
		for c := range a.Calls {
			out.Exprs, out.Names = append(out.Exprs, planner.ColumnOf(schema, c)), append(out.Names, a.Calls[c].Name)
		}
		branches = append(branches, out)
	}
	if len(values.Rows) > 0 {
		branches = append([]planner.Node{g.expanded(a, p, values)}, branches...)
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return &planner.Union{Branches: branches}
}

// expanded aggregates p's rows once per set that values lists.
func (g *grouping) expanded(a *planner.Aggregate, p *planner.Project, values *planner.Values) planner.Node {
	crossed := &planner.Join{Kind: planner.CrossJoin, Left: p, Right: values}
	schema := crossed.Schema()
	width := len(p.Exprs)
	out := &planner.Project{Input: crossed}
	for i, at := range a.GroupBy {
		key := planner.ColumnOf(schema, at)
		masked := &planner.Case{DataType: key.DataType, Else: &planner.Literal{DataType: key.DataType}}
		for s, set := range g.sets {
			if slices.Contains(set, i) {
				masked.Whens = append(masked.Whens, planner.When{Cond: setIs(g.setColumn(width), s), Then: key})
			}
		}
		var e planner.Expr = masked
		if len(masked.Whens) == 0 {
			e = masked.Else
		}
		out.Exprs, out.Names = append(out.Exprs, e), append(out.Names, g.names[i])
	}
	out.Exprs, out.Names = append(out.Exprs, g.setColumn(width)), append(out.Names, "grouping_set")
	keys := len(out.Exprs)
	for i := range width {
		out.Exprs, out.Names = append(out.Exprs, planner.ColumnOf(schema, i)), append(out.Names, p.Names[i])
	}
	grouped := &planner.Aggregate{Input: out}
	for i := range keys {
		grouped.GroupBy = append(grouped.GroupBy, i)
	}
	for _, c := range a.Calls {
		if c.Arg >= 0 {
			c.Arg += keys
		}
		c.Args = slices.Clone(c.Args)
		for i := range c.Args {
			c.Args[i] += keys
		}
		c.OrderBy = slices.Clone(c.OrderBy)
		for i := range c.OrderBy {
			c.OrderBy[i].Column += keys
		}
		grouped.Calls = append(grouped.Calls, c)
	}
	return grouped
}

// groupBy binds the GROUP BY clause: its keys and, where it says more than a
// list of them, its grouping sets.
func (s *selection) groupBy(g *grouping) error {
	sets := [][]int{{}}
	special := false
	for _, n := range s.stmt.GroupClause {
		next, err := s.groupingSets(g, n)
		if err != nil {
			return err
		}
		special = special || n.GetGroupingSet() != nil
		if len(sets)*len(next) > maxGroupingSets {
			return s.errorAt(sqlstate.ProgramLimitExceeded, locationOf(n), "GROUP BY has more than %d grouping sets", maxGroupingSets)
		}
		sets = product(sets, next)
	}
	if special {
		g.sets = sets
	}
	return nil
}

func product(a, b [][]int) [][]int {
	var out [][]int
	for _, x := range a {
		for _, y := range b {
			out = append(out, union(x, y))
		}
	}
	return out
}

func union(x, y []int) []int {
	out := slices.Clone(x)
	for _, k := range y {
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if out == nil {
		out = []int{}
	}
	return out
}

// groupingSets are the sets that one entry of GROUP BY stands for.
func (s *selection) groupingSets(g *grouping, n *pgquery.Node) ([][]int, error) {
	set := n.GetGroupingSet()
	if set == nil {
		keys, err := s.groupingKeys(g, n)
		return [][]int{keys}, err
	}
	switch set.Kind {
	case pgquery.GroupingSetKind_GROUPING_SET_EMPTY:
		return [][]int{{}}, nil
	case pgquery.GroupingSetKind_GROUPING_SET_SETS:
		var out [][]int
		for _, c := range set.Content {
			inner, err := s.groupingSets(g, c)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		}
		return out, nil
	}
	parts := make([][]int, len(set.Content))
	for i, c := range set.Content {
		var err error
		if parts[i], err = s.groupingKeys(g, c); err != nil {
			return nil, err
		}
	}
	if set.Kind == pgquery.GroupingSetKind_GROUPING_SET_CUBE {
		return s.cube(parts, set.Location)
	}
	var out [][]int
	for kept := len(parts); kept >= 0; kept-- {
		one := []int{}
		for _, p := range parts[:kept] {
			one = union(one, p)
		}
		out = append(out, one)
	}
	return out, nil
}

func (s *selection) cube(parts [][]int, location int32) ([][]int, error) {
	if len(parts) > 12 {
		return nil, s.errorAt(sqlstate.ProgramLimitExceeded, location, "CUBE takes at most 12 elements")
	}
	var out [][]int
	for left := 1<<len(parts) - 1; left >= 0; left-- {
		one := []int{}
		for i, p := range parts {
			if left&(1<<(len(parts)-1-i)) != 0 {
				one = union(one, p)
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// groupingKeys binds an expression, or several in parentheses, as keys.
func (s *selection) groupingKeys(g *grouping, n *pgquery.Node) ([]int, error) {
	nodes := []*pgquery.Node{n}
	if row := n.GetRowExpr(); row != nil {
		nodes = row.Args
	}
	keys := []int{}
	for _, n := range nodes {
		key, name, err := s.groupKey(n)
		if err != nil {
			return nil, err
		}
		keys = append(keys, g.add(key, name))
	}
	return keys, nil
}
