package exec

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

// Views of a store, made one after the other in one vector, neither change it
// nor depend on where they begin.
func TestViewsLeaveTheStoreAlone(t *testing.T) {
	const rows = 61
	null := func(i int) bool { return i%5 == 3 }
	store, err := newRowStore(arrow.NewSchema([]arrow.Field{{Name: "a", Type: catalog.BigInt, Nullable: true}, {Name: "b", Type: catalog.Text, Nullable: true}}, nil), &Account{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.free()
	ints := &columnar.Vector{Type: catalog.BigInt, Len: rows, Valid: make([]byte, (rows+7)/8)}
	texts := &columnar.Vector{Type: catalog.Text, Len: rows, Valid: ints.Valid, Offsets: []int32{0}}
	var values []int64
	for i := range rows {
		if !null(i) {
			ints.Valid[i>>3] |= 1 << (i & 7)
		}
		values = append(values, int64(i))
		texts.Data = append(texts.Data, byte(i))
		texts.Offsets = append(texts.Offsets, int32(i+1))
	}
	ints.Data = columnar.Bytes(values)
	in := []*columnar.Vector{ints, texts}
	if err := store.append(in, nil, rows); err != nil {
		t.Fatal(err)
	}
	outs := []*columnar.Vector{{}, {}}
	for _, step := range []int{8, 5, 16, 3, 1, 61} {
		for lo := 0; lo < rows; lo += step {
			hi := min(lo+step, rows)
			for c, out := range outs {
				store.cols[c].view(lo, hi, out)
				for i := lo; i < hi; i++ {
					if out.IsNull(i-lo) != null(i) {
						t.Fatalf("rows %d to %d: row %d of column %d is null: %v", lo, hi, i, c, out.IsNull(i-lo))
					}
				}
			}
			for i := lo; i < hi; i++ {
				if !null(i) && (columnar.Values[int64](outs[0])[i-lo] != int64(i) || outs[1].BytesAt(i - lo)[0] != byte(i)) {
					t.Fatalf("rows %d to %d: row %d has another value", lo, hi, i)
				}
			}
		}
	}
}
