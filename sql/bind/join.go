package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// cross joins two sources without a condition.
func (b *binder) cross(left, right *source) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil {
		return nil, err
	}
	node := &planner.Join{Kind: planner.CrossJoin, Left: left.node, Right: right.node}
	return &source{node, s, left.width + right.width}, nil
}

// join binds a JOIN of any spelling. Unless before is nil, its first entry is
// crossed with that.
func (b *binder) join(j *pgquery.JoinExpr, before *source) (*source, error) {
	if err := b.onlyFields(j, "jointype", "is_natural", "larg", "rarg", "using_clause", "quals"); err != nil {
		return nil, err
	}
	kind := planner.InnerJoin
	switch j.Jointype {
	case pgquery.JoinType_JOIN_INNER:
	case pgquery.JoinType_JOIN_LEFT:
		kind = planner.LeftJoin
	case pgquery.JoinType_JOIN_RIGHT:
		kind = planner.RightJoin
	case pgquery.JoinType_JOIN_FULL:
		kind = planner.FullJoin
	default:
		return nil, b.unsupported(fromLocation(j.Rarg), "this kind of join")
	}
	left, err := b.firstItem(j.Larg, before)
	if err != nil {
		return nil, err
	}
	if r := j.Rarg.GetRangeSubselect(); r.GetLateral() {
		if (kind == planner.InnerJoin || kind == planner.LeftJoin) && !j.IsNatural && len(j.UsingClause) == 0 {
			return b.lateral(kind, left, r, j.Quals)
		}
		if kind != planner.InnerJoin && kind != planner.LeftJoin {
			return nil, b.unsupported(fromLocation(j.Rarg), "LATERAL on the right of a RIGHT or FULL JOIN")
		}
		return nil, b.unsupported(fromLocation(j.Rarg), "LATERAL in a join with USING or NATURAL")
	}
	right, err := b.fromItem(j.Rarg)
	if err != nil {
		return nil, err
	}
	names := stringsOf(j.UsingClause)
	switch {
	case j.IsNatural:
		for _, c := range left.scope.columns {
			if len(find(right.scope.columns, c.name)) > 0 {
				names = append(names, c.name)
			}
		}
		return b.joinUsing(kind, left, right, names, fromLocation(j.Rarg))
	case len(names) > 0:
		return b.joinUsing(kind, left, right, names, fromLocation(j.Rarg))
	case j.Quals != nil:
		return b.joinOn(kind, left, right, j.Quals)
	}
	return b.cross(left, right)
}

// firstItem binds the first entry of a JOIN tree, crossed with what is before it.
func (b *binder) firstItem(n *pgquery.Node, before *source) (*source, error) {
	if before == nil {
		return b.fromItem(n)
	}
	if j := n.GetJoinExpr(); j != nil {
		return b.join(j, before)
	}
	if r := n.GetRangeSubselect(); r.GetLateral() {
		return b.lateral(planner.CrossJoin, before, r, nil)
	}
	first, err := b.fromItem(n)
	if err != nil {
		return nil, err
	}
	return b.cross(before, first)
}

// fromLocation is where a FROM entry starts, as well as it is known.
func fromLocation(n *pgquery.Node) int32 {
	if j := n.GetJoinExpr(); j != nil {
		return fromLocation(j.Larg)
	}
	return locationOf(n)
}

func (b *binder) joinOn(kind planner.JoinKind, left, right *source, quals *pgquery.Node) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil {
		return nil, err
	}
	conds, err := b.joinCondition(s, quals, kind)
	if err != nil {
		return nil, err
	}
	plain, hard := splitSubqueries(conds)
	if len(hard) > 0 && kind != planner.InnerJoin {
		return b.outerJoinOn(kind, left, right, s, plain, hard)
	}
	out := &source{b.joinOf(kind, left.node, right.node, plain), s.filledBy(kind, left.width), left.width + right.width}
	if len(hard) == 0 {
		return out, nil
	}
	if out.node, err = b.filter(out.node, b.connect("and", hard, locationOf(quals))); err != nil {
		return nil, err
	}
	out.node = firstColumns(out.node, out.width)
	return out, nil
}

// joinCondition binds an ON condition, of which it returns the conjuncts.
func (b *binder) joinCondition(s *scope, quals *pgquery.Node, kind planner.JoinKind) ([]planner.Expr, error) {
	if quals == nil {
		return nil, nil
	}
	cond, err := b.expr(quals, &exprContext{scope: s, clause: "JOIN conditions", subqueries: true})
	if err != nil {
		return nil, err
	}
	if cond, err = b.toBoolean(cond, "JOIN/ON"); err != nil {
		return nil, err
	}
	return conjuncts(cond), nil
}

