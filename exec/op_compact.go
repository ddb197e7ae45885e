package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// compactOp gathers small batches, as selective filters and joins leave them,
// into ones of about BatchRows rows, in the same order. Batches that are large
// already are passed on.
type compactOp struct {
	input  Operator
	acct   *Account
	store  *rowStore
	held   *columnar.Batch // input batch to pass on after the stored rows
	done   bool
	closed bool
	out    columnar.Batch
}

func newCompact(input Operator, budget *Budget) (Operator, error) {
	c := &compactOp{input: input, acct: budget.workingAccount("batch compaction")}
	var err error
	if c.store, err = newRowStore(input.Schema(), c.acct); err != nil {
		return nil, err
	}
	c.out.Cols = outVectors(input.Schema())
	return c, nil
}

func (c *compactOp) Schema() *arrow.Schema { return c.input.Schema() }

func (c *compactOp) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.acct.Close()
	return c.input.Close()
}

func (c *compactOp) Next(ctx context.Context) (*columnar.Batch, error) {
	c.store.reset()
	if b := c.held; b != nil {
		c.held = nil
		return b, nil
	}
	for !c.done && c.store.rows < columnar.BatchRows/2 {
		b, err := c.input.Next(ctx)
		if err != nil {
			return nil, err
		}
		if b == nil {
			c.done = true
			break
		}
		if b.Rows() >= columnar.BatchRows/4 {
			if c.store.rows == 0 {
				return b, nil
			}
			c.held = b
			break
		}
		if err := c.store.append(b.Cols, b.Sel, b.Len); err != nil {
			return nil, err
		}
	}
	if c.store.rows == 0 {
		return nil, nil
	}
	c.store.view(0, c.store.rows, c.out.Cols)
	c.out.Len = c.store.rows
	return &c.out, nil
}
