package system

import (
	"fmt"
	"strings"
	"time"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
)

// nodesTable has a row per worker that the cluster has or had; what only the
// worker itself knows is NULL while it does not answer.
var nodesTable = define("nodes", fillNodes,
	number("node_id"), text("state"), text("zone"), text("version"), text("flight_address"), text("raft_address"), flag("reachable"),
	moment("last_seen"), number("tablets"), number("leaders"), number("bytes"), number("capacity_bytes"), number("metadata_version"),
	text("meta_role"), number("meta_applied"), number("meta_lag"),
	number("fragments"), number("queries"), number("write_streams"), number("memory_bytes"))

func fillNodes(s *State, r *rows) {
	placed := make(map[catalog.NodeID]int)
	for _, t := range s.Meta.Tables {
		for i := range t.Tablets {
			for _, replica := range t.Tablets[i].Replicas {
				placed[replica.Node]++
			}
		}
	}
	var furthest uint64
	for _, w := range s.Status {
		furthest = max(furthest, w.MetaApplied)
	}
	for _, n := range s.Meta.Nodes {
		values := []any{
			n.ID, string(n.Status()), orNull(n.Zone), orNull(n.Version), n.FlightAddress, n.RaftAddress, false,
			s.lastSeen(n.ID), placed[n.ID], nil, nil, positive(n.Capacity), nil,
			s.metaRole(n), nil, nil,
			nil, nil, nil, nil,
		}
		if w := s.worker(n.ID); w != nil {
			leaders, bytes := s.holds(w)
			values[6] = true
			values[9], values[10], values[12] = leaders, bytes, w.MetadataVersion
			values[14], values[15] = w.MetaApplied, furthest-w.MetaApplied
			values[16], values[17], values[18], values[19] = w.Fragments, w.Queries, w.Writes, w.MemoryBytes
		}
		r.add(values...)
	}
}

// holds counts the tablets that a worker leads and the bytes of its replicas.
func (s *State) holds(w *flightproto.WorkerStatus) (leaders int, bytes uint64) {
	for _, t := range w.Tablets {
		bytes += t.Bytes
		if t.Leader == w.Node {
			leaders++
		}
	}
	return leaders, bytes
}

// lastSeen is the newest heartbeat of a node that any worker knows, nil for none.
func (s *State) lastSeen(id catalog.NodeID) any {
	newest := s.Meta.Seen[id].UnixMS
	for _, w := range s.Status {
		newest = max(newest, w.Seen[id])
	}
	if newest == 0 {
		return nil
	}
	return time.UnixMilli(newest)
}

// metaRole is what a node is in the meta group.
func (s *State) metaRole(n consensus.NodeInfo) any {
	w := s.worker(n.ID)
	switch {
	case n.State == consensus.NodeRemoved:
		return nil
	case w != nil && w.MetaLeader == n.ID:
		return "leader"
	case n.Voter:
		return "voter"
	}
	return "follower"
}

// positive is a number, nil for 0.
func positive(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// rangesTable has a row per tablet with what of its table it holds and where.
var rangesTable = define("ranges", fillRanges,
	text("table_schema"), text("table_name"), number("tablet_id"), text("partitioning"), text("range_low"), text("range_high"),
	number("leader_node"), text("replica_nodes"), number("row_count"), number("bytes"), number("applied_index"), number("lag"))

func fillRanges(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for i := range t.Tablets {
			tablet := &t.Tablets[i]
			low, high := bound(t, tablet.KeyLow), bound(t, tablet.KeyHigh)
			if t.Partitioning.Buckets > 0 {
				low, high = fmt.Sprint(tablet.BucketLow), fmt.Sprint(tablet.BucketHigh)
			}
			nodes := make([]string, len(tablet.Replicas))
			for i, replica := range tablet.Replicas {
				nodes[i] = fmt.Sprint(uint64(replica.Node))
			}
			var leader, count, bytes, applied, lag any
			if node := s.leader(tablet); node != 0 {
				leader = node
			}
			if best := s.furthest(tablet); best != nil {
				count, bytes, applied, lag = best.Rows, best.Bytes, best.Applied, s.lag(tablet, best.Applied)
			}
			r.add(t.Schema, t.Name, tablet.ID, string(t.Partitioning.Kind), low, high, leader, strings.Join(nodes, ", "), count, bytes, applied, lag)
		}
	}
}

// lag is by how many entries of the log the replica that has applied least is
// behind, of those that are heard of.
func (s *State) lag(t *catalog.Tablet, furthest uint64) uint64 {
	var lag uint64
	for _, replica := range t.Replicas {
		if status := s.replica(replica.Node, t.ID); status != nil {
			lag = max(lag, furthest-status.Applied)
		}
	}
	return lag
}

// settingsTable has a row per setting of the whole cluster.
var settingsTable = define("settings", fillClusterSettings, text("name"), text("value"), text("default_value"), flag("is_set"), text("description"))

func fillClusterSettings(s *State, r *rows) {
	for _, known := range consensus.Settings() {
		_, set := s.Meta.Settings[known.Name]
		r.add(known.Name, s.Meta.Setting(known.Name), known.Default, set, known.Description)
	}
}
