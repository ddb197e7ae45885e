package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// callNode runs one kernel over its arguments.
type callNode struct {
	fn          *function
	args        []node
	kern        kernel
	compare     comparer // of comparison operators
	dt          arrow.DataType
	untypedNull bool // a strict function of an untyped NULL

	out   columnar.Vector
	mem   scratch
	f     frame
	entry *entryCache
}

func (n *callNode) typ() arrow.DataType { return n.dt }

// load evaluates the arguments into the frame. null reports that the result is
// NULL in every row, and constant that one row's result is that of all.
func (n *callNode) load(b *columnar.Batch, sel []int32) (null, constant bool, err error) {
	n.f.args = n.f.args[:0]
	n.f.n, n.f.sel = b.Len, sel
	n.f.out, n.f.mem = &n.out, &n.mem
	constant = n.fn.volatility != Volatile
	for _, a := range n.args {
		v, err := a.eval(b, sel)
		if err != nil {
			return false, false, err
		}
		if !n.fn.nonStrict && allNull(v) {
			return true, false, nil
		}
		constant = constant && v.Const
		n.f.args = append(n.f.args, v)
	}
	return false, constant, nil
}

// allNull recognises vectors that hold nothing but NULL without a scan.
func allNull(v *columnar.Vector) bool {
	if v.Const {
		return v.IsNull(0)
	}
	return v.Dict != nil && v.Dict.Len == 0
}

func (n *callNode) eval(b *columnar.Batch, sel []int32) (*columnar.Vector, error) {
	if n.untypedNull || b.Len == 0 || (sel != nil && len(sel) == 0) {
		return columnar.NewNull(n.dt, b.Len), nil
	}
	null, constant, err := n.load(b, sel)
	if err != nil {
		return nil, err
	}
	if null {
		return columnar.NewNull(n.dt, b.Len), nil
	}
	if constant {
		return n.evalConst(b.Len)
	}
	v, ok, err := n.entries()
	switch {
	case err != nil:
		return nil, err
	case ok:
		return n.spread(v), nil
	}
	return n.run()
}

// run calls the kernel on the loaded frame.
func (n *callNode) run() (*columnar.Vector, error) {
	n.out = columnar.Vector{Type: n.dt, Len: n.f.n}
	if !n.fn.nonStrict {
		n.out.Valid = n.jointValidity()
	}
	if err := n.kern(&n.f); err != nil {
		return nil, err
	}
	return &n.out, nil
}

// jointValidity is the conjunction of the arguments' bitmaps.
func (n *callNode) jointValidity() []byte {
	var joint []byte
	owned := false
	for _, v := range n.f.args {
		switch {
		case v.Valid == nil || v.Const:
		case joint == nil:
			joint = v.Valid
		case owned:
			joint = columnar.AndBitmaps(joint, joint, v.Valid, n.f.n)
		default:
			n.mem.valid = columnar.AndBitmaps(n.mem.valid, joint, v.Valid, n.f.n)
			joint, owned = n.mem.valid, true
		}
	}
	return joint
}

// evalConst computes one row and repeats it.
func (n *callNode) evalConst(rows int) (*columnar.Vector, error) {
	n.f.n, n.f.sel = 1, nil
	v, err := n.run()
	if err != nil {
		return nil, err
	}
	v.Const, v.Len = true, rows
	return v, nil
}

// choose narrows a selection by a comparison or any other boolean function.
func (n *callNode) choose(b *columnar.Batch, sel, dst []int32) ([]int32, error) {
	if n.untypedNull || b.Len == 0 || (sel != nil && len(sel) == 0) {
		return dst, nil
	}
	null, constant, err := n.load(b, sel)
	if err != nil || null {
		return dst, err
	}
	if constant {
		v, err := n.evalConst(b.Len)
		if err != nil {
			return nil, err
		}
		return chooseTrue(v, b.Len, sel, dst), nil
	}
	if v, ok, err := n.entries(); err != nil {
		return nil, err
	} else if ok {
		return n.chooseEntries(v, dst), nil
	}
	if n.compare == nil {
		v, err := n.run()
		if err != nil {
			return nil, err
		}
		return chooseTrue(v, b.Len, sel, dst), nil
	}
	base := len(dst)
	dst = n.compare.choose(&n.f, dst)
	for _, v := range n.f.args {
		if !v.Const {
			dst = dropNulls(v.Valid, dst, base)
		}
	}
	return dst, nil
}

// entryCache is a total function's result for every entry of one dictionary.
type entryCache struct {
	dict   *columnar.Vector // the dictionary it belongs to
	seen   *columnar.Vector // a dictionary met before, not yet worth evaluating
	result *columnar.Vector
	codes  []int32 // for text results: entry -> entry of result
	whole  bool    // codes is the identity
	mem    scratch
	out    columnar.Vector
}

