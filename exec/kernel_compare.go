package exec

import (
	"bytes"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// comparison is one of the six comparison operators.
type comparison uint8

const (
	cmpEQ comparison = iota
	cmpNE
	cmpLT
	cmpLE
	cmpGT
	cmpGE
)

func comparisonOf(name string) (comparison, bool) {
	switch name {
	case "=":
		return cmpEQ, true
	case "<>":
		return cmpNE, true
	case "<":
		return cmpLT, true
	case "<=":
		return cmpLE, true
	case ">":
		return cmpGT, true
	case ">=":
		return cmpGE, true
	}
	return 0, false
}

// flip is the operator with its operands exchanged.
func (c comparison) flip() comparison {
	switch c {
	case cmpLT:
		return cmpGT
	case cmpLE:
		return cmpGE
	case cmpGT:
		return cmpLT
	case cmpGE:
		return cmpLE
	}
	return c
}

// holds tells whether the operator accepts a three-way result.
func (c comparison) holds(order int) bool {
	switch c {
	case cmpEQ:
		return order == 0
	case cmpNE:
		return order != 0
	case cmpLT:
		return order < 0
	case cmpLE:
		return order <= 0
	case cmpGT:
		return order > 0
	}
	return order >= 0
}

// comparer compares two columns of one pair of types. choose appends those of
// the rows (nil: all n) whose values satisfy the operator, nulls included;
// values writes one 0 or 1 per row.
type comparer interface {
	values(f *frame, out []byte)
	choose(f *frame, dst []int32) []int32
}

// b2i compiles to a flag move, not a branch.
func b2i(b bool) int {
	var x int
	if b {
		x = 1
	}
	return x
}

func b2u(b bool) byte {
	var x byte
	if b {
		x = 1
	}
	return x
}

type number interface {
	~uint8 | ~int16 | ~int32 | ~int64 | ~float32 | ~float64
}

// valuesConst compares a column with one value. Greater is spelled as not
// less-or-equal so that NaN sorts above every number, as PostgreSQL has it;
// c itself must not be NaN.
func valuesConst[T number](op comparison, a []T, c T, out []byte) {
	out = out[:len(a)]
	switch op {
	case cmpEQ:
		for i, x := range a {
			out[i] = b2u(x == c)
		}
	case cmpNE:
		for i, x := range a {
			out[i] = b2u(x != c)
		}
	case cmpLT:
		for i, x := range a {
			out[i] = b2u(x < c)
		}
	case cmpLE:
		for i, x := range a {
			out[i] = b2u(x <= c)
		}
	case cmpGT:
		for i, x := range a {
			out[i] = b2u(!(x <= c))
		}
	case cmpGE:
		for i, x := range a {
			out[i] = b2u(!(x < c))
		}
	}
}

func valuesPair[T number](op comparison, a, b []T, out []byte) {
	if op == cmpGT || op == cmpGE {
		a, b, op = b, a, op.flip()
	}
	b, out = b[:len(a)], out[:len(a)]
	switch op {
	case cmpEQ:
		for i, x := range a {
			out[i] = b2u(x == b[i])
		}
	case cmpNE:
		for i, x := range a {
			out[i] = b2u(x != b[i])
		}
	case cmpLT:
		for i, x := range a {
			out[i] = b2u(x < b[i])
		}
	case cmpLE:
		for i, x := range a {
			out[i] = b2u(x <= b[i])
		}
	}
}

// chooseAll appends the rows of a whole column that compare true with c.
func chooseAll[T number](op comparison, a []T, c T, dst []int32) []int32 {
	base := len(dst)
	dst = roomFor(dst, len(a))
	out := dst[base : base+len(a)]
	k := 0
	switch op {
	case cmpEQ:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(x == c)
		}
	case cmpNE:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(x != c)
		}
	case cmpLT:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(x < c)
		}
	case cmpLE:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(x <= c)
		}
	case cmpGT:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(!(x <= c))
		}
	case cmpGE:
		for i, x := range a {
			out[k] = int32(i)
			k += b2i(!(x < c))
		}
	}
	return dst[:base+k]
}

