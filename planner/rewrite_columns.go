package planner

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// pruneColumns drops the columns that nothing above reads: scans read fewer,
// projections and aggregates compute fewer, and joins and sorts are given only
// what they or their consumers need.
func pruneColumns(root Node) Node {
	if w, ok := root.(*With); ok {
		return pruneCommons(w)
	}
	need := make([]bool, len(outputFields(root)))
	if len(need) == 0 {
		return root
	}
	for i := range need {
		need[i] = true
	}
	n, mapping := prune(root, need)
	return trim(n, mapping, need)
}

// prune returns a node with at least the needed columns of n, in their order,
// and where each of n's columns went, -1 for dropped ones.
func prune(n Node, need []bool) (Node, []int) {
	switch n := n.(type) {
	case *Scan:
		return pruneScan(n, need)
	case *Filter:
		below := append([]bool(nil), need...)
		markColumns(n.Predicate, below)
		in, mapping := prune(n.Input, below)
		return &Filter{Input: in, Predicate: remap(n.Predicate, mapping)}, mapping
	case *Project:
		return pruneProject(n, need)
	case *Aggregate:
		return pruneAggregate(n, need)
	case *Join:
		return pruneJoin(n, need)
	case *Union:
		return pruneUnion(n, need)
	case *Window:
		return pruneWindow(n, need)
	case *Sort:
		return pruneSort(n, need)
	case *Limit:
		in, mapping := prune(n.Input, need)
		return &Limit{Input: in, Limit: n.Limit, Offset: n.Offset}, mapping
	case *CommonScan:
		return pruneCommonScan(n, need)
	}
	if r, ok := n.(*Recursive); ok { // every round reads what the one before computed
		n = withInputs(r, []Node{pruneColumns(r.Seed), pruneColumns(r.Step)})
	}
	mapping := make([]int, len(need))
	for i := range mapping {
		mapping[i] = i
	}
	return n, mapping
}

// trim projects away the columns that came along without being needed.
func trim(n Node, mapping []int, need []bool) Node {
	var columns []int
	for i, needed := range need {
		if needed {
			columns = append(columns, mapping[i])
		}
	}
	if len(columns) == 0 {
		return n // a row count is all that is wanted
	}
	return selectColumns(n, columns)
}

// trimmed prunes and trims an input, and says where its columns went.
func trimmed(n Node, need []bool) (Node, []int) {
	in, mapping := prune(n, need)
	out := trim(in, mapping, need)
	if len(outputFields(out)) == len(outputFields(in)) {
		return out, mapping
	}
	return out, densely(need)
}

// densely numbers the kept columns, -1 for others.
func densely(keep []bool) []int {
	mapping := make([]int, len(keep))
	next := 0
	for i, k := range keep {
		mapping[i] = -1
		if k {
			mapping[i] = next
			next++
		}
	}
	return mapping
}

func pruneScan(n *Scan, need []bool) (Node, []int) {
	keep := append([]bool(nil), need...)
	markColumns(n.Filter, keep)
	if !anyOf(keep) && len(keep) > 0 {
		keep[narrowest(outputFields(n))] = true // rows cannot be counted without a column
	}
	mapping := densely(keep)
	out := &Scan{Table: n.Table, Alias: n.Alias, Projection: make([]int, 0, len(n.Projection)), Filter: remap(n.Filter, mapping)}
	for i, k := range keep {
		if k {
			out.Projection = append(out.Projection, n.Projection[i])
		}
	}
	return out, mapping
}

// narrowest is the first column of the least width.
func narrowest(fields []arrow.Field) int {
	best := 0
	for i, f := range fields {
		if typeWidth(f.Type) < typeWidth(fields[best].Type) {
			best = i
		}
	}
	return best
}

func anyOf(set []bool) bool {
	for _, b := range set {
		if b {
			return true
		}
	}
	return false
}

func pruneProject(n *Project, need []bool) (Node, []int) {
	below := make([]bool, len(outputFields(n.Input)))
	for i, e := range n.Exprs {
		if need[i] {
			markColumns(e, below)
		}
	}
	in, moved := prune(n.Input, below)
	mapping := densely(need)
	if !anyOf(need) {
		return in, mapping
	}
	var exprs []Expr
	var names []string
	for i, e := range n.Exprs {
		if need[i] {
			exprs, names = append(exprs, remap(e, moved)), append(names, n.Names[i])
		}
	}
	return newProject(in, exprs, names), mapping
}

// pruneAggregate keeps all groups and, so that there is a column, one call of
// an aggregate that has no groups.
func pruneAggregate(n *Aggregate, need []bool) (Node, []int) {
	keep := append([]bool(nil), need...)
	below := make([]bool, len(outputFields(n.Input)))
	for i, g := range n.GroupBy {
		keep[i] = true
		below[g] = true
	}
	if !anyOf(keep) && len(keep) > 0 {
		keep[0] = true
	}
	var calls []AggCall
	for i, c := range n.Calls {
		if !keep[len(n.GroupBy)+i] {
			continue
		}
		calls = append(calls, c)
		for _, column := range c.columns() {
			below[column] = true
		}
	}
	in, moved := prune(n.Input, below)
	for i := range calls {
		calls[i] = calls[i].remapped(moved)
	}
	groups := make([]int, len(n.GroupBy))
	for i, g := range n.GroupBy {
		groups[i] = moved[g]
	}
	return &Aggregate{Input: in, GroupBy: groups, Calls: calls}, densely(keep)
}

