package gateway

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// holdRows is how many rows a write gathers before it opens streams to
// workers. A write that ends below it is sent in one go, committed in the same
// step when one tablet takes it all, and can be repeated on another replica.
const holdRows = 32 << 10

// tableWriter is one transaction that deletes rows of one table and inserts
// rows into it: see Delete in writedelete.go for the former.
//
// Rows are routed to tablets and streamed to a worker with a replica, which
// stages them; nothing is visible before Commit. With one tablet involved the
// commit is one Raft entry there; with several it is two-phase, decided by the
// commit record of the first one (the primary). Every step is idempotent by
// the transaction id, so it is repeated on another replica when a worker goes
// away. Exactly one of Commit and Abort must be called.
type tableWriter struct {
	gw     *Server
	snap   *snapshot
	table  *catalog.Table
	schema *arrow.Schema // physical
	router *catalog.Router
	txn    string
	rows   int64

	// autoCommit: the write went to its only tablet to commit by itself.
	autoCommit bool
	// unheard: it has been sent so once without an answer.
	unheard bool
	// onConflict is what becomes of rows whose key is taken.
	onConflict pb.WriteHeader_OnConflict
	snapshot   uint64     // that the deleted rows were read at
	deleted    int        // rows to delete, over all parts
	changes    pb.Changes // what the commit did

	held     []*columnar.Batch // own copies, in order, while streams are not open
	heldRows int
	parts    []*writePart // per tablet ordinal; nil until a row goes there

	ordinals []int32 // scratch of route
}

// writePart is the stream to one tablet.
type writePart struct {
	tablet catalog.TabletID
	addr   string
	stream *flightproto.Writer
	sel    []int32
	result *pb.WriteResult
	begun  bool // the tablet knows the transaction
	// deletes are rows to delete that no worker has been told of yet; lists is
	// how many lists of such rows a stream of their own has staged.
	deletes []uint64
	lists   uint32
}

func (g *Server) newTableWriter(snap *snapshot, table *catalog.Table) (*tableWriter, error) {
	router, err := catalog.NewRouter(table)
	if err != nil {
		return nil, fmt.Errorf("routing rows of table %s: %w", table.QualifiedName(), err)
	}
	fields := make([]arrow.Field, len(table.Columns))
	for i, c := range table.Columns {
		fields[i] = arrow.Field{Name: c.Name, Type: catalog.PhysicalType(c.Type), Nullable: c.Nullable}
	}
	return &tableWriter{
		gw: g, snap: snap, table: table, schema: arrow.NewSchema(fields, nil), router: router,
		txn: newID(), parts: make([]*writePart, len(table.Tablets)),
	}, nil
}

// Write adds rows: one physical vector per column of the table. The batch is
// the caller's again when Write returns.
func (w *tableWriter) Write(ctx context.Context, b *columnar.Batch) error {
	if b.Rows() == 0 {
		return nil
	}
	for i := range w.table.Columns {
		if err := checkColumn(w.table, i, b); err != nil {
			return err
		}
	}
	w.rows += int64(b.Rows())
	if w.held == nil && w.streaming() {
		return w.send(ctx, b)
	}
	w.held = append(w.held, b.Clone())
	w.heldRows += b.Rows()
	if w.heldRows < holdRows {
		return nil
	}
	for _, h := range w.held {
		if err := w.send(ctx, h); err != nil {
			return err
		}
	}
	w.held, w.heldRows = nil, 0
	return nil
}

func (w *tableWriter) streaming() bool {
	for _, p := range w.parts {
		if p != nil && p.stream != nil {
			return true
		}
	}
	return false
}

// checkColumn enforces NOT NULL and the length of a VARCHAR(n).
func checkColumn(t *catalog.Table, i int, b *columnar.Batch) error {
	c, v := &t.Columns[i], b.Cols[i]
	if !c.Nullable && v.Valid != nil {
		if row := firstRow(b, v.IsNull); row >= 0 {
			return sqlstate.New(sqlstate.NotNullViolation,
				"null value in column %q of relation %q violates not-null constraint", c.Name, t.Name).
				WithDetail("Row %d of the batch is null there.", row+1)
		}
	}
	if c.MaxLength == 0 {
		return nil
	}
	row := firstRow(b, func(row int) bool {
		if v.IsNull(row) {
			return false
		}
		s := v.BytesAt(row)
		return len(s) > c.MaxLength && utf8.RuneCount(s) > c.MaxLength
	})
	if row >= 0 {
		return sqlstate.New(sqlstate.StringTooLong, "value too long for column %q of type varchar(%d)", c.Name, c.MaxLength).
			WithDetail("Row %d of the batch has %d characters.", row+1, utf8.RuneCount(v.BytesAt(row)))
	}
	return nil
}

