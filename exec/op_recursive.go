package exec

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// maxRounds bounds how often a recursion goes on.
const maxRounds = 1 << 20

// recursiveOp emits the rows of its seed and then, round after round until one
// has none, those of the step over the rows of the round before. Rows are
// emitted as they come, so that a limit above ends a recursion that has no end.
type recursiveOp struct {
	op     *planner.RecursiveOp
	env    *Env
	schema *arrow.Schema
	inputs []Operator // the seed, then those of the step
	stored []*rowLog  // by index of StoredSource
	next   *rowLog    // rows of this round
	round  int        // 0: the seed
	step   Operator   // of this round
	seen   *grouper   // with Distinct: all rows so far
	acct   *Account   // of seen
	sel    []int32
	out    columnar.Batch
	done   bool
	closed bool
}

func newRecursive(op *planner.RecursiveOp, inputs []Operator, env *Env) (Operator, error) {
	r := &recursiveOp{op: op, env: env, schema: physicalSchema(op.Schema), inputs: inputs}
	if err := checkTypes(inputs[0].Schema(), r.schema); err != nil {
		return nil, err
	}
	for i, in := range inputs {
		name := "an input of a recursive query"
		if i == 0 {
			name = "a round of a recursive query"
		}
		r.stored = append(r.stored, newRowLog(name, in.Schema(), env))
	}
	r.next = newRowLog("a round of a recursive query", r.schema, env)
	r.acct = env.Budget.Account("the rows of a recursive query with UNION")
	if !op.Distinct {
		return r, nil
	}
	columns := make([]int, r.schema.NumFields())
	for i := range columns {
		columns[i] = i
	}
	var err error
	r.seen, err = newGrouper(r.schema, columns, r.acct)
	return r, err
}

func (r *recursiveOp) Schema() *arrow.Schema { return r.schema }

func (r *recursiveOp) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := errors.Join(r.endStep(), closeAll(r.inputs), r.next.reset())
	for _, l := range r.stored {
		err = errors.Join(err, l.reset())
	}
	if r.seen != nil {
		r.seen.reset()
	}
	r.acct.Close()
	return err
}

func (r *recursiveOp) endStep() error {
	if r.step == nil {
		return nil
	}
	err := r.step.Close()
	r.step = nil
	return err
}

func (r *recursiveOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for !r.done {
		if err := canceled(ctx); err != nil {
			return nil, err
		}
		source := r.step
		if r.round == 0 {
			source = r.inputs[0]
		}
		b, err := source.Next(ctx)
		if err != nil {
			return nil, err
		}
		if b == nil {
			if err := r.nextRound(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if b, err = r.fresh(b); err != nil {
			return nil, err
		}
		if b == nil || b.Rows() == 0 {
			continue
		}
		if err := r.next.append(b); err != nil {
			return nil, err
		}
		return b, nil
	}
	return nil, nil
}

// fresh is the rows of a batch that there have not been yet, with Distinct.
func (r *recursiveOp) fresh(b *columnar.Batch) (*columnar.Batch, error) {
	if r.seen == nil {
		return b, nil
	}
	known := int32(r.seen.len())
	ids, err := r.seen.assign(b, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	r.sel = r.sel[:0]
	for i, id := range ids {
		if id >= known { // ids are given in the order of the rows
			known = id + 1
			r.sel = append(r.sel, int32(rowAt(b.Sel, i)))
		}
	}
	r.out = columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: r.sel}
	return &r.out, nil
}

// nextRound makes the rows of the last round those that the step reads.
func (r *recursiveOp) nextRound(ctx context.Context) error {
	if err := r.endStep(); err != nil {
		return err
	}
	if r.round == 0 {
		if err := r.store(ctx); err != nil {
			return err
		}
	}
	r.stored[0], r.next = r.next, r.stored[0]
	if err := r.next.reset(); err != nil {
		return err
	}
	if r.stored[0].rows == 0 {
		r.done = true
		return nil
	}
	if r.round++; r.round > maxRounds {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "the recursive query %q has gone on for more than %d rounds", r.op.Name, maxRounds).
			WithHint("Make its recursive term stop, or put a LIMIT on the query around it.")
	}
	env := *r.env
	env.stored = r.stored
	var err error
	r.step, err = Build(ctx, r.op.Step, &env)
	if err != nil {
		return err
	}
	return checkTypes(r.step.Schema(), r.schema)
}

// store reads the inputs of the step, unless there is no first round.
func (r *recursiveOp) store(ctx context.Context) error {
	if r.next.rows == 0 {
		return nil
	}
	for i, in := range r.inputs[1:] {
		compact, err := newCompact(in, r.env.Budget)
		if err != nil {
			return err
		}
		r.inputs[i+1] = compact
		for {
			b, err := compact.Next(ctx)
			if err != nil {
				return err
			}
			if b == nil {
				break
			}
			if err := r.stored[i+1].append(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// storedSource opens the rows that a step reads.
func (b *builder) storedSource(op *planner.StoredSource) error {
	if op.Index < 0 || op.Index >= len(b.env.stored) {
		return malformed("there are no stored rows %d", op.Index)
	}
	l := b.env.stored[op.Index]
	if err := checkTypes(l.schema, physicalSchema(op.Schema)); err != nil {
		return err
	}
	b.push(&stream{parts: []Operator{newLogReader(l)}})
	return nil
}

// recursive replaces the seed and the inputs of a recursion by its rows.
func (b *builder) recursive(op *planner.RecursiveOp) error {
	n := len(b.stack) - op.Inputs - 1
	if op.Inputs < 0 || n < 0 {
		return malformed("a recursion of %d inputs has %d", op.Inputs, len(b.stack)-1)
	}
	inputs := make([]Operator, op.Inputs+1)
	for i, s := range b.stack[n:] {
		inputs[i] = newUnion(s.parts)
		s.parts = []Operator{inputs[i]}
	}
	r, err := newRecursive(op, inputs, b.env)
	if err != nil {
		return err
	}
	b.stack = append(b.stack[:n], &stream{parts: []Operator{r}})
	return nil
}
