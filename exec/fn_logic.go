package exec

import (
	"bytes"
	"cmp"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// and, or and coalesce have no kernel here: they evaluate their arguments
// lazily and have expression nodes of their own (eval_logic.go, eval_case.go).
func logicFunctions() []*function {
	boolean := []kind{kBool}
	fs := []*function{
		{name: "and", infix: true, nonStrict: true, doc: "Three-valued conjunction; the right side is evaluated only for rows where the left is not false.",
			overloads: []overload{{params: []kind{kBool, kBool}, variadic: true, result: returns(catalog.Boolean)}}},
		{name: "or", infix: true, nonStrict: true, doc: "Three-valued disjunction; the right side is evaluated only for rows where the left is not true.",
			overloads: []overload{{params: []kind{kBool, kBool}, variadic: true, result: returns(catalog.Boolean)}}},
		{name: "not", infix: true, total: true, doc: "Three-valued negation.",
			overloads: []overload{{params: boolean, result: returns(catalog.Boolean), make: makeNot}}},
	}
	for _, n := range []struct {
		name string
		null bool
	}{{"is null", true}, {"is not null", false}} {
		fs = append(fs, &function{name: n.name, infix: true, nonStrict: true, neverNull: true, doc: "Tests for NULL.",
			overloads: []overload{{params: []kind{pAny}, result: returns(catalog.Boolean), make: plain(nullTest(n.null))}}})
	}
	for _, t := range []struct {
		name           string
		yes, no, other byte // result for true, false and NULL
	}{
		{"is true", 1, 0, 0}, {"is not true", 0, 1, 1}, {"is false", 0, 1, 0},
		{"is not false", 1, 0, 1}, {"is unknown", 0, 0, 1}, {"is not unknown", 1, 1, 0},
	} {
		fs = append(fs, &function{name: t.name, infix: true, nonStrict: true, neverNull: true, doc: "Tests a truth value; never NULL.",
			overloads: []overload{{params: boolean, result: returns(catalog.Boolean), make: plain(truthTest(t.yes, t.no, t.other))}}})
	}
	return fs
}

func makeNot(*callSite) (kernel, error) {
	return unaryLoop(func(a, out []byte) bool {
		for i, x := range a {
			out[i] = x ^ 1
		}
		return false
	}, func(byte) error { return nil }), nil
}

// plain makes every call site share nothing but the kernel's code: use it only
// for kernels without scratch state.
func plain(k kernel) func(*callSite) (kernel, error) {
	return func(*callSite) (kernel, error) { return k, nil }
}

func nullTest(null bool) kernel {
	return func(f *frame) error {
		v, out := f.args[0], fixedOut[byte](f)
		for i := range out {
			out[i] = b2u(v.IsNull(i) == null)
		}
		f.out.Valid = nil
		return nil
	}
}

func truthTest(yes, no, other byte) kernel {
	return func(f *frame) error {
		v, out := f.args[0], fixedOut[byte](f)
		in, mask := v.Data, rowMask(v)
		for i := range out {
			switch {
			case v.IsNull(i):
				out[i] = other
			case in[i&mask] != 0:
				out[i] = yes
			default:
				out[i] = no
			}
		}
		f.out.Valid = nil
		return nil
	}
}

func conditionalFunctions() []*function {
	same := returnsArg(0)
	return []*function{
		{name: "coalesce", nonStrict: true, doc: "The first argument that is not NULL; later arguments are evaluated only where needed.",
			overloads: []overload{{params: []kind{pSame}, variadic: true, result: same}}},
		{name: "nullif", nonStrict: true, doc: "NULL when both arguments are equal, else the first.",
			overloads: []overload{{params: []kind{pSame, pSame}, result: same}}},
		{name: "greatest", nonStrict: true, doc: "The largest argument; NULLs are ignored.",
			overloads: []overload{{params: []kind{pSame}, variadic: true, result: same, make: makeExtreme(1)}}},
		{name: "least", nonStrict: true, doc: "The smallest argument; NULLs are ignored.",
			overloads: []overload{{params: []kind{pSame}, variadic: true, result: same, make: makeExtreme(-1)}}},
	}
}

// makeExtreme keeps the argument that compares as sign with the best so far.
func makeExtreme(sign int) func(*callSite) (kernel, error) {
	return func(site *callSite) (kernel, error) {
		order := valueOrder(site.result)
		if order == nil {
			return nil, internalf("values of %s cannot be compared", site.result)
		}
		var pick []int32
		return func(f *frame) error {
			pick = sized(pick, f.n)
			for i := range f.n {
				best := int32(-1)
				for k, v := range f.args {
					if !v.IsNull(i) && (best < 0 || order(v, i, f.args[best], i)*sign > 0) {
						best = int32(k)
					}
				}
				pick[i] = best
			}
			return mergePicks(f, f.args, pick)
		}, nil
	}
}

// valueOrder returns a three-way comparison of single values of one physical
// type with PostgreSQL's order, nil for types without one.
func valueOrder(dt arrow.DataType) func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
	switch dt.ID() {
	case arrow.BOOL:
		return orderOf[uint8]
	case arrow.INT16:
		return orderOf[int16]
	case arrow.INT32, arrow.DATE32:
		return orderOf[int32]
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64:
		return orderOf[int64]
	case arrow.FLOAT32:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			return cmp.Compare(floatKey(float64(at[float32](a, i))), floatKey(float64(at[float32](b, j))))
		}
	case arrow.FLOAT64:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			return cmp.Compare(floatKey(at[float64](a, i)), floatKey(at[float64](b, j)))
		}
	case arrow.DECIMAL128:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			return at[int128](a, i).cmp(at[int128](b, j))
		}
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			return intervalKey(at[arrow.MonthDayNanoInterval](a, i)).cmp(intervalKey(at[arrow.MonthDayNanoInterval](b, j)))
		}
	case arrow.STRING, arrow.BINARY:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			return bytes.Compare(a.BytesAt(i), b.BytesAt(j))
		}
	case arrow.FIXED_SIZE_BINARY:
		return func(a *columnar.Vector, i int, b *columnar.Vector, j int) int {
			x, y := at[[16]byte](a, i), at[[16]byte](b, j)
			return bytes.Compare(x[:], y[:])
		}
	}
	return nil
}

