package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"skein/catalog"
)

var limits = Limits{Moves: 3, PerNode: 2, Transfers: 3}

// nodes are n nodes that take and keep, in zones by turns.
func nodes(n int, zones ...string) []Node {
	list := make([]Node, n)
	for i := range list {
		list[i] = Node{ID: catalog.NodeID(i + 1), Takes: true, Keeps: true}
		if len(zones) > 0 {
			list[i].Zone = zones[i%len(zones)]
		}
	}
	return list
}

// tabletsOn are n tablets of one size on the same nodes, led by the first.
func tabletsOn(n int, replicas ...catalog.NodeID) []Tablet {
	list := make([]Tablet, n)
	for i := range list {
		list[i] = Tablet{ID: catalog.TabletID(100 + i), Replicas: replicas, Leader: replicas[0], Bytes: 1 << 20}
	}
	return list
}

// carryOut changes tablets as a plan says, with the new replica leading for the old.
func carryOut(t interface{ Fatalf(string, ...any) }, tablets []Tablet, plan Plan) []Tablet {
	next := slices.Clone(tablets)
	for _, m := range slices.Concat(plan.Moves, plan.Transfers) {
		at := slices.IndexFunc(next, func(x Tablet) bool { return x.ID == m.Tablet })
		tablet := &next[at]
		if tablet.Busy {
			t.Fatalf("%+v of a busy tablet", m)
		}
		tablet.Replicas = slices.Clone(tablet.Replicas)
		if m.Reason != Lead {
			i := slices.Index(tablet.Replicas, m.From)
			if i < 0 || slices.Contains(tablet.Replicas, m.To) {
				t.Fatalf("%+v of replicas on %v", m, tablet.Replicas)
			}
			tablet.Replicas[i] = m.To
		}
		if tablet.Leader == m.From {
			tablet.Leader = m.To
		}
		if !slices.Contains(tablet.Replicas, tablet.Leader) {
			t.Fatalf("%+v makes a node lead that has no replica", m)
		}
	}
	return next
}

// settle makes and carries out plans until there is nothing left to do.
func settle(t interface{ Fatalf(string, ...any) }, list []Node, tablets []Tablet, each func(Plan)) []Tablet {
	rounds := 50 + 10*len(tablets)
	for range rounds {
		plan := Make(list, tablets, limits)
		each(plan)
		if len(plan.Moves)+len(plan.Transfers) == 0 {
			return tablets
		}
		tablets = carryOut(t, tablets, plan)
	}
	t.Fatalf("plans do not come to an end in %d rounds", rounds)
	return nil
}

func counts(tablets []Tablet) (carries, leads map[catalog.NodeID]int) {
	carries, leads = map[catalog.NodeID]int{}, map[catalog.NodeID]int{}
	for _, t := range tablets {
		leads[t.Leader]++
		for _, id := range t.Replicas {
			carries[id]++
		}
	}
	return carries, leads
}

// TestAFourthNode: 24 tablets on three nodes, one leading all, and a new node.
func TestAFourthNode(t *testing.T) {
	moves := 0
	tablets := settle(t, nodes(4), tabletsOn(24, 1, 2, 3), func(p Plan) { moves += len(p.Moves) })
	carries, leads := counts(tablets)
	for id := catalog.NodeID(1); id <= 4; id++ {
		if carries[id] < 17 || carries[id] > 19 || leads[id] < 5 || leads[id] > 7 {
			t.Errorf("node %d carries %d and leads %d", id, carries[id], leads[id])
		}
	}
	if moves > 19 {
		t.Errorf("%d moves", moves)
	}
}

