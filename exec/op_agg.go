package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// aggState is the state of one aggregate function for all groups, as arrays
// indexed by group id.
type aggState interface {
	// reserve makes room for groups 0 to n-1.
	reserve(n int) error
	// fold adds the selected rows of a batch to the groups ids; nil stands for
	// group 0 throughout.
	fold(b *columnar.Batch, ids []int32) error
	// emitState writes the states of groups [lo, hi) as columns for a final
	// aggregate.
	emitState(lo, hi int, out []*columnar.Vector)
	// emitResult writes the results of groups [lo, hi).
	emitResult(lo, hi int, out *columnar.Vector) error
	free()
}

// cutter is a state whose results may be large: cut returns how many of groups
// [lo, hi), but at least one, make a batch of reasonable size.
type cutter interface {
	cut(lo, hi int) (int, error)
}

// aggregateOp groups its input by hash. As a partial aggregate it emits states,
// and when memory runs out it emits what it has and starts afresh; as a final
// one it combines states to results. Groups come out in the order of their
// first rows.
type aggregateOp struct {
	input  Operator
	schema *arrow.Schema
	final  bool
	acct   *Account
	kept   *Account // of the rows that complete aggregates keep, else nil
	groups *grouper // nil for a global aggregate, which is the one group 0
	states []aggState
	// columns of the output: outs[i] is those of calls[i], which may share
	// its state with another call
	calls []aggOutput

	spill     *aggSpill       // of a final aggregate that may put states on disk
	rest      *aggRest        // of a complete aggregate that may put rows on disk
	clustered bool            // emitting before memory runs out
	held      *columnar.Batch // batch that found no room before a flush
	done      bool            // the input has ended
	emits     bool            // emitting groups from at on
	at        int
	closed    bool
	out       columnar.Batch
}

// aggOutput is where a call's values come from and go to.
type aggOutput struct {
	state aggState
	first int // output column
	width int // output columns
}

func newPartialAggregate(input Operator, op *planner.PartialAggregate, budget *Budget) (Operator, error) {
	a, err := newAggregate(input, op.GroupBy, op.Schema, budget.partialAccount())
	if err != nil {
		return nil, err
	}
	shared := map[stateKey]aggState{}
	at := len(op.GroupBy)
	for _, call := range op.Calls {
		key, err := partialState(call, input.Schema())
		if err != nil {
			return nil, err
		}
		state, ok := shared[key]
		if !ok {
			if state, err = key.build(input.Schema(), a.acct); err != nil {
				return nil, err
			}
			shared[key] = state
			a.states = append(a.states, state)
		}
		width := stateWidth(call.Func)
		a.calls = append(a.calls, aggOutput{state: state, first: at, width: width})
		at += width
	}
	return a, a.check("partial", at)
}

// stateKind is a family of states; calls of one kind and column share a state.
type stateKind uint8

const (
	countRows stateKind = iota
	countValues
	sumAndCount
	smallest
	greatest
	firstValue
	moments
)

type stateKey struct {
	kind stateKind
	col  int
}

// partialState names the state that a call folds rows into.
func partialState(call planner.AggCall, schema *arrow.Schema) (stateKey, error) {
	if call.Func == planner.Count && call.Arg < 0 {
		return stateKey{countRows, -1}, nil
	}
	if err := checkOrdinals(string(call.Func), []int{call.Arg}, schema); err != nil {
		return stateKey{}, err
	}
	switch call.Func {
	case planner.Count:
		return stateKey{countValues, call.Arg}, nil
	case planner.Sum, planner.Avg:
		return stateKey{sumAndCount, call.Arg}, nil
	case planner.Min:
		return stateKey{smallest, call.Arg}, nil
	case planner.Max:
		return stateKey{greatest, call.Arg}, nil
	case planner.BoolAnd, planner.BoolOr:
		if schema.Field(call.Arg).Type.ID() != arrow.BOOL {
			break
		}
		if call.Func == planner.BoolAnd {
			return stateKey{smallest, call.Arg}, nil
		}
		return stateKey{greatest, call.Arg}, nil
	case planner.AnyValue:
		return stateKey{firstValue, call.Arg}, nil
	case planner.StddevSamp, planner.StddevPop, planner.VarSamp, planner.VarPop:
		if schema.Field(call.Arg).Type.ID() == arrow.FLOAT64 {
			return stateKey{moments, call.Arg}, nil
		}
	}
	return stateKey{}, sqlstate.New(sqlstate.FeatureNotSupported, "aggregate function %s of type %s is not supported",
		call.Func, schema.Field(call.Arg).Type)
}

