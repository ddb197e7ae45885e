package consensus

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"skein/catalog"
	"skein/sqlstate"
)

func nodeAt(id int) NodeInfo {
	return NodeInfo{
		ID: catalog.NodeID(id), RaftAddress: fmt.Sprintf("h%d:1", id), FlightAddress: fmt.Sprintf("h%d:2", id), Incarnation: fmt.Sprint("i", id),
	}
}

func registerNodes(t *testing.T, s *metaState, ids ...int) {
	t.Helper()
	for _, id := range ids {
		mustAccept(t, applyTo(t, s, MetaRegisterNode, RegisterNode{RequestID: fmt.Sprint("register-", id), Node: nodeAt(id), ClusterID: "c"}))
	}
}

// again is the state that a restart reads back.
func again(t *testing.T, s *metaState) *metaState {
	t.Helper()
	order, records := s.takeDirty()
	read := newMetaState()
	for _, key := range order {
		if records[key] == nil {
			continue
		}
		if err := read.load([]byte(key), records[key]); err != nil {
			t.Fatal(err)
		}
	}
	return read
}

func TestRegistrationIsGuarded(t *testing.T) {
	s := newMetaState()
	registerNodes(t, s, 1, 2, 3)
	try := func(id string, clusterID string, edit func(*NodeInfo)) metaAnswer {
		n := nodeAt(2)
		edit(&n)
		return applyTo(t, s, MetaRegisterNode, RegisterNode{RequestID: id, Node: n, ClusterID: clusterID})
	}
	mustReject(t, try("cluster", "d", func(*NodeInfo) {}), sqlstate.ObjectNotInState)
	mustReject(t, try("directory", "c", func(n *NodeInfo) { n.Incarnation = "other" }), sqlstate.ObjectNotInState)
	mustReject(t, try("address", "c", func(n *NodeInfo) { n.RaftAddress = "h3:1" }), sqlstate.ObjectNotInState)
	mustReject(t, try("flight", "c", func(n *NodeInfo) { n.FlightAddress = "h1:2" }), sqlstate.ObjectNotInState)
	mustAccept(t, try("moved", "c", func(n *NodeInfo) {
		n.RaftAddress, n.Zone, n.Version, n.State, n.Voter = "elsewhere:1", "z", "v2", NodeRemoved, true
	}))
	n, _ := s.snapshot().Node(2)
	if n.RaftAddress != "elsewhere:1" || n.Zone != "z" || n.State != NodeActive || n.Voter {
		t.Errorf("registered as %+v", n)
	}
	if got := again(t, s).snapshot(); got.ClusterID != "c" || len(got.Nodes) != 3 || got.Nodes[1] != n {
		t.Errorf("read back: %+v", got)
	}
}

func TestNodeStates(t *testing.T) {
	s := newMetaState()
	registerNodes(t, s, 1, 2)
	n := 0
	set := func(node catalog.NodeID, state NodeState) metaAnswer {
		n++
		return applyTo(t, s, MetaSetNodeState, SetNodeState{RequestID: fmt.Sprint(n), Node: node, State: state})
	}
	mustReject(t, set(9, NodeDraining), sqlstate.UndefinedObject)
	mustReject(t, set(1, NodeJoining), sqlstate.ObjectNotInState)
	mustReject(t, set(1, "broken"), sqlstate.ObjectNotInState)
	mustAccept(t, set(1, NodeDraining))
	registered := nodeAt(1)
	registered.Version = "next"
	mustAccept(t, applyTo(t, s, MetaRegisterNode, RegisterNode{RequestID: "restart", Node: registered}))
	if got, _ := s.snapshot().Node(1); got.State != NodeDraining {
		t.Errorf("a restart made node 1 %q", got.State)
	}
	table := mustAccept(t, applyTo(t, s, MetaCreateTable, CreateTable{RequestID: "t", Table: plainTable("t", 1)})).Table
	if on := table.Tablets[0].Replicas[0].Node; on != 2 {
		t.Errorf("a new replica was placed on draining node %d", on)
	}
	mustReject(t, set(2, NodeRemoved), sqlstate.ObjectInUse)
	mustAccept(t, set(1, NodeActive))
	mustAccept(t, set(1, NodeRemoved))
	mustAccept(t, set(1, NodeRemoved))
	mustReject(t, set(1, NodeActive), sqlstate.ObjectNotInState)
	mustReject(t, applyTo(t, s, MetaRegisterNode, RegisterNode{RequestID: "back", Node: nodeAt(1)}), sqlstate.ObjectNotInState)
	mustReject(t, applyTo(t, s, MetaHeartbeat, Heartbeat{Node: 1, UnixMS: 1}), sqlstate.ObjectNotInState)
	mustAccept(t, applyTo(t, s, MetaDropTable, DropTable{RequestID: "drop", ID: table.ID}))
	mustReject(t, set(2, NodeRemoved), sqlstate.ObjectInUse) // the last one
}

