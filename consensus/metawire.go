package consensus

import (
	"skein/catalog"
	"skein/sqlstate"
)

// Names of the meta group's commands and reads, as the wire spells them. Each
// has a JSON request and a JSON reply below.
const (
	MetaCreateTable  = "create_table"  // CreateTable -> TableReply
	MetaPublishTable = "publish_table" // PublishTable -> TableReply
	MetaDropTable    = "drop_table"    // DropTable -> TableReply
	MetaRegisterNode = "register_node" // RegisterNode -> TableReply
	MetaAddKey       = "add_key"       // AddKey -> TableReply
	MetaReadSnapshot = "snapshot"      // SnapshotRequest -> MetaSnapshot
	MetaWatch        = "watch"         // WatchRequest -> WatchReply
)

// CreateTable asks for a table. Every command carries a RequestID chosen by the
// caller (a UUID, say): repeating a command with the same id returns the first
// answer instead of acting twice.
type CreateTable struct {
	RequestID string `json:"request_id"`
	// Table has no ids yet: ID, Version and each tablet's ID, Generation and
	// Replicas are assigned by the meta group. Tablets carry the bounds that
	// the caller chose. Replicas of 0 asks for three, or as many of one and
	// three as the cluster has nodes for.
	Table *catalog.Table `json:"table"`
	// Hidden creates the table outside the name space, to be filled and then
	// published. Any number of hidden tables may have one name.
	Hidden bool `json:"hidden,omitempty"`
	// CreatedUnixMS is the caller's clock in milliseconds since the Unix epoch.
	// Hidden tables that are never published are swept by it.
	CreatedUnixMS int64 `json:"created_unix_ms"`
}

// PublishTable makes a hidden table visible as Schema.Name.
type PublishTable struct {
	RequestID string          `json:"request_id"`
	ID        catalog.TableID `json:"id"`
	Schema    string          `json:"schema,omitempty"` // "" keeps the table's
	Name      string          `json:"name,omitempty"`   // "" keeps the table's
	// Replace drops, in the same step, a visible table that has the name.
	Replace bool `json:"replace,omitempty"`
}

// DropTable removes a table, by ID or, when ID is 0, by visible name.
type DropTable struct {
	RequestID string          `json:"request_id"`
	ID        catalog.TableID `json:"id,omitempty"`
	Schema    string          `json:"schema,omitempty"`
	Name      string          `json:"name,omitempty"`
}

// AddKey adds a key that envelopes are signed with from then on. The meta group
// gives it its id and keeps older ones, for envelopes that are under way.
type AddKey struct {
	RequestID string `json:"request_id"`
	Secret    []byte `json:"secret"` // random, at least MinSecretBytes
	// Unix and Keep are when the key is added, in milliseconds of the Unix epoch, and
	// for how many of them the one before is valid beyond that.
	Unix int64 `json:"unix_ms,omitempty"`
	Keep int64 `json:"keep_ms,omitempty"`
	// First adds the key only if the cluster has none.
	First bool `json:"first,omitempty"`
}

// TableReply answers commands: the metadata version after the command and the
// table that it created, published or dropped. Do not modify the table.
type TableReply struct {
	Version uint64         `json:"version"`
	Table   *catalog.Table `json:"table,omitempty"`
	// Replaced is the table that a publish dropped, 0 for none.
	Replaced catalog.TableID `json:"replaced,omitempty"`
	// Job is what a command about one left it as.
	Job *Job `json:"job,omitempty"`
	// Node is the node that a redeemed token has admitted.
	Node *NodeInfo `json:"node,omitempty"`
}

// SnapshotRequest asks for the cluster's description.
type SnapshotRequest struct {
	// Stale answers from the local replica without asking the quorum, so the
	// answer may be old.
	Stale bool `json:"stale,omitempty"`
}

