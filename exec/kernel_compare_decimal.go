package exec

import (
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// wideOrder compares decimals of any width after scaling them to one scale. In
// the rare case that scaling leaves 128 bits the larger magnitude decides.
func wideOrder(k1, k2 int) func(f *frame) func(i int) int {
	return func(f *frame) func(i int) int {
		a, b := f.args[0], f.args[1]
		return func(i int) int {
			x, ok1 := wideAt(a, i).mul(pow10[k1])
			y, ok2 := wideAt(b, i).mul(pow10[k2])
			if ok1 && ok2 {
				return x.cmp(y)
			}
			bx, by := wideAt(a, i).big(), wideAt(b, i).big()
			return bx.Mul(bx, pow10[k1].big()).Cmp(by.Mul(by, pow10[k2].big()))
		}
	}
}

// wideAt reads a decimal of either width.
func wideAt(v *columnar.Vector, i int) int128 {
	if v.Type.ID() == arrow.DECIMAL128 {
		return at[int128](v, i)
	}
	return int128Of(at[int64](v, i))
}

// decimalComparer compares in int64 when both sides are short and of one scale,
// or when one is a constant that can be moved to the other's scale.
func decimalComparer(op comparison, site *callSite, s1 int) comparer {
	_, s2, ok := decimalParts(site.args[1])
	if !ok {
		return nil
	}
	short1, short2 := isShort(site.args[0]), isShort(site.args[1])
	if short1 && short2 && s1 == s2 {
		return &numberComparer[int64]{op: op}
	}
	switch {
	case short1 && site.consts[1] != nil && !site.consts[1].IsNull(0):
		if c := newScaledComparer(op, 0, site.consts[1], s1, s2); c != nil {
			return c
		}
	case short2 && site.consts[0] != nil && !site.consts[0].IsNull(0):
		if c := newScaledComparer(op.flip(), 1, site.consts[0], s2, s1); c != nil {
			return c
		}
	}
	s := max(s1, s2)
	return &orderComparer{op: op, order: wideOrder(s-s1, s-s2)}
}

// scaledComparer compares a decimal64 column with a constant of another scale
// that has been rounded to the column's scale, the operator adjusted so that
// the outcome is exact. fixed marks what no
// constant of that scale can express.
type scaledComparer struct {
	arg   int
	op    comparison
	value int64
	fixed bool // the outcome does not depend on the column
	all   bool // that outcome
}

func newScaledComparer(op comparison, arg int, constant *columnar.Vector, colScale, constScale int) comparer {
	c := &scaledComparer{arg: arg, op: op}
	x := wideAt(constant, 0)
	floor, exact := x, true
	if constScale > colScale {
		floor = roundTo(x, constScale-colScale, roundFloor)
		back, _ := floor.mul(pow10[constScale-colScale])
		exact = back == x
	} else {
		var ok bool
		if floor, ok = x.mul(pow10[colScale-constScale]); !ok {
			return nil
		}
	}
	if !exact {
		switch op {
		case cmpEQ, cmpNE:
			c.fixed, c.all = true, op == cmpNE
			return c
		case cmpLT: // col < 1.5 is col <= 1
			c.op = cmpLE
		case cmpGE: // col >= 1.5 is col > 1
			c.op = cmpGT
		}
	}
	v, ok := floor.int64()
	if !ok { // beyond every value of the column
		above := floor.hi >= 0
		c.fixed = true
		c.all = op == cmpNE || (above && (op == cmpLT || op == cmpLE)) || (!above && (op == cmpGT || op == cmpGE))
		return c
	}
	c.value = v
	return c
}

func (c *scaledComparer) values(f *frame, out []byte) {
	if c.fixed {
		for i := range out[:f.n] {
			out[i] = b2u(c.all)
		}
		return
	}
	col := f.args[c.arg]
	if col.Const {
		out[0] = b2u(c.op.holds(cmp.Compare(at[int64](col, 0), c.value)))
		for i := range out[1:f.n] {
			out[i+1] = out[0]
		}
		return
	}
	valuesConst(c.op, columnar.Values[int64](col)[:f.n], c.value, out)
}

func (c *scaledComparer) choose(f *frame, dst []int32) []int32 {
	if c.fixed {
		if c.all {
			dst = appendRows(dst, f.sel, f.n)
		}
		return dst
	}
	col := columnar.Values[int64](f.args[c.arg])
	if f.sel == nil {
		return chooseAll(c.op, col[:f.n], c.value, dst)
	}
	return chooseSome(c.op, col, c.value, f.sel, dst)
}
