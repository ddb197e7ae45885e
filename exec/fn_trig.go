package exec

import (
	"math"

	"skein/catalog"
	"skein/sqlstate"
)

// trigFunctions are those of double precision alone.
func trigFunctions() []*function {
	var fs []*function
	for _, t := range []struct {
		name, doc string
		fn        func(float64) (float64, error)
	}{
		{"sin", "Sine.", finite(math.Sin)}, {"cos", "Cosine.", finite(math.Cos)}, {"tan", "Tangent.", finite(math.Tan)},
		{"cot", "Cotangent.", finite(func(x float64) float64 { return 1 / math.Tan(x) })},
		{"asin", "Inverse sine.", within(math.Asin)}, {"acos", "Inverse cosine.", within(math.Acos)},
		{"atan", "Inverse tangent.", total(math.Atan)},
		{"sinh", "Hyperbolic sine.", total(math.Sinh)}, {"cosh", "Hyperbolic cosine.", total(math.Cosh)}, {"tanh", "Hyperbolic tangent.", total(math.Tanh)},
		{"cbrt", "Cube root.", total(math.Cbrt)},
		{"degrees", "Degrees of an angle in radians.", ranged(func(x float64) float64 { return x / (math.Pi / 180) })},
		{"radians", "Radians of an angle in degrees.", ranged(func(x float64) float64 { return x * (math.Pi / 180) })},
	} {
		fs = append(fs, &function{name: t.name, doc: t.doc, overloads: []overload{{params: []kind{kDouble}, result: returns(catalog.Double),
			make: func(*callSite) (kernel, error) { return perRow(t.fn), nil }}}})
	}
	return append(fs,
		&function{name: "atan2", doc: "Inverse tangent of the first argument divided by the second.", overloads: []overload{
			{params: []kind{kDouble, kDouble}, result: returns(catalog.Double), make: func(*callSite) (kernel, error) {
				return perRow2(func(y, x float64) (float64, error) { return math.Atan2(y, x), nil }), nil
			}}}},
		&function{name: "pi", neverNull: true, doc: "The number pi.", overloads: []overload{
			{result: returns(catalog.Double), make: plain(func(f *frame) error {
				out := fixedOut[float64](f)
				for i := range out {
					out[i] = math.Pi
				}
				return nil
			})}}},
	)
}

func total(fn func(float64) float64) func(float64) (float64, error) {
	return func(x float64) (float64, error) { return fn(x), nil }
}

// ranged fails where a finite argument gives infinity.
func ranged(fn func(float64) float64) func(float64) (float64, error) {
	return func(x float64) (float64, error) {
		r := fn(x)
		return r, checkFloat(r, x, 0)
	}
}

func inputRange() error { return sqlstate.New(sqlstate.NumericOutOfRange, "input is out of range") }

// finite refuses infinities.
func finite(fn func(float64) float64) func(float64) (float64, error) {
	return func(x float64) (float64, error) {
		if math.IsInf(x, 0) {
			return 0, inputRange()
		}
		return fn(x), nil
	}
}

// within refuses what is not between -1 and 1.
func within(fn func(float64) float64) func(float64) (float64, error) {
	return func(x float64) (float64, error) {
		if x < -1 || x > 1 {
			return 0, inputRange()
		}
		return fn(x), nil
	}
}
