package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// limitOp skips rows and keeps the next ones. Once it has them all it closes
// its input, so that the producers stop.
type limitOp struct {
	input  Operator
	skip   int64
	left   int64 // -1: no limit
	closed bool
	sel    []int32
	out    columnar.Batch
}

func newLimit(input Operator, limit, offset int64) Operator {
	return &limitOp{input: input, skip: max(0, offset), left: max(-1, limit)}
}

func (l *limitOp) Schema() *arrow.Schema { return l.input.Schema() }

func (l *limitOp) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	return l.input.Close()
}

func (l *limitOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for l.left != 0 && !l.closed {
		b, err := l.input.Next(ctx)
		if b == nil || err != nil {
			return nil, err
		}
		rows := int64(b.Rows())
		if rows <= l.skip {
			l.skip -= rows
			continue
		}
		keep := rows - l.skip
		if l.left >= 0 {
			keep = min(keep, l.left)
			l.left -= keep
		}
		if keep == rows {
			return b, nil
		}
		return l.slice(b, int(l.skip), int(keep)), nil
	}
	return nil, l.Close()
}

// slice selects keep of b's rows after the first skip.
func (l *limitOp) slice(b *columnar.Batch, skip, keep int) *columnar.Batch {
	l.skip = 0
	l.out = columnar.Batch{Cols: b.Cols, Len: b.Len}
	if b.Sel != nil {
		l.out.Sel = b.Sel[skip : skip+keep]
		return &l.out
	}
	l.sel = l.sel[:0]
	for i := range keep {
		l.sel = append(l.sel, int32(skip+i))
	}
	l.out.Sel = l.sel
	return &l.out
}