// outerJoinOn joins with subqueries in the condition of an outer join. One that
// refers to a single side is computed there; for one that refers to both, the
// pairs that match are found first and then joined to the rows that are kept.
func (b *binder) outerJoinOn(kind planner.JoinKind, left, right *source, s *scope, plain, hard []planner.Expr) (*source, error) {
	out := &source{nil, s.filledBy(kind, left.width), left.width + right.width}
	sides := [2]planner.Node{left.node, right.node}
	low := [2]int{0, left.width}
	var both []planner.Expr
	for _, c := range hard {
		side := -1
		for i, high := range [2]int{left.width, out.width} {
			if readsOnly(c, low[i], high) {
				side = i
			}
		}
		if side < 0 {
			both = append(both, c)
			continue
		}
		node, value, err := b.attach(sides[side], shiftColumns(c, -low[side]))
		if err != nil {
			return nil, err
		}
		var at int
		sides[side], at = withColumn(node, value)
		// Columns behind a side's own are out of the way until the join is made.
		plain = append(plain, &planner.Column{Index: outOfTheWay + side*outOfTheWay + at, Name: "condition", DataType: value.Type(), Null: value.Nullable()})
	}
	lw := width(sides[0])
	for i, c := range plain {
		plain[i] = mapColumns(c, func(c *planner.Column) planner.Expr {
			switch {
			case c.Index >= 2*outOfTheWay:
				return moved(c, lw-2*outOfTheWay)
			case c.Index >= outOfTheWay:
				return moved(c, -outOfTheWay)
			case c.Index >= left.width:
				return moved(c, lw-left.width)
			}
			return c
		})
	}
	if len(both) > 0 {
		for i, c := range both {
			both[i] = mapColumns(c, func(c *planner.Column) planner.Expr {
				if c.Index >= left.width {
					return moved(c, lw-left.width)
				}
				return c
			})
		}
		node, err := b.matchedFirst(kind, sides[0], sides[1], plain, both)
		if err != nil {
			return nil, err
		}
		out.node = pickColumns(node, append(interval(0, left.width), interval(lw, lw+right.width)...))
		return out, nil
	}
	joined := b.joinOf(kind, sides[0], sides[1], plain)
	out.node = pickColumns(joined, append(interval(0, left.width), interval(lw, lw+right.width)...))
	return out, nil
}

// outOfTheWay is beyond the ordinals of any join's columns.
const outOfTheWay = 1 << 24

// readsOnly reports whether an expression reads columns in [low, high) only.
func readsOnly(e planner.Expr, low, high int) bool {
	return !contains(e, func(x planner.Expr) bool {
		c, ok := x.(*planner.Column)
		return ok && (c.Index < low || c.Index >= high)
	})
}

// pickColumns projects a node to some of its columns.
func pickColumns(n planner.Node, columns []int) planner.Node {
	schema := n.Schema()
	p := &planner.Project{Input: n}
	for _, c := range columns {
		p.Exprs, p.Names = append(p.Exprs, planner.ColumnOf(schema, c)), append(p.Names, schema.Field(c).Name)
	}
	return p
}

// matchedFirst is a left or right join on conditions of which the last ones hold
// subqueries over both sides: the rows of the kept side are numbered, the pairs
// that match found by an inner join, and these joined to the kept rows by number.
func (b *binder) matchedFirst(kind planner.JoinKind, left, right planner.Node, plain, hard []planner.Expr) (planner.Node, error) {
	kept, width := left, width(left)
	if kind == planner.RightJoin {
		kept = right
	}
	if kind == planner.FullJoin || correlated(kept) {
		return nil, b.unsupported(b.where(hard[0]), "a subquery over both sides of an outer join of this kind")
	}
	numbered := b.newCommon("", &planner.Window{Input: kept, Calls: []planner.WindowCall{rowNumber()}}).Scan()
	own := kept.Schema().NumFields()
	number := fieldColumn(own, numbered.Schema().Field(own))
	if kind == planner.LeftJoin {
		shift := func(c *planner.Column) planner.Expr {
			if c.Index >= width {
				return moved(c, 1)
			}
			return c
		}
		for i, c := range plain {
			plain[i] = mapColumns(c, shift)
		}
		for i, c := range hard {
			hard[i] = mapColumns(c, shift)
		}
		left = numbered
	} else {
		right = numbered
	}
	inner := b.joinOf(planner.InnerJoin, left, right, plain)
	total := inner.Schema().NumFields()
	matched, err := b.filter(inner, b.connect("and", hard, -1))
	if err != nil {
		return nil, err
	}
	matched = firstColumns(matched, total)
	if kind == planner.LeftJoin {
		key := planner.JoinKey{Left: own, Right: own}
		join := &planner.Join{Kind: planner.LeftJoin, Left: numbered, Right: matched, On: []planner.JoinKey{key}}
		return pickColumns(join, append(interval(0, own), interval(own+1+own+1, own+1+total)...)), nil
	}
	key := planner.JoinKey{Left: total - 1, Right: number.Index}
	join := &planner.Join{Kind: planner.RightJoin, Left: matched, Right: numbered, On: []planner.JoinKey{key}}
	return pickColumns(join, append(interval(0, width), interval(total, total+own)...)), nil
}

