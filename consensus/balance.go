package consensus

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/consensus/placement"
	"skein/sqlstate"
)

const (
	defaultBalanceEvery = 5 * time.Second
	// balancePatience bounds each step of a round.
	balancePatience = 5 * time.Second
	// silentAfter is how long nothing was heard of a node that is given no replicas.
	silentAfter = 30 * time.Second
	// leastRepairAfter is the least value of the setting, a few heartbeats.
	leastRepairAfter = 20 * time.Second
	// loadSpan is about how long a tablet's use is averaged over.
	loadSpan = time.Minute
	// movesPerNode is how many replicas go to one node at once.
	movesPerNode = 2
	// transferRest is how long a tablet's leadership is left alone after an attempt to
	// transfer it: each holds its writers up for a moment.
	transferRest = time.Minute
)

// balancer has replicas and leaderships moved to where package placement wants
// them. Each node runs one. All report what they lead; the node that leads the meta
// group starts moves and gives hopeless ones up; and each transfers the leaderships
// that it has itself, as a plan says that all make alike.
type balancer struct {
	host *Host
	meta *Meta

	heard       map[catalog.NodeID]heard
	used        map[uint64]used // by replica
	reported    time.Time       // when that was
	transferred map[catalog.TabletID]time.Time
}

// used is how often a replica had been used at the last report, and how often per
// second it was in the last minute or so.
type used struct {
	uses int64
	load float64
}

// heard is when a node gave its last sign of life, as seen from here.
type heard struct {
	at     time.Time
	unixMS int64 // of its heartbeat
}

func newBalancer(h *Host, m *Meta) *balancer {
	return &balancer{
		host: h, meta: m, heard: map[catalog.NodeID]heard{}, used: map[uint64]used{}, reported: time.Now(),
		transferred: map[catalog.TabletID]time.Time{},
	}
}

// run works until ctx ends.
func (b *balancer) run(ctx context.Context) {
	every := b.host.cfg.BalanceEvery
	for wait(ctx, every/2+rand.N(every)) {
		if err := b.report(ctx); err != nil && ctx.Err() == nil {
			b.host.log.Debug("telling what this node leads", "error", err)
		}
		b.round(ctx)
	}
}

// report tells the meta group what this node leads, if that is not what it knows.
func (b *balancer) report(ctx context.Context) error {
	if !slices.ContainsFunc(b.meta.Local().Nodes, func(n NodeInfo) bool { return n.ID == b.host.cfg.NodeID }) {
		return nil // not registered yet
	}
	seconds := max(time.Since(b.reported).Seconds(), 0.001)
	b.reported = time.Now()
	b.host.mu.Lock()
	replicas := slices.Collect(maps.Values(b.host.tablets))
	b.host.mu.Unlock()
	slices.SortFunc(replicas, func(x, y *replica) int { return int(int64(x.tabletID) - int64(y.tabletID)) })
	list, now := []TabletReport{}, make(map[uint64]used, len(replicas))
	for _, r := range replicas {
		last, this := b.used[r.replica], used{uses: r.uses.Load()}
		this.load = last.load + (float64(this.uses-last.uses)/seconds-last.load)*min(seconds/loadSpan.Seconds(), 1)
		now[r.replica] = this
		if !r.leads() || !r.isOpen() || r.health() != nil {
			continue
		}
		list = append(list, TabletReport{Tablet: r.tabletID, Bytes: rough(int64(r.sm.tablet.Bytes())), Load: rough(int64(this.load))})
	}
	b.used = now
	if slices.Equal(list, b.meta.Local().Reports[b.host.cfg.NodeID]) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, balancePatience)
	defer cancel()
	return b.meta.reportTablets(ctx, ReportTablets{Node: b.host.cfg.NodeID, Tablets: list})
}

