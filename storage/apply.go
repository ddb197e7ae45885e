package storage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"skein/sqlstate"
)

// A Badger transaction is cut between two commands when it has grown to these.
const (
	applyBytes = 1 << 20
	applyOps   = 4096
)

// applier applies commands inside one Badger transaction. Memory is changed as
// it goes and readers see nothing of that before the transaction is committed;
// if that fails the tablet is done for.
type applier struct {
	t     *Tablet
	st    *tabletState
	index uint64
	txn   *badger.Txn
	bytes int
	ops   int
	dead  []deadSegment
	// grown says that rows were committed, so compaction may have work.
	grown bool
	// owned says that the manifest is this applier's own copy: its elements may
	// be replaced.
	owned bool
}

// Apply applies the commands of the log entries up to index, in order, and
// returns one result per command. The effect and the index become visible and
// reach Badger together. An error is not a command's: the replica must stop.
func (t *Tablet) Apply(index uint64, commands ...Command) ([]Result, error) {
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return nil, err
	}
	if err := t.store.CheckSpace(); err != nil {
		return nil, err // nothing was changed: the tablet itself is fine
	}
	a := &applier{t: t, st: t.state, index: index, txn: t.store.db.NewTransaction(true)}
	defer func() { a.txn.Discard() }()
	results := make([]Result, len(commands))
	for i, c := range commands {
		if a.bytes > applyBytes || a.ops > applyOps {
			// The index stays behind: after a crash here the log repeats all
			// commands, and those already applied answer as before.
			if err := a.flush(t.state.counters.applied); err != nil {
				return nil, t.fail(err)
			}
			t.store.opts.fault(FaultApplyFlush)
		}
		res, err := a.apply(c)
		if err != nil {
			return nil, t.fail(fmt.Errorf("applying a command to tablet %d at index %d: %w", t.id, index, err))
		}
		results[i] = res
	}
	t.store.opts.fault(FaultApplyCommit)
	if err := a.flush(max(index, t.state.counters.applied)); err != nil {
		return nil, t.fail(err)
	}
	t.store.opts.fault(FaultApplied)
	t.publish()
	t.bury(deadData{space: a.st.space, instance: a.st.instance, segments: a.dead})
	if a.grown {
		t.written.Store(t.store.opts.Now().UnixNano())
	}
	if a.grown || len(a.dead) > 0 {
		t.store.kick(t.id)
	}
	return results, nil
}

// flush commits what was written so far and starts another transaction.
func (a *applier) flush(applied uint64) error {
	a.st.counters.applied = applied
	if err := a.set([]byte{keyApplied}, a.st.counters.encode()); err != nil {
		return err
	}
	if err := a.txn.Commit(); err != nil {
		return ioError(err, "writing tablet %d", a.t.id)
	}
	a.txn = a.t.store.db.NewTransaction(true)
	a.bytes, a.ops = 0, 0
	return nil
}

func (a *applier) set(key, value []byte) error {
	a.ops++
	a.bytes += len(key)
	if len(value) < valueThreshold {
		a.bytes += len(value)
	}
	return ioError(a.txn.SetEntry(entryOf(a.st.space.key(key), value)), "writing tablet %d", a.t.id)
}

func (a *applier) delete(key []byte) error {
	a.ops++
	a.bytes += len(key)
	return ioError(a.txn.Delete(a.st.space.key(key)), "writing tablet %d", a.t.id)
}

// read is a keyReader that sees what the transaction wrote.
func (a *applier) read(key []byte, read func([]byte) error) error {
	var empty bool
	err := viewItem(a.txn, key, &empty, read)
	if err == nil && empty {
		return a.t.store.view(key, read)
	}
	return err
}

func (a *applier) apply(c Command) (Result, error) {
	if res, ok := a.st.finished[c.txn()]; ok {
		return repeated(c, res), nil
	}
	if res, refused := a.refused(c); refused {
		return res, nil
	}
	switch c := c.(type) {
	case Stage:
		return a.stage(c)
	case Prepare:
		return a.prepare(c)
	case Commit:
		return a.commit(c)
	case Abort:
		res, err := a.finish(c.Txn, abortedResult(c.Txn))
		return repeated(c, res), err
	case Resolve:
		return a.resolve(c)
	case StageDelete:
		return a.stageDelete(c)
	case Truncate:
		return a.truncate(c)
	case Hold:
		a.st.counters.hold(c)
		return Result{}, nil
	case Begin:
		return a.begin(c)
	case Seal:
		return a.seal(c), nil
	case Adopt:
		return a.adopt(c)
	}
	return Result{}, fmt.Errorf("unknown command %T", c)
}

