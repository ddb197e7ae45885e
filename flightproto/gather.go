package flightproto

import "skein/columnar"

const (
	// smallRows is up to where batches are gathered, largeRows where what was
	// gathered is sent.
	smallRows  = columnar.BatchRows / 4
	largeRows  = 4 * columnar.BatchRows
	smallBytes = 64 << 10
	largeBytes = 1 << 20
)

// gathered joins small batches, as selective filters make them, into messages
// that are worth sending. What waits is never more than what was sent before it:
// the first rows of a result go at once, and a consumer that stops early has
// at most twice the work done for it.
type gathered struct {
	builders []*columnar.Builder
	rows     int
	bytes    int
	sent     int // rows that were sent before
	next     int // bytes of the batch that takes has approved
}

// takes reports whether a batch is to be gathered.
func (g *gathered) takes(b *columnar.Batch) bool {
	if b.Rows() > smallRows || len(b.Cols) == 0 || g.rows+g.sent == 0 {
		return false
	}
	size, ok := selectedBytes(b)
	g.next = size
	return ok && size <= smallBytes
}

// selectedBytes is the size of the selected rows, false where there are columns
// of nested types, whose size is not worth finding out.
func selectedBytes(b *columnar.Batch) (int, bool) {
	total := 0
	for _, v := range b.Cols {
		switch {
		case columnar.Width(v.Type) > 0:
			total += columnar.Width(v.Type) * b.Rows()
		case v.Offsets == nil && v.Dict == nil:
			return 0, false
		case len(v.Children) > 0:
			return 0, false
		case b.Sel != nil:
			for _, row := range b.Sel {
				total += valueBytes(v, int(row))
			}
		default:
			for row := range b.Len {
				total += valueBytes(v, row)
			}
		}
	}
	return total, true
}

// valueBytes is the size of a text, 0 for NULL, whose code need not be in the
// dictionary: that of a column of NULLs is empty.
func valueBytes(v *columnar.Vector, row int) int {
	if v.IsNull(row) {
		return 0
	}
	return len(v.BytesAt(row))
}

func (g *gathered) add(b *columnar.Batch) error {
	if g.builders == nil {
		for _, v := range b.Cols {
			builder, err := columnar.NewBuilder(v.Type)
			if err != nil {
				return err
			}
			g.builders = append(g.builders, builder)
		}
	}
	for i, v := range b.Cols {
		if err := g.builders[i].AppendVector(v, b.Sel); err != nil {
			return err
		}
	}
	g.rows += b.Rows()
	g.bytes += g.next
	return nil
}

// enough reports whether what was gathered should be sent.
func (g *gathered) enough() bool {
	return g.rows >= largeRows || g.rows >= g.sent || g.bytes >= largeBytes
}

// take returns what was gathered as one batch, nil for nothing.
func (g *gathered) take() *columnar.Batch {
	if g.rows == 0 {
		return nil
	}
	b := &columnar.Batch{Len: g.rows, Cols: make([]*columnar.Vector, len(g.builders))}
	for i, builder := range g.builders {
		b.Cols[i] = builder.Finish()
	}
	g.rows, g.bytes, g.builders = 0, 0, nil
	return b
}
