package planner

import (
	"fmt"

	"skein/catalog"
)

// splitDistinct replaces aggregates over distinct values by two levels of plain
// ones, which can be computed from partial states: rows are grouped by the value
// too, then the groups are folded. It applies when all distinct calls are over
// one column and the others can be folded twice.
func splitDistinct(n Node) Node {
	inputs := n.Inputs()
	rebuilt := make([]Node, len(inputs))
	same := true
	for i, in := range inputs {
		rebuilt[i] = splitDistinct(in)
		same = same && rebuilt[i] == in
	}
	if !same {
		n = withInputs(n, rebuilt)
	}
	a, ok := n.(*Aggregate)
	if !ok {
		return n
	}
	if split := twoLevels(a); split != nil {
		return split
	}
	return n
}

// twoLevels is the two-level form of an aggregate, nil if it has none.
func twoLevels(a *Aggregate) Node {
	value := -1
	for i := range a.Calls {
		c := &a.Calls[i]
		if !c.Distinct || repeatable(c.Func) {
			if !refoldable(c) {
				return nil
			}
			continue
		}
		if len(c.Args) > 0 || len(c.OrderBy) > 0 || value >= 0 && value != c.Arg {
			return nil
		}
		switch c.Func {
		case Count, Sum, Avg, StddevPop, StddevSamp, VarPop, VarSamp:
		default:
			return nil
		}
		value = c.Arg
	}
	if value < 0 {
		return nil
	}
	groups := len(a.GroupBy)
	inner := &Aggregate{Input: a.Input, GroupBy: append(append([]int(nil), a.GroupBy...), value)}
	outer := &Aggregate{}
	for g := range groups {
		outer.GroupBy = append(outer.GroupBy, g)
	}
	for _, c := range a.Calls {
		out := AggCall{Func: c.Func, Arg: groups, DataType: c.DataType, Name: c.Name}
		if !c.Distinct || repeatable(c.Func) {
			out.Arg = groups + 1 + len(inner.Calls)
			inner.Calls = append(inner.Calls, AggCall{
				Func: c.Func, Arg: c.Arg, DataType: c.DataType, Name: fmt.Sprintf("__distinct_%d", len(inner.Calls)),
			})
			if c.Func == Count {
				out.Func = Sum
			}
		}
		outer.Calls = append(outer.Calls, out)
	}
	outer.Input = inner
	return zeroCounts(a, outer)
}

// repeatable reports whether folding a value again changes nothing.
func repeatable(f AggFunc) bool {
	switch f {
	case Min, Max, BoolAnd, BoolOr, AnyValue:
		return true
	}
	return false
}

// refoldable reports whether the results over parts of a group can be folded
// to the result over all of it. Sums of decimals keep their type; sums of
// integers could overflow in between, and of floats round in another order.
func refoldable(c *AggCall) bool {
	if len(c.Args) > 0 || len(c.OrderBy) > 0 {
		return false
	}
	return repeatable(c.Func) || c.Func == Count
}

// zeroCounts makes the counts that have become sums counts again: 0 over no
// rows, and never NULL.
func zeroCounts(before, after *Aggregate) Node {
	fields := outputFields(after)
	wanted := outputFields(before)
	exprs, names := make([]Expr, len(fields)), make([]string, len(fields))
	changed := false
	for i := range fields {
		exprs[i], names[i] = columnOf(fields, i), wanted[i].Name
		if fields[i].Nullable && !wanted[i].Nullable {
			exprs[i] = &Call{
				Func: "coalesce", Args: []Expr{exprs[i], &Literal{Value: int64(0), DataType: catalog.BigInt}},
				DataType: catalog.BigInt,
			}
			changed = true
		}
	}
	if !changed {
		return after
	}
	return newProject(after, exprs, names)
}
