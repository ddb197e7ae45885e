package planner

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
)

// children returns the direct sub-expressions.
func children(e Expr) []Expr {
	switch e := e.(type) {
	case *Call:
		return e.Args
	case *Cast:
		return []Expr{e.Arg}
	case *Case:
		out := make([]Expr, 0, 2*len(e.Whens)+1)
		for _, w := range e.Whens {
			out = append(out, w.Cond, w.Then)
		}
		return append(out, e.Else)
	case *InList:
		return []Expr{e.Arg}
	}
	return nil
}

// walk calls visit for e and everything below it, parents first.
func walk(e Expr, visit func(Expr)) {
	visit(e)
	for _, c := range children(e) {
		walk(c, visit)
	}
}

// transform rebuilds e with every Column replaced by what replace returns;
// expressions without columns are shared, not copied.
func transform(e Expr, replace func(*Column) Expr) Expr {
	switch e := e.(type) {
	case *Column:
		return replace(e)
	case *Call:
		args := make([]Expr, len(e.Args))
		for i, a := range e.Args {
			args[i] = transform(a, replace)
		}
		return &Call{Func: e.Func, Args: args, DataType: e.DataType, Null: e.Null}
	case *Cast:
		return &Cast{Arg: transform(e.Arg, replace), DataType: e.DataType}
	case *Case:
		whens := make([]When, len(e.Whens))
		for i, w := range e.Whens {
			whens[i] = When{Cond: transform(w.Cond, replace), Then: transform(w.Then, replace)}
		}
		return &Case{Whens: whens, Else: transform(e.Else, replace), DataType: e.DataType}
	case *InList:
		return &InList{Arg: transform(e.Arg, replace), List: e.List, Negate: e.Negate}
	}
	return e
}

// remap moves column references: old ordinal i becomes mapping[i].
func remap(e Expr, mapping []int) Expr {
	if e == nil {
		return nil
	}
	return transform(e, func(c *Column) Expr {
		return &Column{Index: mapping[c.Index], Name: c.Name, DataType: c.DataType, Null: c.Null}
	})
}

// substitute replaces column i by exprs[i].
func substitute(e Expr, exprs []Expr) Expr {
	return transform(e, func(c *Column) Expr { return exprs[c.Index] })
}

// columnsWithin reports whether e reads only columns in [low, high).
func columnsWithin(e Expr, low, high int) bool {
	ok := true
	walk(e, func(x Expr) {
		if c, is := x.(*Column); is && (c.Index < low || c.Index >= high) {
			ok = false
		}
	})
	return ok
}

// markColumns sets used[i] for every column i that e reads.
func markColumns(e Expr, used []bool) {
	if e == nil {
		return
	}
	walk(e, func(x Expr) {
		if c, ok := x.(*Column); ok {
			used[c.Index] = true
		}
	})
}

// hasColumns reports whether e reads any column.
func hasColumns(e Expr) bool { return !columnsWithin(e, 0, 0) }

// Volatile reports whether a function may give another result each time with
// the same arguments. Calls of it are neither repeated nor moved nor folded.
func Volatile(function string) bool {
	return function == "random" || function == "gen_random_uuid"
}

// IsVolatile reports whether e calls a function that is Volatile.
func IsVolatile(e Expr) bool { return isVolatile(e) }

func isVolatile(e Expr) bool {
	found := false
	walk(e, func(x Expr) {
		if c, ok := x.(*Call); ok && Volatile(c.Func) {
			found = true
		}
	})
	return found
}

// conjuncts splits e at its top-level ANDs. The nil condition has none.
func conjuncts(e Expr) []Expr { return split("and", e, nil) }

// disjuncts splits e at its top-level ORs.
func disjuncts(e Expr) []Expr { return split("or", e, nil) }

func split(op string, e Expr, into []Expr) []Expr {
	if e == nil {
		return into
	}
	if c, ok := e.(*Call); ok && c.Func == op {
		for _, a := range c.Args {
			into = split(op, a, into)
		}
		return into
	}
	return append(into, e)
}

// equalExpr reports whether two expressions are structurally the same. Column
// names are for display and do not count.
func equalExpr(a, b Expr) bool {
	switch a := a.(type) {
	case *Column:
		b, ok := b.(*Column)
		return ok && a.Index == b.Index
	case *Literal:
		b, ok := b.(*Literal)
		return ok && arrow.TypeEqual(a.DataType, b.DataType) && equalValue(a.Value, b.Value)
	case *Call:
		b, ok := b.(*Call)
		return ok && a.Func == b.Func && arrow.TypeEqual(a.DataType, b.DataType) && equalExprs(a.Args, b.Args)
	case *Cast:
		b, ok := b.(*Cast)
		return ok && arrow.TypeEqual(a.DataType, b.DataType) && equalExpr(a.Arg, b.Arg)
	case *Case:
		b, ok := b.(*Case)
		return ok && arrow.TypeEqual(a.DataType, b.DataType) && len(a.Whens) == len(b.Whens) && equalExprs(children(a), children(b))
	case *InList:
		b, ok := b.(*InList)
		if !ok || a.Negate != b.Negate || len(a.List) != len(b.List) || !equalExpr(a.Arg, b.Arg) {
			return false
		}
		for i := range a.List {
			if !equalExpr(a.List[i], b.List[i]) {
				return false
			}
		}
		return true
	case *Param:
		b, ok := b.(*Param)
		return ok && a.Ordinal == b.Ordinal
	}
	return false
}

func equalExprs(a, b []Expr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equalExpr(a[i], b[i]) {
			return false
		}
	}
	return true
}

// equalValue compares literal values; all but []byte are comparable types.
func equalValue(a, b any) bool {
	if x, ok := a.([]byte); ok {
		y, ok := b.([]byte)
		return ok && bytes.Equal(x, y)
	}
	if _, ok := b.([]byte); ok {
		return false
	}
	return a == b
}
