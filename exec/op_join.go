package exec

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// joinSpec is what the parallel parts of one join have in common.
type joinSpec struct {
	schema     *arrow.Schema // output: left columns, then right ones
	leftCols   int
	buildLeft  bool
	buildKeys  []int
	probeKeys  []int
	keyTypes   []arrow.DataType
	residual   planner.Expr
	residualIn *arrow.Schema
}

// newJoinParts joins probe parts with the union of the build parts: the build
// side is read once, by whichever part comes first, and shared.
func newJoinParts(op *planner.HashJoin, left, right []Operator, budget *Budget) ([]Operator, error) {
	spec, err := newJoinSpec(op, left[0].Schema(), right[0].Schema())
	if err != nil {
		return nil, err
	}
	buildParts, probeParts := right, left
	if spec.buildLeft {
		buildParts, probeParts = left, right
	}
	side := &buildSide{
		spec:  spec,
		input: newUnion(buildParts),
		acct:  budget.Account("hash join"),
		users: len(probeParts),
		seed:  newTableSeed(),
	}
	parts := make([]Operator, len(probeParts))
	for i, probe := range probeParts {
		j := &joinOp{spec: spec, build: side, probe: probe}
		if err := j.prepare(); err != nil {
			return nil, err
		}
		parts[i] = j
	}
	return parts, nil
}

func newJoinSpec(op *planner.HashJoin, left, right *arrow.Schema) (*joinSpec, error) {
	switch op.Kind {
	case planner.InnerJoin, planner.CrossJoin:
	default:
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "%s joins are not supported", op.Kind)
	}
	if op.Build != planner.BuildLeft && op.Build != planner.BuildRight {
		return nil, malformed("a join has the build side %q", op.Build)
	}
	s := &joinSpec{
		schema:    physicalSchema(op.Schema),
		leftCols:  left.NumFields(),
		buildLeft: op.Build == planner.BuildLeft,
		residual:  op.Residual,
	}
	if s.schema.NumFields() != left.NumFields()+right.NumFields() {
		return nil, malformed("a join of %d and %d columns has an output schema of %d", left.NumFields(), right.NumFields(), s.schema.NumFields())
	}
	for _, key := range op.On {
		if err := checkOrdinals("join key", []int{key.Left}, left); err != nil {
			return nil, err
		}
		if err := checkOrdinals("join key", []int{key.Right}, right); err != nil {
			return nil, err
		}
		l, r := left.Field(key.Left), right.Field(key.Right)
		if !arrow.TypeEqual(joinKeyType(l.Type), joinKeyType(r.Type)) {
			return nil, malformed("the join key %s has type %s but %s has type %s", l.Name, l.Type, r.Name, r.Type)
		}
		s.keyTypes = append(s.keyTypes, l.Type)
		b, p := key.Right, key.Left
		if s.buildLeft {
			b, p = p, b
		}
		s.buildKeys, s.probeKeys = append(s.buildKeys, b), append(s.probeKeys, p)
	}
	fields := append(append([]arrow.Field{}, left.Fields()...), right.Fields()...)
	for i, f := range fields {
		if !arrow.TypeEqual(f.Type, s.schema.Field(i).Type) {
			return nil, malformed("join output %s has type %s instead of %s", f.Name, s.schema.Field(i).Type, f.Type)
		}
	}
	s.residualIn = arrow.NewSchema(fields, nil)
	return s, nil
}

// joinKeyType maps types whose values are compared alike to one of them:
// decimals of one scale that are stored in the same width.
func joinKeyType(dt arrow.DataType) arrow.DataType {
	switch t := dt.(type) {
	case *arrow.Decimal64Type:
		return &arrow.Decimal64Type{Precision: 18, Scale: t.Scale}
	case *arrow.Decimal128Type:
		return &arrow.Decimal128Type{Precision: 38, Scale: t.Scale}
	}
	return dt
}

