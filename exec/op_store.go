package exec

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/sqlstate"
)

// word128 moves 16-byte values without looking at them.
type word128 [2]uint64

// rowStore is an append-only, columnar copy of rows that outlive the batches
// they came in: the build side of a join, the input of a sort, group keys. The
// memory is reserved before it is allocated.
type rowStore struct {
	cols []*colStore
	rows int
}

// newRowStore returns a store for rows of the given physical schema.
func newRowStore(schema *arrow.Schema, acct *Account) (*rowStore, error) {
	s := &rowStore{cols: make([]*colStore, schema.NumFields())}
	for i, f := range schema.Fields() {
		c, err := newColStore(f.Type, acct)
		if err != nil {
			return nil, err
		}
		s.cols[i] = c
	}
	return s, nil
}

// append copies the selected rows of cols; a nil sel stands for rows 0..n-1.
func (s *rowStore) append(cols []*columnar.Vector, sel []int32, n int) error {
	if sel != nil {
		n = len(sel)
	}
	for i, c := range s.cols {
		if err := c.append(cols[i], sel, n); err != nil {
			return err
		}
	}
	s.rows += n
	return nil
}

// gather fills out with the given rows of the store. out's vectors and buffers
// are reused when they are large enough.
func (s *rowStore) gather(rows []int32, out []*columnar.Vector) {
	for i, c := range s.cols {
		c.gather(rows, out[i])
	}
}

// view fills out with rows [lo, hi), sharing the store's memory where it can.
func (s *rowStore) view(lo, hi int, out []*columnar.Vector) {
	for i, c := range s.cols {
		c.view(lo, hi, out[i])
	}
}

// reset forgets all rows but keeps the memory.
func (s *rowStore) reset() {
	s.rows = 0
	for _, c := range s.cols {
		c.reset()
	}
}

// truncate forgets all but the first n rows, also after a failed append.
func (s *rowStore) truncate(n int) {
	s.rows = n
	for _, c := range s.cols {
		c.truncate(n)
	}
}

func (c *colStore) truncate(n int) {
	if c.valid != nil {
		c.valid = c.valid[:min(len(c.valid), (n+7)/8)]
	}
	c.n = n
	if c.width > 0 {
		c.fixed = c.fixed[:n*c.width]
		return
	}
	switch c.typ.ID() {
	case arrow.STRUCT:
		for _, k := range c.kids {
			k.truncate(n)
		}
	case arrow.LIST:
		c.ends = c.ends[:n]
		c.kids[0].truncate(int(c.startOf(n)))
	case arrow.STRING, arrow.BINARY:
		if c.dict != nil {
			c.dict.codes = c.dict.codes[:n]
			return
		}
		c.ends = c.ends[:n]
		c.data = c.data[:c.startOf(n)]
	}
}

// free forgets all rows and gives their memory back.
func (s *rowStore) free() {
	s.rows = 0
	for _, c := range s.cols {
		c.free()
	}
}

// successor returns an empty store for the same columns and account.
func (s *rowStore) successor() *rowStore {
	next := &rowStore{cols: make([]*colStore, len(s.cols))}
	for i, c := range s.cols {
		next.cols[i] = c.successor()
	}
	return next
}

func (c *colStore) successor() *colStore {
	next := &colStore{typ: c.typ, width: c.width, acct: c.acct, plain: c.plain}
	for _, k := range c.kids {
		next.kids = append(next.kids, k.successor())
	}
	return next
}

// presize makes room for n rows of the columns of fixed width of an empty store,
// so that they need not grow there step by step.
func (s *rowStore) presize(n int) error {
	for _, c := range s.cols {
		if c.width == 0 {
			continue
		}
		var err error
		if c.fixed, err = growSlice(c.acct, c.fixed, n*c.width); err != nil {
			return err
		}
	}
	return nil
}

