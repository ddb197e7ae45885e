package bind

import (
	"github.com/apache/arrow-go/v18/arrow"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/catalog"
	"skein/planner"
)

// in binds e [NOT] IN (list): constants of e's type make an InList, the other
// elements comparisons beside it.
func (b *binder) in(e *pgquery.A_Expr, c *exprContext) (planner.Expr, error) {
	list := e.Rexpr.GetList()
	if list == nil {
		return nil, b.refuseNode(e.Rexpr, "IN over ")
	}
	op, err := b.operatorName(e)
	if err != nil {
		return nil, err
	}
	if e.Lexpr.GetRowExpr() != nil {
		return b.rowIn(op, e, list.Items, c)
	}
	subject, err := b.expr(e.Lexpr, c)
	if err != nil {
		return nil, err
	}
	elements, err := b.exprs(list.Items, c)
	if err != nil {
		return nil, err
	}
	if subject, err = b.inSubject(subject, elements); err != nil {
		return nil, err
	}
	return b.membership(subject, elements, op == "<>", e.Location)
}

// inSubject gives an untyped subject the type of the first element that has one.
func (b *binder) inSubject(subject planner.Expr, elements []planner.Expr) (planner.Expr, error) {
	for _, e := range elements {
		if isUntyped(subject) && !isUntyped(e) {
			return b.convert(subject, e.Type())
		}
	}
	return b.settled(subject)
}

func (b *binder) membership(subject planner.Expr, elements []planner.Expr, negate bool, location int32) (planner.Expr, error) {
	in := &planner.InList{Arg: subject, Negate: negate}
	if len(elements) > 1 {
		if err := b.repeatable(subject, location, "the left side of IN"); err != nil {
			return nil, err
		}
	}
	op, connective := "=", "or"
	if negate {
		op, connective = "<>", "and"
	}
	var parts []planner.Expr
	null := false
	for _, e := range elements {
		l, isNull, err := b.listElement(e, subject.Type())
		switch {
		case err != nil:
			return nil, err
		case isNull:
			null = true
		case l != nil:
			in.List = append(in.List, l)
		default:
			part, err := b.compare(op, subject, e, location)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	if len(in.List) > 0 {
		folded, err := b.foldIn(in, location)
		if err != nil {
			return nil, err
		}
		parts = append([]planner.Expr{folded}, parts...)
	}
	if null {
		// x IN (..., NULL) is NULL where it is not true.
		parts = append(parts, b.at(&planner.Literal{DataType: catalog.Boolean}, location))
	}
	return b.connect(connective, parts, location), nil
}

func (b *binder) foldIn(in *planner.InList, location int32) (planner.Expr, error) {
	e := b.at(in, location)
	if _, ok := in.Arg.(*planner.Literal); ok {
		return b.fold(e)
	}
	return e, nil
}

// listElement turns an element into a constant of the subject's type, nil if it
// is none or its value does not exist in that type.
func (b *binder) listElement(e planner.Expr, dt arrow.DataType) (l *planner.Literal, null bool, err error) {
	if u, ok := e.(*untyped); ok {
		if u.null {
			return nil, true, nil
		}
		if u.param > 0 {
			return nil, false, nil
		}
		settled, err := b.settle(u, dt)
		if err != nil {
			return nil, false, err
		}
		e = settled
	}
	literal, ok := e.(*planner.Literal)
	if !ok {
		return nil, false, nil
	}
	if literal.Value == nil {
		return nil, true, nil
	}
	same, ok := exactly(literal, dt)
	if !ok {
		return nil, false, nil
	}
	return same, false, nil
}