func (k stateKey) build(schema *arrow.Schema, acct *Account) (aggState, error) {
	switch k.kind {
	case countRows, countValues:
		return &countState{acct: acct, col: k.col}, nil
	case sumAndCount:
		return newSumState(schema.Field(k.col).Type, k.col, -1, false, acct)
	case firstValue:
		return newFirstState(schema.Field(k.col).Type, k.col, acct)
	case moments:
		return &momentState{acct: acct, col: k.col}, nil
	}
	return newExtremeState(schema.Field(k.col).Type, k.col, k.kind == greatest, acct)
}

// newSumState returns the state of SUM and AVG over a column. count is the
// column of counts when partial averages are combined, else -1.
func newSumState(dt arrow.DataType, col, count int, average bool, acct *Account) (aggState, error) {
	switch t := dt.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return &exactSumState{acct: acct, col: col, count: count}, nil
	case *arrow.Decimal64Type:
		return &exactSumState{acct: acct, col: col, count: count, scale: int(t.Scale)}, nil
	case *arrow.Decimal128Type:
		return &exactSumState{acct: acct, col: col, count: count, scale: int(t.Scale)}, nil
	case *arrow.Float32Type, *arrow.Float64Type:
		return &floatSumState{acct: acct, col: col, count: count, average: average}, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "SUM and AVG of type %s are not supported", dt)
}

// stateWidth is the number of state columns of a call.
func stateWidth(f planner.AggFunc) int {
	switch f {
	case planner.Avg:
		return 2
	case planner.StddevSamp, planner.StddevPop, planner.VarSamp, planner.VarPop:
		return 3
	}
	return 1
}

// newFinalAggregate combines states; depth counts how often the input has been
// partitioned to fit in memory.
func newFinalAggregate(input Operator, op *planner.FinalAggregate, env *Env, depth int) (Operator, error) {
	a, err := newAggregate(input, op.GroupBy, op.Schema, aggAccount(env, depth))
	if err != nil {
		return nil, err
	}
	a.final = true
	if env.spills() && len(op.GroupBy) > 0 && depth < maxSpillDepth {
		a.spill = &aggSpill{op: op, env: env, depth: depth}
	}
	col := len(op.GroupBy)
	for i, call := range op.Calls {
		width := stateWidth(call.Func)
		if col+width > input.Schema().NumFields() {
			return nil, malformed("the final aggregate %s has no state column", call.Func)
		}
		state, err := finalState(call, input.Schema().Field(col).Type, col, a.acct)
		if err != nil {
			return nil, err
		}
		if a.spill != nil {
			a.spill.states = append(a.spill.states, aggOutput{state: state, first: col, width: width})
		}
		col += width
		a.states = append(a.states, state)
		a.calls = append(a.calls, aggOutput{state: state, first: len(op.GroupBy) + i, width: 1})
	}
	return a, a.check("final", len(op.GroupBy)+len(op.Calls))
}

// finalState combines the states in the columns from col on.
func finalState(call planner.AggCall, dt arrow.DataType, col int, acct *Account) (aggState, error) {
	switch call.Func {
	case planner.Count:
		if dt.ID() != arrow.INT64 {
			return nil, malformed("a count has state type %s", dt)
		}
		return &countState{acct: acct, col: col, merge: true}, nil
	case planner.Sum:
		return newSumState(dt, col, -1, false, acct)
	case planner.Avg:
		return newSumState(dt, col, col+1, true, acct)
	case planner.Min, planner.BoolAnd:
		return newExtremeState(dt, col, false, acct)
	case planner.Max, planner.BoolOr:
		return newExtremeState(dt, col, true, acct)
	case planner.AnyValue:
		return newFirstState(dt, col, acct)
	case planner.StddevSamp, planner.StddevPop, planner.VarSamp, planner.VarPop:
		return &momentState{acct: acct, col: col, merge: true, result: call.Func}, nil
	}
	return nil, sqlstate.New(sqlstate.FeatureNotSupported, "aggregate function %s is not supported", call.Func)
}