func abortedResult(txn string) Result {
	return Result{Outcome: Aborted, Err: sqlstate.New(sqlstate.SerializationFailure,
		"transaction %s was aborted", txn).WithHint("run the transaction again")}
}

// repeated is the answer to a command of a finished transaction. Whoever wants
// a transaction aborted is told why only if it is not.
func repeated(c Command, res Result) Result {
	_, aborts := c.(Abort)
	_, asks := c.(Resolve)
	switch {
	case res.Outcome == Aborted && (aborts || asks):
		res.Err = nil
	case res.Outcome == Committed && aborts:
		res.Err = sqlstate.New(sqlstate.UnknownTxnOutcome, "transaction %s is committed and cannot be aborted", c.txn())
	}
	return res
}

// refuse answers a step that makes no sense, leaving the transaction alone.
func refuse(o Outcome, format string, args ...any) Result {
	return Result{Outcome: o, Err: sqlstate.New(sqlstate.ProtocolViolation, format, args...)}
}

// abort finishes a transaction because of an error.
func (a *applier) abort(txn string, why *sqlstate.Error) (Result, error) {
	return a.finish(txn, Result{Outcome: Aborted, Err: why})
}

func (a *applier) stage(c Stage) (Result, error) {
	tx := a.st.txns[c.Txn]
	if tx != nil && tx.prepared {
		if s := tx.segments[c.Seq]; s != nil && c.Part < s.parts && s.has(c.Part) {
			return Result{Outcome: Prepared}, nil
		}
		return refuse(Prepared, "transaction %s is prepared: it cannot stage segment %d", c.Txn, c.Seq), nil
	}
	if err := checkStage(c, tx); err != nil {
		return a.abort(c.Txn, err)
	}
	tx = a.st.transaction(c.Txn)
	s := tx.segments[c.Seq]
	if s == nil {
		s = a.newStaged(tx, c.Seq, c.Parts, c.OnConflict)
	}
	if s.has(c.Part) {
		return Result{Outcome: Staged}, nil
	}
	if why, err := a.addPart(s, c.Part, c.Data); why != nil || err != nil {
		if why != nil {
			return a.abort(c.Txn, why)
		}
		return Result{}, err
	}
	a.t.store.opts.fault(FaultStagePart)
	s.saved = true
	return Result{Outcome: Staged}, a.set(stagedKey(c.Txn, c.Seq), s.encode())
}

func checkStage(c Stage, tx *transaction) *sqlstate.Error {
	switch {
	case c.Parts == 0 || c.Parts > maxParts || c.Part >= c.Parts:
		return sqlstate.New(sqlstate.ProtocolViolation, "part %d of %d of a segment", c.Part, c.Parts)
	case len(c.Data) == 0 || len(c.Data) > 2*MaxPartBytes:
		return sqlstate.New(sqlstate.ProtocolViolation, "a segment part of %d bytes", len(c.Data))
	case c.Seq >= maxSegments:
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "a transaction stages more than %d segments in one tablet", maxSegments).
			WithHint("load the data in several transactions")
	}
	if tx != nil && tx.segments[c.Seq] != nil && tx.segments[c.Seq].parts != c.Parts {
		return sqlstate.New(sqlstate.ProtocolViolation, "segment %d has %d parts and %d", c.Seq, tx.segments[c.Seq].parts, c.Parts)
	}
	if tx != nil && tx.segments[c.Seq] != nil && tx.segments[c.Seq].mode != c.OnConflict {
		return sqlstate.New(sqlstate.ProtocolViolation, "segment %d has parts with different conflict modes", c.Seq)
	}
	return nil
}

