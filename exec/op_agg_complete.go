package exec

import (
	"context"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// newCompleteAggregate computes results from rows in one step; depth counts how
// often the input has been partitioned to fit in memory.
func newCompleteAggregate(input Operator, op *planner.CompleteAggregate, env *Env, depth int) (Operator, error) {
	a, err := newAggregate(input, op.GroupBy, op.Schema, aggAccount(env, depth))
	if err != nil {
		return nil, err
	}
	a.final = true
	if env.spills() && len(op.GroupBy) > 0 && depth < maxSpillDepth {
		a.rest = &aggRest{op: op, env: env, depth: depth}
	}
	// What groups keep of their rows overflows, as a group may have any number.
	a.kept = env.overflowAccount("aggregation")
	if len(op.GroupBy)+len(op.Calls) != a.schema.NumFields() {
		return nil, a.check("complete", len(op.GroupBy)+len(op.Calls))
	}
	for i, call := range op.Calls {
		first := len(op.GroupBy) + i
		state, err := completeState(call, input.Schema(), a.schema.Field(first).Type, a.acct, a.kept)
		if err != nil {
			return nil, err
		}
		a.states = append(a.states, state)
		a.calls = append(a.calls, aggOutput{state: state, first: first, width: 1})
	}
	return a, a.check("complete", len(op.GroupBy)+len(op.Calls))
}

// completeState returns the state that takes a call from rows to its result,
// of physical type out. What grows with the groups is reserved from acct, what
// grows with the rows of a group from kept.
func completeState(call planner.AggCall, schema *arrow.Schema, out arrow.DataType, acct, kept *Account) (aggState, error) {
	state, err := rowState(call, schema, out, acct, kept)
	if err != nil || !call.Distinct || call.Arg < 0 {
		return state, err
	}
	switch call.Func {
	case planner.Min, planner.Max, planner.BoolAnd, planner.BoolOr, planner.AnyValue:
		return state, nil // repeated values change nothing
	}
	return newDistinctState(state, append([]int{call.Arg}, call.Args...), schema, kept)
}

func rowState(call planner.AggCall, schema *arrow.Schema, out arrow.DataType, acct, kept *Account) (aggState, error) {
	switch call.Func {
	case planner.StringAgg, planner.ArrayAgg, planner.PercentileCont:
		return newCollectState(call, schema, out, kept)
	}
	key, err := partialState(call, schema)
	if err != nil {
		return nil, err
	}
	state, err := key.build(schema, acct)
	switch s := state.(type) {
	case *floatSumState:
		s.average = call.Func == planner.Avg
	case *momentState:
		s.result = call.Func
	}
	return state, err
}

// distinctState passes to another state, per group, only the first row with
// each combination of arguments.
type distinctState struct {
	aggState
	cols   []int
	groups *grouper // by group id and arguments
	gids   []int32
	sel    []int32
	ids    []int32
	batch  columnar.Batch
}

func newDistinctState(inner aggState, cols []int, schema *arrow.Schema, acct *Account) (aggState, error) {
	fields := []arrow.Field{{Name: "group", Type: catalog.Integer}}
	keys := []int{0}
	for i, c := range cols {
		fields = append(fields, schema.Field(c))
		keys = append(keys, i+1)
	}
	groups, err := newGrouper(arrow.NewSchema(fields, nil), keys, acct)
	return &distinctState{aggState: inner, cols: cols, groups: groups}, err
}

func (s *distinctState) free() {
	s.aggState.free()
	s.groups.reset()
}

func (s *distinctState) cut(lo, hi int) (int, error) {
	if c, ok := s.aggState.(cutter); ok {
		return c.cut(lo, hi)
	}
	return hi, nil
}

func (s *distinctState) fold(b *columnar.Batch, ids []int32) error {
	s.gids = resize(s.gids, b.Len)
	if ids == nil {
		clear(s.gids)
	}
	for i, id := range ids {
		s.gids[rowAt(b.Sel, i)] = id
	}
	s.batch.Len, s.batch.Sel = b.Len, b.Sel
	s.batch.Cols = append(s.batch.Cols[:0], &columnar.Vector{Type: catalog.Integer, Len: b.Len, Data: columnar.Bytes(s.gids)})
	for _, c := range s.cols {
		s.batch.Cols = append(s.batch.Cols, b.Cols[c])
	}
	next := int32(s.groups.len())
	keys, err := s.groups.assign(&s.batch, func(int) error { return nil })
	if err != nil {
		return err
	}
	// Keys are numbered in the order of their first rows.
	s.sel, s.ids = s.sel[:0], s.ids[:0]
	for i, key := range keys {
		if key == next {
			next++
			row := int32(rowAt(b.Sel, i))
			s.sel, s.ids = append(s.sel, row), append(s.ids, s.gids[row])
		}
	}
	if len(s.sel) == 0 {
		return nil
	}
	return s.aggState.fold(&columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: s.sel}, s.ids)
}

