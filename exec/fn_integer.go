package exec

import (
	"math"

	"skein/catalog"
	"skein/sqlstate"
)

// integerFunctions are number theory, bits and histograms.
func integerFunctions() []*function {
	return []*function{
		{name: "gcd", doc: "Greatest common divisor.", overloads: integerForms(gcdOf[int16], gcdOf[int32], gcdOf[int64])[1:]},
		{name: "lcm", doc: "Least common multiple.", overloads: integerForms(lcmOf[int16], lcmOf[int32], lcmOf[int64])[1:]},
		{name: "&", infix: true, doc: "Bits that both operands have.", overloads: integerForms(and[int16], and[int32], and[int64])},
		{name: "|", infix: true, doc: "Bits that either operand has.", overloads: integerForms(or[int16], or[int32], or[int64])},
		{name: "#", infix: true, doc: "Bits that one operand has and the other has not.", overloads: integerForms(xor[int16], xor[int32], xor[int64])},
		{name: "<<", infix: true, doc: "Bits shifted to the left; the number of places counts modulo the width.", overloads: shifts(shiftLeft[int16], shiftLeft[int32], shiftLeft[int64])},
		{name: ">>", infix: true, doc: "Bits shifted to the right, the sign kept; the number of places counts modulo the width.", overloads: shifts(shiftRight[int16], shiftRight[int32], shiftRight[int64])},
		{name: "div", doc: "Integer quotient of decimals, truncated towards zero.", overloads: []overload{
			{params: []kind{kDecimal, kDecimal}, result: returns(catalog.Decimal(catalog.MaxDecimalPrecision, 0)), make: makeDecimalDiv}}},
		{name: "width_bucket", doc: "The number of the bucket, of some of equal width between two bounds, that holds the first argument.",
			overloads: []overload{{params: []kind{kDouble, kDouble, kDouble, kInt4}, result: returns(catalog.Integer), make: plain(widthBucketKernel)}}},
	}
}

// integerForms are the overloads of a function of two integers of one type.
func integerForms(f2 func(a, b int16) (int16, error), f4 func(a, b int32) (int32, error), f8 func(a, b int64) (int64, error)) []overload {
	return []overload{
		{params: []kind{kInt2, kInt2}, result: returns(catalog.SmallInt), make: func(*callSite) (kernel, error) { return perRow2(f2), nil }},
		{params: []kind{kInt4, kInt4}, result: returns(catalog.Integer), make: func(*callSite) (kernel, error) { return perRow2(f4), nil }},
		{params: []kind{kInt8, kInt8}, result: returns(catalog.BigInt), make: func(*callSite) (kernel, error) { return perRow2(f8), nil }},
	}
}

func shifts(f2 func(a int16, n int32) (int16, error), f4 func(a, n int32) (int32, error), f8 func(a int64, n int32) (int64, error)) []overload {
	return []overload{
		{params: []kind{kInt2, kInt4}, result: returns(catalog.SmallInt), make: func(*callSite) (kernel, error) { return perRow2(f2), nil }},
		{params: []kind{kInt4, kInt4}, result: returns(catalog.Integer), make: func(*callSite) (kernel, error) { return perRow2(f4), nil }},
		{params: []kind{kInt8, kInt4}, result: returns(catalog.BigInt), make: func(*callSite) (kernel, error) { return perRow2(f8), nil }},
	}
}

func and[T signed](a, b T) (T, error) { return a & b, nil }
func or[T signed](a, b T) (T, error)  { return a | b, nil }
func xor[T signed](a, b T) (T, error) { return a ^ b, nil }

// places is a number of places to shift, modulo the width of what is computed
// in: PostgreSQL shifts smallints as integers.
func places[T signed](n int32) int32 {
	var t T
	if _, wide := any(t).(int64); wide {
		return n & 63
	}
	return n & 31
}

