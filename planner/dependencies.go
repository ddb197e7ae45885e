package planner

import "slices"

// dependencies knows which columns in a subtree determine others. Columns are
// numbered as they come to be; a number is the same wherever the column is
// passed on, and columns that a join makes equal share one.
type dependencies struct {
	same []int // of a number: a smaller one of the same values, or itself
	fds  []dependency
}

// dependency says that rows which agree on from agree on to.
type dependency struct {
	from, to []int
	// notNull says that from is never NULL in its table: rows that an outer join
	// fills in with NULLs then agree with no others.
	notNull bool
}

func (d *dependencies) fresh() int {
	d.same = append(d.same, len(d.same))
	return len(d.same) - 1
}

func (d *dependencies) freshColumns(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = d.fresh()
	}
	return out
}

func (d *dependencies) find(c int) int {
	for d.same[c] != c {
		c = d.same[c]
	}
	return c
}

func (d *dependencies) equate(a, b int) {
	a, b = d.find(a), d.find(b)
	d.same[max(a, b)] = min(a, b)
}

// columns numbers the outputs of a subtree and notes what determines them.
func (d *dependencies) columns(n Node) []int {
	switch n := n.(type) {
	case *Scan:
		return d.scan(n)
	case *Filter, *Sort, *Limit:
		return d.columns(n.Inputs()[0])
	case *Window:
		return append(d.columns(n.Input), d.freshColumns(len(n.Calls))...)
	case *Project:
		return d.project(n)
	case *Aggregate:
		in := d.columns(n.Input)
		out := picks(in, n.GroupBy)
		calls := d.freshColumns(len(n.Calls))
		if len(n.GroupBy) > 0 {
			d.fds = append(d.fds, dependency{from: slices.Clone(out), to: calls})
		}
		return append(out, calls...)
	case *Join:
		return d.join(n)
	}
	return d.freshColumns(len(outputFields(n)))
}

func picks(list, at []int) []int {
	out := make([]int, len(at))
	for i, a := range at {
		out[i] = list[a]
	}
	return out
}

func (d *dependencies) scan(n *Scan) []int {
	out := d.freshColumns(len(n.Projection))
	var key []int
	for _, ordinal := range n.Table.PrimaryKey {
		at := slices.Index(n.Projection, ordinal)
		if at < 0 {
			return out
		}
		key = append(key, out[at])
	}
	if len(key) > 0 {
		d.fds = append(d.fds, dependency{from: key, to: out, notNull: true})
	}
	return out
}

func (d *dependencies) project(n *Project) []int {
	in := d.columns(n.Input)
	out := make([]int, len(n.Exprs))
	for i, e := range n.Exprs {
		if c, ok := e.(*Column); ok {
			out[i] = in[c.Index]
			continue
		}
		out[i] = d.fresh()
		var from []int
		walk(e, func(x Expr) {
			if c, ok := x.(*Column); ok {
				from = append(from, in[c.Index])
			}
		})
		if len(from) > 0 && !isVolatile(e) {
			d.fds = append(d.fds, dependency{from: from, to: []int{out[i]}})
		}
	}
	return out
}

func (d *dependencies) join(n *Join) []int {
	left := d.side(n.Left, n.Kind == RightJoin || n.Kind == FullJoin)
	right := d.side(n.Right, n.Kind == LeftJoin || n.Kind == FullJoin || n.Kind == SingleJoin)
	switch n.Kind {
	case SemiJoin, AntiJoin:
		return left
	case MarkJoin:
		return append(left, d.fresh())
	case InnerJoin:
		for _, k := range n.On {
			d.equate(left[k.Left], right[k.Right])
		}
	}
	return append(slices.Clip(left), right...)
}

// side numbers an input of a join, whose columns may be filled in with NULLs.
func (d *dependencies) side(n Node, filledIn bool) []int {
	before := len(d.fds)
	out := d.columns(n)
	if filledIn {
		d.fds = append(d.fds[:before], slices.DeleteFunc(d.fds[before:], func(f dependency) bool { return !f.notNull })...)
	}
	return out
}

// determined reports whether rows that agree on the columns from agree on
// column to.
func (d *dependencies) determined(from []int, to int) bool {
	known := make([]bool, len(d.same))
	for _, c := range from {
		known[d.find(c)] = true
	}
	knows := func(c int) bool { return known[d.find(c)] }
	for more := true; more && !knows(to); {
		more = false
		for _, f := range d.fds {
			if slices.ContainsFunc(f.from, func(c int) bool { return !knows(c) }) {
				continue
			}
			for _, c := range f.to {
				more = more || !knows(c)
				known[d.find(c)] = true
			}
		}
	}
	return knows(to)
}
