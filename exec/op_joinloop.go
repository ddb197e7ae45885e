package exec

import (
	"context"

	"skein/columnar"
	"skein/planner"
)

// This file is joins without keys, where every pair is a candidate, and what a
// join emits of single rows rather than of pairs.

// matchProbeBlock pairs the whole probe batch with the next build row.
func (j *joinOp) matchProbeBlock() (*columnar.Batch, error) {
	b := j.batch
	row := int32(j.skip)
	j.skip++
	if j.skip >= j.build.store.rows {
		j.phase = joinRest
	}
	for i, c := range j.build.store.cols {
		c.gather([]int32{row}, j.buildOut[i])
		j.buildView[i] = constRow(j.buildOut[i], 0, b.Len)
	}
	chosen := j.sel
	if j.residual != nil {
		j.setBlock(b.Cols, j.buildView, b.Len, j.sel)
		var err error
		if j.chosen, err = j.residual.Filter(&j.block, j.chosen[:0]); err != nil {
			return nil, err
		}
		if chosen = j.chosen; len(chosen) == 0 {
			return nil, nil
		}
	} else if chosen == nil {
		j.chosen = appendRows(j.chosen[:0], nil, b.Len)
		chosen = j.chosen
	}
	if !j.spec.pairs && j.spec.markBuild {
		j.build.hits.add(row)
		return nil, nil
	}
	for _, i := range chosen {
		j.probeRows, j.buildRows = append(j.probeRows, i), append(j.buildRows, row)
	}
	if err := j.note(); err != nil {
		return nil, err
	}
	if !j.spec.pairs {
		j.dropMatched()
		return nil, nil
	}
	return j.emit(b.Cols, j.buildView, b.Len, chosen), nil
}

// dropMatched narrows the candidates to the rows without a match: one is enough
// for rows that are chosen by whether they have any.
func (j *joinOp) dropMatched() {
	kept := j.narrowed[:0] // may be j.sel itself, which is read ahead of writing
	for i := range j.count {
		if row := rowAt(j.sel, i); !j.matched[row] {
			kept = append(kept, int32(row))
		}
	}
	j.narrowed, j.sel, j.count = kept, kept, len(kept)
	if len(kept) == 0 {
		j.phase = joinRest
	}
}

// maxLoopBlocks bounds how many pairs are tried for one batch of output.
const maxLoopBlocks = 64

// matchBuildBlocks pairs probe rows, one by one, with blocks of the build side,
// until the output is about full or the batch ends.
func (j *joinOp) matchBuildBlocks(ctx context.Context) (*columnar.Batch, error) {
	plain := j.residual == nil && j.spec.pairs && !j.spec.markBuild && !j.spec.markProbe
	for range maxLoopBlocks {
		if err := canceled(ctx); err != nil {
			return nil, err
		}
		probe := int32(rowAt(j.sel, j.at))
		lo, hi := j.skip, min(j.skip+columnar.BatchRows, j.build.store.rows)
		for i, v := range j.batch.Cols {
			j.probeOut[i] = constRow(v, int(probe), hi-lo)
		}
		j.viewBuild(lo, hi)
		if plain {
			j.advance(hi)
			return j.emit(j.probeOut, j.buildView, hi-lo, nil), nil
		}
		if err := j.tryBlock(hi - lo); err != nil {
			return nil, err
		}
		for _, i := range j.chosen {
			j.probeRows, j.buildRows = append(j.probeRows, probe), append(j.buildRows, int32(lo)+i)
		}
		if !j.spec.pairs && j.spec.markProbe && len(j.chosen) > 0 {
			hi = j.build.store.rows // the row has a match, so the other blocks do not matter
		}
		if j.advance(hi); j.phase == joinRest || len(j.probeRows) >= columnar.BatchRows/2 {
			break
		}
	}
	return j.finish()
}

// tryBlock chooses the build rows of a block that match the probe row.
func (j *joinOp) tryBlock(n int) (err error) {
	if j.residual == nil {
		j.chosen = appendRows(j.chosen[:0], nil, n)
		return nil
	}
	j.setBlock(j.probeOut, j.buildView, n, nil)
	j.chosen, err = j.residual.Filter(&j.block, j.chosen[:0])
	return err
}

// advance moves on to build row next, or to the next probe row.
func (j *joinOp) advance(next int) {
	if j.skip = next; next < j.build.store.rows {
		return
	}
	j.at, j.skip = j.at+1, 0
	if j.at >= j.count {
		j.phase = joinRest
	}
}

// viewBuild makes buildView show rows [lo, hi) of the build side, of which lo
// is a multiple of 8. The store is shared, so its scratch memory may not be
// used.
func (j *joinOp) viewBuild(lo, hi int) {
	j.rest = j.rest[:0]
	for row := lo; row < hi; row++ {
		j.rest = append(j.rest, int32(row))
	}
	for i, c := range j.build.store.cols {
		switch {
		case c.width > 0:
			c.view(lo, hi, j.buildView[i])
		case j.spec.pairs || j.spec.usedBuild[i]:
			c.gather(j.rest, j.buildView[i])
		}
	}
}

