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
		schema: arrow.NewSchema(joinFields(n.Kind, left.schema.Fields(), right.schema.Fields()), nil),
		est:    left.est.joinedAs(n.Kind, right.est, n.On, n.Residual),
	}
	l, r := left.coordinator(), right.coordinator()
	switch {
	case l != nil && r != nil:
		return p.gatheredJoin(j), nil
	case l != nil || r != nil:
		return p.joinWithGathered(j)
	case p.colocated(j):
		return p.colocatedJoin(j), nil
	}
	if side, ok := p.broadcastSide(j); ok {
		return p.broadcastJoin(j, side), nil
	}
	if len(n.On) > 0 && j.splits() {
		return p.repartitionJoin(j)
	}
	return p.gatherBoth(j), nil
}

// joinWithGathered joins an input on the coordinator with one on tablets. It
// runs on the coordinator if little has to move there; else the coordinator's
// part of the plan is moved to a tablet's worker, for only the root can stay, and
// the join is one between tablets.
func (p *distributor) joinWithGathered(j *joinPlan) (*stage, error) {
	there, here := j.left, j.right
	if j.left.coordinator() != nil {
		there, here = j.right, j.left
	}
	if there.est.bytes <= max(p.options.BroadcastThreshold, here.est.bytes) || !p.movable(here.producers[0]) {
		return p.gatheredJoin(j), nil
	}
	tablet := there.tablets[0]
	if side, ok := p.broadcastSide(j); ok && side == j.sideOf(here) {
		p.move(here, tablet)
		return p.broadcastJoin(j, side), nil
	}
	if len(j.node.On) > 0 && j.splits() {
		p.move(here, tablet)
		return p.repartitionJoin(j)
	}
	return p.gatheredJoin(j), nil
}

// move moves a stage from the coordinator to a tablet's worker.
func (p *distributor) move(s *stage, tablet catalog.TabletID) {
	p.relocate(s.producers[0], tablet)
	s.tablets = []catalog.TabletID{tablet}
}

// gatherBoth joins on the coordinator with both sides pulled in.
func (p *distributor) gatherBoth(j *joinPlan) *stage {
	b := p.toCoordinator(j.left, j.left.est, MergeExchange, nil)
	j.left = j.left.moved(j.left.schema, j.left.est, b)
	return p.gatheredJoin(j)
}

func (j *joinPlan) sideOf(s *stage) BuildSide {
	if s == j.left {
		return BuildLeft
	}
	return BuildRight
}

// splits reports whether the join may be computed in parts, each over the rows
// of both sides that agree on the keys. A mark over keys that may be NULL has
// to look at all right rows.
func (j *joinPlan) splits() bool {
	if j.node.Kind != MarkJoin {
		return true
	}
	for _, k := range j.node.On {
		if !k.NullSafe && (j.left.schema.Field(k.Left).Nullable || j.right.schema.Field(k.Right).Nullable) {
			return false
		}
	}
	return true
}

// broadcastSide chooses the side to send to all fragments of the other one. A
// side whose rows are kept, or filled in, must not be: each of its rows would
// come out of every fragment.
func (p *distributor) broadcastSide(j *joinPlan) (BuildSide, bool) {
	side := j.smaller()
	switch j.node.Kind {
	case InnerJoin, CrossJoin:
	case RightJoin:
		side = BuildLeft
	case FullJoin:
		return "", false
	default:
		side = BuildRight
	}
	bytes := j.right.est.bytes
	if side == BuildLeft {
		bytes = j.left.est.bytes
	}
	must := len(j.node.On) == 0 || !j.splits()
	return side, must || bytes <= p.options.BroadcastThreshold
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
	if j.node.Kind != InnerJoin {
		return false
	}
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
	if len(l.producers) != len(r.producers) || len(l.producers) > 1 && !j.splits() {
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
	placed := j.placed(BuildLeft)
	if placed == nil {
		placed = j.placed(BuildRight)
	}
	s := &stage{
		producers: j.left.producers, schema: j.schema, tablets: j.left.tablets, placement: placed,
		est: j.plainEstimate(max(j.left.est.bytes, j.right.est.bytes)),
	}
	s.share()
	return s
}

// placed is the placement of the join's output in the fragments of one side.
func (j *joinPlan) placed(side BuildSide) *placement {
	width := j.left.schema.NumFields()
	switch j.node.Kind {
	case InnerJoin, CrossJoin:
		if side == BuildLeft {
			return j.left.placement.joined(0, j.pairs())
		}
		return j.right.placement.joined(width, j.pairs())
	case FullJoin:
	case RightJoin:
		if side == BuildRight {
			return j.right.placement.joined(width, nil)
		}
	default:
		if side == BuildLeft {
			return j.left.placement.joined(0, nil)
		}
	}
	return nil
}

// broadcastJoin sends one side to every fragment of the other one.
func (p *distributor) broadcastJoin(j *joinPlan, side BuildSide) *stage {
	big, small, stays := j.left, j.right, BuildLeft
	if side == BuildLeft {
		big, small, stays = j.right, j.left, BuildRight
	}
	p.wire(small, big.producers, BroadcastExchange, nil, side == BuildLeft)
	big.push(j.operator(Broadcast, j.smaller()))
	s := &stage{
		producers: big.producers, schema: j.schema, tablets: big.tablets,
		est:       j.plainEstimate(saturatingAdd(big.est.bytes, small.est.bytes)),
		placement: j.placed(stays),
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
