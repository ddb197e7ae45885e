package consensus

import (
	"context"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands about the cluster's nodes. Each has a JSON request below and answers
// a TableReply.
const (
	MetaSetNodeState = "set_node_state" // SetNodeState
	MetaSetSeat      = "set_seat"       // SetSeat
	MetaHeartbeat    = "heartbeat"      // Heartbeat
)

// NodeState is where a node is in its life. Records of earlier releases have
// none, which stands for NodeActive.
type NodeState string

// A node joins, becomes active when it registers itself, may be drained and
// activated again, and is removed for good.
const (
	NodeJoining  NodeState = "joining"
	NodeActive   NodeState = "active"
	NodeDraining NodeState = "draining"
	NodeRemoved  NodeState = "removed"
)

// NodeInfo is what the cluster knows of one worker. The record of a removed one
// stays, so that its id is never given out again.
type NodeInfo struct {
	ID            catalog.NodeID `json:"id"`
	RaftAddress   string         `json:"raft_address"`
	FlightAddress string         `json:"flight_address"`
	Zone          string         `json:"zone,omitempty"`
	Capacity      int64          `json:"capacity,omitempty"` // bytes of the data directory's volume, 0 for unknown
	Version       string         `json:"version,omitempty"`  // of its build
	// Incarnation tells the node's directory from one that was made anew for the
	// same id. It is made up when the directory is provisioned.
	Incarnation string `json:"incarnation,omitempty"`
	// The following are the meta group's, and ignored in a registration.
	State NodeState `json:"state,omitempty"`
	// Voter has a vote in the meta group; the others follow it.
	Voter bool `json:"voter,omitempty"`
}

// Status is the node's state, NodeActive where the record has none.
func (n NodeInfo) Status() NodeState {
	if n.State == "" {
		return NodeActive
	}
	return n.State
}

// told is the part of a record that the node itself tells.
func (n NodeInfo) told() NodeInfo {
	n.State, n.Voter = "", false
	return n
}

// NodeAt is the node that has registered a Flight address, 0 for none.
func (s *MetaSnapshot) NodeAt(address string) catalog.NodeID {
	for _, n := range s.InUse() {
		if n.FlightAddress == address {
			return n.ID
		}
	}
	return 0
}

// InUse lists the nodes that were not removed.
func (s *MetaSnapshot) InUse() []NodeInfo {
	list := make([]NodeInfo, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.State != NodeRemoved {
			list = append(list, n)
		}
	}
	return list
}

// RegisterNode announces a worker, or what has changed about it.
type RegisterNode struct {
	RequestID string   `json:"request_id"`
	Node      NodeInfo `json:"node"`
	// ClusterID is the id in the node's directory, "" for one that was provisioned
	// by a release that had none. The first registration with one sets it.
	ClusterID string `json:"cluster_id,omitempty"`
}

// SetNodeState moves a node between NodeActive and NodeDraining, or removes it.
type SetNodeState struct {
	RequestID string         `json:"request_id"`
	Node      catalog.NodeID `json:"node"`
	State     NodeState      `json:"state"`
}

// SetSeat records whether a node votes in the meta group, after its Raft group
// has decided so.
type SetSeat struct {
	RequestID string         `json:"request_id"`
	Node      catalog.NodeID `json:"node"`
	Voter     bool           `json:"voter"`
}

// Heartbeat says that a node was there at a time of its clock. It changes no
// version, and is not remembered: one is as good as another.
type Heartbeat struct {
	Node    catalog.NodeID `json:"node"`
	UnixMS  int64          `json:"unix_ms"`
	Applied uint64         `json:"applied"` // by its replica of the meta group
	// Order is the heartbeat's number among those of all nodes. The meta group sets it.
	Order uint64 `json:"order,omitempty"`
}

// RegisterNode announces a node. SQLSTATE 55000 refuses one that was removed,
// one of another cluster and another directory under the id of a known node.
func (m *Meta) RegisterNode(ctx context.Context, r RegisterNode) (TableReply, error) {
	return m.command(ctx, MetaRegisterNode, r)
}

// SetNodeState drains, activates or removes a node. SQLSTATE 42704 says that
// there is none, 55000 that the step is not possible from its state, 55006 that a
// node to be removed still has replicas.
func (m *Meta) SetNodeState(ctx context.Context, r SetNodeState) (TableReply, error) {
	return m.command(ctx, MetaSetNodeState, r)
}

func (m *Meta) setSeat(ctx context.Context, r SetSeat) (TableReply, error) {
	return m.command(ctx, MetaSetSeat, r)
}

func (m *Meta) heartbeat(ctx context.Context, r Heartbeat) error {
	_, err := m.command(ctx, MetaHeartbeat, r)
	return err
}

// applyMembership runs the commands about nodes, join tokens and settings.
func (s *metaState) applyMembership(c MetaCommand) (string, metaAnswer) {
	switch c.Command {
	case MetaSetNodeState:
		return dispatch(s, c.Body, func(r *SetNodeState) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.setNodeState(r) }
		})
	case MetaSetSeat:
		return dispatch(s, c.Body, func(r *SetSeat) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.setSeat(r) }
		})
	case MetaHeartbeat:
		return "", s.heartbeat(c.Body)
	case MetaAddToken:
		return dispatch(s, c.Body, func(r *AddToken) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.addToken(r) }
		})
	case MetaRedeemToken:
		return dispatch(s, c.Body, func(r *RedeemToken) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.redeemToken(r) }
		})
	}
	return dispatch(s, c.Body, func(r *SetSetting) (string, func() metaAnswer) {
		return r.RequestID, func() metaAnswer { return s.setSetting(r) }
	})
}