// held is the memory that the store has reserved.
func (s *rowStore) held() int64 {
	total := int64(0)
	for _, c := range s.cols {
		total += c.held()
	}
	return total
}

func (c *colStore) held() int64 {
	total := int64(cap(c.valid) + cap(c.fixed) + cap(c.data) + 8*cap(c.ends))
	if c.dict != nil {
		total += int64(4*cap(c.dict.codes)) + c.dict.bytes
	}
	for _, k := range c.kids {
		total += k.held()
	}
	return total
}

// batch returns the stored rows as a batch that owns their memory; the store
// must not be used any more.
func (s *rowStore) batch() *columnar.Batch {
	b := &columnar.Batch{Len: s.rows, Cols: make([]*columnar.Vector, len(s.cols))}
	for i, c := range s.cols {
		b.Cols[i] = &columnar.Vector{Type: c.typ}
		c.view(0, s.rows, b.Cols[i])
	}
	return b
}

// outVectors returns one empty vector per column of a physical schema.
func outVectors(schema *arrow.Schema) []*columnar.Vector {
	out := make([]*columnar.Vector, schema.NumFields())
	for i, f := range schema.Fields() {
		out[i] = &columnar.Vector{Type: f.Type}
	}
	return out
}

// colStore is one column of a rowStore. Fixed-width values lie in words, the
// bytes of variable-length ones in data with 64-bit end positions, so that a
// store may hold more than the 2 GiB that a vector's offsets can address. Lists
// keep their elements and structs their fields in child stores.
type colStore struct {
	typ   arrow.DataType
	width int // bytes per value, 0 for variable-length and nested types
	acct  *Account
	n     int
	valid []byte // bitmap; nil while no null was appended
	fixed []byte
	ends  []int64 // of utf8, binary and list: end of value i
	data  []byte
	kids  []*colStore
	dict  *dictColumn // of utf8 and binary, instead of ends and data
	plain bool        // never with a dictionary
	tmp   []int32
}

func newColStore(dt arrow.DataType, acct *Account) (*colStore, error) {
	c := &colStore{typ: dt, width: columnar.Width(dt), acct: acct}
	if c.width > 0 {
		if !supportedWidth(c.width) {
			return nil, sqlstate.New(sqlstate.FeatureNotSupported, "rows with a column of type %s cannot be kept in memory", dt)
		}
		return c, nil
	}
	var kids []arrow.DataType
	switch t := dt.(type) {
	case *arrow.StringType, *arrow.BinaryType:
	case *arrow.ListType:
		kids = append(kids, t.Elem())
	case *arrow.StructType:
		for _, f := range t.Fields() {
			kids = append(kids, f.Type)
		}
	case *arrow.NullType:
	default:
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "rows with a column of type %s cannot be kept in memory", dt)
	}
	for _, k := range kids {
		kid, err := newColStore(k, acct)
		if err != nil {
			return nil, err
		}
		kid.plain = true
		c.kids = append(c.kids, kid)
	}
	return c, nil
}

func supportedWidth(w int) bool {
	return w == 1 || w == 2 || w == 4 || w == 8 || w == 16
}

func (c *colStore) reset() {
	c.n, c.fixed, c.ends, c.data = 0, c.fixed[:0], c.ends[:0], c.data[:0]
	c.valid = freeSlice(c.acct, c.valid)
	if c.dict != nil {
		c.dict.codes = c.dict.codes[:0]
	}
	for _, k := range c.kids {
		k.reset()
	}
}

func (c *colStore) free() {
	c.n = 0
	c.valid, c.fixed = freeSlice(c.acct, c.valid), freeSlice(c.acct, c.fixed)
	c.ends, c.data = freeSlice(c.acct, c.ends), freeSlice(c.acct, c.data)
	c.freeDict()
	for _, k := range c.kids {
		k.free()
	}
}

