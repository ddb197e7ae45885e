package storage

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
)

func keyOf(v *columnar.Vector, row int) []byte {
	return catalog.AppendKey(nil, []*columnar.Vector{v}, row)
}

func TestZoneMapsBoundValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, dt := range everyType() {
		v := randomVector(t, rng, dt, 500, 1000, 9)
		z, _ := zonesOf(v)
		for i := range v.Len {
			if key := keyOf(v, i); !v.IsNull(i) && !z.mayHold(key) {
				t.Errorf("%s: value %d, key %x, is outside [%x, %x]", catalog.TypeName(dt), i, key, z.min, z.max)
				break
			}
		}
	}
	nan := &columnar.Vector{Type: catalog.Double, Len: 3, Data: columnar.Bytes([]float64{math.NaN(), 1, -2})}
	z, _ := zonesOf(nan)
	if lo, hi := z.values(catalog.Column{Type: catalog.Double}); lo != -2.0 || !math.IsNaN(hi.(float64)) {
		t.Errorf("bounds %v and %v", lo, hi)
	}
}

// satisfies is what a filter means, by the order of encoded keys.
func satisfies(op Op, key []byte, null bool, want []byte) bool {
	c := bytes.Compare(key, want)
	switch op {
	case OpIsNull:
		return null
	case OpIsNotNull:
		return !null
	}
	if null {
		return false
	}
	switch op {
	case OpEqual, OpIn:
		return c == 0
	case OpNotEqual:
		return c != 0
	case OpLess:
		return c < 0
	case OpLessEqual:
		return c <= 0
	case OpGreater:
		return c > 0
	case OpGreaterEqual:
		return c >= 0
	}
	return false
}

// TestBlockZonesLeaveNothingOut compares what block zones exclude with the
// values of the blocks, for every type, and sees that they exclude something
// wherever the values of a segment are in order.
func TestBlockZonesLeaveNothingOut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 6))
	const blocks = 4
	for _, dt := range everyType() {
		phys := catalog.PhysicalType(dt)
		v := inOrder(t, randomVector(t, rng, dt, blocks*blockRows-7, 5000, 20))
		nulls := v.NullCount()
		z, zones := zonesOf(v)
		c := &columnMeta{zone: z, blocks: zones, blockNulls: blockNulls(v, nulls), nulls: nulls}
		meta := &segmentMeta{rows: v.Len}
		if phys.ID() == arrow.LIST || phys.ID() == arrow.STRUCT {
			if zones != nil {
				t.Errorf("%s has block zones", phys)
			}
			continue
		}
		keys := make([][]byte, v.Len)
		for row := range keys {
			keys[row] = keyOf(v, row)
		}
		excluded := 0
		for range 60 {
			want := keys[rng.IntN(v.Len)]
			if want[0] != 1 {
				continue // a null
			}
			if rng.IntN(3) == 0 {
				want = append(slices.Clone(want[:1+rng.IntN(len(want)-1)]), 0x33)
			}
			for op := OpEqual; op <= OpIsNotNull; op++ {
				f := filter{op: op, keys: [][]byte{want}}
				if word, ok := keyWord(want); ok {
					f.words = []uint64{word}
				} else if wordKeys(phys) {
					continue
				}
				f.skipBlocks(dt, meta, c, func(b int) {
					excluded++
					for row := b * blockRows; row < min((b+1)*blockRows, v.Len); row++ {
						if satisfies(op, keys[row], v.IsNull(row), want) {
							t.Fatalf("%s: block %d is skipped for operator %d with %x, but row %d is %x", phys, b, op, want, row, keys[row])
						}
					}
				})
			}
		}
		if excluded == 0 {
			t.Errorf("%s: nothing was excluded", phys)
		}
	}
}

// inOrder sorts the rows by value.
func inOrder(t testing.TB, v *columnar.Vector) *columnar.Vector {
	rows, keys := make([]int32, v.Len), make([][]byte, v.Len)
	for i := range rows {
		rows[i], keys[i] = int32(i), keyOf(v, i)
	}
	slices.SortStableFunc(rows, func(a, b int32) int { return bytes.Compare(keys[a], keys[b]) })
	return columnar.Gather(v, rows, nil)
}

func TestLongTextsShareTheirStart(t *testing.T) {
	b, err := columnar.NewBuilder(catalog.Text)
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Repeat("https://skein.example/", 1)
	for i := range 3 * blockRows {
		if err := b.AppendBytes([]byte(start + string(rune('a'+i/blockRows)) + strings.Repeat("x", 40))); err != nil {
			t.Fatal(err)
		}
	}
	table := tableOf(nil, catalog.Text)
	tab := mustTablet(t, openTest(t, t.TempDir()), table)
	mustOutcome(t, tab, Staged, stages("a", 0, encoded(t, table, batchOf(b.Finish())))...)
	mustOutcome(t, tab, Committed, Commit{Txn: "a", Segments: 1, Timestamp: 1})
	for value, want := range map[string]int{start + "b": 0, start + "b" + strings.Repeat("x", 40): blockRows, "a": 0, start + "zz": 0} {
		if got := readAll(t, tab, 1, Predicate{0, OpEqual, []any{value}}).Len; got != want {
			t.Errorf("= %s: %d rows read, want %d", value, got, want)
		}
	}
	for value, want := range map[string]int{start + "b": 2 * blockRows, "a": 3 * blockRows, "z": 0, start + "c": blockRows} {
		if got := readAll(t, tab, 1, Predicate{0, OpGreaterEqual, []any{value}}).Len; got != want {
			t.Errorf(">= %s: %d rows read, want %d", value, got, want)
		}
	}
}
