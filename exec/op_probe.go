package exec

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/planner"
	"skein/sqlstate"
)

// joinOp is one probing part of a join: it looks its input's rows up in the
// shared build side and emits what the kind of join asks for, at most about
// BatchRows rows at a time.
type joinOp struct {
	spec     *joinSpec
	build    *buildSide
	probe    Operator
	coder    *keyCoder // nil without keys
	residual *Evaluator
	nullable *Evaluator
	phase    joinPhase
	closed   bool

	batch     *columnar.Batch // probe batch being joined
	sel       []int32         // its rows that may match; nil for all
	count     int             // how many rows that are
	ids       []int32         // their keys in the build side, -1 for none
	byBuild   bool            // without keys: probe rows are paired with blocks of build rows
	at        int             // row that is being matched
	skip      int             // candidates of that row that are done
	matched   []bool          // by row of the batch, when the join is to know
	maybe     []bool          // of a mark join: a comparison was NULL
	tailAt    int32           // build row that the final pass has come to
	partition int             // spilled partition being joined
	sub       Operator        // its join

	probeRows, buildRows []int32 // pairs of the next output batch
	selBuf, chosen, rest []int32
	narrowed             []int32
	block                columnar.Batch // pairs that the residual looks at
	probeOut, buildOut   []*columnar.Vector
	buildView            []*columnar.Vector // may share the store's memory
	gathers              []*columnar.Vector // reusable vectors behind probeOut
	nullProbe, nullBuild []*columnar.Vector // constants for missing rows
	mark                 *columnar.Vector
	out                  columnar.Batch
}

// joinPhase is what a joinOp does next.
type joinPhase uint8

const (
	joinStart   joinPhase = iota
	joinFetch             // take a probe batch
	joinMatch             // pair its rows
	joinRest              // emit its rows that are chosen by their matches
	joinTail              // emit build rows that are chosen by their matches
	joinDivert            // write the probe input to the spilled partitions
	joinSpilled           // join the spilled partitions
	joinDone
)

// prepare compiles what the part needs for itself.
func (j *joinOp) prepare() error {
	var err error
	if len(j.spec.probeKeys) > 0 {
		if j.coder, err = newKeyCoder(j.spec.probeKeys, j.spec.keyTypes, j.build.seed); err != nil {
			return err
		}
	}
	if j.spec.residual != nil {
		if j.residual, err = Compile(j.spec.residual, j.spec.pairSchema); err != nil {
			return err
		}
	}
	if j.spec.nullable != nil {
		if j.nullable, err = Compile(j.spec.nullable, j.spec.pairSchema); err != nil {
			return err
		}
	}
	// The build side's columns are gathered from its store; rejecting what it
	// cannot hold now spares a failure in the middle of the query.
	if _, err := newRowStore(j.build.input.Schema(), &Account{}); err != nil {
		return err
	}
	j.buildOut, j.buildView = outVectors(j.build.input.Schema()), outVectors(j.build.input.Schema())
	j.gathers = outVectors(j.probe.Schema())
	j.probeOut = make([]*columnar.Vector, len(j.gathers))
	j.nullProbe, j.nullBuild = nullVectors(j.probe.Schema()), nullVectors(j.build.input.Schema())
	j.mark = &columnar.Vector{Type: catalog.Boolean}
	return nil
}

// nullVectors has one constant NULL per column.
func nullVectors(schema *arrow.Schema) []*columnar.Vector {
	out := make([]*columnar.Vector, schema.NumFields())
	for i, f := range schema.Fields() {
		out[i] = columnar.NewNull(f.Type, 0)
	}
	return out
}

func (j *joinOp) Schema() *arrow.Schema { return j.spec.schema }

func (j *joinOp) Close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	var err error
	if j.sub != nil {
		err = j.sub.Close()
	}
	if e := j.probe.Close(); err == nil {
		err = e
	}
	if e := j.build.release(); err == nil {
		err = e
	}
	return err
}

