package flightproto

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
)

// Whatever the sizes of the batches, the same rows come in the same order, in
// few messages, and the first ones at once.
func TestSmallBatchesAreGathered(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.BinaryTypes.String}}, nil)
	rapid.Check(t, func(t *rapid.T) {
		to := &forwardStream{}
		out := NewBatchWriter(to, schema, nil)
		soon := rapid.Bool().Draw(t, "soon")
		if soon {
			out.Gather()
		}
		var want []string
		for i := range rapid.IntRange(1, 30).Draw(t, "batches") {
			b := textBatch(t, int64(i)*10_000, rapid.SampledFrom([]int{1, 3, smallRows, smallRows + 1}).Draw(t, "rows"))
			for row := range b.Len {
				if b.Sel == nil || row%3 == 0 {
					want = append(want, fmt.Sprint(columnar.Values[int64](b.Cols[0])[row], string(b.Cols[1].BytesAt(row))))
				}
			}
			if err := out.Write(b); err != nil {
				t.Fatal(err)
			}
			if i == 0 && !soon && len(to.sent) < 2 {
				t.Fatal("the first rows wait")
			}
			if i == 0 && soon && b.Rows() <= smallRows && len(to.sent) > 0 {
				t.Fatal("the first rows go alone")
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		in := NewBatchReader(to, schema)
		defer in.Close()
		at := 0
		for {
			b, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			for row := range b.Len {
				if got := fmt.Sprint(columnar.Values[int64](b.Cols[0])[row], string(b.Cols[1].BytesAt(row))); at >= len(want) || got != want[at] {
					t.Fatalf("row %d is %s", at, got)
				}
				at++
			}
		}
		if at != len(want) {
			t.Fatalf("%d rows came, %d were sent", at, len(want))
		}
	})
}

func textBatch(t *rapid.T, from int64, n int) *columnar.Batch {
	b := numbers(from, n)
	text, err := columnar.NewBuilder(catalog.Text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := text.AppendBytes(fmt.Appendf(nil, "text %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Cols = append(b.Cols, text.Finish())
	if rapid.Bool().Draw(t, "filtered") {
		b.Sel = []int32{}
		for row := 0; row < n; row += 3 {
			b.Sel = append(b.Sel, int32(row))
		}
	}
	return b
}

// The dictionary of a column of NULLs may have no entry that its codes name.
func TestGatheringNullsOfAnEmptyDictionary(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	nulls := func(sel []int32) *columnar.Batch {
		return &columnar.Batch{Len: 3, Sel: sel, Cols: []*columnar.Vector{{
			Type: arrow.BinaryTypes.String, Len: 3, Valid: []byte{0}, Codes: []int32{0, 0, 0},
			Dict: &columnar.Vector{Type: arrow.BinaryTypes.String, Offsets: []int32{0}},
		}}}
	}
	to := &forwardStream{}
	out := NewBatchWriter(to, schema, nil)
	for _, b := range []*columnar.Batch{nulls(nil), nulls(nil), nulls([]int32{1, 2})} {
		if err := out.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	in := NewBatchReader(to, schema)
	defer in.Close()
	rows := 0
	for {
		b, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		for row := range b.Len {
			if !b.Cols[0].IsNull(row) {
				t.Errorf("row %d is not NULL", rows+row)
			}
		}
		rows += b.Len
	}
	if rows != 8 {
		t.Errorf("%d rows came, 8 were sent", rows)
	}
}

func TestManySingleRowsMakeFewMessages(t *testing.T) {
	to := &forwardStream{}
	out := NewBatchWriter(to, forwardSchema, nil)
	for i := range 100_000 {
		if err := out.Write(numbers(int64(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if len(to.sent) > 40 {
		t.Errorf("%d messages", len(to.sent))
	}
}
