package planner

import (
	"math"
	"slices"
)

// maxRefilled is the largest k of a distributed top-k with refill, whose
// coordinator keeps the candidates; above it, sorted streams are merged.
const maxRefilled = 1 << 20

// planTopK plans a sort with a limit. Rows that come straight from a table's
// tablets carry their identity along, so that ties rank by tablet and row id.
func (p *distributor) planTopK(n *Sort) (*stage, error) {
	in, known := identified(n.Input)
	s, err := p.plan(in)
	if err != nil {
		return nil, err
	}
	est := s.est.limited(n.Limit, 0)
	top := &TopK{K: n.Limit, Keys: n.Keys}
	if known {
		last := in.Schema().NumFields() - 1
		top.Ties = []SortKey{{Column: last - 1}, {Column: last}}
	}
	switch {
	case s.coordinator() != nil:
		s = p.inTwoHalves(s, est, top, top)
	case n.Limit > maxRefilled:
		s = p.inTwoHalves(s, est, top, &MergeSort{Keys: top.order(), Limit: n.Limit, Sorted: true})
	default:
		top.First = firstPortion(n.Limit, len(s.producers))
		final := *top
		final.Refill = true
		s = p.inTwoHalves(s, est, top, &final)
	}
	if known {
		before, exprs := s.est, leading(n)
		s.est, s.schema = s.est.projected(exprs), n.Schema()
		s.push(&ProjectOp{Exprs: exprs, Schema: s.schema})
		s.rescale(before)
	}
	return s, nil
}

// order is all that the operator was told to order by.
func (t *TopK) order() []SortKey { return slices.Concat(t.Keys, t.Ties) }

// firstPortion is how many rows each of several producers sends unasked: its
// share of k if winners are spread evenly, and four standard deviations, so that
// few are asked again.
func firstPortion(k int64, producers int) int64 {
	if producers <= 1 {
		return k
	}
	share := float64(k) / float64(producers)
	return min(k, int64(math.Ceil(share+4*math.Sqrt(share)))+32)
}

// leading are the columns of a node's output as expressions.
func leading(n Node) []Expr {
	schema := n.Schema()
	exprs := make([]Expr, schema.NumFields())
	for i := range exprs {
		exprs[i] = ColumnOf(schema, i)
	}
	return exprs
}

// identified appends the tablet and row id of each row to a tree that passes the
// rows of one stored table on; it returns other trees as they are, and false.
func identified(n Node) (Node, bool) {
	switch n := n.(type) {
	case *Scan:
		if n.Table.System {
			return n, false
		}
		scan := *n
		scan.Projection = append(slices.Clone(n.Projection), TabletColumn, RowIDColumn)
		return &scan, true
	case *Filter:
		in, ok := identified(n.Input)
		return &Filter{Input: in, Predicate: n.Predicate}, ok
	case *Project:
		in, ok := identified(n.Input)
		if !ok {
			return n, false
		}
		last := in.Schema().NumFields() - 1
		exprs := append(slices.Clone(n.Exprs), ColumnOf(in.Schema(), last-1), ColumnOf(in.Schema(), last))
		return &Project{Input: in, Exprs: exprs, Names: append(slices.Clone(n.Names), TabletName, RowIDName)}, true
	}
	return n, false
}
