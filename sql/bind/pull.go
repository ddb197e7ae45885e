package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// pulled is a subquery without references to the query around it: node, the
// conditions that have been taken out of it, and its output columns as
// expressions. Conditions and outputs are over node's columns and outerRefs.
type pulled struct {
	node    planner.Node
	conds   []planner.Expr
	outputs []planner.Expr
	unique  bool // at most one row of node satisfies conds
	// global: node is an aggregate without GROUP BY, grouped by what it
	// correlates on. Then counts says which of its columns are counts, and having
	// is the condition above it, nil for none.
	global bool
	counts map[int]bool
	having planner.Expr
}

// pull takes the references to the query around out of a subquery's node.
func (b *binder) pull(n planner.Node) (*pulled, error) {
	if !correlated(n) {
		return plainPulled(n, b.atMostOneRow(n)), nil
	}
	if err := b.steady(n); err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case *planner.Values:
		return b.pullValues(n)
	case *planner.Filter:
		return b.pullFilter(n)
	case *planner.Project:
		return b.pullProject(n)
	case *planner.Join:
		return b.pullJoin(n)
	case *planner.Aggregate:
		return b.pullAggregate(n)
	case *planner.Sort:
		// Without a limit above, the order of a subquery's rows means nothing.
		return b.pull(n.Input)
	case *planner.Limit:
		return b.pullLimit(n)
	case *planner.Window:
		return b.pullWindow(n)
	}
	return nil, b.tooCorrelated("")
}

func (b *binder) tooCorrelated(how string) error {
	err := sqlstate.New(sqlstate.FeatureNotSupported, "this form of a correlated subquery is not supported").
		WithHint("Refer to the outer query's columns by equalities in the subquery's WHERE, or rewrite it as a join.")
	if how != "" {
		err = sqlstate.New(sqlstate.FeatureNotSupported, "a correlated subquery that refers to the outer query %s is not supported", how).
			WithHint("Refer to the outer query's columns by equalities in the subquery's WHERE, or rewrite it as a join.")
	}
	return err
}

func plainPulled(n planner.Node, unique bool) *pulled {
	p := &pulled{node: n, unique: unique}
	schema := n.Schema()
	for i := range schema.NumFields() {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, i))
	}
	return p
}

func (b *binder) atMostOneRow(n planner.Node) bool {
	switch n := n.(type) {
	case *planner.Filter:
		return b.atMostOneRow(n.Input)
	case *planner.Project:
		return b.atMostOneRow(n.Input)
	case *planner.Limit:
		return n.Limit == 0 || n.Limit == 1 || b.atMostOneRow(n.Input)
	case *planner.Sort:
		return b.atMostOneRow(n.Input)
	case *planner.CommonScan:
		return b.atMostOneRow(b.commonInput(n))
	}
	return b.alwaysOneRow(n)
}

// correlated reports whether a subtree refers to the query around it.
func correlated(n planner.Node) bool {
	for _, e := range expressionsOf(n) {
		if hasOuter(e) {
			return true
		}
	}
	return slices.ContainsFunc(n.Inputs(), correlated)
}

// expressionsOf are the scalar expressions of a node itself.
func expressionsOf(n planner.Node) []planner.Expr {
	switch n := n.(type) {
	case *planner.Filter:
		return []planner.Expr{n.Predicate}
	case *planner.Project:
		return n.Exprs
	case *planner.Join:
		if n.Residual != nil {
			return []planner.Expr{n.Residual}
		}
	case *planner.Values:
		var out []planner.Expr
		for _, row := range n.Rows {
			out = append(out, row...)
		}
		return out
	}
	return nil
}

// over restates an expression over a node's outputs.
func (p *pulled) over(e planner.Expr) planner.Expr {
	return replaceLeaves(e, func(x planner.Expr) planner.Expr {
		if c, ok := x.(*planner.Column); ok {
			return p.outputs[c.Index]
		}
		return nil
	})
}