// restOf emits the rows of a probe batch that are chosen by whether they have a
// match.
func (j *joinOp) restOf(ctx context.Context, b *columnar.Batch) (*columnar.Batch, error) {
	if j.nullable != nil {
		if err := j.compareNulls(ctx, b); err != nil {
			return nil, err
		}
	}
	if !j.spec.markProbe {
		return nil, nil
	}
	if j.spec.kind == planner.MarkJoin {
		return j.markBatch(b), nil
	}
	want := j.spec.kind == planner.SemiJoin
	j.rest = j.rest[:0]
	for i := range b.Rows() {
		if row := rowAt(b.Sel, i); j.matched[row] == want {
			j.rest = append(j.rest, int32(row))
		}
	}
	switch {
	case len(j.rest) == 0:
		return nil, nil
	case j.spec.keepProbe:
		return j.emit(b.Cols, j.nullBuild, b.Len, j.rest), nil
	}
	return j.emit(b.Cols, nil, b.Len, j.rest), nil
}

// markBatch emits a probe batch with the value of its rows' marks.
func (j *joinOp) markBatch(b *columnar.Batch) *columnar.Batch {
	v := j.resetMark(b.Len)
	nullable := j.nullable == nil && len(j.spec.strictProbe) > 0 && j.build.store.rows > 0
	for i := range b.Rows() {
		row := rowAt(b.Sel, i)
		switch {
		case j.matched[row]:
			v.Data[row] = 1
		case j.nullable != nil && j.maybe[row],
			nullable && (len(j.build.nulls) > 0 || b.Cols[j.spec.strictProbe[0]].IsNull(row)):
			setNull(v, row)
		}
	}
	cols := append(append(j.out.Cols[:0], b.Cols...), v)
	j.out = columnar.Batch{Cols: cols, Len: b.Len, Sel: b.Sel}
	return &j.out
}

// resetMark prepares the mark column for n rows, all false.
func (j *joinOp) resetMark(n int) *columnar.Vector {
	v := fixedOutput(j.mark, n)
	clear(v.Data)
	return v
}

// compareNulls finds the left rows of a mark join whose comparison with some
// right row is NULL, among the pairs that have a null in a key: those of probe
// rows with one, and those of other probe rows with the build side's.
func (j *joinOp) compareNulls(ctx context.Context, b *columnar.Batch) error {
	if j.spec.markProbe {
		j.maybe = resize(j.maybe, b.Len)
		clear(j.maybe)
	}
	j.probeRows, j.buildRows = j.probeRows[:0], j.buildRows[:0]
	for i := range b.Rows() {
		row := int32(rowAt(b.Sel, i))
		if j.spec.markProbe && j.matched[row] {
			continue
		}
		n, all := len(j.build.nulls), false
		for _, k := range j.spec.strictProbe {
			if b.Cols[k].IsNull(int(row)) {
				n, all = j.build.store.rows, true
			}
		}
		for k := range n {
			other := int32(k)
			if !all {
				other = j.build.nulls[k]
			}
			j.probeRows, j.buildRows = append(j.probeRows, row), append(j.buildRows, other)
			if len(j.probeRows) == columnar.BatchRows {
				if err := j.noteNulls(ctx); err != nil {
					return err
				}
			}
		}
	}
	return j.noteNulls(ctx)
}

func (j *joinOp) noteNulls(ctx context.Context) error {
	if err := canceled(ctx); err != nil {
		return err
	}
	if len(j.probeRows) == 0 {
		return nil
	}
	if err := j.filterPairs(j.nullable); err != nil {
		return err
	}
	for i, row := range j.probeRows {
		if j.spec.markProbe {
			j.maybe[row] = true
		} else {
			j.build.maybe.add(j.buildRows[i])
		}
	}
	j.probeRows, j.buildRows = j.probeRows[:0], j.buildRows[:0]
	return nil
}

// tail emits, once all parts have read their inputs, the build rows that are
// chosen by whether they have a match.
func (j *joinOp) tail() *columnar.Batch {
	side := j.build
	j.rest = j.rest[:0]
	want := j.spec.kind == planner.SemiJoin
	for ; int(j.tailAt) < side.store.rows && len(j.rest) < columnar.BatchRows; j.tailAt++ {
		if j.spec.kind == planner.MarkJoin || side.hits.has(j.tailAt) == want {
			j.rest = append(j.rest, j.tailAt)
		}
	}
	if len(j.rest) == 0 {
		j.phase = joinDone
		return nil
	}
	side.store.gather(j.rest, j.buildOut)
	switch {
	case j.spec.pairs:
		return j.emit(j.nullProbe, j.buildOut, len(j.rest), nil)
	case j.spec.kind != planner.MarkJoin:
		return j.emit(nil, j.buildOut, len(j.rest), nil)
	}
	return j.tailMarks()
}

// tailMarks adds the marks to the build rows of the final pass.
func (j *joinOp) tailMarks() *columnar.Batch {
	side := j.build
	v := j.resetMark(len(j.rest))
	simple := j.nullable == nil && len(j.spec.strictBuild) > 0 && side.probedRows.Load()
	for i, row := range j.rest {
		switch {
		case side.hits.has(row):
			v.Data[i] = 1
		case j.nullable != nil && side.maybe.has(row),
			simple && (side.probedNull.Load() || j.buildOut[j.spec.strictBuild[0]].IsNull(i)):
			setNull(v, i)
		}
	}
	cols := append(append(j.out.Cols[:0], j.buildOut...), v)
	j.out = columnar.Batch{Cols: cols, Len: len(j.rest)}
	return &j.out
}
