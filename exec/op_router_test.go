package exec

import (
	"math"
	"math/rand/v2"
	"testing"

	"skein/catalog"
	"skein/columnar"
)

func TestModulus(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, by := range []int{1, 2, 3, 4, 5, 7, 8, 12, 63, 64, 1000, 1 << 20, math.MaxInt32} {
		m := newModulus(by)
		for _, x := range []uint64{0, 1, uint64(by) - 1, uint64(by), uint64(by) + 1, math.MaxUint64 - 1, math.MaxUint64} {
			if m.of(x) != x%uint64(by) {
				t.Errorf("%d modulo %d is %d", x, by, m.of(x))
			}
		}
		for range 10_000 {
			if x := random.Uint64(); m.of(x) != x%uint64(by) {
				t.Fatalf("%d modulo %d is %d", x, by, m.of(x))
			}
		}
	}
}

// TestPartitionerFillsReadBatchesAgain reads many more rows than may wait, of every
// layout of texts: memory stays what the queues take, and a batch keeps its rows
// until its reader asks for the next one.
func TestPartitionerFillsReadBatchesAgain(t *testing.T) {
	const batches, rows, partitions, queue = 200, 2000, 3, 2
	schema := opSchema(catalog.BigInt, catalog.Text)
	g := newGenerator(4)
	var in []*columnar.Batch
	want := map[int64]string{}
	for i := range batches {
		keys := make([]int64, rows)
		for j := range keys {
			keys[j] = int64(i*rows + j)
		}
		text := g.vector(catalog.Text, rows)
		for j, k := range keys {
			want[k] = "null"
			if !text.IsNull(j) {
				want[k] = "=" + string(text.BytesAt(j))
			}
		}
		in = append(in, &columnar.Batch{Len: rows, Cols: []*columnar.Vector{
			{Type: catalog.BigInt, Len: rows, Data: columnar.Bytes(keys)}, text}})
	}
	budget := NewBudget("query", 0, nil)
	f := must(NewPartitioner(t.Context(), &memOp{schema: schema, batches: in}, []int{0}, partitions, queue, &Env{Budget: budget}))
	outputs := f.Outputs()
	check := rand.New(rand.NewPCG(1, 1))
	over := make([]bool, partitions)
	for left := partitions; left > 0; {
		p := check.IntN(partitions)
		if over[p] {
			continue
		}
		b := must(outputs[p].Next(t.Context()))
		if b == nil {
			over[p] = true
			left--
			continue
		}
		for i, k := range columnar.Values[int64](b.Cols[0])[:b.Len] {
			got := "null"
			if !b.Cols[1].IsNull(i) {
				got = "=" + string(b.Cols[1].BytesAt(i))
			}
			if w, ok := want[k]; !ok || w != got {
				t.Fatalf("key %d: text %q, expected %q (there: %t)", k, got, w, ok)
			}
			delete(want, k)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d rows did not come", len(want))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	// At most as many stores of some 30 bytes a row, twice as large as their rows,
	// as may wait, be filled, read and spare.
	if most := int64(2 * partitions * (queue + 3) * 2 * 2 * routedRows * 30); budget.Peak() > most {
		t.Errorf("the exchange took %d bytes, expected at most %d", budget.Peak(), most)
	}
	mustBeEmpty(t, budget)
}
