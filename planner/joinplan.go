package planner

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// joinPlan is one join being lowered.
type joinPlan struct {
	node        *Join
	left, right *stage
	schema      *arrow.Schema
	est         estimate
}

func (p *distributor) planJoin(n *Join) (*stage, error) {
	left, err := p.plan(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := p.plan(n.Right)
	if err != nil {
		return nil, err
	}
	j := &joinPlan{
		node: n, left: left, right: right,
		schema: arrow.NewSchema(joinFields(left.schema.Fields(), right.schema.Fields()), nil),
		est:    left.est.joined(right.est, n.On, n.Residual),
	}
	switch {
	case left.coordinator() != nil || right.coordinator() != nil:
		return p.gatheredJoin(j), nil
	case p.colocated(j):
		return p.colocatedJoin(j), nil
	case len(n.On) == 0 || min(left.est.bytes, right.est.bytes) <= p.options.BroadcastThreshold:
		return p.broadcastJoin(j), nil
	}
	return p.repartitionJoin(j)
}

// operator is the join itself.
func (j *joinPlan) operator(strategy JoinStrategy, build BuildSide) *HashJoin {
	return &HashJoin{
		Strategy: strategy, Kind: j.node.Kind, On: j.node.On, Residual: j.node.Residual,
		Build: build, Schema: j.schema,
	}
}

// smaller is the side to build the hash table from; the right one in a tie.
func (j *joinPlan) smaller() BuildSide {
	if j.right.est.bytes <= j.left.est.bytes {
		return BuildRight
	}
	return BuildLeft
}

// pairs are the join keys as ordinals of the output.
func (j *joinPlan) pairs() [][2]int {
	width := j.left.schema.NumFields()
	pairs := make([][2]int, len(j.node.On))
	for i, k := range j.node.On {
		pairs[i] = [2]int{k.Left, k.Right + width}
	}
	return pairs
}

// plainEstimate is the join's estimate with the given bytes when only table
// sizes are known, else what the cost model says.
func (j *joinPlan) plainEstimate(bytes uint64) estimate {
	e := j.est
	if j.plain() {
		e.bytes = bytes
	}
	return e
}

// plain reports that nothing but table sizes is known of the join.
func (j *joinPlan) plain() bool {
	return plainJoin(j.left.est, j.right.est, j.node.On, j.node.Residual)
}

// gatheredJoin joins on the coordinator, pulling in the side that is not there.
func (p *distributor) gatheredJoin(j *joinPlan) *stage {
	b, other := j.left.coordinator(), j.right.coordinator()
	switch {
	case b != nil && other != nil:
		p.fuse(b, other)
	case b != nil:
		p.wire(j.right, []*building{b}, MergeExchange, nil, false)
	default:
		// The stack takes the left input first.
		b = other
		p.wire(j.left, []*building{b}, MergeExchange, nil, true)
	}
	b.push(j.operator(Gathered, j.smaller()))
	est := j.plainEstimate(saturatingAdd(j.left.est.bytes, j.right.est.bytes))
	b.EstimatedRows, b.EstimatedBytes = est.rows, est.bytes
	return j.left.moved(j.schema, est, b)
}

// colocated reports whether the join can be made of pairs of fragments, each
// next to the tablets of both.
func (p *distributor) colocated(j *joinPlan) bool {
	l, r := j.left, j.right
	if len(l.producers) != len(r.producers) {
		return false
	}
	if len(l.producers) > 1 && !l.placement.alignedWith(r.placement, j.node.On) {
		return false
	}
	for i := range l.producers {
		if !p.together(l.producers[i], r.producers[i]) {
			return false
		}
	}
	return true
}

// colocatedJoin fuses the fragments pairwise: no rows move.
func (p *distributor) colocatedJoin(j *joinPlan) *stage {
	op := j.operator(Colocated, j.smaller())
	for i, b := range j.left.producers {
		p.fuse(b, j.right.producers[i])
		b.push(op)
	}
	placed := j.left.placement.joined(0, j.pairs())
	if placed == nil {
		placed = j.right.placement.joined(j.left.schema.NumFields(), j.pairs())
	}
	s := &stage{
		producers: j.left.producers, schema: j.schema, tablets: j.left.tablets, placement: placed,
		est: j.plainEstimate(max(j.left.est.bytes, j.right.est.bytes)),
	}
	s.share()
	return s
}

// broadcastJoin sends the smaller side to every fragment of the larger one.
func (p *distributor) broadcastJoin(j *joinPlan) *stage {
	big, small, build, offset := j.left, j.right, BuildRight, 0
	if j.smaller() == BuildLeft {
		big, small, build, offset = j.right, j.left, BuildLeft, j.left.schema.NumFields()
	}
	p.wire(small, big.producers, BroadcastExchange, nil, build == BuildLeft)
	big.push(j.operator(Broadcast, build))
	s := &stage{
		producers: big.producers, schema: j.schema, tablets: big.tablets,
		est:       j.plainEstimate(saturatingAdd(big.est.bytes, small.est.bytes)),
		placement: big.placement.joined(offset, j.pairs()),
	}
	if !j.plain() { // else the large side's own estimates stand
		s.share()
	}
	return s
}

// repartitionJoin sends both sides to new fragments by the hash of their keys.
func (p *distributor) repartitionJoin(j *joinPlan) (*stage, error) {
	l, r := j.left, j.right
	tablets := l.tablets
	if len(r.tablets) > len(l.tablets) {
		tablets = r.tablets
	}
	if len(tablets) == 0 {
		return nil, invalid("a repartitioned join needs an input on tablets")
	}
	width := max(len(l.producers), len(r.producers))
	s := &stage{schema: j.schema, producers: make([]*building, width), tablets: make([]catalog.TabletID, width)}
	for i := range s.producers {
		s.tablets[i] = tablets[i%len(tablets)]
		s.producers[i] = p.newFragment(Assignment{Tablet: s.tablets[i]}, 0, 0)
	}
	s.est = j.plainEstimate(saturatingAdd(l.est.bytes, r.est.bytes))
	s.share()
	leftKeys, rightKeys := make([]int, len(j.node.On)), make([]int, len(j.node.On))
	for i, k := range j.node.On {
		leftKeys[i], rightKeys[i] = k.Left, k.Right
	}
	p.wire(l, s.producers, HashRepartitionExchange, leftKeys, false)
	p.wire(r, s.producers, HashRepartitionExchange, rightKeys, false)
	s.push(j.operator(Repartition, j.smaller()))
	return s, nil
}
