package consensus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"skein/catalog"
	"skein/sqlstate"
)

// Commands about the sessions that own temporary tables. Each has a JSON
// request below and answers a TableReply without a table.
const (
	MetaLeaseGateway = "lease_gateway" // LeaseGateway
	MetaEndSessions  = "end_sessions"  // EndSessions
)

// GatewayLeaseLife is for how long the temporary tables of a gateway's sessions
// outlive its last renewal.
const GatewayLeaseLife = 2 * time.Minute

// LeaseGateway keeps the temporary tables of a gateway's sessions until a time.
// A gateway that has none need not renew.
type LeaseGateway struct {
	RequestID string `json:"request_id"`
	Gateway   string `json:"gateway"`
	// UntilUnixMS is by the caller's clock; an earlier one than before changes nothing.
	UntilUnixMS int64 `json:"until_unix_ms"`
}

// EndSessions drops the temporary tables, hidden ones too, of one session; of
// all of a gateway, and its lease with them, when Session is empty.
type EndSessions struct {
	RequestID string `json:"request_id"`
	Gateway   string `json:"gateway"`
	Session   string `json:"session,omitempty"`
	// ExpiredUnixMS, when not 0, does nothing unless the gateway's lease has ended
	// by then.
	ExpiredUnixMS int64 `json:"expired_unix_ms,omitempty"`
}

// gatewayLease is the record of a lease.
type gatewayLease struct {
	ID          uint64 `json:"id"`
	Gateway     string `json:"gateway"`
	UntilUnixMS int64  `json:"until_unix_ms"`
}

// LeaseGateway takes or renews a gateway's lease.
func (m *Meta) LeaseGateway(ctx context.Context, r LeaseGateway) (TableReply, error) {
	return m.command(ctx, MetaLeaseGateway, r)
}

// EndSessions drops temporary tables.
func (m *Meta) EndSessions(ctx context.Context, r EndSessions) (TableReply, error) {
	return m.command(ctx, MetaEndSessions, r)
}

// SweepSessions drops, if this node leads the meta group, the temporary tables of
// gateways whose leases have ended before now. It returns of how many gateways.
func (m *Meta) SweepSessions(ctx context.Context, now time.Time) (int, error) {
	if !m.IsLeader() {
		return 0, nil
	}
	swept := 0
	for _, lease := range m.Local().leases {
		if lease.UntilUnixMS > now.UnixMilli() {
			continue
		}
		_, err := m.EndSessions(ctx, EndSessions{
			RequestID: fmt.Sprintf("sweep-gateway-%d-%d", lease.ID, lease.UntilUnixMS), Gateway: lease.Gateway, ExpiredUnixMS: now.UnixMilli(),
		})
		if err != nil {
			return swept, fmt.Errorf("dropping the temporary tables of gateway %s: %w", lease.Gateway, err)
		}
		swept++
	}
	return swept, nil
}

func (s *metaState) leaseGateway(r *LeaseGateway) metaAnswer {
	if r.Gateway == "" || r.UntilUnixMS <= 0 {
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "a lease needs a gateway and an end"))
	}
	lease, ok := s.leases[r.Gateway]
	if !ok {
		s.counters.NextLease++
		lease = gatewayLease{ID: s.counters.NextLease, Gateway: r.Gateway}
	}
	lease.UntilUnixMS = max(lease.UntilUnixMS, r.UntilUnixMS)
	s.leases[r.Gateway] = lease
	s.leasesChanged = true
	s.write(recordLease, lease.ID, lease)
	return s.accepted(nil)
}

func (s *metaState) endSessions(r *EndSessions) metaAnswer {
	lease, leased := s.leases[r.Gateway]
	if r.ExpiredUnixMS > 0 && leased && lease.UntilUnixMS > r.ExpiredUnixMS {
		return s.accepted(nil) // it was renewed meanwhile
	}
	tables := s.tablesOf(func(t *tableRecord) bool {
		owner := t.Table.Temporary
		return owner != nil && owner.Gateway == r.Gateway && (r.Session == "" || owner.Session == r.Session)
	})
	if len(tables) > 0 {
		s.counters.Version++
	}
	for _, id := range tables {
		s.removeTable(id)
	}
	if r.Session == "" && leased {
		delete(s.leases, r.Gateway)
		s.leasesChanged = true
		s.dirty[recordKey(recordLease, lease.ID)] = nil
	}
	return s.accepted(nil)
}

// checkTemporary rejects a temporary table that is not in its session's schema,
// or that nothing would ever drop.
func (s *metaState) checkTemporary(t *catalog.Table) *sqlstate.Error {
	if t.Temporary.Session == "" || t.Schema != t.Temporary.TempSchema() {
		return sqlstate.New(sqlstate.InvalidTableDefinition, "cannot create a temporary table in schema %q", t.Schema)
	}
	if _, ok := s.leases[t.Temporary.Gateway]; !ok {
		return sqlstate.New(sqlstate.CannotConnectNow, "the lease of the gateway that has the session of temporary table %q has ended", t.Name).
			WithHint("try again")
	}
	return nil
}

func (s *metaState) leaseList() []gatewayLease {
	list := make([]gatewayLease, 0, len(s.leases))
	for _, gateway := range slices.Sorted(maps.Keys(s.leases)) {
		list = append(list, s.leases[gateway])
	}
	return list
}
