package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func comparisonFunctions() []*function {
	doc := map[string]string{
		"=": "Equality.", "<>": "Inequality.", "<": "Less than. Text compares bytewise, NaN is above all numbers.",
		"<=": "Less than or equal.", ">": "Greater than.", ">=": "Greater than or equal.",
	}
	var fs []*function
	for _, op := range []string{"=", "<>", "<", "<=", ">", ">="} {
		f := &function{name: op, infix: true, doc: doc[op], total: true, overloads: []overload{{
			params: []kind{pCompared, pCompared}, result: comparedResult, make: makeComparison(op),
		}}}
		if op == "<>" {
			f.aliases = []string{"!="}
		}
		fs = append(fs, f)
	}
	for _, d := range []struct {
		name, doc string
		negate    bool
	}{
		{"is distinct from", "Inequality that treats NULL as a value.", false},
		{"is not distinct from", "Equality that treats NULL as a value.", true},
	} {
		fs = append(fs, &function{name: d.name, infix: true, doc: d.doc, nonStrict: true, neverNull: true, overloads: []overload{{
			params: []kind{pCompared, pCompared}, result: comparedResult, make: makeDistinct(d.negate),
		}}})
	}
	return fs
}

// comparedResult refuses types that have no order.
var comparedResult = resultRule{"boolean", func(args []arrow.DataType) (arrow.DataType, error) {
	if k := kindOf(args[0]); k == kList || k == kStruct || k == kNone {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "values of type %s cannot be compared", catalog.TypeName(args[0]))
	}
	return catalog.Boolean, nil
}}

// siteComparer makes the comparer of a call.
func siteComparer(op comparison, site *callSite) (comparer, error) {
	c := newComparer(op, site)
	if c == nil {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "values of types %s and %s cannot be compared",
			catalog.TypeName(site.args[0]), catalog.TypeName(site.args[1]))
	}
	return c, nil
}

func makeComparison(name string) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		op, _ := comparisonOf(name)
		c, err := siteComparer(op, site)
		if err != nil {
			return nil, err
		}
		return func(f *frame) error {
			c.values(f, fixedOut[byte](f))
			return nil
		}, nil
	}
}

func makeDistinct(negate bool) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		op := cmpNE
		if negate {
			op = cmpEQ
		}
		if kindOf(site.args[0]) == kUnknown || kindOf(site.args[1]) == kUnknown {
			return nil, internalf("untyped argument of %s", site.name)
		}
		site.consts = make([]*columnar.Vector, 2) // a NULL constant is a value here
		c, err := siteComparer(op, site)
		if err != nil {
			return nil, err
		}
		var plain []byte
		return func(f *frame) error {
			plain = scratchBytes(plain, f.n)
			compareNonNull(c, f, plain)
			out := fixedOut[byte](f)
			a, b := f.args[0], f.args[1]
			for i := range out {
				switch na, nb := a.IsNull(i), b.IsNull(i); {
				case na || nb:
					out[i] = b2u((na == nb) == negate)
				default:
					out[i] = plain[i]
				}
			}
			f.out.Valid = nil
			return nil
		}, nil
	}
}

// compareNonNull runs a comparer unless one side is the NULL constant, whose
// value must not be looked at (its dictionary may be empty).
func compareNonNull(c comparer, f *frame, out []byte) {
	for _, v := range f.args {
		if v.Const && v.IsNull(0) {
			return
		}
	}
	if nullableText(f.args[0]) || nullableText(f.args[1]) {
		var sel []int32
		for i := range f.n {
			if !f.args[0].IsNull(i) && !f.args[1].IsNull(i) {
				sel = append(sel, int32(i))
			}
		}
		sub := *f
		sub.sel = sel
		if len(sel) > 0 {
			c.values(&sub, out)
		}
		return
	}
	c.values(f, out)
}

func nullableText(v *columnar.Vector) bool { return v.Dict != nil && v.Valid != nil }
