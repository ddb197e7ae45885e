package columnar

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/sqlstate"
)

// Builder accumulates values of one physical type into a vector. It is not
// safe for concurrent use. Strings are collected plainly, never as a
// dictionary. The zero value is not usable: call NewBuilder.
type Builder struct {
	v        Vector
	width    int
	bytes    bool // utf8 or binary
	children []*Builder
}

// NewBuilder returns an empty builder of a physical type, or an error for a
// type that vectors cannot hold.
func NewBuilder(dt arrow.DataType) (*Builder, error) {
	b := &Builder{v: Vector{Type: dt}, width: Width(dt)}
	switch t := dt.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		b.bytes = true
		b.v.Offsets = []int32{0}
	case *arrow.NullType:
	case *arrow.ListType:
		b.v.Offsets = []int32{0}
		if err := b.addChild(t.Elem()); err != nil {
			return nil, err
		}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			if err := b.addChild(f.Type); err != nil {
				return nil, err
			}
		}
	default:
		if b.width == 0 {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "vectors cannot hold type %s", dt)
		}
	}
	return b, nil
}

func (b *Builder) addChild(dt arrow.DataType) error {
	c, err := NewBuilder(dt)
	if err != nil {
		return err
	}
	b.children = append(b.children, c)
	return nil
}

// Type is the physical type being built.
func (b *Builder) Type() arrow.DataType { return b.v.Type }

// Len is the number of values appended since the last Reset or Finish.
func (b *Builder) Len() int { return b.v.Len }

// Reset empties the builder and keeps its memory, so it invalidates what
// Vector returned.
func (b *Builder) Reset() {
	b.v.Len = 0
	b.v.Valid = b.v.Valid[:0]
	b.v.Data = b.v.Data[:0]
	if b.v.Offsets != nil {
		b.v.Offsets = b.v.Offsets[:1]
	}
	for _, c := range b.children {
		c.Reset()
	}
}

// Vector returns the values so far. It shares the builder's memory: it is
// valid until the next Append or Reset.
func (b *Builder) Vector() *Vector {
	v := b.v
	if len(v.Valid) == 0 {
		v.Valid = nil
	}
	if len(b.children) > 0 {
		v.Children = make([]*Vector, len(b.children))
		for i, c := range b.children {
			v.Children[i] = c.Vector()
		}
	}
	return &v
}

// Finish hands the values over to the caller and leaves the builder empty with
// no memory of its own.
func (b *Builder) Finish() *Vector {
	v := b.Vector()
	b.release()
	return v
}

func (b *Builder) release() {
	b.v.Len, b.v.Valid, b.v.Data = 0, nil, nil
	if b.v.Offsets != nil {
		b.v.Offsets = []int32{0}
	}
	for _, c := range b.children {
		c.release()
	}
}

// AppendNull appends NULL.
func (b *Builder) AppendNull() {
	switch {
	case b.width > 0:
		b.v.Data = append(b.v.Data, make([]byte, b.width)...)
	case b.v.Offsets != nil:
		b.v.Offsets = append(b.v.Offsets, b.v.Offsets[b.v.Len])
	default: // struct and null
		for _, c := range b.children {
			c.AppendNull()
		}
	}
	b.pushValid(false)
}

// pushValid records the validity of the value that was just appended.
func (b *Builder) pushValid(valid bool) {
	n := b.v.Len
	b.v.Len++
	if valid && len(b.v.Valid) == 0 {
		return
	}
	if len(b.v.Valid) == 0 {
		b.v.Valid = growBitmap(b.v.Valid, n)
	}
	if len(b.v.Valid) < BitmapBytes(n+1) {
		b.v.Valid = append(b.v.Valid, 0xff)
	}
	if valid {
		SetBit(b.v.Valid, n)
	} else {
		ClearBit(b.v.Valid, n)
	}
}

// AppendFixed appends one value of a fixed-width builder; T must have the
// physical width of the type (uint8 or bool for booleans).
func AppendFixed[T any](b *Builder, value T) {
	size := int(unsafe.Sizeof(value))
	b.v.Data = append(b.v.Data, unsafe.Slice((*byte)(unsafe.Pointer(&value)), size)...)
	b.pushValid(true)
}

// AppendBytes appends one value given as bytes: the value itself for utf8 and
// binary, the little-endian image for fixed widths (whose length must match).
// It fails when a string vector would exceed 2 GiB.
func (b *Builder) AppendBytes(p []byte) error {
	if b.bytes {
		if len(b.v.Data)+len(p) > math.MaxInt32 {
			return errTooLarge()
		}
		b.v.Data = append(b.v.Data, p...)
		b.v.Offsets = append(b.v.Offsets, int32(len(b.v.Data)))
		b.pushValid(true)
		return nil
	}
	if b.width == 0 || len(p) != b.width {
		return fmt.Errorf("appending %d bytes to a vector of %s", len(p), b.v.Type)
	}
	b.v.Data = append(b.v.Data, p...)
	b.pushValid(true)
	return nil
}

