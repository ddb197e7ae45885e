package gateway

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/gateway/system"
	"skein/planner"
	"skein/sqlstate"
)

// systemTables is the TableReader of the coordinator: it has no tablets, only
// the tables that describe the cluster.
type systemTables struct {
	gw   *Server
	snap *snapshot
}

// OpenScan makes the rows of a system table.
func (s systemTables) OpenScan(ctx context.Context, scan *planner.TabletScan, _ int) ([]exec.Operator, error) {
	if !scan.Table.System {
		return nil, sqlstate.New(sqlstate.InternalError, "a tablet scan was planned on the coordinator")
	}
	rows, err := system.Read(scan.Table, s.state(ctx))
	if err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(scan.Projection))
	columns := make([]*columnar.Vector, len(scan.Projection))
	for i, c := range scan.Projection {
		column := &scan.Table.Columns[c]
		fields[i] = arrow.Field{Name: column.Name, Type: catalog.PhysicalType(column.Type), Nullable: column.Nullable}
		columns[i] = rows.Cols[c]
	}
	return []exec.Operator{&heldBatch{arrow.NewSchema(fields, nil), &columnar.Batch{Len: rows.Len, Cols: columns}}}, nil
}

func (s systemTables) state(ctx context.Context) *system.State {
	state := &system.State{Meta: s.snap.meta, Status: s.snap.status, Stats: func(t *catalog.Table) planner.TableStats { return s.snap.stats[t.ID] }}
	who := s.gw.cfg.Identify(ctx)
	state.Version, state.User = s.gw.cfg.Version, who.User
	for _, q := range s.gw.queries.list() {
		state.Queries = append(state.Queries, system.Query{ID: q.id, User: q.user, Text: q.textFor(who), Started: q.started})
	}
	return state
}

// heldBatch is an operator over a batch that is in memory already.
type heldBatch struct {
	schema *arrow.Schema
	batch  *columnar.Batch // nil once it is emitted
}

func (h *heldBatch) Schema() *arrow.Schema { return h.schema }

func (h *heldBatch) Next(ctx context.Context) (*columnar.Batch, error) {
	b := h.batch
	h.batch = nil
	return b, ctx.Err()
}

func (h *heldBatch) Close() error { return nil }
