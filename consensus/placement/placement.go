// Package placement decides which replicas and leaderships should be elsewhere.
// It computes and does no I/O, knows no clocks and no random numbers: the same
// description of a cluster always gives the same plan.
//
// It may import catalog only. Who asks it, how the description is gathered and how
// a plan is carried out is the matter of package consensus.
//
// # Rules
//
// Replicas leave nodes that do not keep theirs. Replicas of one tablet are on
// different nodes, and in as many zones as there are. Within that, what nodes
// carry is evened out, and what they lead.
//
// Every move that is made to even out lessens the sum over the nodes of the square
// of what they carry, and every transfer the same sum of what they lead, so that
// carrying out plan after plan comes to an end and nothing moves back and forth.
package placement

import (
	"cmp"
	"maps"
	"slices"

	"skein/catalog"
)

// Node is a node that may carry replicas.
type Node struct {
	ID   catalog.NodeID
	Zone string // "" is a zone like any other
	// Takes says that the node may be given replicas and leaderships, and Keeps that
	// those that it has may stay.
	Takes, Keeps bool
	// Capacity is what the node can store, in bytes, 0 for unknown.
	Capacity int64
	// Arriving is how many replicas are on their way to the node.
	Arriving int
}

// Tablet is a tablet and where its replicas are.
type Tablet struct {
	ID       catalog.TabletID
	Replicas []catalog.NodeID
	Leader   catalog.NodeID // 0 for unknown
	Bytes    int64          // of one replica
	Load     int64          // statements per second
	// Busy tablets are left alone: something else happens to them. Their replicas
	// count, those on their way included.
	Busy bool
}

// Limits bounds a plan.
type Limits struct {
	Moves     int // at most
	PerNode   int // moves to any one node, at most
	Transfers int // at most
}

// Reason is why something should be elsewhere.
type Reason string

// The reasons, the most urgent first.
const (
	Evacuate Reason = "the node gives up its replicas"
	Spread   Reason = "its zone has another replica"
	Even     Reason = "the node carries more than others"
	Lead     Reason = "the node leads more than others"
)

// Move says that the replica of a tablet on one node should be on another.
type Move struct {
	Tablet   catalog.TabletID
	From, To catalog.NodeID
	Reason   Reason
}

// Plan is what should be done. Its parts may be carried out in any order, and any
// part of them, before the next plan is made.
type Plan struct {
	Moves     []Move
	Transfers []Move // of leaderships
	// Stuck are replicas that should leave a node but have nowhere to go.
	Stuck []Move
}

// share is what a tablet counts for among all, in millionths: its bytes, its load
// and itself.
const share = 1_000_000

// worth divides what a tablet counts for: a gain below that is not worth its move.
const worth = 5

// A cluster with less than this per tablet counts as having so much: what is little
// differs by chance, and must not have replicas moved about.
const (
	leastBytes = 16 << 20
	leastLoad  = 100
)

// carrier is a node in the making of a plan.
type carrier struct {
	Node
	bytes   int64
	carries int64 // shares of its replicas
	leads   int64 // shares of what it leads
}

type planner struct {
	limits  Limits
	nodes   []*carrier // by id
	tablets []*Tablet  // by id, copies
	cost    map[catalog.TabletID]int64
	plan    Plan
}

// Make plans what should be elsewhere. Nodes and tablets may come in any order.
func Make(nodes []Node, tablets []Tablet, limits Limits) Plan {
	p := newPlanner(nodes, tablets, limits)
	p.evacuate()
	p.spread()
	p.even()
	p.lead()
	return p.plan
}