// append copies n values of v: those at sel, or the first n when sel is nil.
func (c *colStore) append(v *columnar.Vector, sel []int32, n int) error {
	if n == 0 {
		return nil
	}
	if c.isText() {
		if err := c.prepareText(v, n); err != nil {
			return err
		}
	}
	if err := c.appendValidity(v, sel, n); err != nil {
		return err
	}
	var err error
	switch {
	case c.width > 0:
		err = c.appendFixed(v, sel, n)
	case c.typ.ID() == arrow.LIST:
		err = c.appendList(v, sel, n)
	case c.typ.ID() == arrow.STRUCT:
		for i, k := range c.kids {
			if err = c.appendField(k, v, i, sel, n); err != nil {
				break
			}
		}
	case c.typ.ID() == arrow.NULL:
	case c.dict != nil:
		err = c.appendCodes(v, sel, n)
	default:
		err = c.appendBytes(v, sel, n)
	}
	c.n += n
	return err
}

func (c *colStore) isText() bool {
	return c.typ.ID() == arrow.STRING || c.typ.ID() == arrow.BINARY
}

func (c *colStore) appendValidity(v *columnar.Vector, sel []int32, n int) error {
	if v.Valid == nil && c.valid == nil {
		return nil
	}
	need := (c.n + n + 7) / 8
	old := len(c.valid)
	fresh := c.valid == nil
	var err error
	if c.valid, err = growSlice(c.acct, c.valid, need-old); err != nil {
		return err
	}
	c.valid = c.valid[:need]
	if fresh {
		fillBits(c.valid, 0, c.n)
	}
	for i := range n {
		row := rowAt(sel, i)
		at := c.n + i
		if v.IsNull(row) {
			c.valid[at>>3] &^= 1 << (at & 7)
		} else {
			c.valid[at>>3] |= 1 << (at & 7)
		}
	}
	return nil
}

// fillBits sets bits [lo, hi).
func fillBits(bitmap []byte, lo, hi int) {
	for lo < hi && lo&7 != 0 {
		bitmap[lo>>3] |= 1 << (lo & 7)
		lo++
	}
	for ; lo+8 <= hi; lo += 8 {
		bitmap[lo>>3] = 0xff
	}
	for ; lo < hi; lo++ {
		bitmap[lo>>3] |= 1 << (lo & 7)
	}
}

func (c *colStore) appendFixed(v *columnar.Vector, sel []int32, n int) error {
	old := len(c.fixed)
	var err error
	if c.fixed, err = growSlice(c.acct, c.fixed, n*c.width); err != nil {
		return err
	}
	c.fixed = c.fixed[:old+n*c.width]
	copyFixed(c.fixed[old:], v, sel, n, c.width)
	return nil
}

// copyFixed writes n values of v to dst, those at sel or the first n.
func copyFixed(dst []byte, v *columnar.Vector, sel []int32, n, width int) {
	switch width {
	case 1:
		copyTyped[uint8](dst, v, sel, n)
	case 2:
		copyTyped[uint16](dst, v, sel, n)
	case 4:
		copyTyped[uint32](dst, v, sel, n)
	case 8:
		copyTyped[uint64](dst, v, sel, n)
	case 16:
		copyTyped[word128](dst, v, sel, n)
	}
}

func copyTyped[T any](dst []byte, v *columnar.Vector, sel []int32, n int) {
	if n == 0 {
		return
	}
	out := bytesAs[T](dst)[:n]
	src := columnar.Values[T](v)
	switch {
	case v.Const:
		for i := range out {
			out[i] = src[0]
		}
	case sel == nil:
		copy(out, src)
	default:
		for i, row := range sel {
			out[i] = src[row]
		}
	}
}

