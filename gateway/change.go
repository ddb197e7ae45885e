package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

const (
	// changeAttempts is how often a statement that changes rows is run before
	// the client is told that others were always faster.
	changeAttempts = 6
	// changePause is the first wait before another attempt; it doubles.
	changePause = 2 * time.Millisecond
)

// changed is what a statement did: how many rows it inserted, changed or
// deleted, and with RETURNING their values.
type changed struct {
	rows   int64
	result *heldRows // nil without RETURNING
}

// changeRows runs an INSERT, UPDATE or DELETE. It reads at one snapshot and
// writes in one transaction; when another transaction was faster with one of
// the rows, or the table has been altered, the statement is run again on what
// there is now.
func (s *sqlService) changeRows(ctx context.Context, id string, st *statement, sets [][]*planner.Literal) (changed, error) {
	for attempt := 1; ; attempt++ {
		st.analysis.restart()
		c := &change{s: s, id: fmt.Sprintf("%s-%d", id, attempt), st: st, memory: queryMemory(ctx)}
		done, err := c.run(ctx, sets)
		if err == nil {
			s.gw.metrics.rowsWrote.Add(float64(done.rows))
			s.gw.directory.Kick()
			return done, nil
		}
		if ctx.Err() != nil {
			return changed{}, causeOf(ctx, err)
		}
		if attempt == changeAttempts || !c.again(err) {
			return changed{}, s.ifDropped(ctx, err, st.target())
		}
		s.gw.log.Debug("a statement is run again", "query_id", id, "attempt", attempt, "err", err)
		if !unplanned(err) {
			sleep(ctx, jitter(changePause<<attempt))
			continue
		}
		if st, err = s.rebind(ctx, st, attempt, err); err != nil {
			return changed{}, err
		}
	}
}

// rebind compiles a statement against newer metadata, which cause asks for. What
// it returns and takes must be what the client was told.
func (s *sqlService) rebind(ctx context.Context, st *statement, attempt int, cause error) (*statement, error) {
	if st.analysis != nil { // it is bound with its parameters
		return nil, sqlstate.New(sqlstate.SerializationFailure, "a table was altered while EXPLAIN ANALYZE ran").
			WithHint("run it again")
	}
	if err := s.gw.directory.recover(ctx, attempt, cause); err != nil {
		return nil, err
	}
	fresh, err := s.compileIn(ctx, st.scope, st.text)
	if err != nil {
		return nil, err
	}
	if !fresh.schema().Equal(st.schema()) || !fresh.parameterSchema().Equal(st.parameterSchema()) {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "cached plan must not change result type").
			WithHint("a table of the statement was changed: run or prepare it again")
	}
	return fresh, nil
}

// change is one attempt of a statement that changes rows.
type change struct {
	s  *sqlService
	id string
	st *statement
	// upserts says that a taken key may be the work of a transaction that was
	// not visible yet.
	upserts bool
	// affected are the keys that an upsert has written.
	affected map[string]bool
	queries  int
	snapshot uint64
	w        *tableWriter
	result   *heldRows
	memory   int64 // as queryMemory
}

// again reports whether another attempt could end otherwise.
func (c *change) again(err error) bool {
	var done partial
	if errors.As(err, &done) {
		return false
	}
	switch sqlstate.CodeOf(err) {
	case sqlstate.SerializationFailure:
		return true
	case sqlstate.UniqueViolation:
		return c.upserts
	}
	return unplanned(err)
}

// run runs the statement with each set of parameters.
func (c *change) run(ctx context.Context, sets [][]*planner.Literal) (changed, error) {
	switch b := c.st.bound.Statement.(type) {
	case *sql.Insert:
		done, err := c.together(ctx, b.Table, sets, c.insertSets)
		if errors.Is(err, errSetsOverlap) {
			return c.inTurn(ctx, sets)
		}
		return done, err
	case *sql.Delete:
		if len(sets) == 1 || (b.Returning == nil && scans(b.Source) == 1) {
			return c.together(ctx, b.Table, sets, c.eachSet(c.deleteRows)) // deletes commute
		}
		return c.inTurn(ctx, sets)
	case *sql.Update:
		if len(sets) > 1 {
			return c.inTurn(ctx, sets)
		}
		return c.together(ctx, b.Table, sets, c.eachSet(c.updateRows))
	}
	return changed{}, sqlstate.New(sqlstate.InternalError, "%T does not change rows", c.st.bound.Statement)
}

// inTurn runs the statement with one set of parameters after the other, each in
// a transaction of its own, so that later ones see what earlier ones did.
func (c *change) inTurn(ctx context.Context, sets [][]*planner.Literal) (changed, error) {
	all := changed{}
	for i, set := range sets {
		one, err := c.s.changeRows(ctx, fmt.Sprintf("%s.%d", c.id, i+1), c.st, [][]*planner.Literal{set})
		if err != nil {
			all.result.close()
			return changed{}, partial{fmt.Errorf("parameter set %d of %d, those before it are executed: %w", i+1, len(sets), err)}
		}
		all.rows += one.rows
		all.result = all.result.join(one.result)
	}
	return all, nil
}

