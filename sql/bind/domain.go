package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// What pull cannot take out of a subquery is computed for all rows of the query
// around at once, after "Unnesting Arbitrary Queries" by Neumann and Kemper (BTW
// 2015): the different values that the subquery refers to are its domain, which
// is joined to the tables of the subquery where it reads them and carried along
// as further columns. Every operator above works for each row of the domain on
// its own: groups and partitions get the domain's columns as further keys, joins
// compare them. In the end they are compared with the rows around.

// unnest makes a subquery one without references to the query around it. node
// is that query's; the node returned has the same columns and stands for it.
func (b *binder) unnest(node planner.Node, s *subqueryRef) (planner.Node, *pulled, error) {
	p, err := b.pull(s.query.node)
	if err == nil || sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		return node, p, err
	}
	return b.byDomain(node, s)
}

// byDomain unnests with the domain of what the subquery refers to.
func (b *binder) byDomain(node planner.Node, s *subqueryRef) (planner.Node, *pulled, error) {
	if err := b.steady(s.query.node); err != nil {
		return nil, nil, err
	}
	d := &domain{binder: b, working: make(map[planner.CommonID]bool)}
	d.collect(s.query.node)
	// The rows around are read twice, as what they are and as the domain.
	if !correlated(node) {
		node = b.newCommon("", node).Scan()
	}
	values := &planner.Project{Input: node}
	for _, r := range d.refs {
		values.Exprs = append(values.Exprs, s.argument(r))
		values.Names = append(values.Names, r.name)
	}
	d.node = distinctRows(values, len(d.refs))
	if !correlated(d.node) {
		d.node = b.newCommon("", d.node).Scan()
	}
	carried, err := d.carry(s.query.node)
	if err != nil {
		return nil, nil, err
	}
	width := s.query.node.Schema().NumFields()
	schema := carried.Schema()
	p := &pulled{node: carried, unique: b.atMostOneRow(s.query.node)}
	for i := range width {
		p.outputs = append(p.outputs, planner.ColumnOf(schema, i))
	}
	for i, r := range d.refs {
		p.conds = append(p.conds, sameValue(planner.ColumnOf(schema, width+i), r))
	}
	return node, p, nil
}

// steady refuses correlated subqueries that draw random values: what SQL
// computes for each row around is computed once for all rows that are alike.
func (b *binder) steady(node planner.Node) error {
	if correlated(node) && planner.IsVolatileNode(node) {
		return b.unsupported(-1, "a random value in a correlated subquery")
	}
	return nil
}

// argument is what a reference of the subquery reads, over the columns of the
// query around. References further out stay what they are.
func (s *subqueryRef) argument(o *outerRef) planner.Expr {
	if o.frame == s.frame {
		return s.args[o.slot]
	}
	return o
}

// sameValue is whether two values are the same, NULLs included.
func sameValue(x, y planner.Expr) planner.Expr {
	op := "is not distinct from"
	if !x.Nullable() && !y.Nullable() {
		op = "="
	}
	return &planner.Call{Func: op, Args: []planner.Expr{x, y}, DataType: catalog.Boolean}
}

// domain is the different values that a subquery refers to: the columns of node.
type domain struct {
	*binder
	refs    []*outerRef
	node    planner.Node
	working map[planner.CommonID]bool // recursions that carry the domain
}

// collect finds the references in a subtree.
func (d *domain) collect(n planner.Node) {
	for _, e := range expressionsOf(n) {
		contains(e, func(x planner.Expr) bool {
			if o, ok := x.(*outerRef); ok && d.slot(o) < 0 {
				d.refs = append(d.refs, o)
			}
			return false
		})
	}
	for _, in := range n.Inputs() {
		d.collect(in)
	}
}

func (d *domain) slot(o *outerRef) int {
	return slices.IndexFunc(d.refs, func(r *outerRef) bool { return equal(r, o) })
}

