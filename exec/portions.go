package exec

import (
	"bytes"
	"context"

	"skein/columnar"
	"skein/planner"
)

// maxBound is where the bound of a portion is cut short, which leaves it a bound.
const maxBound = 1 << 10

// Portions hands out the rows of a fragment that ends with a top-k: first as
// many as the plan says, then as many as its consumer asks for. The sort keys
// that it tells are those of the operator on the other side, a Cursor's.
type Portions struct {
	input Operator
	coder *sortKeyCoder
	acct  *Account
	keys  sortKeys
	batch *columnar.Batch // being handed out, nil before the first
	at    int             // rows of it that are
	sel   []int32
	left  int64 // rows that the top-k may still have
}

// NewPortions takes the rows of input, which top has put in order. The caller
// closes both, the Portions first.
func NewPortions(input Operator, top *planner.TopK, budget *Budget) (*Portions, error) {
	coder, err := newSortKeyCoder(input.Schema(), topKOrder(top, input.Schema()))
	if err != nil {
		return nil, err
	}
	return &Portions{input: input, coder: coder, acct: budget.workingAccount("top-k"), left: top.K}, nil
}

// Close gives the memory back.
func (p *Portions) Close() { p.acct.Close() }

// Send emits the next rows, up to a number of them, and reports whether there
// may be more. The last piece comes with the bound: no row behind it has a lower
// key. Batches and bounds are valid during the call.
func (p *Portions) Send(ctx context.Context, rows int64, emit func(b *columnar.Batch, bound []byte) error) (more bool, err error) {
	rows = max(rows, 1)
	for rows > 0 && p.left > 0 {
		if p.batch == nil || p.at == p.batch.Rows() {
			if p.batch, err = p.input.Next(ctx); err != nil || p.batch == nil {
				return false, err
			}
			p.at = 0
			continue // it may be empty
		}
		n := int(min(rows, p.left, int64(p.batch.Rows()-p.at)))
		piece := p.piece(n)
		rows -= int64(n)
		p.left -= int64(n)
		var bound []byte
		if rows == 0 && p.left > 0 {
			if bound, err = p.bound(); err != nil {
				return false, err
			}
		}
		if err := emit(piece, bound); err != nil {
			return false, err
		}
	}
	return p.left > 0, nil
}

// piece is the next n rows of the batch.
func (p *Portions) piece(n int) *columnar.Batch {
	from := p.at
	p.at += n
	if n == p.batch.Rows() {
		return p.batch
	}
	p.sel = p.sel[:0]
	for i := from; i < from+n; i++ {
		p.sel = append(p.sel, int32(rowAt(p.batch.Sel, i)))
	}
	return &columnar.Batch{Len: p.batch.Len, Cols: p.batch.Cols, Sel: p.sel}
}

// bound is the key of the next row or, where that is not at hand, the last one.
func (p *Portions) bound() ([]byte, error) {
	row := int32(rowAt(p.batch.Sel, min(p.at, p.batch.Rows()-1)))
	p.keys.reset()
	if err := p.coder.encode(&p.keys, p.batch.Cols, []int32{row}, p.batch.Len, p.acct); err != nil {
		return nil, err
	}
	key := p.keys.key(0)
	return bytes.Clone(key[:min(len(key), maxBound)]), nil
}