func (b *binder) pullValues(n *planner.Values) (*pulled, error) {
	if len(n.Rows) != 1 {
		return nil, b.tooCorrelated("in VALUES of several rows")
	}
	return &pulled{node: oneRow().node, outputs: n.Rows[0], unique: true}, nil
}

func (b *binder) pullFilter(n *planner.Filter) (*pulled, error) {
	p, err := b.pull(n.Input)
	if err != nil {
		return nil, err
	}
	cond := p.over(n.Predicate)
	if p.global {
		if p.having != nil {
			cond = b.connect("and", []planner.Expr{p.having, cond}, b.where(n.Predicate))
		}
		p.having = cond
		return p, nil
	}
	var own []planner.Expr
	for _, c := range conjuncts(cond) {
		if hasOuter(c) {
			p.conds = append(p.conds, c)
		} else {
			own = append(own, c)
		}
	}
	if len(own) > 0 {
		p.node = &planner.Filter{Input: p.node, Predicate: b.connect("and", own, b.where(n.Predicate))}
	}
	return p, nil
}

func (b *binder) pullProject(n *planner.Project) (*pulled, error) {
	p, err := b.pull(n.Input)
	if err != nil {
		return nil, err
	}
	outputs := make([]planner.Expr, len(n.Exprs))
	for i, e := range n.Exprs {
		outputs[i] = p.over(e)
	}
	p.outputs = outputs
	return p, nil
}

