package exec

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// kernel computes one function over the rows of a frame. A kernel belongs to
// one call site of one Evaluator and may keep scratch memory.
type kernel func(f *frame) error

// callSite is what a kernel is made for. Types are physical.
type callSite struct {
	name   string
	args   []arrow.DataType
	result arrow.DataType
	// consts holds the value of each argument that is a literal, else nil.
	consts []*columnar.Vector
}

// frame is one run of a kernel. For a strict function the evaluator has set
// out.Valid to the conjunction of the arguments' validity; kernels of other
// functions set it themselves. Rows outside sel may be given any value but must
// not raise errors.
type frame struct {
	args []*columnar.Vector
	n    int
	sel  []int32 // nil: all n rows
	out  *columnar.Vector
	mem  *scratch
}

// scratch is the memory behind a node's result, reused from batch to batch.
type scratch struct {
	data    []byte
	offsets []int32
	codes   []int32
	valid   []byte
}

// fixedOut sizes the result for n values of T and returns them for writing.
func fixedOut[T any](f *frame) []T {
	var zero [1]T
	width := len(columnar.Bytes(zero[:]))
	f.mem.data = scratchBytes(f.mem.data, f.n*width)
	f.out.Data = f.mem.data
	return columnar.Values[T](f.out)
}

// scratchBytes returns b with length n and unspecified content, reusing memory.
func scratchBytes(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, (n+63)&^63)
}

func sized[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]T, n)
}

