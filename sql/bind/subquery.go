package bind

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// frame is the boundary between a subquery being bound and the query around
// it. What the subquery reads of that query's columns become its arguments.
type frame struct {
	outer   *frame // of the query around
	context *exprContext
	args    []planner.Expr // over the columns of the query around
}

// outerRef is a column of the query around a subquery, argument slot of the
// subquery's frame. It lives until the subquery is attached.
type outerRef struct {
	frame *frame
	slot  int
	name  string
	dt    arrow.DataType
	null  bool
}

// Type is the column's type.
func (o *outerRef) Type() arrow.DataType { return o.dt }

// Nullable is the column's nullability.
func (o *outerRef) Nullable() bool { return o.null }

// String is the column's name.
func (o *outerRef) String() string { return o.name }

// innerRef is an output column of a subquery in the comparison of IN and its
// like. It lives until the subquery is attached.
type innerRef struct {
	index int
	field arrow.Field
}

// Type is the column's type.
func (i *innerRef) Type() arrow.DataType { return i.field.Type }

// Nullable is the column's nullability.
func (i *innerRef) Nullable() bool { return i.field.Nullable }

// String is the column's name.
func (i *innerRef) String() string { return i.field.Name }

type subqueryKind int

const (
	scalarSubquery subqueryKind = iota
	existsSubquery
	anySubquery // whether cond holds for any row
)

// subqueryRef stands for the value of a subquery until joins compute it.
type subqueryRef struct {
	kind  subqueryKind
	query *output
	frame *frame
	args  []planner.Expr // of the frame
	cond  planner.Expr   // of anySubquery: over innerRefs and the columns around
	dt    arrow.DataType
}

// Type is the type of the value.
func (s *subqueryRef) Type() arrow.DataType { return s.dt }

// Nullable holds unless the value is that of EXISTS.
func (s *subqueryRef) Nullable() bool {
	switch s.kind {
	case existsSubquery:
		return false
	case anySubquery:
		return s.cond.Nullable()
	}
	return true
}

// String is shown where a subquery is named in an error.
func (s *subqueryRef) String() string { return "(subquery)" }

