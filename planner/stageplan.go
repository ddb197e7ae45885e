package planner

import (
	"math"

	"skein/catalog"
)

func (p *distributor) planScan(n *Scan) (*stage, error) {
	if n.Table.System {
		return p.planSystemScan(n)
	}
	tablets, partitioning, err := scanTablets(n, p.bind, p.locator)
	if err != nil {
		return nil, err
	}
	stats, err := p.metadata.TableStats(n.Table)
	if err != nil {
		return nil, err
	}
	s := &stage{schema: n.Schema(), est: scanEstimate(n.Table, n.Projection, stats).filtered(n.Filter)}
	count := uint64(len(tablets))
	for i := range tablets {
		t := &tablets[i]
		b := p.newFragment(Assignment{Tablet: t.ID}, ceilDiv(s.est.rows, count), ceilDiv(s.est.bytes, count),
			&TabletScan{Table: n.Table, Tablet: t.ID, Projection: n.Projection, Filter: n.Filter})
		b.tablets = []catalog.TabletID{t.ID}
		if len(t.Replicas) > 0 {
			b.nodes = replicaNodes(t)
		}
		s.producers = append(s.producers, b)
		s.tablets = append(s.tablets, t.ID)
	}
	s.placement = scanPlacement(n, tablets, partitioning)
	return s, nil
}

// planSystemScan reads a table that only the coordinator has, as tablet 0.
func (p *distributor) planSystemScan(n *Scan) (*stage, error) {
	stats, err := p.metadata.TableStats(n.Table)
	if err != nil {
		return nil, err
	}
	est := scanEstimate(n.Table, n.Projection, stats).filtered(n.Filter)
	b := p.newFragment(Coordinator, est.rows, est.bytes,
		&TabletScan{Table: n.Table, Projection: n.Projection, Filter: n.Filter})
	return &stage{producers: []*building{b}, schema: n.Schema(), est: est}, nil
}

// scanPlacement is nil when a partition column is not part of the output.
func scanPlacement(n *Scan, tablets []catalog.Tablet, partitioning catalog.Partitioning) *placement {
	if len(partitioning.Columns) == 0 {
		return nil
	}
	out := &placement{kind: partitioning.Kind, buckets: partitioning.Buckets, ranges: tablets}
	for _, ordinal := range partitioning.Columns {
		var set []int
		for i, c := range n.Projection {
			if c == ordinal {
				set = append(set, i)
			}
		}
		if len(set) == 0 {
			return nil
		}
		out.columns = append(out.columns, set)
		out.types = append(out.types, n.Table.Columns[ordinal].Type)
	}
	return out
}

func (p *distributor) planValues(n *Values) *stage {
	est := valuesEstimate(n)
	b := p.newFragment(Coordinator, est.rows, est.bytes, &ValuesSource{Schema: n.Fields, Rows: n.Rows})
	return &stage{producers: []*building{b}, schema: n.Fields, est: est}
}

func (p *distributor) planFilter(n *Filter) (*stage, error) {
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	before := s.est
	s.est = s.est.filtered(n.Predicate)
	s.push(&FilterOp{Predicate: n.Predicate})
	s.rescale(before)
	return s, nil
}

func (p *distributor) planProject(n *Project) (*stage, error) {
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	before := s.est
	s.est = s.est.projected(n.Exprs)
	s.schema = n.Schema()
	s.push(&ProjectOp{Exprs: n.Exprs, Schema: s.schema})
	s.rescale(before)
	origin := make([]int, len(n.Exprs))
	for i, e := range n.Exprs {
		origin[i] = -1
		if c, ok := e.(*Column); ok {
			origin[i] = c.Index
		}
	}
	s.placement = s.placement.remapped(origin)
	return s, nil
}

// rescale brings the producers' estimates in line with a change of the
// stage's by an operator fused onto them.
func (s *stage) rescale(before estimate) {
	for _, b := range s.producers {
		b.EstimatedRows = rescaled(b.EstimatedRows, before.rows, s.est.rows)
		b.EstimatedBytes = rescaled(b.EstimatedBytes, before.bytes, s.est.bytes)
	}
}

// rescaled changes n as from changes to to, rounding up.
func rescaled(n, from, to uint64) uint64 {
	if from == to || from == 0 {
		return n
	}
	return toCount(math.Ceil(float64(n) * (float64(to) / float64(from))))
}

// share spreads the stage's estimate evenly over its producers.
func (s *stage) share() {
	count := uint64(len(s.producers))
	for _, b := range s.producers {
		b.EstimatedRows, b.EstimatedBytes = ceilDiv(s.est.rows, count), ceilDiv(s.est.bytes, count)
	}
}

func (p *distributor) planSort(n *Sort) (*stage, error) {
	if n.Limit >= 0 {
		return p.planTopK(n)
	}
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	// Producers sort, also what they read from exchanges themselves.
	local := &MergeSort{Keys: n.Keys, Limit: n.Limit}
	final := &MergeSort{Keys: n.Keys, Limit: n.Limit, Sorted: s.coordinator() == nil}
	return p.inTwoHalves(s, s.est.limited(n.Limit, 0), local, final), nil
}

func (p *distributor) planLimit(n *Limit) (*stage, error) {
	s, err := p.plan(n.Input)
	if err != nil {
		return nil, err
	}
	est := s.est.limited(n.Limit, n.Offset)
	// Any producer may hold all the skipped rows, so only the coordinator skips.
	var local Operator
	if reach := addLimit(n.Limit, n.Offset); reach >= 0 {
		local = &LimitOp{Limit: reach}
	}
	return p.inTwoHalves(s, est, local, &LimitOp{Limit: n.Limit, Offset: n.Offset}), nil
}

// inTwoHalves runs local on every producer and final over their merged
// outputs; a stage on the coordinator only needs final.
func (p *distributor) inTwoHalves(s *stage, est estimate, local, final Operator) *stage {
	if b := s.coordinator(); b != nil {
		b.push(final)
		b.expects(est.rows)
		return s.moved(s.schema, est, b)
	}
	if local != nil {
		s.push(local)
		for _, b := range s.producers {
			b.expects(min(b.EstimatedRows, est.rows))
		}
	}
	b := p.toCoordinator(s, est, MergeExchange, nil)
	b.push(final)
	return s.moved(s.schema, est, b)
}
