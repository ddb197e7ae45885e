package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sql/parse"
	"skein/sqlstate"
)

// insert binds INSERT in all its forms.
func (b *binder) insert(stmt *pgquery.InsertStmt) (*Insert, error) {
	if err := b.onlyFields(stmt, "relation", "cols", "select_stmt", "with_clause", "on_conflict_clause", "returning_list"); err != nil {
		return nil, err
	}
	if err := b.plainTable(stmt.Relation, "alias"); err != nil {
		return nil, err
	}
	restore, err := b.with(stmt.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	t, err := b.target(stmt.Relation)
	if err != nil {
		return nil, err
	}
	into := &insertion{binder: b, table: t, location: stmt.Relation.Location}
	if err := into.namedColumns(stmt.Cols); err != nil {
		return nil, err
	}
	var node planner.Node
	switch sel := stmt.SelectStmt.GetSelectStmt(); {
	case sel == nil:
		node, err = into.defaultRow()
	case plainValues(sel):
		node, err = into.rows(sel.ValuesLists)
	default:
		node, err = into.query(sel)
	}
	if err != nil {
		return nil, err
	}
	out := &Insert{Table: t, Columns: into.columns, Source: b.withCommons(node)}
	if out.Conflict, err = into.onConflict(stmt.OnConflictClause, stmt.Relation.Alias); err != nil {
		return nil, err
	}
	if len(stmt.ReturningList) > 0 {
		rel, _ := tableRelation(t, stmt.Relation.Location)
		if err := b.applyAlias(rel, stmt.Relation.Alias); err != nil {
			return nil, err
		}
		out.Returning, err = b.returning(stmt.ReturningList, &scope{[]*relation{rel}, rel.columns})
	}
	return out, err
}

// plainValues reports a bare VALUES list, where DEFAULT may stand.
func plainValues(s *pgquery.SelectStmt) bool {
	return len(s.ValuesLists) > 0 && len(s.SortClause) == 0 && s.LimitCount == nil && s.LimitOffset == nil && s.WithClause == nil
}

// insertion is an INSERT while it is bound.
type insertion struct {
	*binder
	table    *catalog.Table
	location int32
	columns  []int // ordinals named, or all
	explicit bool
	fill     []planner.Expr // by ordinal: what a column gets by default
}

// namedColumns resolves the column list.
func (n *insertion) namedColumns(cols []*pgquery.Node) error {
	n.fill = make([]planner.Expr, len(n.table.Columns))
	n.explicit = len(cols) > 0
	seen := make(map[int]bool, len(cols))
	names := make([]scopeColumn, len(n.table.Columns))
	for i, c := range n.table.Columns {
		names[i].name = c.Name
		if !n.explicit {
			n.columns = append(n.columns, i)
		}
	}
	for _, c := range cols {
		t := c.GetResTarget()
		if err := n.onlyFields(t, "name"); err != nil {
			return err
		}
		at := n.table.Column(t.Name)
		if at < 0 {
			return n.noColumn(t.Name, t.Name, names, t.Location)
		}
		if seen[at] {
			return n.errorAt(sqlstate.DuplicateColumn, t.Location, "column %q is named twice", t.Name)
		}
		seen[at] = true
		n.columns = append(n.columns, at)
	}
	return nil
}

// width checks how many values a row gives; with the columns implied, the last ones
// may be missing.
func (n *insertion) width(values int, location int32) error {
	switch {
	case values > len(n.columns):
		return n.errorAt(sqlstate.SyntaxError, location, "INSERT has %d values for %d columns of %s", values, len(n.columns), n.table.QualifiedName())
	case values < len(n.columns) && n.explicit:
		return n.errorAt(sqlstate.SyntaxError, n.location, "INSERT names %d columns of %s but gives %d values", len(n.columns), n.table.QualifiedName(), values)
	}
	n.columns = n.columns[:min(values, len(n.columns))]
	return nil
}

// row is a full row of the table: values for the named columns, the defaults
// for the others. A nil value is the default too.
func (n *insertion) row(values []planner.Expr) ([]planner.Expr, error) {
	out := make([]planner.Expr, len(n.table.Columns))
	for i, at := range n.columns {
		if values[i] == nil {
			continue
		}
		e, err := n.assign(values[i], &n.table.Columns[at])
		if err != nil {
			return nil, err
		}
		out[at] = e
	}
	for at := range out {
		if out[at] == nil {
			e, err := n.defaultOf(at)
			if err != nil {
				return nil, err
			}
			out[at] = e
		}
	}
	return out, nil
}

// defaultOf is the default value of a column, NULL when it has none.
func (n *insertion) defaultOf(at int) (planner.Expr, error) {
	if n.fill[at] != nil {
		return n.fill[at], nil
	}
	c := &n.table.Columns[at]
	e := planner.Expr(&planner.Literal{DataType: c.Type})
	if c.Default != "" {
		var err error
		if e, err = n.storedDefault(c); err != nil {
			return nil, err
		}
	}
	n.fill[at] = e
	return e, nil
}

// storedDefault binds a column's default, which the catalog keeps as SQL.
func (b *binder) storedDefault(c *catalog.Column) (planner.Expr, error) {
	statements, err := parse.Parse("SELECT " + c.Default)
	if err != nil || len(statements) != 1 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "the default %q of column %q does not parse", c.Default, c.Name)
	}
	targets := statements[0].Tree.GetSelectStmt().GetTargetList()
	if len(targets) != 1 {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "the default %q of column %q is not one expression", c.Default, c.Name)
	}
	inner := &binder{ctx: b.ctx, stmt: statements[0], tables: b.tables, loc: b.loc}
	e, err := inner.defaultValue(targets[0].GetResTarget().GetVal(), c)
	if err != nil {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "the default %q of column %q: %w", c.Default, c.Name, err)
	}
	return e, nil
}