// aggAccount opens the account of an aggregate's groups. Those that have been
// partitioned often enough overflow to mapped files.
func aggAccount(env *Env, depth int) *Account {
	if depth >= maxSpillDepth {
		return env.overflowAccount("aggregation")
	}
	return env.spillingAccount("aggregation")
}

func newAggregate(input Operator, groupBy []int, schema *arrow.Schema, acct *Account) (*aggregateOp, error) {
	a := &aggregateOp{input: input, schema: physicalSchema(schema), acct: acct}
	if err := checkOrdinals("GROUP BY", groupBy, input.Schema()); err != nil {
		return nil, err
	}
	a.out.Cols = outVectors(a.schema)
	if len(groupBy) == 0 {
		return a, nil
	}
	var err error
	a.groups, err = newGrouper(input.Schema(), groupBy, acct)
	return a, err
}

// check compares the output schema with what the states will write.
func (a *aggregateOp) check(kind string, columns int) error {
	if columns != a.schema.NumFields() {
		return malformed("a %s aggregate of %d columns has an output schema of %d", kind, columns, a.schema.NumFields())
	}
	if a.groups != nil {
		for i, c := range a.groups.keys.cols {
			if !arrow.TypeEqual(c.typ, a.schema.Field(i).Type) {
				return malformed("group column %d has type %s instead of %s", i, c.typ, a.schema.Field(i).Type)
			}
		}
	}
	for _, call := range a.calls {
		if err := a.checkOutput(call); err != nil {
			return err
		}
	}
	return nil
}

func (a *aggregateOp) checkOutput(call aggOutput) error {
	got := a.schema.Field(call.first).Type
	ok := true
	switch call.state.(type) {
	case *countState:
		ok = got.ID() == arrow.INT64
	case *exactSumState:
		ok = got.ID() == arrow.DECIMAL128 || a.final && (got.ID() == arrow.INT64 || got.ID() == arrow.FLOAT64)
	case *floatSumState:
		ok = got.ID() == arrow.FLOAT64
	case *momentState:
		ok = a.final && got.ID() == arrow.FLOAT64 || !a.final && got.ID() == arrow.INT64 &&
			a.schema.Field(call.first+1).Type.ID() == arrow.FLOAT64 && a.schema.Field(call.first+2).Type.ID() == arrow.FLOAT64
	}
	if call.width == 2 {
		ok = ok && a.schema.Field(call.first+1).Type.ID() == arrow.INT64
	}
	if !ok {
		return malformed("aggregate column %q cannot have type %s", a.schema.Field(call.first).Name, got)
	}
	return nil
}

func (a *aggregateOp) Schema() *arrow.Schema { return a.schema }

func (a *aggregateOp) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	a.states, a.calls, a.groups = nil, nil, nil
	a.acct.Close()
	if a.kept != nil {
		a.kept.Close()
	}
	err := a.input.Close()
	if e := a.spill.close(); err == nil {
		err = e
	}
	if e := a.rest.close(); err == nil {
		err = e
	}
	return err
}

func (a *aggregateOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		if a.spill.started() && a.done {
			return a.spill.next(ctx)
		}
		if a.emits {
			if b, err := a.emit(ctx); b != nil || err != nil {
				return b, err
			}
			a.emits = false
			if a.done && a.rest.started() {
				a.startAfresh()
				return a.rest.next(ctx)
			}
			if a.done {
				return nil, nil
			}
			a.startAfresh()
		}
		if a.done && a.rest.started() {
			return a.rest.next(ctx)
		}
		if a.done {
			return nil, nil
		}
		if err := a.consume(ctx); err != nil {
			return nil, err
		}
		a.emits, a.at = true, 0
	}
}