func (a *applier) newStaged(tx *transaction, seq, parts uint32, mode ConflictMode) *stagedSegment {
	s := &stagedSegment{
		id: a.st.counters.nextSegment, seq: seq, parts: parts, mode: mode,
		got: make([]byte, (parts+7)/8), index: a.index,
	}
	a.st.counters.nextSegment++
	tx.segments[seq] = s
	return s
}

// addPart stores one part. Parts that do not belong to the table are the
// sender's fault, not the store's.
func (a *applier) addPart(s *stagedSegment, part uint32, data []byte) (*sqlstate.Error, error) {
	if part == 0 {
		meta, err := decodeSegmentMeta(data)
		if err == nil {
			err = meta.matches(a.t.Table())
		}
		if err == nil && meta.parts != int(s.parts) {
			err = fmt.Errorf("a segment of %d parts came in %d", meta.parts, s.parts)
		}
		if err != nil {
			return sqlstate.New(sqlstate.ProtocolViolation, "staging rows: %w", err), nil
		}
		s.meta = meta
	}
	s.got[part>>3] |= 1 << (part & 7)
	s.bytes += uint64(len(data))
	return nil, a.set(partKey(s.id, int(part)), data)
}

func (a *applier) prepare(c Prepare) (Result, error) {
	tx := a.st.transaction(c.Txn)
	if tx.prepared {
		return Result{Outcome: Prepared}, nil
	}
	why, err := a.check(tx, c.Segments, c.Deletes)
	if err != nil {
		return Result{}, err
	}
	if why != nil {
		return a.abort(c.Txn, why)
	}
	tx.prepared, tx.primary, tx.floor, tx.promised = true, c.Primary, max(c.Floor, a.st.counters.floor(c.Bounds)), c.Segments
	err = tx.decidedRecords(func(number uint32, value []byte) error { return a.set(decidedKey(c.Txn, number), value) })
	if err != nil {
		return Result{}, err
	}
	return Result{Outcome: Prepared}, a.set(preparedKey(c.Txn), tx.encode())
}

// check decides what a transaction will do, or reports why it cannot commit:
// something staged is missing, rows are gone, or keys are taken.
func (a *applier) check(tx *transaction, promised, lists uint32) (*sqlstate.Error, error) {
	segments, why := tx.inOrder(promised)
	if why != nil {
		return why, nil
	}
	if lists != tx.lists() {
		return sqlstate.New(sqlstate.ProtocolViolation,
			"transaction %s was to have %d lists of rows to delete, %d are staged", tx.id, lists, tx.lists()), nil
	}
	tx.effect = nil
	e := tx.decided()
	e.rows = tx.doomed()
	if why := a.checkDeletes(tx); why != nil {
		return why, nil
	}
	if len(a.t.Table().PrimaryKey) > 0 {
		return a.checkKeys(tx, segments)
	}
	for _, s := range segments {
		e.inserted += uint64(s.meta.rows)
	}
	return nil, nil
}

// inOrder returns the segments by number after checking that they are whole.
func (t *transaction) inOrder(promised uint32) ([]*stagedSegment, *sqlstate.Error) {
	if int(promised) != len(t.segments) {
		return nil, sqlstate.New(sqlstate.ProtocolViolation,
			"transaction %s was to have %d segments, %d are staged", t.id, promised, len(t.segments))
	}
	out := make([]*stagedSegment, 0, len(t.segments))
	for seq := range promised {
		s := t.segments[seq]
		if s == nil || !s.complete() {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "segment %d of transaction %s is not staged whole", seq, t.id)
		}
		out = append(out, s)
	}
	return out, nil
}

func (a *applier) commit(c Commit) (Result, error) {
	tx := a.st.transaction(c.Txn)
	if c.Timestamp == 0 {
		return refuse(tx.outcome(), "transaction %s commits without a timestamp", c.Txn), nil
	}
	segments := c.Segments
	if len(c.Inline) > 0 {
		segments++
	}
	if tx.prepared {
		switch least := max(tx.floor, tx.snapshot()); {
		case segments != tx.promised || len(c.InlineDelete) > 0:
			return refuse(Prepared, "transaction %s prepared %d segments, not %d", c.Txn, tx.promised, segments), nil
		case c.Timestamp <= least:
			return refuse(Prepared, "transaction %s was to commit above %d, not at %d", c.Txn, least, c.Timestamp), nil
		}
		return a.land(tx, c.Timestamp)
	}
	c.Timestamp = max(c.Timestamp, a.st.counters.floor(c.Bounds)+1)
	why, err := a.checkUnprepared(tx, c, segments)
	if err != nil {
		return Result{}, err
	}
	if why != nil {
		return a.abort(c.Txn, why)
	}
	return a.land(tx, c.Timestamp)
}

