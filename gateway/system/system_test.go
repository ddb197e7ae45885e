package system

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto"
	"skein/planner"
)

// twoNodes is a cluster with one table of one replicated tablet, whose second
// node does not answer.
func twoNodes() *State {
	table := &catalog.Table{
		ID: 7, Schema: "public", Name: "t", PrimaryKey: []int{0}, Replicas: 2,
		Columns:      []catalog.Column{{Name: "id", Type: catalog.BigInt}, {Name: "word", Type: catalog.Text, MaxLength: 5, Nullable: true, Default: "'x'"}},
		Partitioning: catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: 8},
		Tablets:      []catalog.Tablet{{ID: 9, Generation: 1, BucketHigh: 8, Replicas: []catalog.Replica{{ID: 1, Node: 1}, {ID: 2, Node: 2}}}},
	}
	return &State{
		Meta: &consensus.MetaSnapshot{Version: 3, Tables: []*catalog.Table{table}, Nodes: []consensus.NodeInfo{
			{ID: 1, FlightAddress: "a:1", RaftAddress: "a:2"}, {ID: 2, FlightAddress: "b:1", RaftAddress: "b:2"}}},
		Status: []*flightproto.WorkerStatus{{Node: 1, Tablets: []flightproto.TabletStatus{
			{Tablet: 9, Table: 7, Leader: 1, Applied: 5, Rows: 3, Bytes: 30}}}},
		Queries: []Query{{ID: "late", Started: time.Unix(2, 0)}, {ID: "early", Text: "SELECT 1", Started: time.Unix(1, 0)}},
		Stats: func(*catalog.Table) planner.TableStats {
			return planner.TableStats{Rows: 3, Bytes: 30, Columns: []planner.ColumnStats{{Distinct: 3, Min: int64(1), Max: int64(4)}}}
		},
	}
}

// column returns a table's column as texts and integers, NULL as nil.
func column(t *testing.T, state *State, name, columnName string) []any {
	t.Helper()
	schema, plain, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, plain = Schema, name
	}
	descriptor, ok := Lookup(schema, plain)
	if !ok {
		t.Fatalf("no table %s", name)
	}
	batch, err := Read(descriptor, state)
	if err != nil {
		t.Fatal(err)
	}
	v := batch.Cols[descriptor.Column(columnName)]
	out := make([]any, batch.Len)
	for i := range out {
		switch {
		case v.IsNull(i):
		case v.Type == catalog.Text:
			out[i] = string(v.BytesAt(i))
		default:
			out[i] = columnar.Values[int64](v)[i]
		}
	}
	return out
}

func TestRowsTellTheCluster(t *testing.T) {
	for _, tc := range []struct {
		table, column string
		want          []any
	}{
		{"tables", "primary_key", []any{"id"}},
		{"tables", "buckets", []any{int64(8)}},
		{"columns", "type", []any{"bigint", "varchar(5)"}},
		{"columns", "max_value", []any{"4", nil}},
		{"nodes", "tablets", []any{int64(1), int64(1)}},
		{"nodes", "queries", []any{int64(0), nil}},
		{"tablets", "leader_node", []any{int64(1)}},
		{"tablets", "key_low", []any{nil}},
		{"tablets", "state", []any{"active"}},
		{"replicas", "role", []any{"leader", nil}},
		{"replicas", "applied_index", []any{int64(5), nil}},
		{"replicas", "lag", []any{int64(0), nil}},
		{"queries", "query_id", []any{"early", "late"}},
	} {
		got := column(t, twoNodes(), tc.table, tc.column)
		if len(got) != len(tc.want) {
			t.Errorf("%s.%s is %v, want %v", tc.table, tc.column, got, tc.want)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s.%s is %v, want %v", tc.table, tc.column, got, tc.want)
			}
		}
	}
}

// Every table can be read of a cluster that nothing is known about.
func TestEmptyCluster(t *testing.T) {
	empty := &State{Meta: &consensus.MetaSnapshot{}, Stats: func(*catalog.Table) planner.TableStats { return planner.TableStats{} }}
	for _, descriptor := range Tables() {
		batch, err := Read(descriptor, empty)
		if err != nil {
			t.Errorf("%s: %v", descriptor.Name, err)
			continue
		}
		if batch.Len != 0 && descriptor.Schema == Schema && descriptor.Name != "functions" && descriptor.Name != "settings" {
			t.Errorf("%s has %d rows", descriptor.Name, batch.Len)
		}
	}
	if _, err := Read(&catalog.Table{Schema: Schema, Name: "nothing", System: true}, empty); err == nil {
		t.Error("a table that does not exist was read")
	}
}

func TestNodesAndRanges(t *testing.T) {
	state := twoNodes()
	state.Meta.Nodes[0].Zone, state.Meta.Nodes[0].Voter, state.Meta.Nodes[0].State = "a", true, consensus.NodeDraining
	state.Meta.Nodes = append(state.Meta.Nodes, consensus.NodeInfo{ID: 3, State: consensus.NodeRemoved})
	state.Meta.Seen = map[catalog.NodeID]consensus.Heartbeat{2: {UnixMS: 1000}}
	state.Status[0].MetaLeader, state.Status[0].MetaApplied = 1, 40
	state.Status[0].Seen = map[catalog.NodeID]int64{2: 2000}
	for _, tc := range []struct {
		table, column string
		want          []any
	}{
		{"nodes", "state", []any{"draining", "active", "removed"}},
		{"nodes", "zone", []any{"a", nil, nil}},
		{"nodes", "meta_role", []any{"leader", "follower", nil}},
		{"nodes", "leaders", []any{int64(1), nil, nil}},
		{"nodes", "bytes", []any{int64(30), nil, nil}},
		{"nodes", "meta_applied", []any{int64(40), nil, nil}},
		{"nodes", "meta_lag", []any{int64(0), nil, nil}},
		{"ranges", "range_low", []any{"0"}},
		{"ranges", "replica_nodes", []any{"1, 2"}},
		{"ranges", "lag", []any{int64(0)}},
		{"settings", "name", []any{consensus.SettingAutoSplit}},
		{"settings", "value", []any{"true"}},
	} {
		got := column(t, state, tc.table, tc.column)
		if tc.table == "settings" {
			got = got[:1]
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s.%s: %s", tc.table, tc.column, diff)
		}
	}
	if seen := state.lastSeen(2); seen != time.UnixMilli(2000) {
		t.Errorf("last seen %v", seen)
	}
}
