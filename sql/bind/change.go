package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// change is an UPDATE or DELETE while it is bound: a selection over the table
// that is changed, whose scan also yields where each row lives, and the tables
// of FROM or USING beside it.
type change struct {
	*selection
	table *catalog.Table
}

// targetScan reads the table of an UPDATE or DELETE with all its columns and,
// without names that the statement could use, the tablet and id of each row.
func (b *binder) targetScan(r *pgquery.RangeVar) (*source, *catalog.Table, error) {
	if err := b.plainTable(r, "alias"); err != nil {
		return nil, nil, err
	}
	t, err := b.target(r)
	if err != nil {
		return nil, nil, err
	}
	rel, projection := tableRelation(t, r.Location)
	if err := b.applyAlias(rel, r.Alias); err != nil {
		return nil, nil, err
	}
	projection = append(projection, planner.TabletColumn, planner.RowIDColumn)
	scan := &planner.Scan{Table: t, Alias: rel.alias, Projection: projection}
	return &source{scan, &scope{[]*relation{rel}, rel.columns}, len(projection)}, t, nil
}

// tableRelation is a table as a FROM entry, with the projection of all its
// columns.
func tableRelation(t *catalog.Table, location int32) (*relation, []int) {
	rel := &relation{alias: t.Name, schema: t.Schema, location: location}
	projection := make([]int, len(t.Columns), len(t.Columns)+2)
	for i, c := range t.Columns {
		projection[i] = i
		rel.columns = append(rel.columns, scopeColumn{c.Name, i, c.Type, c.Nullable})
	}
	return rel, projection
}

// change binds what UPDATE and DELETE share: the tables and the condition.
// targets, of an UPDATE, become the select list.
func (b *binder) change(r *pgquery.RangeVar, others []*pgquery.Node, where *pgquery.Node, clause string) (*change, error) {
	from, t, err := b.targetScan(r)
	if err != nil {
		return nil, err
	}
	for _, item := range others {
		right, err := b.fromItem(item)
		if err != nil {
			return nil, err
		}
		if from, err = b.cross(from, right); err != nil {
			return nil, err
		}
	}
	s := &selection{binder: b, stmt: &pgquery.SelectStmt{WhereClause: where}, from: from, node: from.node}
	s.context = &exprContext{scope: from.scope, clause: clause, subqueries: true}
	if err := s.filterRows(); err != nil {
		return nil, err
	}
	return &change{s, t}, nil
}

// location is where a changed row lives: its tablet and its id.
func (c *change) location() []target {
	n := len(c.table.Columns)
	return []target{
		{&planner.Column{Index: n, Name: planner.TabletName, DataType: catalog.BigInt}, planner.TabletName},
		{&planner.Column{Index: n + 1, Name: planner.RowIDName, DataType: catalog.BigInt}, planner.RowIDName},
	}
}

// columns are the output columns of a FROM entry as they are.
func (c *change) columns(of []scopeColumn) []target {
	out := make([]target, len(of))
	for i, col := range of {
		out[i] = target{c.column(col, -1), col.name}
	}
	return out
}

func (c *change) projectTargets(targets []target) planner.Node {
	p := &planner.Project{Input: c.node}
	for _, t := range targets {
		p.Exprs, p.Names = append(p.Exprs, t.expr), append(p.Names, t.name)
	}
	return p
}

