package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// shareEqual makes a common table of subtrees that are equal, the largest ones
// that there are, where keeping their rows costs less than computing them again.
func (s *estimator) shareEqual(root Node) (Node, error) {
	shapes := &treeShapes{of: make(map[Node]uint64), trees: make(map[uint64][]Node)}
	shapes.add(root)
	if !shapes.repeat() {
		return root, nil
	}
	w, ok := root.(*With)
	if !ok {
		w = &With{Main: root}
	}
	sh := &sharing{estimator: s, shapes: shapes, next: nextCommonID(root)}
	out := &With{}
	for _, c := range w.Commons {
		copied := *c
		var err error
		if copied.Input, err = sh.replace(c.Input); err != nil {
			return nil, err
		}
		out.Commons = append(append(out.Commons, sh.flush()...), &copied)
	}
	main, err := sh.replace(w.Main)
	if err != nil {
		return nil, err
	}
	out.Main = main
	out.Commons = append(out.Commons, sh.flush()...)
	if n, ok := sh.withoutSingles(out); ok {
		return n, nil
	}
	return root, nil
}

// sharing is one pass over a tree that shares its equal subtrees.
type sharing struct {
	estimator *estimator
	shapes    *treeShapes
	next      CommonID
	found     []*sharedTree
	fresh     []*Common // of found, not yet placed
}

// sharedTree is a subtree that occurs again, unless that is within others.
type sharedTree struct {
	node   Node
	common *Common
	uses   int
}

// flush hands out the common tables that were made since the last call.
func (s *sharing) flush() []*Common {
	out := s.fresh
	s.fresh = nil
	return out
}

// replace puts scans of common tables in place of subtrees that have a like.
func (s *sharing) replace(n Node) (Node, error) {
	if s.shapes.hasLike(n) {
		for _, f := range s.found {
			if sameNode(f.node, n) {
				f.uses++
				return f.common.Scan(), nil
			}
		}
		pays, err := s.pays(n)
		if err != nil {
			return nil, err
		}
		if pays {
			return s.share(n)
		}
	}
	return s.replaceBelow(n)
}

func (s *sharing) share(n Node) (Node, error) {
	input, err := s.replaceBelow(n)
	if err != nil {
		return nil, err
	}
	f := &sharedTree{node: n, uses: 1, common: &Common{ID: s.next, Input: input}}
	s.next++
	s.found = append(s.found, f)
	s.fresh = append(s.fresh, f.common)
	s.estimator.commons[f.common.ID], err = s.estimator.node(n)
	return f.common.Scan(), err
}

func (s *sharing) replaceBelow(n Node) (Node, error) {
	inputs := n.Inputs()
	built := make([]Node, len(inputs))
	same := true
	for i, in := range inputs {
		var err error
		if built[i], err = s.replace(in); err != nil {
			return nil, err
		}
		same = same && built[i] == in
	}
	if same {
		return n, nil
	}
	return withInputs(n, built), nil
}

// minSharedRead is how much a subtree reads, at least, for sharing it to be worth
// an exchange of its own.
const minSharedRead = 4 << 20

// pays reports whether keeping a subtree's rows beats computing them twice:
// what it reads is not little, and at least twice what it yields.
func (s *sharing) pays(n Node) (bool, error) {
	est, err := s.estimator.node(n)
	if err != nil {
		return false, err
	}
	read, err := s.read(n)
	return read >= minSharedRead && est.bytes <= read/2, err
}

// read is how many bytes a subtree takes from tables.
func (s *sharing) read(n Node) (uint64, error) {
	inputs := n.Inputs()
	if len(inputs) == 0 {
		est, err := s.estimator.node(n)
		return est.bytes, err
	}
	total := uint64(0)
	for _, in := range inputs {
		bytes, err := s.read(in)
		if err != nil {
			return 0, err
		}
		total = saturatingAdd(total, bytes)
	}
	return total, nil
}

// withoutSingles puts subtrees that turned out to be read once back in their
// place. It reports whether any is left.
func (s *sharing) withoutSingles(w *With) (Node, bool) {
	single := make(map[CommonID]Node)
	shared := false
	for _, f := range s.found {
		if f.uses == 1 {
			single[f.common.ID] = f.common.Input
		} else {
			shared = true
		}
	}
	if !shared {
		return nil, false
	}
	var restore func(n Node) Node
	restore = func(n Node) Node {
		return mapNodes(n, func(n Node) Node {
			if scan, ok := n.(*CommonScan); ok && single[scan.ID] != nil {
				return restore(single[scan.ID])
			}
			return n
		})
	}
	out := &With{Main: restore(w.Main)}
	for _, c := range w.Commons {
		if single[c.ID] == nil {
			copied := *c
			copied.Input = restore(c.Input)
			out.Commons = append(out.Commons, &copied)
		}
	}
	return out, true
}

func nextCommonID(n Node) CommonID {
	next := CommonID(1)
	switch n := n.(type) {
	case *With:
		for _, c := range n.Commons {
			next = max(next, c.ID+1)
		}
	case *Recursive:
		next = n.ID + 1
	}
	for _, in := range n.Inputs() {
		next = max(next, nextCommonID(in))
	}
	return next
}

// treeShapes finds equal subtrees: of holds a number for each one that does some
// work, which is the same for equal ones, and trees those of a number.
type treeShapes struct {
	of    map[Node]uint64
	trees map[uint64][]Node
}

// repeat reports whether there may be equal subtrees.
func (t *treeShapes) repeat() bool {
	for _, list := range t.trees {
		if len(list) > 1 {
			return true
		}
	}
	return false
}