func (s *metaState) registerNode(r *RegisterNode) metaAnswer {
	n := r.Node.told()
	if n.ID == 0 || n.RaftAddress == "" {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a node needs an id and a Raft address"))
	}
	known, old := s.nodes[n.ID]
	switch {
	case r.ClusterID != "" && s.clusterID != "" && r.ClusterID != s.clusterID:
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "node %d belongs to cluster %s, this is %s", n.ID, r.ClusterID, s.clusterID).
			WithHint("Start it with its own cluster's addresses."))
	case old && known.State == NodeRemoved:
		return rejected(nodeRemoved(n.ID))
	case old && known.Incarnation != "" && known.Incarnation != n.Incarnation:
		return rejected(sqlstate.New(sqlstate.ObjectNotInState,
			"node %d is known with another data directory than the one it was started with", n.ID).
			WithHint("If that directory is lost, remove the node and join a new one under another id."))
	}
	if taken, by := s.addressOwner(n); taken != "" {
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "node %d has the address %s, which is that of node %d", n.ID, taken, by))
	}
	n.State, n.Voter = NodeActive, known.Voter
	if known.State == NodeDraining {
		n.State = NodeDraining
	}
	if r.ClusterID != "" && s.clusterID == "" {
		s.clusterID = r.ClusterID
		s.counters.Version++
		s.write(recordCluster, 0, s.clusterID)
	}
	if known != n {
		s.counters.Version++
		s.putNode(n)
	}
	return s.accepted(nil)
}

// addressOwner finds a node in use that has one of another's addresses.
func (s *metaState) addressOwner(n NodeInfo) (address string, owner catalog.NodeID) {
	for _, other := range s.nodeList() {
		switch {
		case other.ID == n.ID || other.State == NodeRemoved:
		case other.RaftAddress == n.RaftAddress:
			return n.RaftAddress, other.ID
		case other.FlightAddress == n.FlightAddress && n.FlightAddress != "":
			return n.FlightAddress, other.ID
		}
	}
	return "", 0
}

func nodeRemoved(id catalog.NodeID) *sqlstate.Error {
	return sqlstate.New(sqlstate.ObjectNotInState, "node %d was removed from the cluster", id).
		WithHint("Its id is not given out again. Join its machine as a new node, with an empty data directory.")
}

func (s *metaState) putNode(n NodeInfo) {
	s.nodes[n.ID] = n
	s.counters.NextNode = max(s.counters.NextNode, n.ID+1)
	s.write(recordNode, uint64(n.ID), n)
}

// nodeNamed returns the record of a node that was not removed.
func (s *metaState) nodeNamed(id catalog.NodeID) (NodeInfo, *sqlstate.Error) {
	n, ok := s.nodes[id]
	switch {
	case !ok:
		return n, sqlstate.New(sqlstate.UndefinedObject, "node %d does not exist", id)
	case n.State == NodeRemoved:
		return n, nodeRemoved(id)
	}
	return n, nil
}

