package storage

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

func TestPackedRoundTripEveryWidth(t *testing.T) {
	for width := 0; width <= 64; width++ {
		for _, n := range []int{1, 7, 8, 9, 1023, 1024, 1025, 3000} {
			rng := rand.New(rand.NewPCG(uint64(width), uint64(n)))
			values := make([]int64, n)
			for i := range values {
				if width > 0 {
					values[i] = int64(rng.Uint64()>>(64-width)) - 1<<min(max(width-1, 0), 62)
				}
			}
			packed := appendPacked([]byte("x"), values)[1:]
			got := make([]int64, n)
			rest, err := unpack(got, append(packed, "rest"...))
			if err != nil || string(rest) != "rest" {
				t.Fatalf("width %d, %d values: rest %q, error %v", width, n, rest, err)
			}
			for i := range values {
				if got[i] != values[i] {
					t.Fatalf("width %d, value %d of %d: %d, want %d", width, i, n, got[i], values[i])
				}
			}
		}
	}
}

func TestPackedExtremes(t *testing.T) {
	check := func(name string, err error, same bool) {
		if err != nil || !same {
			t.Errorf("%s: error %v", name, err)
		}
	}
	i64 := []int64{math.MinInt64, math.MaxInt64, 0, -1}
	got64 := make([]int64, 4)
	_, err := unpack(got64, appendPacked(nil, i64))
	check("int64", err, string(columnar.Bytes(got64)) == string(columnar.Bytes(i64)))
	i16 := []int16{math.MinInt16, math.MaxInt16, 0, -1}
	got16 := make([]int16, 4)
	_, err = unpack(got16, appendPacked(nil, i16))
	check("int16", err, string(columnar.Bytes(got16)) == string(columnar.Bytes(i16)))
	i32 := []int32{math.MinInt32, math.MaxInt32, 0, -1}
	got32 := make([]int32, 4)
	_, err = unpack(got32, appendPacked(nil, i32))
	check("int32", err, string(columnar.Bytes(got32)) == string(columnar.Bytes(i32)))
}

func TestChunkRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		types := everyType()
		dt := types[rapid.IntRange(0, len(types)-1).Draw(rt, "type")]
		rows := rapid.SampledFrom([]int{1, 2, 8, 9, 100, 1025, 5000}).Draw(rt, "rows")
		spread := rapid.SampledFrom([]int{1, 2, 10, 1 << 30}).Draw(rt, "spread")
		nulls := rapid.SampledFrom([]int{0, 1, 2, 20}).Draw(rt, "nulls")
		v := randomVector(t, rng, dt, rows, spread, nulls)
		chunk, err := encodeChunk(nil, v)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := decodeChunk(v.Type, rows, chunk)
		if err != nil {
			rt.Fatalf("%s: %v", catalog.TypeName(dt), err)
		}
		if err := sameValues(v, got); err != nil {
			rt.Fatalf("%s: %v", catalog.TypeName(dt), err)
		}
	})
}

func TestDictionaryStaysADictionary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	v := randomVector(t, rng, catalog.Text, 1000, 5, 10)
	chunk, err := encodeChunk(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeChunk(v.Type, v.Len, chunk)
	if err != nil || got.Dict == nil {
		t.Fatalf("decoded to %+v, %v", got, err)
	}
}

func FuzzDecodeChunk(f *testing.F) {
	types := everyType()
	for i, dt := range types {
		rng := rand.New(rand.NewPCG(uint64(i), 3))
		v := randomVector(f, rng, dt, 50, 5, 7)
		chunk, err := encodeChunk(nil, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), uint16(50), chunk)
	}
	f.Fuzz(func(t *testing.T, which uint8, rows uint16, chunk []byte) {
		dt := catalog.PhysicalType(types[int(which)%len(types)])
		v, err := decodeChunk(dt, int(rows), chunk)
		if err == nil && sameValues(v, v) != nil {
			t.Fatal("decoded vector cannot be read")
		}
	})
}

func FuzzDecodeSegmentMeta(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 4))
	table := tableOf([]int{0}, catalog.BigInt, catalog.Text)
	b := batchOf(randomVector(f, rng, catalog.BigInt, 80, 1000, 0), randomVector(f, rng, catalog.Text, 80, 10, 0))
	f.Add(encoded(f, table, b).meta.append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		// Damage beyond the checksum is what a newer or broken writer leaves.
		part := binary.LittleEndian.AppendUint32(nil, segmentMagic)
		part = binary.LittleEndian.AppendUint32(append(part, segmentVersion), uint32(len(body)))
		part = append(part, body...)
		part = binary.LittleEndian.AppendUint64(part, hashOf(part))
		if m, err := decodeSegmentMeta(part); err == nil && (m.rows < 1 || m.matches(table) == nil && len(m.columns) != 2) {
			t.Fatalf("%+v", m)
		}
	})
}

