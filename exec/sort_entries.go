package exec

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync/atomic"
)

// sortEntry is one row to be sorted: 8 bytes of its key and its number, which
// is also its place in the order of arrival.
type sortEntry struct {
	word uint64
	row  int32
}

const (
	radixMinimum  = 512 // shorter runs are sorted by comparing
	radixMaxDepth = 6   // words compared by radix before whole keys are
	radixStep     = 1 << 16
)

// sortEntries orders entries, which are in row order, by key and row. keys is
// indexed by row, or nil when the words hold the whole key. Millions of entries
// take seconds, so it stops in between when ctx ends, and leaves any order.
func sortEntries(ctx context.Context, entries, scratch []sortEntry, keys *sortKeys) error {
	s := entrySorter{keys: keys}
	stop := context.AfterFunc(ctx, func() { s.stopped.Store(true) })
	defer stop()
	s.words(entries, scratch)
	if keys != nil {
		s.ties(entries, scratch, 1)
	}
	return canceled(ctx)
}

// entrySorter is one run of sortEntries.
type entrySorter struct {
	keys    *sortKeys
	stopped atomic.Bool
}

// ties orders the runs of equal words by the rest of their keys, of which
// the first depth words are known to be equal within a run.
func (s *entrySorter) ties(entries, scratch []sortEntry, depth int) {
	for lo := 0; lo < len(entries) && !s.stopped.Load(); {
		hi := lo + 1
		for hi < len(entries) && entries[hi].word == entries[lo].word {
			hi++
		}
		run := entries[lo:hi]
		lo = hi
		if len(run) == 1 || len(s.keys.key(int(run[0].row))) <= depth*8 {
			continue
		}
		if depth >= radixMaxDepth {
			slices.SortFunc(run, func(a, b sortEntry) int {
				if s.stopped.Load() {
					return 0 // all are equal: that is soon sorted
				}
				c := bytes.Compare(s.keys.key(int(a.row))[depth*8:], s.keys.key(int(b.row))[depth*8:])
				return cmp.Or(c, cmp.Compare(a.row, b.row))
			})
			continue
		}
		for i := range run {
			run[i].word = s.keys.word(int(run[i].row), depth)
		}
		s.words(run, scratch[:len(run)])
		s.ties(run, scratch, depth+1)
	}
}

// words orders entries, which are in row order, by word and row: by
// least-significant-digit radix sort, skipping bytes that are the same in all.
func (s *entrySorter) words(entries, scratch []sortEntry) {
	if len(entries) < radixMinimum {
		slices.SortFunc(entries, func(a, b sortEntry) int {
			return cmp.Or(cmp.Compare(a.word, b.word), cmp.Compare(a.row, b.row))
		})
		return
	}
	var counts [8][256]int32
	for part := range slices.Chunk(entries, radixStep) {
		if s.stopped.Load() {
			return
		}
		for _, e := range part {
			for d := range counts {
				counts[d][byte(e.word>>(8*d))]++
			}
		}
	}
	from, to := entries, scratch
	for d := range counts {
		shift := 8 * d
		if counts[d][byte(from[0].word>>shift)] == int32(len(from)) {
			continue
		}
		sum := int32(0)
		for i, n := range counts[d] {
			counts[d][i] = sum
			sum += n
		}
		for part := range slices.Chunk(from, radixStep) {
			if s.stopped.Load() {
				return
			}
			for _, e := range part {
				at := &counts[d][byte(e.word>>shift)]
				to[*at] = e
				*at++
			}
		}
		from, to = to, from
	}
	if &from[0] != &entries[0] {
		copy(entries, from)
	}
}
