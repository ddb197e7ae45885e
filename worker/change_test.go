package worker_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// located scans a tablet with the hidden columns around a stored one.
func (n *node) located(table *catalog.Table) (ids, rows, tablets []int64) {
	n.t.Helper()
	id := table.Tablets[0].ID
	p := newPlan()
	f := p.fragment(n, id, &planner.TabletScan{Table: table, Tablet: id, Projection: []int{planner.TabletColumn, 0, planner.RowIDColumn}})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: planner.TabletName, Type: catalog.BigInt}, {Name: "id", Type: catalog.BigInt}, {Name: planner.RowIDName, Type: catalog.BigInt},
	}, nil)
	x := p.exchange(f, coordinator, planner.Exchange{Kind: planner.MergeExchange, Schema: schema})
	p.start(n.t)
	stream, err := p.fetch(n.t.Context(), x)
	if err != nil {
		n.t.Fatal(err)
	}
	defer stream.Close()
	for {
		b, err := stream.Next(n.t.Context())
		if err != nil {
			n.t.Fatal(err)
		}
		if b == nil {
			return ids, rows, tablets
		}
		tablets = append(tablets, columnar.Values[int64](b.Cols[0])[:b.Len]...)
		ids = append(ids, columnar.Values[int64](b.Cols[1])[:b.Len]...)
		rows = append(rows, columnar.Values[int64](b.Cols[2])[:b.Len]...)
	}
}

// change writes to a tablet with a header of its own.
func (n *node) change(table *catalog.Table, header *pb.WriteHeader, schema *arrow.Schema, batch *columnar.Batch) (*pb.WriteResult, error) {
	header.TableId, header.TabletId = uint64(table.ID), uint64(table.Tablets[0].ID)
	w, err := n.conn.Write(n.t.Context(), header, schema)
	if err != nil {
		return nil, err
	}
	if batch != nil {
		if err := w.Send(batch); err != nil {
			w.Abort()
			return nil, err
		}
	}
	return w.Finish()
}

func TestScansLocateRowsAndWritesDeleteThem(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	n.mustWrite(table, 0, "one", 0, 100)
	ids, rowIDs, tablets := n.located(table)
	if len(ids) != 100 || tablets[0] != int64(table.Tablets[0].ID) {
		t.Fatalf("%d rows, the first in tablet %v", len(ids), tablets)
	}
	rowOf := map[int64]uint64{}
	for i, id := range ids {
		rowOf[id] = uint64(rowIDs[i])
	}

	// A small change replaces a row in one entry.
	header := &pb.WriteHeader{TransactionId: "two", AutoCommit: true, DeletedRows: []uint64{rowOf[0]}, Snapshot: n.clock.Now()}
	result, err := n.change(table, header, table.ArrowSchema(), rows(t, 0, 1))
	if err != nil || result.GetChanges().GetDeleted() != 1 || result.GetChanges().GetInserted() != 1 {
		t.Fatalf("%v, %v", result, err)
	}
	if got := n.commands(); got["commit"] != 2 || got["stage"] != 0 {
		t.Errorf("commands were %v", got)
	}
	// Whoever still has the old row in mind is too late.
	late := &pb.WriteHeader{TransactionId: "late", AutoCommit: true, DeletedRows: []uint64{rowOf[0]}, Snapshot: n.clock.Now()}
	if _, err := n.change(table, late, table.ArrowSchema(), nil); sqlstate.CodeOf(err) != sqlstate.SerializationFailure {
		t.Errorf("a row deleted twice: %v", err)
	}

	// A list of its own is staged, to be committed with the rest.
	list := []int64{int64(rowOf[10]), int64(rowOf[11])}
	batch := &columnar.Batch{Len: 2, Cols: []*columnar.Vector{{Type: catalog.BigInt, Len: 2, Data: columnar.Bytes(list)}}}
	only := arrow.NewSchema([]arrow.Field{{Name: planner.RowIDName, Type: catalog.BigInt}}, nil)
	result, err = n.change(table, &pb.WriteHeader{TransactionId: "three", Deletes: true, Snapshot: n.clock.Now()}, only, batch)
	if err != nil || result.GetDeletes() != 1 || result.GetSegments() != 0 {
		t.Fatalf("%v, %v", result, err)
	}
	commit := func(r *pb.TransactRequest) { r.Deletes, r.CommitTimestamp = 1, n.clock.Now() }
	response, err := n.transact(pb.TransactRequest_COMMIT, table.Tablets[0].ID, "three", commit)
	if err != nil || response.GetChanges().GetDeleted() != 2 {
		t.Fatalf("%v, %v", response, err)
	}
	if ids, _, _ := n.located(table); len(ids) != 98 {
		t.Errorf("%d rows are left", len(ids))
	}

	for mode, want := range map[pb.WriteHeader_OnConflict]*pb.Changes{
		pb.WriteHeader_IGNORE:  {Ignored: 1},
		pb.WriteHeader_REPLACE: {Replaced: 1},
	} {
		header := &pb.WriteHeader{TransactionId: mode.String(), AutoCommit: true, OnConflict: mode}
		result, err := n.change(table, header, table.ArrowSchema(), rows(t, 5, 1))
		if got := result.GetChanges(); err != nil || got.GetIgnored() != want.GetIgnored() || got.GetReplaced() != want.GetReplaced() {
			t.Errorf("%s: %v, %v", mode, result, err)
		}
	}

	truncate := func(r *pb.TransactRequest) { r.CommitTimestamp = n.clock.Now() }
	response, err = n.transact(pb.TransactRequest_TRUNCATE, table.Tablets[0].ID, "four", truncate)
	if err != nil || response.GetOutcome() != pb.TransactResponse_COMMITTED {
		t.Fatalf("%v, %v", response, err)
	}
	if ids, _, _ := n.located(table); len(ids) != 0 {
		t.Errorf("%d rows are left", len(ids))
	}
}

func TestWritesForAnotherVersionAreStale(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.nodes[0]
	table := c.createTable("t", []int{0}, 0)
	header := &pb.WriteHeader{TransactionId: "one", AutoCommit: true, TableVersion: table.Version + 1}
	_, err := n.change(table, header, table.ArrowSchema(), rows(t, 0, 1))
	if flightproto.ReasonOf(err) != flightproto.StaleMetadata {
		t.Errorf("got %v", err)
	}
	header.TableVersion = table.Version
	if _, err := n.change(table, header, table.ArrowSchema(), rows(t, 0, 1)); err != nil {
		t.Error(err)
	}
}
