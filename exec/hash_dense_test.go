package exec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"skein/catalog"
	"skein/columnar"
)

// TestGroupTableStaysAsLongAsItsKeys groups by keys whose range grows in turns on
// either side, and at the ends of all integers: memory follows the range, and
// groups are those of a map.
func TestGroupTableStaysAsLongAsItsKeys(t *testing.T) {
	const keys, rows = 40_000, 500
	shuffled := make([]int64, keys)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(keys) {
		shuffled[i] = int64(k)
	}
	outwards := make([]int64, keys)
	for i := range outwards {
		outwards[i] = int64(i / 2)
		if i/rows%2 == 0 {
			outwards[i] = -outwards[i]
		}
	}
	descending := slices.Sorted(slices.Values(shuffled))
	slices.Reverse(descending)
	for name, c := range map[string]struct {
		keys []int64
		from int64 // is added to each
	}{
		"shuffled": {shuffled, 7}, "outwards": {outwards, 0}, "descending": {descending, -5},
		"down to the least": {descending, math.MinInt64}, "up to the greatest": {slices.Sorted(slices.Values(shuffled)), math.MaxInt64 - keys + 1},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget("query", 0, nil)
			acct := budget.Account("test")
			g := must(newGrouper(opSchema(catalog.BigInt), []int{0}, acct))
			want := map[int64]int32{}
			for lo := 0; lo < keys; lo += rows {
				batch := slices.Clone(c.keys[lo : lo+rows])
				for i := range batch {
					batch[i] += c.from
				}
				ids := must(g.assign(&columnar.Batch{Len: rows, Cols: []*columnar.Vector{
					{Type: catalog.BigInt, Len: rows, Data: columnar.Bytes(batch)}}}, func(int) error { return nil }))
				for i, k := range batch {
					id, ok := want[k]
					if !ok {
						id = int32(len(want))
						want[k] = id
					}
					if ids[i] != id {
						t.Fatalf("key %d has group %d, want %d", k, ids[i], id)
					}
				}
			}
			// At most twice the range, of 4 bytes a key, next to what it grew from, and
			// the same of the 8 bytes that the groups' keys take.
			if most := int64(2 * keys * (2*4 + 2*8)); budget.Peak() > most {
				t.Errorf("%d keys took %d bytes, expected at most %d", keys, budget.Peak(), most)
			}
			acct.Close()
			mustBeEmpty(t, budget)
		})
	}
}
