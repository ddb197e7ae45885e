package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// planAggregate lowers an aggregate. Groups that are whole in each fragment, as
// the group columns include those the rows are placed by, are finished there;
// other groups are folded to partial states first, which the coordinator
// combines. Calls without partial states need the rows of a group in one place.
func (p *distributor) planAggregate(n *Aggregate) (*stage, error) {
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	est := s.est.aggregated(n.GroupBy, n.Calls)
	schema := arrow.NewSchema(aggregateFields(s.schema.Fields(), n.GroupBy, n.Calls), nil)
	origin := append([]int(nil), n.GroupBy...)
	for range n.Calls {
		origin = append(origin, -1)
	}
	complete := slices.ContainsFunc(n.Calls, func(c AggCall) bool { return !c.Decomposable() })
	if complete {
		op := &CompleteAggregate{GroupBy: n.GroupBy, Calls: n.Calls, Schema: schema}
		return p.gathered(s, n.GroupBy, []Operator{op}, schema, est, origin), nil
	}
	groups := make([]int, len(n.GroupBy))
	for i := range groups {
		groups[i] = i
	}
	partial := &PartialAggregate{GroupBy: n.GroupBy, Calls: n.Calls, Schema: PartialSchema(s.schema, n.GroupBy, n.Calls)}
	final := &FinalAggregate{GroupBy: groups, Calls: n.Calls, Schema: schema}
	if s.whole(n.GroupBy) {
		return s.inPlace([]Operator{partial, final}, schema, est, origin), nil
	}
	s.push(partial)
	for _, b := range s.producers {
		b.expects(min(b.EstimatedRows, est.rows))
	}
	s.schema = partial.Schema
	kind, keys := MergeExchange, []int(nil)
	if len(groups) > 0 {
		kind, keys = HashRepartitionExchange, groups
	}
	b := p.toCoordinator(s, est, kind, keys)
	b.push(final)
	return s.moved(schema, est, b), nil
}

// planWindow lowers a window: partitions that are whole in each fragment are
// computed there, others where the rows of each come together.
func (p *distributor) planWindow(n *Window) (*stage, error) {
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	schema := arrow.NewSchema(windowFields(s.schema.Fields(), n.Calls), nil)
	op := &WindowOp{PartitionBy: n.PartitionBy, OrderBy: n.OrderBy, Calls: n.Calls, Schema: schema}
	var origin []int
	for i := range s.schema.NumFields() {
		origin = append(origin, i)
	}
	for range n.Calls {
		origin = append(origin, -1)
	}
	return p.gathered(s, n.PartitionBy, []Operator{op}, schema, s.est.windowed(n.Calls), origin), nil
}

// gathered runs operators that need all rows which agree on keys in one
// fragment, bringing them together if they are not.
func (p *distributor) gathered(s *stage, keys []int, ops []Operator, schema *arrow.Schema, est estimate, origin []int) *stage {
	if s.whole(keys) {
		return s.inPlace(ops, schema, est, origin)
	}
	if len(keys) == 0 {
		b := p.toCoordinator(s, s.est, MergeExchange, nil)
		b.push(ops...)
		b.EstimatedRows, b.EstimatedBytes = est.rows, est.bytes
		return s.moved(schema, est, b)
	}
	return p.repartitioned(s, keys).inPlace(ops, schema, est, origin)
}

// whole reports whether all rows that agree on the keys are in one fragment.
func (s *stage) whole(keys []int) bool {
	if len(s.producers) == 1 {
		return len(keys) > 0 || s.coordinator() != nil
	}
	if s.placement == nil || len(s.placement.columns) == 0 {
		return false
	}
	for _, set := range s.placement.columns {
		if !slices.ContainsFunc(set, func(c int) bool { return slices.Contains(keys, c) }) {
			return false
		}
	}
	return true
}

// inPlace runs operators in every fragment. origin says which input columns
// the outputs copy.
func (s *stage) inPlace(ops []Operator, schema *arrow.Schema, est estimate, origin []int) *stage {
	for _, op := range ops {
		s.push(op)
	}
	out := &stage{producers: s.producers, schema: schema, est: est, tablets: s.tablets, placement: s.placement.remapped(origin)}
	out.share()
	return out
}

// repartitioned sends a stage's rows to new fragments next to the same tablets,
// by the hash of keys.
func (p *distributor) repartitioned(s *stage, keys []int) *stage {
	out := &stage{schema: s.schema, est: s.est, producers: make([]*building, len(s.producers)), tablets: make([]catalog.TabletID, len(s.producers))}
	for i := range out.producers {
		out.tablets[i] = s.tablets[i%len(s.tablets)]
		out.producers[i] = p.newFragment(Assignment{Tablet: out.tablets[i]}, 0, 0)
	}
	out.share()
	p.wire(s, out.producers, HashRepartitionExchange, keys, false)
	return out
}

// planUnion lowers a union: the fragments of all branches together, or one on
// the coordinator when a branch is there.
func (p *distributor) planUnion(n *Union) (*stage, error) {
	schema := n.Schema()
	branches := make([]*stage, len(n.Branches))
	estimates := make([]estimate, len(n.Branches))
	var root *building
	for i, b := range n.Branches {
		s, err := p.plan(b)
		if err != nil {
			return nil, err
		}
		s.rename(schema)
		branches[i], estimates[i] = s, s.est
		if c := s.coordinator(); c != nil {
			if root == nil {
				root = c
			} else {
				p.fuse(root, c)
			}
		}
	}
	est := unioned(estimates)
	if root == nil {
		out := &stage{schema: schema, est: est}
		for _, s := range branches {
			out.producers = append(out.producers, s.producers...)
			out.tablets = append(out.tablets, s.tablets...)
		}
		return out, nil
	}
	for _, s := range branches {
		if s.coordinator() == nil {
			p.wire(s, []*building{root}, MergeExchange, nil, false)
		}
	}
	if len(branches) > 1 {
		root.push(&UnionAll{Inputs: len(branches), Schema: schema})
	}
	root.EstimatedRows, root.EstimatedBytes = est.rows, est.bytes
	return branches[0].moved(schema, est, root), nil
}

// rename gives a stage's columns the names and nullability of a schema.
func (s *stage) rename(schema *arrow.Schema) {
	if s.schema.Equal(schema) {
		return
	}
	fields := schema.Fields()
	exprs := make([]Expr, len(fields))
	for i := range fields {
		exprs[i] = columnOf(fields, i)
	}
	s.push(&ProjectOp{Exprs: exprs, Schema: schema})
	s.schema = schema
}