// pullJoin takes conditions out of both sides of an inner join, and out of the
// side whose rows other joins keep.
func (b *binder) pullJoin(n *planner.Join) (*pulled, error) {
	inner := n.Kind == planner.InnerJoin || n.Kind == planner.CrossJoin
	if !inner && n.Kind != planner.LeftJoin && n.Kind != planner.SingleJoin && n.Kind != planner.SemiJoin &&
		n.Kind != planner.AntiJoin && n.Kind != planner.MarkJoin {
		return nil, b.tooCorrelated("inside an outer join")
	}
	if !inner && (correlated(n.Right) || n.Residual != nil && hasOuter(n.Residual)) {
		return nil, b.tooCorrelated("over several levels or inside an outer join")
	}
	left, err := b.pull(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := b.pull(n.Right)
	if err != nil {
		return nil, err
	}
	if left.global || right.global {
		return nil, b.tooCorrelated("below an aggregate that is joined")
	}
	leftWidth := len(left.outputs)
	l, lc, err := b.materialize(left)
	if err != nil {
		return nil, err
	}
	r, rc, err := b.materialize(right)
	if err != nil {
		return nil, err
	}
	// Columns of l come first now, outputs and what conditions read.
	width := l.Schema().NumFields()
	rightAt := func(c *planner.Column) planner.Expr { return moved(c, width-leftWidth) }
	pair := func(e planner.Expr) planner.Expr {
		return mapColumns(e, func(c *planner.Column) planner.Expr {
			if c.Index >= leftWidth {
				return rightAt(c)
			}
			return c
		})
	}
	p := &pulled{conds: lc, unique: left.unique && right.unique}
	join := &planner.Join{Kind: n.Kind, Left: l, Right: r, On: n.On}
	var own []planner.Expr
	if n.Residual != nil {
		for _, c := range conjuncts(n.Residual) {
			if c = pair(c); hasOuter(c) {
				p.conds = append(p.conds, c)
			} else {
				own = append(own, c)
			}
		}
	}
	for _, c := range rc {
		p.conds = append(p.conds, shiftColumns(c, width))
	}
	if len(own) > 0 {
		join.Residual = b.connect("and", own, -1)
	}
	if join.Kind == planner.InnerJoin && len(join.On) == 0 && join.Residual == nil {
		join.Kind = planner.CrossJoin
	}
	p.node = join
	schema := join.Schema()
	for i := range n.Schema().NumFields() {
		at := i
		if i >= leftWidth {
			at += width - leftWidth
		}
		p.outputs = append(p.outputs, planner.ColumnOf(schema, at))
	}
	return p, nil
}

// materialize makes p's outputs the first columns of a node, with what its
// conditions read behind them, and returns the conditions over that node.
func (b *binder) materialize(p *pulled) (planner.Node, []planner.Expr, error) {
	plain := true
	for i, e := range p.outputs {
		if hasOuter(e) {
			return nil, nil, b.tooCorrelated("in an expression below a join, an aggregate or a sort")
		}
		c, ok := e.(*planner.Column)
		plain = plain && ok && c.Index == i
	}
	if plain {
		return p.node, p.conds, nil
	}
	out := &planner.Project{Input: p.node}
	for _, e := range p.outputs {
		out.Exprs = append(out.Exprs, e)
		out.Names = append(out.Names, "value")
	}
	conds := make([]planner.Expr, len(p.conds))
	for i, c := range p.conds {
		conds[i] = mapColumns(c, func(c *planner.Column) planner.Expr {
			for at, e := range out.Exprs {
				if x, ok := e.(*planner.Column); ok && x.Index == c.Index {
					return &planner.Column{Index: at, Name: c.Name, DataType: c.DataType, Null: c.Null}
				}
			}
			out.Exprs = append(out.Exprs, c)
			out.Names = append(out.Names, c.Name)
			return &planner.Column{Index: len(out.Exprs) - 1, Name: c.Name, DataType: c.DataType, Null: c.Null}
		})
	}
	return out, conds, nil
}

// correlation is one equality of a subquery's own value with the query around.
type correlation struct {
	op    string       // = or IS NOT DISTINCT FROM
	inner planner.Expr // over the subquery's node
	outer planner.Expr // over outerRefs
}

// correlations are conditions as equalities, if they are nothing else.
func (b *binder) correlations(conds []planner.Expr, of string) ([]correlation, error) {
	var out []correlation
	for _, c := range conds {
		call, ok := c.(*planner.Call)
		if !ok || call.Func != "=" && call.Func != "is not distinct from" || len(call.Args) != 2 {
			return nil, b.tooCorrelated("other than by equalities below " + of)
		}
		x, y := call.Args[0], call.Args[1]
		if hasOuter(x) {
			x, y = y, x
		}
		if hasOuter(x) || hasColumn(y) || !hasColumn(x) {
			return nil, b.tooCorrelated("other than by equalities below " + of)
		}
		out = append(out, correlation{call.Func, x, y})
	}
	return out, nil
}

// keyed gives the node columns for the inner sides of correlations, behind its
// others, and returns their ordinals.
func keyed(n planner.Node, list []correlation) (planner.Node, []int) {
	at := make([]int, len(list))
	var project *planner.Project
	for i, c := range list {
		if column, ok := c.inner.(*planner.Column); ok {
			at[i] = column.Index
			continue
		}
		if project == nil {
			project = identity(n)
		}
		at[i] = len(project.Exprs)
		project.Exprs = append(project.Exprs, c.inner)
		project.Names = append(project.Names, "correlation")
	}
	if project == nil {
		return n, at
	}
	return project, at
}

// pullAggregate groups by the correlation too.
func (b *binder) pullAggregate(n *planner.Aggregate) (*pulled, error) {
	in, err := b.pull(n.Input)
	if err != nil {
		return nil, err
	}
	if in.global {
		return nil, b.tooCorrelated("below two aggregates")
	}
	node, conds, err := b.materialize(in)
	if err != nil {
		return nil, err
	}
	list, err := b.correlations(conds, "an aggregate")
	if err != nil {
		return nil, err
	}
	node, keys := keyed(node, list)
	out := &planner.Aggregate{Input: node, GroupBy: slices.Clone(n.GroupBy), Calls: n.Calls}
	at := make([]int, len(keys))
	for i, k := range keys {
		if at[i] = slices.Index(out.GroupBy, k); at[i] < 0 {
			at[i] = len(out.GroupBy)
			out.GroupBy = append(out.GroupBy, k)
		}
	}
	schema := out.Schema()
	p := &pulled{node: out, global: len(n.GroupBy) == 0, unique: len(n.GroupBy) == 0, counts: make(map[int]bool)}
	for i := range n.GroupBy {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, i))
	}
	for i, c := range n.Calls {
		column := planner.ColumnOf(schema, len(out.GroupBy)+i)
		p.outputs = append(p.outputs, column)
		p.counts[column.Index] = c.Func == planner.Count
	}
	p.conds = b.equalities(list, at, schema.Field)
	return p, nil
}

