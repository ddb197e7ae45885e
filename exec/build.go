package exec

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// Build makes the operator tree of a fragment from its postfix program. The
// caller must close the result, also when Next has failed; when Build itself
// fails nothing is left open. Trailing ExchangeSinks are the caller's business:
// the result is the stream that they send.
//
// A panic anywhere in the tree comes out of Next as an internal error. The
// context of the first Next governs all goroutines of the tree.
func Build(ctx context.Context, ops []planner.Operator, env *Env) (Operator, error) {
	b := &builder{env: env.withSpill(), parallelism: max(1, env.Parallelism), profile: env.Profile}
	b.whole = b.env
	if b.profile != nil {
		b.profile.begin(env, len(ops))
	}
	var root Operator
	err := guard("preparing a query", func() (err error) {
		root, err = b.run(ctx, ops)
		return err
	})
	if err != nil {
		for _, s := range b.stack {
			_ = closeAll(s.parts) // the first error is the one to report
		}
		return nil, err
	}
	return &rootOp{input: root}, nil
}

// stream is an entry of the stack: parts that share the rows.
type stream struct {
	parts []Operator
	// group is set while the parts are exchange sources and nothing else, so
	// that a MergeSort may merge them; input is their Input.
	group bool
	input int
	// sources are the parts of a group without the meters on them.
	sources []Operator
}

type builder struct {
	env         *Env
	parallelism int
	stack       []*stream
	profile     *Profile // nil: nothing is measured
	whole       *Env     // env is one operator's view of it while that is measured
	at          int      // the operator being made
}

func (b *builder) run(ctx context.Context, ops []planner.Operator) (Operator, error) {
	sinks := false
	for i, op := range ops {
		_, isSink := op.(*planner.ExchangeSink)
		if sinks && !isSink {
			return nil, malformed("operator %d (%T) follows an exchange sink", i, op)
		}
		sinks = isSink
		if err := b.metered(ctx, i, op); err != nil {
			return nil, err
		}
	}
	if len(b.stack) != 1 {
		return nil, malformed("the program leaves %d streams instead of one", len(b.stack))
	}
	if sinks {
		if err := b.each(func(in Operator) (Operator, error) { return newCompact(in, b.env.Budget) }); err != nil {
			return nil, err
		}
	}
	if b.profile != nil && sinks {
		b.meterParts(slices.IndexFunc(ops, isSink))
	}
	return b.profile.union(b.stack[0].parts), nil
}

func isSink(op planner.Operator) bool {
	_, ok := op.(*planner.ExchangeSink)
	return ok
}

// metered makes an operator and, where operators are measured, puts meters on
// its parts. Those of a sink go on what it sends.
func (b *builder) metered(ctx context.Context, i int, op planner.Operator) error {
	b.at = i
	if b.profile == nil || isSink(op) {
		return b.step(ctx, op)
	}
	b.env = b.profile.env(b.whole, i)
	defer func() { b.env = b.whole }()
	if err := b.step(ctx, op); err != nil {
		return err
	}
	if _, ok := op.(*planner.ExchangeSource); ok { // the others of its group have theirs
		parts := b.top().parts
		parts[len(parts)-1] = b.profile.meter(i, parts[len(parts)-1])
		return nil
	}
	b.meterParts(i)
	return nil
}

func (b *builder) meterParts(i int) {
	for k, part := range b.top().parts {
		b.top().parts[k] = b.profile.meter(i, part)
	}
}

func (b *builder) step(ctx context.Context, op planner.Operator) error {
	switch op := op.(type) {
	case *planner.TabletScan:
		return b.scan(ctx, op)
	case *planner.ValuesSource:
		values, err := newValues(op, b.env.Budget)
		if err != nil {
			return err
		}
		b.push(&stream{parts: []Operator{values}})
		return nil
	case *planner.ExchangeSource:
		return b.exchange(ctx, op)
	case *planner.ExchangeSink:
		return nil
	case *planner.HashJoin:
		return b.join(op)
	case *planner.UnionAll:
		return b.unionAll(op)
	case *planner.StoredSource:
		return b.storedSource(op)
	case *planner.RecursiveOp:
		return b.recursive(op)
	}
	if len(b.stack) == 0 {
		return malformed("%T has no input", op)
	}
	return b.unary(op)
}

