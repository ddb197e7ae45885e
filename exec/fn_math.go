package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

func mathFunctions() []*function {
	double := returns(catalog.Double)
	real1 := func(fn func(float64) (float64, error)) []overload {
		return []overload{{params: []kind{kDouble}, result: double, make: func(*callSite) (kernel, error) { return perRow(fn), nil }}}
	}
	real2 := func(fn func(a, b float64) (float64, error)) overload {
		return overload{params: []kind{kDouble, kDouble}, result: double, make: func(*callSite) (kernel, error) { return perRow2(fn), nil }}
	}
	logOverloads := append(real1(func(x float64) (float64, error) { return logarithm(x, math.Log10) }), real2(func(b, x float64) (float64, error) {
		lb, err := logarithm(b, math.Log)
		if err != nil {
			return 0, err
		}
		lx, err := logarithm(x, math.Log)
		if err == nil && lb == 0 {
			return 0, divisionByZero()
		}
		return lx / lb, err
	}))
	return []*function{
		{name: "abs", doc: "Absolute value.", overloads: []overload{{params: []kind{pNumber}, result: returnsArg(0), make: makeAbs}}},
		{name: "sign", doc: "-1, 0 or 1.", overloads: []overload{
			{params: []kind{kDouble}, result: double, make: func(*callSite) (kernel, error) { return floatUnary(signOf), nil }},
			{params: []kind{kDecimal}, result: returns(catalog.Decimal(1, 0)), make: makeDecimalSign},
		}},
		{name: "ceil", aliases: []string{"ceiling"}, doc: "The nearest integer not below.", overloads: rounding(roundCeil, math.Ceil)},
		{name: "floor", doc: "The nearest integer not above.", overloads: rounding(roundFloor, math.Floor)},
		{name: "round", doc: "The nearest integer; decimals also to a number of places, keeping their scale. Halves round away from zero in decimals and to even in doubles.",
			overloads: append(rounding(roundHalfAway, math.RoundToEven), placesOverload(roundHalfAway))},
		{name: "trunc", doc: "Towards zero; decimals also to a number of places, keeping their scale.",
			overloads: append(rounding(roundTruncate, math.Trunc), placesOverload(roundTruncate))},
		{name: "sqrt", doc: "Square root.", overloads: real1(func(x float64) (float64, error) {
			if x < 0 {
				return 0, sqlstate.New(sqlstate.InvalidPowerArgument, "cannot take square root of a negative number")
			}
			return math.Sqrt(x), nil
		})},
		{name: "power", aliases: []string{"pow", "^"}, doc: "The first argument raised to the second.", overloads: []overload{real2(power)}},
		{name: "exp", doc: "e raised to the argument.", overloads: real1(func(x float64) (float64, error) {
			r := math.Exp(x)
			if r == 0 && !math.IsInf(x, 0) {
				return 0, floatUnderflow()
			}
			return r, checkFloat(r, x, 0)
		})},
		{name: "ln", doc: "Natural logarithm.", overloads: real1(func(x float64) (float64, error) { return logarithm(x, math.Log) })},
		{name: "log", aliases: []string{"log10"}, doc: "Logarithm to base 10, or to the base given first.", overloads: logOverloads},
	}
}

func logarithm(x float64, fn func(float64) float64) (float64, error) {
	switch {
	case x == 0:
		return 0, sqlstate.New(sqlstate.InvalidLogArgument, "cannot take logarithm of zero")
	case x < 0:
		return 0, sqlstate.New(sqlstate.InvalidLogArgument, "cannot take logarithm of a negative number")
	}
	return fn(x), nil
}

func power(a, b float64) (float64, error) {
	switch {
	case a == 0 && b < 0:
		return 0, sqlstate.New(sqlstate.InvalidPowerArgument, "zero raised to a negative power is undefined")
	case a < 0 && b != math.Trunc(b) && !math.IsInf(a, 0) && !math.IsInf(b, 0):
		return 0, sqlstate.New(sqlstate.InvalidPowerArgument, "a negative number raised to a non-integer power yields a complex result")
	}
	r := math.Pow(a, b)
	if r == 0 && a != 0 && !math.IsInf(a, 0) && !math.IsInf(b, 0) {
		return 0, floatUnderflow()
	}
	return r, checkFloat(r, a, b)
}

func signOf(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // zero and NaN
}

func makeDecimalSign(*callSite) (kernel, error) {
	return wideUnary(func(x int128) (int128, error) { return int128Of(int64(x.cmp(int128{}))), nil }), nil
}

func makeAbs(site *callSite) (kernel, error) {
	switch kindOf(site.args[0]) {
	case kInt2:
		return absKernel[int16](), nil
	case kInt4:
		return absKernel[int32](), nil
	case kInt8:
		return absKernel[int64](), nil
	case kReal:
		return floatUnary(func(x float32) float32 { return float32(math.Abs(float64(x))) }), nil
	case kDouble:
		return floatUnary(math.Abs), nil
	case kDecimal:
		return wideUnary(func(x int128) (int128, error) { return x.abs(), nil }), nil
	}
	return nil, internalf("abs of %s", site.args[0])
}

// wholeDecimal is the result of rounding a decimal to an integer: 99.9 needs
// one digit more than the part before the point.
var wholeDecimal = resultRule{"decimal", func(args []arrow.DataType) (arrow.DataType, error) {
	p, s, ok := decimalParts(args[0])
	if !ok {
		return nil, undefined("round", args)
	}
	return catalog.Decimal(min(p-s+1, catalog.MaxDecimalPrecision), 0), nil
}}

func rounding(mode roundMode, fn func(float64) float64) []overload {
	return []overload{
		{params: []kind{kDouble}, result: returns(catalog.Double), make: func(*callSite) (kernel, error) { return floatUnary(fn), nil }},
		{params: []kind{kDecimal}, result: wholeDecimal, make: func(site *callSite) (kernel, error) {
			_, s, _ := decimalParts(site.args[0])
			return wideUnary(func(x int128) (int128, error) { return roundTo(x, s, mode), nil }), nil
		}},
	}
}

// placesResult keeps the scale, as the number of places is not known to the
// type, and gains a digit for a carry.
var placesResult = resultRule{"decimal", func(args []arrow.DataType) (arrow.DataType, error) {
	p, s, ok := decimalParts(args[0])
	if !ok {
		return nil, undefined("round", args)
	}
	return catalog.Decimal(min(p+1, catalog.MaxDecimalPrecision), s), nil
}}

func placesOverload(mode roundMode) overload {
	return overload{params: []kind{kDecimal, kInt4}, result: placesResult, make: func(site *callSite) (kernel, error) {
		_, s, _ := decimalParts(site.args[0])
		p, _, _ := decimalParts(site.result)
		return func(f *frame) error {
			v, places := f.args[0], f.args[1]
			one := func(i int) (int128, error) {
				drop := s - int(at[int32](places, i))
				switch {
				case drop <= 0:
					return wideAt(v, i), nil
				case drop > 38:
					return int128{}, nil
				}
				x, ok := roundTo(wideAt(v, i), drop, mode).mul(pow10[drop])
				if !ok || !inPrecision(x, p) {
					return x, decimalRangeError(p, s)
				}
				return x, nil
			}
			if isShort(site.result) {
				out := fixedOut[int64](f)
				return f.each(func(i int) error {
					x, err := one(i)
					out[i] = int64(x.lo)
					return err
				})
			}
			out := fixedOut[int128](f)
			return f.each(func(i int) (err error) {
				out[i], err = one(i)
				return err
			})
		}, nil
	}}
}
