package columnar

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// NewConst returns a constant vector of n rows. data is the one value's bytes:
// its text for utf8 and binary, else its little-endian image. It is not copied.
func NewConst(dt arrow.DataType, data []byte, n int) *Vector {
	v := &Vector{Type: dt, Len: n, Const: true, Data: data}
	if id := dt.ID(); id == arrow.STRING || id == arrow.BINARY {
		v.Offsets = []int32{0, int32(len(data))}
	}
	return v
}

// NewNull returns n rows of NULL as a constant vector.
func NewNull(dt arrow.DataType, n int) *Vector {
	v := &Vector{Type: dt, Len: n, Const: true, Valid: []byte{0}}
	switch t := dt.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		v.Offsets = []int32{0, 0}
	case *arrow.ListType:
		v.Offsets = []int32{0, 0}
		v.Children = []*Vector{emptyOf(t.Elem())}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			v.Children = append(v.Children, NewNull(f.Type, 1))
		}
	default:
		v.Data = make([]byte, Width(dt))
	}
	return v
}

// emptyOf is a vector of no rows.
func emptyOf(dt arrow.DataType) *Vector {
	v := NewNull(dt, 0)
	v.Const, v.Valid, v.Data = false, nil, nil
	if v.Offsets != nil {
		v.Offsets = []int32{0}
	}
	for i, f := range v.Children {
		if dt.ID() == arrow.STRUCT {
			v.Children[i] = emptyOf(f.Type)
		}
	}
	return v
}

// Gather copies the rows that sel lists, in sel's order and with repeats, into
// dst, whose memory it reuses (nil allocates), and returns it. Dictionaries are
// shared and constants stay constant. dst must not share buffers with v unless
// it came from an earlier Gather of a constant or a dictionary.
func Gather(v *Vector, sel []int32, dst *Vector) *Vector {
	if dst == nil {
		dst = &Vector{}
	}
	if v.Const {
		*dst = *v
		dst.Len = len(sel)
		return dst
	}
	reuse := *dst
	if reuse.Const {
		reuse = Vector{} // its buffers belong to somebody else
	}
	*dst = Vector{Type: v.Type, Len: len(sel)}
	if v.Valid != nil {
		dst.Valid = gatherBits(reuse.Valid, v.Valid, sel)
	}
	width := Width(v.Type)
	switch {
	case v.Dict != nil:
		dst.Dict = v.Dict
		dst.Codes = resizeSlice(reuse.Codes, len(sel))
		gatherInto(dst.Codes, v.Codes, sel)
		dst.Data, dst.Offsets = reuse.Data, reuse.Offsets // kept for later reuse
	case width > 0:
		dst.Data = resize(reuse.Data, len(sel)*width)
		gatherFixed(dst.Data, v.Data, width, sel)
	case v.Type.ID() == arrow.STRING || v.Type.ID() == arrow.BINARY:
		gatherStrings(dst, v, sel, &reuse)
		dst.Codes = reuse.Codes
	case v.Type.ID() == arrow.LIST:
		gatherList(dst, v, sel)
	default:
		for _, c := range v.Children {
			dst.Children = append(dst.Children, Gather(c, sel, nil))
		}
	}
	return dst
}

func gatherBits(dst, src []byte, sel []int32) []byte {
	dst = resize(dst, BitmapBytes(len(sel)))
	clear(dst)
	for k, i := range sel {
		bit := src[i>>3] >> (i & 7) & 1
		dst[k>>3] |= bit << (k & 7)
	}
	return dst
}

func gatherInto[T any](dst, src []T, sel []int32) {
	dst = dst[:len(sel)]
	for k, i := range sel {
		dst[k] = src[i]
	}
}

type word128 struct{ a, b uint64 }

// gatherFixed copies values of a width in bytes; dst has room for len(sel).
func gatherFixed(dst, src []byte, width int, sel []int32) {
	if len(sel) == 0 {
		return
	}
	d, s := &Vector{Data: dst}, &Vector{Data: src}
	switch width {
	case 1:
		gatherInto(dst, src, sel)
	case 2:
		gatherInto(Values[uint16](d), Values[uint16](s), sel)
	case 4:
		gatherInto(Values[uint32](d), Values[uint32](s), sel)
	case 8:
		gatherInto(Values[uint64](d), Values[uint64](s), sel)
	case 16:
		gatherInto(Values[word128](d), Values[word128](s), sel)
	default:
		for k, i := range sel {
			copy(dst[k*width:(k+1)*width], src[int(i)*width:])
		}
	}
}

// gatherStrings panics past 2 GiB of text, as the offsets cannot tell more; a
// batch of BatchRows rows is far below that.
func gatherStrings(dst, v *Vector, sel []int32, reuse *Vector) {
	dst.Offsets = resizeSlice(reuse.Offsets, len(sel)+1)
	dst.Offsets[0] = 0
	total := 0
	for k, i := range sel {
		total += int(v.Offsets[i+1] - v.Offsets[i])
		dst.Offsets[k+1] = int32(total)
	}
	if total > math.MaxInt32 {
		panic("columnar: gathered text exceeds 2 GiB")
	}
	dst.Data = resize(reuse.Data, total)
	for k, i := range sel {
		copy(dst.Data[dst.Offsets[k]:dst.Offsets[k+1]], v.Data[v.Offsets[i]:v.Offsets[i+1]])
	}
}