// chooseSome is chooseAll over selected rows.
func chooseSome[T number](op comparison, a []T, c T, sel, dst []int32) []int32 {
	base := len(dst)
	dst = roomFor(dst, len(sel))
	out := dst[base : base+len(sel)]
	k := 0
	switch op {
	case cmpEQ:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] == c)
		}
	case cmpNE:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] != c)
		}
	case cmpLT:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] < c)
		}
	case cmpLE:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] <= c)
		}
	case cmpGT:
		for _, i := range sel {
			out[k] = i
			k += b2i(!(a[i] <= c))
		}
	case cmpGE:
		for _, i := range sel {
			out[k] = i
			k += b2i(!(a[i] < c))
		}
	}
	return dst[:base+k]
}

// choosePair appends the rows where a and b compare true.
func choosePair[T number](op comparison, a, b []T, sel, dst []int32) []int32 {
	if op == cmpGT || op == cmpGE {
		a, b, op = b, a, op.flip()
	}
	base, n := len(dst), len(a)
	if sel != nil {
		n = len(sel)
	}
	dst = roomFor(dst, n)
	out := dst[base : base+n]
	k := 0
	if sel == nil {
		b := b[:len(a)]
		switch op {
		case cmpLT:
			for i, x := range a {
				out[k] = int32(i)
				k += b2i(x < b[i])
			}
		case cmpLE:
			for i, x := range a {
				out[k] = int32(i)
				k += b2i(x <= b[i])
			}
		case cmpEQ:
			for i, x := range a {
				out[k] = int32(i)
				k += b2i(x == b[i])
			}
		case cmpNE:
			for i, x := range a {
				out[k] = int32(i)
				k += b2i(x != b[i])
			}
		}
		return dst[:base+k]
	}
	switch op {
	case cmpLT:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] < b[i])
		}
	case cmpLE:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] <= b[i])
		}
	case cmpEQ:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] == b[i])
		}
	case cmpNE:
		for _, i := range sel {
			out[k] = i
			k += b2i(a[i] != b[i])
		}
	}
	return dst[:base+k]
}

// roomFor returns dst extended by n elements of unspecified content.
func roomFor(dst []int32, n int) []int32 {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	grown := make([]int32, len(dst)+n)
	copy(grown, dst)
	return grown
}

// appendRows appends sel, or all n rows when it is nil.
func appendRows(dst, sel []int32, n int) []int32 {
	if sel != nil {
		return append(dst, sel...)
	}
	base := len(dst)
	dst = roomFor(dst, n)
	for i := range n {
		dst[base+i] = int32(i)
	}
	return dst
}

// numberComparer compares values that are stored as T.
type numberComparer[T number] struct {
	op   comparison
	a, b operand[T]
}

// constOperand finds a constant that is not NaN: the other column, the
// operator for "column op constant", and the constant.
func (c *numberComparer[T]) constOperand(f *frame) (col []T, op comparison, value T, ok bool) {
	x, y, op := f.args[0], f.args[1], c.op
	if x.Const {
		x, y, op = y, x, op.flip()
	}
	if !y.Const || x.Const {
		return nil, op, value, false
	}
	value = columnar.Values[T](y)[0]
	return columnar.Values[T](x)[:f.n], op, value, value == value
}

func (c *numberComparer[T]) values(f *frame, out []byte) {
	if col, op, v, ok := c.constOperand(f); ok {
		valuesConst(op, col, v, out)
		return
	}
	valuesPair(c.op, c.a.of(f.args[0], f.n, nil), c.b.of(f.args[1], f.n, nil), out)
}

func (c *numberComparer[T]) choose(f *frame, dst []int32) []int32 {
	if col, op, v, ok := c.constOperand(f); ok {
		if f.sel == nil {
			return chooseAll(op, col, v, dst)
		}
		return chooseSome(op, col, v, f.sel, dst)
	}
	return choosePair(c.op, c.a.of(f.args[0], f.n, nil), c.b.of(f.args[1], f.n, nil), f.sel, dst)
}

// floatKey maps doubles to integers of the same order: both zeros are equal,
// and all NaNs are equal and above infinity.
func floatKey(x float64) int64 {
	switch {
	case x != x:
		return math.MaxInt64
	case x == 0:
		return 0
	}
	b := int64(math.Float64bits(x))
	return b ^ (b>>63)&math.MaxInt64
}

// floatComparer compares columns of real or double pairwise; with a constant
// it leaves the work to numberComparer.
type floatComparer[T float] struct {
	direct numberComparer[T]
	keys   [2][]int64
}

