package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// joinOp is one probing part of a join: it looks its input's rows up in the
// shared build side and emits the pairs that match, at most BatchRows at a
// time.
type joinOp struct {
	spec     *joinSpec
	build    *buildSide
	probe    Operator
	coder    *keyCoder // nil without keys
	residual *Evaluator
	ready    bool
	ended    bool
	closed   bool

	batch *columnar.Batch // probe batch being joined
	sel   []int32         // its rows that may match; nil for all
	count int             // how many rows that are
	ids   []int32         // their keys in the build side, -1 for none
	at    int             // row that is being matched
	skip  int             // matches of that row that are emitted already

	probeRows, buildRows []int32 // pairs of the next output batch
	selBuf, matched      []int32
	probeOut, buildOut   []*columnar.Vector
	gathers              []*columnar.Vector // reusable vectors behind probeOut
	out                  columnar.Batch
}

// prepare compiles what the part needs for itself.
func (j *joinOp) prepare() error {
	var err error
	if len(j.spec.probeKeys) > 0 {
		if j.coder, err = newKeyCoder(j.spec.probeKeys, j.spec.keyTypes, j.build.seed); err != nil {
			return err
		}
	}
	if j.spec.residual != nil {
		if j.residual, err = Compile(j.spec.residual, j.spec.residualIn); err != nil {
			return err
		}
	}
	// The build side's columns are gathered from its store; rejecting what it
	// cannot hold now spares a failure in the middle of the query.
	if _, err := newRowStore(j.build.input.Schema(), &Account{}); err != nil {
		return err
	}
	j.buildOut = outVectors(j.build.input.Schema())
	j.gathers = outVectors(j.probe.Schema())
	j.probeOut = make([]*columnar.Vector, len(j.gathers))
	return nil
}

func (j *joinOp) Schema() *arrow.Schema { return j.spec.schema }

func (j *joinOp) Close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	err := j.probe.Close()
	if e := j.build.release(); err == nil {
		err = e
	}
	return err
}