// unary replaces the top of the stack.
func (b *builder) unary(op planner.Operator) error {
	budget := b.env.Budget
	switch op := op.(type) {
	case *planner.FilterOp:
		return b.each(func(in Operator) (Operator, error) { return newFilter(in, op.Predicate) })
	case *planner.ProjectOp:
		return b.each(func(in Operator) (Operator, error) { return newProject(in, op) })
	case *planner.PartialAggregate:
		return b.each(func(in Operator) (Operator, error) { return newPartialAggregate(in, op, budget) })
	case *planner.FinalAggregate:
		return b.sharded(op.GroupBy, func(in Operator) (Operator, error) { return newFinalAggregate(in, op, b.env, 0) })
	case *planner.CompleteAggregate:
		return b.sharded(op.GroupBy, func(in Operator) (Operator, error) { return newCompleteAggregate(in, op, b.env, 0) })
	case *planner.WindowOp:
		return b.single(func(in Operator) (Operator, error) { return newWindow(in, op, b.env) })
	case *planner.MergeSort:
		return b.mergeSort(op)
	case *planner.TopK:
		return b.topK(op)
	case *planner.LimitOp:
		return b.single(func(in Operator) (Operator, error) { return newLimit(in, op.Limit, op.Offset), nil })
	}
	return sqlstate.New(sqlstate.FeatureNotSupported, "operator %T cannot be executed", op)
}

func (b *builder) push(s *stream) { b.stack = append(b.stack, s) }

func (b *builder) top() *stream { return b.stack[len(b.stack)-1] }

// each puts an operator on top of every part.
func (b *builder) each(wrap func(Operator) (Operator, error)) error {
	s := b.top()
	s.group = false
	for i, part := range s.parts {
		op, err := wrap(part)
		if err != nil {
			return err
		}
		s.parts[i] = op
	}
	return nil
}

// single puts an operator on top of the union of the parts.
func (b *builder) single(wrap func(Operator) (Operator, error)) error {
	s := b.top()
	s.parts = []Operator{b.profile.union(s.parts)}
	return b.each(wrap)
}

// sharded puts an aggregate on top of all parts, divided by group among as many
// parts as may run in parallel.
func (b *builder) sharded(groupBy []int, wrap func(Operator) (Operator, error)) error {
	s := b.top()
	if len(groupBy) == 0 || len(s.parts) == 1 || b.parallelism == 1 {
		return b.single(wrap)
	}
	if err := checkOrdinals("GROUP BY", groupBy, s.parts[0].Schema()); err != nil {
		return err
	}
	parts, err := newAggShards(s.parts, groupBy, b.parallelism, wrap)
	if err != nil {
		return err
	}
	*s = stream{parts: parts}
	return nil
}

// sorted sorts every part and merges them. Without a limit ties rank by part,
// then by arrival; with one they rank by further columns, so that the winners
// do not depend on which part reads what when.
func (b *builder) sorted(keys []planner.SortKey, limit int64) error {
	if limit >= 0 {
		return b.limited(rankTies(keys, b.top().parts[0].Schema()), len(keys), limit)
	}
	if err := b.each(func(in Operator) (Operator, error) { return newSort(in, keys, b.env) }); err != nil {
		return err
	}
	return b.merge(keys, limit)
}

// limited keeps the first rows in the order of keys, by the first few of which
// most rows are told apart.
func (b *builder) limited(keys []planner.SortKey, few int, limit int64) error {
	if err := b.each(func(in Operator) (Operator, error) { return newTopK(in, keys, few, limit, b.env) }); err != nil {
		return err
	}
	return b.merge(keys, limit)
}

func (b *builder) topK(op *planner.TopK) error {
	if len(op.Keys) == 0 {
		return malformed("a top-k has no key")
	}
	s := b.top()
	keys := topKOrder(op, s.parts[0].Schema())
	if !op.Refill {
		return b.limited(keys, len(op.Keys), max(0, op.K))
	}
	if !s.group || op.First <= 0 {
		return malformed("a refilled top-k does not follow exchanges")
	}
	if len(s.parts) == 1 && op.First >= op.K {
		s.group = false // it is sorted and no longer than that
		return nil
	}
	refilled, err := newRefill(s.parts, s.sources, keys, op, b.env)
	if err != nil {
		return err
	}
	*s = stream{parts: []Operator{refilled}}
	return nil
}

func (b *builder) merge(keys []planner.SortKey, limit int64) error {
	s := b.top()
	merged, err := newMerge(s.parts, keys, limit, b.env.Budget)
	if err != nil {
		return err
	}
	*s = stream{parts: []Operator{merged}}
	return nil
}

func (b *builder) mergeSort(op *planner.MergeSort) error {
	if len(op.Keys) == 0 {
		return malformed("a sort has no key")
	}
	if op.Sorted {
		if !b.top().group {
			return malformed("a merge does not follow exchanges")
		}
		return b.merge(op.Keys, op.Limit)
	}
	return b.sorted(op.Keys, op.Limit)
}

