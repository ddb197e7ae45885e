package bind

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/planner"
	"skein/sqlstate"
)

// values binds a VALUES list with its ORDER BY and LIMIT; the columns are named
// column1, column2, ...
func (b *binder) values(stmt *pgquery.SelectStmt, wanted []arrow.DataType) (*output, error) {
	rows, err := b.valuesRows(stmt.ValuesLists, &exprContext{scope: &scope{}, clause: "VALUES"})
	if err != nil {
		return nil, err
	}
	width := len(rows[0])
	fields := make([]arrow.Field, width)
	for i := range width {
		column := make([]planner.Expr, len(rows))
		for r := range rows {
			column[r] = rows[r][i]
		}
		column, dt, err := b.valuesColumn(column, i, wanted)
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: fmt.Sprintf("column%d", i+1), Type: dt}
		for r := range rows {
			rows[r][i] = column[r]
			fields[i].Nullable = fields[i].Nullable || column[r].Nullable()
		}
	}
	node := &planner.Values{Fields: arrow.NewSchema(fields, nil), Rows: rows}
	return b.orderedRows(stmt, node)
}

// valuesColumn brings one column of the rows to one type.
func (b *binder) valuesColumn(column []planner.Expr, i int, wanted []arrow.DataType) ([]planner.Expr, arrow.DataType, error) {
	if i < len(wanted) && wanted[i] != nil && allUntyped(column) {
		for r, e := range column {
			converted, err := b.convert(e, wanted[i])
			if err != nil {
				return nil, nil, err
			}
			column[r] = converted
		}
		return column, wanted[i], nil
	}
	return b.unify("VALUES", column)
}

func allUntyped(exprs []planner.Expr) bool {
	for _, e := range exprs {
		if !isUntyped(e) {
			return false
		}
	}
	return true
}

func (b *binder) valuesRows(lists []*pgquery.Node, c *exprContext) ([][]planner.Expr, error) {
	rows := make([][]planner.Expr, len(lists))
	for i, l := range lists {
		items := l.GetList().GetItems()
		if i > 0 && len(items) != len(rows[0]) {
			return nil, b.unevenRows(items)
		}
		row, err := b.exprs(items, c)
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

func (b *binder) unevenRows(items []*pgquery.Node) error {
	location := int32(-1)
	if len(items) > 0 {
		location = locationOf(items[0])
	}
	return b.errorAt(sqlstate.SyntaxError, location, "VALUES lists must all be the same length")
}

// orderedRows sorts and limits rows whose columns ORDER BY sees as a SELECT's,
// as those of VALUES and of set operations.
func (b *binder) orderedRows(stmt *pgquery.SelectStmt, node planner.Node) (*output, error) {
	schema := node.Schema()
	if len(stmt.SortClause) == 0 {
		limited, err := b.limit(stmt, node)
		return &output{limited, append([]arrow.Field(nil), schema.Fields()...)}, err
	}
	rel := &relation{alias: "*VALUES*", location: -1}
	for i, f := range schema.Fields() {
		rel.columns = append(rel.columns, scopeColumn{f.Name, i, f.Type, f.Nullable})
	}
	names := &scope{[]*relation{rel}, rel.columns}
	s := &selection{
		binder: b, stmt: stmt, node: node,
		from:    &source{node, names, len(rel.columns)},
		context: &exprContext{scope: names, clause: "ORDER BY"},
	}
	for _, c := range rel.columns {
		s.targets = append(s.targets, target{b.column(c, -1), c.name})
	}
	s.visible = len(s.targets)
	if err := s.orderBy(); err != nil {
		return nil, err
	}
	if len(s.targets) > s.visible {
		p := &planner.Project{Input: node}
		for _, t := range s.targets {
			p.Exprs = append(p.Exprs, t.expr)
			p.Names = append(p.Names, t.name)
		}
		s.node = p
	}
	return s.finish(s.visible)
}
