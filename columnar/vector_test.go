package columnar

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"
)

// testTypes are all physical types, nested ones included.
func testTypes() []arrow.DataType {
	return []arrow.DataType{
		arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time64us,
		&arrow.TimestampType{Unit: arrow.Microsecond}, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"},
		arrow.FixedWidthTypes.MonthDayNanoInterval, &arrow.FixedSizeBinaryType{ByteWidth: 16},
		&arrow.Decimal64Type{Precision: 12, Scale: 2}, &arrow.Decimal128Type{Precision: 30, Scale: 4},
		arrow.BinaryTypes.String, arrow.BinaryTypes.Binary,
		arrow.ListOf(arrow.BinaryTypes.String), arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int32)),
		arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}),
		arrow.Null,
	}
}

// appendRandom appends one value, null now and then.
func appendRandom(t *rapid.T, b *Builder) {
	if b.Type().ID() == arrow.NULL || rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	switch w := Width(b.Type()); {
	case b.Type().ID() == arrow.BOOL:
		AppendFixed(b, rapid.Bool().Draw(t, "bool"))
	case w > 0:
		p := rapid.SliceOfN(rapid.Byte(), w, w).Draw(t, "value")
		if b.Type().ID() == arrow.DECIMAL64 || b.Type().ID() == arrow.DECIMAL128 {
			clear(p[4:]) // stay inside the precision
		}
		if err := b.AppendBytes(p); err != nil {
			t.Fatal(err)
		}
	case b.bytes:
		if err := b.AppendBytes([]byte(rapid.StringN(0, 12, 40).Draw(t, "text"))); err != nil {
			t.Fatal(err)
		}
	case b.Type().ID() == arrow.LIST:
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			appendRandom(t, b.children[0])
		}
		b.v.Offsets = append(b.v.Offsets, int32(b.children[0].Len()))
		b.pushValid(true)
	default:
		for _, c := range b.children {
			appendRandom(t, c)
		}
		b.pushValid(true)
	}
}

// randomVector draws a plain, constant or dictionary vector.
func randomVector(t *rapid.T, dt arrow.DataType) *Vector {
	b, err := NewBuilder(dt)
	if err != nil {
		t.Fatal(err)
	}
	n := rapid.IntRange(0, 70).Draw(t, "rows")
	shape := rapid.IntRange(0, 3).Draw(t, "shape")
	if shape == 0 {
		appendRandom(t, b)
		v := b.Finish()
		v.Const, v.Len = true, n
		return v
	}
	if id := dt.ID(); shape == 1 && (id == arrow.STRING || id == arrow.BINARY) {
		entries := rapid.SliceOfNDistinct(rapid.StringN(0, 5, 20), 1, 6, rapid.ID).Draw(t, "entries")
		for _, e := range entries {
			_ = b.AppendBytes([]byte(e))
		}
		v := &Vector{Type: dt, Len: n, Dict: b.Finish(), Codes: make([]int32, n)}
		for i := range v.Codes {
			v.Codes[i] = int32(rapid.IntRange(0, len(entries)-1).Draw(t, "code"))
			if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
				if v.Valid == nil {
					v.Valid = NewBitmap(n)
				}
				ClearBit(v.Valid, i)
			}
		}
		return v
	}
	for range n {
		appendRandom(t, b)
	}
	return b.Finish()
}

// cell renders a value independently of how the vector holds it.
func cell(v *Vector, row int) string {
	if v.IsNull(row) {
		return "null"
	}
	i := v.index(row)
	switch w := Width(v.Type); {
	case v.Dict != nil || v.Type.ID() == arrow.STRING || v.Type.ID() == arrow.BINARY:
		return fmt.Sprintf("%q", v.BytesAt(row))
	case w > 0:
		return fmt.Sprintf("%x", v.Data[i*w:(i+1)*w])
	case v.Type.ID() == arrow.LIST:
		s := "["
		for j := v.Offsets[i]; j < v.Offsets[i+1]; j++ {
			s += cell(v.Children[0], int(j)) + ","
		}
		return s + "]"
	}
	s := "{"
	for _, c := range v.Children {
		s += cell(c, i) + ","
	}
	return s + "}"
}

// requireRows checks that got has exactly the given rows of want.
func requireRows(t *rapid.T, got, want *Vector, rows []int32) {
	t.Helper()
	if got.Len != len(rows) {
		t.Fatalf("%d rows, want %d", got.Len, len(rows))
	}
	for k, i := range rows {
		if g, w := cell(got, k), cell(want, int(i)); g != w {
			t.Fatalf("row %d (from %d): got %s, want %s", k, i, g, w)
		}
	}
}

func randomRows(t *rapid.T, n int) []int32 {
	rows := []int32{}
	if n == 0 {
		return rows
	}
	for range rapid.IntRange(0, 2*n).Draw(t, "picks") {
		rows = append(rows, int32(rapid.IntRange(0, n-1).Draw(t, "row")))
	}
	return rows
}

