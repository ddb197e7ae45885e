package planner

import (
	"cmp"
	"slices"

	"skein/catalog"
)

// Root returns the one fragment without an outgoing exchange, nil if there is
// none.
func (p *Plan) Root() *Fragment {
	produces := make([]bool, len(p.Fragments))
	for _, x := range p.Exchanges {
		produces[x.Producer] = true
	}
	for i, f := range p.Fragments {
		if !produces[i] {
			return f
		}
	}
	return nil
}

// Fragment returns a fragment by id, nil if there is none.
func (p *Plan) Fragment(id FragmentID) *Fragment {
	if int(id) >= len(p.Fragments) {
		return nil
	}
	return p.Fragments[id]
}

// ExchangesFrom returns the exchanges that a fragment produces, by id.
func (p *Plan) ExchangesFrom(producer FragmentID) []*Exchange {
	var out []*Exchange
	for _, x := range p.Exchanges {
		if x.Producer == producer {
			out = append(out, x)
		}
	}
	return out
}

// ExchangesInto returns the exchanges that a fragment consumes, by producer.
func (p *Plan) ExchangesInto(consumer FragmentID) []*Exchange {
	var out []*Exchange
	for _, x := range p.Exchanges {
		if x.Consumer == consumer {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b *Exchange) int { return cmp.Compare(a.Producer, b.Producer) })
	return out
}

// Tablets returns the tablets that the fragment scans, without repeats. They
// share a worker, and a worker that runs the fragment must host all of them.
func (f *Fragment) Tablets() []catalog.TabletID {
	var ids []catalog.TabletID
	for _, op := range f.Operators {
		if s, ok := op.(*TabletScan); ok && !s.Table.System && !slices.Contains(ids, s.Tablet) {
			ids = append(ids, s.Tablet)
		}
	}
	return ids
}
