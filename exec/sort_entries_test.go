package exec

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"skein/sqlstate"
)

// TestSortEntries sorts keys of all lengths, with many that begin alike or are
// equal, as the standard library does.
func TestSortEntries(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		n := []int{1, 40, radixMinimum, 5000, 3*radixStep + 7}[seed%5]
		prefix := bytes.Repeat([]byte("p"), random.IntN(80))
		keys := &sortKeys{}
		for range n {
			keys.data = append(keys.data, prefix...)
			for range random.IntN(4) {
				keys.data = append(keys.data, byte('a'+random.IntN(3)))
			}
			keys.data = append(keys.data, 0) // no key begins with another one
			keys.ends = append(keys.ends, int64(len(keys.data)))
		}
		entries, want := make([]sortEntry, n), make([]int32, n)
		for i := range entries {
			entries[i], want[i] = sortEntry{word: keys.word(i, 0), row: int32(i)}, int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int { return bytes.Compare(keys.key(int(a)), keys.key(int(b))) })
		if err := sortEntries(t.Context(), entries, make([]sortEntry, n), keys); err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			if e.row != want[i] {
				t.Fatalf("seed %d: place %d of %d has row %d, expected %d", seed, i, n, e.row, want[i])
			}
		}
	}
}

// TestSortEntriesStops checks that a sort whose query has ended says so.
func TestSortEntriesStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	entries := make([]sortEntry, 10*radixStep)
	for i := range entries {
		entries[i] = sortEntry{word: uint64(len(entries) - i), row: int32(i)}
	}
	err := sortEntries(ctx, entries, make([]sortEntry, len(entries)), nil)
	if sqlstate.CodeOf(err) != sqlstate.QueryCanceled {
		t.Errorf("the error is %v", err)
	}
	if slices.IsSortedFunc(entries, func(a, b sortEntry) int { return cmp.Compare(a.word, b.word) }) {
		t.Error("the sort went on to its end")
	}
}