// over replaces references by the domain's columns, which begin at an ordinal.
func (d *domain) over(e planner.Expr, at int) planner.Expr {
	return replaceLeaves(e, func(x planner.Expr) planner.Expr {
		o, ok := x.(*outerRef)
		if !ok {
			return nil
		}
		i := d.slot(o)
		return fieldColumn(at+i, d.node.Schema().Field(i))
	})
}

// needs reports whether the rows of a subtree depend on the domain.
func (d *domain) needs(n planner.Node) bool {
	if w, ok := n.(*planner.WorkingScan); ok {
		return d.working[w.ID]
	}
	if slices.ContainsFunc(expressionsOf(n), hasOuter) {
		return true
	}
	return slices.ContainsFunc(n.Inputs(), d.needs)
}

// carry returns the rows of n for each row of the domain: n's columns, then the
// domain's.
func (d *domain) carry(n planner.Node) (planner.Node, error) {
	if !d.needs(n) {
		return &planner.Join{Kind: planner.CrossJoin, Left: n, Right: d.node}, nil
	}
	switch n := n.(type) {
	case *planner.Filter:
		in, err := d.carry(n.Input)
		if err != nil {
			return nil, err
		}
		return &planner.Filter{Input: in, Predicate: d.over(n.Predicate, width(n.Input))}, nil
	case *planner.Project:
		in, err := d.carry(n.Input)
		if err != nil {
			return nil, err
		}
		exprs := make([]planner.Expr, len(n.Exprs))
		for i, e := range n.Exprs {
			exprs[i] = d.over(e, width(n.Input))
		}
		return d.withDomain(in, exprs, n.Names, width(n.Input)), nil
	case *planner.Values:
		return d.values(n), nil
	case *planner.Join:
		return d.join(n)
	case *planner.Aggregate:
		return d.aggregate(n)
	case *planner.Window:
		return d.window(n)
	case *planner.Sort:
		// Without a limit above, the order of a subquery's rows means nothing.
		return d.carry(n.Input)
	case *planner.Limit:
		return d.limit(n)
	case *planner.Union:
		out := &planner.Union{}
		for _, branch := range n.Branches {
			in, err := d.carry(branch)
			if err != nil {
				return nil, err
			}
			out.Branches = append(out.Branches, in)
		}
		return out, nil
	case *planner.Recursive:
		return d.recursive(n)
	case *planner.WorkingScan:
		return &planner.WorkingScan{ID: n.ID, Name: n.Name, Fields: d.extended(n.Fields)}, nil
	}
	return nil, d.tooCorrelated("")
}

func width(n planner.Node) int { return n.Schema().NumFields() }

// withDomain projects a node to some expressions and the domain's columns,
// which begin at an ordinal of the node.
func (d *domain) withDomain(n planner.Node, exprs []planner.Expr, names []string, at int) planner.Node {
	schema := n.Schema()
	p := &planner.Project{Input: n, Exprs: slices.Clone(exprs), Names: slices.Clone(names)}
	for i, r := range d.refs {
		p.Exprs = append(p.Exprs, planner.ColumnOf(schema, at+i))
		p.Names = append(p.Names, r.name)
	}
	return p
}

// pick projects a node to some columns and the domain's.
func (d *domain) pick(n planner.Node, columns []int, at int) planner.Node {
	schema := n.Schema()
	exprs, names := make([]planner.Expr, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		exprs[i], names[i] = planner.ColumnOf(schema, c), schema.Field(c).Name
	}
	return d.withDomain(n, exprs, names, at)
}

// interval lists the ordinals from low to high, which is not one.
func interval(low, high int) []int {
	out := make([]int, 0, high-low)
	for i := low; i < high; i++ {
		out = append(out, i)
	}
	return out
}

