package consensus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"

	"skein/catalog"
	"skein/sqlstate"
)

const (
	// HiddenTableLife is how long a hidden table may wait to be published.
	HiddenTableLife = 24 * time.Hour
	// MaxWatch bounds one Watch.
	MaxWatch = 30 * time.Second
)

// Meta is this node's access to the meta group. Commands may be given on any
// node; they are forwarded to the leader. Its methods are safe for concurrent
// use. Errors are *sqlstate.Error for rejections, or this package's.
type Meta struct {
	host     *Host
	sm       *metaSM
	founding MetaFounding
}

// MetaFounding says how a node comes to the meta group.
type MetaFounding struct {
	// Founders are the nodes that the group began with, this one among them, nil
	// for a node that joined it.
	Founders []catalog.NodeID
	// Named are nodes that the configuration names. Each must be a founder or known
	// to the metadata.
	Named []catalog.NodeID
	// Standalone says that the founder is and will be the group's only member.
	Standalone bool
}

// StartMeta starts the local replica of the meta group. onChange is called,
// possibly on several goroutines in turn, with each new version; it must not
// block. StartMeta returns when the replica is open, whether or not there is a
// quorum.
func (h *Host) StartMeta(ctx context.Context, found MetaFounding, onChange func(*MetaSnapshot)) (*Meta, error) {
	records := h.cfg.Store.Records(catalog.MetaGroupID)
	g := newGroup(h, catalog.MetaGroupID, uint64(h.cfg.NodeID), h.log.With("group", "meta"))
	machine := newMetaSM(g, records, onChange)
	if err := machine.reload(); err != nil {
		return nil, err // in time to say so: the library ends the process if Open fails
	}
	local := machine.current.Load()
	if err := found.check(h.cfg.NodeID, local); err != nil {
		return nil, err
	}
	h.book.follow(local.Nodes, h.cfg.NodeID, h.cfg.Told)
	group := founding{strict: found.Founders != nil}
	if found.Founders != nil {
		group.members = make(map[uint64]dragonboat.Target, len(found.Founders))
	}
	for _, id := range found.Founders {
		group.members[uint64(id)] = h.book.target(id)
	}
	g.learner = found.Founders == nil
	alone := found.Standalone && len(found.Founders) == 1
	g.lone.Store(alone)
	g.first = !alone && len(found.Founders) == 1 && local.voters() <= 1
	if err := h.startGroup(ctx, g, group, records.Applied(), machine); err != nil {
		return nil, fmt.Errorf("starting the meta group: %w", err)
	}
	select {
	case <-g.opened:
	case <-ctx.Done():
		return nil, fmt.Errorf("opening the meta group: %w", context.Cause(ctx))
	}
	meta := &Meta{host: h, sm: machine, founding: found}
	h.mu.Lock()
	h.meta = meta
	h.mu.Unlock()
	return meta, nil
}

func (f MetaFounding) check(own catalog.NodeID, local *MetaSnapshot) error {
	if f.Founders != nil && !slices.Contains(f.Founders, own) {
		return fmt.Errorf("node %d is not among the meta group's founders", own)
	}
	for _, id := range f.Named {
		if _, ok := local.Node(id); !ok && f.Founders != nil && !slices.Contains(f.Founders, id) {
			return fmt.Errorf("%w: node %d is neither a founder of the cluster nor known to it", ErrMembership, id)
		}
	}
	return nil
}

// members are the Raft replica ids of those that vote, as far as is known here.
func (m *Meta) members() []uint64 {
	var ids []uint64
	for _, n := range m.Local().Nodes {
		if n.Voter {
			ids = append(ids, uint64(n.ID))
		}
	}
	if len(ids) == 0 {
		for _, id := range m.founding.Founders {
			ids = append(ids, uint64(id))
		}
	}
	return ids
}

// voters counts the nodes that are known to vote.
func (s *MetaSnapshot) voters() int {
	n := 0
	for _, node := range s.Nodes {
		if node.Voter {
			n++
		}
	}
	return n
}

// Applied is the Raft index up to which the local replica has applied the meta
// group's log.
func (m *Meta) Applied() uint64 { return m.sm.records.Applied() }

