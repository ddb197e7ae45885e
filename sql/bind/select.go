package bind

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// output is a bound query: its node and the columns it shows.
type output struct {
	node   planner.Node
	fields []arrow.Field
}

// target is one output column of a SELECT.
type target struct {
	expr planner.Expr
	name string
}

// selection is a SELECT while it is bound.
type selection struct {
	*binder
	stmt    *pgquery.SelectStmt
	from    *source
	node    planner.Node
	context *exprContext // of the select list
	targets []target
	keys    []planner.SortKey // over targets, hidden ones last
	visible int               // targets before the hidden ones
	on      []int             // targets of DISTINCT ON
}

// selectStmt binds a SELECT or VALUES. wanted are the types that untyped
// output columns get, as the target of INSERT ... SELECT gives them; nil and
// missing ones are text.
func (b *binder) selectStmt(stmt *pgquery.SelectStmt, wanted []arrow.DataType) (*output, error) {
	if stmt.Op != pgquery.SetOperation_SETOP_NONE {
		if err := b.onlyFields(stmt, "op", "all", "larg", "rarg", "sort_clause", "limit_offset", "limit_count", "limit_option", "with_clause"); err != nil {
			return nil, err
		}
		return b.setOperation(stmt, wanted)
	}
	if err := b.onlyFields(stmt, "distinct_clause", "target_list", "from_clause", "where_clause", "group_clause",
		"having_clause", "values_lists", "sort_clause", "limit_offset", "limit_count", "limit_option", "with_clause", "window_clause"); err != nil {
		return nil, err
	}
	restore, err := b.with(stmt.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	if len(stmt.ValuesLists) > 0 {
		return b.values(stmt, wanted)
	}
	s := &selection{binder: b, stmt: stmt}
	if s.from, err = b.from(stmt.FromClause); err != nil {
		return nil, err
	}
	s.node = s.from.node
	s.context = &exprContext{scope: s.from.scope, aggregates: &aggregates{}, clause: "SELECT", subqueries: true, windows: true}
	for _, w := range stmt.WindowClause {
		s.context.named = append(s.context.named, w.GetWindowDef())
	}
	return s.bind(wanted)
}

// bind runs the clauses in the order of their meaning.
func (s *selection) bind(wanted []arrow.DataType) (*output, error) {
	if err := s.filterRows(); err != nil {
		return nil, err
	}
	if err := s.selectList(wanted); err != nil {
		return nil, err
	}
	s.visible = len(s.targets)
	if err := s.orderBy(); err != nil {
		return nil, err
	}
	if err := s.bindDistinctOn(); err != nil {
		return nil, err
	}
	if err := s.group(); err != nil {
		return nil, err
	}
	for i, t := range s.targets {
		var err error
		if s.node, s.targets[i].expr, err = s.attach(s.node, t.expr); err != nil {
			return nil, err
		}
	}
	if err := s.planWindows(); err != nil {
		return nil, err
	}
	for i, t := range s.targets {
		folded, err := s.fold(t.expr)
		if err != nil {
			return nil, err
		}
		s.targets[i].expr = folded
	}
	distinct, err := s.distinct()
	if err != nil {
		return nil, err
	}
	s.project()
	if distinct {
		s.node = distinctRows(s.node, s.visible)
	}
	s.distinctOn()
	return s.finish(s.visible)
}

// finish sorts, limits and drops hidden columns.
func (s *selection) finish(visible int) (*output, error) {
	if s.stmt.LimitOption == pgquery.LimitOption_LIMIT_OPTION_WITH_TIES {
		if err := s.limitWithTies(); err != nil {
			return nil, err
		}
		s.stmt = &pgquery.SelectStmt{}
	}
	if len(s.keys) > 0 {
		s.node = &planner.Sort{Input: s.node, Keys: s.keys, Limit: -1}
	}
	var err error
	if s.node, err = s.limit(s.stmt, s.node); err != nil {
		return nil, err
	}
	schema := s.node.Schema()
	out := &output{node: s.node, fields: schema.Fields()[:visible:visible]}
	if schema.NumFields() > visible {
		p := &planner.Project{Input: s.node}
		for i := range visible {
			p.Exprs = append(p.Exprs, planner.ColumnOf(schema, i))
			p.Names = append(p.Names, schema.Field(i).Name)
		}
		out.node = p
	}
	out.fields = append([]arrow.Field(nil), out.fields...)
	return out, nil
}

func (s *selection) filterRows() error {
	if s.stmt.WhereClause == nil {
		return nil
	}
	cond, err := s.expr(s.stmt.WhereClause, &exprContext{scope: s.from.scope, clause: "WHERE", subqueries: true})
	if err != nil {
		return err
	}
	if cond, err = s.toBoolean(cond, "WHERE"); err != nil {
		return err
	}
	s.node, err = s.filter(s.node, cond)
	return err
}

// selectList binds the output columns, expanding stars.
func (s *selection) selectList(wanted []arrow.DataType) error {
	for _, n := range s.stmt.TargetList {
		t := n.GetResTarget()
		if err := s.onlyFields(t, "name", "val"); err != nil {
			return err
		}
		if ref, ok := isStar(t.Val); ok {
			columns, err := s.star(ref, s.from.scope)
			if err != nil {
				return err
			}
			for _, c := range columns {
				s.targets = append(s.targets, target{s.column(c, ref.Location), c.name})
			}
			continue
		}
		e, err := s.expr(t.Val, s.context)
		if err != nil {
			return err
		}
		if at := len(s.targets); isUntyped(e) && at < len(wanted) && wanted[at] != nil {
			e, err = s.convert(e, wanted[at])
		} else {
			e, err = s.settled(e)
		}
		if err != nil {
			return err
		}
		name := t.Name
		if name == "" {
			name = outputName(t.Val)
		}
		s.targets = append(s.targets, target{e, name})
	}
	return nil
}

// group aggregates when there is anything to aggregate, and turns the targets
// into expressions over the groups.
func (s *selection) group() error {
	g := &grouping{b: s.binder, in: s.from.scope}
	if err := s.groupBy(g); err != nil {
		return err
	}
	having, err := s.having()
	if err != nil {
		return err
	}
	g.calls = s.context.aggregates.calls
	g.callNames = s.callNames(len(g.calls))
	if len(s.stmt.GroupClause) == 0 && having == nil && len(g.calls) == 0 {
		return nil
	}
	if len(g.calls) > 0 && s.readsItself(s.stmt.FromClause) {
		return s.errorAt(sqlstate.InvalidRecursion, -1, "aggregate functions are not allowed in the recursive term of a recursive query")
	}
	s.dependentKeys(g, having)
	if err := g.attach(s); err != nil {
		return err
	}
	s.node = g.node(s.node)
	if having != nil {
		if having, err = g.rewrite(having); err != nil {
			return err
		}
		if s.node, err = s.filter(s.node, having); err != nil {
			return err
		}
	}
	for i, t := range s.targets {
		if s.targets[i].expr, err = g.rewrite(t.expr); err != nil {
			return err
		}
	}
	return nil
}

// attach computes the subqueries in keys and arguments below the aggregate.
func (g *grouping) attach(s *selection) error {
	for _, k := range g.keys {
		var err error
		if s.node, k, err = s.binder.attach(s.node, k); err != nil {
			return err
		}
		g.computed = append(g.computed, k)
	}
	for i := range g.calls {
		c := &g.calls[i]
		for k := range c.args {
			var err error
			if s.node, c.args[k], err = s.binder.attach(s.node, c.args[k]); err != nil {
				return err
			}
		}
		for k := range c.order {
			var err error
			if s.node, c.order[k].expr, err = s.binder.attach(s.node, c.order[k].expr); err != nil {
				return err
			}
		}
	}
	return nil
}

// add makes an expression a key, once, and returns its index.
func (g *grouping) add(key planner.Expr, name string) int {
	for i, k := range g.keys {
		if equal(k, key) {
			return i
		}
	}
	g.keys = append(g.keys, key)
	g.names = append(g.names, name)
	return len(g.keys) - 1
}

// callNames names aggregate results: as the output column that shows just the
// aggregate, else by number.
func (s *selection) callNames(calls int) []string {
	names := make([]string, calls)
	for i, c := range s.context.aggregates.calls {
		names[i] = fmt.Sprintf("%s_%d", c.fn, i+1)
	}
	for _, t := range s.targets[:s.visible] {
		if a, ok := t.expr.(*aggregateRef); ok {
			names[a.index] = t.name
		}
	}
	return names
}

func (s *selection) having() (planner.Expr, error) {
	if s.stmt.HavingClause == nil {
		return nil, nil
	}
	c := &exprContext{scope: s.from.scope, aggregates: s.context.aggregates, clause: "HAVING", subqueries: true}
	e, err := s.expr(s.stmt.HavingClause, c)
	if err != nil {
		return nil, err
	}
	return s.toBoolean(e, "HAVING")
}

// groupKey binds one entry of GROUP BY: an output column's number, a column of
// FROM, an output column's name, or an expression.
func (s *selection) groupKey(n *pgquery.Node) (planner.Expr, string, error) {
	if c := n.GetAConst(); c != nil {
		t, err := s.ordinal(c, "GROUP BY")
		if err != nil {
			return nil, "", err
		}
		if hasAggregate(t.expr) {
			return nil, "", s.errorAt(sqlstate.GroupingError, c.Location, "aggregate functions are not allowed in GROUP BY")
		}
		return t.expr, t.name, nil
	}
	if name, ref := plainName(n); ref != nil && len(find(s.from.scope.columns, name)) == 0 {
		i, err := s.outputNamed(name, ref.Location)
		if err != nil {
			return nil, "", err
		}
		if i >= 0 {
			if hasAggregate(s.targets[i].expr) {
				return nil, "", s.errorAt(sqlstate.GroupingError, ref.Location, "aggregate functions are not allowed in GROUP BY")
			}
			return s.targets[i].expr, name, nil
		}
	}
	e, err := s.expr(n, &exprContext{scope: s.from.scope, clause: "GROUP BY", subqueries: true})
	if err != nil {
		return nil, "", err
	}
	e, err = s.settled(e)
	return e, outputName(n), err
}

// ordinal is the output column that an integer in GROUP BY or ORDER BY names.
func (s *selection) ordinal(c *pgquery.A_Const, clause string) (*target, error) {
	if c.Isnull || c.GetIval() == nil {
		return nil, s.errorAt(sqlstate.SyntaxError, c.Location, "a constant in %s must be the number of an output column", clause)
	}
	i := int(c.GetIval().Ival)
	if i < 1 || i > s.visible {
		return nil, s.errorAt(sqlstate.InvalidColumnReference, c.Location, "%s position %d is not in the select list", clause, i)
	}
	return &s.targets[i-1], nil
}

// outputNamed is the visible output column of a name, -1 if there is none.
func (s *selection) outputNamed(name string, location int32) (int, error) {
	found := -1
	for i, t := range s.targets[:s.visible] {
		if t.name != name {
			continue
		}
		if found >= 0 && !equal(s.targets[found].expr, t.expr) {
			return -1, s.errorAt(sqlstate.AmbiguousColumn, location, "%q names several output columns", name)
		}
		if found < 0 {
			found = i
		}
	}
	return found, nil
}

// plainName is the name when a node is an unqualified column reference.
func plainName(n *pgquery.Node) (string, *pgquery.ColumnRef) {
	ref := n.GetColumnRef()
	if ref == nil || len(ref.Fields) != 1 || ref.Fields[0].GetString_() == nil {
		return "", nil
	}
	return ref.Fields[0].GetString_().Sval, ref
}

// project computes the targets, unless the node already has just them.
func (s *selection) project() {
	if s.projected() {
		return
	}
	p := &planner.Project{Input: s.node}
	for _, t := range s.targets {
		p.Exprs = append(p.Exprs, t.expr)
		p.Names = append(p.Names, t.name)
	}
	if len(s.stmt.FromClause) > 0 || s.node != s.from.node {
		s.node = p
		return
	}
	// Without FROM the one row may as well be the result.
	fields := make([]arrow.Field, len(p.Exprs))
	for i, e := range p.Exprs {
		fields[i] = arrow.Field{Name: p.Names[i], Type: e.Type(), Nullable: e.Nullable()}
	}
	s.node = &planner.Values{Fields: arrow.NewSchema(fields, nil), Rows: [][]planner.Expr{p.Exprs}}
}

// projected reports whether the targets are the node's columns as they are.
func (s *selection) projected() bool {
	for i, t := range s.targets {
		if c, ok := t.expr.(*planner.Column); !ok || c.Index != i {
			return false
		}
	}
	schema := s.node.Schema()
	if len(s.targets) != schema.NumFields() {
		return false
	}
	for i, t := range s.targets {
		if schema.Field(i).Name != t.name {
			return false
		}
	}
	return true
}
