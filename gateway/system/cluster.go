package system

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/consensus"
	"skein/flightproto"
)

func (s *State) worker(id catalog.NodeID) *flightproto.WorkerStatus {
	for _, w := range s.Status {
		if w.Node == id {
			return w
		}
	}
	return nil
}

// tabletsTable has a row per tablet, with the size that the replica which has
// applied most tells.
var tabletsTable = define("tablets", fillTablets,
	number("tablet_id"), text("table_schema"), text("table_name"), number("generation"), number("bucket_low"), number("bucket_high"),
	text("key_low"), text("key_high"), number("leader_node"), number("replicas"), number("row_count"), number("bytes"),
	text("state"))

// jobStates are the states of tablets that have a job; others are active.
var jobStates = map[consensus.JobKind]string{consensus.JobSplit: "splitting", consensus.JobMerge: "merging", consensus.JobMove: "moving"}

func fillTablets(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for i := range t.Tablets {
			tablet := &t.Tablets[i]
			var low, high, leader, count, bytes any
			if t.Partitioning.Buckets > 0 {
				low, high = tablet.BucketLow, tablet.BucketHigh
			}
			if best := s.furthest(tablet); best != nil {
				count, bytes = best.Rows, best.Bytes
			}
			if node := s.leader(tablet); node != 0 {
				leader = node
			}
			state := "active"
			if job, ok := s.Meta.JobOf(tablet.ID); ok {
				state = jobStates[job.Kind]
			}
			r.add(tablet.ID, t.Schema, t.Name, tablet.Generation, low, high,
				bound(t, tablet.KeyLow), bound(t, tablet.KeyHigh), leader, len(tablet.Replicas), count, bytes, state)
		}
	}
}

// replicasTable has a row per replica of a tablet, those that are on their way to or
// from a node included. A replica's lag is how many entries of the Raft log it has not
// applied that the leader has.
var replicasTable = define("replicas", fillReplicas,
	number("tablet_id"), number("replica_id"), number("node_id"), text("role"), number("applied_index"), number("lag"),
	number("row_count"), number("bytes"))

func fillReplicas(s *State, r *rows) {
	for _, t := range s.Meta.Tables {
		for i := range t.Tablets {
			tablet := s.Meta.Running(&t.Tablets[i])
			leader := s.leader(tablet)
			var ahead *flightproto.TabletStatus
			if leader != 0 {
				ahead = s.replica(leader, tablet.ID)
			}
			for _, replica := range tablet.Replicas {
				status := s.replica(replica.Node, tablet.ID)
				if status == nil {
					r.add(tablet.ID, replica.ID, replica.Node, nil, nil, nil, nil, nil)
					continue
				}
				var lag any
				if ahead != nil {
					lag = max(ahead.Applied, status.Applied) - status.Applied
				}
				r.add(tablet.ID, replica.ID, replica.Node, s.role(tablet.ID, replica, leader), status.Applied, lag, status.Rows, status.Bytes)
			}
		}
	}
}

// role is what a replica is to its group.
func (s *State) role(tablet catalog.TabletID, replica catalog.Replica, leader catalog.NodeID) string {
	move, moving := s.Meta.Move(tablet)
	switch {
	case replica.Node == leader:
		return "leader"
	case moving && move.New.ID == replica.ID && (move.Phase == consensus.MoveJoining || move.Phase == consensus.MovePromoting):
		return "learner"
	}
	return "follower"
}

// replica is what a worker tells of its replica of a tablet.
func (s *State) replica(node catalog.NodeID, tablet catalog.TabletID) *flightproto.TabletStatus {
	w := s.worker(node)
	if w == nil {
		return nil
	}
	for i := range w.Tablets {
		if w.Tablets[i].Tablet == tablet {
			return &w.Tablets[i]
		}
	}
	return nil
}

// furthest is the status of the replica that has applied most.
func (s *State) furthest(t *catalog.Tablet) *flightproto.TabletStatus {
	var best *flightproto.TabletStatus
	for _, replica := range t.Replicas {
		if status := s.replica(replica.Node, t.ID); status != nil && (best == nil || status.Applied > best.Applied) {
			best = status
		}
	}
	return best
}

// leader is the node that says of itself that it leads a tablet, 0 for none.
func (s *State) leader(t *catalog.Tablet) catalog.NodeID {
	for _, replica := range t.Replicas {
		if status := s.replica(replica.Node, t.ID); status != nil && status.Leader == replica.Node {
			return replica.Node
		}
	}
	return 0
}

// bound is a bound of a tablet's keys as text, nil for unbounded.
func bound(t *catalog.Table, key []byte) any {
	if len(key) == 0 {
		return nil
	}
	types := make([]arrow.DataType, 0, len(t.Partitioning.Columns))
	for _, c := range t.Partitioning.Columns {
		types = append(types, t.Columns[c].Type)
	}
	values, err := catalog.KeyText(types, key)
	if err != nil {
		return fmt.Sprintf("%x", key) // not a whole key, as a split in the middle of one may be
	}
	return strings.Join(values, ", ")
}
