package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// filterOp narrows the selection of its input's batches to the rows for which
// a predicate is true; columns are passed on as they are.
type filterOp struct {
	input     Operator
	predicate *Evaluator
	sel       []int32
	out       columnar.Batch
}

func newFilter(input Operator, predicate planner.Expr) (Operator, error) {
	ev, err := Compile(predicate, input.Schema())
	if err != nil {
		return nil, err
	}
	return &filterOp{input: input, predicate: ev}, nil
}

func (f *filterOp) Schema() *arrow.Schema { return f.input.Schema() }
func (f *filterOp) Close() error          { return f.input.Close() }

func (f *filterOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for {
		b, err := f.input.Next(ctx)
		if b == nil || err != nil {
			return nil, err
		}
		rows := b.Rows()
		if rows == 0 {
			continue
		}
		if f.sel, err = f.predicate.Filter(b, f.sel[:0]); err != nil {
			return nil, err
		}
		switch len(f.sel) {
		case 0:
			if err := canceled(ctx); err != nil {
				return nil, err
			}
			continue
		case rows:
			return b, nil
		}
		f.out = columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: f.sel}
		return &f.out, nil
	}
}