func (j *joinOp) Next(ctx context.Context) (*columnar.Batch, error) {
	for j.phase != joinDone {
		if err := canceled(ctx); err != nil {
			return nil, err
		}
		var out *columnar.Batch
		var err error
		switch j.phase {
		case joinStart:
			err = j.start(ctx)
		case joinFetch:
			err = j.fetch(ctx)
		case joinMatch:
			out, err = j.match(ctx)
		case joinRest:
			out, err = j.restOf(ctx, j.batch)
			j.batch, j.phase = nil, joinFetch
		case joinTail:
			out, err = j.tail(), nil
		case joinDivert:
			err = j.divert(ctx)
		case joinSpilled:
			out, err = j.joinPartitions(ctx)
		}
		if out != nil || err != nil {
			return out, err
		}
	}
	return nil, nil
}

func (j *joinOp) start(ctx context.Context) error {
	if err := j.build.await(ctx); err != nil {
		return err
	}
	if j.coder != nil && j.build.spill == nil {
		_, dense := j.build.table.(*denseTable)
		j.coder.unhashed = dense
	}
	switch {
	case j.build.spill != nil:
		j.phase = joinDivert
	case j.build.store.rows == 0 && !j.spec.markProbe:
		j.phase = joinDone // nothing can come of any probe row
	default:
		j.phase = joinFetch
	}
	return nil
}

// fetch takes the next probe batch and looks its keys up.
func (j *joinOp) fetch(ctx context.Context) error {
	b, err := j.probe.Next(ctx)
	if err != nil {
		return err
	}
	if b == nil {
		j.phase = joinDone
		if j.build.endProbe() && j.spec.markBuild {
			j.phase = joinTail
		}
		return nil
	}
	rows := b.Rows()
	if rows == 0 {
		return nil
	}
	j.batch, j.sel, j.count = b, b.Sel, rows
	if j.spec.markProbe {
		j.matched = resize(j.matched, b.Len)
		clear(j.matched)
	}
	if j.coder != nil {
		if j.sel = selectKeyed(b.Cols, j.spec.strictProbe, b.Sel, b.Len, &j.selBuf); j.sel != nil {
			j.count = len(j.sel)
		}
	}
	if j.spec.kind == planner.MarkJoin && j.spec.buildLeft {
		j.build.probedRows.Store(true)
		if j.count < rows {
			j.build.probedNull.Store(true)
		}
	}
	j.at, j.skip, j.phase = 0, 0, joinRest
	if j.count == 0 || j.build.store.rows == 0 {
		return nil
	}
	j.phase = joinMatch
	j.byBuild = j.coder == nil && j.build.store.rows > j.count
	if j.coder != nil {
		j.coder.encode(b.Cols, j.sel, b.Len)
		j.ids = resize(j.ids, j.count)
		j.build.table.find(j.coder, j.ids)
	}
	return nil
}

// match pairs the next rows of the probe batch.
func (j *joinOp) match(ctx context.Context) (*columnar.Batch, error) {
	j.probeRows, j.buildRows = j.probeRows[:0], j.buildRows[:0]
	switch {
	case j.byBuild:
		return j.matchBuildBlocks(ctx)
	case j.coder == nil:
		return j.matchProbeBlock()
	case !j.spec.pairs && j.residual == nil:
		j.matchKeys()
	case j.build.starts == nil:
		j.matchUnique()
	default:
		j.matchChains()
	}
	if j.at >= j.count {
		j.phase = joinRest // the batch itself stays valid until probe.Next
	}
	return j.settle()
}

