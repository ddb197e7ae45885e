package bind

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/planner"
)

// rebuild copies an expression with its direct operands replaced; an
// expression without operands is returned as it is.
func rebuild(e planner.Expr, replace func(planner.Expr) (planner.Expr, error)) (planner.Expr, error) {
	switch e := e.(type) {
	case *planner.Call:
		args := make([]planner.Expr, len(e.Args))
		for i, a := range e.Args {
			var err error
			if args[i], err = replace(a); err != nil {
				return nil, err
			}
		}
		return &planner.Call{Func: e.Func, Args: args, DataType: e.DataType, Null: e.Null}, nil
	case *planner.Cast:
		arg, err := replace(e.Arg)
		if err != nil {
			return nil, err
		}
		return &planner.Cast{Arg: arg, DataType: e.DataType}, nil
	case *planner.InList:
		arg, err := replace(e.Arg)
		if err != nil {
			return nil, err
		}
		return &planner.InList{Arg: arg, List: e.List, Negate: e.Negate}, nil
	case *planner.Case:
		return rebuildCase(e, replace)
	case *subqueryRef:
		return e.rebuild(replace)
	case *groupingRef:
		args, err := rebuildList(e.args, replace)
		return &groupingRef{args}, err
	case *windowRef:
		return e.rebuild(replace)
	}
	return e, nil
}

func rebuildList(list []planner.Expr, replace func(planner.Expr) (planner.Expr, error)) ([]planner.Expr, error) {
	out := make([]planner.Expr, len(list))
	for i, e := range list {
		var err error
		if out[i], err = replace(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func rebuildCase(e *planner.Case, replace func(planner.Expr) (planner.Expr, error)) (planner.Expr, error) {
	out := &planner.Case{Whens: make([]planner.When, len(e.Whens)), DataType: e.DataType}
	var err error
	for i, w := range e.Whens {
		if out.Whens[i].Cond, err = replace(w.Cond); err != nil {
			return nil, err
		}
		if out.Whens[i].Then, err = replace(w.Then); err != nil {
			return nil, err
		}
	}
	if out.Else, err = replace(e.Else); err != nil {
		return nil, err
	}
	return out, nil
}

// mapColumns copies an expression with its columns replaced.
func mapColumns(e planner.Expr, replace func(*planner.Column) planner.Expr) planner.Expr {
	if c, ok := e.(*planner.Column); ok {
		return replace(c)
	}
	out, _ := rebuild(e, func(a planner.Expr) (planner.Expr, error) { return mapColumns(a, replace), nil })
	return out
}

func moved(c *planner.Column, by int) *planner.Column {
	return &planner.Column{Index: c.Index + by, Name: c.Name, DataType: c.DataType, Null: c.Null}
}

func shiftColumns(e planner.Expr, by int) planner.Expr {
	return mapColumns(e, func(c *planner.Column) planner.Expr { return moved(c, by) })
}

// equal reports whether two expressions are the same computation.
func equal(a, b planner.Expr) bool {
	if a == b {
		return true
	}
	if !arrow.TypeEqual(a.Type(), b.Type()) {
		return false
	}
	switch x := a.(type) {
	case *planner.Column:
		y, ok := b.(*planner.Column)
		return ok && x.Index == y.Index
	case *planner.Literal:
		y, ok := b.(*planner.Literal)
		return ok && equalValues(x.Value, y.Value)
	case *planner.Param:
		y, ok := b.(*planner.Param)
		return ok && x.Ordinal == y.Ordinal
	case *aggregateRef:
		y, ok := b.(*aggregateRef)
		return ok && x.index == y.index
	case *groupingRef:
		y, ok := b.(*groupingRef)
		return ok && slices.EqualFunc(x.args, y.args, equal)
	case *windowRef:
		y, ok := b.(*windowRef)
		return ok && x.equal(y)
	case *outerRef:
		y, ok := b.(*outerRef)
		return ok && x.frame == y.frame && x.slot == y.slot
	case *innerRef:
		y, ok := b.(*innerRef)
		return ok && x.index == y.index
	case *subqueryRef:
		y, ok := b.(*subqueryRef)
		return ok && x.kind == y.kind && x.query == y.query && slices.EqualFunc(x.args, y.args, equal) &&
			(x.cond == nil || equal(x.cond, y.cond))
	case *untyped:
		y, ok := b.(*untyped)
		return ok && *x == *y
	case *planner.Call:
		y, ok := b.(*planner.Call)
		return ok && x.Func == y.Func && slices.EqualFunc(x.Args, y.Args, equal)
	case *planner.Cast:
		y, ok := b.(*planner.Cast)
		return ok && equal(x.Arg, y.Arg)
	case *planner.InList:
		y, ok := b.(*planner.InList)
		return ok && x.Negate == y.Negate && equal(x.Arg, y.Arg) &&
			slices.EqualFunc(x.List, y.List, func(m, n *planner.Literal) bool { return equal(m, n) })
	case *planner.Case:
		y, ok := b.(*planner.Case)
		return ok && equal(x.Else, y.Else) && slices.EqualFunc(x.Whens, y.Whens, func(m, n planner.When) bool {
			return equal(m.Cond, n.Cond) && equal(m.Then, n.Then)
		})
	}
	return false
}

func equalValues(a, b any) bool {
	x, isBytes := a.([]byte)
	if y, ok := b.([]byte); ok && isBytes {
		return bytes.Equal(x, y)
	}
	return !isBytes && a == b
}
