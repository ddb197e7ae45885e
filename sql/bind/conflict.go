package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// onConflict binds ON CONFLICT. The rows that its expressions are over are a
// stored row's columns followed by those of the row that was to be inserted.
func (n *insertion) onConflict(clause *pgquery.OnConflictClause, alias *pgquery.Alias) (*OnConflict, error) {
	if clause == nil {
		return nil, nil
	}
	if err := n.onlyFields(clause, "action", "infer", "target_list", "where_clause"); err != nil {
		return nil, err
	}
	if err := n.conflictTarget(clause.Infer); err != nil {
		return nil, err
	}
	if clause.Action == pgquery.OnConflictAction_ONCONFLICT_NOTHING {
		return &OnConflict{}, nil
	}
	if clause.Infer == nil {
		return nil, n.errorAt(sqlstate.SyntaxError, clause.Location, "ON CONFLICT DO UPDATE needs the conflicting columns").
			WithHint("For example, ON CONFLICT (column_name).")
	}
	c, err := n.conflictContext(alias)
	if err != nil {
		return nil, err
	}
	out := &OnConflict{}
	set, err := n.assignments(n.table, clause.TargetList, func(val *pgquery.Node, wanted arrow.DataType) (planner.Expr, error) {
		return n.expr(val, c)
	})
	if err != nil {
		return nil, err
	}
	out.Set = set
	for i, e := range set {
		if e == nil {
			out.Set[i] = n.column(c.scope.relations[0].columns[i], -1)
		}
	}
	if clause.WhereClause != nil {
		if out.Where, err = n.expr(clause.WhereClause, c); err != nil {
			return nil, err
		}
		if out.Where, err = n.toBoolean(out.Where, "WHERE"); err != nil {
			return nil, err
		}
		if out.Where, err = n.fold(out.Where); err != nil {
			return nil, err
		}
	}
	out.Replace = out.Where == nil && n.replaces(set)
	return out, nil
}

// conflictContext is where the expressions of DO UPDATE stand.
func (n *insertion) conflictContext(alias *pgquery.Alias) (*exprContext, error) {
	stored, _ := tableRelation(n.table, n.location)
	if err := n.applyAlias(stored, alias); err != nil {
		return nil, err
	}
	excluded, _ := tableRelation(n.table, n.location)
	excluded.alias, excluded.schema = "excluded", ""
	both, err := n.joined(&scope{[]*relation{stored}, stored.columns}, &scope{[]*relation{excluded}, excluded.columns}, len(n.table.Columns))
	if err != nil {
		return nil, err
	}
	return &exprContext{scope: both, clause: "ON CONFLICT DO UPDATE"}, nil
}

// replaces reports whether SET makes a stored row be the row that was to be
// inserted: every column outside the key is assigned EXCLUDED's.
func (n *insertion) replaces(set []planner.Expr) bool {
	width := len(n.table.Columns)
	for i, e := range set {
		c, ok := e.(*planner.Column)
		if !ok {
			return false
		}
		if c.Index != width+i && !(c.Index == i && slices.Contains(n.table.PrimaryKey, i)) {
			return false
		}
	}
	return true
}

// conflictTarget checks that the columns or the constraint named are the
// primary key, the only one there is.
func (n *insertion) conflictTarget(infer *pgquery.InferClause) error {
	if infer == nil {
		return nil
	}
	if err := n.onlyFields(infer, "index_elems", "conname"); err != nil {
		return err
	}
	if infer.Conname != "" {
		if len(n.table.PrimaryKey) > 0 && infer.Conname == n.table.Name+"_pkey" {
			return nil
		}
		return n.errorAt(sqlstate.UndefinedObject, infer.Location, "constraint %q for table %q does not exist", infer.Conname, n.table.Name)
	}
	named := make(map[int]bool)
	names := make([]scopeColumn, len(n.table.Columns))
	for i, c := range n.table.Columns {
		names[i].name = c.Name
	}
	for _, node := range infer.IndexElems {
		elem := node.GetIndexElem()
		if elem.GetName() == "" {
			return n.unsupported(infer.Location, "an expression in ON CONFLICT (...)")
		}
		if err := n.onlyFields(elem, "name", "ordering", "nulls_ordering"); err != nil {
			return err
		}
		at := n.table.Column(elem.Name)
		if at < 0 {
			return n.noColumn(elem.Name, elem.Name, names, infer.Location)
		}
		named[at] = true
	}
	match := len(named) == len(n.table.PrimaryKey)
	for _, at := range n.table.PrimaryKey {
		match = match && named[at]
	}
	if !match {
		return n.errorAt(sqlstate.InvalidColumnReference, infer.Location,
			"there is no unique constraint on the columns of ON CONFLICT").
			WithHint("Only the primary key of a table is unique: name all its columns.")
	}
	return nil
}