// round makes a plan and carries this node's part of it out.
func (b *balancer) round(ctx context.Context) {
	snapshot := b.meta.Local()
	b.listen(snapshot)
	leads := b.meta.IsLeader()
	if leads {
		b.giveUp(ctx, snapshot)
	}
	nodes, tablets := b.describe(snapshot)
	plan := placement.Make(nodes, tablets, placement.Limits{
		Moves: int(snapshot.SettingInt(SettingRebalanceMoves)) - len(snapshot.Moves), PerNode: movesPerNode, Transfers: len(tablets),
	})
	even := snapshot.SettingBool(SettingRebalance) && known(tablets)
	if leads {
		for _, m := range plan.Stuck {
			b.host.log.Debug("a replica has nowhere to go", "tablet", uint64(m.Tablet), "node", uint64(m.From))
		}
		for _, m := range plan.Moves {
			if even || m.Reason == placement.Evacuate {
				b.move(ctx, m)
			}
		}
	}
	if even {
		b.transfer(ctx, plan.Transfers)
	}
}

// known reports whether the sizes of all tablets are: a leader that was elected just
// now has not told yet. To even out by half of them would move things back and forth.
func known(tablets []placement.Tablet) bool {
	return !slices.ContainsFunc(tablets, func(t placement.Tablet) bool { return !t.Busy && t.Leader == 0 })
}

// listen notes which nodes have given a sign of life since the last round: a
// heartbeat, or, where none was ever heard, a connection that stands. Only the own
// clock counts, and only while this node was there to hear.
func (b *balancer) listen(snapshot *MetaSnapshot) {
	now := time.Now()
	for _, n := range snapshot.Nodes {
		last, known := b.heard[n.ID]
		beat, beats := snapshot.Seen[n.ID]
		if !known || n.ID == b.host.cfg.NodeID || beats && beat.UnixMS != last.unixMS || !beats && !b.host.peers.isDown(n.RaftAddress) {
			b.heard[n.ID] = heard{at: now, unixMS: beat.UnixMS}
		}
	}
}

// silent is for how long nothing was heard of a node.
func (b *balancer) silent(node catalog.NodeID) time.Duration { return time.Since(b.heard[node].at) }

// describe turns the metadata into what plans are made from.
func (b *balancer) describe(snapshot *MetaSnapshot) ([]placement.Node, []placement.Tablet) {
	var nodes []placement.Node
	gone := map[catalog.NodeID]bool{}
	for _, n := range snapshot.Nodes {
		if n.State == NodeRemoved {
			continue
		}
		lost := b.silent(n.ID) >= snapshot.SettingDuration(SettingRepairAfter)
		quiet := b.silent(n.ID) >= silentAfter || b.host.peers.isDown(n.RaftAddress)
		gone[n.ID] = lost || quiet
		nodes = append(nodes, placement.Node{
			ID: n.ID, Zone: n.Zone, Capacity: n.Capacity,
			Takes: n.Status() == NodeActive && !quiet && !lost, Keeps: n.State != NodeDraining && !lost,
		})
	}
	arriving := map[catalog.NodeID]int{}
	for _, m := range snapshot.Moves {
		arriving[m.New.Node]++
	}
	for i := range nodes {
		nodes[i].Arriving = arriving[nodes[i].ID]
	}
	reports, leaders := map[catalog.TabletID]TabletReport{}, map[catalog.TabletID]catalog.NodeID{}
	for _, node := range slices.Sorted(maps.Keys(snapshot.Reports)) {
		for _, r := range snapshot.Reports[node] {
			reports[r.Tablet], leaders[r.Tablet] = r, node
		}
	}
	var tablets []placement.Tablet
	snapshot.all(func(t *catalog.Table) {
		for i := range t.Tablets {
			tablets = append(tablets, describeTablet(snapshot, &t.Tablets[i], reports, leaders, gone))
		}
	})
	return nodes, tablets
}