func TestHeartbeatsChangeNoVersion(t *testing.T) {
	s := newMetaState()
	registerNodes(t, s, 1)
	version := s.counters.Version
	for _, at := range []int64{10, 30, 20} {
		mustAccept(t, applyTo(t, s, MetaHeartbeat, Heartbeat{Node: 1, UnixMS: at, Applied: uint64(at)}))
	}
	mustReject(t, applyTo(t, s, MetaHeartbeat, Heartbeat{Node: 2, UnixMS: 1}), sqlstate.UndefinedObject)
	got := again(t, s).snapshot()
	if got.Version != version || got.Seen[1].UnixMS != 30 {
		t.Errorf("version %d after %d, seen %+v", got.Version, version, got.Seen)
	}
}

func TestJoinTokens(t *testing.T) {
	s := newMetaState()
	registerNodes(t, s, 1, 2)
	const now = 1_000_000
	hash := func(text string) []byte { h := sha256.Sum256([]byte(text)); return h[:] }
	n := 0
	add := func(id uint64, life time.Duration, uses int) metaAnswer {
		n++
		return applyTo(t, s, MetaAddToken, AddToken{
			RequestID: fmt.Sprint("add", n), UnixMS: now,
			Token: JoinToken{ID: id, Hash: hash(fmt.Sprint(id)), ExpiresUnixMS: now + life.Milliseconds(), Uses: uses},
		})
	}
	redeem := func(request string, id uint64, text string, at int64, node NodeInfo) metaAnswer {
		return applyTo(t, s, MetaRedeemToken, RedeemToken{RequestID: request, ID: id, Hash: hash(text), UnixMS: at, Node: node})
	}
	stranger := func(at int) NodeInfo {
		node := nodeAt(at)
		node.ID = 0
		return node
	}
	mustReject(t, add(1, 0, 1), sqlstate.InvalidParameter)
	mustReject(t, add(1, MaxTokenLife+time.Second, 1), sqlstate.InvalidParameter)
	mustReject(t, add(1, time.Hour, 0), sqlstate.InvalidParameter)
	mustAccept(t, add(1, time.Hour, 1))
	mustReject(t, add(1, time.Hour, 1), sqlstate.InvalidParameter)
	mustAccept(t, add(2, time.Minute, 2))

	mustReject(t, redeem("forged", 1, "wrong", now, stranger(7)), sqlstate.InvalidAuthorization)
	mustReject(t, redeem("expired", 2, "2", now+time.Hour.Milliseconds(), stranger(7)), sqlstate.InvalidAuthorization)
	mustReject(t, redeem("taken id", 2, "2", now, nodeAt(2)), sqlstate.ObjectNotInState)
	same := stranger(7)
	same.RaftAddress = "h1:1"
	mustReject(t, redeem("taken address", 2, "2", now, same), sqlstate.ObjectNotInState)
	first := mustAccept(t, redeem("a", 1, "1", now, stranger(7)))
	if first.Node == nil || first.Node.ID != 3 || first.Node.State != NodeJoining {
		t.Fatalf("joined as %+v", first.Node)
	}
	if repeat := mustAccept(t, redeem("a", 1, "1", now, stranger(7))); repeat.Node.ID != 3 {
		t.Errorf("a repeated request joined as %+v", repeat.Node)
	}
	mustReject(t, redeem("b", 1, "1", now, stranger(8)), sqlstate.InvalidAuthorization)
	if second := mustAccept(t, redeem("c", 2, "2", now, nodeAt(9))); second.Node.ID != 9 {
		t.Errorf("joined as %+v", second.Node)
	}
	// An id is not given out again, not even the highest one.
	mustAccept(t, applyTo(t, s, MetaSetNodeState, SetNodeState{RequestID: "remove", Node: 9, State: NodeRemoved}))
	mustReject(t, redeem("d", 2, "2", now, nodeAt(9)), sqlstate.ObjectNotInState)
	if third := mustAccept(t, redeem("e", 2, "2", now, stranger(10))); third.Node.ID != 10 {
		t.Errorf("joined as %+v", third.Node)
	}
	if got := again(t, s); len(got.tokens) != 2 || got.tokens[0].Uses != 0 || got.nextNode() != 11 {
		t.Errorf("read back: %+v, next node %d", got.tokens, got.nextNode())
	}
}

