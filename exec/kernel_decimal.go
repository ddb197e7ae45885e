package exec

import (
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// decimalParts returns precision and scale of a decimal type, physical or not.
func decimalParts(dt arrow.DataType) (precision, scale int, ok bool) {
	switch t := dt.(type) {
	case *arrow.Decimal64Type:
		return int(t.Precision), int(t.Scale), true
	case *arrow.Decimal128Type:
		return int(t.Precision), int(t.Scale), true
	}
	return 0, 0, false
}

func decimalRangeError(precision, scale int) error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "numeric field overflow").
		WithDetail("A field with precision %d, scale %d must round to an absolute value less than 10^%d.", precision, scale, precision-scale)
}

// inPrecision reports |x| < 10^precision.
func inPrecision(x int128, precision int) bool {
	limit := pow10[min(precision, 38)]
	return x.less(limit) && limit.neg().less(x)
}

// wideOperand reads a decimal of either width as 128-bit values.
type wideOperand struct {
	narrow operand[int64]
	wide   operand[int128]
	buf    []int128
}

func (o *wideOperand) of(v *columnar.Vector, n int, rows []int32) []int128 {
	if v.Type.ID() == arrow.DECIMAL128 {
		return o.wide.of(v, n, rows)
	}
	in := o.narrow.of(v, n, rows)
	o.buf = sized(o.buf, len(in))
	for i, x := range in {
		o.buf[i] = int128Of(x)
	}
	return o.buf
}

// wideBinary is the kernel form of binaryLoop for decimals computed in 128 bits.
func wideBinary(fn func(a, b int128) (int128, error)) kernel {
	var oa, ob wideOperand
	return func(f *frame) error {
		a, b := oa.of(f.args[0], f.n, nil), ob.of(f.args[1], f.n, nil)
		if f.out.Type.ID() == arrow.DECIMAL64 {
			out := fixedOut[int64](f)
			return f.each(func(i int) error {
				r, err := fn(a[i], b[i])
				out[i] = int64(r.lo)
				return err
			})
		}
		out := fixedOut[int128](f)
		return f.each(func(i int) (err error) {
			out[i], err = fn(a[i], b[i])
			return err
		})
	}
}

// decimalKernel makes the kernel of + - * / % over decimals.
func decimalKernel(op string, site *callSite) (kernel, error) {
	_, s1, _ := decimalParts(site.args[0])
	_, s2, _ := decimalParts(site.args[1])
	p, s, ok := decimalParts(site.result)
	if !ok {
		return nil, internalf("operator %s over decimals yields %s", op, site.result)
	}
	switch op {
	case "+", "-":
		return decimalSum(op == "-", site, s-s1, s-s2, p, s), nil
	case "*":
		return decimalProduct(site, p, s), nil
	case "/":
		return decimalQuotient(s+s2-s1, p, s)
	case "%":
		return decimalModulo(max(s1, s2)-s1, max(s1, s2)-s2, p, s), nil
	}
	return nil, internalf("no decimal operator %s", op)
}

func isShort(dt arrow.DataType) bool { return dt.ID() == arrow.DECIMAL64 }

// decimalSum adds values scaled up by 10^k1 and 10^k2. Within 18 digits of the
// result nothing can overflow; in 128 bits only a capped precision can.
func decimalSum(minus bool, site *callSite, k1, k2, p, s int) kernel {
	if isShort(site.result) && isShort(site.args[0]) && isShort(site.args[1]) {
		m1, m2 := pow10int64[k1], pow10int64[k2]
		if minus {
			m2 = -m2
		}
		return binaryLoop(shortSumLoop(m1, m2), func(_, _ int64) error { return nil })
	}
	return wideBinary(func(a, b int128) (int128, error) {
		x, ok1 := a.mul(pow10[k1])
		y, ok2 := b.mul(pow10[k2])
		if minus {
			y = y.neg()
		}
		r := x.add(y)
		if !ok1 || !ok2 || !inPrecision(r, p) {
			return r, decimalRangeError(p, s)
		}
		return r, nil
	})
}

func shortSumLoop(m1, m2 int64) func(a, b, out []int64) bool {
	if m1 == 1 && m2 == -1 {
		return func(a, b, out []int64) bool {
			b, out = b[:len(a)], out[:len(a)]
			for i, x := range a {
				out[i] = x - b[i]
			}
			return false
		}
	}
	return func(a, b, out []int64) bool {
		b, out = b[:len(a)], out[:len(a)]
		for i, x := range a {
			out[i] = x*m1 + b[i]*m2
		}
		return false
	}
}

// decimalProduct multiplies the unscaled values.
func decimalProduct(site *callSite, p, s int) kernel {
	p1, _, _ := decimalParts(site.args[0])
	p2, _, _ := decimalParts(site.args[1])
	short1, short2 := isShort(site.args[0]), isShort(site.args[1])
	never64 := func(_, _ int64) error { return nil }
	switch {
	case short1 && short2 && isShort(site.result):
		return binaryLoop(func(a, b, out []int64) bool {
			b, out = b[:len(a)], out[:len(a)]
			for i, x := range a {
				out[i] = x * b[i]
			}
			return false
		}, never64)
	case short1 && short2: // 36 digits at most: cannot overflow
		return binaryLoop(func(a, b []int64, out []int128) bool {
			b, out = b[:len(a)], out[:len(a)]
			for i, x := range a {
				out[i] = mul64(x, b[i])
			}
			return false
		}, never64)
	case short2:
		return binaryLoop(wideProductLoop(p1+p2 > 38), func(a int128, b int64) error {
			return checkProduct(a, int128Of(b), p, s)
		})
	}
	return wideBinary(func(a, b int128) (int128, error) {
		r, _ := a.mul(b)
		return r, checkProduct(a, b, p, s)
	})
}

