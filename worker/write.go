package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto/pb"
	"skein/sqlstate"
	"skein/storage"
)

const (
	// segmentBytes is how many bytes of rows, as received, end a segment early.
	segmentBytes = 64 << 20
	// abortPatience bounds the abort of a write that failed.
	abortPatience = 10 * time.Second
)

// write is one stream of rows on its way into a tablet. Rows are gathered into
// segments; each full segment is encoded and staged by a goroutine of the
// group, so receiving, encoding and replication overlap. add and finish or fail
// are called by one goroutine.
type write struct {
	server *Server
	header *pb.WriteHeader
	table  *catalog.Table
	tablet catalog.TabletID
	parent context.Context // of the stream
	cancel context.CancelCauseFunc
	group  *errgroup.Group
	ctx    context.Context // of the group
	slots  chan struct{}   // one token per Stage in flight

	pending  []*columnar.Batch // of the next segment
	rows     int               // in pending
	bytes    int64             // in pending
	total    uint64            // rows received
	segments uint32            // handed to the group
	touched  bool              // something may have been proposed
	deletes  deletions
}

func newWrite(ctx context.Context, cancel context.CancelCauseFunc, s *Server, header *pb.WriteHeader, table *catalog.Table) *write {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(s.cfg.EncodeWorkers + 1)
	return &write{
		server: s, header: header, table: table, tablet: catalog.TabletID(header.GetTabletId()),
		parent: ctx, cancel: cancel, group: group, ctx: groupCtx,
		slots: make(chan struct{}, s.cfg.StageInFlight),
	}
}