// each calls fn for every selected row whose result is not null.
func (f *frame) each(fn func(i int) error) error {
	valid := f.out.Valid
	if f.sel != nil {
		for _, i := range f.sel {
			if valid == nil || columnar.Bit(valid, int(i)) {
				if err := fn(int(i)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for i := range f.n {
		if valid == nil || columnar.Bit(valid, i) {
			if err := fn(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownValid makes the result's bitmap writable, without nulls if it had none.
func (f *frame) ownValid() []byte {
	if f.out.Valid == nil {
		f.mem.valid = columnar.ResizeBitmap(f.mem.valid, f.n)
	} else if len(f.mem.valid) == 0 || &f.out.Valid[0] != &f.mem.valid[0] {
		f.mem.valid = append(f.mem.valid[:0], f.out.Valid...)
	}
	f.out.Valid = f.mem.valid
	return f.out.Valid
}

// text builds a utf8 or binary result: write appends row i's value to dst.
func (f *frame) text(write func(dst []byte, i int) ([]byte, error)) error {
	f.mem.offsets = sized(f.mem.offsets, f.n+1)
	offsets, data := f.mem.offsets, f.mem.data[:0]
	next := 0
	at := 0
	offsets[0] = 0
	if f.sel == nil && f.out.Valid == nil {
		for i := range f.n {
			var err error
			if data, err = write(data, i); err != nil {
				return err
			}
			if len(data) > math.MaxInt32 {
				return textTooLarge()
			}
			offsets[i+1] = int32(len(data))
		}
		f.mem.data = data
		f.out.Data, f.out.Offsets = data, offsets
		return nil
	}
	err := f.each(func(i int) error {
		for ; next <= i; next++ {
			offsets[next] = int32(at)
		}
		var err error
		data, err = write(data, i)
		at = len(data)
		if at > math.MaxInt32 {
			return textTooLarge()
		}
		return err
	})
	for ; next <= f.n; next++ {
		offsets[next] = int32(at)
	}
	f.mem.data = data
	f.out.Data, f.out.Offsets = data, offsets
	return err
}

func textTooLarge() error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "the text computed for one batch exceeds 2 GiB")
}

// operand gives kernels dense slices of one argument: of a constant it keeps
// an expanded copy, which is filled again only when the value changes.
type operand[T comparable] struct {
	buf    []T
	value  T
	filled int
}

// of returns n values of v; when compact is not nil, the values of its rows.
func (o *operand[T]) of(v *columnar.Vector, n int, compact []int32) []T {
	values := columnar.Values[T](v)
	if !v.Const {
		if compact == nil {
			return values[:n]
		}
		o.filled = 0
		o.buf = sized(o.buf, len(compact))
		for k, i := range compact {
			o.buf[k] = values[i]
		}
		return o.buf
	}
	if compact != nil {
		n = len(compact)
	}
	if o.filled >= n && o.filled > 0 && o.value == values[0] {
		return o.buf[:n]
	}
	o.buf = sized(o.buf, max(n, 64))
	o.value, o.filled = values[0], len(o.buf)
	for i := range o.buf {
		o.buf[i] = o.value
	}
	return o.buf[:n]
}

// sparse is the share of selected rows, one in so many, below which dense
// kernels first gather their arguments.
const sparse = 4

// compactRows returns the selection when it is so sparse that gathering pays.
func (f *frame) compactRows() []int32 {
	if f.sel != nil && len(f.sel)*sparse < f.n {
		return f.sel
	}
	return nil
}

// binaryLoop makes a kernel of a dense loop over two fixed-width arguments. The loop
// must be total: it returns true when some row may have failed, garbage rows
// included, and check then finds the error among the rows that count.
func binaryLoop[A, B comparable, R any](loop func(a []A, b []B, out []R) bool, check func(a A, b B) error) kernel {
	var oa operand[A]
	var ob operand[B]
	var packed []R
	return func(f *frame) error {
		out := fixedOut[R](f)
		rows := f.compactRows()
		a, b := oa.of(f.args[0], f.n, rows), ob.of(f.args[1], f.n, rows)
		if rows == nil {
			if loop(a, b, out) {
				return f.each(func(i int) error { return check(a[i], b[i]) })
			}
			return nil
		}
		packed = sized(packed, len(rows))
		failed := loop(a, b, packed)
		for k, i := range rows {
			if failed && (f.out.Valid == nil || columnar.Bit(f.out.Valid, int(i))) {
				if err := check(a[k], b[k]); err != nil {
					return err
				}
			}
			out[i] = packed[k]
		}
		return nil
	}
}

// unaryLoop is binaryLoop for one argument.
func unaryLoop[A comparable, R any](loop func(a []A, out []R) bool, check func(a A) error) kernel {
	var oa operand[A]
	var packed []R
	return func(f *frame) error {
		out := fixedOut[R](f)
		rows := f.compactRows()
		a := oa.of(f.args[0], f.n, rows)
		if rows == nil {
			if loop(a, out) {
				return f.each(func(i int) error { return check(a[i]) })
			}
			return nil
		}
		packed = sized(packed, len(rows))
		failed := loop(a, packed)
		for k, i := range rows {
			if failed && (f.out.Valid == nil || columnar.Bit(f.out.Valid, int(i))) {
				if err := check(a[k]); err != nil {
					return err
				}
			}
			out[i] = packed[k]
		}
		return nil
	}
}

// perRow makes a kernel of a function of one fixed-width value that may fail.
func perRow[A comparable, R any](fn func(a A) (R, error)) kernel {
	return func(f *frame) error {
		a, out := columnar.Values[A](f.args[0]), fixedOut[R](f)
		mask := rowMask(f.args[0])
		return f.each(func(i int) (err error) {
			out[i], err = fn(a[i&mask])
			return err
		})
	}
}

// perRow2 is perRow for two arguments.
func perRow2[A, B comparable, R any](fn func(a A, b B) (R, error)) kernel {
	return func(f *frame) error {
		a, b, out := columnar.Values[A](f.args[0]), columnar.Values[B](f.args[1]), fixedOut[R](f)
		ma, mb := rowMask(f.args[0]), rowMask(f.args[1])
		return f.each(func(i int) (err error) {
			out[i], err = fn(a[i&ma], b[i&mb])
			return err
		})
	}
}

// perText makes a kernel of a function from a text argument to a fixed value.
func perText[R any](fn func(p []byte) (R, error)) kernel {
	return func(f *frame) error {
		v, out := f.args[0], fixedOut[R](f)
		return f.each(func(i int) (err error) {
			out[i], err = fn(v.BytesAt(i))
			return err
		})
	}
}

// rowMask is 0 for constants and all ones otherwise, so that i&mask is row i's
// physical position.
func rowMask(v *columnar.Vector) int {
	if v.Const {
		return 0
	}
	return -1
}

// at reads row i of a fixed-width argument.
func at[T any](v *columnar.Vector, i int) T {
	return columnar.Values[T](v)[i&rowMask(v)]
}

func internalf(format string, args ...any) error {
	return sqlstate.New(sqlstate.InternalError, format, args...)
}