func (c *floatComparer[T]) prepare(f *frame) (a, b []int64) {
	for k := range c.keys {
		v := f.args[k]
		in, mask := columnar.Values[T](v), rowMask(v)
		c.keys[k] = sized(c.keys[k], f.n)
		for i := range c.keys[k] {
			c.keys[k][i] = floatKey(float64(in[i&mask]))
		}
	}
	return c.keys[0], c.keys[1]
}

func (c *floatComparer[T]) values(f *frame, out []byte) {
	if _, _, _, ok := c.direct.constOperand(f); ok {
		c.direct.values(f, out)
		return
	}
	a, b := c.prepare(f)
	valuesPair(c.direct.op, a, b, out)
}

func (c *floatComparer[T]) choose(f *frame, dst []int32) []int32 {
	if _, _, _, ok := c.direct.constOperand(f); ok {
		return c.direct.choose(f, dst)
	}
	a, b := c.prepare(f)
	return choosePair(c.direct.op, a, b, f.sel, dst)
}

// orderComparer compares through a three-way function of the row.
type orderComparer struct {
	op    comparison
	order func(f *frame) func(i int) int
}

func (c *orderComparer) values(f *frame, out []byte) {
	order := c.order(f)
	if f.sel == nil {
		for i := range f.n {
			out[i] = b2u(c.op.holds(order(i)))
		}
		return
	}
	for _, i := range f.sel {
		out[i] = b2u(c.op.holds(order(int(i))))
	}
}

func (c *orderComparer) choose(f *frame, dst []int32) []int32 {
	order := c.order(f)
	if f.sel == nil {
		for i := range f.n {
			if c.op.holds(order(i)) {
				dst = append(dst, int32(i))
			}
		}
		return dst
	}
	for _, i := range f.sel {
		if c.op.holds(order(int(i))) {
			dst = append(dst, i)
		}
	}
	return dst
}

// textOrder compares utf8, binary and dictionary columns bytewise.
func textOrder(f *frame) func(i int) int {
	a, b := f.args[0], f.args[1]
	if b.Const {
		c := b.BytesAt(0)
		return func(i int) int { return bytes.Compare(a.BytesAt(i), c) }
	}
	return func(i int) int { return bytes.Compare(a.BytesAt(i), b.BytesAt(i)) }
}

// fixedBytesOrder compares 16-byte values such as uuids bytewise.
func fixedBytesOrder(f *frame) func(i int) int {
	a, b := f.args[0], f.args[1]
	ma, mb := rowMask(a), rowMask(b)
	return func(i int) int {
		j, k := i&ma*16, i&mb*16
		return bytes.Compare(a.Data[j:j+16], b.Data[k:k+16])
	}
}

// intervalKey orders intervals as PostgreSQL does: a month is 30 days and a day
// 24 hours.
func intervalKey(x arrow.MonthDayNanoInterval) int128 {
	days := int64(x.Months)*30 + int64(x.Days)
	return mul64(days, 86_400_000_000_000).add(int128Of(x.Nanoseconds))
}

func intervalOrder(f *frame) func(i int) int {
	a, b := f.args[0], f.args[1]
	return func(i int) int {
		return intervalKey(at[arrow.MonthDayNanoInterval](a, i)).cmp(intervalKey(at[arrow.MonthDayNanoInterval](b, i)))
	}
}

// newComparer returns the comparer for a pair of physical types, nil when the
// types cannot be compared.
func newComparer(op comparison, site *callSite) comparer {
	a, b := site.args[0], site.args[1]
	if _, s1, ok := decimalParts(a); ok {
		return decimalComparer(op, site, s1)
	}
	if a.ID() != b.ID() {
		return nil
	}
	switch a.ID() {
	case arrow.BOOL:
		return &numberComparer[uint8]{op: op}
	case arrow.INT16:
		return &numberComparer[int16]{op: op}
	case arrow.INT32, arrow.DATE32:
		return &numberComparer[int32]{op: op}
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP:
		return &numberComparer[int64]{op: op}
	case arrow.FLOAT32:
		return &floatComparer[float32]{direct: numberComparer[float32]{op: op}}
	case arrow.FLOAT64:
		return &floatComparer[float64]{direct: numberComparer[float64]{op: op}}
	case arrow.STRING, arrow.BINARY:
		return &orderComparer{op: op, order: textOrder}
	case arrow.FIXED_SIZE_BINARY:
		return &orderComparer{op: op, order: fixedBytesOrder}
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return &orderComparer{op: op, order: intervalOrder}
	}
	return nil
}
