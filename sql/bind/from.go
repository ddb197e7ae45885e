package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// source is a bound part of FROM: a node, its names and how many columns it has.
type source struct {
	node  planner.Node
	scope *scope
	width int
}

// from binds a FROM list; entries after the first join by cross joins. Without
// FROM there is one row, which has a column since a batch needs one, but no
// name for it.
func (b *binder) from(items []*pgquery.Node) (*source, error) {
	if len(items) == 0 {
		return oneRow(), nil
	}
	left, err := b.fromItem(items[0])
	if err != nil {
		return nil, err
	}
	for _, item := range items[1:] {
		if r := item.GetRangeSubselect(); r.GetLateral() {
			if left, err = b.lateral(planner.CrossJoin, left, r, nil); err != nil {
				return nil, err
			}
			continue
		}
		if j := item.GetJoinExpr(); j != nil && hasLateral(item) && startsFrom(j) {
			if left, err = b.join(j, left); err != nil {
				return nil, err
			}
			continue
		}
		right, err := b.fromItem(item)
		if err != nil {
			return nil, err
		}
		if left, err = b.cross(left, right); err != nil {
			return nil, err
		}
	}
	return left, nil
}

func oneRow() *source {
	fields := arrow.NewSchema([]arrow.Field{{Name: "", Type: catalog.Boolean}}, nil)
	row := []planner.Expr{planner.BoolLiteral(true)}
	return &source{node: &planner.Values{Fields: fields, Rows: [][]planner.Expr{row}}, scope: &scope{}, width: 1}
}

func (b *binder) fromItem(n *pgquery.Node) (*source, error) {
	if b.refs++; b.refs > MaxTableRefs {
		return nil, b.errorAt(sqlstate.ProgramLimitExceeded, locationOf(n),
			"the statement refers to tables more than %d times, counting inside its WITH queries", MaxTableRefs)
	}
	switch item := n.GetNode().(type) {
	case *pgquery.Node_RangeVar:
		return b.rangeVar(item.RangeVar)
	case *pgquery.Node_RangeSubselect:
		return b.derived(item.RangeSubselect)
	case *pgquery.Node_JoinExpr:
		return b.join(item.JoinExpr, nil)
	case *pgquery.Node_RangeFunction:
		return b.rangeFunction(item.RangeFunction)
	}
	return nil, b.refuseNode(n, "")
}

func (b *binder) rangeVar(r *pgquery.RangeVar) (*source, error) {
	if err := b.plainTable(r, "alias"); err != nil {
		return nil, err
	}
	if r.Schemaname == "" {
		for i := len(b.ctes) - 1; i >= 0; i-- {
			if b.ctes[i].name == r.Relname {
				return b.cteReference(b.ctes[i], r)
			}
		}
	}
	t, err := b.table(r)
	if err != nil {
		return nil, err
	}
	rel := &relation{alias: t.Name, schema: t.Schema, location: r.Location, table: t}
	projection := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		projection[i] = i
		rel.columns = append(rel.columns, scopeColumn{c.Name, i, c.Type, c.Nullable})
	}
	if err := b.applyAlias(rel, r.Alias); err != nil {
		return nil, err
	}
	scan := &planner.Scan{Table: t, Alias: rel.alias, Projection: projection}
	return &source{scan, &scope{[]*relation{rel}, rel.columns}, len(projection)}, nil
}

// plainTable refuses what a table reference may say besides a name.
func (b *binder) plainTable(r *pgquery.RangeVar, handled ...string) error {
	if !r.Inh {
		return b.unsupported(r.Location, "ONLY")
	}
	switch r.Relpersistence {
	case "t":
		return b.unsupported(r.Location, "a temporary table")
	case "u":
		return b.unsupported(r.Location, "an unlogged table")
	}
	return b.onlyFields(r, append(handled, "schemaname", "relname", "inh", "relpersistence")...)
}

// target looks up a table that the statement changes.
func (b *binder) target(r *pgquery.RangeVar) (*catalog.Table, error) {
	t, err := b.table(r)
	if err == nil && t.System {
		return nil, b.errorAt(sqlstate.WrongObjectType, r.Location, "%s is a system table: it can only be read", t.QualifiedName())
	}
	return t, err
}

// table looks a table up.
func (b *binder) table(r *pgquery.RangeVar) (*catalog.Table, error) {
	schema := r.Schemaname
	t, err := b.tables.Table(b.ctx, schema, r.Relname)
	if err == nil && t != nil {
		return t, nil
	}
	if err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
		return nil, err
	}
	shown := r.Relname
	if r.Schemaname != "" {
		shown = r.Schemaname + "." + r.Relname
	}
	missing := b.errorAt(sqlstate.UndefinedTable, r.Location, "table %q does not exist", shown)
	if near := nearest(r.Relname, b.tables.TableNames(b.ctx, schema)); near != "" {
		missing = missing.WithHint("Perhaps you meant %q.", near)
	}
	return nil, missing
}

// applyAlias renames a relation and, with a column list, its columns.
func (b *binder) applyAlias(rel *relation, alias *pgquery.Alias) error {
	if alias == nil {
		return nil
	}
	rel.alias, rel.schema = alias.Aliasname, ""
	return b.renameColumns(rel, stringsOf(alias.Colnames))
}

func (b *binder) renameColumns(rel *relation, names []string) error {
	if len(names) > len(rel.columns) {
		return b.errorAt(sqlstate.InvalidColumnReference, rel.location,
			"%q has %d columns, but %d names are given", rel.alias, len(rel.columns), len(names))
	}
	for i, name := range names {
		rel.columns[i].name = name
	}
	return nil
}

// derived binds (SELECT ...) AS alias. It cannot see its siblings; with LATERAL,
// it has none to see.
func (b *binder) derived(r *pgquery.RangeSubselect) (*source, error) {
	if err := b.onlyFields(r, "subquery", "alias", "lateral"); err != nil {
		return nil, err
	}
	sel := r.Subquery.GetSelectStmt()
	if sel == nil {
		return nil, b.refuseNode(r.Subquery, "")
	}
	out, err := b.selectStmt(sel, nil)
	if err != nil {
		return nil, err
	}
	rel := &relation{location: -1}
	return b.subquery(out, rel, r.Alias)
}

// subquery makes a bound query a FROM entry.
func (b *binder) subquery(out *output, rel *relation, alias *pgquery.Alias) (*source, error) {
	for i, f := range out.fields {
		rel.columns = append(rel.columns, scopeColumn{f.Name, i, f.Type, f.Nullable})
	}
	if err := b.applyAlias(rel, alias); err != nil {
		return nil, err
	}
	s := &scope{columns: rel.columns, relations: []*relation{rel}}
	return &source{out.node, s, len(out.fields)}, nil
}
