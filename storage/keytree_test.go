package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestKeyTreeFindsOverlaps compares the tree with a list while segments come
// and go, and sees that older trees stay as they were.
func TestKeyTreeFindsOverlaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	key := func() []byte { return []byte(fmt.Sprintf("%03d", rng.IntN(300))) }
	var list []*segmentRef
	var tree *keyTree
	type version struct {
		tree *keyTree
		list []*segmentRef
	}
	var versions []version
	for first := range uint64(2000) {
		if len(list) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(list))
			tree = tree.remove(list[i])
			list = slices.Delete(slices.Clone(list), i, i+1)
		} else {
			lo, hi := key(), key()
			if string(lo) > string(hi) || rng.IntN(2) == 0 {
				hi = lo
			}
			s := &segmentRef{firstRow: first, meta: &segmentMeta{rows: 1, key: &keyMeta{min: lo, max: hi}}}
			tree = tree.add(s)
			list = append(slices.Clone(list), s)
		}
		if first%100 == 0 {
			versions = append(versions, version{tree, list})
		}
	}
	for _, v := range append(versions, version{tree, list}) {
		for range 50 {
			lo, hi := key(), key()
			if string(lo) > string(hi) {
				hi = lo
			}
			var want, got []uint64
			for _, s := range v.list {
				if string(s.meta.key.min) <= string(hi) && string(s.meta.key.max) >= string(lo) {
					want = append(want, s.firstRow)
				}
			}
			v.tree.overlapping(lo, hi, func(first uint64) bool {
				got = append(got, first)
				return true
			})
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("from %s to %s: %v, want %v", lo, hi, got, want)
			}
		}
	}
}

func TestKeyTreePassesTheLatestFirst(t *testing.T) {
	var tree *keyTree
	for first := range uint64(200) {
		tree = tree.add(&segmentRef{firstRow: first, meta: &segmentMeta{rows: 1, key: &keyMeta{min: []byte("k"), max: []byte("k")}}})
	}
	visited := 0
	tree.overlapping([]byte("k"), []byte("k"), func(first uint64) bool {
		visited++
		if first != 199 {
			t.Errorf("row %d came first", first)
		}
		return false
	})
	if visited != 1 {
		t.Errorf("visited %d", visited)
	}
}