func TestSettings(t *testing.T) {
	s := newMetaState()
	n := 0
	set := func(name, value string, reset bool) metaAnswer {
		n++
		return applyTo(t, s, MetaSetSetting, SetSetting{RequestID: fmt.Sprint(n), Name: name, Value: value, Reset: reset})
	}
	if got := s.snapshot().SettingInt(SettingMetaVoters); got != 3 {
		t.Errorf("the default is %d", got)
	}
	before := s.snapshot()
	version := mustAccept(t, set(SettingMetaVoters, "5", false)).Version
	if same := mustAccept(t, set(SettingMetaVoters, "5", false)).Version; same != version {
		t.Errorf("version %d after %d without a change", same, version)
	}
	mustReject(t, set(SettingMetaVoters, "4", false), sqlstate.InvalidParameter)
	mustReject(t, set("nope", "1", false), sqlstate.UndefinedObject)
	for _, secret := range []string{"S3_Secret", "admin_password", "api_key", "join-token"} {
		mustReject(t, set(secret, "x", false), sqlstate.InvalidParameter)
	}
	if got := again(t, s).snapshot(); got.SettingInt(SettingMetaVoters) != 5 || len(before.Settings) != 0 {
		t.Errorf("read back %v, an earlier snapshot has %v", got.Settings, before.Settings)
	}
	mustAccept(t, set(SettingMetaVoters, "", true))
	if got := s.snapshot(); got.Setting(SettingMetaVoters) != "3" || len(got.Settings) != 0 {
		t.Errorf("after a reset: %v", got.Settings)
	}
	for _, known := range Settings() {
		if checked, err := known.check(known.Default); err != nil || checked != known.Default || refusesSecret(known.Name) != nil {
			t.Errorf("default of %s: %q, %v", known.Name, checked, err)
		}
	}
}

func TestSettingValues(t *testing.T) {
	for _, tc := range []struct {
		check    func(string) (string, error)
		in, want string // "" for refused
	}{
		{boolValue, "T", "true"}, {boolValue, "maybe", ""},
		{intValue(1, 10), "010", "10"}, {intValue(1, 10), "11", ""}, {intValue(1, 10), "x", ""},
		{durationValue(time.Second, time.Hour), "90s", "1m30s"}, {durationValue(time.Second, time.Hour), "1ms", ""},
	} {
		got, err := tc.check(tc.in)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%q: %q, %v", tc.in, got, err)
		}
	}
}

// TestNewTablesAvoidSilentNodes, in the emptiest zone, too, as long as there are
// enough others, and are refused where most of their replicas would be on such.
func TestNewTablesAvoidSilentNodes(t *testing.T) {
	s := stateWithNodes(t, 4)
	lost := s.nodes[4]
	lost.Zone = "far"
	s.putNode(lost)
	beat := func(rounds int, nodes ...catalog.NodeID) {
		for range rounds {
			for _, node := range nodes {
				// Clocks that differ by far mean nothing.
				mustAccept(t, applyTo(t, s, MetaHeartbeat, Heartbeat{Node: node, UnixMS: 1_000_000 * int64(node)}))
			}
		}
	}
	create := func(name string, replicas int) metaAnswer {
		return applyTo(t, s, MetaCreateTable, CreateTable{RequestID: name, Table: plainTable(name, replicas)})
	}
	nodes := func(a metaAnswer) []catalog.NodeID { return sortedNodes(&mustAccept(t, a).Table.Tablets[0]) }
	beat(1, 4, 1, 2, 3)
	beat(int(silentBeats)-2, 1, 2, 3)
	if got := nodes(create("heard", 3)); !slices.Contains(got, 4) {
		t.Fatalf("the replicas are on %v", got)
	}
	beat(1, 1, 2, 3)
	s = again(t, s) // as after a restart
	for i := range 3 {
		if got := nodes(create(fmt.Sprint("silent", i), 3)); !slices.Equal(got, []catalog.NodeID{1, 2, 3}) {
			t.Fatalf("the replicas are on %v", got)
		}
	}
	all := mustAccept(t, create("all", 4)).Table.Tablets[0].Replicas
	if all[3].Node != 4 {
		t.Fatalf("the silent node is not the last of %v", all)
	}
	beat(2*int(silentBeats), 1)
	mustReject(t, create("most are away", 3), sqlstate.CannotConnectNow)
	if got := nodes(create("one", 1)); !slices.Equal(got, []catalog.NodeID{1}) {
		t.Fatalf("the replica is on %v", got)
	}
	beat(int(silentBeats), 1, 4)
	if got := nodes(create("back", 2)); !slices.Equal(got, []catalog.NodeID{1, 4}) {
		t.Fatalf("the replicas are on %v", got)
	}
}
