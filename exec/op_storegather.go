package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// gather writes the values at rows to out, reusing its buffers.
func (c *colStore) gather(rows []int32, out *columnar.Vector) {
	n := len(rows)
	codes := out.Codes
	out.Type, out.Len, out.Const, out.Dict, out.Codes = c.typ, n, false, nil, nil
	c.gatherValidity(rows, out)
	switch {
	case c.width > 0:
		out.Data = reuseBytes(out.Data, n*c.width)
		src := columnar.Vector{Data: c.fixed}
		copyFixed(out.Data, &src, rows, n, c.width)
	case c.typ.ID() == arrow.LIST:
		c.gatherList(rows, out)
	case c.typ.ID() == arrow.STRUCT:
		out.Children = childVectors(out.Children, len(c.kids))
		for i, k := range c.kids {
			k.gather(rows, out.Children[i])
		}
	case c.typ.ID() == arrow.NULL:
	case c.dict != nil:
		c.dict.gatherCodes(rows, codes, out)
	default:
		c.gatherBytes(rows, out)
	}
}

func (c *colStore) gatherValidity(rows []int32, out *columnar.Vector) {
	if c.valid == nil && c.typ.ID() != arrow.NULL {
		out.Valid = nil
		return
	}
	out.Valid = reuseBytes(out.Valid, (len(rows)+7)/8)
	clear(out.Valid)
	if c.typ.ID() == arrow.NULL {
		return
	}
	for i, row := range rows {
		bit := c.valid[row>>3] >> (row & 7) & 1
		out.Valid[i>>3] |= bit << (i & 7)
	}
}

func (c *colStore) gatherBytes(rows []int32, out *columnar.Vector) {
	out.Offsets = append(out.Offsets[:0], 0)
	data := out.Data[:0]
	for _, row := range rows {
		start := int64(0)
		if row > 0 {
			start = c.ends[row-1]
		}
		data = append(data, c.data[start:c.ends[row]]...)
		out.Offsets = append(out.Offsets, int32(len(data)))
	}
	out.Data = data
}

func (c *colStore) gatherList(rows []int32, out *columnar.Vector) {
	out.Offsets = append(out.Offsets[:0], 0)
	out.Children = childVectors(out.Children, 1)
	elems := make([]int32, 0, len(rows))
	for _, row := range rows {
		for e := c.startOf(int(row)); e < c.ends[row]; e++ {
			elems = append(elems, int32(e))
		}
		out.Offsets = append(out.Offsets, int32(len(elems)))
	}
	c.kids[0].gather(elems, out.Children[0])
}

func childVectors(have []*columnar.Vector, n int) []*columnar.Vector {
	for len(have) < n {
		have = append(have, &columnar.Vector{})
	}
	return have[:n]
}

// view makes out show values [lo, hi). Fixed-width values are shared with the
// store, the rest is copied.
func (c *colStore) view(lo, hi int, out *columnar.Vector) {
	if c.width == 0 || c.valid != nil && lo&7 != 0 {
		rows := c.tmp[:0]
		for i := lo; i < hi; i++ {
			rows = append(rows, int32(i))
		}
		c.tmp = rows
		if c.width > 0 {
			out.Data, out.Valid = nil, nil // may be shared with the store since an earlier view
		}
		c.gather(rows, out)
		return
	}
	*out = columnar.Vector{Type: c.typ, Len: hi - lo, Data: c.fixed[lo*c.width : hi*c.width : hi*c.width]}
	if c.valid != nil {
		out.Valid = c.valid[lo>>3 : (hi+7)>>3 : (hi+7)>>3]
	}
}