func (s *subqueryRef) rebuild(replace func(planner.Expr) (planner.Expr, error)) (planner.Expr, error) {
	out := &subqueryRef{kind: s.kind, query: s.query, frame: s.frame, args: make([]planner.Expr, len(s.args)), dt: s.dt}
	var err error
	for i, a := range s.args {
		if out.args[i], err = replace(a); err != nil {
			return nil, err
		}
	}
	if s.cond != nil {
		if out.cond, err = replace(s.cond); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// outerColumn resolves a name that the innermost query does not know in the
// queries around it; known reports whether any does.
func (b *binder) outerColumn(ref *pgquery.ColumnRef) (e planner.Expr, known bool, err error) {
	f := b.frame
	if f == nil || f.context == nil {
		return nil, false, nil
	}
	b.frame = f.outer
	found, err := b.columnRef(ref, f.context.scope)
	b.frame = f
	if err != nil {
		code := sqlstate.CodeOf(err)
		return nil, code == sqlstate.AmbiguousColumn, err
	}
	if f.context.noColumns != "" {
		return nil, true, b.errorAt(sqlstate.InvalidColumnReference, ref.Location, "%s must not refer to columns", f.context.noColumns)
	}
	name := stringsOf(ref.Fields)
	return b.at(f.refer(found, name[len(name)-1]), ref.Location), true, nil
}

// refer makes a value of the query around an argument of the subquery's.
func (f *frame) refer(value planner.Expr, name string) *outerRef {
	slot := slices.IndexFunc(f.args, func(a planner.Expr) bool { return equal(a, value) })
	if slot < 0 {
		slot = len(f.args)
		f.args = append(f.args, value)
	}
	return &outerRef{frame: f, slot: slot, name: name, dt: value.Type(), null: value.Nullable()}
}

// sublink binds a subquery in an expression.
func (b *binder) sublink(e *pgquery.SubLink, c *exprContext) (planner.Expr, error) {
	if !c.subqueries {
		return nil, b.unsupported(e.Location, "a subquery in %s", c.clause)
	}
	sel := e.Subselect.GetSelectStmt()
	if sel == nil {
		return nil, b.refuseNode(e.Subselect, "")
	}
	if b.refs++; b.refs > MaxTableRefs {
		return nil, b.errorAt(sqlstate.ProgramLimitExceeded, e.Location, "the statement has more than %d subqueries and table references", MaxTableRefs)
	}
	f := &frame{outer: b.frame, context: c}
	b.frame = f
	out, err := b.selectStmt(sel, nil)
	b.frame = f.outer
	if err != nil {
		return nil, err
	}
	ref := &subqueryRef{query: out, frame: f, args: f.args, dt: catalog.Boolean}
	switch e.SubLinkType {
	case pgquery.SubLinkType_EXISTS_SUBLINK:
		ref.kind = existsSubquery
		return b.at(ref, e.Location), nil
	case pgquery.SubLinkType_EXPR_SUBLINK:
		if len(out.fields) != 1 {
			return nil, b.errorAt(sqlstate.SyntaxError, e.Location, "a subquery used as a value must return one column, not %d", len(out.fields))
		}
		ref.dt = out.fields[0].Type
		return b.at(ref, e.Location), nil
	case pgquery.SubLinkType_ANY_SUBLINK, pgquery.SubLinkType_ALL_SUBLINK:
		return b.quantified(e, ref, c)
	case pgquery.SubLinkType_ROWCOMPARE_SUBLINK:
		return b.rowComparison(e, ref, c)
	}
	return nil, b.unsupported(e.Location, "this form of a subquery")
}

// quantified binds IN, ANY and ALL over a subquery. ALL is the opposite of the
// opposite comparison holding for any row.
func (b *binder) quantified(e *pgquery.SubLink, ref *subqueryRef, c *exprContext) (planner.Expr, error) {
	op := "="
	if len(e.OperName) > 0 {
		names := stringsOf(e.OperName)
		op = names[len(names)-1]
	}
	all := e.SubLinkType == pgquery.SubLinkType_ALL_SUBLINK
	opposite := map[string]string{"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
	if opposite[op] == "" {
		return nil, b.unsupported(e.Location, "operator %s before ANY or ALL", op)
	}
	operands := []*pgquery.Node{e.Testexpr}
	if row := e.Testexpr.GetRowExpr(); row != nil {
		operands = row.Args
	}
	if len(operands) != len(ref.query.fields) {
		return nil, b.errorAt(sqlstate.SyntaxError, e.Location, "the subquery returns %d columns to compare with %d", len(ref.query.fields), len(operands))
	}
	rowOp := op
	if all {
		rowOp = opposite[op]
	}
	if len(operands) > 1 && op != "=" && op != "<>" {
		return nil, b.unsupported(e.Location, "row comparison %s with a subquery", op)
	}
	var conds []planner.Expr
	for i, n := range operands {
		left, err := b.expr(n, c)
		if err != nil {
			return nil, err
		}
		cond, err := b.compare(rowOp, left, b.at(&innerRef{i, ref.query.fields[i]}, e.Location), e.Location)
		if err != nil {
			return nil, err
		}
		conds = append(conds, cond)
	}
	connective := "and"
	if rowOp == "<>" {
		connective = "or"
	}
	ref.kind = anySubquery
	ref.cond = b.connect(connective, conds, e.Location)
	value := b.at(ref, e.Location)
	if all {
		return b.predicate("not", e.Location, value.Nullable(), value)
	}
	return value, nil
}

// rowComparison binds (a, b) = (SELECT x, y ...): a subquery used as a value,
// that of the comparison.
func (b *binder) rowComparison(e *pgquery.SubLink, ref *subqueryRef, c *exprContext) (planner.Expr, error) {
	names := stringsOf(e.OperName)
	op := names[len(names)-1]
	operands := e.Testexpr.GetRowExpr().GetArgs()
	if op != "=" && op != "<>" {
		return nil, b.unsupported(e.Location, "row comparison %s with a subquery", op)
	}
	if len(operands) != len(ref.query.fields) {
		return nil, b.errorAt(sqlstate.SyntaxError, e.Location, "the subquery returns %d columns to compare with %d", len(ref.query.fields), len(operands))
	}
	conds := make([]planner.Expr, len(operands))
	for i, n := range operands {
		left, err := b.expr(n, c)
		if err != nil {
			return nil, err
		}
		if left, err = b.settledAs(left, ref.query.fields[i].Type); err != nil {
			return nil, err
		}
		ref.args = append(ref.args, left)
		outer := &outerRef{frame: ref.frame, slot: len(ref.args) - 1, name: "value", dt: left.Type(), null: left.Nullable()}
		if conds[i], err = b.compare(op, b.at(outer, e.Location), b.at(fieldColumn(i, ref.query.fields[i]), e.Location), e.Location); err != nil {
			return nil, err
		}
	}
	connective := "and"
	if op == "<>" {
		connective = "or"
	}
	p := &planner.Project{Input: ref.query.node, Exprs: []planner.Expr{b.connect(connective, conds, e.Location)}, Names: []string{"?column?"}}
	ref.query = &output{node: p, fields: p.Schema().Fields()}
	return b.at(ref, e.Location), nil
}

// settledAs settles an untyped expression as a type that it is compared with.
func (b *binder) settledAs(e planner.Expr, dt arrow.DataType) (planner.Expr, error) {
	if isUntyped(e) {
		return b.convert(e, dt)
	}
	return e, nil
}

// contains reports whether an expression holds one that a test is true for,
// subqueries' arguments and comparisons included.
func contains(e planner.Expr, test func(planner.Expr) bool) bool {
	if test(e) {
		return true
	}
	found := false
	_, _ = rebuild(e, func(a planner.Expr) (planner.Expr, error) {
		found = found || contains(a, test)
		return a, nil
	})
	return found
}

func hasSubquery(e planner.Expr) bool {
	return contains(e, func(x planner.Expr) bool { _, ok := x.(*subqueryRef); return ok })
}

func hasOuter(e planner.Expr) bool {
	return contains(e, func(x planner.Expr) bool { _, ok := x.(*outerRef); return ok })
}

func hasColumn(e planner.Expr) bool {
	return contains(e, func(x planner.Expr) bool { _, ok := x.(*planner.Column); return ok })
}

// replaceLeaves copies an expression with leaves replaced; replace returns nil
// for those that stay.
func replaceLeaves(e planner.Expr, replace func(planner.Expr) planner.Expr) planner.Expr {
	if r := replace(e); r != nil {
		return r
	}
	out, _ := rebuild(e, func(a planner.Expr) (planner.Expr, error) { return replaceLeaves(a, replace), nil })
	return out
}