// partial tells that a statement did part of its work, which must not be
// repeated. The error keeps its code.
type partial struct{ error }

func (e partial) Unwrap() error { return e.error }

// together runs the statement for all sets in one transaction.
func (c *change) together(ctx context.Context, table *catalog.Table, sets [][]*planner.Literal, body func(context.Context, [][]*planner.Literal) error) (changed, error) {
	w, err := c.s.gw.newTableWriter(c.s.gw.directory.Current(), table)
	if err != nil {
		return changed{}, err
	}
	c.w, c.snapshot = w, c.s.gw.clock.Now()
	w.snapshot = c.snapshot
	if err := body(ctx, sets); err != nil {
		w.Abort()
		c.result.close()
		return changed{}, err
	}
	rows, err := w.Commit(ctx)
	if err != nil {
		c.result.close()
		return changed{}, err
	}
	switch b := c.st.bound.Statement.(type) {
	case *sql.Delete:
		rows = int64(w.deleted)
	case *sql.Insert:
		if b.Conflict != nil && w.onConflict != pb.WriteHeader_ERROR {
			rows = w.stored()
		}
	}
	return changed{rows: rows, result: c.result}, nil
}

// eachSet runs f with the statement of each set.
func (c *change) eachSet(f func(context.Context, sql.Bound) error) func(context.Context, [][]*planner.Literal) error {
	return func(ctx context.Context, sets [][]*planner.Literal) error {
		for _, set := range sets {
			bound, err := c.st.with(set)
			if err != nil {
				return err
			}
			if err := f(ctx, bound); err != nil {
				return err
			}
		}
		return nil
	}
}

// query runs a plan at the statement's snapshot.
func (c *change) query(ctx context.Context, root planner.Node, emit sink) error {
	c.queries++
	optimized, err := c.s.optimize(root)
	if err != nil {
		return err
	}
	return c.s.gw.runQuery(ctx, fmt.Sprintf("%s-q%d", c.id, c.queries), &job{root: optimized}, clientSink{batch: emit, snapshot: c.snapshot, analysis: c.st.analysis})
}

// scans counts the table scans of a plan.
func scans(n planner.Node) int {
	if _, ok := n.(*planner.Scan); ok {
		return 1
	}
	count := 0
	for _, in := range n.Inputs() {
		count += scans(in)
	}
	return count
}

// deleteRows deletes the rows that a DELETE finds.
func (c *change) deleteRows(ctx context.Context, bound sql.Bound) error {
	b := bound.(*sql.Delete)
	once := newRowSet(b.Joined && b.Returning != nil)
	if err := c.returning(b.Returning, b.Source.Schema().Fields()[2:]); err != nil {
		return err
	}
	return c.query(ctx, b.Source, func(rows *columnar.Batch) error {
		rows, err := once.first(rows)
		if err != nil {
			return err
		}
		if err := c.w.Delete(rows); err != nil {
			return err
		}
		return c.result.add(&columnar.Batch{Cols: rows.Cols[2:], Len: rows.Len, Sel: rows.Sel})
	})
}

// updateRows replaces the rows that an UPDATE finds by new ones.
func (c *change) updateRows(ctx context.Context, bound sql.Bound) error {
	b := bound.(*sql.Update)
	once := newRowSet(b.Joined)
	if err := c.returning(b.Returning, b.Source.Schema().Fields()[2:]); err != nil {
		return err
	}
	return c.query(ctx, b.Source, func(rows *columnar.Batch) error {
		rows, err := once.first(rows)
		if err != nil {
			return err
		}
		if err := c.w.Delete(rows); err != nil {
			return err
		}
		row := rows.Cols[2:]
		if err := c.w.Write(ctx, &columnar.Batch{Cols: row[:len(b.Table.Columns)], Len: rows.Len, Sel: rows.Sel}); err != nil {
			return err
		}
		return c.result.add(&columnar.Batch{Cols: row, Len: rows.Len, Sel: rows.Sel})
	})
}

// rowSet remembers rows, to take each only once. A nil one takes all.
type rowSet map[[2]int64]struct{}

func newRowSet(needed bool) rowSet {
	if !needed {
		return nil
	}
	return make(rowSet)
}

// first narrows a batch, whose first columns are tablets and row ids, to rows
// not met before.
func (s rowSet) first(b *columnar.Batch) (*columnar.Batch, error) {
	if s == nil {
		return b, nil
	}
	tablets, err := b.Cols[0].Flatten()
	if err != nil {
		return nil, err
	}
	ids, err := b.Cols[1].Flatten()
	if err != nil {
		return nil, err
	}
	of, id := columnar.Values[int64](tablets), columnar.Values[int64](ids)
	sel := make([]int32, 0, b.Rows())
	err = eachRow(b, func(row int) error {
		key := [2]int64{of[row], id[row]}
		if _, met := s[key]; !met {
			s[key] = struct{}{}
			sel = append(sel, int32(row))
		}
		return nil
	})
	return &columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: sel}, err
}
