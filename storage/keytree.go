package storage

import (
	"bytes"
	"sort"
)

// keyTree finds the committed segments whose key ranges hold a key without
// looking at all of them. It is a treap of the ranges by their lower ends,
// where every node also knows the greatest upper end below it (an interval
// tree: Cormen et al., Introduction to Algorithms, chapter on augmenting data
// structures). Trees are immutable: a change copies the path to it, so that
// readers keep theirs. Nil is the empty tree.
//
// A segment is named by the id of its first row, which stays the same while
// marks make new segmentRefs of it.
type keyTree struct {
	min, max    []byte
	first       uint64
	top         []byte // greatest max of the subtree
	left, right *keyTree
}

// priority decides which of two nodes is above the other: the first row's id,
// mixed (splitmix64's finalizer).
func (t *keyTree) priority() uint64 {
	x := t.first + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (t *keyTree) less(min []byte, first uint64) bool {
	c := bytes.Compare(t.min, min)
	return c < 0 || (c == 0 && t.first < first)
}

// with returns the node with other children.
func (t *keyTree) with(left, right *keyTree) *keyTree {
	n := &keyTree{min: t.min, max: t.max, first: t.first, top: t.max, left: left, right: right}
	for _, c := range []*keyTree{left, right} {
		if c != nil && bytes.Compare(c.top, n.top) > 0 {
			n.top = c.top
		}
	}
	return n
}

// add returns the tree with a segment, which must not be in it. Segments
// without a key index are not kept.
func (t *keyTree) add(s *segmentRef) *keyTree {
	k := s.meta.key
	if k == nil {
		return t
	}
	return t.insert(&keyTree{min: k.min, max: k.max, first: s.firstRow, top: k.max})
}

func (t *keyTree) insert(n *keyTree) *keyTree {
	switch {
	case t == nil:
		return n
	case n.priority() > t.priority():
		return n.with(t.split(n.min, n.first))
	case t.less(n.min, n.first):
		return t.with(t.left, t.right.insert(n))
	}
	return t.with(t.left.insert(n), t.right)
}

// split returns the nodes below a place and the others.
func (t *keyTree) split(min []byte, first uint64) (below, rest *keyTree) {
	if t == nil {
		return nil, nil
	}
	if t.less(min, first) {
		below, rest = t.right.split(min, first)
		return t.with(t.left, below), rest
	}
	below, rest = t.left.split(min, first)
	return below, t.with(rest, t.right)
}

// remove returns the tree without a segment.
func (t *keyTree) remove(s *segmentRef) *keyTree {
	if s.meta.key == nil {
		return t
	}
	return t.delete(s.meta.key.min, s.firstRow)
}

func (t *keyTree) delete(min []byte, first uint64) *keyTree {
	switch {
	case t == nil:
		return nil
	case t.first == first && bytes.Equal(t.min, min):
		return joinTrees(t.left, t.right)
	case t.less(min, first):
		return t.with(t.left, t.right.delete(min, first))
	}
	return t.with(t.left.delete(min, first), t.right)
}

// joinTrees joins two trees of which the first lies before the second.
func joinTrees(a, b *keyTree) *keyTree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority() > b.priority():
		return a.with(a.left, joinTrees(a.right, b))
	}
	return b.with(joinTrees(a, b.left), b.right)
}

// overlapping passes the segments whose ranges have keys from lo to hi to visit
// until that returns false; of those that start with the same key, the latest
// comes first. It returns what visit did last.
func (t *keyTree) overlapping(lo, hi []byte, visit func(first uint64) bool) bool {
	if t == nil || bytes.Compare(t.top, lo) < 0 {
		return true
	}
	if bytes.Compare(t.min, hi) <= 0 {
		if !t.right.overlapping(lo, hi, visit) {
			return false
		}
		if bytes.Compare(t.max, lo) >= 0 && !visit(t.first) {
			return false
		}
	}
	return t.left.overlapping(lo, hi, visit)
}

// segmentOf returns the segment of a manifest that starts with a row, nil for
// none.
func segmentOf(manifest []*segmentRef, first uint64) *segmentRef {
	i := sort.Search(len(manifest), func(i int) bool { return manifest[i].firstRow >= first })
	if i < len(manifest) && manifest[i].firstRow == first {
		return manifest[i]
	}
	return nil
}