// firstRow returns the first selected row with a property, or -1.
func firstRow(b *columnar.Batch, has func(row int) bool) int {
	if b.Sel != nil {
		for _, row := range b.Sel {
			if has(int(row)) {
				return int(row)
			}
		}
		return -1
	}
	for row := range b.Len {
		if has(row) {
			return row
		}
	}
	return -1
}

// send routes one batch to the streams of its tablets.
func (w *tableWriter) send(ctx context.Context, b *columnar.Batch) error {
	for attempt := 1; ; attempt++ {
		err := w.openFor(ctx, b)
		if err == nil {
			break
		}
		if attempt == maxAttempts || w.reroute(ctx, attempt, err) != nil {
			return err
		}
	}
	if len(w.table.Tablets) == 1 {
		return w.sendTo(ctx, 0, b)
	}
	for t, p := range w.parts {
		if p == nil || len(p.sel) == 0 {
			continue
		}
		if err := w.sendTo(ctx, t, &columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: p.sel}); err != nil {
			return err
		}
	}
	return nil
}

// openFor routes a batch and opens the streams that it needs. The tablets get to
// know the transaction first: they are not split or merged before it is over, for
// what has been sent is gone from here.
func (w *tableWriter) openFor(ctx context.Context, b *columnar.Batch) error {
	if len(w.table.Tablets) == 1 {
		w.part(0).sel = nil
	} else if err := w.route(b); err != nil {
		return err
	}
	for _, p := range w.parts {
		if p == nil || p.stream != nil || (len(p.sel) == 0 && len(w.table.Tablets) > 1) {
			continue
		}
		if _, err := w.gw.transact(ctx, w.snap, &pb.TransactRequest{
			Step: pb.TransactRequest_BEGIN, TransactionId: w.txn, TabletId: uint64(p.tablet),
		}); err != nil {
			return err
		}
		p.begun = true
		if err := w.open(ctx, p, w.header(p, false)); err != nil {
			return err
		}
	}
	return nil
}

// route sets each part's selection to the batch's rows that belong to it.
func (w *tableWriter) route(b *columnar.Batch) error {
	ordinals, err := w.router.Route(b.Cols, b.Len, w.ordinals[:0])
	if err != nil {
		return fmt.Errorf("routing rows of table %s: %w", w.table.QualifiedName(), err)
	}
	w.ordinals = ordinals
	for _, p := range w.parts {
		if p != nil {
			p.sel = p.sel[:0]
		}
	}
	add := func(row int32) {
		t := ordinals[row]
		if w.parts[t] == nil {
			w.parts[t] = &writePart{tablet: w.table.Tablets[t].ID}
		}
		w.parts[t].sel = append(w.parts[t].sel, row)
	}
	if b.Sel != nil {
		for _, row := range b.Sel {
			add(row)
		}
		return nil
	}
	for row := range b.Len {
		add(int32(row))
	}
	return nil
}

func (w *tableWriter) sendTo(ctx context.Context, ordinal int, b *columnar.Batch) error {
	p := w.parts[ordinal]
	if p == nil {
		p = &writePart{tablet: w.table.Tablets[ordinal].ID}
		w.parts[ordinal] = p
	}
	if p.stream == nil {
		if err := w.open(ctx, p, w.header(p, false)); err != nil {
			return err
		}
	}
	if err := p.stream.Send(b); err != nil {
		w.gw.workers.failed(p.addr, err)
		return fmt.Errorf("sending rows of table %s to worker %s: %w", w.table.QualifiedName(), p.addr, err)
	}
	return nil
}

func (w *tableWriter) open(ctx context.Context, p *writePart, header *pb.WriteHeader) error {
	addr, err := w.gw.workers.place(w.snap, p.tablet)
	if err != nil {
		return err
	}
	conn, err := w.gw.workers.conn(addr)
	if err != nil {
		return err
	}
	if header.Authorization, err = w.gw.sign(ctx, w.txn); err != nil {
		return err
	}
	schema := w.schema
	if header.GetDeletes() {
		schema = deletedSchema()
	}
	stream, err := conn.Write(ctx, header, schema)
	if err != nil {
		w.gw.workers.failed(addr, err)
		return fmt.Errorf("opening a write to worker %s: %w", addr, err)
	}
	p.addr, p.stream, p.result = addr, stream, nil
	return nil
}