// buildSide is the stored side of a join, shared by its probing parts. Rows
// with a null key are left out, as they match nothing. Without keys, for cross
// joins and joins with only a residual, every row is a match.
type buildSide struct {
	spec  *joinSpec
	input Operator
	acct  *Account
	seed  tableSeed

	mu    sync.Mutex
	state chan struct{} // closed when building has ended; nil before it began
	users int           // parts that are not closed
	err   error

	store *rowStore
	table keyTable
	// The rows with key id k are rows[starts[k]:starts[k+1]], in the order of
	// their arrival. Both are nil when keys are unique: row k then has key k.
	starts []int32
	rows   []int32
}

// await builds the side, or waits for the part that does.
func (s *buildSide) await(ctx context.Context) error {
	s.mu.Lock()
	state := s.state
	mine := state == nil
	if mine {
		state = make(chan struct{})
		s.state = state
	}
	s.mu.Unlock()
	if mine {
		s.err = guard("building a join", func() error { return s.load(ctx) })
		close(state)
		return s.err
	}
	select {
	case <-state:
		return s.err
	case <-ctx.Done():
		return canceled(ctx)
	}
}

// load reads the build input to its end and closes it.
func (s *buildSide) load(ctx context.Context) error {
	schema := s.input.Schema()
	var err error
	if s.store, err = newRowStore(schema, s.acct); err != nil {
		return err
	}
	if len(s.spec.buildKeys) == 0 {
		err = s.consume(ctx, func(b *columnar.Batch) error { return s.store.append(b.Cols, b.Sel, b.Len) })
	} else {
		err = s.loadKeyed(ctx)
	}
	if err != nil {
		return err
	}
	return s.input.Close()
}

func (s *buildSide) consume(ctx context.Context, add func(*columnar.Batch) error) error {
	for {
		b, err := s.input.Next(ctx)
		if b == nil || err != nil {
			return err
		}
		if err := checkKeyCount(s.store.rows + b.Rows()); err != nil {
			return err
		}
		if err := add(b); err != nil {
			return err
		}
	}
}

func (s *buildSide) loadKeyed(ctx context.Context) error {
	coder, err := newKeyCoder(s.spec.buildKeys, s.spec.keyTypes, s.seed)
	if err != nil {
		return err
	}
	s.table = newKeyTable(coder.shape, s.acct)
	var keyOf, ids, fresh, sel []int32
	err = s.consume(ctx, func(b *columnar.Batch) error {
		rows := selectKeyed(b.Cols, s.spec.buildKeys, b.Sel, b.Len, &sel)
		if rows != nil && len(rows) == 0 {
			return nil
		}
		coder.encode(b.Cols, rows, b.Len)
		if err := s.table.reserve(coder); err != nil {
			return err
		}
		ids = resize(ids, coder.n)
		fresh = s.table.upsert(coder, ids, fresh[:0])
		if keyOf, err = growSlice(s.acct, keyOf, coder.n); err != nil {
			return err
		}
		keyOf = append(keyOf, ids...)
		return s.store.append(b.Cols, rows, b.Len)
	})
	if err != nil {
		return err
	}
	if s.table.len() < s.store.rows {
		if err := s.index(keyOf); err != nil {
			return err
		}
	}
	freeSlice(s.acct, keyOf)
	return nil
}

// index lists the rows of every key, given the key of every row.
func (s *buildSide) index(keyOf []int32) error {
	keys := s.table.len()
	var err error
	if s.starts, err = growSlice[int32](s.acct, nil, keys+1); err != nil {
		return err
	}
	if s.rows, err = growSlice[int32](s.acct, nil, len(keyOf)); err != nil {
		return err
	}
	s.starts, s.rows = s.starts[:keys+1], s.rows[:len(keyOf)]
	for _, k := range keyOf {
		s.starts[k+1]++
	}
	for k := range keys {
		s.starts[k+1] += s.starts[k]
	}
	// Filling moves each start to its end, which is the next key's start.
	for row, k := range keyOf {
		s.rows[s.starts[k]] = int32(row)
		s.starts[k]++
	}
	copy(s.starts[1:], s.starts[:keys])
	s.starts[0] = 0
	return nil
}

// release is called once by every part; the last one frees everything.
func (s *buildSide) release() error {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	s.store, s.table, s.starts, s.rows = nil, nil, nil, nil
	s.acct.Close()
	return s.input.Close()
}