func errTooLarge() error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "a column of one batch exceeds 2 GiB").
		WithHint("send smaller batches")
}

// AppendRow appends one row of a vector of the same type.
func (b *Builder) AppendRow(v *Vector, row int) error {
	if v.IsNull(row) {
		b.AppendNull()
		return nil
	}
	i := v.index(row)
	switch {
	case b.bytes:
		return b.AppendBytes(v.BytesAt(row))
	case b.width > 0:
		return b.AppendBytes(v.Data[i*b.width : (i+1)*b.width])
	case b.v.Offsets != nil:
		child := b.children[0]
		for j := v.Offsets[i]; j < v.Offsets[i+1]; j++ {
			if err := child.AppendRow(v.Children[0], int(j)); err != nil {
				return err
			}
		}
		b.v.Offsets = append(b.v.Offsets, int32(child.Len()))
	default:
		for c, child := range b.children {
			if err := child.AppendRow(v.Children[c], i); err != nil {
				return err
			}
		}
	}
	b.pushValid(true)
	return nil
}

// AppendVector appends the rows of v that sel lists, all of them when sel is
// nil. v must have the builder's type.
func (b *Builder) AppendVector(v *Vector, sel []int32) error {
	n := v.Len
	if sel != nil {
		n = len(sel)
	}
	switch {
	case v.Const || len(b.children) > 0 || (sel == nil && v.Dict == nil && b.width == 0 && !b.bytes):
		return b.appendRows(v, sel)
	case b.width > 0:
		b.appendFixedRows(v, sel)
	case b.bytes:
		if err := b.appendByteRows(v, sel); err != nil {
			return err
		}
	}
	b.appendValidity(v, sel, n)
	return nil
}

func (b *Builder) appendRows(v *Vector, sel []int32) error {
	if sel != nil {
		for _, i := range sel {
			if err := b.AppendRow(v, int(i)); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range v.Len {
		if err := b.AppendRow(v, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) appendFixedRows(v *Vector, sel []int32) {
	if sel == nil {
		b.v.Data = append(b.v.Data, v.Data[:v.Len*b.width]...)
		return
	}
	old := len(b.v.Data)
	b.v.Data = extend(b.v.Data, len(sel)*b.width)
	gatherFixed(b.v.Data[old:], v.Data, b.width, sel)
}

func (b *Builder) appendByteRows(v *Vector, sel []int32) error {
	if sel == nil && v.Dict == nil {
		return b.appendByteRange(v)
	}
	n := v.Len
	if sel != nil {
		n = len(sel)
	}
	for k := range n {
		i := k
		if sel != nil {
			i = int(sel[k])
		}
		if !v.IsNull(i) {
			p := v.BytesAt(i)
			if len(b.v.Data)+len(p) > math.MaxInt32 {
				return errTooLarge()
			}
			b.v.Data = append(b.v.Data, p...)
		}
		b.v.Offsets = append(b.v.Offsets, int32(len(b.v.Data)))
	}
	return nil
}

// appendByteRange appends all of a plain string vector with one copy.
func (b *Builder) appendByteRange(v *Vector) error {
	if v.Len == 0 {
		return nil
	}
	lo, hi := v.Offsets[0], v.Offsets[v.Len]
	if len(b.v.Data)+int(hi-lo) > math.MaxInt32 {
		return errTooLarge()
	}
	shift := int32(len(b.v.Data)) - lo
	b.v.Data = append(b.v.Data, v.Data[lo:hi]...)
	for _, o := range v.Offsets[1 : v.Len+1] {
		b.v.Offsets = append(b.v.Offsets, o+shift)
	}
	return nil
}

// appendValidity extends the bitmap for n rows whose values are already there.
func (b *Builder) appendValidity(v *Vector, sel []int32, n int) {
	if v.Valid == nil && len(b.v.Valid) == 0 {
		b.v.Len += n
		return
	}
	if len(b.v.Valid) == 0 {
		b.v.Valid = growBitmap(b.v.Valid, b.v.Len)
	}
	for len(b.v.Valid) < BitmapBytes(b.v.Len+n) {
		b.v.Valid = append(b.v.Valid, 0xff)
	}
	for k := range n {
		i := k
		if sel != nil {
			i = int(sel[k])
		}
		if v.IsNull(i) {
			ClearBit(b.v.Valid, b.v.Len+k)
		} else {
			SetBit(b.v.Valid, b.v.Len+k)
		}
	}
	b.v.Len += n
}

// extend lengthens b by n bytes of unspecified content, growing geometrically.
func extend(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b[:len(b)+n]
	}
	return append(b, make([]byte, n)...)
}