// firstColumns drops the columns behind the first width ones.
func firstColumns(n planner.Node, width int) planner.Node {
	p := identity(n)
	if len(p.Exprs) == width {
		return n
	}
	p.Exprs, p.Names = p.Exprs[:width], p.Names[:width]
	return p
}

// filledBy is the scope of a join of the given kind: the columns of a side that
// it fills in may be NULL.
func (s *scope) filledBy(kind planner.JoinKind, width int) *scope {
	left := kind == planner.RightJoin || kind == planner.FullJoin
	right := kind == planner.LeftJoin || kind == planner.FullJoin
	if !left && !right {
		return s
	}
	fill := func(columns []scopeColumn) []scopeColumn {
		out := append([]scopeColumn(nil), columns...)
		for i := range out {
			if out[i].index < width && left || out[i].index >= width && right {
				out[i].null = true
			}
		}
		return out
	}
	out := &scope{columns: fill(s.columns)}
	for _, r := range s.relations {
		filled := *r
		filled.columns = fill(r.columns)
		out.relations = append(out.relations, &filled)
	}
	return out
}

// joinUsing joins on the equality of like-named columns, which stand first
// and once in the result: the left one's, the right one's of a right join, and
// whichever there is of a full join.
func (b *binder) joinUsing(kind planner.JoinKind, left, right *source, names []string, location int32) (*source, error) {
	s, err := b.joined(left.scope, right.scope, left.width)
	if err != nil {
		return nil, err
	}
	var conds []planner.Expr
	var pairs [][2]scopeColumn
	used := make(map[string]bool, len(names))
	for _, name := range names {
		if used[name] {
			return nil, b.errorAt(sqlstate.DuplicateColumn, location, "column %q is twice in USING", name)
		}
		used[name] = true
		l, err := b.usingColumn(left.scope.columns, name, "left", location)
		if err != nil {
			return nil, err
		}
		r, err := b.usingColumn(right.scope.columns, name, "right", location)
		if err != nil {
			return nil, err
		}
		r.index += left.width
		equal, err := b.compare("=", b.column(l, location), b.column(r, location), location)
		if err != nil {
			return nil, err
		}
		conds = append(conds, equal)
		pairs = append(pairs, [2]scopeColumn{l, r})
	}
	out := &source{b.joinOf(kind, left.node, right.node, conds), s.filledBy(kind, left.width), left.width + right.width}
	var merged []scopeColumn
	for _, pair := range pairs {
		column, err := b.mergedColumn(kind, out, pair[0], pair[1], location)
		if err != nil {
			return nil, err
		}
		merged = append(merged, column)
	}
	for _, c := range out.scope.columns {
		if !used[c.name] {
			merged = append(merged, c)
		}
	}
	out.scope.columns = merged
	return out, nil
}

// mergedColumn is the one column that stands for two joined by USING.
func (b *binder) mergedColumn(kind planner.JoinKind, out *source, l, r scopeColumn, location int32) (scopeColumn, error) {
	switch kind {
	case planner.RightJoin:
		r.name = l.name
		return r, nil
	case planner.FullJoin:
	default:
		return l, nil
	}
	schema := out.node.Schema()
	args, _, err := b.unify("USING", []planner.Expr{planner.ColumnOf(schema, l.index), planner.ColumnOf(schema, r.index)})
	if err != nil {
		return scopeColumn{}, err
	}
	value, err := b.call("coalesce", args, location)
	if err != nil {
		return scopeColumn{}, err
	}
	p := identity(out.node)
	p.Exprs, p.Names = append(p.Exprs, value), append(p.Names, l.name)
	out.node = p
	out.width++
	return scopeColumn{l.name, out.width - 1, value.Type(), value.Nullable()}, nil
}

