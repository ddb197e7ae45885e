package planner

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// stage is the output of a planned subtree: fragments whose outputs together
// are its rows, with no sinks yet.
type stage struct {
	producers []*building
	schema    *arrow.Schema
	est       estimate
	// tablets are where the stage runs: one per producer for scans and what is
	// fused onto them; empty on the coordinator.
	tablets   []catalog.TabletID
	placement *placement // nil: rows are not placed by their values
}

// placement says which rows of a stage come out of which producer.
type placement struct {
	kind    catalog.PartitionKind
	buckets uint32
	// columns are the partition columns in key order. Each is the set of output
	// ordinals that hold it; joins add the ordinals that must be equal.
	columns [][]int
	types   []arrow.DataType
	ranges  []catalog.Tablet // per producer: the bucket or key range
}

// coordinator returns the stage's fragment if that is a single one on the
// coordinator.
func (s *stage) coordinator() *building {
	if len(s.producers) == 1 && s.producers[0].onCoordinator() {
		return s.producers[0]
	}
	return nil
}

// moved is a stage in one new place.
func (s *stage) moved(schema *arrow.Schema, est estimate, b *building) *stage {
	return &stage{producers: []*building{b}, schema: schema, est: est}
}

// push appends an operator to all producers.
func (s *stage) push(op Operator) {
	for _, b := range s.producers {
		b.push(op)
	}
}

// remapped moves the partition columns through a projection: origin[i] is the
// input column that output column i copies, -1 for computed ones.
func (p *placement) remapped(origin []int) *placement {
	if p == nil {
		return nil
	}
	out := *p
	out.columns = make([][]int, len(p.columns))
	for k, set := range p.columns {
		for i, from := range origin {
			if from >= 0 && slices.Contains(set, from) {
				out.columns[k] = append(out.columns[k], i)
			}
		}
		if len(out.columns[k]) == 0 {
			return nil
		}
	}
	return &out
}

// joined is the placement of a join's output when this side's rows stay where
// they are. offset is the position of the side's first column, and pairs are
// output ordinals that the join makes equal.
func (p *placement) joined(offset int, pairs [][2]int) *placement {
	if p == nil {
		return nil
	}
	out := *p
	out.columns = make([][]int, len(p.columns))
	for k, set := range p.columns {
		for _, c := range set {
			out.columns[k] = append(out.columns[k], c+offset)
		}
		for _, pair := range pairs {
			for i, c := range pair {
				if slices.Contains(out.columns[k], c) && !slices.Contains(out.columns[k], pair[1-i]) {
					out.columns[k] = append(out.columns[k], pair[1-i])
				}
			}
		}
	}
	return &out
}

// alignedWith reports whether rows of both sides that agree on the join keys
// come out of producers with the same index.
func (p *placement) alignedWith(q *placement, on []JoinKey) bool {
	if p == nil || q == nil || p.kind != q.kind || p.buckets != q.buckets ||
		len(p.columns) == 0 || len(p.columns) != len(q.columns) || len(p.ranges) != len(q.ranges) {
		return false
	}
	for k := range p.columns {
		if !sameKeyType(p.types[k], q.types[k]) || !pairsUp(p.columns[k], q.columns[k], on) {
			return false
		}
	}
	for i := range p.ranges {
		a, b := &p.ranges[i], &q.ranges[i]
		if a.BucketLow != b.BucketLow || a.BucketHigh != b.BucketHigh ||
			!bytes.Equal(a.KeyLow, b.KeyLow) || !bytes.Equal(a.KeyHigh, b.KeyHigh) {
			return false
		}
	}
	return true
}

func pairsUp(left, right []int, on []JoinKey) bool {
	return slices.ContainsFunc(on, func(k JoinKey) bool {
		return slices.Contains(left, k.Left) && slices.Contains(right, k.Right)
	})
}

// sameKeyType reports whether equal values of two types are represented, and
// so hashed, alike.
func sameKeyType(a, b arrow.DataType) bool {
	a, b = catalog.PhysicalType(a), catalog.PhysicalType(b)
	if a.ID() != b.ID() {
		return false
	}
	switch x := a.(type) {
	case *arrow.Decimal64Type:
		return x.Scale == b.(*arrow.Decimal64Type).Scale
	case *arrow.Decimal128Type:
		return x.Scale == b.(*arrow.Decimal128Type).Scale
	}
	return arrow.TypeEqual(a, b)
}

// together reports whether one worker can run both fragments' scans.
func (p *distributor) together(a, b *building) bool {
	if a.nodes != nil && b.nodes != nil && len(intersectNodes(a.nodes, b.nodes)) == 0 {
		return false
	}
	for _, x := range a.tablets {
		for _, y := range b.tablets {
			if x != y && !p.locator.SameNode(x, y) {
				return false
			}
		}
	}
	return true
}

// fuse appends b's operators to a's and makes a take over b's exchanges.
func (p *distributor) fuse(a, b *building) {
	b.settle()
	a.push(b.Operators...)
	a.OperatorRows = append(a.OperatorRows, b.OperatorRows...)
	if len(a.tablets) == 0 {
		a.Assignment = b.Assignment // a could run anywhere, b may not
	}
	for _, t := range b.tablets {
		if !slices.Contains(a.tablets, t) {
			a.tablets = append(a.tablets, t)
		}
	}
	switch {
	case a.nodes == nil:
		a.nodes = b.nodes
	case b.nodes != nil:
		a.nodes = intersectNodes(a.nodes, b.nodes)
	}
	b.fused = true
	for _, e := range p.edges {
		if e.consumer == b {
			e.consumer = a
		}
	}
}