// Commit makes the rows visible, all or none, and returns their number.
func (w *tableWriter) Commit(ctx context.Context) (int64, error) {
	if w.rows == 0 && w.deleted == 0 {
		return 0, nil
	}
	small, err := w.settleDeletes(ctx)
	if err != nil {
		w.Abort()
		return 0, err
	}
	if small {
		if rows, over, err := w.sendSmall(ctx); over || err != nil {
			return rows, err
		}
	} else if err := w.finishStreams(ctx); err != nil {
		w.Abort()
		return 0, err
	}
	var participants []*writePart
	for _, p := range w.parts {
		if p != nil && p.result != nil {
			participants = append(participants, p)
		}
	}
	if len(participants) == 1 && participants[0].result.GetCommitTimestamp() != 0 {
		w.gw.observe(participants[0].result.GetCommitTimestamp())
		w.count(participants[0].result.GetChanges())
		return w.rows, nil
	}
	if err := w.decide(ctx, participants); err != nil {
		return 0, err
	}
	return w.rows, nil
}

// sendSmall sends a write whole, anew to the tablets that there are when those it
// was routed to were split or merged. It answers true if that has committed it.
func (w *tableWriter) sendSmall(ctx context.Context) (rows int64, over bool, err error) {
	for attempt := 1; ; attempt++ {
		err := w.sendHeld(ctx)
		if err == nil {
			return 0, false, nil
		}
		rows, err := w.settle(ctx, err)
		if err == nil {
			return rows, true, nil
		}
		if attempt == maxAttempts || w.reroute(ctx, attempt, err) != nil {
			return 0, false, err
		}
	}
}

// reroute turns to the tablets that the table has now, where cause says that
// those known here were split or merged. It returns the cause if that does not
// help: the table's columns have changed as well, or rows to delete are named by
// the tablets that they were in. Rows that are on their way keep their tablets,
// which are not split or merged before the transaction is over.
func (w *tableWriter) reroute(ctx context.Context, attempt int, cause error) error {
	if !unplanned(cause) || w.deleted > 0 {
		return cause
	}
	if err := w.gw.directory.recover(ctx, attempt, cause); err != nil {
		return cause
	}
	snap := w.gw.directory.Current()
	table, ok := snap.tableByID(w.table.ID)
	if !ok || table.Version != w.table.Version {
		return cause
	}
	router, err := catalog.NewRouter(table)
	if err != nil {
		return cause
	}
	parts := make([]*writePart, len(table.Tablets))
	streaming := false
	for _, p := range w.parts {
		if p == nil || p.stream == nil {
			continue
		}
		at := slices.IndexFunc(table.Tablets, func(t catalog.Tablet) bool { return t.ID == p.tablet })
		if at < 0 {
			return cause
		}
		parts[at], streaming = p, true
	}
	if !streaming {
		w.Abort() // it may have begun in some of the tablets
		w.txn = newID()
	}
	w.snap, w.table, w.router, w.parts, w.autoCommit, w.unheard = snap, table, router, parts, false, false
	return nil
}

// settle ends a small write that failed. When the failure leaves open whether
// the one participant committed by itself, its word decides: asking it to abort
// answers what it did.
func (w *tableWriter) settle(ctx context.Context, failure error) (int64, error) {
	if !w.autoCommit || (ctx.Err() == nil && !w.unheard && flightproto.ReasonOf(failure) != flightproto.Unavailable) {
		w.Abort()
		return 0, failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTimeout)
	defer cancel()
	for _, p := range w.parts {
		if p == nil {
			continue
		}
		p.close()
		resp, err := w.gw.transact(ctx, w.snap, &pb.TransactRequest{
			Step: pb.TransactRequest_ABORT, TransactionId: w.txn, TabletId: uint64(p.tablet),
		})
		switch {
		case err != nil:
			return 0, w.unknownOutcome(failure)
		case resp.GetOutcome() == pb.TransactResponse_COMMITTED:
			w.gw.observe(resp.GetCommitTimestamp())
			w.count(resp.GetChanges())
			return w.rows, nil
		}
	}
	return 0, failure
}