func TestPlans(t *testing.T) {
	gone := func(list []Node, id catalog.NodeID) []Node {
		list[id-1].Takes, list[id-1].Keeps = false, false
		return list
	}
	for _, tc := range []struct {
		name    string
		nodes   []Node
		tablets []Tablet
		want    Plan
	}{
		{"nothing to do", nodes(4), tabletsOn(1, 1, 2, 3), Plan{}},
		{"drained", gone(nodes(4), 2), tabletsOn(1, 1, 2, 3), Plan{Moves: []Move{{100, 2, 4, Evacuate}}}},
		{"removed and unknown", nodes(4)[:3], tabletsOn(1, 1, 2, 9), Plan{Moves: []Move{{100, 9, 3, Evacuate}}}},
		{"nowhere to go", gone(nodes(3), 2), tabletsOn(1, 1, 2, 3), Plan{Stuck: []Move{{100, 2, 0, Evacuate}}}},
		{"zones", nodes(4, "a", "a", "b", "c"), tabletsOn(1, 1, 2, 3), Plan{Moves: []Move{{100, 1, 4, Spread}}}},
		{"fewer zones than replicas", nodes(4, "a", "b"), tabletsOn(1, 1, 2, 3), Plan{}},
		{"draining into its zone", gone(nodes(5, "a", "b", "c", "a", "b"), 1), tabletsOn(1, 1, 2, 3), Plan{Moves: []Move{{100, 1, 4, Evacuate}}}},
		{"busy", gone(nodes(4), 2), []Tablet{{ID: 1, Replicas: []catalog.NodeID{2}, Busy: true}}, Plan{}},
		{"arriving", func() []Node { l := gone(nodes(4), 2); l[3].Arriving = 2; return l }(), tabletsOn(1, 1, 2, 3), Plan{}},
		{"full", func() []Node { l := gone(nodes(4), 2); l[3].Capacity = 1 << 20; return l }(), tabletsOn(1, 1, 2, 3), Plan{Stuck: []Move{{100, 2, 0, Evacuate}}}},
		{"leaders", nodes(2), tabletsOn(2, 1, 2), Plan{Transfers: []Move{{100, 1, 2, Lead}}}},
		{"no leader known", nodes(2), []Tablet{{ID: 1, Replicas: []catalog.NodeID{1, 2}}}, Plan{}},
		{"noise", nodes(3), []Tablet{
			{ID: 1, Replicas: []catalog.NodeID{1}, Leader: 1, Load: 8}, {ID: 2, Replicas: []catalog.NodeID{1}, Leader: 1},
			{ID: 3, Replicas: []catalog.NodeID{2}, Leader: 2, Bytes: 1 << 20}, {ID: 4, Replicas: []catalog.NodeID{3}, Leader: 3},
		}, Plan{}},
		{"the big one stays", nodes(2), []Tablet{
			{ID: 1, Replicas: []catalog.NodeID{1}, Leader: 1, Bytes: 100 << 20}, {ID: 2, Replicas: []catalog.NodeID{1}, Leader: 1, Bytes: 1 << 20},
		}, Plan{Moves: []Move{{2, 1, 2, Even}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Make(tc.nodes, tc.tablets, limits)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPlansConverge: whatever the cluster, plans obey the rules, do not depend on
// the order of their input, and come to an end where nothing is left to be evened.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := nodes(rapid.IntRange(1, 8).Draw(t, "nodes"))
		for i := range list {
			list[i].Zone = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone")
			list[i].Keeps = rapid.IntRange(0, 5).Draw(t, "keeps") > 0
			list[i].Takes = list[i].Keeps && rapid.IntRange(0, 9).Draw(t, "takes") > 0
		}
		var tablets []Tablet
		for i := range rapid.IntRange(0, 30).Draw(t, "tablets") {
			order := rapid.Permutation(list).Draw(t, "order")
			tablet := Tablet{
				ID: catalog.TabletID(i + 1), Bytes: rapid.Int64Range(0, 1000).Draw(t, "bytes"), Load: rapid.Int64Range(0, 1000).Draw(t, "load"),
			}
			for _, n := range order[:min(len(order), rapid.IntRange(1, 3).Draw(t, "replicas"))] {
				tablet.Replicas = append(tablet.Replicas, n.ID)
			}
			tablet.Leader = tablet.Replicas[0]
			tablets = append(tablets, tablet)
		}
		p := func() *planner { return newPlanner(list, tablets, Limits{Moves: 1000, PerNode: 1000}) }
		var last Plan
		potential := -1.0
		tablets = settle(t, list, tablets, func(plan Plan) {
			last = plan
			shuffled := Make(rapid.Permutation(list).Draw(t, "other nodes"), rapid.Permutation(tablets).Draw(t, "other tablets"), limits)
			if diff := cmp.Diff(plan, shuffled); diff != "" {
				t.Fatalf("the order of the input matters: %s", diff)
			}
			if len(plan.Moves) > limits.Moves || len(plan.Transfers) > limits.Transfers {
				t.Fatalf("%d moves and %d transfers", len(plan.Moves), len(plan.Transfers))
			}
			arriving := map[catalog.NodeID]int{}
			onlyEven := true
			for _, m := range plan.Moves {
				arriving[m.To]++
				onlyEven = onlyEven && m.Reason == Even
				if to := list[m.To-1]; !to.Takes || !to.Keeps || arriving[m.To] > limits.PerNode {
					t.Fatalf("%+v to %+v", m, to)
				}
			}
			if len(plan.Moves) > 0 && onlyEven {
				now := 0.0
				for _, n := range p().nodes {
					now += float64(n.carries) * float64(n.carries)
				}
				if potential >= 0 && now >= potential {
					t.Fatalf("evening out does not: %v after %v", now, potential)
				}
				potential = now
			} else if len(plan.Moves) > 0 {
				potential = -1
			}
			tablets = carryOut(t, tablets, plan)
		})
		state := p()
		stuck := map[string]bool{}
		for _, m := range last.Stuck {
			stuck[fmt.Sprint(m.Tablet)] = true
		}
		for i := range tablets {
			tablet := &tablets[i]
			for _, id := range tablet.Replicas {
				if !list[id-1].Keeps && !stuck[fmt.Sprint(tablet.ID)] {
					t.Fatalf("tablet %d is left on node %d", tablet.ID, id)
				}
				for _, to := range state.nodes {
					if state.mayTake(to, tablet) && state.crowded(tablet, id, to.ID) < state.crowded(tablet, 0, 0) {
						t.Fatalf("tablet %d on %v could spread to node %d", tablet.ID, tablet.Replicas, to.ID)
					}
				}
			}
		}
	})
}