func TestSegmentParts(t *testing.T) {
	// One column far larger than a part, between small ones.
	rng := rand.New(rand.NewPCG(5, 5))
	table := tableOf(nil, catalog.BigInt, catalog.Bytea, catalog.BigInt)
	big, err := columnar.NewBuilder(catalog.Bytea)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	noise := make([]byte, 5000)
	for range rows {
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		if err := big.AppendBytes(noise); err != nil {
			t.Fatal(err)
		}
	}
	in := batchOf(randomVector(t, rng, catalog.BigInt, rows, 1<<40, 0), big.Finish(), randomVector(t, rng, catalog.BigInt, rows, 9, 0))
	seg := encoded(t, table, in)
	if len(seg.Parts()) < 3 {
		t.Fatalf("%d parts", len(seg.Parts()))
	}
	for i, p := range seg.Parts() {
		if len(p) > MaxPartBytes {
			t.Errorf("part %d has %d bytes", i, len(p))
		}
	}
	s := openTest(t, t.TempDir())
	tab := mustTablet(t, s, table)
	mustOutcome(t, tab, Staged, stages("a", 0, seg)...)
	mustOutcome(t, tab, Committed, Commit{Txn: "a", Segments: 1, Timestamp: 5})
	got := readAll(t, tab, 5)
	for c := range in.Cols {
		if err := sameValues(in.Cols[c], got.Cols[c]); err != nil {
			t.Errorf("column %d: %v", c, err)
		}
	}
}

func TestEncodeSegmentGathersSelections(t *testing.T) {
	table := intsTable()
	a := intsBatch(1, 2, 3, 4)
	a.Sel = []int32{1, 3}
	b := batchOf(columnar.NewConst(catalog.BigInt, columnar.Bytes([]int64{9}), 1), ints(7))
	seg := encoded(t, table, a, b)
	if seg.Rows() != 3 || !seg.meta.key.sorted {
		t.Fatalf("%d rows, sorted %t", seg.Rows(), seg.meta.key.sorted)
	}
	v, err := decodeOwn(seg, table, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameValues(v, ints(2, 4, 9)); err != nil {
		t.Error(err)
	}
}

// decodeOwn decodes a column of a segment of one part.
func decodeOwn(seg *Segment, table *catalog.Table, col int) (*columnar.Vector, error) {
	c := seg.meta.columns[col].chunk
	at := seg.meta.head + int(c.offset)
	return decodeChunk(catalog.PhysicalType(table.Columns[col].Type), seg.Rows(), seg.parts[0][at:at+int(c.size)])
}

func TestEncodeSegmentRefuses(t *testing.T) {
	table := intsTable()
	null := batchOf(columnar.NewNull(catalog.BigInt, 2), ints(1, 2))
	wrong := batchOf(columnar.NewNull(catalog.Text, 2), ints(1, 2))
	for name, tc := range map[string]struct {
		batches []*columnar.Batch
		code    sqlstate.Code
	}{
		"no rows":      {nil, sqlstate.InternalError},
		"null key":     {[]*columnar.Batch{null}, sqlstate.NotNullViolation},
		"wrong type":   {[]*columnar.Batch{wrong}, sqlstate.DatatypeMismatch},
		"column count": {[]*columnar.Batch{batchOf(ints(1))}, sqlstate.InternalError},
	} {
		if _, err := EncodeSegment(table, tc.batches); sqlstate.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want code %s", name, err, tc.code)
		}
	}
}

func TestKeyIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(rt, "rows")
		keys := rapid.SliceOfN(rapid.Int64Range(0, 5000), n, n).Draw(rt, "keys")
		enc := catalog.EncodeKeys([]*columnar.Vector{ints(keys...)}, n)
		m, chunk := buildKeyIndex(nil, enc)
		x, err := decodeKeyIndex(&segmentMeta{rows: n, key: m}, chunk)
		if err != nil {
			rt.Fatal(err)
		}
		count := make(map[int64]int)
		for _, k := range keys {
			count[k]++
		}
		sorted := &sortedKeys{keys: enc, perm: x.perm}
		dup := false
		for k := int64(-1); k <= 5001; k++ {
			probe := catalog.AppendKey(nil, []*columnar.Vector{ints(k)}, 0)
			rows := sorted.rows(probe)
			ok := len(rows) > 0
			if len(rows) != count[k] || (ok && keys[rows[0]] != k) {
				rt.Fatalf("key %d: found in rows %v, occurs %d times", k, rows, count[k])
			}
			if ok && (!x.mayContain(hashOf(probe)) || bytes.Compare(probe, m.min) < 0 || bytes.Compare(probe, m.max) > 0) {
				rt.Fatalf("key %d is excluded", k)
			}
			dup = dup || count[k] > 1
		}
		if dup != (len(m.dup) > 0) || (m.sorted && dup) {
			rt.Fatalf("duplicates %t, noticed %x", dup, m.dup)
		}
	})
}
