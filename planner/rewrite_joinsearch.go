package planner

// maxSearchedLeaves bounds how many leaves that keys connect are ordered by
// exhaustive search: there are up to 2^n sets of n leaves and 3^n/2 ways to make
// one of two others. Larger regions are ordered greedily.
const maxSearchedLeaves = 10

// joinSearch finds the cheapest tree, bushy ones among them, of joins that keys
// connect: dynamic programming over the connected sets of leaves, as in Moerkotte
// and Neumann, "Analysis of Two Existing and One New Dynamic Programming
// Algorithm for the Generation of Optimal Bushy Join Trees without Cross
// Products" (VLDB 2006), there DPsub.
type joinSearch struct {
	region *joinRegion
	conds  []Expr
	leaves []*component // by position, the bits of the sets below
	links  []leafSet    // positions that have members of one class, for each class
	best   []*searched  // by set; nil if the set is not connected
}

// searched is the cheapest way found to join a set of leaves.
type searched struct {
	component *component // without a node and with columns that decide its size only
	cost      float64
	input     uint64  // bytes that the last join reads
	left      leafSet // 0 for a single leaf
}

// search joins those of the parts that keys connect, and returns what remains to
// be joined and to be checked. Groups that are too large remain as they are.
func (r *joinRegion) search(parts []*component, conds []Expr) ([]*component, []Expr) {
	var out []*component
	for _, group := range r.connected(parts) {
		if len(group) < 3 || len(group) > maxSearchedLeaves {
			out = append(out, group...)
			continue
		}
		s := &joinSearch{region: r, conds: conds, leaves: group}
		s.run()
		joined := s.build(leafSet(1)<<len(group) - 1)
		_, conds = partition(conds, func(e Expr) bool { return r.decided(e, joined.leaves) })
		out = append(out, joined)
	}
	return out, conds
}

// decided reports whether joins within a set of leaves have checked a condition.
func (r *joinRegion) decided(e Expr, within leafSet) bool {
	set := r.leavesOf(e)
	return set != 0 && within.covers(set) && !isVolatile(e)
}

// connected groups components that keys connect, each group and all groups in
// the order of their leaves.
func (r *joinRegion) connected(parts []*component) [][]*component {
	group := make([]int, len(parts))
	for i := range group {
		group[i] = i
	}
	for _, set := range r.links(parts) {
		for rest := set; rest != 0; rest &= rest - 1 {
			from, to := group[rest.first()], group[set.first()]
			for i, g := range group {
				if g == max(from, to) {
					group[i] = min(from, to)
				}
			}
		}
	}
	out := make([][]*component, len(parts))
	for i, g := range group {
		out[g] = append(out[g], parts[i])
	}
	return nonEmpty(out)
}

func nonEmpty(groups [][]*component) [][]*component {
	var out [][]*component
	for _, g := range groups {
		if len(g) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// links are, for each class of equal columns, the positions of the parts that
// have a member.
func (r *joinRegion) links(parts []*component) []leafSet {
	var out []leafSet
	for _, members := range r.classes.all() {
		var set leafSet
		for i, part := range parts {
			for _, g := range members {
				if part.leaves.overlaps(1 << r.columns[g].leaf) {
					set |= 1 << i
				}
			}
		}
		out = append(out, set)
	}
	return out
}

// run fills best, smaller sets before those that contain them.
func (s *joinSearch) run() {
	s.links = s.region.links(s.leaves)
	s.best = make([]*searched, 1<<len(s.leaves))
	decisive := s.decisive()
	for set := leafSet(1); int(set) < len(s.best); set++ {
		if set.single() {
			s.best[set] = &searched{component: s.leaves[set.first()].only(decisive)}
			continue
		}
		s.best[set] = s.cheapest(set)
	}
}

// decisive says which global columns the sizes of joins depend on.
func (s *joinSearch) decisive() []bool {
	out := make([]bool, len(s.region.columns))
	for _, members := range s.region.classes.all() {
		for _, g := range members {
			out[g] = true
		}
	}
	for _, cond := range s.conds {
		walk(cond, func(e Expr) {
			if c, ok := e.(*Column); ok {
				out[c.Index] = true
			}
		})
	}
	return out
}

// only is the component without its node and columns that are not kept.
func (c *component) only(keep []bool) *component {
	out := &component{leaves: c.leaves, est: c.est}
	out.est.columns = nil
	for i, g := range c.columns {
		if keep[g] {
			out.columns = append(out.columns, g)
			out.est.columns = append(out.est.columns, c.est.columns[i])
		}
	}
	return out
}

// cheapest is the best way to join a set, nil if it is not connected. How many
// rows a set has does not depend on the way. Of equal costs, large inputs come
// last: what is joined before may turn out to drop more than was expected.
func (s *joinSearch) cheapest(set leafSet) *searched {
	var out *searched
	lowest := set & -set // stays on the left, so each pair comes once
	rest := set &^ lowest
	for part := leafSet(0); part != rest; part = (part - rest) & rest {
		left, right := part|lowest, rest&^part
		a, b := s.best[left], s.best[right]
		if a == nil || b == nil || !s.linked(left, right) {
			continue
		}
		if out == nil {
			out = &searched{component: s.joined(a.component, b.component), cost: -1}
		}
		cost := a.cost + b.cost + joinCost(a.component.est, b.component.est, out.component.est)
		input := saturatingAdd(a.component.est.bytes, b.component.est.bytes)
		if out.cost < 0 || cost < out.cost || cost == out.cost && input > out.input {
			out.cost, out.input, out.left = cost, input, left
		}
	}
	return out
}

func (s *joinSearch) linked(left, right leafSet) bool {
	for _, l := range s.links {
		if l.overlaps(left) && l.overlaps(right) {
			return true
		}
	}
	return false
}

// joined is the join of two components, without a node.
func (s *joinSearch) joined(a, b *component) *component {
	next := s.region.candidate(a, b, s.conds)
	return &component{
		leaves: a.leaves | b.leaves, est: next.est,
		columns: append(append(make([]int, 0, len(a.columns)+len(b.columns)), a.columns...), b.columns...),
	}
}

// build makes the tree that was found for a set. Inputs stay in the order of
// their first leaves.
func (s *joinSearch) build(set leafSet) *component {
	if set.single() {
		return s.leaves[set.first()]
	}
	left := s.best[set].left
	a, b := s.build(left), s.build(set&^left)
	return s.region.join(a, b, s.region.candidate(a, b, s.conds))
}

// Work per row of a hash join, relative to producing one.
const (
	probeRowCost = 0.5
	buildRowCost = 2
)

// joinCost is the work of one join: the rows of its smaller input go into a hash
// table, those of the other are looked up, and its output is written. Looking
// rows up is cheap, for runtime filters drop most that have no match early.
func joinCost(left, right, out estimate) float64 {
	build, probe := left, right
	if right.bytes <= left.bytes {
		build, probe = right, left
	}
	return buildRowCost*float64(build.rows) + probeRowCost*float64(probe.rows) + float64(out.rows)
}
