package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sqlstate"
)

func arithmeticFunctions() []*function {
	doc := map[string]string{
		"+": "Addition. Integer overflow is an error. Decimals keep the larger scale and gain one digit.",
		"-": "Subtraction; with one operand, negation.",
		"*": "Multiplication. Decimal precisions and scales add up.",
		"/": "Division. Integers truncate towards zero; decimals give decimal(38, max(16, scales)), rounded half away from zero.",
		"%": "Remainder with the sign of the dividend.",
	}
	var fs []*function
	for _, op := range []string{"+", "-", "*", "/", "%"} {
		f := &function{name: op, infix: true, doc: doc[op]}
		if op == "%" {
			f.aliases = []string{"mod"}
		}
		f.overloads = []overload{{params: []kind{pNumber, pNumber}, result: arithmeticResult(op), make: makeArithmetic(op)}}
		if op == "+" || op == "-" {
			f.overloads = append(f.overloads, overload{params: []kind{pNumber}, result: signResult(op), make: makeSign(op)})
		}
		f.overloads = append(f.overloads, datetimeOverloads(op)...)
		fs = append(fs, f)
	}
	return fs
}

// arithmeticResult is the typing rule of numbers.
func arithmeticResult(op string) resultRule {
	return resultRule{"number", func(args []arrow.DataType) (arrow.DataType, error) {
		if kindOf(args[0]) != kDecimal {
			if op == "%" && !kindOf(args[0]).isInteger() {
				return nil, undefined(op, args)
			}
			return args[0], nil
		}
		p1, s1, _ := decimalParts(args[0])
		p2, s2, ok := decimalParts(args[1])
		if !ok {
			return nil, undefined(op, args)
		}
		return decimalResult(op, p1, s1, p2, s2)
	}}
}

func decimalResult(op string, p1, s1, p2, s2 int) (arrow.DataType, error) {
	const limit = catalog.MaxDecimalPrecision
	s := max(s1, s2)
	switch op {
	case "*":
		if s1+s2 > limit {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "the product of decimal(%d,%d) and decimal(%d,%d) has more than %d decimal places", p1, s1, p2, s2, limit).
				WithHint("cast an operand to a smaller scale")
		}
		return catalog.Decimal(min(p1+p2, limit), s1+s2), nil
	case "/":
		return catalog.Decimal(limit, max(16, s)), nil
	case "%":
		return catalog.Decimal(min(max(p1-s1, p2-s2)+s, limit), s), nil
	}
	return catalog.Decimal(min(max(p1-s1, p2-s2)+s+1, limit), s), nil
}

func makeArithmetic(op string) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		var k kernel
		switch kindOf(site.args[0]) {
		case kInt2:
			k = intKernel[int16](op)
		case kInt4:
			k = intKernel[int32](op)
		case kInt8:
			k = intKernel[int64](op)
		case kReal:
			k = floatKernel[float32](op)
		case kDouble:
			k = floatKernel[float64](op)
		case kDecimal:
			return decimalKernel(op, site)
		}
		if k == nil {
			return nil, internalf("no kernel for operator %s over %s", op, site.args[0])
		}
		return k, nil
	}
}

// signResult types unary plus and minus.
func signResult(string) resultRule { return returnsArg(0) }

func makeSign(op string) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		if op == "+" {
			return identity, nil
		}
		switch kindOf(site.args[0]) {
		case kInt2:
			return negKernel[int16](), nil
		case kInt4:
			return negKernel[int32](), nil
		case kInt8:
			return negKernel[int64](), nil
		case kReal:
			return floatUnary(func(x float32) float32 { return -x }), nil
		case kDouble:
			return floatUnary(func(x float64) float64 { return -x }), nil
		case kDecimal:
			return wideUnary(func(x int128) (int128, error) { return x.neg(), nil }), nil
		}
		return nil, internalf("no kernel for unary minus over %s", site.args[0])
	}
}

// identity returns its argument, sharing its memory.
func identity(f *frame) error {
	dt, valid := f.out.Type, f.out.Valid
	*f.out = *f.args[0]
	f.out.Type, f.out.Valid = dt, valid
	return nil
}
