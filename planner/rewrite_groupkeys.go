package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// reduceGroupKeys groups by those columns only that determine the others, as a
// primary key does the columns of its table and, over joins on keys, those of
// other tables; the others are carried along as any value of the group. Keys
// are then narrow, and equal rows are found by hashing and comparing less.
func reduceGroupKeys(root Node) Node {
	return mapNodes(root, func(n Node) Node {
		a, ok := n.(*Aggregate)
		if !ok || len(a.GroupBy) < 2 {
			return n
		}
		return reducedGroup(a)
	})
}

func reducedGroup(n *Aggregate) Node {
	d := &dependencies{}
	in := d.columns(n.Input)
	if len(d.fds) == 0 {
		return n
	}
	fields := outputFields(n.Input)
	keys := slices.Clone(n.GroupBy)
	for _, g := range dearestFirst(n.GroupBy, fields) {
		if !carried(fields[g].Type) {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(keys), func(k int) bool { return k == g })
		if len(rest) > 0 && d.determined(picks(in, rest), in[g]) {
			keys = rest
		}
	}
	if len(keys) == len(n.GroupBy) {
		return n
	}
	return groupedBy(n, keys, fields)
}

// dearestFirst orders group columns by what comparing them costs: those of
// variable width, then the wider ones; of equal ones the last first.
func dearestFirst(columns []int, fields []arrow.Field) []int {
	out := slices.Clone(columns)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b int) int {
		return int(typeWidth(fields[b].Type) - typeWidth(fields[a].Type))
	})
	return out
}

// carried reports whether ANY_VALUE keeps values of a type.
func carried(dt arrow.DataType) bool {
	switch catalog.PhysicalType(dt).(type) {
	case *arrow.BooleanType, *arrow.StringType, *arrow.BinaryType:
		return true
	case arrow.NestedType:
		return false
	case arrow.FixedWidthDataType:
		return true
	}
	return false
}

// groupedBy is the aggregate with some of its group columns only, and with the
// output that it had.
func groupedBy(n *Aggregate, keys []int, fields []arrow.Field) Node {
	out := &Aggregate{Input: n.Input, GroupBy: keys}
	position := make(map[int]int)
	for i, k := range keys {
		position[k] = i
	}
	for _, g := range n.GroupBy {
		if _, ok := position[g]; !ok {
			position[g] = len(keys) + len(out.Calls)
			out.Calls = append(out.Calls, AggCall{Func: AnyValue, Arg: g, DataType: fields[g].Type, Name: fields[g].Name})
		}
	}
	first := len(keys) + len(out.Calls)
	out.Calls = append(out.Calls, n.Calls...)
	columns := make([]int, 0, len(n.GroupBy)+len(n.Calls))
	for _, g := range n.GroupBy {
		columns = append(columns, position[g])
	}
	for i := range n.Calls {
		columns = append(columns, first+i)
	}
	return selectColumns(out, columns)
}