func gatherList(dst, v *Vector, sel []int32) {
	dst.Offsets = make([]int32, len(sel)+1)
	var rows []int32
	for k, i := range sel {
		for j := v.Offsets[i]; j < v.Offsets[i+1]; j++ {
			rows = append(rows, j)
		}
		dst.Offsets[k+1] = int32(len(rows))
	}
	dst.Children = []*Vector{Gather(v.Children[0], rows, nil)}
}

// Clone returns a copy that shares nothing with v but the dictionary, which is
// immutable.
func (v *Vector) Clone() *Vector {
	c := &Vector{Type: v.Type, Len: v.Len, Const: v.Const, Dict: v.Dict}
	c.Valid = append([]byte(nil), v.Valid...)
	c.Data = append([]byte(nil), v.Data...)
	c.Offsets = append([]int32(nil), v.Offsets...)
	c.Codes = append([]int32(nil), v.Codes...)
	for _, child := range v.Children {
		c.Children = append(c.Children, child.Clone())
	}
	return c
}

// Clone returns a dense copy of the selected rows that shares nothing but
// dictionaries with b.
func (b *Batch) Clone() *Batch {
	c := &Batch{Cols: make([]*Vector, len(b.Cols)), Len: b.Rows()}
	for i, v := range b.Cols {
		if b.Sel != nil && !v.Const {
			c.Cols[i] = Gather(v, b.Sel, nil)
			continue
		}
		c.Cols[i] = v.Clone()
		c.Cols[i].Len = c.Len
	}
	return c
}

// Slice returns rows [from, to) sharing v's memory; only a bitmap that starts
// inside a byte is copied.
func (v *Vector) Slice(from, to int) *Vector {
	s := *v
	s.Len = to - from
	if v.Const || (from == 0 && to == v.Len) {
		return &s
	}
	if v.Valid != nil {
		s.Valid = sliceBits(v.Valid, from, s.Len)
	}
	switch {
	case v.Dict != nil:
		s.Codes = v.Codes[from:to:to]
		s.Data, s.Offsets = nil, nil
	case v.Offsets != nil:
		s.Offsets = v.Offsets[from : to+1 : to+1]
	case v.Type.ID() == arrow.STRUCT:
		s.Children = make([]*Vector, len(v.Children))
		for i, c := range v.Children {
			s.Children[i] = c.Slice(from, to)
		}
	default:
		w := Width(v.Type)
		s.Data = v.Data[from*w : to*w : to*w]
	}
	return &s
}

func sliceBits(bitmap []byte, from, n int) []byte {
	if from&7 == 0 {
		return bitmap[from/8 : from/8+BitmapBytes(n)]
	}
	out := make([]byte, BitmapBytes(n))
	CopyBits(out, 0, bitmap, from, n)
	return out
}

// Concat returns the rows of all vectors one after another in fresh memory. All
// must have the type dt. A dictionary that all of them share is kept, others
// are written out.
func Concat(dt arrow.DataType, vectors []*Vector) (*Vector, error) {
	if d := sharedDict(vectors); d != nil {
		return concatCodes(dt, vectors, d), nil
	}
	b, err := NewBuilder(dt)
	if err != nil {
		return nil, err
	}
	for _, v := range vectors {
		if err := b.AppendVector(v, nil); err != nil {
			return nil, err
		}
	}
	return b.Finish(), nil
}

func sharedDict(vectors []*Vector) *Vector {
	var d *Vector
	for i, v := range vectors {
		if v.Dict == nil || v.Const || (i > 0 && v.Dict != d) {
			return nil
		}
		d = v.Dict
	}
	return d
}

func concatCodes(dt arrow.DataType, vectors []*Vector, dict *Vector) *Vector {
	out := &Vector{Type: dt, Dict: dict}
	nulls := false
	for _, v := range vectors {
		out.Codes = append(out.Codes, v.Codes[:v.Len]...)
		nulls = nulls || v.Valid != nil
	}
	out.Len = len(out.Codes)
	if !nulls {
		return out
	}
	out.Valid = NewBitmap(out.Len)
	at := 0
	for _, v := range vectors {
		if v.Valid != nil {
			CopyBits(out.Valid, at, v.Valid, 0, v.Len)
		}
		at += v.Len
	}
	return out
}

// Flatten returns v without a dictionary and without Const: a vector of v.Len
// plain values. A vector that already is plain is returned as it is.
func (v *Vector) Flatten() (*Vector, error) {
	if !v.Const && v.Dict == nil {
		return v, nil
	}
	b, err := NewBuilder(v.Type)
	if err != nil {
		return nil, err
	}
	if v.Const && b.width > 0 && v.Valid == nil {
		data := make([]byte, v.Len*b.width)
		for i := 0; i < len(data); i += b.width {
			copy(data[i:], v.Data)
		}
		return &Vector{Type: v.Type, Len: v.Len, Data: data}, nil
	}
	if err := b.AppendVector(v, nil); err != nil {
		return nil, err
	}
	return b.Finish(), nil
}
