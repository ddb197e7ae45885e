package planner

import (
	"math/bits"
	"slices"
)

// leafSet is a set of a region's leaves, by bit.
type leafSet uint64

func (s leafSet) single() bool            { return bits.OnesCount64(uint64(s)) == 1 }
func (s leafSet) first() int              { return bits.TrailingZeros64(uint64(s)) }
func (s leafSet) covers(t leafSet) bool   { return t&^s == 0 }
func (s leafSet) overlaps(t leafSet) bool { return s&t != 0 }

// columnClasses groups global columns that the region makes equal.
type columnClasses struct {
	members [][]int
}

func newColumnClasses() *columnClasses { return &columnClasses{} }

func (c *columnClasses) find(column int) int {
	return slices.IndexFunc(c.members, func(m []int) bool { return slices.Contains(m, column) })
}

// merge makes two columns members of one class.
func (c *columnClasses) merge(a, b int) {
	i, j := c.find(a), c.find(b)
	switch {
	case i < 0 && j < 0:
		c.members = append(c.members, []int{a, b})
	case i < 0:
		c.members[j] = append(c.members[j], a)
	case j < 0:
		c.members[i] = append(c.members[i], b)
	case i != j:
		c.members[min(i, j)] = append(c.members[min(i, j)], c.members[max(i, j)]...)
		c.members = slices.Delete(c.members, max(i, j), max(i, j)+1)
	}
}

// membersWith returns the class of a column, empty if it has none.
func (c *columnClasses) membersWith(column int) []int {
	if i := c.find(column); i >= 0 {
		return c.members[i]
	}
	return nil
}

func (c *columnClasses) all() [][]int { return c.members }

// component is a set of leaves that have been joined already.
type component struct {
	node    Node
	leaves  leafSet
	columns []int // global column of each output
	est     estimate
	pending []Expr // of the last component: conditions left for the top
}

// positions maps global columns to outputs, -1 for those of other components.
func (c *component) positions(columns int) []int {
	at := make([]int, columns)
	for i := range at {
		at[i] = -1
	}
	for i, g := range c.columns {
		at[g] = i
	}
	return at
}

// order joins the leaves. Few leaves that equalities connect are joined in the
// cheapest order; else of all pairs of components that an equality connects, the
// pair with the fewest joined rows comes next. Pairs that are not connected are
// joined only when no connected pair is left, so a cross join appears only where
// the conditions ask for one. conds are checked as soon as their columns have
// come together.
func (r *joinRegion) order(conds []Expr) *component {
	parts, conds := r.search(r.components(), conds)
	for len(parts) > 1 {
		var best *candidate
		for i, a := range parts {
			for j := i + 1; j < len(parts); j++ {
				next := r.candidate(a, parts[j], conds)
				next.i, next.j = i, j
				if best == nil || next.before(best) {
					best = next
				}
			}
		}
		// The component with the earlier leaf stays on the left, so inputs keep
		// their order where it does not matter.
		parts[best.i] = r.join(parts[best.i], parts[best.j], best)
		parts = slices.Delete(parts, best.j, best.j+1)
		conds = best.remaining
	}
	parts[0].pending = conds
	return parts[0]
}

// components are the leaves, not joined yet.
func (r *joinRegion) components() []*component {
	var parts []*component
	for i, l := range r.leaves {
		c := &component{node: l.node, leaves: 1 << i, est: l.est, columns: make([]int, l.width+len(l.extra))}
		for g, column := range r.columns {
			if column.leaf == i {
				c.columns[column.local] = g
			}
		}
		parts = append(parts, c)
	}
	return parts
}

// candidate is a possible next join.
type candidate struct {
	i, j      int
	on        []JoinKey
	residual  []Expr // over global columns
	remaining []Expr
	est       estimate
	input     uint64 // bytes of the inputs
}

// linked ranks how the two inputs are connected: by keys, by other conditions
// or not at all.
func (c *candidate) linked() int {
	switch {
	case len(c.on) > 0:
		return 2
	case len(c.residual) > 0:
		return 1
	}
	return 0
}

func (c *candidate) before(d *candidate) bool {
	if c.linked() != d.linked() {
		return c.linked() > d.linked()
	}
	if c.est.rows != d.est.rows {
		return c.est.rows < d.est.rows
	}
	return c.input < d.input
}

func (r *joinRegion) candidate(a, b *component, conds []Expr) *candidate {
	c := &candidate{input: saturatingAdd(a.est.bytes, b.est.bytes)}
	for _, members := range r.classes.all() {
		left := slices.IndexFunc(a.columns, func(g int) bool { return slices.Contains(members, g) })
		right := slices.IndexFunc(b.columns, func(g int) bool { return slices.Contains(members, g) })
		if left >= 0 && right >= 0 {
			c.on = append(c.on, JoinKey{Left: left, Right: right})
		}
	}
	both := a.leaves | b.leaves
	for _, cond := range conds {
		set := r.leavesOf(cond)
		if both.covers(set) && set.overlaps(a.leaves) && set.overlaps(b.leaves) && !isVolatile(cond) {
			c.residual = append(c.residual, cond)
		} else {
			c.remaining = append(c.remaining, cond)
		}
	}
	c.est = a.est.joined(b.est, c.on, r.restate(c.residual, a, b))
	return c
}

// restate is the conjunction of conditions over the join of two components.
func (r *joinRegion) restate(conds []Expr, a, b *component) Expr {
	if len(conds) == 0 {
		return nil
	}
	joined := &component{columns: append(slices.Clip(a.columns), b.columns...)}
	return remap(And(conds...), joined.positions(len(r.columns)))
}

func (r *joinRegion) join(a, b *component, c *candidate) *component {
	n := &Join{Kind: InnerJoin, Left: a.node, Right: b.node, On: c.on, Residual: r.restate(c.residual, a, b)}
	if c.linked() == 0 {
		n.Kind = CrossJoin
	}
	return &component{
		node: n, leaves: a.leaves | b.leaves, est: c.est,
		columns: append(slices.Clip(a.columns), b.columns...),
	}
}