// collectState keeps the rows of every group: for aggregates that need all
// values at once, or in an order.
type collectState struct {
	acct   *Account
	call   planner.AggCall
	cols   []int // of the input: the arguments, then the order keys
	store  *rowStore
	gids   []int32 // by stored row
	coder  *sortKeyCoder
	groups int
	sel    []int32
	picked []*columnar.Vector
	// The rows of group g, in their order, are rows[starts[g]:starts[g+1]];
	// nil until the first result is asked for.
	starts, rows []int32
	// widened is the element type of array_agg's lists of short decimals, which
	// are wide there as in public.
	widened arrow.DataType
}

func newCollectState(call planner.AggCall, schema *arrow.Schema, out arrow.DataType, acct *Account) (aggState, error) {
	s := &collectState{acct: acct, call: call, cols: append([]int{call.Arg}, call.Args...)}
	var keys []planner.SortKey
	for _, k := range call.OrderBy {
		keys = append(keys, planner.SortKey{Column: len(s.cols), Descending: k.Descending, NullsFirst: k.NullsFirst})
		s.cols = append(s.cols, k.Column)
	}
	if err := checkOrdinals(string(call.Func), s.cols, schema); err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(s.cols))
	for i, c := range s.cols {
		fields[i] = schema.Field(c)
	}
	kept := arrow.NewSchema(fields, nil)
	var err error
	if s.store, err = newRowStore(kept, acct); err != nil {
		return nil, err
	}
	for _, c := range s.store.cols {
		c.plain = true // the values become parts of lists and of longer strings
	}
	if s.coder, err = newSortKeyCoder(kept, keys); err != nil {
		return nil, err
	}
	s.picked = make([]*columnar.Vector, len(s.cols))
	return s, s.checkTypes(kept, out)
}

// checkTypes makes sure that results can be written as type out.
func (s *collectState) checkTypes(kept *arrow.Schema, out arrow.DataType) error {
	arg := kept.Field(0).Type
	ok := false
	switch s.call.Func {
	case planner.StringAgg:
		ok = (arg.ID() == arrow.STRING || arg.ID() == arrow.BINARY) && arrow.TypeEqual(arg, out) &&
			len(s.call.Args) == 1 && arrow.TypeEqual(arg, kept.Field(1).Type)
	case planner.ArrayAgg:
		list, isList := out.(*arrow.ListType)
		ok = isList && arrow.TypeEqual(list.Elem(), arg)
		if !ok && isList && isShort(arg) && arrow.TypeEqual(list.Elem(), catalog.PublicType(arg)) {
			s.widened, ok = list.Elem(), true
		}
	case planner.PercentileCont:
		ok = arg.ID() == arrow.FLOAT64 && out.ID() == arrow.FLOAT64 &&
			len(s.call.Args) == 1 && kept.Field(1).Type.ID() == arrow.FLOAT64 && len(s.call.OrderBy) == 1
	}
	if !ok {
		return sqlstate.New(sqlstate.FeatureNotSupported, "%s of type %s as %s is not supported", s.call.Func, arg, out)
	}
	return nil
}

func (s *collectState) reserve(n int) error {
	s.groups = max(s.groups, n)
	return nil
}

func (s *collectState) free() {
	s.store.free()
	s.gids = freeSlice(s.acct, s.gids)
	s.forgetOrder()
	s.groups = 0
}

func (s *collectState) forgetOrder() {
	s.starts, s.rows = freeSlice(s.acct, s.starts), freeSlice(s.acct, s.rows)
}

func (s *collectState) fold(b *columnar.Batch, ids []int32) error {
	s.forgetOrder()
	arg := b.Cols[s.call.Arg]
	keepNulls := s.call.Func == planner.ArrayAgg || arg.Valid == nil
	var err error
	if s.gids, err = growSlice(s.acct, s.gids, b.Rows()); err != nil {
		return err
	}
	s.sel = s.sel[:0]
	for i := range b.Rows() {
		row := rowAt(b.Sel, i)
		if !keepNulls && arg.IsNull(row) {
			continue
		}
		id := int32(0)
		if ids != nil {
			id = ids[i]
		}
		s.sel, s.gids = append(s.sel, int32(row)), append(s.gids, id)
	}
	for i, c := range s.cols {
		s.picked[i] = b.Cols[c]
	}
	if err := checkKeyCount(s.store.rows + len(s.sel)); err != nil {
		return err
	}
	return s.store.append(s.picked, s.sel, len(s.sel))
}