func allRows(from, to int) []int32 {
	rows := make([]int32, 0, to-from)
	for i := from; i < to; i++ {
		rows = append(rows, int32(i))
	}
	return rows
}

// forTypes runs a property for every physical type.
func forTypes(t *testing.T, property func(t *rapid.T, dt arrow.DataType)) {
	for _, dt := range testTypes() {
		t.Run(dt.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, dt) })
		})
	}
}

func TestGatherReusesMemory(t *testing.T) {
	forTypes(t, func(t *rapid.T, dt arrow.DataType) {
		var dst *Vector
		for range 3 {
			v := randomVector(t, dt)
			rows := randomRows(t, v.Len)
			dst = Gather(v, rows, dst)
			requireRows(t, dst, v, rows)
		}
	})
}

func TestSliceCloneConcatFlatten(t *testing.T) {
	forTypes(t, func(t *rapid.T, dt arrow.DataType) {
		v := randomVector(t, dt)
		from := rapid.IntRange(0, v.Len).Draw(t, "from")
		to := rapid.IntRange(from, v.Len).Draw(t, "to")
		s := v.Slice(from, to)
		requireRows(t, s, v, allRows(from, to))
		requireRows(t, s.Clone(), v, allRows(from, to))
		whole, err := Concat(dt, []*Vector{v.Slice(0, from), s, v.Slice(to, v.Len)})
		if err != nil {
			t.Fatal(err)
		}
		requireRows(t, whole, v, allRows(0, v.Len))
		flat, err := s.Flatten()
		if err != nil {
			t.Fatal(err)
		}
		if flat.Dict != nil || (flat.Const && flat.Len > 0) {
			t.Fatal("flatten left a constant or dictionary")
		}
		requireRows(t, flat, s, allRows(0, s.Len))
	})
}

func TestBuilderAppendVector(t *testing.T) {
	forTypes(t, func(t *rapid.T, dt arrow.DataType) {
		b, err := NewBuilder(dt)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var want []string
			for range 3 {
				v := randomVector(t, dt)
				rows := randomRows(t, v.Len)
				sel := rows
				if rapid.Bool().Draw(t, "all") {
					rows, sel = allRows(0, v.Len), nil
				}
				if err := b.AppendVector(v, sel); err != nil {
					t.Fatal(err)
				}
				for _, i := range rows {
					want = append(want, cell(v, int(i)))
				}
			}
			got := b.Vector()
			if got.Len != len(want) {
				t.Fatalf("%d rows, want %d", got.Len, len(want))
			}
			for i, w := range want {
				if g := cell(got, i); g != w {
					t.Fatalf("row %d: got %s, want %s", i, g, w)
				}
			}
			b.Reset()
		}
	})
}

func TestBatchClone(t *testing.T) {
	forTypes(t, func(t *rapid.T, dt arrow.DataType) {
		v := randomVector(t, dt)
		rows := randomRows(t, v.Len)
		c := (&Batch{Cols: []*Vector{v}, Len: v.Len, Sel: rows}).Clone()
		if c.Len != len(rows) || c.Sel != nil {
			t.Fatalf("clone has %d rows", c.Len)
		}
		requireRows(t, c.Cols[0], v, rows)
	})
}

func TestBitmaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "bits")
		src := rapid.SliceOfN(rapid.Byte(), BitmapBytes(n)+1, BitmapBytes(n)+1).Draw(t, "src")
		from := rapid.IntRange(0, n).Draw(t, "from")
		count := rapid.IntRange(0, n-from).Draw(t, "count")
		at := rapid.IntRange(0, 20).Draw(t, "at")
		dst := bytes.Repeat([]byte{0xaa}, BitmapBytes(at+count)+1)
		CopyBits(dst, at, src, from, count)
		set := 0
		for i := range count {
			if Bit(dst, at+i) != Bit(src, from+i) {
				t.Fatalf("bit %d differs", i)
			}
			if Bit(src, i) {
				set++
			}
		}
		for i := range at {
			if Bit(dst, i) != (0xaa>>(i&7)&1 == 1) {
				t.Fatalf("bit %d before the target changed", i)
			}
		}
		if got := CountBits(src, count); got != set {
			t.Fatalf("counted %d bits, want %d", got, set)
		}
		other := rapid.SliceOfN(rapid.Byte(), len(src), len(src)).Draw(t, "other")
		both := AndBitmaps(nil, src, other, n)
		for i := range n {
			if Bit(both, i) != (Bit(src, i) && Bit(other, i)) {
				t.Fatalf("and of bit %d is wrong", i)
			}
		}
	})
}

func TestBuilderRejects(t *testing.T) {
	if _, err := NewBuilder(arrow.PrimitiveTypes.Uint32); err == nil {
		t.Error("a builder of an unsupported type was made")
	}
	b, _ := NewBuilder(arrow.PrimitiveTypes.Int32)
	if err := b.AppendBytes([]byte{1}); err == nil {
		t.Error("a value of the wrong width was appended")
	}
}