// entries makes sure that the cache holds the results for the dictionary of the
// one dictionary argument, which it returns; false when that does not apply or
// pay.
func (n *callNode) entries() (*columnar.Vector, bool, error) {
	k := n.dictionaryArg()
	if k < 0 {
		return nil, false, nil
	}
	if n.entry == nil {
		n.entry = &entryCache{}
	}
	v, c := n.f.args[k], n.entry
	if lasting := n.literalOthers(k); c.dict != v.Dict || !lasting {
		rows := n.f.n
		if n.f.sel != nil {
			rows = len(n.f.sel)
		}
		// A large dictionary pays off when more than one batch refers to it.
		if v.Dict.Len > rows && (!lasting || c.seen != v.Dict) {
			c.seen = v.Dict
			return nil, false, nil
		}
		if err := n.fillEntries(k); err != nil {
			return nil, false, err
		}
	}
	return v, c.result != nil, nil
}

// chooseEntries appends the rows whose entry's result is true.
func (n *callNode) chooseEntries(v *columnar.Vector, dst []int32) []int32 {
	base, hits := len(dst), n.entry.result.Data
	rows := n.f.n
	if n.f.sel != nil {
		rows = len(n.f.sel)
	}
	dst = roomFor(dst, rows)
	out, k := dst[base:], 0
	if n.f.sel == nil {
		for i, code := range v.Codes[:n.f.n] {
			out[k] = int32(i)
			k += int(hits[code])
		}
	} else {
		for _, i := range n.f.sel {
			out[k] = i
			k += int(hits[v.Codes[i]])
		}
	}
	return dropNulls(v.Valid, dst[:base+k], base)
}

// dictionaryArg is the argument that is a dictionary while all others are
// constant, or -1.
func (n *callNode) dictionaryArg() int {
	if !n.fn.total || n.fn.nonStrict {
		return -1
	}
	found := -1
	for i, v := range n.f.args {
		switch {
		case v.Const:
		case v.Dict == nil || found >= 0:
			return -1
		default:
			found = i
		}
	}
	return found
}

// literalOthers reports that the other arguments are literals, so that a cached
// result holds for every batch.
func (n *callNode) literalOthers(k int) bool {
	for i, a := range n.args {
		if _, ok := a.(*literalNode); !ok && i != k {
			return false
		}
	}
	return true
}

// fillEntries evaluates the dictionary of argument k into the cache. A NULL
// among the results leaves the cache without a result.
func (n *callNode) fillEntries(k int) error {
	c := n.entry
	dict := n.f.args[k].Dict
	c.dict, c.result = dict, nil
	args := append([]*columnar.Vector(nil), n.f.args...)
	args[k] = dict
	f := frame{args: args, n: dict.Len, out: &columnar.Vector{Type: n.dt, Len: dict.Len}, mem: &scratch{}}
	if err := n.kern(&f); err != nil {
		return err
	}
	if f.out.Valid != nil {
		return nil
	}
	c.result = f.out
	if f.out.Offsets != nil {
		c.distinguish()
	}
	return nil
}

// distinguish makes the entries of a text result distinct, as dictionaries are.
func (c *entryCache) distinguish() {
	r := c.result
	c.codes = make([]int32, r.Len)
	c.whole = true
	seen := make(map[string]int32, r.Len)
	var keep []int32
	for i := range r.Len {
		s := string(r.BytesAt(i))
		code, ok := seen[s]
		if !ok {
			code = int32(len(keep))
			seen[s] = code
			keep = append(keep, int32(i))
		}
		c.codes[i] = code
		c.whole = c.whole && code == int32(i)
	}
	if !c.whole {
		c.result = columnar.Gather(r, keep, nil)
	}
}

// spread gives every row the result of its entry.
func (n *callNode) spread(v *columnar.Vector) *columnar.Vector {
	c := n.entry
	c.out = columnar.Vector{Type: n.dt, Len: n.f.n, Valid: v.Valid}
	if c.result.Offsets != nil {
		c.out.Dict = c.result
		c.out.Codes = v.Codes
		if !c.whole {
			c.mem.codes = sized(c.mem.codes, n.f.n)
			for i, code := range v.Codes[:n.f.n] {
				c.mem.codes[i] = c.codes[code]
			}
			c.out.Codes = c.mem.codes
		}
		return &c.out
	}
	f := frame{n: n.f.n, out: &c.out, mem: &c.mem}
	codes := v.Codes[:n.f.n]
	switch columnar.Width(n.dt) {
	case 1:
		spreadFixed(fixedOut[uint8](&f), columnar.Values[uint8](c.result), codes)
	case 2:
		spreadFixed(fixedOut[uint16](&f), columnar.Values[uint16](c.result), codes)
	case 4:
		spreadFixed(fixedOut[uint32](&f), columnar.Values[uint32](c.result), codes)
	case 8:
		spreadFixed(fixedOut[uint64](&f), columnar.Values[uint64](c.result), codes)
	default:
		spreadFixed(fixedOut[int128](&f), columnar.Values[int128](c.result), codes)
	}
	return &c.out
}

func spreadFixed[T any](out, entries []T, codes []int32) {
	out = out[:len(codes)]
	for i, c := range codes {
		out[i] = entries[c]
	}
}