// hasLike reports whether another subtree is equal to n.
func (t *treeShapes) hasLike(n Node) bool {
	shape, ok := t.of[n]
	if !ok {
		return false
	}
	copies := 0
	for _, other := range t.trees[shape] {
		if sameNode(other, n) {
			copies++
		}
	}
	return copies > 1
}

// add enters a subtree and what is below it. A subtree that may have other rows
// each time, or that is part of a recursion's round, is not shareable.
func (t *treeShapes) add(n Node) (hash uint64, shareable bool) {
	mix := func(v uint64) { hash = (hash ^ v) * 0x100000001b3 }
	hash = 0xcbf29ce484222325
	mix(uint64(len(outputFields(n))))
	shareable = !slices.ContainsFunc(nodeExprs(n), isVolatile)
	works := false
	switch n := n.(type) {
	case *Scan:
		mix(uint64(n.Table.ID) + 1)
		for _, c := range n.Projection {
			mix(uint64(c + 2))
		}
	case *Filter:
		mix(11)
	case *Project:
		mix(12)
	case *Aggregate:
		mix(13)
		mix(uint64(len(n.GroupBy)))
		works = true
	case *Join:
		mix(14)
		mix(uint64(len(n.On)))
		works = true
	case *Union:
		mix(15)
	case *Window:
		mix(16)
		works = true
	case *Sort:
		mix(17)
		works = true
	case *Limit:
		mix(18)
	case *CommonScan:
		mix(19 + uint64(n.ID)<<8)
	case *Values:
		mix(20)
	default: // a recursion has names of its own, a root is no subtree
		shareable = false
	}
	for _, in := range n.Inputs() {
		h, ok := t.add(in)
		mix(h)
		shareable = shareable && ok
	}
	if works && shareable {
		t.of[n] = hash
		t.trees[hash] = append(t.trees[hash], n)
	}
	return hash, shareable
}

// sameNode reports whether two subtrees yield the same rows under the same
// names.
func sameNode(a, b Node) bool {
	if a == b {
		return true
	}
	if !sameFields(outputFields(a), outputFields(b)) || !sameOperation(a, b) {
		return false
	}
	return slices.EqualFunc(a.Inputs(), b.Inputs(), sameNode)
}

func sameFields(a, b []arrow.Field) bool {
	return slices.EqualFunc(a, b, func(x, y arrow.Field) bool {
		return x.Name == y.Name && x.Nullable == y.Nullable && arrow.TypeEqual(x.Type, y.Type)
	})
}

// sameOperation compares two nodes without their inputs.
func sameOperation(a, b Node) bool {
	switch a := a.(type) {
	case *Scan:
		b, ok := b.(*Scan)
		return ok && a.Table.ID == b.Table.ID && slices.Equal(a.Projection, b.Projection) && sameOptional(a.Filter, b.Filter)
	case *Filter:
		b, ok := b.(*Filter)
		return ok && equalExpr(a.Predicate, b.Predicate)
	case *Project:
		b, ok := b.(*Project)
		return ok && equalExprs(a.Exprs, b.Exprs)
	case *Aggregate:
		b, ok := b.(*Aggregate)
		return ok && slices.Equal(a.GroupBy, b.GroupBy) && slices.EqualFunc(a.Calls, b.Calls, sameCall)
	case *Join:
		b, ok := b.(*Join)
		return ok && a.Kind == b.Kind && slices.Equal(a.On, b.On) && sameOptional(a.Residual, b.Residual)
	case *Union:
		_, ok := b.(*Union)
		return ok
	case *Window:
		b, ok := b.(*Window)
		return ok && slices.Equal(a.PartitionBy, b.PartitionBy) && slices.Equal(a.OrderBy, b.OrderBy) &&
			slices.EqualFunc(a.Calls, b.Calls, sameWindowCall)
	case *Sort:
		b, ok := b.(*Sort)
		return ok && a.Limit == b.Limit && slices.Equal(a.Keys, b.Keys)
	case *Limit:
		b, ok := b.(*Limit)
		return ok && a.Limit == b.Limit && a.Offset == b.Offset
	case *CommonScan:
		b, ok := b.(*CommonScan)
		return ok && a.ID == b.ID && slices.Equal(a.Columns, b.Columns)
	case *Values:
		b, ok := b.(*Values)
		return ok && slices.EqualFunc(a.Rows, b.Rows, equalExprs)
	}
	return false
}

func sameOptional(a, b Expr) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return equalExpr(a, b)
}

func sameCall(a, b AggCall) bool {
	return a.Func == b.Func && a.Arg == b.Arg && a.Distinct == b.Distinct && a.Name == b.Name &&
		arrow.TypeEqual(a.DataType, b.DataType) && slices.Equal(a.Args, b.Args) && slices.Equal(a.OrderBy, b.OrderBy)
}

func sameWindowCall(a, b WindowCall) bool {
	return a.Func == b.Func && a.Name == b.Name && arrow.TypeEqual(a.DataType, b.DataType) && slices.Equal(a.Args, b.Args) &&
		a.Frame.Mode == b.Frame.Mode && a.Frame.Exclude == b.Frame.Exclude &&
		sameBound(a.Frame.Start, b.Frame.Start) && sameBound(a.Frame.End, b.Frame.End)
}

func sameBound(a, b FrameBound) bool {
	if a.Kind != b.Kind || (a.Offset == nil) != (b.Offset == nil) {
		return false
	}
	return a.Offset == nil || equalExpr(a.Offset, b.Offset)
}
