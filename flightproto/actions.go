package flightproto

import "skein/catalog"

// Names of the actions of a worker. Bodies and results are frames around the
// messages of skein.proto named alike, but for ActionStatus, whose body is an
// envelope and whose result is a WorkerStatus as JSON.
const (
	ActionStart    = "skein.start"
	ActionCancel   = "skein.cancel"
	ActionRefill   = "skein.refill"
	ActionReport   = "skein.report"
	ActionTransact = "skein.transact"
	ActionMeta     = "skein.meta"
	ActionStatus   = "skein.status"
)

// WorkerStatus is what ActionStatus tells about a worker.
type WorkerStatus struct {
	Node            catalog.NodeID `json:"node"`
	Version         uint32         `json:"protocol_version"`
	Clock           uint64         `json:"clock"` // HLC
	MetadataVersion uint64         `json:"metadata_version"`
	Fragments       int            `json:"fragments"` // registered now
	Queries         int            `json:"queries"`
	Writes          int            `json:"writes"`       // streams open now
	MemoryBytes     int64          `json:"memory_bytes"` // reserved by queries
	Tablets         []TabletStatus `json:"tablets"`      // ascending by id
	// Build is the version of the program.
	Build string `json:"build,omitempty"`
	// MetaLeader leads the meta group as far as the worker knows, 0 if it knows of
	// none; MetaApplied is the index of the group's log that it has applied.
	MetaLeader  catalog.NodeID `json:"meta_leader,omitempty"`
	MetaApplied uint64         `json:"meta_applied,omitempty"`
	// Seen is when each node was last heard of, in Unix milliseconds.
	Seen map[catalog.NodeID]int64 `json:"seen,omitempty"`
}

// TabletStatus is the state of one tablet's replica on a worker.
type TabletStatus struct {
	Tablet  catalog.TabletID `json:"tablet"`
	Table   catalog.TableID  `json:"table"`
	Name    string           `json:"table_name"`
	Leader  catalog.NodeID   `json:"leader,omitempty"` // 0: none known
	Applied uint64           `json:"applied"`          // Raft index
	Rows    uint64           `json:"rows"`             // committed
	Bytes   uint64           `json:"bytes"`            // encoded
	// Columns has statistics per table column, where the replica keeps them.
	Columns []ColumnStatus `json:"columns,omitempty"`
}

// ColumnStatus summarises the committed values of one column.
type ColumnStatus struct {
	Nulls uint64 `json:"nulls"`
	Bytes uint64 `json:"bytes"`
	// Distinct estimates how many different values there are, 0 for unknown.
	Distinct uint64 `json:"distinct,omitempty"`
	// Min and Max bound the values as encoded keys (catalog.AppendKeyValue);
	// empty is unknown.
	Min []byte `json:"min,omitempty"`
	Max []byte `json:"max,omitempty"`
}
