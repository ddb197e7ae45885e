package planner

import (
	"fmt"
	"slices"
)

// joinRows joins rows to so many output columns.
func joinRows(kind JoinKind, width int, left, right []row, on []JoinKey, residual Expr) []row {
	var out []row
	matchedRight := make([]bool, len(right))
	for _, l := range left {
		matches, open := 0, false
		for i, r := range right {
			switch matchPair(kind, l, r, on, residual) {
			case true:
				matches++
				matchedRight[i] = true
				if kind != SemiJoin && kind != AntiJoin && kind != MarkJoin {
					out = append(out, append(slices.Clone(l), r...))
				}
			case nil:
				open = true
			}
		}
		switch kind {
		case SemiJoin:
			if matches > 0 {
				out = append(out, l)
			}
		case AntiJoin:
			if matches == 0 {
				out = append(out, l)
			}
		case MarkJoin:
			var mark any = matches > 0
			if matches == 0 && open {
				mark = nil
			}
			out = append(out, append(slices.Clone(l), mark))
		case LeftJoin, FullJoin, SingleJoin:
			if matches == 0 {
				out = append(out, append(slices.Clone(l), make(row, width-len(l))...))
			}
			if kind == SingleJoin && matches > 1 {
				panic("a single join has several matches")
			}
		}
	}
	if kind == RightJoin || kind == FullJoin {
		for i, r := range right {
			if !matchedRight[i] {
				out = append(out, append(make(row, width-len(r)), r...))
			}
		}
	}
	return out
}

// matchPair is whether two rows match: nil where a mark join cannot tell.
func matchPair(kind JoinKind, l, r row, on []JoinKey, residual Expr) any {
	var result any = true
	for _, k := range on {
		a, b := l[k.Left], r[k.Right]
		switch {
		case k.NullSafe:
			if a != b {
				return false
			}
		case a == nil || b == nil:
			result = nil
		case a != b:
			return false
		}
	}
	if residual != nil && evalExpr(residual, append(slices.Clone(l), r...)) != true {
		return false
	}
	if result == nil && kind != MarkJoin {
		return false
	}
	return result
}

func valuesRows(rows [][]Expr) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		for _, e := range r {
			out[i] = append(out[i], evalExpr(e, nil))
		}
	}
	return out
}

// windowRows computes row_number, and aggregates over the whole partition.
func windowRows(rows []row, by []int, order []SortKey, calls []WindowCall) []row {
	if len(rows) == 0 {
		return nil
	}
	_, groups := groupRows(rows, by)
	var out []row
	for _, g := range groups {
		g = sortRows(g, order, -1)
		for i, r := range g {
			r = slices.Clone(r)
			for _, c := range calls {
				switch c.Func {
				case RowNumber:
					r = append(r, int64(i+1))
				case WindowFunc(Sum):
					r = append(r, fold(g, c.Args[0], add))
				default:
					panic("cannot evaluate " + c.Func)
				}
			}
			out = append(out, r)
		}
	}
	return out
}

// completeRows aggregates in one step.
func completeRows(rows []row, by []int, calls []AggCall) []row {
	keys, groups := groupRows(rows, by)
	var out []row
	for i, g := range groups {
		r := slices.Clone(keys[i])
		for _, c := range calls {
			input := g
			if c.Distinct {
				input = distinctOn(g, c.Arg)
			}
			c.Distinct = false
			one := finalRows(partialRows(input, nil, []AggCall{c}), nil, []AggCall{c})
			r = append(r, one[0]...)
		}
		out = append(out, r)
	}
	return out
}

func distinctOn(rows []row, column int) []row {
	seen := make(map[string]bool)
	var out []row
	for _, r := range rows {
		if key := fmt.Sprint(r[column]); !seen[key] {
			seen[key] = true
			out = append(out, r)
		}
	}
	return out
}

func partialRows(rows []row, by []int, calls []AggCall) []row {
	keys, groups := groupRows(rows, by)
	var out []row
	for i, g := range groups {
		r := slices.Clone(keys[i])
		for _, c := range calls {
			switch c.Func {
			case Count:
				r = append(r, countRows(g, c.Arg))
			case Sum:
				r = append(r, fold(g, c.Arg, add))
			case Avg:
				r = append(r, fold(g, c.Arg, add), countRows(g, c.Arg))
			case AnyValue:
				r = append(r, fold(g, c.Arg, keepFirst))
			case Min:
				r = append(r, fold(g, c.Arg, extreme(-1)))
			case Max:
				r = append(r, fold(g, c.Arg, extreme(1)))
			}
		}
		out = append(out, r)
	}
	return out
}

func finalRows(rows []row, by []int, calls []AggCall) []row {
	keys, groups := groupRows(rows, by)
	var out []row
	for i, g := range groups {
		r := slices.Clone(keys[i])
		at := len(by)
		for _, c := range calls {
			switch c.Func {
			case Count:
				n, _ := fold(g, at, add).(int64)
				r = append(r, n)
			case Sum:
				r = append(r, fold(g, at, add))
			case Avg:
				n, _ := fold(g, at+1, add).(int64)
				r = append(r, average(fold(g, at, add), n))
				at++
			case AnyValue:
				r = append(r, fold(g, at, keepFirst))
			case Min:
				r = append(r, fold(g, at, extreme(-1)))
			case Max:
				r = append(r, fold(g, at, extreme(1)))
			}
			at++
		}
		out = append(out, r)
	}
	return out
}

func keepFirst(a, _ any) any { return a }

// recursiveRows is the rows of a recursion, whose rounds must come to an end.
func recursiveRows(seed []row, distinct bool, step func(working []row) []row) []row {
	seen := make(map[string]bool)
	fresh := func(rows []row) []row {
		var out []row
		for _, r := range rows {
			key := fmt.Sprint(r)
			if !distinct || !seen[key] {
				out = append(out, r)
			}
			seen[key] = true
		}
		return out
	}
	var out []row
	working := fresh(seed)
	for rounds := 0; len(working) > 0; rounds++ {
		if rounds > 100 {
			panic("a recursion does not end")
		}
		out = append(out, working...)
		working = fresh(step(working))
	}
	return out
}
