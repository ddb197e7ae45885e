package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// projectOp computes one column per expression and keeps the selection of its
// input's batches. Columns that are passed through are not copied.
type projectOp struct {
	input  Operator
	schema *arrow.Schema
	exprs  []*Evaluator // nil where the column at the same place in direct is passed through
	direct []int
	out    columnar.Batch
}

func newProject(input Operator, op *planner.ProjectOp) (Operator, error) {
	p := &projectOp{
		input:  input,
		schema: physicalSchema(op.Schema),
		exprs:  make([]*Evaluator, len(op.Exprs)),
		direct: make([]int, len(op.Exprs)),
	}
	if len(op.Exprs) != op.Schema.NumFields() {
		return nil, malformed("a projection of %d expressions has %d output columns", len(op.Exprs), op.Schema.NumFields())
	}
	for i, e := range op.Exprs {
		if c, ok := e.(*planner.Column); ok {
			if err := checkOrdinals("projection", []int{c.Index}, input.Schema()); err != nil {
				return nil, err
			}
			p.direct[i] = c.Index
			continue
		}
		ev, err := Compile(e, input.Schema())
		if err != nil {
			return nil, err
		}
		p.exprs[i] = ev
	}
	p.out.Cols = make([]*columnar.Vector, len(op.Exprs))
	return p, nil
}

func (p *projectOp) Schema() *arrow.Schema { return p.schema }
func (p *projectOp) Close() error          { return p.input.Close() }

func (p *projectOp) Next(ctx context.Context) (*columnar.Batch, error) {
	b, err := p.input.Next(ctx)
	if b == nil || err != nil {
		return nil, err
	}
	for i, ev := range p.exprs {
		if ev == nil {
			p.out.Cols[i] = b.Cols[p.direct[i]]
			continue
		}
		if p.out.Cols[i], err = ev.Eval(b); err != nil {
			return nil, err
		}
	}
	p.out.Len, p.out.Sel = b.Len, b.Sel
	return &p.out, nil
}
