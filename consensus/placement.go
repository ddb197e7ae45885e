package consensus

import (
	"cmp"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// defaultReplicas is how many copies a table gets that does not say, if there
// are nodes for them.
const defaultReplicas = 3

// placer chooses nodes for the tablets of new tables: in different zones as far as
// there are some, the ones with the fewest replicas, and among a tablet's nodes the one that comes first in the fewest
// replica lists comes first. Nodes that are silent are chosen where there are not
// enough others, and come last. Its choices depend on its inputs only.
type placer struct {
	nodes []placedNode
}

type placedNode struct {
	id       catalog.NodeID
	zone     string
	silent   int // 1 if nothing is heard of it
	replicas int
	firsts   int
}

// newPlacer counts what the nodes, in any order, already carry.
func newPlacer(nodes []NodeInfo, tables []*catalog.Table, silent func(catalog.NodeID) bool) *placer {
	p := &placer{nodes: make([]placedNode, 0, len(nodes))}
	for _, n := range nodes {
		p.nodes = append(p.nodes, placedNode{id: n.ID, zone: n.Zone, silent: b2i(silent(n.ID))})
	}
	slices.SortFunc(p.nodes, func(a, b placedNode) int { return cmp.Compare(a.id, b.id) })
	for _, t := range tables {
		for i := range t.Tablets {
			p.count(t.Tablets[i].Replicas)
		}
	}
	return p
}

func (p *placer) count(replicas []catalog.Replica) {
	for i, r := range replicas {
		at, ok := slices.BinarySearchFunc(p.nodes, r.Node, func(n placedNode, id catalog.NodeID) int {
			return cmp.Compare(n.id, id)
		})
		if !ok {
			continue
		}
		p.nodes[at].replicas++
		if i == 0 {
			p.nodes[at].firsts++
		}
	}
}

// replicas resolves a requested number of copies against the known nodes. Most of
// them must be on nodes that are heard, or nothing could be written.
func (p *placer) replicas(table string, requested int) (int, *sqlstate.Error) {
	n, err := p.copies(table, requested)
	if err != nil {
		return 0, err
	}
	heard := 0
	for _, node := range p.nodes {
		heard += 1 - node.silent
	}
	if heard <= n/2 {
		return 0, sqlstate.New(sqlstate.CannotConnectNow, "table %s is to have %d replicas but %d of %d workers are out of reach",
			table, n, len(p.nodes)-heard, len(p.nodes)).WithHint("Start the workers again, or ask for fewer replicas.")
	}
	return n, nil
}

// copies is how many a table gets, as far as the number of nodes decides.
func (p *placer) copies(table string, requested int) (int, *sqlstate.Error) {
	switch {
	case len(p.nodes) == 0:
		return 0, sqlstate.New(sqlstate.CannotConnectNow, "no worker has registered yet").
			WithHint("Wait until the workers have started and retry.")
	case requested < 0:
		return 0, sqlstate.New(sqlstate.InvalidParameter, "table %s asks for %d replicas", table, requested)
	case requested == 0 && len(p.nodes) >= defaultReplicas:
		return defaultReplicas, nil
	case requested == 0:
		// Two copies need both nodes for a quorum: less available than one.
		return 1, nil
	case requested > len(p.nodes):
		return 0, sqlstate.New(sqlstate.InvalidParameter,
			"table %s asks for %d replicas but the cluster has %d workers", table, requested, len(p.nodes)).
			WithHint("Ask for fewer replicas, or add workers.")
	}
	return requested, nil
}

// place picks the nodes of one tablet; want is at most the number of nodes.
func (p *placer) place(want int) []catalog.NodeID {
	order := make([]placedNode, len(p.nodes))
	copy(order, p.nodes)
	slices.SortStableFunc(order, func(a, b placedNode) int {
		return cmp.Or(cmp.Compare(a.silent, b.silent), cmp.Compare(a.replicas, b.replicas))
	})
	zones := map[string]int{}
	for i := range want {
		best := i
		for k := i + 1; k < len(order); k++ {
			if order[k].silent == order[best].silent && zones[order[k].zone] < zones[order[best].zone] {
				best = k
			}
		}
		chosen := order[best]
		copy(order[i+1:best+1], order[i:best]) // the others stay in order
		order[i] = chosen
		zones[chosen.zone]++
	}
	order = order[:want]
	slices.SortStableFunc(order, func(a, b placedNode) int {
		return cmp.Or(cmp.Compare(a.silent, b.silent), cmp.Compare(a.firsts, b.firsts), cmp.Compare(a.id, b.id))
	})
	ids := make([]catalog.NodeID, want)
	replicas := make([]catalog.Replica, want)
	for i, n := range order {
		ids[i] = n.id
		replicas[i].Node = n.id
	}
	p.count(replicas)
	return ids
}
