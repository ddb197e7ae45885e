package exec

import (
	"math"
	"math/bits"

	"skein/sqlstate"
)

// signed are the SQL integer types.
type signed interface{ ~int16 | ~int32 | ~int64 }

type float interface{ ~float32 | ~float64 }

func intRangeError[T signed]() error {
	var x T
	switch any(x).(type) {
	case int16:
		return sqlstate.New(sqlstate.NumericOutOfRange, "smallint out of range")
	case int32:
		return sqlstate.New(sqlstate.NumericOutOfRange, "integer out of range")
	}
	return sqlstate.New(sqlstate.NumericOutOfRange, "bigint out of range")
}

func divisionByZero() error {
	return sqlstate.New(sqlstate.DivisionByZero, "division by zero")
}

// minOf is the smallest value of an integer type.
func minOf[T signed]() T {
	one := T(1)
	for one<<1 > 0 {
		one <<= 1
	}
	return one << 1
}

func addLoop[T signed](a, b, out []T) bool {
	b, out = b[:len(a)], out[:len(a)]
	var over T
	for i, x := range a {
		y := b[i]
		s := x + y
		over |= (x ^ s) & (y ^ s)
		out[i] = s
	}
	return over < 0
}

func subLoop[T signed](a, b, out []T) bool {
	b, out = b[:len(a)], out[:len(a)]
	var over T
	for i, x := range a {
		y := b[i]
		s := x - y
		over |= (x ^ y) & (x ^ s)
		out[i] = s
	}
	return over < 0
}

func mulLoop[T signed](a, b, out []T) bool {
	b, out = b[:len(a)], out[:len(a)]
	over := false
	for i, x := range a {
		p, lost := mulOne(x, b[i])
		over = over || lost
		out[i] = p
	}
	return over
}

// mulOne multiplies and reports whether the product does not fit.
func mulOne[T signed](x, y T) (T, bool) {
	p := mul64(int64(x), int64(y))
	t := T(p.lo)
	return t, int128Of(int64(t)) != p
}

func divLoop[T signed](a, b, out []T) bool {
	b, out = b[:len(a)], out[:len(a)]
	bad := false
	least := minOf[T]()
	for i, x := range a {
		y := b[i]
		if y == 0 || (y == -1 && x == least) {
			bad = true
			out[i] = 0
			continue
		}
		out[i] = x / y
	}
	return bad
}

func modLoop[T signed](a, b, out []T) bool {
	b, out = b[:len(a)], out[:len(a)]
	bad := false
	for i, x := range a {
		y := b[i]
		if y == 0 || y == -1 {
			bad = bad || y == 0
			out[i] = 0
			continue
		}
		out[i] = x % y
	}
	return bad
}

// intKernel makes the kernel of one integer operator, nil for another name.
func intKernel[T signed](op string) kernel {
	switch op {
	case "+":
		return binaryLoop(addLoop[T], func(x, y T) error {
			if s := x + y; (x^s)&(y^s) < 0 {
				return intRangeError[T]()
			}
			return nil
		})
	case "-":
		return binaryLoop(subLoop[T], func(x, y T) error {
			if s := x - y; (x^y)&(x^s) < 0 {
				return intRangeError[T]()
			}
			return nil
		})
	case "*":
		return binaryLoop(mulLoop[T], func(x, y T) error {
			if _, lost := mulOne(x, y); lost {
				return intRangeError[T]()
			}
			return nil
		})
	case "/":
		return binaryLoop(divLoop[T], func(x, y T) error {
			switch {
			case y == 0:
				return divisionByZero()
			case y == -1 && x == minOf[T]():
				return intRangeError[T]()
			}
			return nil
		})
	case "%":
		return binaryLoop(modLoop[T], func(_, y T) error {
			if y == 0 {
				return divisionByZero()
			}
			return nil
		})
	}
	return nil
}

func negKernel[T signed]() kernel {
	least := minOf[T]()
	return unaryLoop(func(a, out []T) bool {
		bad := false
		for i, x := range a {
			bad = bad || x == least
			out[i] = -x
		}
		return bad
	}, func(x T) error {
		if x == least {
			return intRangeError[T]()
		}
		return nil
	})
}

func absKernel[T signed]() kernel {
	least := minOf[T]()
	return unaryLoop(func(a, out []T) bool {
		bad := false
		for i, x := range a {
			bad = bad || x == least
			if x < 0 {
				x = -x
			}
			out[i] = x
		}
		return bad
	}, func(x T) error {
		if x == least {
			return intRangeError[T]()
		}
		return nil
	})
}