// wideProductLoop multiplies 128-bit by 64-bit values; capped asks for a check
// that the product has at most 38 digits.
func wideProductLoop(capped bool) func(a []int128, b []int64, out []int128) bool {
	return func(a []int128, b []int64, out []int128) bool {
		b, out = b[:len(a)], out[:len(a)]
		bad := false
		for i, x := range a {
			y := b[i]
			if n := int64(x.lo); n>>63 == x.hi { // 126 bits are less than 38 digits
				out[i] = mul64(n, y)
				continue
			}
			r, exact := x.mul(int128Of(y))
			out[i] = r
			bad = bad || !exact || (capped && !inPrecision(r, 38))
		}
		return bad
	}
}

func checkProduct(a, b int128, p, s int) error {
	if r, exact := a.mul(b); !exact || !inPrecision(r, p) {
		return decimalRangeError(p, s)
	}
	return nil
}

// decimalQuotient computes round(a * 10^shift / b), half away from zero.
func decimalQuotient(shift, p, s int) (kernel, error) {
	if shift < 0 {
		return nil, internalf("decimal division with a negative shift of %d digits", shift)
	}
	var scale *big.Int
	if shift > 38 {
		scale = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), nil)
	}
	return wideBinary(func(a, b int128) (int128, error) {
		if b.isZero() {
			return b, divisionByZero()
		}
		var q int128
		var ok bool
		if scale == nil {
			q, ok = mulDiv128(a, pow10[shift], b)
		} else {
			q, ok = divRounded(new(big.Int).Mul(a.big(), scale), b.big())
		}
		if !ok || !inPrecision(q, p) {
			return q, decimalRangeError(p, s)
		}
		return q, nil
	}), nil
}

func mulDivBig(x, m, d int128) (int128, bool) {
	return divRounded(new(big.Int).Mul(x.big(), m.big()), d.big())
}

// divRounded is a/b rounded half away from zero, false when it exceeds 127 bits.
func divRounded(a, b *big.Int) (int128, bool) {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if r.CmpAbs(b) >= 0 {
		if (a.Sign() < 0) == (b.Sign() < 0) {
			q.Add(q, big.NewInt(1))
		} else {
			q.Sub(q, big.NewInt(1))
		}
	}
	return int128OfBig(q)
}

// decimalModulo has the sign of the dividend, as in PostgreSQL. The scaled
// operands may exceed 128 bits, so those few go through big integers.
func decimalModulo(k1, k2, p, s int) kernel {
	return wideBinary(func(a, b int128) (int128, error) {
		if b.isZero() {
			return b, divisionByZero()
		}
		x, ok1 := a.mul(pow10[k1])
		y, ok2 := b.mul(pow10[k2])
		xs, n1 := x.int64()
		ys, n2 := y.int64()
		if ok1 && ok2 && n1 && n2 && ys != -1 {
			return int128Of(xs % ys), nil
		}
		bx := new(big.Int).Mul(a.big(), pow10[k1].big())
		r, ok := int128OfBig(bx.Rem(bx, new(big.Int).Mul(b.big(), pow10[k2].big())))
		if !ok || !inPrecision(r, p) {
			return r, decimalRangeError(p, s)
		}
		return r, nil
	})
}

// roundTo drops digits decimal digits. mode is how.
func roundTo(x int128, digits int, mode roundMode) int128 {
	if digits <= 0 {
		return x
	}
	if digits > 38 {
		digits = 38 // all of them, as the value has no more
	}
	var q int128
	var rest int // of 2*remainder against the divisor
	var sign int
	if digits <= 18 {
		d := pow10int64[digits]
		var r int64
		q, r = x.divmod64(uint64(d))
		if r != 0 {
			sign = 1
			if r < 0 {
				sign, r = -1, -r
			}
			rest = int128Of(r).add(int128Of(r)).cmp(int128Of(d))
		}
	} else {
		bq, br := new(big.Int).QuoRem(x.big(), pow10[digits].big(), new(big.Int))
		q, _ = int128OfBig(bq)
		sign = br.Sign()
		rest = br.Abs(br).Lsh(br, 1).Cmp(pow10[digits].big())
	}
	if sign == 0 {
		return q
	}
	return adjust(q, rest, sign, mode)
}

// adjust moves a truncated quotient with a remainder of the given sign.
func adjust(q int128, rest, sign int, mode roundMode) int128 {
	away := false
	switch mode {
	case roundHalfAway:
		away = rest >= 0
	case roundCeil:
		away = sign > 0
	case roundFloor:
		away = sign < 0
	}
	if away {
		return q.add(int128Of(int64(sign)))
	}
	return q
}

// roundMode is a way to drop decimal digits.
type roundMode uint8

const (
	roundHalfAway roundMode = iota
	roundTruncate
	roundCeil
	roundFloor
)

// wideUnary makes a kernel over a decimal of either width.
func wideUnary(fn func(a int128) (int128, error)) kernel {
	var oa wideOperand
	return func(f *frame) error {
		a := oa.of(f.args[0], f.n, nil)
		if f.out.Type.ID() == arrow.DECIMAL64 {
			out := fixedOut[int64](f)
			return f.each(func(i int) error {
				r, err := fn(a[i])
				out[i] = int64(r.lo)
				return err
			})
		}
		out := fixedOut[int128](f)
		return f.each(func(i int) (err error) {
			out[i], err = fn(a[i])
			return err
		})
	}
}