// CreateTable creates a table and returns it with its ids and placement.
func (m *Meta) CreateTable(ctx context.Context, r CreateTable) (TableReply, error) {
	if r.Table == nil {
		return TableReply{}, sqlstate.New(sqlstate.InvalidTableDefinition, "no table given")
	}
	for _, c := range r.Table.Columns {
		if c.Type == nil {
			continue // rejected with its position by the meta group
		}
		if _, err := catalog.ParseType(catalog.TypeName(c.Type)); err != nil {
			return TableReply{}, sqlstate.New(sqlstate.FeatureNotSupported, "column %q: type %s cannot be stored", c.Name, catalog.TypeName(c.Type))
		}
	}
	return m.command(ctx, MetaCreateTable, r)
}

// PublishTable makes a hidden table visible.
func (m *Meta) PublishTable(ctx context.Context, r PublishTable) (TableReply, error) {
	return m.command(ctx, MetaPublishTable, r)
}

// DropTable removes a table. Its replicas are removed soon after.
func (m *Meta) DropTable(ctx context.Context, r DropTable) (TableReply, error) {
	return m.command(ctx, MetaDropTable, r)
}

// AddKey adds a key that envelopes are signed with.
func (m *Meta) AddKey(ctx context.Context, r AddKey) (TableReply, error) {
	return m.command(ctx, MetaAddKey, r)
}

// command replicates a command. When it returns, the local replica has applied
// it, so Local shows its effect.
func (m *Meta) command(ctx context.Context, name string, request any) (TableReply, error) {
	entry, err := encodeMetaCommand(name, request)
	if err != nil {
		return TableReply{}, err
	}
	if len(entry) > maxMetaCommand {
		return TableReply{}, sqlstate.New(sqlstate.ProgramLimitExceeded, "the definition takes %d bytes, at most %d are possible", len(entry), maxMetaCommand)
	}
	result, err := m.sm.propose(ctx, entry)
	if err != nil {
		return TableReply{}, fmt.Errorf("meta command %s: %w", name, err)
	}
	var answer metaAnswer
	if err := json.Unmarshal(result.Data, &answer); err != nil {
		return TableReply{}, fmt.Errorf("decoding the answer to meta command %s: %w", name, err)
	}
	return answer.TableReply, answer.err()
}

// Snapshot returns the cluster's description including everything that was
// committed before the call.
func (m *Meta) Snapshot(ctx context.Context) (*MetaSnapshot, error) {
	if err := m.sm.readIndex(ctx); err != nil {
		return nil, fmt.Errorf("reading the meta group: %w", err)
	}
	return m.Local(), nil
}

// Local returns what the local replica has applied, which may be old.
func (m *Meta) Local() *MetaSnapshot { return m.sm.current.Load() }

