package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// commonTable is a common table being distributed.
type commonTable struct {
	common *Common
	scans  int
	stage  *stage // what computes it; nil before the first of several scans
}

// planWith makes the common tables known to their scans.
func (p *distributor) planWith(n *With) (*stage, error) {
	counts := make(map[CommonID]int)
	references(n, counts)
	p.commons = make(map[CommonID]*commonTable, len(n.Commons))
	for _, c := range n.Commons {
		p.commons[c.ID] = &commonTable{common: c, scans: counts[c.ID]}
	}
	return p.plan(n.Main)
}

// planCommonScan lowers a scan of a common table. The only scan of one goes on
// in its fragments. Otherwise each scan gets fragments of its own, one next to
// each of those that compute the table, which keep their rows until all scans
// have read them: no scan waits for another.
func (p *distributor) planCommonScan(n *CommonScan) (*stage, error) {
	c := p.commons[n.ID]
	if c == nil {
		return nil, invalid("there is no common table %d", n.ID)
	}
	if c.scans == 1 {
		s, err := p.plan(c.common.Input)
		if err != nil {
			return nil, err
		}
		return p.onlyColumns(s, n.Columns), nil
	}
	if c.stage == nil {
		s, err := p.plan(c.common.Input)
		if err != nil {
			return nil, err
		}
		c.stage = s
	}
	out := &stage{schema: c.stage.schema, est: c.stage.est, placement: c.stage.placement}
	for _, producer := range c.stage.producers {
		b := p.newFragment(producer.Assignment, producer.EstimatedRows, producer.EstimatedBytes)
		p.wire(&stage{producers: []*building{producer}, schema: c.stage.schema}, []*building{b}, SharedExchange, nil, false)
		out.producers = append(out.producers, b)
		if !b.onCoordinator() {
			out.tablets = append(out.tablets, b.Assignment.Tablet)
		}
	}
	return p.onlyColumns(out, n.Columns), nil
}

// onlyColumns projects a stage to some of its columns.
func (p *distributor) onlyColumns(s *stage, columns []int) *stage {
	fields := s.schema.Fields()
	all := len(columns) == len(fields)
	for i, c := range columns {
		all = all && c == i
	}
	if all {
		return s
	}
	exprs := make([]Expr, len(columns))
	for i, c := range columns {
		exprs[i] = columnOf(fields, c)
	}
	before := s.est
	s.est = s.est.projected(exprs)
	s.schema = arrow.NewSchema(picked(fields, columns), nil)
	s.push(&ProjectOp{Exprs: exprs, Schema: s.schema})
	s.rescale(before)
	s.placement = s.placement.remapped(columns)
	return s
}

// picked are some of a list of fields.
func picked(fields []arrow.Field, columns []int) []arrow.Field {
	out := make([]arrow.Field, len(columns))
	for i, c := range columns {
		out[i] = fields[c]
	}
	return out
}

// relocate moves a fragment from the coordinator to a tablet's worker, with
// those on the coordinator that it reads from: a worker pulls from workers only.
func (p *distributor) relocate(b *building, tablet catalog.TabletID) {
	b.Assignment = Assignment{Tablet: tablet}
	for _, e := range p.edges {
		if e.consumer == b && e.producer.onCoordinator() {
			p.relocate(e.producer, tablet)
		}
	}
}

// movable reports whether a fragment on the coordinator could run elsewhere.
// Recursions, and scans of tables that only the coordinator has, cannot.
func (p *distributor) movable(b *building) bool {
	for _, op := range b.Operators {
		switch op := op.(type) {
		case *RecursiveOp:
			return false
		case *TabletScan:
			if op.Table.System {
				return false
			}
		}
	}
	for _, e := range p.edges {
		if e.consumer == b && e.producer.onCoordinator() && !p.movable(e.producer) {
			return false
		}
	}
	return true
}

// planRecursive lowers a recursion onto the coordinator. Subtrees of the step
// that do not depend on the rows of the last round are inputs, which are read
// once; the rest is a program that is run for each round.
func (p *distributor) planRecursive(n *Recursive) (*stage, error) {
	seed, err := p.plan(n.Seed)
	if err != nil {
		return nil, err
	}
	seed.rename(n.Fields)
	est := seed.est.repeated(n.Fields)
	seed = p.gather(seed)
	root := seed.coordinator()
	r := &recursionPlan{distributor: p, node: n, inputs: []*stage{seed}}
	program, schema, err := r.program(n.Step)
	if err != nil {
		return nil, err
	}
	if !schema.Equal(n.Fields) {
		program = append(program, renaming(schema, n.Fields))
	}
	for _, in := range r.inputs[1:] {
		p.fuse(root, in.coordinator())
	}
	root.push(&RecursiveOp{Name: n.Name, Inputs: len(r.inputs) - 1, Step: program, Distinct: n.Distinct, Schema: n.Fields})
	root.EstimatedRows, root.EstimatedBytes = est.rows, est.bytes
	return seed.moved(n.Fields, est, root), nil
}

