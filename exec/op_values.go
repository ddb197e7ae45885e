package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// valuesOp emits constant rows, BatchRows at a time.
type valuesOp struct {
	schema *arrow.Schema
	rows   [][]planner.Expr
	acct   *Account
	out    columnar.Batch
}

func newValues(op *planner.ValuesSource, budget *Budget) (Operator, error) {
	for i, row := range op.Rows {
		if len(row) != op.Schema.NumFields() {
			return nil, malformed("row %d of VALUES has %d columns instead of %d", i+1, len(row), op.Schema.NumFields())
		}
	}
	return &valuesOp{schema: physicalSchema(op.Schema), rows: op.Rows, acct: budget.Account("VALUES")}, nil
}

func (v *valuesOp) Schema() *arrow.Schema { return v.schema }

func (v *valuesOp) Close() error {
	v.acct.Close()
	v.out = columnar.Batch{}
	return nil
}

func (v *valuesOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if len(v.rows) == 0 {
		return nil, nil
	}
	if err := canceled(ctx); err != nil {
		return nil, err
	}
	n := min(len(v.rows), columnar.BatchRows)
	rows := v.rows[:n]
	v.rows = v.rows[n:]
	v.acct.Close()
	cols := outVectors(v.schema)
	one := &columnar.Batch{Len: 1}
	empty := arrow.NewSchema(nil, nil)
	for i, out := range cols {
		store, err := newColStore(out.Type, v.acct)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			ev, err := Compile(row[i], empty)
			if err != nil {
				return nil, err
			}
			value, err := ev.Eval(one)
			if err != nil {
				return nil, err
			}
			if err := store.append(value, nil, 1); err != nil {
				return nil, err
			}
		}
		store.view(0, n, out)
	}
	v.out = columnar.Batch{Cols: cols, Len: n}
	return &v.out, nil
}