// defaultRow is INSERT ... DEFAULT VALUES.
func (n *insertion) defaultRow() (planner.Node, error) {
	n.columns = nil
	row, err := n.row(nil)
	if err != nil {
		return nil, err
	}
	return n.valuesNode([][]planner.Expr{row}), nil
}

func (n *insertion) rows(lists []*pgquery.Node) (planner.Node, error) {
	rows := make([][]planner.Expr, len(lists))
	c := &exprContext{scope: &scope{}, clause: "VALUES"}
	for i, l := range lists {
		items := l.GetList().GetItems()
		if i == 0 {
			location := int32(-1)
			if extra := len(n.columns); len(items) > extra {
				location = locationOf(items[extra])
			}
			if err := n.width(len(items), location); err != nil {
				return nil, err
			}
		}
		if len(items) != len(n.columns) {
			return nil, n.unevenRows(items)
		}
		values := make([]planner.Expr, len(items))
		for j, item := range items {
			if item.GetSetToDefault() != nil {
				continue
			}
			e, err := n.expr(item, c)
			if err != nil {
				return nil, err
			}
			values[j] = e
		}
		row, err := n.row(values)
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	return n.valuesNode(rows), nil
}

// valuesNode makes rows of the table a node; its columns are nullable where a
// value is.
func (n *insertion) valuesNode(rows [][]planner.Expr) planner.Node {
	fields := make([]arrow.Field, len(n.table.Columns))
	for i, c := range n.table.Columns {
		fields[i] = arrow.Field{Name: c.Name, Type: c.Type}
		for _, row := range rows {
			fields[i].Nullable = fields[i].Nullable || row[i].Nullable()
		}
	}
	return &planner.Values{Fields: arrow.NewSchema(fields, nil), Rows: rows}
}

// query is INSERT ... SELECT: a Project over the query makes the table's rows.
func (n *insertion) query(sel *pgquery.SelectStmt) (planner.Node, error) {
	wanted := make([]arrow.DataType, len(n.columns))
	for i, at := range n.columns {
		wanted[i] = n.table.Columns[at].Type
	}
	out, err := n.selectStmt(sel, wanted)
	if err != nil {
		return nil, err
	}
	if err := n.width(len(out.fields), n.location); err != nil {
		return nil, err
	}
	values := make([]planner.Expr, len(out.fields))
	schema := arrow.NewSchema(out.fields, nil)
	for i := range values {
		location := n.location
		if targets := sel.TargetList; len(targets) == len(values) {
			location = targets[i].GetResTarget().GetLocation()
		}
		values[i] = n.at(planner.ColumnOf(schema, i), location)
	}
	exprs, err := n.row(values)
	if err != nil {
		return nil, err
	}
	p := &planner.Project{Input: out.node, Exprs: exprs}
	same := len(exprs) == len(out.fields)
	for i, c := range n.table.Columns {
		p.Names = append(p.Names, c.Name)
		column, ok := exprs[i].(*planner.Column)
		same = same && ok && column.Index == i && out.fields[i].Name == c.Name
	}
	if same {
		return out.node, nil
	}
	return p, nil
}
