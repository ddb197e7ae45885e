package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lni/dragonboat/v4"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/sqlstate"
)

// growing is a cluster that begins with one node and is joined by others.
type growing struct {
	*testCluster
	self map[catalog.NodeID]Peer

	mu sync.Mutex
	at map[string]*Node // by Flight address
}

func newGrowing(t *testing.T) *growing {
	g := &growing{self: map[catalog.NodeID]Peer{}, at: map[string]*Node{}}
	g.testCluster = newCluster(t, 1, nil)
	g.adjust = func(cfg *NodeConfig) {
		cfg.Standalone, cfg.Host.LogBytes, cfg.Host.LogEntries = false, 1<<20, 20
		cfg.Ask = g.ask
		if cfg.NodeID != 1 {
			cfg.InitIfEmpty, cfg.Members = false, nil
		}
		cfg.Self = g.self[cfg.NodeID]
	}
	g.start(1)
	g.ready()
	return g
}

// ask finds the node with a Flight address, as the network would.
func (g *growing) ask(ctx context.Context, address, command string, body []byte) ([]byte, error) {
	g.mu.Lock()
	n := g.at[address]
	g.mu.Unlock()
	if n == nil {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	return n.Meta().Handle(ctx, command, body)
}

// start and stop are those of testCluster and tell ask who is there.
func (g *growing) start(ids ...catalog.NodeID) {
	g.t.Helper()
	for _, id := range ids {
		g.testCluster.start(id)
		g.mu.Lock()
		g.at[g.nodes[id].own.FlightAddress] = g.nodes[id]
		g.mu.Unlock()
	}
}

func (g *growing) stop(id catalog.NodeID) {
	g.t.Helper()
	g.mu.Lock()
	delete(g.at, g.nodes[id].own.FlightAddress)
	g.mu.Unlock()
	g.testCluster.stop(id)
}

// admit has a node admitted and provisions its directory.
func (g *growing) admit(uses int) (catalog.NodeID, string) {
	g.t.Helper()
	ctx := testContext(g.t)
	meta := g.nodes[1].Meta()
	token, err := meta.NewToken(ctx, NewTokenRequest{LifeMillis: time.Minute.Milliseconds(), Uses: uses})
	if err != nil {
		g.t.Fatal(err)
	}
	reply, err := meta.Join(ctx, g.request(token.Token))
	if err != nil {
		g.t.Fatal(err)
	}
	id := reply.Node.ID
	if err := Provision(filepath.Join(g.dir, fmt.Sprint("node", id)), reply.Identity()); err != nil {
		g.t.Fatal(err)
	}
	return id, token.Token
}

func (g *growing) request(token string) JoinRequest {
	return JoinRequest{RequestID: uuid.NewString(), Token: token, Node: NodeInfo{
		RaftAddress: freeAddress(g.t), FlightAddress: "flight-" + uuid.NewString(), Incarnation: uuid.NewString(),
	}}
}

// until waits for a state of the metadata on a node.
func (g *growing) until(what string, on catalog.NodeID, reached func(*MetaSnapshot) bool) {
	g.t.Helper()
	meta := g.nodes[on].Meta()
	ctx := testContext(g.t)
	for {
		snapshot := meta.Local()
		if reached(snapshot) {
			return
		}
		if _, err := meta.Watch(ctx, snapshot.Version, time.Second); err != nil {
			g.t.Fatalf("%s: %v; nodes are %+v", what, err, snapshot.Nodes)
		}
	}
}

func voters(want ...catalog.NodeID) func(*MetaSnapshot) bool {
	return func(s *MetaSnapshot) bool {
		var got []catalog.NodeID
		for _, n := range s.Nodes {
			if n.Voter {
				got = append(got, n.ID)
			}
		}
		return slices.Equal(got, want)
	}
}

func TestClusterGrowsFromOneNode(t *testing.T) {
	t.Parallel()
	g := newGrowing(t)
	second, token := g.admit(1)
	if _, err := g.nodes[1].Meta().Join(testContext(t), g.request(token)); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Fatalf("a used token: %v", err)
	}
	third, _ := g.admit(1)
	if second != 2 || third != 3 {
		t.Fatalf("joined as %d and %d", second, third)
	}
	g.start(2, 3)
	g.ready()
	table := g.create(2, plainTable("t", 1))
	g.until("three voters", 1, voters(1, 2, 3))
	// The founder may go now, and comes back to a group that has gone on.
	g.stop(1)
	if _, err := g.nodes[3].Meta().DropTable(testContext(t), DropTable{RequestID: "drop", ID: table.ID}); err != nil {
		t.Fatal(err)
	}
	// A voter that joined votes after a restart, when its log has been cut.
	for i := range 50 {
		_, _ = g.nodes[2].Meta().DropTable(testContext(t), DropTable{RequestID: fmt.Sprint(i), ID: 4711}) // refused, but logged
	}
	g.stop(2)
	g.start(1, 2)
	g.ready()
	g.stop(1)
	if _, err := g.nodes[2].Meta().CreateTable(testContext(t), CreateTable{RequestID: "again", Table: plainTable("u", 1)}); err != nil {
		t.Fatalf("two of three voters: %v", err)
	}
	g.start(1)
	g.ready()
}