// checkUnprepared stages what the command carries and does what Prepare does.
func (a *applier) checkUnprepared(tx *transaction, c Commit, segments uint32) (*sqlstate.Error, error) {
	if len(c.Inline) > 0 {
		if tx.segments[c.Segments] != nil || segments > maxSegments {
			return sqlstate.New(sqlstate.ProtocolViolation, "transaction %s has staged more than %d segments", c.Txn, c.Segments), nil
		}
		why, err := a.addPart(a.newStaged(tx, c.Segments, 1, c.OnConflict), 0, c.Inline)
		if why != nil || err != nil {
			return why, err
		}
	}
	lists := c.Deletes
	if len(c.InlineDelete) > 0 {
		if tx.deletes[c.Deletes] != nil {
			return sqlstate.New(sqlstate.ProtocolViolation, "transaction %s has staged more than %d lists of rows to delete", c.Txn, c.Deletes), nil
		}
		tx.deletes[c.Deletes] = &stagedDelete{rows: c.InlineDelete, index: a.index}
		lists++
	}
	if c.Timestamp <= tx.snapshot() {
		// Whoever has read between the two would see rows vanish.
		return sqlstate.New(sqlstate.SerializationFailure,
			"transaction %s was to commit above its snapshot %d, not at %d", c.Txn, tx.snapshot(), c.Timestamp).
			WithHint("run the transaction again"), nil
	}
	return a.check(tx, segments, lists)
}

func (a *applier) resolve(c Resolve) (Result, error) {
	if tx := a.st.txns[c.Txn]; tx != nil && tx.prepared && tx.primary != a.t.id {
		return Result{Outcome: Prepared}, nil
	}
	res, err := a.finish(c.Txn, abortedResult(c.Txn))
	return repeated(c, res), err
}

// finish records the outcome of a transaction and forgets the rest of it.
func (a *applier) finish(txn string, res Result) (Result, error) {
	if tx := a.st.txns[txn]; tx != nil {
		if err := a.forget(tx, res.Outcome == Aborted); err != nil {
			return Result{}, err
		}
	}
	st := a.st
	if err := a.set(finishedKey(st.counters.finished), encodeFinished(txn, res)); err != nil {
		return Result{}, err
	}
	st.finished[txn] = res
	st.order = append(st.order, txn)
	st.counters.finished++
	if len(st.order) > maxFinished {
		oldest := st.counters.finished - uint64(len(st.order))
		if err := a.delete(finishedKey(oldest)); err != nil {
			return Result{}, err
		}
		delete(st.finished, st.order[0])
		st.order = st.order[1:]
	}
	return res, nil
}

func (a *applier) forget(tx *transaction, dropData bool) error {
	delete(a.st.txns, tx.id)
	if tx.prepared {
		if err := a.delete(preparedKey(tx.id)); err != nil {
			return err
		}
		err := tx.decidedRecords(func(number uint32, _ []byte) error { return a.delete(decidedKey(tx.id, number)) })
		if err != nil {
			return err
		}
	}
	// The order of writes is the log's, not the map's.
	for _, seq := range slices.Sorted(maps.Keys(tx.deletes)) {
		if tx.deletes[seq].saved {
			if err := a.delete(stagedDeleteKey(tx.id, seq)); err != nil {
				return err
			}
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(tx.segments)) {
		s := tx.segments[seq]
		if s.saved {
			if err := a.delete(stagedKey(tx.id, seq)); err != nil {
				return err
			}
		}
		if dropData {
			chunks := 0
			if s.meta != nil {
				chunks = len(s.meta.columns)
			}
			a.dead = append(a.dead, deadSegment{id: s.id, parts: int(s.parts), chunks: chunks, bytes: int(s.bytes)})
		}
	}
	return nil
}
