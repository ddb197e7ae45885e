package storage

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// gatherVectors copies the selected rows of one column of all batches into one
// flat vector of rows values. Sizes are known beforehand, so nothing is copied
// twice.
func gatherVectors(dt arrow.DataType, batches []*columnar.Batch, c, rows int) (*columnar.Vector, error) {
	simple := true
	for _, b := range batches {
		v := b.Cols[c]
		simple = simple && !v.Const && v.Dict == nil && b.Sel == nil
	}
	id := dt.ID()
	switch w := columnar.Width(dt); {
	case simple && w > 0:
		return concatFixed(dt, batches, c, rows, w), nil
	case simple && (id == arrow.STRING || id == arrow.BINARY):
		return concatStrings(dt, batches, c, rows)
	}
	out, err := columnar.NewBuilder(dt)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		v := b.Cols[c]
		if v.Len != b.Len {
			s := *v
			s.Len = b.Len
			v = &s
		}
		if err := out.AppendVector(v, b.Sel); err != nil {
			return nil, err
		}
	}
	if out.Len() != rows {
		return nil, fmt.Errorf("gathered %d rows of %d", out.Len(), rows)
	}
	return out.Finish(), nil
}

func concatFixed(dt arrow.DataType, batches []*columnar.Batch, c, rows, width int) *columnar.Vector {
	words := make([]uint64, (rows*width+7)/8) // aligned for any value type
	out := &columnar.Vector{Type: dt, Len: rows, Data: columnar.Bytes(words)[:rows*width]}
	at := 0
	for _, b := range batches {
		at += copy(out.Data[at:], b.Cols[c].Data[:b.Len*width])
	}
	concatValid(out, batches, c)
	return out
}

func concatStrings(dt arrow.DataType, batches []*columnar.Batch, c, rows int) (*columnar.Vector, error) {
	total := 0
	for _, b := range batches {
		if v := b.Cols[c]; b.Len > 0 {
			total += int(v.Offsets[b.Len] - v.Offsets[0])
		}
	}
	if total > math.MaxInt32 {
		return nil, sqlstate.New(sqlstate.ProgramLimitExceeded, "the strings of one segment's column exceed 2 GiB").
			WithHint("send fewer rows at a time")
	}
	out := &columnar.Vector{Type: dt, Len: rows, Data: make([]byte, 0, total), Offsets: make([]int32, 1, rows+1)}
	for _, b := range batches {
		if b.Len == 0 {
			continue
		}
		v := b.Cols[c]
		shift := int32(len(out.Data)) - v.Offsets[0]
		out.Data = append(out.Data, v.Data[v.Offsets[0]:v.Offsets[b.Len]]...)
		for _, o := range v.Offsets[1 : b.Len+1] {
			out.Offsets = append(out.Offsets, o+shift)
		}
	}
	concatValid(out, batches, c)
	return out, nil
}

func concatValid(out *columnar.Vector, batches []*columnar.Batch, c int) {
	at := 0
	for _, b := range batches {
		if v := b.Cols[c].Valid; v != nil {
			if out.Valid == nil {
				out.Valid = columnar.NewBitmap(out.Len)
			}
			columnar.CopyBits(out.Valid, at, v, 0, b.Len)
		}
		at += b.Len
	}
}
