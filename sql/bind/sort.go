package bind

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// orderBy binds ORDER BY: each entry is an output column's number, its name, or
// an expression, which becomes a hidden output column unless it is shown.
func (s *selection) orderBy() error {
	for _, n := range s.stmt.SortClause {
		by := n.GetSortBy()
		key, err := s.sortKey(by)
		if err != nil {
			return err
		}
		if key.Column, err = s.sortColumn(by.Node); err != nil {
			return err
		}
		s.keys = append(s.keys, key)
	}
	return nil
}

// sortKey is the direction of an ORDER BY entry; NULLs sort as if larger than
// any value.
func (b *binder) sortKey(by *pgquery.SortBy) (planner.SortKey, error) {
	if err := b.onlyFields(by, "node", "sortby_dir", "sortby_nulls"); err != nil {
		return planner.SortKey{}, err
	}
	key := planner.SortKey{Descending: by.SortbyDir == pgquery.SortByDir_SORTBY_DESC}
	if by.SortbyDir == pgquery.SortByDir_SORTBY_USING {
		return key, b.unsupported(by.Location, "ORDER BY ... USING")
	}
	switch by.SortbyNulls {
	case pgquery.SortByNulls_SORTBY_NULLS_FIRST:
		key.NullsFirst = true
	case pgquery.SortByNulls_SORTBY_NULLS_LAST:
	default:
		key.NullsFirst = key.Descending
	}
	return key, nil
}

func (s *selection) sortColumn(n *pgquery.Node) (int, error) {
	if c := n.GetAConst(); c != nil {
		if _, err := s.ordinal(c, "ORDER BY"); err != nil {
			return 0, err
		}
		return int(c.GetIval().Ival) - 1, nil
	}
	if name, ref := plainName(n); ref != nil {
		i, err := s.outputNamed(name, ref.Location)
		if err != nil || i >= 0 {
			return i, err
		}
	}
	e, err := s.expr(n, s.context)
	if err != nil {
		return 0, err
	}
	if e, err = s.settled(e); err != nil {
		return 0, err
	}
	for i, t := range s.targets {
		if equal(t.expr, e) {
			return i, nil
		}
	}
	s.targets = append(s.targets, target{e, outputName(n)})
	return len(s.targets) - 1, nil
}

// limitExprs are the bounds of a Limit node that parameters decide; nil where
// the node says it.
type limitExprs struct{ limit, offset planner.Expr }

// limit applies LIMIT, OFFSET and FETCH FIRST.
func (b *binder) limit(stmt *pgquery.SelectStmt, input planner.Node) (planner.Node, error) {
	if stmt.LimitOption == pgquery.LimitOption_LIMIT_OPTION_WITH_TIES {
		return nil, b.errorAt(sqlstate.SyntaxError, locationOf(stmt.LimitCount), "WITH TIES needs an ORDER BY clause")
	}
	if stmt.LimitCount == nil && stmt.LimitOffset == nil {
		return input, nil
	}
	node := &planner.Limit{Input: input, Limit: -1}
	var open limitExprs
	var err error
	if stmt.LimitCount != nil {
		if node.Limit, open.limit, err = b.rowCount(stmt.LimitCount, "LIMIT", -1); err != nil {
			return nil, err
		}
	}
	if stmt.LimitOffset != nil {
		if node.Offset, open.offset, err = b.rowCount(stmt.LimitOffset, "OFFSET", 0); err != nil {
			return nil, err
		}
	}
	if open != (limitExprs{}) {
		if b.limits == nil {
			b.limits = make(map[*planner.Limit]limitExprs)
		}
		b.limits[node] = open
		return node, nil
	}
	if node.Limit < 0 && node.Offset == 0 {
		return input, nil
	}
	return node, nil
}

// limitWithTies keeps the rows that FETCH FIRST n ROWS WITH TIES asks for: those up
// to the nth and the ones that are equal to it in the order.
func (s *selection) limitWithTies() error {
	if len(s.keys) == 0 {
		return s.errorAt(sqlstate.SyntaxError, locationOf(s.stmt.LimitCount), "WITH TIES needs an ORDER BY clause")
	}
	count, open, err := s.rowCount(s.stmt.LimitCount, "LIMIT", -1)
	if err != nil {
		return err
	}
	offset := int64(0)
	if s.stmt.LimitOffset != nil && open == nil {
		if offset, open, err = s.rowCount(s.stmt.LimitOffset, "OFFSET", 0); err != nil {
			return err
		}
	}
	if open != nil {
		return s.unsupported(locationOf(s.stmt.LimitCount), "WITH TIES over a number of rows that is a parameter")
	}
	at := s.node.Schema().NumFields()
	rank := rowNumber()
	rank.Func, rank.Name = planner.Rank, "rank"
	w := &planner.Window{Input: s.node, OrderBy: s.keys, Calls: []planner.WindowCall{rowNumber(), rank}}
	schema := w.Schema()
	kept := compareCount(">", planner.ColumnOf(schema, at), offset)
	if count >= 0 {
		upTo := compareCount("<=", planner.ColumnOf(schema, at+1), saturated(offset, count))
		kept = s.connect("and", []planner.Expr{kept, upTo}, -1)
	}
	s.node = firstColumns(&planner.Filter{Input: w, Predicate: kept}, at)
	return nil
}

// rowCount is the value of a LIMIT or OFFSET, or the expression that parameters
// will decide. NULL means absent.
func (b *binder) rowCount(n *pgquery.Node, what string, absent int64) (int64, planner.Expr, error) {
	e, err := b.constantExpr(n, catalog.BigInt, what)
	if err != nil {
		return 0, nil, err
	}
	if hasParam(e) {
		return absent, e, nil
	}
	l, err := evaluate(e)
	if err != nil {
		return 0, nil, b.place(err, locationOf(n))
	}
	count, err := countValue(l, what, absent)
	return count, nil, b.place(err, locationOf(n))
}

func countValue(l *planner.Literal, what string, absent int64) (int64, error) {
	if l.Value == nil {
		return absent, nil
	}
	count, ok := l.Value.(int64)
	if !ok || count < 0 {
		code := sqlstate.InvalidLimit
		if what == "OFFSET" {
			code = sqlstate.InvalidOffset
		}
		return 0, sqlstate.New(code, "%s must not be negative", what)
	}
	return count, nil
}

func hasParam(e planner.Expr) bool {
	if _, ok := e.(*planner.Param); ok {
		return true
	}
	found := false
	_, _ = rebuild(e, func(a planner.Expr) (planner.Expr, error) {
		found = found || hasParam(a)
		return a, nil
	})
	return found
}
