package worker

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
	"skein/storage"
)

// deletions are the rows that a write deletes on their way into lists. Lists
// are staged by the goroutine that receives: a list is small and its rows
// arrive far faster than they are read elsewhere.
type deletions struct {
	pending []uint64
	lists   uint32 // staged
}

// deleteListRows is how many rows a staged list has at most.
const deleteListRows = storage.MaxDeleteRows / 2

// rowIDSchema is what a stream of rows to delete holds.
func rowIDSchema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: planner.RowIDName, Type: catalog.BigInt}}, nil)
}

// addDeletes takes row ids and stages full lists of them.
func (w *write) addDeletes(batch *columnar.Batch) error {
	v, err := batch.Cols[0].Flatten()
	if err != nil {
		return err
	}
	ids := columnar.Values[int64](v)
	for len(ids) > 0 {
		n := min(len(ids), deleteListRows-len(w.deletes.pending))
		for _, id := range ids[:n] {
			w.deletes.pending = append(w.deletes.pending, uint64(id))
		}
		ids = ids[n:]
		if len(w.deletes.pending) == deleteListRows {
			if err := w.stageList(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stageDeletes stages what rows to delete are left, those that came in the
// header included.
func (w *write) stageDeletes() error {
	w.deletes.pending = append(w.deletes.pending, w.header.GetDeletedRows()...)
	return w.stageList()
}

func (w *write) stageList() error {
	if len(w.deletes.pending) == 0 {
		return nil
	}
	w.touched = true
	err := w.propose(w.ctx, storage.StageDelete{
		Txn: w.header.GetTransactionId(), Seq: w.deletes.lists, Snapshot: w.header.GetSnapshot(), Rows: w.deletes.pending,
	})
	w.deletes.lists++
	w.deletes.pending = w.deletes.pending[:0:0]
	return err
}

// conflictMode is what a write wants done with rows whose key is taken.
func conflictMode(header *pb.WriteHeader) storage.ConflictMode {
	switch header.GetOnConflict() {
	case pb.WriteHeader_IGNORE:
		return storage.OnConflictIgnore
	case pb.WriteHeader_REPLACE:
		return storage.OnConflictReplace
	}
	return storage.OnConflictError
}

// changesOf is what a commit did, nil for other results.
func changesOf(r storage.Result) *pb.Changes {
	if r.Outcome != storage.Committed {
		return nil
	}
	return &pb.Changes{Inserted: r.Inserted, Replaced: r.Replaced, Ignored: r.Ignored, Deleted: r.Deleted}
}

// current makes the local replica of a tablet know a version of its table, and
// fails when it already knows a newer one.
func (s *Server) current(ctx context.Context, table *catalog.Table, tablet *catalog.Tablet) error {
	replica, err := s.replica(ctx, table, tablet)
	if err != nil {
		return err
	}
	switch known := replica.Table(); {
	case known.Version > table.Version:
		return staleTable(known, table.Version)
	case known.Version < table.Version:
		return replica.SetTable(table)
	}
	return nil
}

// staleTable refuses work that was planned for another version of a table.
func staleTable(table *catalog.Table, planned uint64) error {
	return flightproto.WithReason(flightproto.StaleMetadata, sqlstate.New(sqlstate.SerializationFailure,
		"the statement was planned for version %d of table %s, which is at version %d", planned, table.QualifiedName(), table.Version).
		WithHint("Run the statement again."))
}

// defaultsOf answers the values of columns in rows that are older than the
// columns. A default that cannot be read fails the scan's decoding of those
// rows, not of others; it was checked when the column was added.
func defaultsOf(ctx context.Context, table *catalog.Table) func(column int) *columnar.Vector {
	return func(column int) *columnar.Vector {
		v, err := defaultOf(ctx, &table.Columns[column])
		if err != nil {
			return nil
		}
		return v
	}
}

// ColumnDefault is storage.Options.DefaultOf: what a column reads as in rows
// that are older than the column.
func ColumnDefault(table *catalog.Table, column int) (*columnar.Vector, error) {
	return defaultOf(context.Background(), &table.Columns[column])
}

// defaultOf evaluates a column's default to a constant vector, nil for none.
func defaultOf(ctx context.Context, c *catalog.Column) (*columnar.Vector, error) {
	if c.Default == "" {
		return nil, nil
	}
	e, err := sql.Default(ctx, c)
	if err != nil {
		return nil, err
	}
	eval, err := exec.Compile(e, arrow.NewSchema(nil, nil))
	if err != nil {
		return nil, err
	}
	v, err := eval.Eval(&columnar.Batch{Len: 1})
	if err != nil {
		return nil, err
	}
	return v.Clone(), nil
}