// floatKernel makes the kernel of one floating-point operator. As in
// PostgreSQL a finite operation that overflows or underflows is an error.
func floatKernel[T float](op string) kernel {
	switch op {
	case "+":
		return binaryLoop(func(a, b, out []T) bool {
			b, out = b[:len(a)], out[:len(a)]
			bad := false
			for i, x := range a {
				out[i] = x + b[i]
				bad = bad || out[i]-out[i] != 0
			}
			return bad
		}, func(x, y T) error { return checkFloat(x+y, x, y) })
	case "-":
		return binaryLoop(func(a, b, out []T) bool {
			b, out = b[:len(a)], out[:len(a)]
			bad := false
			for i, x := range a {
				out[i] = x - b[i]
				bad = bad || out[i]-out[i] != 0
			}
			return bad
		}, func(x, y T) error { return checkFloat(x-y, x, y) })
	case "*":
		return binaryLoop(func(a, b, out []T) bool {
			b, out = b[:len(a)], out[:len(a)]
			bad := false
			for i, x := range a {
				p := x * b[i]
				out[i] = p
				bad = bad || p-p != 0 || p == 0
			}
			return bad
		}, func(x, y T) error {
			if p := x * y; p == 0 && x != 0 && y != 0 {
				return floatUnderflow()
			}
			return checkFloat(x*y, x, y)
		})
	case "/":
		return binaryLoop(func(a, b, out []T) bool {
			b, out = b[:len(a)], out[:len(a)]
			bad := false
			for i, x := range a {
				q := x / b[i]
				out[i] = q
				bad = bad || q-q != 0 || q == 0 || b[i] == 0
			}
			return bad
		}, func(x, y T) error {
			if y == 0 && x == x {
				return divisionByZero()
			}
			if q := x / y; q == 0 && x != 0 && !math.IsInf(float64(y), 0) {
				return floatUnderflow()
			}
			return checkFloat(x/y, x, y)
		})
	}
	return nil
}

func checkFloat[T float](r, x, y T) error {
	if math.IsInf(float64(r), 0) && !math.IsInf(float64(x), 0) && !math.IsInf(float64(y), 0) {
		return sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: overflow")
	}
	return nil
}

func floatUnderflow() error {
	return sqlstate.New(sqlstate.NumericOutOfRange, "value out of range: underflow")
}

// floatUnary makes a kernel of a total function of one double or real.
func floatUnary[T float](fn func(T) T) kernel {
	return unaryLoop(func(a, out []T) bool {
		for i, x := range a {
			out[i] = fn(x)
		}
		return false
	}, func(T) error { return nil })
}

// mulDiv128 is x*m/d with half away from zero rounding, false on overflow of
// 127 bits. m and d are positive or negative, d not zero.
func mulDiv128(x, m, d int128) (int128, bool) {
	if x.isZero() {
		return x, true
	}
	negative := (x.hi < 0) != ((m.hi < 0) != (d.hi < 0))
	ax, am, ad := x.abs(), m.abs(), d.abs()
	if ad.hi != 0 {
		return mulDivBig(x, m, d)
	}
	p3, p2, p1, p0 := mul128full(ax, am)
	q1, q0, rem, ok := div256by64(p3, p2, p1, p0, ad.lo)
	if !ok {
		return int128{}, false
	}
	if rem >= ad.lo-rem { // 2*rem >= d without overflow
		var carry uint64
		q0, carry = bits.Add64(q0, 1, 0)
		q1 += carry
	}
	if int64(q1) < 0 {
		return int128{}, false
	}
	r := int128{q0, int64(q1)}
	if negative {
		r = r.neg()
	}
	return r, true
}

// mul128full is the 256-bit product of two non-negative numbers.
func mul128full(a, b int128) (p3, p2, p1, p0 uint64) {
	ah, bh := uint64(a.hi), uint64(b.hi)
	h00, p0 := bits.Mul64(a.lo, b.lo)
	h01, l01 := bits.Mul64(a.lo, bh)
	h10, l10 := bits.Mul64(ah, b.lo)
	h11, l11 := bits.Mul64(ah, bh)
	p1, c1 := bits.Add64(h00, l01, 0)
	p1, c2 := bits.Add64(p1, l10, 0)
	p2, c3 := bits.Add64(h01, h10, c1)
	p2, c4 := bits.Add64(p2, l11, c2)
	p3 = h11 + c3 + c4
	return p3, p2, p1, p0
}

// div256by64 divides and reports false when the quotient exceeds 128 bits.
func div256by64(p3, p2, p1, p0, d uint64) (q1, q0, rem uint64, ok bool) {
	if p3 != 0 {
		var q3 uint64
		q3, rem = bits.Div64(0, p3, d)
		if q3 != 0 {
			return 0, 0, 0, false
		}
	}
	q2, rem := bits.Div64(rem, p2, d)
	if q2 != 0 {
		return 0, 0, 0, false
	}
	q1, rem = bits.Div64(rem, p1, d)
	q0, rem = bits.Div64(rem, p0, d)
	return q1, q0, rem, true
}