func (b *binder) usingColumn(columns []scopeColumn, name, side string, location int32) (scopeColumn, error) {
	switch matches := find(columns, name); len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return scopeColumn{}, b.errorAt(sqlstate.UndefinedColumn, location, "column %q of USING does not exist in the %s table", name, side)
	}
	return scopeColumn{}, b.errorAt(sqlstate.AmbiguousColumn, location, "column %q of USING is ambiguous in the %s table", name, side)
}

// joinSide is an input of a join under construction: its columns, then the
// computed join keys.
type joinSide struct {
	node  planner.Node
	exprs []planner.Expr
	names []string
	width int
}

func newJoinSide(s *source) *joinSide {
	side := &joinSide{node: s.node, width: s.width}
	schema := s.node.Schema()
	for i, f := range schema.Fields() {
		side.exprs = append(side.exprs, planner.ColumnOf(schema, i))
		side.names = append(side.names, f.Name)
	}
	return side
}

// key returns the ordinal of an expression over the side's own columns.
func (s *joinSide) key(e planner.Expr) int {
	if c, ok := e.(*planner.Column); ok {
		return c.Index
	}
	for i := s.width; i < len(s.exprs); i++ {
		if equal(s.exprs[i], e) {
			return i
		}
	}
	s.exprs = append(s.exprs, e)
	s.names = append(s.names, "join_key")
	return len(s.exprs) - 1
}

func (s *joinSide) build() planner.Node {
	if len(s.exprs) == s.width {
		return s.node
	}
	return &planner.Project{Input: s.node, Exprs: s.exprs, Names: s.names}
}

// dropKeys projects a join to what it would be of its sides without keys.
func dropKeys(join *planner.Join, l, r *joinSide) planner.Node {
	p := &planner.Project{Input: join}
	schema := join.Schema()
	keep := func(at int) {
		p.Exprs = append(p.Exprs, planner.ColumnOf(schema, at))
		p.Names = append(p.Names, schema.Field(at).Name)
	}
	for i := range l.width {
		keep(i)
	}
	switch join.Kind {
	case planner.SemiJoin, planner.AntiJoin:
	case planner.MarkJoin:
		keep(len(l.exprs))
	default:
		for i := range r.width {
			keep(len(l.exprs) + i)
		}
	}
	if len(p.Exprs) == schema.NumFields() {
		return join
	}
	return p
}

// splitEquality recognises x = y with x over the left and y over the right
// columns, in either order.
func splitEquality(e planner.Expr, width int) (x, y planner.Expr, ok bool) {
	call, isCall := e.(*planner.Call)
	if !isCall || call.Func != "=" || len(call.Args) != 2 {
		return nil, nil, false
	}
	x, y = call.Args[0], call.Args[1]
	if !arrow.TypeEqual(x.Type(), y.Type()) {
		return nil, nil, false
	}
	if onSide(y, 0, width) {
		x, y = y, x
	}
	return x, y, onSide(x, 0, width) && onSide(y, width, 1<<31)
}

// splitKey is splitEquality that also takes IS NOT DISTINCT FROM; safe says which
// of both it is.
func splitKey(e planner.Expr, width int) (x, y planner.Expr, safe, ok bool) {
	if call, is := e.(*planner.Call); is && call.Func == "is not distinct from" && len(call.Args) == 2 {
		x, y, ok = splitEquality(&planner.Call{Func: "=", Args: call.Args, DataType: call.DataType}, width)
		return x, y, true, ok
	}
	x, y, ok = splitEquality(e, width)
	return x, y, false, ok
}

// onSide reports whether an expression reads columns, all in [low, high).
func onSide(e planner.Expr, low, high int) bool {
	some, all := false, true
	mapColumns(e, func(c *planner.Column) planner.Expr {
		some = true
		all = all && c.Index >= low && c.Index < high
		return c
	})
	return some && all
}

// conjuncts splits a condition at its ANDs.
func conjuncts(e planner.Expr) []planner.Expr {
	call, ok := e.(*planner.Call)
	if !ok || call.Func != "and" {
		return []planner.Expr{e}
	}
	var out []planner.Expr
	for _, a := range call.Args {
		out = append(out, conjuncts(a)...)
	}
	return out
}

func withoutTrue(conds []planner.Expr) []planner.Expr {
	var out []planner.Expr
	for _, c := range conds {
		if l, ok := c.(*planner.Literal); ok && l.Value == true {
			continue
		}
		out = append(out, c)
	}
	return out
}
