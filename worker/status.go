package worker

import (
	"context"

	"skein/catalog"
	"skein/flightproto"
)

// Status describes the worker and its replicas as of now.
func (s *Server) Status(ctx context.Context) (*flightproto.WorkerStatus, error) {
	metadata := s.cfg.Node.Metadata()
	queries, fragments := s.registry.size()
	status := &flightproto.WorkerStatus{
		Node:            s.cfg.Node.ID(),
		Version:         flightproto.Version,
		Clock:           s.cfg.Node.Clock().Now(),
		MetadataVersion: metadata.Version,
		Fragments:       fragments,
		Queries:         queries,
		Writes:          len(s.writes),
		MemoryBytes:     s.budget.Used(),
		Tablets:         []flightproto.TabletStatus{},
		Build:           s.cfg.Version,
		Seen:            make(map[catalog.NodeID]int64, len(metadata.Seen)),
	}
	meta := s.cfg.Node.MetaStatus()
	status.MetaLeader, status.MetaApplied = meta.Leader, meta.Applied
	for id, beat := range metadata.Seen {
		status.Seen[id] = beat.UnixMS
	}
	for _, replica := range s.cfg.Node.Tablets() {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		entry := flightproto.TabletStatus{
			Tablet: replica.Tablet, Table: replica.Table, Leader: replica.Leader, Applied: replica.Applied,
		}
		if table, ok := metadata.Table(replica.Table); ok {
			entry.Name = table.QualifiedName()
		}
		if tablet, ok := s.cfg.Node.Tablet(replica.Tablet); ok {
			describe(&entry, tablet, status.Clock)
		}
		status.Tablets = append(status.Tablets, entry)
	}
	return status, nil
}

// describe adds what a replica holds. While transactions are in doubt the
// statistics of columns are left out.
func describe(entry *flightproto.TabletStatus, tablet Tablet, now uint64) {
	entry.Rows = tablet.Rows()
	snapshot, err := tablet.Snapshot(now)
	if err != nil {
		return
	}
	defer snapshot.Release()
	stats := snapshot.Stats()
	entry.Bytes = stats.Bytes
	for _, c := range stats.Columns {
		entry.Columns = append(entry.Columns, flightproto.ColumnStatus{
			Nulls: c.Nulls, Bytes: c.Bytes, Distinct: c.Distinct, Min: c.MinKey, Max: c.MaxKey,
		})
	}
}