// consume folds batches until the input ends or a partial aggregate is full.
func (a *aggregateOp) consume(ctx context.Context) error {
	for {
		b := a.held
		a.held = nil
		if b == nil {
			var err error
			if b, err = a.input.Next(ctx); err != nil {
				return err
			}
		}
		if b == nil {
			a.done = true
			if a.spill.started() {
				return a.spill.set.finish()
			}
			if a.rest.started() {
				return a.rest.set.finish()
			}
			return a.reserveOne()
		}
		if full, err := a.add(ctx, b); full || err != nil {
			return err
		}
	}
}

// add folds a batch. It returns true when a partial aggregate is to emit its
// groups; the batch is then held if it found no room.
func (a *aggregateOp) add(ctx context.Context, b *columnar.Batch) (full bool, err error) {
	if b.Rows() == 0 {
		return false, nil
	}
	for {
		if a.spill.started() {
			return false, a.spill.feed.add(b)
		}
		if a.rest.started() {
			return false, a.foldKnown(b)
		}
		ids, err := a.place(b)
		if err == nil {
			return a.fold(b, ids)
		}
		if sqlstate.CodeOf(err) != sqlstate.OutOfMemory {
			return false, err
		}
		switch {
		case !a.final && a.len() > 0:
			a.held = b
			return true, nil
		case a.rest != nil:
			err = a.rest.start(a)
		case a.spill != nil:
			err = a.spill.start(ctx, a)
		}
		if err != nil {
			return false, err
		}
	}
}

func (a *aggregateOp) fold(b *columnar.Batch, ids []int32) (full bool, err error) {
	for _, s := range a.states {
		if err := s.fold(b, ids); err != nil {
			return false, err
		}
	}
	if !a.final && a.len() >= flushGroups && allRecent(ids, a.len()) {
		a.clustered = true
		return true, nil
	}
	return false, nil
}

// A partial aggregate whose input is clustered by group lets go of the groups
// before they outgrow the cache: they are complete, or nearly so.
const (
	flushGroups  = 1 << 14
	recentGroups = 1 << 13
)

// allRecent reports whether nearly all rows of a batch fell into groups that
// are new or were made shortly before.
func allRecent(ids []int32, groups int) bool {
	limit := int32(groups - recentGroups)
	old := 0
	for _, id := range ids {
		if id < limit {
			old++
		}
	}
	return old*16 <= len(ids)
}

// place finds the rows' groups and makes room for new ones.
func (a *aggregateOp) place(b *columnar.Batch) ([]int32, error) {
	if a.groups == nil {
		return nil, a.reserveOne()
	}
	return a.groups.assign(b, a.reserveStates)
}

// reserveOne makes the group of a global aggregate, which exists without rows.
func (a *aggregateOp) reserveOne() error {
	if a.groups != nil {
		return nil
	}
	return a.reserveStates(1)
}

func (a *aggregateOp) reserveStates(groups int) error {
	for _, s := range a.states {
		if err := s.reserve(groups); err != nil {
			return err
		}
	}
	return nil
}

func (a *aggregateOp) len() int {
	if a.groups == nil {
		return 1
	}
	return a.groups.len()
}

// startAfresh forgets the groups that have been emitted.
func (a *aggregateOp) startAfresh() {
	if a.groups != nil && a.clustered {
		a.groups.clear()
	} else if a.groups != nil {
		a.groups.reset()
	}
	a.clustered = false
	for _, s := range a.states {
		s.free()
	}
}

// emit returns the next groups, nil when there are no more.
func (a *aggregateOp) emit(ctx context.Context) (*columnar.Batch, error) {
	lo := a.at
	hi := min(lo+columnar.BatchRows, a.len())
	if lo >= hi {
		return nil, nil
	}
	for _, s := range a.states {
		if c, ok := s.(cutter); ok {
			var err error
			if hi, err = c.cut(lo, hi); err != nil {
				return nil, err
			}
		}
	}
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	a.at = hi
	keys := 0
	if a.groups != nil {
		keys = len(a.groups.cols)
		a.groups.keys.view(lo, hi, a.out.Cols[:keys])
	}
	for _, call := range a.calls {
		out := a.out.Cols[call.first : call.first+call.width]
		if !a.final {
			call.state.emitState(lo, hi, out)
		} else if err := call.state.emitResult(lo, hi, out[0]); err != nil {
			return nil, err
		}
	}
	a.out.Len = hi - lo
	return &a.out, nil
}
