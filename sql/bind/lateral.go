package bind

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
)

// lateral binds LATERAL (SELECT ...) AS alias, which sees the FROM entries to
// the left of it, and joins it to them. quals is the ON condition, nil for none.
func (b *binder) lateral(kind planner.JoinKind, left *source, r *pgquery.RangeSubselect, quals *pgquery.Node) (*source, error) {
	if err := b.onlyFields(r, "lateral", "subquery", "alias"); err != nil {
		return nil, err
	}
	sel := r.Subquery.GetSelectStmt()
	if sel == nil {
		return nil, b.refuseNode(r.Subquery, "")
	}
	f := &frame{outer: b.frame, context: &exprContext{scope: left.scope, clause: "FROM"}}
	b.frame = f
	out, err := b.selectStmt(sel, nil)
	b.frame = f.outer
	if err != nil {
		return nil, err
	}
	right, err := b.subquery(out, &relation{location: -1}, r.Alias)
	if err != nil {
		return nil, err
	}
	if !correlated(out.node) {
		if quals == nil {
			return b.cross(left, right)
		}
		return b.joinOn(kind, left, right, quals)
	}
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
		return nil, b.unsupported(locationOf(quals), "a subquery in the condition of an outer join with LATERAL")
	}
	node, rows, pairs, err := b.dependent(left.node, &subqueryRef{query: out, args: f.args, frame: f})
	if err != nil {
		return nil, err
	}
	joined := b.joinOf(kind, node, rows, append(pairs, plain...))
	width := left.width + right.width
	result := &source{firstColumns(joined, width), s.filledBy(kind, left.width), width}
	if len(hard) == 0 {
		return result, nil
	}
	if result.node, err = b.filter(result.node, b.connect("and", hard, locationOf(quals))); err != nil {
		return nil, err
	}
	result.node = firstColumns(result.node, width)
	return result, nil
}

// dependent makes a subquery that refers to node's columns a node of its own,
// whose first columns are its output, and the conditions under which its rows
// belong to a row of node.
func (b *binder) dependent(node planner.Node, s *subqueryRef) (around, rows planner.Node, conds []planner.Expr, err error) {
	p, err := b.pull(s.query.node)
	if err == nil && !p.global {
		if rows, pulled, err := b.materialize(p); err == nil {
			for _, c := range pulled {
				conds = append(conds, s.overPair(c, width(node)))
			}
			return node, rows, conds, nil
		}
	}
	around, p, err = b.byDomain(node, s)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, c := range p.conds {
		conds = append(conds, s.overPair(c, width(node)))
	}
	return around, p.node, conds, nil
}

// splitSubqueries tells the conditions with subqueries from the others.
func splitSubqueries(conds []planner.Expr) (plain, hard []planner.Expr) {
	for _, c := range conds {
		if hasSubquery(c) {
			hard = append(hard, c)
		} else {
			plain = append(plain, c)
		}
	}
	return plain, hard
}

// hasLateral reports whether a JOIN tree has a LATERAL entry, which may refer to
// FROM entries before the tree.
func hasLateral(n *pgquery.Node) bool {
	if j := n.GetJoinExpr(); j != nil {
		return hasLateral(j.Larg) || hasLateral(j.Rarg)
	}
	return n.GetRangeSubselect().GetLateral()
}

// startsFrom reports whether a JOIN tree keeps all rows of its first entry next
// to those before it: then it may as well begin with these.
func startsFrom(j *pgquery.JoinExpr) bool {
	if len(j.UsingClause) > 0 || j.IsNatural || j.Jointype != pgquery.JoinType_JOIN_INNER && j.Jointype != pgquery.JoinType_JOIN_LEFT {
		return false
	}
	inner := j.Larg.GetJoinExpr()
	return inner == nil || startsFrom(inner)
}
