package exec

import (
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
)

// castNumber converts between numbers of any two kinds.
func castNumber(from, to arrow.DataType) kernel {
	switch kindOf(from) {
	case kInt2:
		return castInt[int16](to)
	case kInt4:
		return castInt[int32](to)
	case kInt8:
		return castInt[int64](to)
	case kReal:
		return castFloat[float32](to, 6, 32)
	case kDouble:
		return castFloat[float64](to, 15, 64)
	}
	return castDecimal(from, to)
}

// widenLoop converts without checks: the target holds every value.
func widenLoop[A, R signed | float](a []A, out []R) bool {
	out = out[:len(a)]
	for i, x := range a {
		out[i] = R(x)
	}
	return false
}

func noCheck[A any](A) error { return nil }

// narrowLoop reports whether some integer does not survive the round trip.
func narrowLoop[A, R signed](a []A, out []R) bool {
	out = out[:len(a)]
	bad := false
	for i, x := range a {
		r := R(x)
		out[i] = r
		bad = bad || A(r) != x
	}
	return bad
}

func narrowCheck[A, R signed](x A) error {
	if A(R(x)) != x {
		return intRangeError[R]()
	}
	return nil
}

func castInt[A signed](to arrow.DataType) kernel {
	switch kindOf(to) {
	case kInt2:
		return unaryLoop(narrowLoop[A, int16], narrowCheck[A, int16])
	case kInt4:
		return unaryLoop(narrowLoop[A, int32], narrowCheck[A, int32])
	case kInt8:
		return unaryLoop(narrowLoop[A, int64], narrowCheck[A, int64])
	case kReal:
		return unaryLoop(widenLoop[A, float32], noCheck[A])
	case kDouble:
		return unaryLoop(widenLoop[A, float64], noCheck[A])
	}
	p, s, _ := decimalParts(to)
	if isShort(to) {
		limit, factor := pow10int64[p-s], pow10int64[s]
		return unaryLoop(func(a []A, out []int64) bool {
			out = out[:len(a)]
			bad := false
			for i, x := range a {
				v := int64(x)
				bad = bad || v >= limit || v <= -limit
				out[i] = v * factor
			}
			return bad
		}, func(x A) error {
			if int64(x) >= limit || int64(x) <= -limit {
				return decimalRangeError(p, s)
			}
			return nil
		})
	}
	return perRow(func(x A) (int128, error) { return fitDecimal(int128Of(int64(x)), 0, p, s) })
}

// fitDecimal changes the scale of an unscaled value, rounding half away from
// zero, and checks the precision.
func fitDecimal(x int128, scale, p, s int) (int128, error) {
	ok := true
	if scale > s {
		x = roundTo(x, scale-s, roundHalfAway)
	} else if scale < s {
		x, ok = x.mul(pow10[s-scale])
	}
	if !ok || !inPrecision(x, p) {
		return x, decimalRangeError(p, s)
	}
	return x, nil
}

// castFloat rounds to integers half to even, and to decimals through the
// digits that the type is trusted with, as PostgreSQL does.
func castFloat[A float](to arrow.DataType, digits, bits int) kernel {
	switch kindOf(to) {
	case kInt2:
		return perRow(floatToInt[A, int16])
	case kInt4:
		return perRow(floatToInt[A, int32])
	case kInt8:
		return perRow(floatToInt[A, int64])
	case kDouble:
		return unaryLoop(widenLoop[A, float64], noCheck[A])
	case kReal:
		return perRow(func(x A) (float32, error) {
			r := float32(x)
			switch {
			case math.IsInf(float64(r), 0) && !math.IsInf(float64(x), 0):
				return 0, checkFloat(r, 0, 0)
			case r == 0 && x != 0:
				return 0, floatUnderflow()
			}
			return r, nil
		})
	}
	p, s, _ := decimalParts(to)
	var buf []byte
	parse := func(x A) (int128, error) {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return int128{}, decimalRangeError(p, s)
		}
		buf = strconv.AppendFloat(buf[:0], float64(x), 'e', digits-1, bits)
		return parseDecimal(buf, p, s)
	}
	if isShort(to) {
		return perRow(func(x A) (int64, error) {
			r, err := parse(x)
			return int64(r.lo), err
		})
	}
	return perRow(parse)
}

func floatToInt[A float, R signed](x A) (R, error) {
	f := math.RoundToEven(float64(x))
	low := float64(minOf[R]())
	if !(f >= low && f < -low) {
		return 0, intRangeError[R]()
	}
	return R(f), nil
}

func castDecimal(from, to arrow.DataType) kernel {
	p1, s1, _ := decimalParts(from)
	switch kindOf(to) {
	case kInt2:
		return decimalToInt[int16](s1)
	case kInt4:
		return decimalToInt[int32](s1)
	case kInt8:
		return decimalToInt[int64](s1)
	case kReal:
		return fromWide(func(x int128) (float32, error) { return float32(decimalToFloat(x, s1)), nil })
	case kDouble:
		return fromWide(func(x int128) (float64, error) { return decimalToFloat(x, s1), nil })
	}
	p, s, _ := decimalParts(to)
	if isShort(from) && isShort(to) && s >= s1 && p-s >= p1-s1 {
		factor := pow10int64[s-s1]
		return unaryLoop(func(a, out []int64) bool {
			out = out[:len(a)]
			for i, x := range a {
				out[i] = x * factor
			}
			return false
		}, noCheck[int64])
	}
	return wideUnary(func(x int128) (int128, error) { return fitDecimal(x, s1, p, s) })
}

// fromWide makes a kernel from a decimal of either width.
func fromWide[R any](fn func(x int128) (R, error)) kernel {
	return func(f *frame) error {
		v, out := f.args[0], fixedOut[R](f)
		return f.each(func(i int) (err error) {
			out[i], err = fn(wideAt(v, i))
			return err
		})
	}
}

func decimalToInt[R signed](scale int) kernel {
	return fromWide(func(x int128) (R, error) {
		n, ok := roundTo(x, scale, roundHalfAway).int64()
		if !ok || int64(R(n)) != n {
			return 0, intRangeError[R]()
		}
		return R(n), nil
	})
}

// decimalToFloat is the nearest double.
func decimalToFloat(x int128, scale int) float64 {
	if n, ok := x.int64(); ok && scale <= 22 && n > -1<<53 && n < 1<<53 {
		return float64(n) / math.Pow10(scale) // both exact, so rounded once
	}
	var buf [48]byte
	f, err := strconv.ParseFloat(string(appendDecimal(buf[:0], x, scale)), 64)
	if err != nil {
		return x.float64() / math.Pow10(scale)
	}
	return f
}