func newPlanner(nodes []Node, tablets []Tablet, limits Limits) *planner {
	p := &planner{limits: limits, cost: make(map[catalog.TabletID]int64, len(tablets))}
	for _, n := range nodes {
		p.nodes = append(p.nodes, &carrier{Node: n})
	}
	slices.SortFunc(p.nodes, func(a, b *carrier) int { return cmp.Compare(a.ID, b.ID) })
	var bytes, load int64
	for _, t := range tablets {
		t.Replicas = slices.Clone(t.Replicas)
		p.tablets = append(p.tablets, &t)
		bytes += max(t.Bytes, 0)
		load += max(t.Load, 0)
	}
	bytes, load = max(bytes, leastBytes*int64(len(tablets))), max(load, leastLoad*int64(len(tablets)))
	slices.SortFunc(p.tablets, func(a, b *Tablet) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range p.tablets {
		cost := share/int64(len(tablets)) + part(t.Bytes, bytes) + part(t.Load, load)
		p.cost[t.ID] = cost
		for _, id := range t.Replicas {
			if n := p.node(id); n != nil {
				n.carries += cost
				n.bytes += max(t.Bytes, 0)
			}
		}
		if n := p.node(t.Leader); n != nil {
			n.leads += cost
		}
	}
	return p
}

// part is the share of one in all, which may be too many to be multiplied.
func part(one, all int64) int64 {
	if all <= 0 || one <= 0 {
		return 0
	}
	return int64(float64(one) / float64(all) * share)
}

func (p *planner) node(id catalog.NodeID) *carrier {
	at, ok := slices.BinarySearchFunc(p.nodes, id, func(n *carrier, id catalog.NodeID) int { return cmp.Compare(n.ID, id) })
	if !ok {
		return nil
	}
	return p.nodes[at]
}

// crowded counts the pairs of a tablet's replicas that share a zone, with one
// replica elsewhere: from from to to, if those are not 0.
func (p *planner) crowded(t *Tablet, from, to catalog.NodeID) int {
	zones := map[string]int{}
	for _, id := range t.Replicas {
		if id != from {
			p.addZone(zones, id)
		}
	}
	p.addZone(zones, to)
	pairs := 0
	for n := range maps.Values(zones) {
		pairs += n * (n - 1) / 2
	}
	return pairs
}

func (p *planner) addZone(zones map[string]int, id catalog.NodeID) {
	if n := p.node(id); n != nil {
		zones[n.Zone]++
	}
}

// target finds the best node for a tablet's replica that leaves another: the one
// that shares zones least and then carries least.
func (p *planner) target(t *Tablet, from catalog.NodeID) *carrier {
	var best *carrier
	fewest := 0
	for _, n := range p.nodes {
		if !p.mayTake(n, t) {
			continue
		}
		pairs := p.crowded(t, from, n.ID)
		if best == nil || pairs < fewest || pairs == fewest && n.carries < best.carries {
			best, fewest = n, pairs
		}
	}
	return best
}

// mayTake reports whether a node could have a replica of a tablet.
func (p *planner) mayTake(n *carrier, t *Tablet) bool {
	return n.Takes && n.Keeps && n.Arriving < p.limits.PerNode && p.fits(n, t) && !slices.Contains(t.Replicas, n.ID)
}

// fits reports whether a node has room for a tablet, leaving a tenth.
func (p *planner) fits(n *carrier, t *Tablet) bool {
	return n.Capacity <= 0 || n.bytes+t.Bytes <= n.Capacity/10*9
}

// move plans a move and goes on from there. It reports whether more may follow.
func (p *planner) move(t *Tablet, from, to *carrier, id catalog.NodeID, why Reason) bool {
	p.plan.Moves = append(p.plan.Moves, Move{Tablet: t.ID, From: id, To: to.ID, Reason: why})
	if from != nil {
		from.carries -= p.cost[t.ID]
		from.bytes -= t.Bytes
	}
	to.carries += p.cost[t.ID]
	to.bytes += t.Bytes
	to.Arriving++
	for i := range t.Replicas {
		if t.Replicas[i] == id {
			t.Replicas[i] = to.ID
		}
	}
	t.Busy = true
	return !p.full()
}

func (p *planner) full() bool { return len(p.plan.Moves) >= p.limits.Moves }

// evacuate moves replicas away from nodes that do not keep theirs.
func (p *planner) evacuate() {
	for _, t := range p.tablets {
		if t.Busy {
			continue
		}
		for _, id := range t.Replicas {
			from := p.node(id)
			if from != nil && from.Keeps {
				continue
			}
			to := p.target(t, id)
			if to == nil {
				if !p.later(t) {
					p.plan.Stuck = append(p.plan.Stuck, Move{Tablet: t.ID, From: id, Reason: Evacuate})
				}
				break
			}
			if p.full() {
				return
			}
			p.move(t, from, to, id, Evacuate)
			break // one replica of a tablet at a time
		}
	}
}

// later reports whether a node could take a tablet's replica but for those that
// are on their way to it.
func (p *planner) later(t *Tablet) bool {
	return slices.ContainsFunc(p.nodes, func(n *carrier) bool {
		return n.Takes && n.Keeps && p.fits(n, t) && !slices.Contains(t.Replicas, n.ID)
	})
}

// spread moves replicas to zones that have none of their tablet.
func (p *planner) spread() {
	for _, t := range p.tablets {
		if t.Busy || p.full() {
			continue
		}
		now := p.crowded(t, 0, 0)
		if now == 0 {
			continue
		}
		for _, id := range t.Replicas {
			if to := p.target(t, id); to != nil && p.crowded(t, id, to.ID) < now {
				p.move(t, p.node(id), to, id, Spread)
				break
			}
		}
	}
}

// even moves replicas from nodes that carry much to such that carry little, as long
// as what is moved is less than the difference. The best move of all comes first.
func (p *planner) even() {
	for !p.full() {
		var best struct {
			gain     int64
			tablet   *Tablet
			from, to *carrier
		}
		for _, t := range p.tablets {
			if t.Busy {
				continue
			}
			crowded := p.crowded(t, 0, 0)
			for _, id := range t.Replicas {
				from := p.node(id)
				if from == nil {
					continue
				}
				for _, to := range p.nodes {
					gain := from.carries - to.carries - p.cost[t.ID]
					if gain > best.gain && gain > max(p.slack(), p.cost[t.ID]/worth) && p.mayTake(to, t) && p.crowded(t, id, to.ID) <= crowded {
						best.gain, best.tablet, best.from, best.to = gain, t, from, to
					}
				}
			}
		}
		if best.tablet == nil {
			return
		}
		p.move(best.tablet, best.from, best.to, best.from.ID, Even)
	}
}

// slack is a difference that is not worth a move: a twentieth of what nodes carry
// on average.
func (p *planner) slack() int64 {
	var all, keep int64
	for _, n := range p.nodes {
		all += n.carries
		if n.Keeps {
			keep++
		}
	}
	return all / max(keep, 1) / 20
}

// lead has leaderships transferred from nodes that lead much to other replicas'
// nodes that lead little, by the same rule.
func (p *planner) lead() {
	moved := map[catalog.TabletID]bool{}
	var all int64
	for _, n := range p.nodes {
		all += n.leads
	}
	slack := all / max(int64(len(p.nodes)), 1) / 20 // see there
	for len(p.plan.Transfers) < p.limits.Transfers {
		var best struct {
			gain     int64
			tablet   *Tablet
			from, to *carrier
		}
		for _, t := range p.tablets {
			from := p.node(t.Leader)
			if from == nil || t.Busy || moved[t.ID] || !slices.Contains(t.Replicas, t.Leader) {
				continue
			}
			for _, id := range t.Replicas {
				to := p.node(id)
				if to == nil || !to.Takes || !to.Keeps || to == from {
					continue
				}
				if gain := from.leads - to.leads - p.cost[t.ID]; gain > best.gain && gain > max(slack, p.cost[t.ID]/worth) {
					best.gain, best.tablet, best.from, best.to = gain, t, from, to
				}
			}
		}
		if best.tablet == nil {
			return
		}
		t := best.tablet
		p.plan.Transfers = append(p.plan.Transfers, Move{Tablet: t.ID, From: best.from.ID, To: best.to.ID, Reason: Lead})
		best.from.leads -= p.cost[t.ID]
		best.to.leads += p.cost[t.ID]
		t.Leader = best.to.ID
		moved[t.ID] = true
	}
}
