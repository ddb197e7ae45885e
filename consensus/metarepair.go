package consensus

import (
	"context"
	"slices"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands that replace a damaged replica by a new one on the same node. Each
// has a JSON request below and answers a TableReply.
const (
	MetaRepairReplica = "repair_replica" // RepairReplica
	MetaAskRepair     = "ask_repair"     // AskRepair
	MetaVouchRepair   = "vouch_repair"   // VouchRepair
	MetaFinishRepair  = "finish_repair"  // FinishRepair
)

// Repair is the replacement of one replica that is under way. A tablet has one
// at a time.
type Repair struct {
	Table  catalog.TableID  `json:"table"`
	Tablet catalog.TabletID `json:"tablet"`
	Node   catalog.NodeID   `json:"node"`
	Old    uint64           `json:"old"` // Raft replica ids
	New    uint64           `json:"new"`
	Cause  string           `json:"cause"`
	Vouching
}

// RepairReplica says that a replica is damaged and asks for another in its
// place. The new one's id is assigned at once; the tablet's description changes
// with FinishRepair.
type RepairReplica struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	Replica   uint64           `json:"replica"`
	Cause     string           `json:"cause"`
}

// AskRepair opens the next round of vouching after round Round.
type AskRepair struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	Round     uint64           `json:"round"`
}

// VouchRepair says that a replica is well and in touch with its group.
type VouchRepair struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
	Round     uint64           `json:"round"`
	Replica   uint64           `json:"replica"`
}

// FinishRepair puts the new replica into the tablet's description, after the
// Raft group has taken it for the old one.
type FinishRepair struct {
	RequestID string           `json:"request_id"`
	Tablet    catalog.TabletID `json:"tablet"`
	New       uint64           `json:"new"`
}

// RepairReplica asks for the replacement of a damaged replica. SQLSTATE XX001
// says that there is no other to rebuild it from, 55006 that another one of the
// tablet is being replaced.
func (m *Meta) RepairReplica(ctx context.Context, r RepairReplica) (TableReply, error) {
	return m.command(ctx, MetaRepairReplica, r)
}

// AskRepair opens a round of vouching.
func (m *Meta) AskRepair(ctx context.Context, r AskRepair) (TableReply, error) {
	return m.command(ctx, MetaAskRepair, r)
}

// VouchRepair vouches for a replica.
func (m *Meta) VouchRepair(ctx context.Context, r VouchRepair) (TableReply, error) {
	return m.command(ctx, MetaVouchRepair, r)
}

// FinishRepair ends a repair.
func (m *Meta) FinishRepair(ctx context.Context, r FinishRepair) (TableReply, error) {
	return m.command(ctx, MetaFinishRepair, r)
}

// Repair returns the repair of a tablet that is under way.
func (s *MetaSnapshot) Repair(tablet catalog.TabletID) (Repair, bool) {
	for _, r := range s.Repairs {
		if r.Tablet == tablet {
			return r, true
		}
	}
	return Repair{}, false
}

// tabletRecord finds the table that a tablet belongs to, of which there is one
// at most.
func (s *metaState) tabletRecord(id catalog.TabletID) (*tableRecord, int) {
	for _, record := range s.tables {
		for i := range record.Table.Tablets {
			if record.Table.Tablets[i].ID == id {
				return record, i
			}
		}
	}
	return nil, 0
}

func (s *metaState) repairReplica(r *RepairReplica) metaAnswer {
	record, at := s.tabletRecord(r.Tablet)
	if record == nil {
		return rejected(sqlstate.New(sqlstate.UndefinedTable, "tablet %d does not exist", r.Tablet))
	}
	replicas := record.Table.Tablets[at].Replicas
	i := slices.IndexFunc(replicas, func(known catalog.Replica) bool { return known.ID == r.Replica })
	if _, moving := s.moves[r.Tablet]; moving {
		return rejected(sqlstate.New(sqlstate.ObjectInUse, "a replica of tablet %d is being moved", r.Tablet).
			WithHint("Retry when that is done."))
	}
	switch under, repairing := s.repairs[r.Tablet]; {
	case i < 0:
		return rejected(sqlstate.New(sqlstate.UndefinedObject, "tablet %d has no replica %d", r.Tablet, r.Replica))
	case repairing && under.Old == r.Replica:
		return s.accepted(record.Table)
	case repairing:
		return rejected(sqlstate.New(sqlstate.ObjectInUse, "replica %d of tablet %d is being replaced", under.Old, r.Tablet).
			WithHint("Retry when that is done."))
	case len(replicas) == 1:
		return rejected(sqlstate.New(sqlstate.DataCorrupted, "tablet %d of table %s has no other replica to be rebuilt from",
			r.Tablet, record.Table.QualifiedName()).WithHint("Load the table again, with three replicas."))
	}
	s.counters.Version++
	s.putRepair(Repair{
		Table: record.Table.ID, Tablet: r.Tablet, Node: replicas[i].Node, Old: r.Replica, New: s.counters.NextReplica, Cause: r.Cause,
	})
	s.counters.NextReplica++
	return s.accepted(record.Table)
}

// repair finds the repair that a request is about.
func (s *metaState) repair(tablet catalog.TabletID, replica uint64) (Repair, *sqlstate.Error) {
	under, ok := s.repairs[tablet]
	if !ok || under.New != replica {
		return under, sqlstate.New(sqlstate.UndefinedObject, "no repair of tablet %d by replica %d is under way", tablet, replica)
	}
	return under, nil
}

func (s *metaState) askRepair(r *AskRepair) metaAnswer {
	under, err := s.repair(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	if opened, ok := under.open(r.Round); ok {
		under.Vouching = opened
		s.stirred = true
		s.putRepair(under)
	}
	return s.accepted(nil)
}

func (s *metaState) vouchRepair(r *VouchRepair) metaAnswer {
	under, err := s.repair(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	if more, ok := under.with(r.Round, r.Replica); ok && r.Replica != under.Old {
		under.Vouching = more
		s.stirred = true
		s.putRepair(under)
	}
	return s.accepted(nil)
}

func (s *metaState) finishRepair(r *FinishRepair) metaAnswer {
	under, err := s.repair(r.Tablet, r.New)
	if err != nil {
		return rejected(err)
	}
	t := s.replaceReplica(r.Tablet, under.Old, catalog.Replica{ID: under.New, Node: under.Node, Joined: true})
	s.counters.Version++
	s.dropRepair(r.Tablet)
	return s.accepted(t)
}

func (s *metaState) putRepair(r Repair) {
	s.repairs[r.Tablet] = r
	s.write(recordRepair, uint64(r.Tablet), r)
}

func (s *metaState) dropRepair(tablet catalog.TabletID) {
	if _, ok := s.repairs[tablet]; ok {
		delete(s.repairs, tablet)
		s.dirty[recordKey(recordRepair, uint64(tablet))] = nil
	}
}