func describeTablet(snapshot *MetaSnapshot, tablet *catalog.Tablet, reports map[catalog.TabletID]TabletReport,
	leaders map[catalog.TabletID]catalog.NodeID, gone map[catalog.NodeID]bool,
) placement.Tablet {
	out := placement.Tablet{ID: tablet.ID, Leader: leaders[tablet.ID], Bytes: reports[tablet.ID].Bytes, Load: reports[tablet.ID].Load}
	move, moving := snapshot.Move(tablet.ID)
	_, repairing := snapshot.Repair(tablet.ID)
	_, working := snapshot.JobOf(tablet.ID)
	out.Busy = moving || repairing || working
	there := 0
	for _, r := range tablet.Replicas {
		node := r.Node
		if moving && r.ID == move.Old.ID && move.Phase != MoveAborting {
			node = move.New.Node // where it will be
		}
		out.Replicas = append(out.Replicas, node)
		if !gone[r.Node] {
			there++
		}
	}
	// Without a majority nothing can be changed until the nodes are back.
	out.Busy = out.Busy || there <= len(tablet.Replicas)/2
	return out
}

// move starts a move.
func (b *balancer) move(ctx context.Context, m placement.Move) {
	ctx, cancel := context.WithTimeout(ctx, balancePatience)
	defer cancel()
	_, err := b.meta.MoveReplica(ctx, MoveReplica{
		RequestID: uuid.NewString(), Tablet: m.Tablet, From: m.From, To: m.To, Cause: string(m.Reason), StartedUnixMS: time.Now().UnixMilli(),
	})
	if err != nil {
		b.host.log.Info("a planned move was not started", "tablet", uint64(m.Tablet), "from", uint64(m.From), "to", uint64(m.To), "error", err)
		return
	}
	b.host.log.Info("moving a replica", "tablet", uint64(m.Tablet), "from", uint64(m.From), "to", uint64(m.To), "because", m.Reason)
}

// giveUp aborts the moves to nodes that take no replicas any more.
func (b *balancer) giveUp(ctx context.Context, snapshot *MetaSnapshot) {
	for _, m := range snapshot.Moves {
		to, ok := snapshot.Node(m.New.Node)
		var why string
		switch {
		case m.Phase != MoveJoining:
			continue
		case !ok || to.Status() != NodeActive:
			why = fmt.Sprintf("node %d is %s", m.New.Node, to.Status())
		case b.silent(m.New.Node) >= silentAfter:
			why = fmt.Sprintf("node %d is out of reach", m.New.Node)
		default:
			continue
		}
		trying, cancel := context.WithTimeout(ctx, balancePatience)
		_, err := b.meta.AbortMove(trying, AbortMove{RequestID: uuid.NewString(), Tablet: m.Tablet, Cause: why, AtUnixMS: time.Now().UnixMilli()})
		cancel()
		if err != nil && sqlstate.CodeOf(err) != sqlstate.ObjectNotInState && ctx.Err() == nil {
			b.host.log.Info("giving up a move failed, will retry", "tablet", uint64(m.Tablet), "error", err)
		}
	}
}

// transfer hands one leadership on that this node has, if the plan wants any to.
func (b *balancer) transfer(ctx context.Context, transfers []placement.Move) {
	maps.DeleteFunc(b.transferred, func(_ catalog.TabletID, at time.Time) bool { return time.Since(at) > transferRest })
	for _, m := range transfers {
		r, ok := b.host.replica(m.Tablet)
		if _, rests := b.transferred[m.Tablet]; rests || m.From != b.host.cfg.NodeID || !ok || !r.leads() {
			continue
		}
		b.transferred[m.Tablet] = time.Now()
		err := b.host.TransferLeader(ctx, m.Tablet, m.To)
		if err != nil && ctx.Err() == nil {
			b.host.log.Info("a planned change of leaders did not come about", "tablet", uint64(m.Tablet), "to", uint64(m.To), "error", err)
		}
		return
	}
}