func (s *metaState) setNodeState(r *SetNodeState) metaAnswer {
	n, err := s.nodeNamed(r.Node)
	if err != nil {
		if r.State == NodeRemoved && n.State == NodeRemoved {
			return s.accepted(nil) // as asked
		}
		return rejected(err)
	}
	from := n.Status()
	switch {
	case r.State == from:
		return s.accepted(nil)
	case r.State == NodeRemoved:
		if err := s.removable(n); err != nil {
			return rejected(err)
		}
		delete(s.seen, n.ID)
		s.dirty[recordKey(recordSeen, uint64(n.ID))] = nil
		delete(s.reports, n.ID)
		s.dirty[recordKey(recordReport, uint64(n.ID))] = nil
	case r.State == NodeDraining && from != NodeJoining:
		if err := s.drainable(n); err != nil {
			return rejected(err)
		}
	case r.State == NodeActive && from != NodeJoining:
	default:
		return rejected(sqlstate.New(sqlstate.ObjectNotInState, "node %d is %s and cannot become %q", n.ID, from, string(r.State)))
	}
	n.State = r.State
	s.counters.Version++
	s.putNode(n)
	return s.accepted(nil)
}

// removable refuses the removal of a node that the cluster cannot do without.
func (s *metaState) removable(n NodeInfo) *sqlstate.Error {
	held := 0
	for _, t := range s.tableList() {
		for i := range t.Tablets {
			if hosts(&t.Tablets[i], n.ID) {
				held++
			}
		}
	}
	for _, m := range s.moves {
		if m.New.Node == n.ID || m.Old.Node == n.ID {
			held++
		}
	}
	if held > 0 {
		return sqlstate.New(sqlstate.ObjectInUse, "node %d still has replicas of %d tablets", n.ID, held).
			WithHint("Drain it first.")
	}
	for _, other := range s.nodes {
		if other.ID != n.ID && (other.Status() == NodeActive || other.State == NodeDraining) {
			return nil
		}
	}
	return sqlstate.New(sqlstate.ObjectInUse, "node %d is the cluster's only one", n.ID)
}

func (s *metaState) setSeat(r *SetSeat) metaAnswer {
	n, ok := s.nodes[r.Node]
	if !ok {
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "node %d does not exist", r.Node))
	}
	if n.Voter != r.Voter {
		n.Voter = r.Voter
		s.counters.Version++
		s.putNode(n)
	}
	return s.accepted(nil)
}

func (s *metaState) heartbeat(body []byte) metaAnswer {
	var r Heartbeat
	if err := decodeStrict(body, &r); err != nil {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "malformed request: %w", err))
	}
	if _, err := s.nodeNamed(r.Node); err != nil {
		return rejected(err)
	}
	s.counters.Beats++
	if last := s.seen[r.Node]; r.UnixMS < last.UnixMS { // it was under way for long, or the clock was set
		r = last
	}
	r.Order = s.counters.Beats
	s.seen[r.Node] = r
	s.write(recordSeen, uint64(r.Node), r)
	s.write(recordCounters, 0, s.counters)
	return s.accepted(nil)
}

// silentBeats is how many heartbeats the others give, each, until a node that gives
// none is taken for silent: about silentAfter.
const silentBeats = uint64(silentAfter / heartbeatEvery)

// silent reports whether a node that used to be heard has not been for a while. The
// heartbeats of the others are the clock: all replicas of the state have that alike,
// and nobody's time of day matters.
func (s *metaState) silent(node catalog.NodeID) bool {
	last, ok := s.seen[node]
	if !ok {
		return false
	}
	heard := uint64(0) // since then
	for _, other := range s.seen {
		if other.Order > last.Order {
			heard++
		}
	}
	return heard > 0 && s.counters.Beats-last.Order >= silentBeats*heard
}

// placeable are the nodes that new replicas may be placed on.
func (s *metaState) placeable() []NodeInfo {
	var list []NodeInfo
	for _, n := range s.nodeList() {
		if n.Status() == NodeActive {
			list = append(list, n)
		}
	}
	return list
}