func (j *joinOp) Next(ctx context.Context) (*columnar.Batch, error) {
	if !j.ready {
		if err := j.build.await(ctx); err != nil {
			return nil, err
		}
		j.ready = true
		j.ended = j.build.store.rows == 0
	}
	for !j.ended {
		if j.batch == nil {
			if err := j.fetch(ctx); err != nil {
				return nil, err
			}
			continue
		}
		b := j.batch
		j.match()
		if j.at >= j.count {
			j.batch = nil // b itself stays valid until the next call of probe.Next
		}
		if len(j.probeRows) == 0 {
			continue
		}
		if out, err := j.assemble(b); out != nil || err != nil {
			return out, err
		}
		if err := canceled(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// fetch takes the next probe batch and looks its keys up.
func (j *joinOp) fetch(ctx context.Context) error {
	b, err := j.probe.Next(ctx)
	if err != nil {
		return err
	}
	if b == nil {
		j.ended = true
		return nil
	}
	j.sel, j.count = b.Sel, b.Rows()
	if j.coder != nil {
		j.sel = selectKeyed(b.Cols, j.spec.probeKeys, b.Sel, b.Len, &j.selBuf)
		if j.sel != nil {
			j.count = len(j.sel)
		}
		if j.count > 0 {
			j.coder.encode(b.Cols, j.sel, b.Len)
			j.ids = resize(j.ids, j.count)
			j.build.table.find(j.coder, j.ids)
		}
	}
	j.at, j.skip = 0, 0
	if j.count > 0 {
		j.batch = b
	}
	return nil
}

// match collects the next pairs of the probe batch; j.at then says how far it
// came.
func (j *joinOp) match() {
	j.probeRows, j.buildRows = j.probeRows[:0], j.buildRows[:0]
	switch {
	case j.coder == nil:
		j.matchAll()
	case j.build.starts == nil:
		j.matchUnique()
	default:
		j.matchChains()
	}
}

// matchUnique pairs rows with the one build row of their key.
func (j *joinOp) matchUnique() {
	for i, id := range j.ids[:j.count] {
		if id >= 0 {
			j.probeRows = append(j.probeRows, int32(rowAt(j.sel, i)))
			j.buildRows = append(j.buildRows, id)
		}
	}
	j.at = j.count
}

func (j *joinOp) matchChains() {
	starts := j.build.starts
	for ; j.at < j.count; j.at, j.skip = j.at+1, 0 {
		id := j.ids[j.at]
		if id < 0 {
			continue
		}
		if !j.pair(j.build.rows[starts[id]:starts[id+1]]) {
			return
		}
	}
}

// pair pairs the row at j.at with build rows after the first j.skip of them. It
// returns false when the output is full before the end.
func (j *joinOp) pair(rows []int32) bool {
	rows = rows[j.skip:]
	room := columnar.BatchRows - len(j.probeRows)
	full := len(rows) > room
	if full {
		rows = rows[:room]
	}
	probe := int32(rowAt(j.sel, j.at))
	for range rows {
		j.probeRows = append(j.probeRows, probe)
	}
	j.buildRows = append(j.buildRows, rows...)
	j.skip += len(rows)
	return !full
}

// matchAll pairs every row with every build row.
func (j *joinOp) matchAll() {
	total := j.build.store.rows
	for ; j.at < j.count; j.at, j.skip = j.at+1, 0 {
		n := min(total-j.skip, columnar.BatchRows-len(j.probeRows))
		probe := int32(rowAt(j.sel, j.at))
		for i := range n {
			j.probeRows = append(j.probeRows, probe)
			j.buildRows = append(j.buildRows, int32(j.skip+i))
		}
		j.skip += n
		if j.skip < total {
			return
		}
	}
}

// assemble makes the output batch of the collected pairs, nil when the residual
// accepts none.
func (j *joinOp) assemble(b *columnar.Batch) (*columnar.Batch, error) {
	n := len(j.probeRows)
	whole := n == b.Len && isIdentity(j.probeRows)
	for i, v := range b.Cols {
		if whole || v.Const && v.Valid == nil {
			j.probeOut[i] = v
			continue
		}
		j.probeOut[i] = gatherVector(v, j.probeRows, j.gathers[i])
	}
	j.build.store.gather(j.buildRows, j.buildOut)
	first, second := j.probeOut, j.buildOut
	if j.spec.buildLeft {
		first, second = second, first
	}
	j.out.Cols = append(append(j.out.Cols[:0], first...), second...)
	j.out.Len, j.out.Sel = n, nil
	for i, v := range j.out.Cols {
		if v.Const && v.Len != n {
			repeated := *v
			repeated.Len = n
			j.out.Cols[i] = &repeated
		}
	}
	if j.residual == nil {
		return &j.out, nil
	}
	var err error
	if j.matched, err = j.residual.Filter(&j.out, j.matched[:0]); err != nil {
		return nil, err
	}
	switch len(j.matched) {
	case 0:
		return nil, nil
	case n:
	default:
		j.out.Sel = j.matched
	}
	return &j.out, nil
}

func isIdentity(rows []int32) bool {
	for i, row := range rows {
		if int(row) != i {
			return false
		}
	}
	return true
}

// gatherVector copies the rows of v to out, reusing out's buffers, and returns
// it. Dictionaries are shared, not copied.
func gatherVector(v *columnar.Vector, rows []int32, out *columnar.Vector) *columnar.Vector {
	n := len(rows)
	width := columnar.Width(v.Type)
	out.Type, out.Len, out.Dict, out.Const = v.Type, n, v.Dict, false
	out.Valid = gatherBits(v, rows, out.Valid)
	switch {
	case width > 0:
		out.Data = reuseBytes(out.Data, n*width)
		copyFixed(out.Data, v, rows, n, width)
	case v.Dict != nil:
		out.Codes = resize(out.Codes, n)
		for i, row := range rows {
			if v.Const {
				row = 0
			}
			out.Codes[i] = v.Codes[row]
		}
	case v.Type.ID() == arrow.STRING || v.Type.ID() == arrow.BINARY:
		out.Codes = nil
		out.Offsets, out.Data = append(out.Offsets[:0], 0), out.Data[:0]
		for _, row := range rows {
			if !v.IsNull(int(row)) {
				out.Data = append(out.Data, v.BytesAt(int(row))...)
			}
			out.Offsets = append(out.Offsets, int32(len(out.Data)))
		}
	default:
		return gatherNested(v, rows)
	}
	return out
}

// gatherBits gathers validity bits into buf; nil when v has no nulls.
func gatherBits(v *columnar.Vector, rows []int32, buf []byte) []byte {
	if v.Valid == nil {
		return nil
	}
	buf = reuseBytes(buf, (len(rows)+7)/8)
	clear(buf)
	for i, row := range rows {
		if !v.IsNull(int(row)) {
			buf[i>>3] |= 1 << (i & 7)
		}
	}
	return buf
}

// gatherNested copies rows of a list or struct by way of a store.
func gatherNested(v *columnar.Vector, rows []int32) *columnar.Vector {
	out := &columnar.Vector{Type: v.Type}
	store, err := newColStore(v.Type, &Account{})
	if err != nil { // unreachable: prepare has checked the schema
		return v
	}
	if err := store.append(v, rows, len(rows)); err != nil {
		return v
	}
	store.view(0, len(rows), out)
	return out
}
