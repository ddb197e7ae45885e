package exec

import (
	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// grouper assigns dense group ids to rows by their key columns and remembers
// one row of key values per group. Null is a key value like any other.
type grouper struct {
	cols  []int
	acct  *Account
	coder *keyCoder
	table keyTable
	keys  *rowStore // key columns, by group id

	ids, fresh, rows []int32
	picked           []*columnar.Vector
	cells            dictionaryCells
	settled          bool // the shape of the keys
}

func newGrouper(schema *arrow.Schema, cols []int, acct *Account) (*grouper, error) {
	g := &grouper{cols: cols, acct: acct}
	fields := make([]arrow.Field, len(cols))
	types := make([]arrow.DataType, len(cols))
	for i, c := range cols {
		fields[i] = schema.Field(c)
		types[i] = fields[i].Type
	}
	var err error
	if g.coder, err = newKeyCoder(cols, types, newTableSeed()); err != nil {
		return nil, err
	}
	if g.keys, err = newRowStore(arrow.NewSchema(fields, nil), acct); err != nil {
		return nil, err
	}
	g.table = newGroupTable(g.coder, acct)
	g.picked = make([]*columnar.Vector, len(cols))
	return g, nil
}

func (g *grouper) len() int { return g.table.len() }

// reset forgets all groups and frees their memory.
func (g *grouper) reset() {
	g.table.reset()
	g.keys.free()
	g.coder.forgetStrings()
}

// clear forgets all groups and keeps their memory for others.
func (g *grouper) clear() {
	g.table.clear()
	g.keys.reset()
	g.coder.forgetMany()
}

// assign returns the group id of every selected row, valid until the next call.
// reserve is called with the number of groups that the batch may bring, before
// any is added; when it or a reservation of the grouper itself fails, no group
// was added.
func (g *grouper) assign(b *columnar.Batch, reserve func(groups int) error) ([]int32, error) {
	for i, c := range g.cols {
		g.picked[i] = b.Cols[c]
	}
	n := b.Rows()
	g.ids = resize(g.ids, n)
	if g.cells.load(g.picked, b.Sel, n) {
		probes := g.cells.probes
		found := resize(g.cells.found, len(probes))
		g.cells.found = found
		if err := g.upsert(b, probes, found, reserve); err != nil {
			return nil, err
		}
		g.cells.resolve(found, g.ids)
		return g.ids, nil
	}
	return g.ids, g.upsert(b, b.Sel, g.ids, reserve)
}

// find returns the group id of every selected row, -1 for rows of no group,
// valid until the next call.
func (g *grouper) find(b *columnar.Batch) []int32 {
	g.ids = resize(g.ids, b.Rows())
	_ = g.coder.intern(b.Cols, b.Sel, b.Len, false) // looking up takes no memory
	g.coder.encode(b.Cols, b.Sel, b.Len)
	g.table.find(g.coder, g.ids)
	return g.ids
}

// settle chooses the shape of keys of several columns by the first batch: where
// its strings have dictionaries they are interned.
func (g *grouper) settle(b *columnar.Batch) {
	g.settled = true
	if g.coder.shape != bytesShape || len(g.cols) == 1 {
		return
	}
	for i, c := range g.cols {
		v := b.Cols[c]
		if columnar.Width(g.coder.types[i]) == 0 && !v.Const && (v.Dict == nil || v.Dict.Len > maxDictionary) {
			return
		}
	}
	if coder := newInternedCoder(g.cols, g.coder.types, g.coder.seed, g.acct); coder != nil {
		g.coder = coder
		g.table = newKeyTable(coder.shape, g.acct)
	}
}

func (g *grouper) upsert(b *columnar.Batch, sel, ids []int32, reserve func(int) error) error {
	if !g.settled && b.Len > 0 {
		g.settle(b)
	}
	if err := g.coder.intern(b.Cols, sel, b.Len, true); err != nil {
		return err
	}
	g.coder.encode(b.Cols, sel, b.Len)
	if err := g.table.reserve(g.coder); err != nil {
		return err
	}
	for i, c := range g.keys.cols {
		if err := c.reserve(g.picked[i], sel, g.coder.n); err != nil {
			return err
		}
	}
	if err := reserve(g.table.len() + g.coder.n); err != nil {
		return err
	}
	g.fresh = g.table.upsert(g.coder, ids, g.fresh[:0])
	if len(g.fresh) == 0 {
		return nil
	}
	g.rows = g.rows[:0]
	for _, i := range g.fresh {
		g.rows = append(g.rows, int32(rowAt(sel, int(i))))
	}
	return g.keys.append(g.picked, g.rows, len(g.rows))
}

// Bounds of the shortcut for dictionary keys.
const (
	maxCells      = 4096
	minCellFactor = 4 // rows there must be per cell
)

// dictionaryCells is a shortcut for batches whose keys all have few possible
// values: dictionaries, booleans and constants. Every combination is a cell;
// only the first row of each cell is hashed and looked up.
type dictionaryCells struct {
	codes  []int32 // by row: its cell
	groups []int32 // by cell: its group, -1 while no row had it
	probes []int32 // first row of each cell that occurs
	places []int32 // cell of each probe
	found  []int32 // group of each probe
}

// load computes the cells of a batch, or returns false when the shortcut does
// not apply.
func (d *dictionaryCells) load(cols []*columnar.Vector, sel []int32, n int) bool {
	size := 1
	for _, v := range cols {
		switch {
		case v.Const:
		case v.Dict != nil:
			size *= v.Dict.Len + 1
		case v.Type.ID() == arrow.BOOL:
			size *= 3
		default:
			return false
		}
		if size > maxCells || size*minCellFactor > n {
			return false
		}
	}
	d.codes = resize(d.codes, n)
	clear(d.codes)
	stride := int32(1)
	for _, v := range cols {
		stride = d.addColumn(v, sel, stride)
	}
	d.groups = resize(d.groups, size)
	for i := range d.groups {
		d.groups[i] = -1
	}
	d.probes, d.places = d.probes[:0], d.places[:0]
	for i, cell := range d.codes {
		if d.groups[cell] < 0 {
			d.groups[cell] = 0
			d.probes = append(d.probes, int32(rowAt(sel, i)))
			d.places = append(d.places, cell)
		}
	}
	return true
}

// addColumn adds a column's value times stride to the cells and returns the
// stride of the next column.
func (d *dictionaryCells) addColumn(v *columnar.Vector, sel []int32, stride int32) int32 {
	if v.Const {
		return stride
	}
	values := int32(2)
	if v.Dict != nil {
		values = int32(v.Dict.Len)
	}
	switch {
	case v.Valid != nil:
		for i := range d.codes {
			row := rowAt(sel, i)
			code := values
			switch {
			case v.IsNull(row):
			case v.Dict != nil:
				code = v.Codes[row]
			default:
				code = int32(v.Data[row] & 1)
			}
			d.codes[i] += code * stride
		}
	case v.Dict == nil:
		for i := range d.codes {
			d.codes[i] += int32(v.Data[rowAt(sel, i)]&1) * stride
		}
	case sel == nil:
		for i, code := range v.Codes[:len(d.codes)] {
			d.codes[i] += code * stride
		}
	default:
		for i, row := range sel[:len(d.codes)] {
			d.codes[i] += v.Codes[row] * stride
		}
	}
	return stride * (values + 1)
}

// resolve writes every row's group, given those of the probes.
func (d *dictionaryCells) resolve(found, ids []int32) {
	for i, cell := range d.places {
		d.groups[cell] = found[i]
	}
	for i, cell := range d.codes {
		ids[i] = d.groups[cell]
	}
}