// Watch waits until the local replica has applied a version above after, for at
// most wait (0 or more than MaxWatch: MaxWatch), and returns the version then.
// An end of ctx is an error; the end of the wait is not.
func (m *Meta) Watch(ctx context.Context, after uint64, wait time.Duration) (uint64, error) {
	if wait <= 0 || wait > MaxWatch {
		wait = MaxWatch
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed, stopped := m.sm.version.wait(), m.sm.closed
		if v := m.Local().Version; v > after {
			return v, nil
		}
		select {
		case <-changed:
		case <-stopped:
			return 0, fmt.Errorf("watching the meta group: %w", ErrNotReady)
		case <-timer.C:
			return m.Local().Version, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// IsLeader reports whether this node leads the meta group.
func (m *Meta) IsLeader() bool { return m.sm.leaderReplica() == m.sm.replica }

// Leader returns the meta group's leader as far as this node knows.
func (m *Meta) Leader() (catalog.NodeID, bool) {
	id := m.sm.leaderReplica()
	return catalog.NodeID(id), id != 0
}

// MetaStatus is the state of a node's replica of the meta group.
type MetaStatus struct {
	Leader  catalog.NodeID // 0 if unknown
	Applied uint64         // Raft index
}

// Status is the local replica's state.
func (m *Meta) Status() MetaStatus {
	leader, _ := m.Leader()
	return MetaStatus{Leader: leader, Applied: m.Applied()}
}

// SweepHidden drops, if this node leads the meta group, the hidden tables whose
// creators have not published them within HiddenTableLife before now. It
// returns how many it dropped.
func (m *Meta) SweepHidden(ctx context.Context, now time.Time) (int, error) {
	if !m.IsLeader() {
		return 0, nil
	}
	dropped := 0
	for _, hidden := range m.Local().Hidden {
		if now.Sub(time.UnixMilli(hidden.CreatedUnixMS)) < HiddenTableLife {
			continue
		}
		id := hidden.Table.ID
		_, err := m.DropTable(ctx, DropTable{RequestID: fmt.Sprintf("sweep-%d", id), ID: id})
		if err != nil && sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
			return dropped, fmt.Errorf("dropping hidden table %d: %w", id, err)
		}
		dropped++
	}
	return dropped, nil
}

// Handle serves one command or read by its wire name, JSON in and JSON out.
func (m *Meta) Handle(ctx context.Context, command string, body []byte) ([]byte, error) {
	switch command {
	case MetaCreateTable:
		return handle(ctx, command, body, m.CreateTable)
	case MetaPublishTable:
		return handle(ctx, command, body, m.PublishTable)
	case MetaDropTable:
		return handle(ctx, command, body, m.DropTable)
	case MetaAlterTable:
		return handle(ctx, command, body, m.AlterTable)
	case MetaCreateSchema:
		return handle(ctx, command, body, m.CreateSchema)
	case MetaDropSchema:
		return handle(ctx, command, body, m.DropSchema)
	case MetaLeaseGateway:
		return handle(ctx, command, body, m.LeaseGateway)
	case MetaEndSessions:
		return handle(ctx, command, body, m.EndSessions)
	case MetaRegisterNode:
		return handle(ctx, command, body, m.RegisterNode)
	case MetaAddKey:
		return handle(ctx, command, body, m.AddKey)
	case MetaSetNodeState:
		return handle(ctx, command, body, m.SetNodeState)
	case MetaSetSetting:
		return handle(ctx, command, body, m.SetSetting)
	case MetaPutUser:
		return handle(ctx, command, body, m.PutUser)
	case MetaDropUser:
		return handle(ctx, command, body, m.DropUser)
	case MetaNewToken:
		return handle(ctx, command, body, m.NewToken)
	case MetaJoin:
		return handle(ctx, command, body, m.Join)
	case MetaRepairReplica:
		return handle(ctx, command, body, m.RepairReplica)
	case MetaCreateJob:
		return handle(ctx, command, body, m.CreateJob)
	case MetaClaimJob:
		return handle(ctx, command, body, m.ClaimJob)
	case MetaAdvanceJob:
		return handle(ctx, command, body, m.AdvanceJob)
	case MetaSplitTablet:
		return handle(ctx, command, body, m.SplitTablet)
	case MetaReshape:
		return handle(ctx, command, body, m.ReshapeTablets)
	case MetaPublishReshape:
		return handle(ctx, command, body, m.PublishReshape)
	case MetaEndJob:
		return handle(ctx, command, body, m.EndJob)
	case MetaMoveReplica:
		return handle(ctx, command, body, m.MoveReplica)
	case MetaAbortMove:
		return handle(ctx, command, body, m.AbortMove)
	case MetaTransferLeader:
		return handle(ctx, command, body, m.transferLeader)
	case MetaReadSnapshot:
		return handle(ctx, command, body, func(ctx context.Context, r SnapshotRequest) (*MetaSnapshot, error) {
			if r.Stale {
				return m.Local(), nil
			}
			return m.Snapshot(ctx)
		})
	case MetaWatch:
		return handle(ctx, command, body, func(ctx context.Context, r WatchRequest) (WatchReply, error) {
			v, err := m.Watch(ctx, r.After, time.Duration(r.WaitMillis)*time.Millisecond)
			return WatchReply{Version: v}, err
		})
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "unknown meta command %q", command)
}

func handle[Q, A any](ctx context.Context, command string, body []byte, serve func(context.Context, Q) (A, error)) ([]byte, error) {
	var request Q
	if err := decodeStrict(body, &request); err != nil {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "malformed body of meta command %q: %w", command, err)
	}
	answer, err := serve(ctx, request)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encoding the answer to meta command %s: %w", command, err)
	}
	return encoded, nil
}