// arrange lists the rows of each group in their order.
func (s *collectState) arrange() error {
	if s.starts != nil {
		return nil
	}
	var order []int32
	var err error
	if len(s.call.OrderBy) > 0 {
		if order, err = sortStore(context.Background(), s.store, s.coder, s.acct); err != nil {
			return err
		}
		defer freeSlice(s.acct, order)
	}
	if s.starts, err = growSlice[int32](s.acct, nil, s.groups+2); err != nil {
		return err
	}
	if s.rows, err = growSlice[int32](s.acct, nil, s.store.rows); err != nil {
		return err
	}
	// starts is one ahead while filling moves each start to its end.
	s.starts, s.rows = s.starts[:s.groups+2], s.rows[:s.store.rows]
	clear(s.starts)
	for _, g := range s.gids {
		s.starts[g+2]++
	}
	for g := 1; g < len(s.starts); g++ {
		s.starts[g] += s.starts[g-1]
	}
	for i := range s.store.rows {
		row := int32(i)
		if order != nil {
			row = order[i]
		}
		at := &s.starts[s.gids[row]+1]
		s.rows[*at] = row
		*at++
	}
	return nil
}

func (s *collectState) group(g int) []int32 { return s.rows[s.starts[g]:s.starts[g+1]] }

// collectedRows is how many rows the groups of one output batch have together,
// unless a single one has more.
const collectedRows = 16 * columnar.BatchRows

func (s *collectState) cut(lo, hi int) (int, error) {
	if err := s.arrange(); err != nil {
		return 0, err
	}
	for g := lo + 1; g < hi; g++ {
		if s.starts[g+1]-s.starts[lo] > collectedRows {
			return g, nil
		}
	}
	return hi, nil
}

// emitState is never called: there are no partial states.
func (s *collectState) emitState(int, int, []*columnar.Vector) {}

func (s *collectState) emitResult(lo, hi int, out *columnar.Vector) error {
	if err := s.arrange(); err != nil {
		return err
	}
	switch s.call.Func {
	case planner.StringAgg:
		return s.emitStrings(lo, hi, out)
	case planner.ArrayAgg:
		s.emitArrays(lo, hi, out)
		return nil
	}
	return s.emitPercentiles(lo, hi, out)
}

func (s *collectState) emitStrings(lo, hi int, out *columnar.Vector) error {
	out.Len, out.Valid, out.Const, out.Dict, out.Codes = hi-lo, nil, false, nil, nil
	out.Data, out.Offsets = out.Data[:0], append(out.Offsets[:0], 0)
	text, separator := s.store.cols[0], s.store.cols[1]
	for g := lo; g < hi; g++ {
		rows := s.group(g)
		if len(rows) == 0 {
			setNull(out, g-lo)
		}
		for i, row := range rows {
			if i > 0 {
				out.Data = append(out.Data, separator.bytesAt(int(row))...) // empty for NULL
			}
			out.Data = append(out.Data, text.bytesAt(int(row))...)
		}
		if len(out.Data) > math.MaxInt32 {
			return sqlstate.New(sqlstate.ProgramLimitExceeded, "the results of string_agg exceed 2 GiB")
		}
		out.Offsets = append(out.Offsets, int32(len(out.Data)))
	}
	return nil
}

func (s *collectState) emitArrays(lo, hi int, out *columnar.Vector) {
	out.Len, out.Valid, out.Const = hi-lo, nil, false
	out.Offsets = append(out.Offsets[:0], 0)
	out.Children = childVectors(out.Children, 1)
	for g := lo; g < hi; g++ {
		if len(s.group(g)) == 0 {
			setNull(out, g-lo)
		}
		out.Offsets = append(out.Offsets, s.starts[g+1]-s.starts[lo])
	}
	rows := s.rows[s.starts[lo]:s.starts[hi]]
	if s.widened == nil {
		s.store.cols[0].gather(rows, out.Children[0])
		return
	}
	var short columnar.Vector
	s.store.cols[0].gather(rows, &short)
	wide := make([]int128, short.Len)
	for i, x := range columnar.Values[int64](&short)[:short.Len] {
		wide[i] = int128Of(x)
	}
	*out.Children[0] = columnar.Vector{Type: s.widened, Len: short.Len, Valid: short.Valid, Data: columnar.Bytes(wide)}
}

func (s *collectState) emitPercentiles(lo, hi int, out *columnar.Vector) error {
	vals := columnar.Values[float64](fixedOutput(out, hi-lo))
	have, fractions := bytesAs[float64](s.store.cols[0].fixed), s.store.cols[1]
	for g := lo; g < hi; g++ {
		rows := s.group(g)
		vals[g-lo] = 0
		if len(rows) == 0 || fractions.isNull(int(rows[0])) {
			setNull(out, g-lo)
			continue
		}
		f := bytesAs[float64](fractions.fixed)[rows[0]]
		if !(f >= 0 && f <= 1) {
			return sqlstate.New(sqlstate.NumericOutOfRange, "percentile value %g is not between 0 and 1", f)
		}
		at := f * float64(len(rows)-1)
		below := int(math.Floor(at))
		x := have[rows[below]]
		if frac := at - float64(below); frac > 0 {
			x += frac * (have[rows[below+1]] - x)
		}
		vals[g-lo] = x
	}
	return nil
}

// isNull reports whether value i of the store is null.
func (c *colStore) isNull(i int) bool {
	return c.valid != nil && c.valid[i>>3]&(1<<(i&7)) == 0
}