func (w *tableWriter) unknownOutcome(cause error) error {
	return sqlstate.New(sqlstate.UnknownTxnOutcome,
		"the commit of %d rows into %s was sent but not answered: %w", w.rows, w.table.QualifiedName(), cause).
		WithHint("check whether the rows are there before you repeat the statement")
}

// sendHeld sends a small write whole, again on other replicas if need be.
func (w *tableWriter) sendHeld(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := w.sendHeldOnce(ctx)
		if err == nil || ctx.Err() != nil || attempt == maxAttempts || !w.gw.mayRetry(err) {
			return causeOf(ctx, err)
		}
		if unplanned(err) {
			return err // the table's layout is part of this writer
		}
		w.unheard = w.unheard || (w.autoCommit && flightproto.ReasonOf(err) == flightproto.Unavailable)
		for _, p := range w.parts {
			if p != nil {
				p.close()
			}
		}
		if err := w.gw.directory.recover(ctx, attempt, err); err != nil {
			return err
		}
		w.snap = w.gw.directory.Current()
	}
}

func (w *tableWriter) sendHeldOnce(ctx context.Context) error {
	rows, err := concatBatches(w.held)
	if err != nil {
		return fmt.Errorf("gathering the rows of a write: %w", err)
	}
	if len(w.table.Tablets) == 1 {
		w.part(0)
	} else if rows.Len > 0 {
		if err := w.route(rows); err != nil {
			return err
		}
	}
	count := 0
	for _, p := range w.parts {
		if p != nil {
			count++
		}
	}
	w.autoCommit = count == 1
	for t, p := range w.parts {
		if p == nil {
			continue
		}
		header := w.header(p, w.autoCommit)
		header.DeletedRows = p.deletes
		if err := w.open(ctx, p, header); err != nil {
			return err
		}
		if rows.Len == 0 || (len(w.table.Tablets) > 1 && len(p.sel) == 0) {
			continue // it only deletes
		}
		part := rows
		if len(w.table.Tablets) > 1 {
			part = &columnar.Batch{Cols: rows.Cols, Len: rows.Len, Sel: p.sel}
		}
		if err := w.sendTo(ctx, t, part); err != nil {
			return err
		}
	}
	return w.finishStreams(ctx)
}

// finishStreams ends all streams and waits until what they carried is staged.
func (w *tableWriter) finishStreams(ctx context.Context) error {
	group, _ := errgroup.WithContext(ctx)
	for _, p := range w.parts {
		if p == nil || p.stream == nil {
			continue
		}
		group.Go(func() error {
			res, err := p.stream.Finish()
			if err != nil {
				w.gw.workers.failed(p.addr, err)
				return fmt.Errorf("writing to table %s on worker %s: %w", w.table.QualifiedName(), p.addr, err)
			}
			w.gw.observe(res.GetClock())
			p.result = res
			return nil
		})
	}
	return group.Wait()
}

func (p *writePart) close() {
	if p.stream != nil {
		p.stream.Abort()
		p.stream = nil
	}
}

// Abort drops everything that was staged. It never fails: what it cannot reach
// expires on the workers.
func (w *tableWriter) Abort() {
	snap, txn := w.snap, w.txn
	for _, p := range w.parts {
		if p == nil {
			continue
		}
		p.close()
		if p.addr == "" && !p.begun {
			continue
		}
		w.gw.background.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
			defer cancel()
			if _, err := w.gw.transact(ctx, snap, &pb.TransactRequest{
				Step: pb.TransactRequest_ABORT, TransactionId: txn, TabletId: uint64(p.tablet),
			}); err != nil {
				w.gw.log.Info("abort did not reach the tablet", "txn", txn, "tablet", p.tablet, "err", err)
			}
		})
	}
}

// concatBatches joins dense or selected batches of equal columns into one.
func concatBatches(batches []*columnar.Batch) (*columnar.Batch, error) {
	switch len(batches) {
	case 0:
		return &columnar.Batch{}, nil
	case 1:
		return batches[0], nil
	}
	out := &columnar.Batch{Cols: make([]*columnar.Vector, len(batches[0].Cols))}
	for i := range out.Cols {
		builder, err := columnar.NewBuilder(batches[0].Cols[i].Type)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			if err := builder.AppendVector(b.Cols[i], b.Sel); err != nil {
				return nil, err
			}
		}
		out.Cols[i] = builder.Finish()
	}
	out.Len = out.Cols[0].Len
	return out, nil
}