// A join may be repeated until the node has run, not after: its directory would be
// one that has forgotten everything.
func TestJoinIsRepeatedOnlyBeforeTheStart(t *testing.T) {
	t.Parallel()
	g := newGrowing(t)
	ctx := testContext(t)
	meta := g.nodes[1].Meta()
	token, err := meta.NewToken(ctx, NewTokenRequest{LifeMillis: time.Minute.Milliseconds(), Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	request := g.request(token.Token)
	first, err := meta.Join(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	request.Node.Incarnation = uuid.NewString()
	again, err := meta.Join(ctx, request)
	if err != nil || again.Identity().String() != first.Identity().String() || again.Node.Incarnation != first.Node.Incarnation {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := Provision(filepath.Join(g.dir, "node2"), again.Identity()); err != nil {
		t.Fatal(err)
	}
	g.start(2)
	g.ready()
	if _, err := meta.Join(ctx, request); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Fatalf("after the start: %v", err)
	}
}

func TestStandaloneClusterIsNotJoined(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	_, err := c.nodes[1].Meta().NewToken(testContext(t), NewTokenRequest{LifeMillis: 1000, Uses: 1})
	if sqlstate.CodeOf(err) != sqlstate.FeatureNotSupported {
		t.Fatal(err)
	}
}

// TestFirstFormatOfIdentity starts a directory of a release whose identities were a
// name and a number, and has another node join it.
func TestFirstFormatOfIdentity(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *NodeConfig) { cfg.InitIfEmpty, cfg.Standalone = false, false })
	dir := c.config(1).DataDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	old := []byte(`{"format":1,"identity":{"cluster":"test","node":1},"checksum":"` + checksumText([]byte(`{"cluster":"test","node":1}`)) + `"}`)
	if err := os.WriteFile(filepath.Join(dir, identityFile), old, 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	c.ready()
	g := &growing{testCluster: c}
	id, _ := g.admit(1)
	c.adjust = func(cfg *NodeConfig) { cfg.InitIfEmpty, cfg.Standalone, cfg.Members = false, false, nil }
	c.start(id)
	c.ready()
}

func TestNodeMovesToAnotherAddress(t *testing.T) {
	t.Parallel()
	g := newGrowing(t)
	g.admit(1)
	g.start(2)
	g.ready()
	g.stop(2)
	moved := Peer{RaftAddress: freeAddress(t), FlightAddress: "flight-elsewhere"}
	g.self[2] = moved
	g.start(2)
	g.ready()
	g.until("the new address", 1, func(s *MetaSnapshot) bool {
		n, _ := s.Node(2)
		return n.RaftAddress == moved.RaftAddress && n.FlightAddress == moved.FlightAddress
	})
	if _, err := g.nodes[2].Meta().Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRemovedNodeIsRefused(t *testing.T) {
	t.Parallel()
	g := newGrowing(t)
	for range 3 {
		g.admit(1)
	}
	g.start(2, 3, 4)
	g.ready()
	g.until("three voters", 1, voters(1, 2, 3))
	remove := func(id catalog.NodeID) error {
		_, err := g.nodes[4].Meta().SetNodeState(testContext(t), SetNodeState{RequestID: uuid.NewString(), Node: id, State: NodeRemoved})
		return err
	}
	if err := remove(2); err != nil {
		t.Fatal(err)
	}
	g.until("a seat that moved", 4, voters(1, 3, 4))
	select {
	case <-g.nodes[2].Refused():
	case <-time.After(60 * time.Second):
		t.Fatal("the removed node has not noticed")
	}
	if err := g.nodes[2].Refusal(); !errors.Is(err, ErrNodeRefused) {
		t.Fatal(err)
	}
	// The founder, which leads, may go as well.
	if err := remove(1); err != nil {
		t.Fatal(err)
	}
	g.until("two nodes", 4, func(s *MetaSnapshot) bool {
		n, _ := s.Node(1)
		return n.State == NodeRemoved && !n.Voter
	})
	if _, err := g.nodes[3].Meta().Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	g.stop(2)
	g.start(2)
	select {
	case <-g.nodes[2].Refused():
	case <-time.After(40 * time.Second):
		t.Fatal("the removed node was not refused at its next start")
	}
}

func TestJoinRefusesTokens(t *testing.T) {
	t.Parallel()
	g, other := newGrowing(t), newGrowing(t)
	ctx := testContext(t)
	meta := g.nodes[1].Meta()
	good, err := meta.NewToken(ctx, NewTokenRequest{LifeMillis: time.Minute.Milliseconds(), Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.nodes[1].Meta().NewToken(ctx, NewTokenRequest{LifeMillis: time.Minute.Milliseconds(), Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	short, err := meta.NewToken(ctx, NewTokenRequest{LifeMillis: 1, Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().UnixMilli() <= short.ExpiresUnixMS {
		if !wait(ctx, time.Millisecond) {
			t.Fatal("no time")
		}
	}
	for name, token := range map[string]string{
		"empty": "", "garbage": "skein1.e30.e30", "foreign": foreign.Token, "expired": short.Token,
		"changed": good.Token[:len(good.Token)-2] + "AA", "cut": good.Token[:len(good.Token)-9], "other form": "x" + good.Token,
	} {
		if _, err := meta.Join(ctx, g.request(token)); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(meta.Local().Nodes) != 1 {
		t.Errorf("nodes are %+v", meta.Local().Nodes)
	}
	if _, err := meta.Join(ctx, g.request(good.Token)); err != nil {
		t.Error(err)
	}
}

// TestSeatsSettle plays the rules of seats against groups that do as they say.
func TestSeatsSettle(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := &MetaSnapshot{Settings: map[string]string{SettingMetaVoters: rapid.SampledFrom([]string{"1", "3", "5"}).Draw(r, "voters")}}
		m := &dragonboat.Membership{Nodes: map[uint64]string{}, NonVotings: map[uint64]string{}, Removed: map[uint64]struct{}{}}
		alive := map[uint64]bool{}
		n := rapid.IntRange(1, 8).Draw(r, "nodes")
		for i := 1; i <= n; i++ {
			state := rapid.SampledFrom([]NodeState{NodeActive, NodeActive, NodeDraining, NodeJoining, NodeRemoved}).Draw(r, "state")
			s.Nodes = append(s.Nodes, NodeInfo{ID: catalog.NodeID(i), State: state})
			alive[uint64(i)] = rapid.Bool().Draw(r, "alive")
			switch rapid.IntRange(0, 2).Draw(r, "member") {
			case 0:
				m.Nodes[uint64(i)] = ""
			case 1:
				m.NonVotings[uint64(i)] = ""
			}
		}
		s.Nodes[0].State, m.Nodes[1] = NodeActive, ""
		delete(m.NonVotings, 1)
		leader := uint64(1)
		alive[leader] = true
		before := len(m.Nodes)
		for step := range 50 {
			next := nextSeat(s, m, alive, leader)
			switch next.action {
			case seatNone:
				staying := 0 // besides those that cannot be taken out yet
				for id := range m.Nodes {
					if s.Nodes[id-1].State != NodeRemoved {
						staying++
					}
				}
				if staying > max(before, 5) {
					r.Fatalf("%d vote", staying)
				}
				return
			case seatAdd:
				m.NonVotings[next.node] = ""
			case seatPromote:
				if !alive[next.node] || s.Nodes[next.node-1].State != NodeActive {
					r.Fatalf("node %d got a vote", next.node)
				}
				delete(m.NonVotings, next.node)
				m.Nodes[next.node] = ""
			case seatHandOver:
				leader = next.node
			case seatRemove:
				if _, votes := m.Nodes[next.node]; votes {
					well := 0
					for id := range m.Nodes {
						if alive[id] && id != next.node {
							well++
						}
					}
					if left := len(m.Nodes) - 1; well <= left/2 {
						r.Fatalf("%d of %d voters are there after node %d was removed", well, left, next.node)
					}
				}
				if s.Nodes[next.node-1].State != NodeRemoved {
					r.Fatalf("node %d was removed", next.node)
				}
				delete(m.Nodes, next.node)
				delete(m.NonVotings, next.node)
				m.Removed[next.node] = struct{}{}
			}
			if step == 49 {
				r.Fatal("it does not settle")
			}
		}
	})
}