// matchKeys notes which rows have a match where nothing else is asked for.
func (j *joinOp) matchKeys() {
	var one [1]int32
	for i, id := range j.ids[:j.count] {
		switch {
		case id < 0:
		case j.spec.markProbe:
			j.matched[rowAt(j.sel, i)] = true
		default:
			for _, row := range j.build.matches(id, &one) {
				if j.build.hits.add(row) {
					break // whoever added the first row of a key adds all of them
				}
			}
		}
	}
	j.at = j.count
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

// settle drops the pairs that the residual refuses and emits the others.
func (j *joinOp) settle() (*columnar.Batch, error) {
	if len(j.probeRows) == 0 {
		return nil, nil
	}
	if j.residual != nil {
		if err := j.filterPairs(j.residual); err != nil {
			return nil, err
		}
	}
	return j.finish()
}

// filterPairs keeps the collected pairs that a condition accepts.
func (j *joinOp) filterPairs(condition *Evaluator) error {
	b := j.batch
	probe, build := j.probeOut, j.buildOut
	for i, v := range b.Cols {
		probe[i] = v
		if j.spec.usedProbe[i] {
			probe[i] = columnar.Gather(v, j.probeRows, j.gathers[i])
		}
	}
	for i, c := range j.build.store.cols {
		if j.spec.usedBuild[i] {
			c.gather(j.buildRows, build[i])
		}
	}
	j.setBlock(probe, build, len(j.probeRows), nil)
	var err error
	if j.chosen, err = condition.Filter(&j.block, j.chosen[:0]); err != nil {
		return err
	}
	for k, i := range j.chosen {
		j.probeRows[k], j.buildRows[k] = j.probeRows[i], j.buildRows[i]
	}
	j.probeRows, j.buildRows = j.probeRows[:len(j.chosen)], j.buildRows[:len(j.chosen)]
	return nil
}

// setBlock arranges columns of both sides as the pairs' schema has them.
func (j *joinOp) setBlock(probe, build []*columnar.Vector, n int, sel []int32) {
	if j.spec.buildLeft {
		probe, build = build, probe
	}
	j.block.Cols = append(append(j.block.Cols[:0], probe...), build...)
	j.block.Len, j.block.Sel = n, sel
}

// finish notes the collected pairs, which match, and emits them.
func (j *joinOp) finish() (*columnar.Batch, error) {
	if len(j.probeRows) == 0 {
		return nil, nil
	}
	if err := j.note(); err != nil || !j.spec.pairs {
		return nil, err
	}
	return j.assemble(), nil
}

// note remembers which rows have a match.
func (j *joinOp) note() error {
	if j.spec.markProbe {
		twice := false
		for _, row := range j.probeRows {
			twice = twice || j.matched[row]
			j.matched[row] = true
		}
		if twice && j.spec.single && !j.spec.buildLeft {
			return tooManyRows()
		}
	}
	if j.spec.markBuild {
		twice := false
		for _, row := range j.buildRows {
			twice = j.build.hits.add(row) || twice
		}
		if twice && j.spec.single && j.spec.buildLeft {
			return tooManyRows()
		}
	}
	return nil
}

func tooManyRows() error {
	return sqlstate.New(sqlstate.CardinalityViolation, "more than one row returned by a subquery used as an expression").
		WithHint("Make the subquery return one row: add a condition, an aggregate or LIMIT 1.")
}

// assemble makes the output batch of the collected pairs.
func (j *joinOp) assemble() *columnar.Batch {
	n := len(j.probeRows)
	whole := n == j.batch.Len && isIdentity(j.probeRows)
	for i, v := range j.batch.Cols {
		if whole {
			j.probeOut[i] = v
			continue
		}
		j.probeOut[i] = columnar.Gather(v, j.probeRows, j.gathers[i])
	}
	j.build.store.gather(j.buildRows, j.buildOut)
	return j.emit(j.probeOut, j.buildOut, n, nil)
}

// emit arranges columns of both sides as the output; constants may have any
// length.
func (j *joinOp) emit(probe, build []*columnar.Vector, n int, sel []int32) *columnar.Batch {
	if j.spec.buildLeft {
		probe, build = build, probe
	}
	j.out.Cols = append(append(j.out.Cols[:0], probe...), build...)
	j.out.Len, j.out.Sel = n, sel
	for i, v := range j.out.Cols {
		if v.Const && v.Len != n {
			repeated := *v
			repeated.Len = n
			j.out.Cols[i] = &repeated
		}
	}
	return &j.out
}

func isIdentity(rows []int32) bool {
	for i, row := range rows {
		if int(row) != i {
			return false
		}
	}
	return true
}