// add takes a batch, which must not change afterwards, and hands full segments
// to the group. It blocks while the group has enough to do.
func (w *write) add(batch *columnar.Batch) error {
	if batch.Sel != nil {
		return fmt.Errorf("writing to tablet %d: batch is not dense", w.tablet)
	}
	w.total += uint64(batch.Len)
	for batch.Len > 0 {
		room := storage.SegmentRows - w.rows
		head := batch
		if batch.Len > room {
			head, batch = sliceBatch(batch, 0, room), sliceBatch(batch, room, batch.Len)
		} else {
			batch = &columnar.Batch{}
		}
		w.pending = append(w.pending, head)
		w.rows += head.Len
		w.bytes += batchBytes(head)
		if w.rows == storage.SegmentRows || w.bytes >= segmentBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func sliceBatch(b *columnar.Batch, from, to int) *columnar.Batch {
	out := &columnar.Batch{Len: to - from, Cols: make([]*columnar.Vector, len(b.Cols))}
	for i, v := range b.Cols {
		out.Cols[i] = v.Slice(from, to)
	}
	return out
}

// flush hands the pending rows to the group as the next segment.
func (w *write) flush() error {
	if w.rows == 0 {
		return nil
	}
	weight := min(w.bytes, w.server.cfg.WriteBytes)
	if err := w.server.memory.Acquire(w.ctx, weight); err != nil {
		return w.cause()
	}
	batches, seq := w.pending, w.segments
	w.pending, w.rows, w.bytes = nil, 0, 0
	w.segments++
	w.touched = true
	w.group.Go(func() error {
		defer w.server.memory.Release(weight)
		segment, err := w.server.encode(w.ctx, w.table, batches)
		if err != nil {
			return err
		}
		return w.stage(seq, segment)
	})
	return nil
}

// encode encodes one segment when one of the server's encoders is free.
func (s *Server) encode(ctx context.Context, table *catalog.Table, batches []*columnar.Batch) (*storage.Segment, error) {
	select {
	case s.encoders <- struct{}{}:
		defer func() { <-s.encoders }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return storage.EncodeSegment(table, batches)
}

// stage proposes the parts of a segment, several at once.
func (w *write) stage(seq uint32, segment *storage.Segment) error {
	parts := segment.Parts()
	group, ctx := errgroup.WithContext(w.ctx)
	for i, part := range parts {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return errors.Join(group.Wait(), context.Cause(w.ctx))
		}
		group.Go(func() error {
			defer func() { <-w.slots }()
			return w.propose(ctx, storage.Stage{
				Txn: w.header.GetTransactionId(), Seq: seq, Part: uint32(i), Parts: uint32(len(parts)), Data: part,
				OnConflict: conflictMode(w.header),
			})
		})
	}
	return group.Wait()
}

func (w *write) propose(ctx context.Context, stage storage.Command) error {
	result, err := w.server.cfg.Node.Propose(ctx, w.tablet, stage)
	switch {
	case err != nil:
		return err
	case result.Err != nil:
		return result.Err
	case result.Outcome == storage.Aborted:
		return sqlstate.New(sqlstate.SerializationFailure, "transaction %s was aborted while its rows arrived", w.header.GetTransactionId())
	}
	return nil
}

// cause is why the group's context ended.
func (w *write) cause() error {
	if err := w.group.Wait(); err != nil {
		return err
	}
	return context.Cause(w.parent)
}

// finish stages what is pending, commits if asked to, and reports.
func (w *write) finish() (*pb.WriteResult, error) {
	if w.header.GetAutoCommit() && w.segments == 0 {
		return w.commitInline()
	}
	if err := w.flush(); err != nil {
		return nil, w.fail(err)
	}
	if err := w.stageDeletes(); err != nil {
		return nil, w.fail(err)
	}
	if err := w.group.Wait(); err != nil {
		return nil, w.fail(err)
	}
	if !w.header.GetAutoCommit() {
		return w.result(storage.Result{}), nil
	}
	return w.commit(storage.Commit{Segments: w.segments, Deletes: w.deletes.lists})
}

// commitInline commits a write that fits one segment, in one log entry if the
// segment is small.
func (w *write) commitInline() (*pb.WriteResult, error) {
	deleted := w.header.GetDeletedRows()
	switch {
	case w.rows == 0 && len(deleted) == 0:
		return w.result(storage.Result{Timestamp: w.server.cfg.Node.Clock().Now()}), nil
	case w.rows == 0:
		return w.commit(storage.Commit{InlineDelete: deleted})
	}
	segment, err := w.server.encode(w.parent, w.table, w.pending)
	if err != nil {
		return nil, w.fail(err)
	}
	parts := segment.Parts()
	if len(parts) == 1 && len(parts[0]) <= w.server.cfg.InlineBytes {
		return w.commit(storage.Commit{Inline: parts[0], OnConflict: conflictMode(w.header), InlineDelete: deleted})
	}
	w.segments, w.touched = 1, true
	if err := w.stage(0, segment); err != nil {
		return nil, w.fail(err)
	}
	return w.commit(storage.Commit{Segments: 1, InlineDelete: deleted})
}

func (w *write) commit(command storage.Commit) (*pb.WriteResult, error) {
	command.Txn = w.header.GetTransactionId()
	command.Timestamp = w.server.cfg.Node.Clock().Now()
	result, err := w.server.cfg.Node.Propose(w.parent, w.tablet, command)
	if err != nil {
		// Whether it happened only the tablet can tell; whoever repeats the
		// write or asks for its abort gets to know, so nothing is done here.
		return nil, err
	}
	if result.Outcome != storage.Committed && result.Outcome != storage.Aborted {
		w.abort() // refused, so its rows are still staged
	}
	if result.Err != nil {
		return nil, result.Err
	}
	if result.Outcome != storage.Committed {
		return nil, sqlstate.New(sqlstate.SerializationFailure, "transaction %s is %s", command.Txn, result.Outcome)
	}
	return w.result(result), nil
}

func (w *write) result(r storage.Result) *pb.WriteResult {
	return &pb.WriteResult{
		Rows: w.total, Segments: w.segments, Deletes: w.deletes.lists, CommitTimestamp: r.Timestamp,
		Clock: w.server.cfg.Node.Clock().Now(), Changes: changesOf(r),
	}
}

// fail ends the group and aborts the transaction on the tablet, so that nothing
// staged stays behind. It returns the error to report.
func (w *write) fail(err error) error {
	w.cancel(err)
	if groupErr := w.group.Wait(); groupErr != nil && isCancellation(err) && !isCancellation(groupErr) {
		err = groupErr
	}
	if w.touched {
		w.abort()
	}
	return err
}

// abort proposes an abort even when the stream is gone.
func (w *write) abort() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.parent), abortPatience)
	defer cancel()
	txn := w.header.GetTransactionId()
	_, err := w.server.cfg.Node.Propose(ctx, w.tablet, storage.Abort{Txn: txn})
	if err != nil && !errors.Is(err, consensus.ErrTabletReplaced) { // which has nothing staged
		w.server.log.Warn("aborting a failed write failed, its rows will be dropped later", "txn", txn, "tablet", w.tablet, "err", err)
	}
}

// batchBytes is about how much memory a batch holds.
func batchBytes(b *columnar.Batch) int64 {
	total := int64(64 + 4*len(b.Sel))
	for _, v := range b.Cols {
		total += vectorBytes(v)
	}
	return total
}

func vectorBytes(v *columnar.Vector) int64 {
	total := int64(len(v.Valid) + len(v.Data) + 4*len(v.Offsets) + 4*len(v.Codes))
	if v.Dict != nil {
		total += vectorBytes(v.Dict)
	}
	for _, child := range v.Children {
		total += vectorBytes(child)
	}
	return total
}