func (b *builder) scan(ctx context.Context, op *planner.TabletScan) error {
	if b.env.Tables == nil {
		return malformed("tablet %d of %s cannot be scanned here", op.Tablet, op.Table.QualifiedName())
	}
	parts, err := b.env.Tables.OpenScan(ctx, op, b.parallelism)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return malformed("the scan of tablet %d has no parts", op.Tablet)
	}
	b.push(&stream{parts: slices.Clone(parts)})
	if err := b.checkScan(op, parts[0].Schema()); err != nil {
		return err
	}
	if op.Filter == nil {
		return nil
	}
	if b.profile != nil {
		for k, part := range b.top().parts {
			b.top().parts[k] = b.profile.meterScan(b.at, part)
		}
	}
	return b.each(func(in Operator) (Operator, error) { return newFilter(in, op.Filter) })
}

func (b *builder) checkScan(op *planner.TabletScan, got *arrow.Schema) error {
	if got.NumFields() != len(op.Projection) {
		return malformed("the scan of %s has %d columns instead of %d", op.Table.QualifiedName(), got.NumFields(), len(op.Projection))
	}
	for i, c := range op.Projection {
		if !planner.ValidProjection(op.Table, c) {
			return malformed("%s has no column %d", op.Table.QualifiedName(), c)
		}
		want := catalog.PhysicalType(planner.ProjectedColumn(op.Table, c).Type)
		if !arrow.TypeEqual(want, got.Field(i).Type) {
			return malformed("the scan of %s.%s has type %s instead of %s", op.Table.QualifiedName(),
				planner.ProjectedColumn(op.Table, c).Name, got.Field(i).Type, want)
		}
	}
	return nil
}

func (b *builder) exchange(ctx context.Context, op *planner.ExchangeSource) error {
	if b.env.Exchanges == nil {
		return malformed("exchange %d cannot be read here", op.Exchange)
	}
	source, err := b.env.Exchanges.OpenExchange(ctx, op)
	if err != nil {
		return err
	}
	if len(b.stack) > 0 && b.top().group && b.top().input == op.Input {
		b.top().parts = append(b.top().parts, source)
		b.top().sources = append(b.top().sources, source)
	} else {
		b.push(&stream{parts: []Operator{source}, sources: []Operator{source}, group: true, input: op.Input})
	}
	return checkTypes(source.Schema(), physicalSchema(op.Schema))
}

func (b *builder) join(op *planner.HashJoin) error {
	if len(b.stack) < 2 {
		return malformed("a join has %d inputs", len(b.stack))
	}
	n := len(b.stack)
	left, right := b.stack[n-2], b.stack[n-1]
	parts, err := newJoinParts(op, left.parts, right.parts, b.env)
	if err != nil {
		return err
	}
	b.stack = append(b.stack[:n-2], &stream{parts: parts})
	return nil
}

// unionAll makes the parts of all inputs parts of one stream.
func (b *builder) unionAll(op *planner.UnionAll) error {
	n := len(b.stack) - op.Inputs
	if op.Inputs < 1 || n < 0 {
		return malformed("a union of %d inputs has %d", op.Inputs, len(b.stack))
	}
	all := &stream{}
	want := physicalSchema(op.Schema)
	for _, s := range b.stack[n:] {
		for _, part := range s.parts {
			if err := checkTypes(part.Schema(), want); err != nil {
				return err
			}
		}
		all.parts = append(all.parts, s.parts...)
	}
	b.stack = append(b.stack[:n], all)
	return nil
}

// rootOp is the top of a fragment: it turns panics into errors.
type rootOp struct {
	input  Operator
	closed bool
}

func (r *rootOp) Schema() *arrow.Schema { return r.input.Schema() }

func (r *rootOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	var b *columnar.Batch
	err := guard("running a query", func() (err error) {
		b, err = r.input.Next(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (r *rootOp) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return guard("closing a query", r.input.Close)
}

// physicalSchema maps a schema of public SQL types to what operators use.
func physicalSchema(s *arrow.Schema) *arrow.Schema {
	fields := s.Fields()
	for i := range fields {
		fields[i].Type = catalog.PhysicalType(fields[i].Type)
	}
	return arrow.NewSchema(fields, nil)
}

func checkTypes(got, want *arrow.Schema) error {
	if got.NumFields() != want.NumFields() {
		return malformed("an exchange has %d columns instead of %d", got.NumFields(), want.NumFields())
	}
	for i := range want.NumFields() {
		if !arrow.TypeEqual(got.Field(i).Type, want.Field(i).Type) {
			return malformed("exchange column %s has type %s instead of %s", want.Field(i).Name, got.Field(i).Type, want.Field(i).Type)
		}
	}
	return nil
}

// checkOrdinals makes sure that columns exist.
func checkOrdinals(what string, columns []int, schema *arrow.Schema) error {
	for _, c := range columns {
		if c < 0 || c >= schema.NumFields() {
			return malformed("%s column %d is not one of the input's %d", what, c, schema.NumFields())
		}
	}
	return nil
}

// malformed is the error for a fragment that no planner should produce.
func malformed(format string, args ...any) error {
	return sqlstate.New(sqlstate.InternalError, "malformed plan fragment: "+format, args...)
}
