package exec

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// inNode is "arg [NOT] IN (constants)".
type inNode struct {
	call    *callNode // a total function of the argument: membership
	negate  bool
	hasNull bool // of the list: a miss is then NULL

	out   columnar.Vector
	valid []byte
	data  []byte
}

func (c *compiler) inList(x *planner.InList) (node, error) {
	arg, err := c.compile(x.Arg)
	if err != nil {
		return nil, err
	}
	n := &inNode{negate: x.Negate}
	var list []*columnar.Vector
	for _, l := range x.List {
		if l.Value == nil {
			n.hasNull = true
			continue
		}
		v, err := ConstVector(l, 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if arg.typ().ID() == arrow.NULL {
		return &literalNode{v: *columnar.NewNull(catalog.Boolean, 1)}, nil
	}
	k, err := membership(arg.typ(), list)
	if err != nil {
		return nil, err
	}
	f := &function{name: "in", total: true}
	n.call = &callNode{fn: f, args: []node{arg}, kern: k, dt: catalog.Boolean}
	return n, nil
}

func (n *inNode) typ() arrow.DataType { return catalog.Boolean }

func (n *inNode) eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error) {
	v, err := n.call.eval(b, sel)
	if err != nil || (!n.negate && !n.hasNull) {
		return v, err
	}
	if v.Const && v.IsNull(0) {
		return v, nil
	}
	rows := v.Len
	if v.Const {
		rows = 1
	}
	n.data = scratchBytes(n.data, rows)
	n.out = columnar.Vector{Type: catalog.Boolean, Len: v.Len, Const: v.Const, Valid: v.Valid, Data: n.data}
	if n.hasNull {
		n.valid = columnar.ResizeBitmap(n.valid, rows)
		if v.Valid != nil {
			n.valid = columnar.AndBitmaps(n.valid, n.valid, v.Valid, rows)
		}
		n.out.Valid = n.valid
	}
	flip := b2u(n.negate)
	for i, hit := range v.Data[:rows] {
		n.data[i] = hit ^ flip
		if hit == 0 && n.hasNull {
			columnar.ClearBit(n.valid, i)
		}
	}
	return &n.out, nil
}

func (n *inNode) choose(b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	if !n.negate {
		return n.call.choose(b, sel, dst)
	}
	v, err := n.eval(b, sel)
	if err != nil {
		return nil, err
	}
	return chooseTrue(v, b.Len, sel, dst), nil
}

// smallList is up to how many values a list is searched one by one.
const smallList = 8

// membership makes the kernel that tests one type of value. List values that
// the argument's type cannot hold never match.
func membership(dt arrow.DataType, list []*columnar.Vector) (kernel, error) {
	switch dt.ID() {
	case arrow.BOOL:
		return memberOf(literalValues[uint8](list)), nil
	case arrow.INT16:
		return memberOf(literalValues[int16](list)), nil
	case arrow.INT32, arrow.DATE32:
		return memberOf(literalValues[int32](list)), nil
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP:
		return memberOf(literalValues[int64](list)), nil
	case arrow.DECIMAL64, arrow.DECIMAL128:
		return decimalMember(dt, list)
	case arrow.FLOAT32:
		return floatMember(literalValues[float32](list)), nil
	case arrow.FLOAT64:
		return floatMember(literalValues[float64](list)), nil
	case arrow.STRING, arrow.BINARY:
		return textMember(list), nil
	case arrow.FIXED_SIZE_BINARY:
		return memberOf(literalValues[[16]byte](list)), nil
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return intervalMember(literalValues[arrow.MonthDayNanoInterval](list)), nil
	}
	return nil, internalf("IN over values of %s", dt)
}

func literalValues[T any](list []*columnar.Vector) []T {
	out := make([]T, 0, len(list))
	for _, v := range list {
		if vs := columnar.Values[T](v); len(vs) > 0 {
			out = append(out, vs[0])
		}
	}
	return out
}

func memberOf[T comparable](list []T) kernel {
	if len(list) <= smallList {
		return unaryLoop(func(a []T, out []byte) bool {
			out = out[:len(a)]
			for i, x := range a {
				out[i] = b2u(slices.Contains(list, x))
			}
			return false
		}, func(T) error { return nil })
	}
	set := make(map[T]struct{}, len(list))
	for _, x := range list {
		set[x] = struct{}{}
	}
	return unaryLoop(func(a []T, out []byte) bool {
		out = out[:len(a)]
		for i, x := range a {
			_, hit := set[x]
			out[i] = b2u(hit)
		}
		return false
	}, func(T) error { return nil })
}

func decimalMember(dt arrow.DataType, list []*columnar.Vector) (kernel, error) {
	_, scale, _ := decimalParts(dt)
	var wide []int128
	for _, v := range list {
		_, s, ok := decimalParts(v.Type)
		if !ok {
			return nil, internalf("IN compares %s with %s", dt, v.Type)
		}
		x := wideAt(v, 0)
		if s > scale {
			y := roundTo(x, s-scale, roundTruncate)
			if back, _ := y.mul(pow10[s-scale]); back != x {
				continue
			}
			x = y
		} else if x, ok = x.mul(pow10[scale-s]); !ok {
			continue
		}
		wide = append(wide, x)
	}
	if dt.ID() == arrow.DECIMAL128 {
		return memberOf(wide), nil
	}
	var short []int64
	for _, x := range wide {
		if n, ok := x.int64(); ok {
			short = append(short, n)
		}
	}
	return memberOf(short), nil
}

func floatMember[T float](list []T) kernel {
	set := make(map[int64]struct{}, len(list))
	for _, x := range list {
		set[floatKey(float64(x))] = struct{}{}
	}
	return perRow(func(x T) (byte, error) {
		_, hit := set[floatKey(float64(x))]
		return b2u(hit), nil
	})
}

func intervalMember(list []arrow.MonthDayNanoInterval) kernel {
	set := make(map[int128]struct{}, len(list))
	for _, x := range list {
		set[intervalKey(x)] = struct{}{}
	}
	return perRow(func(x arrow.MonthDayNanoInterval) (byte, error) {
		_, hit := set[intervalKey(x)]
		return b2u(hit), nil
	})
}

func textMember(list []*columnar.Vector) kernel {
	set := make(map[string]struct{}, len(list))
	for _, v := range list {
		set[string(v.BytesAt(0))] = struct{}{}
	}
	return perText(func(p []byte) (byte, error) {
		_, hit := set[string(p)]
		return b2u(hit), nil
	})
}
