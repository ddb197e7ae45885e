package flightproto

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
)

// Texts come as they were sent, whatever dictionaries they have from batch to
// batch, and keep theirs where it is worth sending, even if their owner uses the
// memory for the next batch.
func TestDictionariesAreSent(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "c", Type: arrow.BinaryTypes.Binary, Nullable: true},
	}, nil)
	rapid.Check(t, func(t *rapid.T) {
		to := &forwardStream{}
		out := NewBatchWriter(to, schema, nil)
		out.SendDictionaries()
		var want [][]string
		for i := range rapid.IntRange(1, 8).Draw(t, "batches") {
			b := numbers(int64(i)*1000, rapid.SampledFrom([]int{1, 5, 40}).Draw(t, "rows"))
			b.Cols = append(b.Cols, anyText(t, catalog.Text, b.Len), anyText(t, catalog.Bytea, b.Len))
			if rapid.Bool().Draw(t, "filtered") {
				b.Sel = []int32{int32(b.Len - 1)}
			}
			want = append(want, spelledOut(b))
			if err := out.Write(b); err != nil {
				t.Fatal(err)
			}
			for _, v := range b.Cols[1:] {
				overwrite(v)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		in := NewBatchReader(to, schema)
		defer in.Close()
		for i, rows := range want {
			b, err := in.Next()
			if err != nil || b == nil {
				t.Fatalf("batch %d: %v, %v", i, b, err)
			}
			if got := spelledOut(b); fmt.Sprint(got) != fmt.Sprint(rows) {
				t.Fatalf("batch %d came as %q, was %q", i, got, rows)
			}
		}
		if b, err := in.Next(); b != nil || err != nil {
			t.Fatalf("after the last batch: %v, %v", b, err)
		}
	})
}

// A dictionary that does not change is sent once, and read once.
func TestDictionariesAreSentOnce(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "b", Type: arrow.BinaryTypes.String}}, nil)
	to := &forwardStream{}
	out := NewBatchWriter(to, schema, nil)
	out.SendDictionaries()
	const batches = 5
	for range batches {
		dict := &columnar.Vector{Type: catalog.Text, Len: 2, Offsets: []int32{0, 1, 3}, Data: []byte("abb")}
		b := &columnar.Batch{Len: 4, Cols: []*columnar.Vector{{Type: catalog.Text, Len: 4, Codes: []int32{1, 0, 1, 1}, Dict: dict}}}
		if err := out.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if len(to.sent) != 2+batches { // the schema, the dictionary, the records
		t.Errorf("%d messages were sent", len(to.sent))
	}
	in := NewBatchReader(to, schema)
	defer in.Close()
	var first *columnar.Vector
	for range batches {
		b, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b.Cols[0].Dict
		}
		if first == nil || b.Cols[0].Dict != first {
			t.Errorf("the dictionary is %v, that of the first batch %v", b.Cols[0].Dict, first)
		}
	}
}

// anyText makes texts in one of the layouts of a vector, some of them NULL.
func anyText(t *rapid.T, dt arrow.DataType, n int) *columnar.Vector {
	word := rapid.StringN(0, 3, 12)
	plain := func(n int) *columnar.Vector {
		v := &columnar.Vector{Type: dt, Len: n, Offsets: []int32{0}}
		for range n {
			v.Data = append(v.Data, word.Draw(t, "word")...)
			v.Offsets = append(v.Offsets, int32(len(v.Data)))
		}
		return v
	}
	var v *columnar.Vector
	switch rapid.IntRange(0, 4).Draw(t, "layout") {
	case 0:
		v = plain(n)
	case 1:
		v = plain(1)
		v.Const, v.Len = true, n
		return v
	default:
		v = &columnar.Vector{Type: dt, Len: n, Dict: plain(rapid.IntRange(1, 4).Draw(t, "values")), Codes: make([]int32, n)}
		for i := range v.Codes {
			v.Codes[i] = int32(rapid.IntRange(0, v.Dict.Len-1).Draw(t, "code"))
		}
	}
	if rapid.Bool().Draw(t, "nulls") {
		v.Valid = columnar.NewBitmap(n)
		for i := range n {
			if rapid.Bool().Draw(t, "valid") {
				continue
			}
			columnar.ClearBit(v.Valid, i)
			if v.Codes != nil {
				v.Codes[i] = 99 // of NULLs nothing is promised
			}
		}
	}
	return v
}

// overwrite spoils the memory of a vector, as its owner may.
func overwrite(v *columnar.Vector) {
	for _, part := range []*columnar.Vector{v, v.Dict} {
		if part != nil {
			for i := range part.Data {
				part.Data[i] = '#'
			}
			clear(part.Codes)
		}
	}
}

func spelledOut(b *columnar.Batch) []string {
	var out []string
	for i := range b.Rows() {
		row := i
		if b.Sel != nil {
			row = int(b.Sel[i])
		}
		line := fmt.Sprint(columnar.Values[int64](b.Cols[0])[row])
		for _, v := range b.Cols[1:] {
			if v.IsNull(row) {
				line += " NULL"
			} else {
				line += fmt.Sprintf(" %q", v.BytesAt(row))
			}
		}
		out = append(out, line)
	}
	return out
}