func pruneJoin(n *Join, need []bool) (Node, []int) {
	width := len(outputFields(n.Left))
	keep := make([]bool, width+len(outputFields(n.Right)))
	pairs := n.Kind != SemiJoin && n.Kind != AntiJoin && n.Kind != MarkJoin
	if pairs {
		copy(keep, need)
	} else {
		copy(keep, need[:width])
	}
	markColumns(n.Residual, keep)
	for _, k := range n.On {
		keep[k.Left], keep[width+k.Right] = true, true
	}
	left, fromLeft := trimmed(n.Left, keep[:width])
	right, fromRight := trimmed(n.Right, keep[width:])
	shifted := len(outputFields(left))
	mapping := append([]int(nil), fromLeft...)
	for _, m := range fromRight {
		if m >= 0 {
			m += shifted
		}
		mapping = append(mapping, m)
	}
	on := make([]JoinKey, len(n.On))
	for i, k := range n.On {
		on[i] = JoinKey{Left: fromLeft[k.Left], Right: fromRight[k.Right], NullSafe: k.NullSafe}
	}
	out := &Join{Kind: n.Kind, Left: left, Right: right, On: on, Residual: remap(n.Residual, mapping)}
	switch {
	case n.Kind == MarkJoin:
		mapping = append(mapping[:width:width], shifted)
	case !pairs:
		mapping = mapping[:width]
	}
	return out, mapping
}

func pruneSort(n *Sort, need []bool) (Node, []int) {
	keep := append([]bool(nil), need...)
	for _, k := range n.Keys {
		keep[k.Column] = true
	}
	in, mapping := trimmed(n.Input, keep)
	keys := make([]SortKey, len(n.Keys))
	for i, k := range n.Keys {
		keys[i] = SortKey{Column: mapping[k.Column], Descending: k.Descending, NullsFirst: k.NullsFirst}
	}
	return &Sort{Input: in, Keys: keys, Limit: n.Limit}, mapping
}

// pruneUnion gives all branches the needed columns, and just these.
func pruneUnion(n *Union, need []bool) (Node, []int) {
	if !anyOf(need) && len(need) > 0 {
		need = append([]bool(nil), need...)
		need[0] = true
	}
	branches := make([]Node, len(n.Branches))
	for i, b := range n.Branches {
		in, mapping := prune(b, need)
		branches[i] = trim(in, mapping, need)
	}
	return &Union{Branches: branches}, densely(need)
}

// pruneWindow drops the calls that nobody reads, and the window with the last.
func pruneWindow(n *Window, need []bool) (Node, []int) {
	width := len(outputFields(n.Input))
	below := append([]bool(nil), need[:width]...)
	var calls []WindowCall
	for i, c := range n.Calls {
		if need[width+i] {
			calls = append(calls, c)
		}
	}
	if len(calls) == 0 {
		in, mapping := prune(n.Input, below)
		for range n.Calls {
			mapping = append(mapping, -1)
		}
		return in, mapping
	}
	for _, c := range n.PartitionBy {
		below[c] = true
	}
	for _, k := range n.OrderBy {
		below[k.Column] = true
	}
	for _, c := range calls {
		for _, a := range c.Args {
			below[a] = true
		}
	}
	in, mapping := trimmed(n.Input, below)
	for i := range calls {
		calls[i].Args = remapColumns(calls[i].Args, mapping)
	}
	out := &Window{Input: in, PartitionBy: remapColumns(n.PartitionBy, mapping), OrderBy: remapKeys(n.OrderBy, mapping), Calls: calls}
	at := len(outputFields(in))
	mapping = append([]int(nil), mapping...)
	for i := range n.Calls {
		if need[width+i] {
			mapping = append(mapping, at)
			at++
		} else {
			mapping = append(mapping, -1)
		}
	}
	return out, mapping
}

// columns are the input columns that a call reads, with repetitions.
func (c *AggCall) columns() []int {
	var out []int
	if c.Arg >= 0 {
		out = append(out, c.Arg)
	}
	out = append(out, c.Args...)
	for _, k := range c.OrderBy {
		out = append(out, k.Column)
	}
	return out
}

// remapped is the call over moved columns.
func (c AggCall) remapped(mapping []int) AggCall {
	if c.Arg >= 0 {
		c.Arg = mapping[c.Arg]
	}
	c.Args = remapColumns(c.Args, mapping)
	c.OrderBy = remapKeys(c.OrderBy, mapping)
	return c
}

func remapColumns(columns, mapping []int) []int {
	if columns == nil {
		return nil
	}
	out := make([]int, len(columns))
	for i, c := range columns {
		out[i] = mapping[c]
	}
	return out
}

func remapKeys(keys []SortKey, mapping []int) []SortKey {
	if keys == nil {
		return nil
	}
	out := make([]SortKey, len(keys))
	for i, k := range keys {
		out[i] = SortKey{Column: mapping[k.Column], Descending: k.Descending, NullsFirst: k.NullsFirst}
	}
	return out
}