func bytesAs[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

func (c *colStore) appendBytes(v *columnar.Vector, sel []int32, n int) error {
	var err error
	if c.ends, err = growSlice(c.acct, c.ends, n); err != nil {
		return err
	}
	if c.data, err = growSlice(c.acct, c.data, selectedBytes(v, sel, n)); err != nil {
		return err
	}
	if v.Valid != nil || v.Const || v.Dict != nil {
		for i := range n {
			row := rowAt(sel, i)
			if !v.IsNull(row) {
				c.data = append(c.data, v.BytesAt(row)...)
			}
			c.ends = append(c.ends, int64(len(c.data)))
		}
		return nil
	}
	offsets, data := v.Offsets, c.data
	for i := range n {
		row := rowAt(sel, i)
		data = append(data, v.Data[offsets[row]:offsets[row+1]]...)
		c.ends = append(c.ends, int64(len(data)))
	}
	c.data = data
	return nil
}

func (c *colStore) appendList(v *columnar.Vector, sel []int32, n int) error {
	var err error
	if c.ends, err = growSlice(c.acct, c.ends, n); err != nil {
		return err
	}
	elems := c.tmp[:0]
	end := int64(c.kids[0].n)
	for i := range n {
		row := rowAt(sel, i)
		if !v.IsNull(row) {
			if v.Const {
				row = 0
			}
			for e := v.Offsets[row]; e < v.Offsets[row+1]; e++ {
				elems = append(elems, e)
			}
		}
		c.ends = append(c.ends, end+int64(len(elems)))
	}
	c.tmp = elems
	return c.kids[0].append(v.Children[0], elems, len(elems))
}

func (c *colStore) appendField(k *colStore, v *columnar.Vector, field int, sel []int32, n int) error {
	child := v.Children[field]
	if !v.Const || child.Const {
		return k.append(child, sel, n)
	}
	repeated := *child
	repeated.Const = true
	repeated.Len = v.Len
	return k.append(&repeated, sel, n)
}

// bytesAt returns value i of a variable-length column, aliasing the store.
func (c *colStore) bytesAt(i int) []byte {
	if c.dict != nil {
		if c.isNull(i) {
			return nil
		}
		return c.dict.value(i)
	}
	return c.data[c.startOf(i):c.ends[i]]
}

func (c *colStore) startOf(i int) int64 {
	if i == 0 {
		return 0
	}
	return c.ends[i-1]
}

// reserve makes room to append n values of v, those at sel or the first n, so
// that the append cannot fail.
func (c *colStore) reserve(v *columnar.Vector, sel []int32, n int) error {
	var err error
	if v.Valid != nil || c.valid != nil {
		fresh := c.valid == nil
		if c.valid, err = growSlice(c.acct, c.valid, (c.n+n+7)/8-len(c.valid)); err != nil {
			return err
		}
		if fresh {
			c.valid = c.valid[:(c.n+7)/8]
			fillBits(c.valid, 0, c.n)
		}
	}
	if c.width > 0 {
		c.fixed, err = growSlice(c.acct, c.fixed, n*c.width)
		return err
	}
	if !c.isText() {
		return nil
	}
	if err = c.prepareText(v, n); err != nil {
		return err
	}
	if c.dict != nil {
		c.dict.codes, err = growSlice(c.acct, c.dict.codes, n)
		return err
	}
	if c.ends, err = growSlice(c.acct, c.ends, n); err != nil {
		return err
	}
	c.data, err = growSlice(c.acct, c.data, selectedBytes(v, sel, n))
	return err
}

// selectedBytes is the total length of n strings of v, those at sel or the
// first n.
func selectedBytes(v *columnar.Vector, sel []int32, n int) int {
	total := 0
	if v.Valid == nil && !v.Const && v.Dict == nil {
		if sel == nil {
			return int(v.Offsets[n] - v.Offsets[0])
		}
		for _, row := range sel {
			total += int(v.Offsets[row+1] - v.Offsets[row])
		}
		return total
	}
	for i := range n {
		if row := rowAt(sel, i); !v.IsNull(row) {
			total += len(v.BytesAt(row))
		}
	}
	return total
}