// values computes a row of VALUES for each row of the domain, and so for each of
// the rows.
func (d *domain) values(n *planner.Values) planner.Node {
	names := make([]string, n.Fields.NumFields())
	for i, f := range n.Fields.Fields() {
		names[i] = f.Name
	}
	var branches []planner.Node
	for _, row := range n.Rows {
		exprs := make([]planner.Expr, len(row))
		for i, e := range row {
			exprs[i] = d.over(e, 0)
		}
		branches = append(branches, d.withDomain(d.node, exprs, names, 0))
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return &planner.Union{Branches: branches}
}

// join carries the domain on the side whose rows the join keeps, and on the
// other one if its rows depend on it.
func (d *domain) join(n *planner.Join) (planner.Node, error) {
	lw, rw, k := width(n.Left), width(n.Right), len(d.refs)
	onLeft, onRight := d.needs(n.Left), d.needs(n.Right)
	switch n.Kind {
	case planner.InnerJoin, planner.CrossJoin:
		onLeft = onLeft || !onRight
	case planner.RightJoin:
		onRight = true
	case planner.FullJoin:
		onLeft, onRight = true, true
	default:
		onLeft = true
	}
	out := &planner.Join{Kind: n.Kind, Left: n.Left, Right: n.Right, On: slices.Clone(n.On)}
	var err error
	extra := 0 // columns between the left's own and the right's
	if onLeft {
		extra = k
		if out.Left, err = d.carry(n.Left); err != nil {
			return nil, err
		}
	}
	if onRight {
		if out.Right, err = d.carry(n.Right); err != nil {
			return nil, err
		}
	}
	if onLeft && onRight {
		for i, f := range d.node.Schema().Fields() {
			out.On = append(out.On, planner.JoinKey{Left: lw + i, Right: rw + i, NullSafe: f.Nullable})
		}
	}
	at := lw
	if !onLeft {
		at = lw + rw
	}
	if n.Residual != nil {
		moved := mapColumns(n.Residual, func(c *planner.Column) planner.Expr {
			if c.Index >= lw {
				return moved(c, extra)
			}
			return c
		})
		out.Residual = d.over(moved, at)
	}
	if out.Kind == planner.CrossJoin && (len(out.On) > 0 || out.Residual != nil) {
		out.Kind = planner.InnerJoin
	}
	switch n.Kind {
	case planner.SemiJoin, planner.AntiJoin:
		return out, nil
	case planner.MarkJoin:
		return d.pick(out, append(interval(0, lw), lw+k), lw), nil
	case planner.RightJoin:
		at = lw + extra + rw
	case planner.FullJoin:
		return d.fullJoin(out, lw, rw), nil
	}
	return d.pick(out, append(interval(0, lw), interval(lw+extra, lw+extra+rw)...), at), nil
}

// fullJoin takes the domain from whichever side there is.
func (d *domain) fullJoin(join *planner.Join, lw, rw int) planner.Node {
	schema := join.Schema()
	k := len(d.refs)
	p := &planner.Project{Input: join}
	for _, c := range append(interval(0, lw), interval(lw+k, lw+k+rw)...) {
		p.Exprs, p.Names = append(p.Exprs, planner.ColumnOf(schema, c)), append(p.Names, schema.Field(c).Name)
	}
	for i, r := range d.refs {
		left, right := planner.ColumnOf(schema, lw+i), planner.ColumnOf(schema, lw+k+rw+i)
		p.Exprs = append(p.Exprs, &planner.Call{
			Func: "coalesce", Args: []planner.Expr{left, right}, DataType: left.Type(), Null: r.Nullable(),
		})
		p.Names = append(p.Names, r.name)
	}
	return p
}

// aggregate groups by the domain too. Without GROUP BY every row of the domain
// has a group: where there are no rows its counts are 0, its other results NULL.
func (d *domain) aggregate(n *planner.Aggregate) (planner.Node, error) {
	in, err := d.carry(n.Input)
	if err != nil {
		return nil, err
	}
	groups, k := len(n.GroupBy), len(d.refs)
	at := width(n.Input)
	out := &planner.Aggregate{Input: in, GroupBy: append(slices.Clone(n.GroupBy), interval(at, at+k)...), Calls: n.Calls}
	if groups > 0 {
		return d.pick(out, append(interval(0, groups), interval(groups+k, groups+k+len(n.Calls))...), groups), nil
	}
	join := &planner.Join{Kind: planner.LeftJoin, Left: d.node, Right: out}
	for i, f := range d.node.Schema().Fields() {
		join.On = append(join.On, planner.JoinKey{Left: i, Right: i, NullSafe: f.Nullable})
	}
	schema := join.Schema()
	exprs, names := make([]planner.Expr, len(n.Calls)), make([]string, len(n.Calls))
	for i, c := range n.Calls {
		names[i], exprs[i] = c.Name, planner.ColumnOf(schema, k+k+i)
		if c.Func == planner.Count {
			exprs[i] = countOrZero(exprs[i])
		}
	}
	return d.withDomain(join, exprs, names, 0), nil
}

// countOrZero is a count that is missing where there is nothing to count.
func countOrZero(count planner.Expr) planner.Expr {
	return &planner.Call{
		Func: "coalesce", DataType: catalog.BigInt,
		Args: []planner.Expr{count, &planner.Literal{Value: int64(0), DataType: catalog.BigInt}},
	}
}

// window partitions by the domain too.
func (d *domain) window(n *planner.Window) (planner.Node, error) {
	in, err := d.carry(n.Input)
	if err != nil {
		return nil, err
	}
	at, k := width(n.Input), len(d.refs)
	out := &planner.Window{Input: in, PartitionBy: append(slices.Clone(n.PartitionBy), interval(at, at+k)...), OrderBy: n.OrderBy, Calls: n.Calls}
	return d.pick(out, append(interval(0, at), interval(at+k, at+k+len(n.Calls))...), at), nil
}

// limit numbers the rows of each row of the domain and keeps the first ones.
func (d *domain) limit(n *planner.Limit) (planner.Node, error) {
	if _, open := d.limits[n]; open {
		return nil, d.tooCorrelated("below a LIMIT that is a parameter")
	}
	input := n.Input
	var order []planner.SortKey
	if s, ok := input.(*planner.Sort); ok {
		input, order = s.Input, s.Keys
	}
	in, err := d.carry(input)
	if err != nil {
		return nil, err
	}
	at, k := width(input), len(d.refs)
	w := &planner.Window{Input: in, PartitionBy: interval(at, at+k), OrderBy: order, Calls: []planner.WindowCall{rowNumber()}}
	kept := &planner.Filter{Input: w, Predicate: d.withinLimit(planner.ColumnOf(w.Schema(), at+k), n.Limit, n.Offset)}
	return firstColumns(kept, at+k), nil
}

// withinLimit is whether a row's number is among those that a limit lets through.
func (b *binder) withinLimit(number planner.Expr, limit, offset int64) planner.Expr {
	kept := compareCount(">", number, offset)
	if limit >= 0 {
		kept = b.connect("and", []planner.Expr{kept, compareCount("<=", number, saturated(offset, limit))}, -1)
	}
	return kept
}

// recursive carries the domain through every round.
func (d *domain) recursive(n *planner.Recursive) (planner.Node, error) {
	d.working[n.ID] = true
	defer delete(d.working, n.ID)
	seed, err := d.carry(n.Seed)
	if err != nil {
		return nil, err
	}
	step, err := d.carry(n.Step)
	if err != nil {
		return nil, err
	}
	return &planner.Recursive{ID: n.ID, Name: n.Name, Seed: seed, Step: step, Distinct: n.Distinct, Fields: d.extended(n.Fields)}, nil
}

// extended adds the domain's columns to a recursion's.
func (d *domain) extended(schema *arrow.Schema) *arrow.Schema {
	fields := slices.Clone(schema.Fields())
	for _, f := range d.node.Schema().Fields() {
		f.Nullable = true
		fields = append(fields, f)
	}
	return arrow.NewSchema(fields, nil)
}
