package worker

import (
	"context"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
)

// scanLayout says where the columns of a scan come from: the store delivers
// stored columns and, after them, row ids; the tablet's id is a constant.
type scanLayout struct {
	stored []int // table ordinals to read
	rowIDs bool
	// from is, per projected column, its place among the store's columns, or
	// planner.TabletColumn. It is nil when the store's columns are the scan's.
	from   []int
	tablet catalog.TabletID
}

func layoutOf(scan *planner.TabletScan) scanLayout {
	l := scanLayout{tablet: scan.Tablet}
	hidden := false
	for _, ordinal := range scan.Projection {
		hidden = hidden || ordinal < 0
	}
	if !hidden {
		l.stored = scan.Projection
		return l
	}
	l.from = make([]int, len(scan.Projection))
	for i, ordinal := range scan.Projection {
		switch ordinal {
		case planner.RowIDColumn:
			l.rowIDs = true
		case planner.TabletColumn:
			l.from[i] = planner.TabletColumn
		default:
			l.from[i] = len(l.stored)
			l.stored = append(l.stored, ordinal)
		}
	}
	for i, ordinal := range scan.Projection {
		if ordinal == planner.RowIDColumn {
			l.from[i] = len(l.stored)
		}
	}
	return l
}

// over puts a source's columns in the scan's order.
func (l *scanLayout) over(source Source) Source {
	if l.from == nil {
		return source
	}
	id := &columnar.Vector{Type: catalog.BigInt, Len: 1, Const: true, Data: columnar.Bytes([]int64{int64(l.tablet)})}
	return &arrangedSource{source: source, from: l.from, tablet: id}
}

type arrangedSource struct {
	source Source
	from   []int
	tablet *columnar.Vector // constant, of any length
}

// Next returns the source's next batch with the hidden columns in place.
func (s *arrangedSource) Next(ctx context.Context) (*columnar.Batch, error) {
	in, err := s.source.Next(ctx)
	if in == nil || err != nil {
		return nil, err
	}
	out := &columnar.Batch{Len: in.Len, Sel: in.Sel, Cols: make([]*columnar.Vector, len(s.from))}
	for i, from := range s.from {
		if from != planner.TabletColumn {
			out.Cols[i] = in.Cols[from]
			continue
		}
		tablet := *s.tablet
		tablet.Len = in.Len
		out.Cols[i] = &tablet
	}
	return out, nil
}