func orderOf[T cmp.Ordered](a *columnar.Vector, i int, b *columnar.Vector, j int) int {
	return cmp.Compare(at[T](a, i), at[T](b, j))
}

// mergePicks builds the result whose row i is row i of vectors[pick[i]], NULL
// where pick is negative. Vectors have the result's type.
func mergePicks(f *frame, vectors []*columnar.Vector, pick []int32) error {
	f.out.Valid = nil
	if mayPickNull(vectors, pick) {
		valid := f.ownValid()
		for i, p := range pick {
			if p < 0 || vectors[p].IsNull(i) {
				columnar.ClearBit(valid, i)
			}
		}
	}
	switch w := columnar.Width(f.out.Type); {
	case w == 1:
		mergeFixed[uint8](f, vectors, pick)
	case w == 2:
		mergeFixed[uint16](f, vectors, pick)
	case w == 4:
		mergeFixed[uint32](f, vectors, pick)
	case w == 8:
		mergeFixed[uint64](f, vectors, pick)
	case w == 16:
		mergeFixed[int128](f, vectors, pick)
	case f.out.Type.ID() == arrow.STRING || f.out.Type.ID() == arrow.BINARY:
		f.sel = nil
		if err := f.text(func(dst []byte, i int) ([]byte, error) {
			return append(dst, vectors[pick[i]].BytesAt(i)...), nil
		}); err != nil {
			return err
		}
	default:
		return mergeNested(f, vectors, pick)
	}
	return nil
}

// mayPickNull reports whether some row may be NULL.
func mayPickNull(vectors []*columnar.Vector, pick []int32) bool {
	for _, v := range vectors {
		if v.Valid != nil {
			return true
		}
	}
	low := int32(0)
	for _, p := range pick {
		low = min(low, p)
	}
	return low < 0
}

func mergeFixed[T any](f *frame, vectors []*columnar.Vector, pick []int32) {
	out := fixedOut[T](f)
	sources := make([][]T, len(vectors))
	masks := make([]int, len(vectors))
	for k, v := range vectors {
		sources[k], masks[k] = columnar.Values[T](v), rowMask(v)
	}
	var zero T
	for i, p := range pick {
		if p < 0 {
			out[i] = zero
			continue
		}
		out[i] = sources[p][i&masks[p]]
	}
}

func mergeNested(f *frame, vectors []*columnar.Vector, pick []int32) error {
	b, err := columnar.NewBuilder(f.out.Type)
	if err != nil {
		return err
	}
	for i, p := range pick {
		if p < 0 {
			b.AppendNull()
		} else if err := b.AppendRow(vectors[p], i); err != nil {
			return err
		}
	}
	*f.out = *b.Finish()
	return nil
}