// MetaSnapshot describes the cluster as of one metadata version. It is shared:
// do not modify it.
type MetaSnapshot struct {
	Version uint64           `json:"version"`
	Tables  []*catalog.Table `json:"tables"`           // visible ones, by id
	Hidden  []HiddenTable    `json:"hidden,omitempty"` // by id
	Nodes   []NodeInfo       `json:"nodes"`            // by id
	// ClusterID tells clusters of one name apart, "" for those of early releases.
	ClusterID string `json:"cluster_id,omitempty"`
	// Settings are those that were set; see MetaSnapshot.Setting.
	Settings map[string]string `json:"settings,omitempty"`
	Tokens   []JoinToken       `json:"tokens,omitempty"`
	// Seen has the last heartbeat of each node. It moves on without a new version.
	Seen map[catalog.NodeID]Heartbeat `json:"seen,omitempty"`
	// Keys sign and check envelopes; the last one signs.
	Keys []catalog.SigningKey `json:"keys,omitempty"`
	// Repairs are the replicas that are being replaced, by tablet.
	Repairs []Repair `json:"repairs,omitempty"`
	// Jobs are those that run and the newest of those that are over, by id.
	Jobs []Job `json:"jobs,omitempty"`
	// Schemas are those besides catalog.DefaultSchema, by name.
	Schemas []Schema `json:"schemas,omitempty"`
	// Moves are the replicas that are on their way to another node, by tablet.
	Moves []Move `json:"moves,omitempty"`
	// Reports are what each node led when it last told. It moves on without a new
	// version, and only workers have it.
	Reports map[catalog.NodeID][]TabletReport `json:"-"`
	// Users are those who may connect, by name.
	Users []User `json:"users,omitempty"`

	leases []gatewayLease
	// Successors are the tablets that were split or merged, by id.
	Successors []Successor `json:"successors,omitempty"`
}

// HiddenTable is a table that was created hidden and not published yet.
type HiddenTable struct {
	Table         *catalog.Table `json:"table"`
	CreatedUnixMS int64          `json:"created_unix_ms"`
}

// WatchRequest waits until the metadata version exceeds After.
type WatchRequest struct {
	After      uint64 `json:"after"`
	WaitMillis int64  `json:"wait_millis,omitempty"` // at most, 0 for the default
}

// WatchReply tells the version at the end of the wait, which may be one not
// above After if nothing changed.
type WatchReply struct {
	Version uint64 `json:"version"`
}

// Table returns a visible or hidden table by id.
func (s *MetaSnapshot) Table(id catalog.TableID) (*catalog.Table, bool) {
	for _, t := range s.Tables {
		if t.ID == id {
			return t, true
		}
	}
	for _, h := range s.Hidden {
		if h.Table.ID == id {
			return h.Table, true
		}
	}
	return nil, false
}

// TableNamed returns a visible table.
func (s *MetaSnapshot) TableNamed(schema, name string) (*catalog.Table, bool) {
	for _, t := range s.Tables {
		if t.Schema == schema && t.Name == name {
			return t, true
		}
	}
	return nil, false
}

// Node returns what is known of a node.
func (s *MetaSnapshot) Node(id catalog.NodeID) (NodeInfo, bool) {
	for _, n := range s.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return NodeInfo{}, false
}

// all calls f for every table, hidden ones included.
func (s *MetaSnapshot) all(f func(*catalog.Table)) {
	for _, t := range s.Tables {
		f(t)
	}
	for _, h := range s.Hidden {
		f(h.Table)
	}
}

// metaAnswer is the replicated outcome of a command: a rejection or a reply.
type metaAnswer struct {
	Rejected *metaRejection `json:"rejected,omitempty"`
	TableReply
}

type metaRejection struct {
	Code    sqlstate.Code `json:"code"`
	Message string        `json:"message"`
	Detail  string        `json:"detail,omitempty"`
	Hint    string        `json:"hint,omitempty"`
}

func rejected(err *sqlstate.Error) metaAnswer {
	return metaAnswer{Rejected: &metaRejection{Code: err.Code, Message: err.Message, Detail: err.Detail, Hint: err.Hint}}
}

// err is the rejection as an error, nil if the command was accepted.
func (a *metaAnswer) err() error {
	if a.Rejected == nil {
		return nil
	}
	return &sqlstate.Error{Code: a.Rejected.Code, Message: a.Rejected.Message, Detail: a.Rejected.Detail, Hint: a.Rejected.Hint}
}
