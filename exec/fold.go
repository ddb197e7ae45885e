package exec

import (
	"skein/columnar"
	"skein/planner"
)

// EvalConst evaluates an expression without columns, such as a DEFAULT, and
// returns its value as a literal of the expression's type.
func EvalConst(e planner.Expr) (*planner.Literal, error) {
	ev, err := Compile(e, nil)
	if err != nil {
		return nil, err
	}
	v, err := ev.Eval(&columnar.Batch{Len: 1})
	if err != nil {
		return nil, err
	}
	l, err := LiteralAt(v, 0)
	if err != nil {
		return nil, err
	}
	l.DataType = e.Type()
	return l, nil
}

// Fold replaces constant subtrees of immutable functions by their values and
// simplifies what constants decide: AND and OR with a constant side, CASE
// branches, and comparisons of a cast column with a constant, which become
// comparisons of the column itself. A subtree whose evaluation fails stays as
// it is, so that its error is raised only if a row reaches it at run time.
// The type of the result is that of e.
func Fold(e planner.Expr) (planner.Expr, error) {
	switch x := e.(type) {
	case *planner.Call:
		return foldCall(x)
	case *planner.Cast:
		arg, err := Fold(x.Arg)
		if err != nil {
			return nil, err
		}
		return constantOr(&planner.Cast{Arg: arg, DataType: x.DataType}, arg), nil
	case *planner.Case:
		return foldCase(x)
	case *planner.InList:
		arg, err := Fold(x.Arg)
		if err != nil {
			return nil, err
		}
		return constantOr(&planner.InList{Arg: arg, List: x.List, Negate: x.Negate}, arg), nil
	}
	return e, nil
}

// constantOr evaluates e when its arguments are literals and it succeeds.
func constantOr(e planner.Expr, args ...planner.Expr) planner.Expr {
	for _, a := range args {
		if _, ok := a.(*planner.Literal); !ok {
			return e
		}
	}
	if l, err := EvalConst(e); err == nil {
		return l
	}
	return e
}

func foldCall(x *planner.Call) (planner.Expr, error) {
	args := make([]planner.Expr, len(x.Args))
	for i, a := range x.Args {
		folded, err := Fold(a)
		if err != nil {
			return nil, err
		}
		args[i] = folded
	}
	c := &planner.Call{Func: x.Func, Args: args, DataType: x.DataType, Null: x.Null}
	if x.Func == "and" || x.Func == "or" {
		return foldLogic(c), nil
	}
	if f := functions()[x.Func]; f == nil || f.volatile() != Immutable {
		return c, nil
	}
	if n, ok := narrowComparison(c); ok {
		return n, nil
	}
	return constantOr(c, args...), nil
}

// foldLogic drops neutral constants and stops at a decisive one. A constant
// that comes after other terms decides only if those cannot fail first, which
// SQL does not promise, so it decides too.
func foldLogic(c *planner.Call) planner.Expr {
	decisive := c.Func == "or"
	var kept []planner.Expr
	for _, a := range c.Args {
		l, ok := a.(*planner.Literal)
		value, isBool := false, false
		if ok {
			value, isBool = l.Value.(bool)
		}
		switch {
		case !isBool:
			kept = append(kept, a)
		case value == decisive:
			return l
		}
	}
	switch len(kept) {
	case 0:
		return &planner.Literal{Value: !decisive, DataType: c.DataType}
	case 1:
		return kept[0]
	}
	folded := &planner.Call{Func: c.Func, Args: kept, DataType: c.DataType, Null: c.Null}
	return constantOr(folded, kept...)
}

// foldCase removes branches that constants rule out and everything after one
// that is always taken.
func foldCase(x *planner.Case) (planner.Expr, error) {
	otherwise, err := Fold(x.Else)
	if err != nil {
		return nil, err
	}
	c := &planner.Case{Else: otherwise, DataType: x.DataType}
	for _, w := range x.Whens {
		cond, err := Fold(w.Cond)
		if err != nil {
			return nil, err
		}
		then, err := Fold(w.Then)
		if err != nil {
			return nil, err
		}
		if l, ok := cond.(*planner.Literal); ok {
			if l.Value != true {
				continue
			}
			c.Else = then
			break
		}
		c.Whens = append(c.Whens, planner.When{Cond: cond, Then: then})
	}
	if len(c.Whens) == 0 {
		if l, ok := c.Else.(*planner.Literal); ok && l.Value == nil {
			return &planner.Literal{DataType: x.DataType}, nil
		}
		return c.Else, nil
	}
	return c, nil
}