// recursionPlan lowers the step of one recursion.
type recursionPlan struct {
	*distributor
	node   *Recursive
	inputs []*stage // of the recursion: the seed, then those of the step
}

// program is the operators that compute a subtree of the step, and their
// output.
func (r *recursionPlan) program(n Node) ([]Operator, *arrow.Schema, error) {
	if !readsWorking(n, r.node.ID) {
		return r.input(n)
	}
	switch n := n.(type) {
	case *WorkingScan:
		return []Operator{&StoredSource{Index: 0, Schema: r.node.Fields}}, r.node.Fields, nil
	case *Join:
		return r.join(n)
	case *Union:
		return r.union(n)
	}
	inputs := n.Inputs()
	if len(inputs) != 1 {
		return nil, nil, invalid("%T cannot be part of a recursion's step", n)
	}
	ops, in, err := r.program(inputs[0])
	if err != nil {
		return nil, nil, err
	}
	unary, out, err := unaryOperators(n, in)
	return append(ops, unary...), out, err
}

// input makes a subtree an input of the recursion.
func (r *recursionPlan) input(n Node) ([]Operator, *arrow.Schema, error) {
	s, err := r.plan(n)
	if err != nil {
		return nil, nil, err
	}
	s = r.gather(s)
	r.inputs = append(r.inputs, s)
	return []Operator{&StoredSource{Index: len(r.inputs) - 1, Schema: s.schema}}, s.schema, nil
}

// join puts the side that depends on the last round, the smaller one as a rule,
// into the hash table.
func (r *recursionPlan) join(n *Join) ([]Operator, *arrow.Schema, error) {
	left, l, err := r.program(n.Left)
	if err != nil {
		return nil, nil, err
	}
	right, rs, err := r.program(n.Right)
	if err != nil {
		return nil, nil, err
	}
	build := BuildRight
	if !readsWorking(n.Right, r.node.ID) {
		build = BuildLeft
	}
	schema := arrow.NewSchema(joinFields(n.Kind, l.Fields(), rs.Fields()), nil)
	return append(append(left, right...), &HashJoin{
		Strategy: Gathered, Kind: n.Kind, On: n.On, Residual: n.Residual, Build: build, Schema: schema,
	}), schema, nil
}

func (r *recursionPlan) union(n *Union) ([]Operator, *arrow.Schema, error) {
	schema := n.Schema()
	var program []Operator
	for _, b := range n.Branches {
		ops, in, err := r.program(b)
		if err != nil {
			return nil, nil, err
		}
		program = append(program, ops...)
		if !in.Equal(schema) {
			program = append(program, renaming(in, schema))
		}
	}
	return append(program, &UnionAll{Inputs: len(n.Branches), Schema: schema}), schema, nil
}

// renaming gives columns the names and nullability of another schema.
func renaming(from, to *arrow.Schema) Operator {
	fields := from.Fields()
	exprs := make([]Expr, len(fields))
	for i := range fields {
		exprs[i] = columnOf(fields, i)
	}
	return &ProjectOp{Exprs: exprs, Schema: to}
}

// unaryOperators run a node of one input where all rows of that are.
func unaryOperators(n Node, in *arrow.Schema) ([]Operator, *arrow.Schema, error) {
	switch n := n.(type) {
	case *Filter:
		return []Operator{&FilterOp{Predicate: n.Predicate}}, in, nil
	case *Project:
		schema := arrow.NewSchema(projectFields(n.Exprs, n.Names), nil)
		return []Operator{&ProjectOp{Exprs: n.Exprs, Schema: schema}}, schema, nil
	case *Aggregate:
		schema := arrow.NewSchema(aggregateFields(in.Fields(), n.GroupBy, n.Calls), nil)
		if slices.ContainsFunc(n.Calls, func(c AggCall) bool { return !c.Decomposable() }) {
			return []Operator{&CompleteAggregate{GroupBy: n.GroupBy, Calls: n.Calls, Schema: schema}}, schema, nil
		}
		groups := make([]int, len(n.GroupBy))
		for i := range groups {
			groups[i] = i
		}
		return []Operator{
			&PartialAggregate{GroupBy: n.GroupBy, Calls: n.Calls, Schema: PartialSchema(in, n.GroupBy, n.Calls)},
			&FinalAggregate{GroupBy: groups, Calls: n.Calls, Schema: schema},
		}, schema, nil
	case *Window:
		schema := arrow.NewSchema(windowFields(in.Fields(), n.Calls), nil)
		return []Operator{&WindowOp{PartitionBy: n.PartitionBy, OrderBy: n.OrderBy, Calls: n.Calls, Schema: schema}}, schema, nil
	case *Sort:
		return []Operator{&MergeSort{Keys: n.Keys, Limit: n.Limit}}, in, nil
	case *Limit:
		return []Operator{&LimitOp{Limit: n.Limit, Offset: n.Offset}}, in, nil
	}
	return nil, nil, invalid("%T cannot be part of a recursion's step", n)
}
