package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// inlineDeletes is how many rows to delete may go with a small write in one
// message, over all its tablets.
const inlineDeletes = 32 << 10

// deletedSchema is what a stream of rows to delete holds.
func deletedSchema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: planner.RowIDName, Type: catalog.BigInt}}, nil)
}

// part is the part of a tablet, by its place in the table's layout.
func (w *tableWriter) part(ordinal int) *writePart {
	if w.parts[ordinal] == nil {
		w.parts[ordinal] = &writePart{tablet: w.table.Tablets[ordinal].ID}
	}
	return w.parts[ordinal]
}

// header describes a stream to one tablet.
func (w *tableWriter) header(p *writePart, autoCommit bool) *pb.WriteHeader {
	return &pb.WriteHeader{
		TransactionId: w.txn, TableId: uint64(w.table.ID), TabletId: uint64(p.tablet),
		MetadataVersion: max(w.table.Version, w.table.Layout), TableVersion: w.table.Version,
		AutoCommit: autoCommit, OnConflict: w.onConflict, Snapshot: w.snapshot,
	}
}

// Delete adds rows to delete: the tablet and the id of each, as the first two
// columns of the batch. They are deleted before any row is inserted. Whoever
// reads them reads at w.snapshot.
func (w *tableWriter) Delete(b *columnar.Batch) error {
	tablets, err := b.Cols[0].Flatten()
	if err != nil {
		return err
	}
	ids, err := b.Cols[1].Flatten()
	if err != nil {
		return err
	}
	of, id := columnar.Values[int64](tablets), columnar.Values[int64](ids)
	var last catalog.TabletID
	var p *writePart
	add := func(row int) error {
		if tablet := catalog.TabletID(of[row]); p == nil || tablet != last {
			ordinal := slices.IndexFunc(w.table.Tablets, func(t catalog.Tablet) bool { return t.ID == tablet })
			if ordinal < 0 {
				return sqlstate.New(sqlstate.InternalError, "a row to delete is in tablet %d, which is not of table %s", tablet, w.table.QualifiedName())
			}
			last, p = tablet, w.part(ordinal)
		}
		p.deletes = append(p.deletes, uint64(id[row]))
		w.deleted++
		return nil
	}
	return eachRow(b, add)
}

// eachRow calls f for every selected row of a batch.
func eachRow(b *columnar.Batch, f func(row int) error) error {
	if b.Sel != nil {
		for _, row := range b.Sel {
			if err := f(int(row)); err != nil {
				return err
			}
		}
		return nil
	}
	for row := range b.Len {
		if err := f(row); err != nil {
			return err
		}
	}
	return nil
}

// settleDeletes sorts the rows to delete and reports whether the whole write is
// still small enough to go to each tablet in one message. If not, what was held
// back is streamed, and the rows to delete by streams of their own.
func (w *tableWriter) settleDeletes(ctx context.Context) (small bool, err error) {
	w.deleted = 0
	for _, p := range w.parts {
		if p != nil {
			slices.Sort(p.deletes)
			p.deletes = slices.Compact(p.deletes)
			w.deleted += len(p.deletes)
		}
	}
	if !w.streaming() && w.deleted <= inlineDeletes {
		return true, nil
	}
	group, sending := errgroup.WithContext(ctx)
	for _, p := range w.parts {
		if p != nil && len(p.deletes) > 0 {
			group.Go(func() error { return w.sendDeletes(sending, p) })
		}
	}
	if err := group.Wait(); err != nil {
		return false, err
	}
	for _, h := range w.held {
		if err := w.send(ctx, h); err != nil {
			return false, err
		}
	}
	w.held, w.heldRows = nil, 0
	return false, nil
}

// sendDeletes stages the rows to delete in one tablet.
func (w *tableWriter) sendDeletes(ctx context.Context, p *writePart) error {
	list := &writePart{tablet: p.tablet}
	header := w.header(list, false)
	header.Deletes = true
	if err := w.open(ctx, list, header); err != nil {
		return err
	}
	for rows := range slices.Chunk(p.deletes, holdRows) {
		ids := make([]int64, len(rows))
		for i, row := range rows {
			ids[i] = int64(row)
		}
		v := &columnar.Vector{Type: catalog.BigInt, Len: len(ids), Data: columnar.Bytes(ids)}
		if err := list.stream.Send(&columnar.Batch{Cols: []*columnar.Vector{v}, Len: len(ids)}); err != nil {
			w.gw.workers.failed(list.addr, err)
			return fmt.Errorf("sending rows to delete from table %s to worker %s: %w", w.table.QualifiedName(), list.addr, err)
		}
	}
	res, err := list.stream.Finish()
	if err != nil {
		w.gw.workers.failed(list.addr, err)
		return fmt.Errorf("deleting from table %s on worker %s: %w", w.table.QualifiedName(), list.addr, err)
	}
	w.gw.observe(res.GetClock())
	p.addr, p.deletes, p.lists = list.addr, nil, res.GetDeletes()
	if p.result == nil {
		p.result = &pb.WriteResult{} // a participant, with rows or without
	}
	return nil
}

// staged is how many lists of rows to delete a participant holds.
func (p *writePart) staged() uint32 { return p.lists + p.result.GetDeletes() }

// stored is how many of the rows of a committed write were inserted or took the
// place of others.
func (w *tableWriter) stored() int64 { return int64(w.changes.Inserted + w.changes.Replaced) }

// count adds up what commits did.
func (w *tableWriter) count(c *pb.Changes) {
	w.changes.Inserted += c.GetInserted()
	w.changes.Replaced += c.GetReplaced()
	w.changes.Ignored += c.GetIgnored()
	w.changes.Deleted += c.GetDeleted()
}
