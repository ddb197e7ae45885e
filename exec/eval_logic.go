package exec

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// logicNode is a conjunction or a disjunction of two or more terms. A term is
// evaluated only for rows that the terms before it have not decided.
type logicNode struct {
	terms []node
	or    bool

	out   columnar.Vector
	data  []byte
	valid []byte
	open  []int32
	rows  [2][]int32
}

func (c *compiler) logic(x *planner.Call) (node, error) {
	terms, err := c.compileAll(flattenLogic(x.Func, x.Args, nil))
	if err != nil {
		return nil, err
	}
	if len(terms) < 2 {
		return nil, internalf("%s takes at least two arguments", x.Func)
	}
	for i, t := range terms {
		switch t.typ().ID() {
		case arrow.BOOL:
		case arrow.NULL:
			terms[i] = &literalNode{v: *columnar.NewNull(catalog.Boolean, 1)}
		default:
			return nil, internalf("argument %d of %s has type %s", i+1, x.Func, t.typ())
		}
	}
	return &logicNode{terms: terms, or: x.Func == "or"}, nil
}

// flattenLogic turns nested calls of one associative operator into one list.
func flattenLogic(op string, args, dst []planner.Expr) []planner.Expr {
	for _, a := range args {
		if c, ok := a.(*planner.Call); ok && c.Func == op {
			dst = flattenLogic(op, c.Args, dst)
		} else {
			dst = append(dst, a)
		}
	}
	return dst
}

func (n *logicNode) typ() arrow.DataType { return catalog.Boolean }

// eval starts from the neutral value and lets each term decide rows (false for
// AND, true for OR) or make them NULL.
func (n *logicNode) eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error) {
	decisive := b2u(n.or)
	n.data = scratchBytes(n.data, b.Len)
	for i := range n.data {
		n.data[i] = decisive ^ 1
	}
	n.valid = columnar.ResizeBitmap(n.valid, b.Len)
	nulls := false
	open := appendRows(n.open[:0], sel, b.Len)
	for k, t := range n.terms {
		if len(open) == 0 {
			break
		}
		from := open
		if k == 0 {
			from = sel // nil keeps the dense kernels
		}
		v, err := t.eval(b, from)
		if err != nil {
			return nil, err
		}
		mask := rowMask(v)
		kept := open[:0]
		for _, i := range open {
			switch {
			case v.IsNull(int(i)):
				columnar.ClearBit(n.valid, int(i))
				nulls = true
				kept = append(kept, i)
			case v.Data[int(i)&mask] != decisive:
				kept = append(kept, i)
			default:
				n.data[i] = decisive
				columnar.SetBit(n.valid, int(i))
			}
		}
		open = kept
	}
	n.open = open[:0]
	n.out = columnar.Vector{Type: catalog.Boolean, Len: b.Len, Data: n.data}
	if nulls {
		n.out.Valid = n.valid
	}
	return &n.out, nil
}

func (n *logicNode) choose(b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	if n.or {
		return n.chooseOr(b, sel, dst)
	}
	in := sel
	last := len(n.terms) - 1
	for k, t := range n.terms[:last] {
		rows, err := choose(t, b, in, n.rows[k&1][:0])
		if err != nil {
			return nil, err
		}
		n.rows[k&1] = rows
		if len(rows) == 0 {
			return dst, nil
		}
		in = rows
	}
	return choose(n.terms[last], b, in, dst)
}

// chooseOr tries each term on the rows that no earlier one accepted.
func (n *logicNode) chooseOr(b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	base := len(dst)
	open := appendRows(n.open[:0], sel, b.Len)
	for k, t := range n.terms {
		if len(open) == 0 {
			break
		}
		from := open
		if k == 0 && sel == nil {
			from = nil
		}
		before := len(dst)
		var err error
		if dst, err = choose(t, b, from, dst); err != nil {
			return nil, err
		}
		open = subtract(open, dst[before:])
	}
	n.open = open[:0]
	slices.Sort(dst[base:])
	return dst, nil
}

// subtract removes the ascending rows of taken from rows, in place.
func subtract(rows, taken []int32) []int32 {
	k, t := 0, 0
	for _, i := range rows {
		if t < len(taken) && taken[t] == i {
			t++
			continue
		}
		rows[k] = i
		k++
	}
	return rows[:k]
}