// deleteRows binds DELETE.
func (b *binder) deleteRows(stmt *pgquery.DeleteStmt) (*Delete, error) {
	if err := b.onlyFields(stmt, "relation", "using_clause", "where_clause", "returning_list", "with_clause"); err != nil {
		return nil, err
	}
	restore, err := b.with(stmt.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	c, err := b.change(stmt.Relation, stmt.UsingClause, stmt.WhereClause, "DELETE")
	if err != nil {
		return nil, err
	}
	out := &Delete{Table: c.table, Joined: len(stmt.UsingClause) > 0}
	targets := c.location()
	if len(stmt.ReturningList) > 0 {
		row, names := c.returned(c.columns(c.from.scope.relations[0].columns))
		targets = append(targets, row...)
		if out.Returning, err = b.returning(stmt.ReturningList, names); err != nil {
			return nil, err
		}
	}
	out.Source = c.withCommons(c.projectTargets(targets))
	return out, nil
}

// returned are the columns that RETURNING can name, the changed row's first,
// and their names.
func (c *change) returned(row []target) ([]target, *scope) {
	names := &scope{}
	n := len(c.table.Columns)
	out := append([]target(nil), row...)
	for i, rel := range c.from.scope.relations {
		columns := rel.columns
		if i > 0 {
			out = append(out, c.columns(columns)...)
		}
		renumbered := make([]scopeColumn, len(columns))
		for j, col := range columns {
			at := j
			if i > 0 {
				at = n + j
			} else if at < n {
				col.null, col.dt = c.table.Columns[j].Nullable, c.table.Columns[j].Type
			}
			renumbered[j] = scopeColumn{col.name, at, col.dt, col.null}
		}
		if i > 0 {
			n += len(columns)
		}
		names.relations = append(names.relations, &relation{alias: rel.alias, schema: rel.schema, columns: renumbered, location: rel.location})
		names.columns = append(names.columns, renumbered...)
	}
	return out, names
}

// updateRows binds UPDATE.
func (b *binder) updateRows(stmt *pgquery.UpdateStmt) (*Update, error) {
	if err := b.onlyFields(stmt, "relation", "target_list", "where_clause", "from_clause", "returning_list", "with_clause"); err != nil {
		return nil, err
	}
	restore, err := b.with(stmt.WithClause)
	defer restore()
	if err != nil {
		return nil, err
	}
	c, err := b.change(stmt.Relation, stmt.FromClause, stmt.WhereClause, "UPDATE")
	if err != nil {
		return nil, err
	}
	set, err := c.assignments(stmt.TargetList)
	if err != nil {
		return nil, err
	}
	out := &Update{Table: c.table, Joined: len(stmt.FromClause) > 0}
	row := make([]target, len(c.table.Columns))
	old := c.columns(c.from.scope.relations[0].columns)
	for i := range row {
		row[i] = target{old[i].expr, c.table.Columns[i].Name}
		if set[i] != nil {
			row[i].expr = set[i]
			out.Columns = append(out.Columns, i)
		}
	}
	targets := c.location()
	if len(stmt.ReturningList) > 0 {
		var names *scope
		row, names = c.returned(row)
		if out.Returning, err = b.returning(stmt.ReturningList, names); err != nil {
			return nil, err
		}
	}
	out.Source = c.withCommons(c.projectTargets(append(targets, row...)))
	return out, nil
}

// assignments binds SET: the new value of each column, nil for those that stay.
func (c *change) assignments(list []*pgquery.Node) ([]planner.Expr, error) {
	return c.binder.assignments(c.table, list, func(val *pgquery.Node, wanted arrow.DataType) (planner.Expr, error) {
		// As a select list, so that whatever may stand there may stand here.
		before := len(c.targets)
		c.stmt.TargetList = []*pgquery.Node{{Node: &pgquery.Node_ResTarget{ResTarget: &pgquery.ResTarget{Val: val}}}}
		types := make([]arrow.DataType, before+1)
		types[before] = wanted
		if err := c.selectList(types); err != nil {
			return nil, err
		}
		if len(c.targets) != before+1 {
			return nil, c.errorAt(sqlstate.SyntaxError, locationOf(val), "* cannot be assigned to a column")
		}
		e := c.targets[before].expr
		var err error
		c.node, e, err = c.attach(c.node, e)
		return e, err
	})
}

// assignments resolves the columns of a SET list and converts their values,
// which value binds. A nil entry is a column that is not named.
func (b *binder) assignments(t *catalog.Table, list []*pgquery.Node, value func(*pgquery.Node, arrow.DataType) (planner.Expr, error)) ([]planner.Expr, error) {
	out := make([]planner.Expr, len(t.Columns))
	names := make([]scopeColumn, len(t.Columns))
	for i, c := range t.Columns {
		names[i].name = c.Name
	}
	for _, n := range list {
		r := n.GetResTarget()
		if err := b.onlyFields(r, "name", "val"); err != nil {
			return nil, err
		}
		at := t.Column(r.Name)
		if at < 0 {
			return nil, b.noColumn(r.Name, r.Name, names, r.Location)
		}
		if out[at] != nil {
			return nil, b.errorAt(sqlstate.SyntaxError, r.Location, "column %q is assigned more than once", r.Name)
		}
		val, err := b.assigned(r)
		if err != nil {
			return nil, err
		}
		if out[at], err = b.assignment(&t.Columns[at], val, value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assigned is the expression that a column is set to; of (a, b) = (x, y) the
// one at the column's place.
func (b *binder) assigned(r *pgquery.ResTarget) (*pgquery.Node, error) {
	multi := r.Val.GetMultiAssignRef()
	if multi == nil {
		return r.Val, nil
	}
	row := multi.Source.GetRowExpr()
	if row == nil {
		return nil, b.unsupported(r.Location, "assigning a subquery to a list of columns")
	}
	if len(row.Args) != int(multi.Ncolumns) {
		return nil, b.errorAt(sqlstate.SyntaxError, r.Location, "%d columns are assigned %d values", multi.Ncolumns, len(row.Args))
	}
	return row.Args[multi.Colno-1], nil
}

func (b *binder) assignment(c *catalog.Column, val *pgquery.Node, value func(*pgquery.Node, arrow.DataType) (planner.Expr, error)) (planner.Expr, error) {
	if val.GetSetToDefault() != nil {
		if c.Default == "" {
			return &planner.Literal{DataType: c.Type}, nil
		}
		return b.storedDefault(c)
	}
	e, err := value(val, c.Type)
	if err != nil {
		return nil, err
	}
	if e, err = b.assign(e, c); err != nil {
		return nil, err
	}
	return b.fold(e)
}

// returning binds a RETURNING list over the rows that names describes.
func (b *binder) returning(list []*pgquery.Node, names *scope) (*Returning, error) {
	from := &source{scope: names}
	s := &selection{binder: b, stmt: &pgquery.SelectStmt{TargetList: list}, from: from}
	s.context = &exprContext{scope: names, clause: "RETURNING"}
	if err := s.selectList(nil); err != nil {
		return nil, err
	}
	if s.node != nil {
		return nil, b.unsupported(locationOf(list[0].GetResTarget().GetVal()), "a subquery in RETURNING")
	}
	out := &Returning{}
	fields := make([]arrow.Field, len(s.targets))
	for i, t := range s.targets {
		e, err := b.fold(t.expr)
		if err != nil {
			return nil, err
		}
		out.Exprs = append(out.Exprs, e)
		fields[i] = arrow.Field{Name: t.name, Type: e.Type(), Nullable: e.Nullable()}
	}
	out.Schema = arrow.NewSchema(fields, nil)
	return out, nil
}

// truncate binds TRUNCATE.
func (b *binder) truncate(stmt *pgquery.TruncateStmt) (*Truncate, error) {
	if err := b.onlyFields(stmt, "relations", "behavior"); err != nil {
		return nil, err
	}
	out := &Truncate{}
	for _, n := range stmt.Relations {
		r := n.GetRangeVar()
		if err := b.plainTable(r); err != nil {
			return nil, err
		}
		t, err := b.target(r)
		if err != nil {
			return nil, err
		}
		out.Tables = append(out.Tables, t)
	}
	return out, nil
}