func shiftLeft[T signed](a T, n int32) (T, error)  { return a << places[T](n), nil }
func shiftRight[T signed](a T, n int32) (T, error) { return a >> places[T](n), nil }

func gcdOf[T signed](a, b T) (T, error) {
	for b != 0 {
		a, b = b, remainder(a, b)
	}
	if a < 0 {
		a = -a
		if a < 0 {
			return 0, intRangeError[T]()
		}
	}
	return a, nil
}

// remainder is a % b without the trap of the least integer and -1.
func remainder[T signed](a, b T) T {
	if b == -1 {
		return 0
	}
	return a % b
}

func lcmOf[T signed](a, b T) (T, error) {
	if a == 0 || b == 0 {
		return 0, nil
	}
	g, err := gcdOf(a, b)
	if err != nil {
		return 0, err
	}
	wide := mul64(int64(a/g), int64(b)).abs()
	r, ok := wide.int64()
	if !ok || r != int64(T(r)) {
		return 0, intRangeError[T]()
	}
	return T(r), nil
}

func makeDecimalDiv(site *callSite) (kernel, error) {
	_, s1, _ := decimalParts(site.args[0])
	_, s2, _ := decimalParts(site.args[1])
	return wideBinary(func(a, b int128) (int128, error) {
		if b.isZero() {
			return a, divisionByZero()
		}
		x, y := a.big(), b.big()
		if s1 < s2 {
			x.Mul(x, pow10[s2-s1].big())
		} else {
			y.Mul(y, pow10[s1-s2].big())
		}
		q, ok := int128OfBig(x.Quo(x, y))
		if !ok || !inPrecision(q, catalog.MaxDecimalPrecision) {
			return q, decimalRangeError(catalog.MaxDecimalPrecision, 0)
		}
		return q, nil
	}), nil
}

func widthBucketKernel(f *frame) error {
	out := fixedOut[int32](f)
	return f.each(func(i int) (err error) {
		out[i], err = widthBucket(at[float64](f.args[0], i), at[float64](f.args[1], i), at[float64](f.args[2], i), at[int32](f.args[3], i))
		return err
	})
}

// invalidBuckets is PostgreSQL's invalid_argument_for_width_bucket_function.
const invalidBuckets = sqlstate.Code("2201G")

func widthBucket(x, low, high float64, count int32) (int32, error) {
	switch {
	case count <= 0:
		return 0, sqlstate.New(invalidBuckets, "count must be greater than zero")
	case math.IsNaN(x) || math.IsNaN(low) || math.IsNaN(high):
		return 0, sqlstate.New(invalidBuckets, "operand, lower bound, and upper bound cannot be NaN")
	case math.IsInf(low, 0) || math.IsInf(high, 0):
		return 0, sqlstate.New(invalidBuckets, "lower and upper bounds must be finite")
	case low == high:
		return 0, sqlstate.New(invalidBuckets, "lower bound cannot equal upper bound")
	}
	if low > high {
		x, low, high = -x, -low, -high
	}
	switch {
	case x < low:
		return 0, nil
	case x >= high:
		if count == math.MaxInt32 {
			return 0, intRangeError[int32]()
		}
		return count + 1, nil
	}
	// Halves keep the differences of extreme bounds finite.
	return min(int32(float64(count)*((x/2-low/2)/(high/2-low/2)))+1, count), nil
}

// bitNot is the unary ~, an overload beside the regular expression operator's.
func bitNot() []overload {
	return []overload{
		{params: []kind{kInt2}, result: returns(catalog.SmallInt), make: notKernel[int16]},
		{params: []kind{kInt4}, result: returns(catalog.Integer), make: notKernel[int32]},
		{params: []kind{kInt8}, result: returns(catalog.BigInt), make: notKernel[int64]},
	}
}

func notKernel[T signed](*callSite) (kernel, error) {
	return perRow(func(x T) (T, error) { return ^x, nil }), nil
}
