package gateway

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// lookupRows is how many rows of an INSERT ... ON CONFLICT have their keys
// looked up at a time.
const lookupRows = 16 << 10

// insertSets writes the rows of an INSERT, those of all sets of parameters in
// one transaction.
func (c *change) insertSets(ctx context.Context, sets [][]*planner.Literal) error {
	var bound []*sql.Insert
	var roots []planner.Node
	for _, set := range sets {
		b, err := c.st.with(set)
		if err != nil {
			return err
		}
		bound = append(bound, b.(*sql.Insert))
		roots = append(roots, b.(*sql.Insert).Source)
	}
	first := bound[0]
	for _, b := range bound[1:] {
		if !sameReturning(first.Returning, b.Returning) {
			return errSetsOverlap
		}
	}
	if err := c.returning(first.Returning, tableFields(first.Table)); err != nil {
		return err
	}
	conflict := first.Conflict
	if len(first.Table.PrimaryKey) == 0 {
		conflict = nil // nothing to be in conflict with
	}
	write := c.insertRows
	switch {
	case conflict == nil:
	case first.Returning == nil && conflict.Set == nil:
		c.w.onConflict = pb.WriteHeader_IGNORE
	case first.Returning == nil && conflict.Replace:
		c.w.onConflict = pb.WriteHeader_REPLACE
		if len(sets) == 1 {
			write = c.onceEach(write)
		}
	default:
		c.upserts, c.affected = true, make(map[string]bool)
		for i, root := range roots {
			// Later sets see the keys of earlier ones as those of a statement before.
			u, err := c.newUpsert(bound[i].Conflict, i > 0)
			if err != nil {
				return err
			}
			if err := c.query(ctx, root, func(b *columnar.Batch) error { return u.add(ctx, b) }); err != nil {
				return err
			}
			if err := u.flush(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	for _, root := range mergeValues(roots) {
		if err := c.query(ctx, root, func(b *columnar.Batch) error { return write(ctx, b) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) insertRows(ctx context.Context, b *columnar.Batch) error {
	if err := c.w.Write(ctx, b); err != nil {
		return err
	}
	return c.result.add(b)
}

// onceEach refuses rows with a key that the statement has written before.
func (c *change) onceEach(write func(context.Context, *columnar.Batch) error) func(context.Context, *columnar.Batch) error {
	seen := make(map[string]struct{})
	return func(ctx context.Context, b *columnar.Batch) error {
		key := keyColumns(c.w.table, b.Cols)
		var buf []byte
		err := eachRow(b, func(row int) error {
			buf = catalog.AppendKey(buf[:0], key, row)
			if _, twice := seen[string(buf)]; twice {
				return errSecondTime()
			}
			seen[string(buf)] = struct{}{}
			return nil
		})
		if err != nil {
			return err
		}
		return write(ctx, b)
	}
}

func errSecondTime() error {
	return sqlstate.New(sqlstate.CardinalityViolation, "ON CONFLICT DO UPDATE command cannot affect row a second time").
		WithHint("make sure that no rows to be inserted by one statement have the same key")
}

func keyColumns(t *catalog.Table, cols []*columnar.Vector) []*columnar.Vector {
	out := make([]*columnar.Vector, len(t.PrimaryKey))
	for i, at := range t.PrimaryKey {
		out[i] = cols[at]
	}
	return out
}

// upsert runs ON CONFLICT where stored rows must be read: rows are gathered,
// their keys looked up at the statement's snapshot, and each is inserted, left
// out, or changes the row that is there.
type upsert struct {
	c     *change
	table *catalog.Table
	set   []*exec.Evaluator // over stored and incoming columns; nil: DO NOTHING
	where *exec.Evaluator   // nil: all
	// later says that other sets of parameters came before this statement.
	later bool

	held     []*columnar.Batch
	heldRows int
}

func (c *change) newUpsert(conflict *sql.OnConflict, later bool) (*upsert, error) {
	u := &upsert{c: c, table: c.w.table, later: later}
	fields := make([]arrow.Field, 0, 2*len(u.table.Columns))
	for range 2 {
		fields = append(fields, c.w.schema.Fields()...)
	}
	both := arrow.NewSchema(fields, nil)
	for i, e := range conflict.Set {
		eval, err := exec.Compile(e, both)
		if err != nil {
			return nil, fmt.Errorf("compiling the new value of column %q: %w", u.table.Columns[i].Name, err)
		}
		u.set = append(u.set, eval)
	}
	if conflict.Where != nil {
		var err error
		if u.where, err = exec.Compile(conflict.Where, both); err != nil {
			return nil, fmt.Errorf("compiling the condition of ON CONFLICT: %w", err)
		}
	}
	return u, nil
}

func (u *upsert) add(ctx context.Context, b *columnar.Batch) error {
	u.held = append(u.held, b.Clone())
	u.heldRows += b.Rows()
	if u.heldRows < lookupRows {
		return nil
	}
	return u.flush(ctx)
}

// flush works off the rows gathered. Rows that repeat a key wait for the next
// round, as if they came later.
func (u *upsert) flush(ctx context.Context) error {
	if u.heldRows == 0 {
		return nil
	}
	rows, err := concatBatches(u.held)
	if err != nil {
		return err
	}
	if rows, err = dense(rows); err != nil {
		return err
	}
	u.held, u.heldRows = nil, 0
	pending := make([]int32, rows.Len)
	for i := range pending {
		pending[i] = int32(i)
	}
	for len(pending) > 0 {
		if pending, err = u.round(ctx, rows, pending); err != nil {
			return err
		}
	}
	return nil
}

// round works off the first row of each key and returns the others.
func (u *upsert) round(ctx context.Context, rows *columnar.Batch, pending []int32) ([]int32, error) {
	key := keyColumns(u.table, rows.Cols)
	places := make(map[string]int, len(pending))
	var now, rest []int32
	for _, row := range pending {
		k := string(catalog.AppendKey(nil, key, int(row)))
		if _, twice := places[k]; twice {
			rest = append(rest, row)
			continue
		}
		if affected, met := u.c.affected[k]; met && affected {
			if u.set == nil {
				continue // DO NOTHING
			}
			if u.later {
				return nil, errSetsOverlap
			}
			return nil, errSecondTime()
		}
		places[k] = len(now)
		now = append(now, row)
	}
	if len(now) == 0 {
		return rest, nil
	}
	incoming, err := dense(&columnar.Batch{Cols: rows.Cols, Len: rows.Len, Sel: now})
	if err != nil {
		return nil, err
	}
	stored, err := u.lookup(ctx, incoming)
	if err != nil {
		return nil, err
	}
	return rest, u.apply(ctx, incoming, stored, places)
}

// apply inserts the rows that have no stored one and changes stored ones.
// places says which incoming row has a key.
func (u *upsert) apply(ctx context.Context, incoming, stored *columnar.Batch, places map[string]int) error {
	n := len(u.table.Columns)
	taken := make([]bool, incoming.Len)
	var match, with []int32 // rows of stored, and the incoming ones of the same key
	if stored.Len > 0 {
		key := keyColumns(u.table, stored.Cols)
		for row := range stored.Len {
			at, ok := places[string(catalog.AppendKey(nil, key, row))]
			if !ok {
				continue // the lookup finds too much for keys of several columns
			}
			taken[at] = true
			match, with = append(match, int32(row)), append(with, int32(at))
		}
	}
	var fresh []int32
	for row := range taken {
		if !taken[row] {
			fresh = append(fresh, int32(row))
		}
	}
	key := keyColumns(u.table, incoming.Cols)
	mark := func(row int32) { u.c.affected[string(catalog.AppendKey(nil, key, int(row)))] = true }
	if len(fresh) > 0 {
		for _, row := range fresh {
			mark(row)
		}
		if err := u.c.insertRows(ctx, &columnar.Batch{Cols: incoming.Cols, Len: incoming.Len, Sel: fresh}); err != nil {
			return err
		}
	}
	if u.set == nil || len(match) == 0 {
		return nil
	}
	both := &columnar.Batch{Len: len(match), Cols: make([]*columnar.Vector, 0, 2*n)}
	for i := range n {
		both.Cols = append(both.Cols, columnar.Gather(stored.Cols[i], match, nil))
	}
	for i := range n {
		both.Cols = append(both.Cols, columnar.Gather(incoming.Cols[i], with, nil))
	}
	if u.where != nil {
		sel, err := u.where.Filter(both, nil)
		if err != nil {
			return err
		}
		both.Sel = append([]int32{}, sel...)
		if len(sel) == 0 {
			return nil
		}
	}
	return u.update(ctx, both, stored, match, func(row int) { mark(with[row]) })
}

// update replaces stored rows by what SET makes of them.
func (u *upsert) update(ctx context.Context, both, stored *columnar.Batch, match []int32, mark func(row int)) error {
	n := len(u.table.Columns)
	row := &columnar.Batch{Len: both.Len, Sel: both.Sel, Cols: make([]*columnar.Vector, n)}
	for i, eval := range u.set {
		v, err := eval.Eval(both)
		if err != nil {
			return err
		}
		row.Cols[i] = v
	}
	gone := &columnar.Batch{Len: both.Len, Sel: both.Sel, Cols: []*columnar.Vector{
		columnar.Gather(stored.Cols[n], match, nil), columnar.Gather(stored.Cols[n+1], match, nil),
	}}
	if err := u.c.w.Delete(gone); err != nil {
		return err
	}
	if err := eachRow(row, func(at int) error { mark(at); return nil }); err != nil {
		return err
	}
	return u.c.insertRows(ctx, row)
}

// lookup reads the stored rows that may have one of the keys: all columns, then
// tablet and row id.
func (u *upsert) lookup(ctx context.Context, incoming *columnar.Batch) (*columnar.Batch, error) {
	projection := make([]int, len(u.table.Columns), len(u.table.Columns)+2)
	for i := range projection {
		projection[i] = i
	}
	projection = append(projection, planner.TabletColumn, planner.RowIDColumn)
	scan := &planner.Scan{Table: u.table, Alias: u.table.Name, Projection: projection}
	var conditions []planner.Expr
	for _, at := range u.table.PrimaryKey {
		condition, err := keyCondition(u.table, at, incoming)
		if err != nil {
			return nil, err
		}
		conditions = append(conditions, condition)
	}
	var found []*columnar.Batch
	err := u.c.query(ctx, &planner.Filter{Input: scan, Predicate: planner.And(conditions...)}, func(b *columnar.Batch) error {
		found = append(found, b.Clone())
		return nil
	})
	if err != nil {
		return nil, err
	}
	stored, err := concatBatches(found)
	if err != nil {
		return nil, err
	}
	return dense(stored)
}

// keyCondition says that a key column has one of the values of some rows.
func keyCondition(t *catalog.Table, at int, rows *columnar.Batch) (planner.Expr, error) {
	c := &t.Columns[at]
	column := &planner.Column{Index: at, Name: c.Name, DataType: c.Type}
	seen := make(map[string]bool)
	var list []*planner.Literal
	for row := range rows.Len {
		k := string(catalog.AppendKey(nil, rows.Cols[at:at+1], row))
		if seen[k] {
			continue
		}
		seen[k] = true
		l, err := literalAt(rows.Cols[at], row, c.Type)
		if err != nil {
			return nil, err
		}
		if l.Value == nil {
			return nil, sqlstate.New(sqlstate.NotNullViolation,
				"null value in column %q of relation %q violates not-null constraint", c.Name, t.Name)
		}
		list = append(list, l)
	}
	if len(list) == 1 {
		return &planner.Call{Func: "=", Args: []planner.Expr{column, list[0]}, DataType: catalog.Boolean}, nil
	}
	return &planner.InList{Arg: column, List: list}, nil
}

// dense drops the rows of a batch that are not selected.
func dense(b *columnar.Batch) (*columnar.Batch, error) {
	out := &columnar.Batch{Len: b.Rows(), Cols: make([]*columnar.Vector, len(b.Cols))}
	for i, v := range b.Cols {
		if b.Sel != nil {
			out.Cols[i] = columnar.Gather(v, b.Sel, nil)
			continue
		}
		flat, err := v.Flatten()
		if err != nil {
			return nil, err
		}
		out.Cols[i] = flat
	}
	return out, nil
}

// errSetsOverlap ends an attempt to run several sets of parameters in one
// transaction when a later one is about a row that an earlier one wrote.
var errSetsOverlap = sqlstate.New(sqlstate.CardinalityViolation, "sets of parameters have the same key")

// sameReturning reports whether two sets of parameters leave RETURNING alike.
func sameReturning(a, b *sql.Returning) bool {
	if a == nil || b == nil {
		return a == b
	}
	for i, e := range a.Exprs {
		if e.String() != b.Exprs[i].String() {
			return false
		}
	}
	return true
}
