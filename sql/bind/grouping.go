package bind

import (
	"fmt"
	"slices"

	"skein/planner"
	"skein/sqlstate"
)

// grouping is the aggregation of one SELECT: what its expressions may refer to
// once rows are grouped.
type grouping struct {
	b    *binder
	keys []planner.Expr // over the FROM columns
	// computed are the keys once their subqueries are columns.
	computed []planner.Expr
	names    []string
	calls    []aggregateCall
	in       *scope

	callNames []string
	// sets are the grouping sets, each the keys it has by index; nil for plain
	// GROUP BY.
	sets [][]int
}

// node aggregates the input by the keys. Keys and arguments that are not
// plain columns are computed by a Project below.
func (g *grouping) node(input planner.Node) planner.Node {
	p := &planner.Project{Input: input}
	plain := true
	place := func(e planner.Expr, name string) int {
		for i, known := range p.Exprs {
			if equal(known, e) && !volatile(e) {
				return i
			}
		}
		if _, ok := e.(*planner.Column); !ok {
			plain = false
		}
		p.Exprs = append(p.Exprs, e)
		p.Names = append(p.Names, name)
		return len(p.Exprs) - 1
	}
	a := &planner.Aggregate{}
	for i, k := range g.computed {
		a.GroupBy = append(a.GroupBy, place(k, g.names[i]))
	}
	for i, c := range g.calls {
		call := planner.AggCall{Func: c.fn, Arg: -1, Distinct: c.distinct, DataType: c.dt, Name: g.callNames[i]}
		for k, e := range c.args {
			at := place(e, argumentName(e, i))
			if k == 0 {
				call.Arg = at
			} else {
				call.Args = append(call.Args, at)
			}
		}
		for _, o := range c.order {
			key := o.key
			key.Column = place(o.expr, argumentName(o.expr, i))
			call.OrderBy = append(call.OrderBy, key)
		}
		a.Calls = append(a.Calls, call)
	}
	if g.sets != nil {
		return g.setsNode(a, p)
	}
	if len(p.Exprs) == 0 {
		plain = true
	}
	if !plain {
		a.Input = p
		return a
	}
	a.Input = input
	at := func(i int) int { return p.Exprs[i].(*planner.Column).Index }
	for i, k := range a.GroupBy {
		a.GroupBy[i] = at(k)
	}
	for i := range a.Calls {
		c := &a.Calls[i]
		if c.Arg >= 0 {
			c.Arg = at(c.Arg)
		}
		for k, arg := range c.Args {
			c.Args[k] = at(arg)
		}
		for k := range c.OrderBy {
			c.OrderBy[k].Column = at(c.OrderBy[k].Column)
		}
	}
	return a
}

func argumentName(e planner.Expr, i int) string {
	if c, ok := e.(*planner.Column); ok {
		return c.Name
	}
	return fmt.Sprintf("arg_%d", i+1)
}

// rewrite turns an expression over the input rows into one over the groups: keys
// and aggregates become columns, and no other column may remain.
func (g *grouping) rewrite(e planner.Expr) (planner.Expr, error) {
	location := g.b.where(e)
	for i, k := range g.keys {
		if equal(k, e) {
			return g.b.at(&planner.Column{Index: i, Name: g.names[i], DataType: k.Type(), Null: k.Nullable() || g.sets != nil}, location), nil
		}
	}
	switch x := e.(type) {
	case *aggregateRef:
		return g.b.at(&planner.Column{Index: g.firstCall() + x.index, Name: g.callNames[x.index], DataType: x.dt, Null: x.null}, location), nil
	case *groupingRef:
		return g.groupingValue(x)
	case *planner.Column:
		return nil, g.b.errorAt(sqlstate.GroupingError, location,
			"column %q must appear in GROUP BY or be used in an aggregate function", g.qualified(x))
	}
	out, err := rebuild(e, g.rewrite)
	if err != nil {
		return nil, err
	}
	return g.b.at(out, location), nil
}

// dependentKeys adds the columns of tables whose primary key is among the keys:
// they have one value per group, so that expressions may refer to them.
func (s *selection) dependentKeys(g *grouping, having planner.Expr) {
	if g.sets != nil || len(g.keys) == 0 {
		return
	}
	free := make(map[int]string)
	for _, r := range g.in.relations {
		if r.table == nil || len(r.table.PrimaryKey) == 0 || len(r.columns) < len(r.table.Columns) || !g.hasKey(r) {
			continue
		}
		for _, c := range r.columns {
			free[c.index] = c.name
		}
	}
	if len(free) == 0 {
		return
	}
	read := func(e planner.Expr) {
		contains(e, func(x planner.Expr) bool {
			if c, ok := x.(*planner.Column); ok && free[c.Index] != "" {
				g.add(c, free[c.Index])
			}
			return false
		})
	}
	for _, t := range s.targets {
		read(t.expr)
	}
	if having != nil {
		read(having)
	}
}

// hasKey reports whether a table's primary key is among the keys.
func (g *grouping) hasKey(r *relation) bool {
	for _, at := range r.table.PrimaryKey {
		if !slices.ContainsFunc(g.keys, func(k planner.Expr) bool {
			c, ok := k.(*planner.Column)
			return ok && c.Index == r.columns[at].index
		}) {
			return false
		}
	}
	return true
}

// qualified is a column's name with its relation's.
func (g *grouping) qualified(c *planner.Column) string {
	for _, r := range g.in.relations {
		for _, rc := range r.columns {
			if rc.index == c.Index && r.alias != "" {
				return r.alias + "." + rc.name
			}
		}
	}
	return c.Name
}

// hasAggregate reports whether an expression contains an aggregate.
func hasAggregate(e planner.Expr) bool {
	if _, ok := e.(*aggregateRef); ok {
		return true
	}
	found := false
	_, _ = rebuild(e, func(a planner.Expr) (planner.Expr, error) {
		found = found || hasAggregate(a)
		return a, nil
	})
	return found
}