// pullWindow partitions by the correlation too.
func (b *binder) pullWindow(n *planner.Window) (*pulled, error) {
	in, err := b.pull(n.Input)
	if err != nil {
		return nil, err
	}
	if in.global {
		return nil, b.tooCorrelated("below a window over an aggregate")
	}
	width := len(in.outputs)
	node, conds, err := b.materialize(in)
	if err != nil {
		return nil, err
	}
	list, err := b.correlations(conds, "a window")
	if err != nil {
		return nil, err
	}
	node, at := keyed(node, list)
	out := &planner.Window{Input: node, PartitionBy: append(slices.Clone(n.PartitionBy), at...), OrderBy: n.OrderBy, Calls: n.Calls}
	schema := out.Schema()
	p := &pulled{node: out, conds: b.equalities(list, at, schema.Field)}
	for i := range width {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, i))
	}
	for i := range n.Calls {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, node.Schema().NumFields()+i))
	}
	return p, nil
}

// pullLimit numbers the rows of each correlation and keeps the first ones.
func (b *binder) pullLimit(n *planner.Limit) (*pulled, error) {
	if _, open := b.limits[n]; open {
		return nil, b.tooCorrelated("below a LIMIT that is a parameter")
	}
	input := n.Input
	var order []planner.SortKey
	if s, ok := input.(*planner.Sort); ok {
		input, order = s.Input, s.Keys
	}
	in, err := b.pull(input)
	if err != nil {
		return nil, err
	}
	if in.global {
		return nil, b.tooCorrelated("below a LIMIT over an aggregate")
	}
	width := len(in.outputs)
	node, conds, err := b.materialize(in)
	if err != nil {
		return nil, err
	}
	list, err := b.correlations(conds, "a LIMIT")
	if err != nil {
		return nil, err
	}
	node, at := keyed(node, list)
	number := node.Schema().NumFields()
	window := &planner.Window{Input: node, PartitionBy: at, OrderBy: order, Calls: []planner.WindowCall{rowNumber()}}
	schema := window.Schema()
	position := planner.ColumnOf(schema, number)
	kept := b.withinLimit(position, n.Limit, n.Offset)
	p := &pulled{
		node: &planner.Filter{Input: window, Predicate: kept}, unique: n.Limit == 0 || n.Limit == 1,
		conds: b.equalities(list, at, schema.Field),
	}
	for i := range width {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, i))
	}
	return p, nil
}

func saturated(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}

func rowNumber() planner.WindowCall {
	return planner.WindowCall{Func: planner.RowNumber, Frame: planner.DefaultFrame(), DataType: catalog.BigInt, Name: "row_number"}
}

func compareCount(op string, e planner.Expr, n int64) planner.Expr {
	return &planner.Call{
		Func: op, DataType: catalog.Boolean,
		Args: []planner.Expr{e, &planner.Literal{Value: n, DataType: catalog.BigInt}},
	}
}

// equalities restates correlations over the columns that now hold them.
func (b *binder) equalities(list []correlation, at []int, field func(int) arrow.Field) []planner.Expr {
	var out []planner.Expr
	for i, c := range list {
		key := fieldColumn(at[i], field(at[i]))
		out = append(out, &planner.Call{
			Func: c.op, Args: []planner.Expr{key, c.outer}, DataType: catalog.Boolean,
			Null: c.op == "=" && (key.Null || c.outer.Nullable()),
		})
	}
	return out
}
