package storage

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"skein/catalog"
	"skein/columnar"
)

// Copy follows a tablet and describes its rows as Adopts of one or two others,
// which take its place. The first round is of all rows, each further one of what
// the log has changed since: new rows, new marks and outcomes of transactions.
// Rows get new RowIDs, in the order of the old ones.
//
// A round reads what is pinned, so writers and compaction go on next to it.
// A Copy is for one goroutine. Release it.
type Copy struct {
	source   *Tablet
	splitter *catalog.Splitter
	next     []uint64
	since    uint64

	pin      *copyPin
	segments []*copiedSegment
	targets  []*copyTarget
	emit     func(CopyStep) error
}

// CopyStep is one step of a copy, for the target with an index. The Adopt has no
// Txn yet, and neither Inline nor Segments for its Segment, nil for none.
type CopyStep struct {
	Target  int
	Segment *Segment
	Adopt   Adopt
}

// CopyRound is what a round of a Copy has found.
type CopyRound struct {
	Applied uint64 // log index that the targets are as of now
	Rows    uint64 // copied
	Marks   uint64
}

// copyPin is a pinned view with the log's numbers as of it.
type copyPin struct {
	view     *view
	nextRow  uint64
	finished uint64 // number of the next finished transaction
}

// What becomes of a row of a copiedSegment, besides the index of its target.
const (
	copyDead = 0x80 // set when it is marked there
	copyNone = 0xff // it has not been copied
)

// copiedSegment is where the rows of a segment went, or of its end.
type copiedSegment struct {
	ref   *segmentRef
	from  uint64  // RowID of the first row that was new; those before are in another one
	route []uint8 // by row
	// first is the RowID of the first row in each target, and counts how many rows
	// went there before each copyBlock rows.
	first  [2]uint64
	counts [2][]uint32
}

const copyBlock = 512

// copyTarget gathers rows for one segment of a target.
type copyTarget struct {
	index   int
	table   *catalog.Table // of the columns that the rows have
	columns []int          // their ids
	batches []*columnar.Batch
	rows    int
	first   uint64
	times   []RowTime
	dead    []RowTime
}

// Bounds of one Adopt, besides those of a segment.
const (
	copyDetails  = 1 << 15 // times and marks
	copyFinished = 1 << 12
)

// NewCopy follows the tablet for targets whose next RowIDs are next: two if there
// is a splitter, one if not. The slice is shared by the copies of several tablets
// into one target, whose rounds must not overlap. Readers of the targets below
// since, a timestamp that may be now, will be refused, so row times up to there
// are not kept.
func (t *Tablet) NewCopy(splitter *catalog.Splitter, next []uint64, since uint64) *Copy {
	c := &Copy{source: t, splitter: splitter, next: next, since: since}
	for i := range next {
		c.targets = append(c.targets, &copyTarget{index: i})
	}
	return c
}

// Release lets go of what is pinned.
func (c *Copy) Release() {
	if c.pin != nil {
		c.source.unpin(c.pin.view)
		c.pin = nil
	}
}

// Round passes what is new, in order, to emit.
func (c *Copy) Round(ctx context.Context, emit func(CopyStep) error) (CopyRound, error) {
	now, outcomes, err := c.take()
	if err != nil {
		return CopyRound{}, err
	}
	c.emit = emit
	done := CopyRound{Applied: now.view.applied}
	before := c.pin
	err = func() error {
		from := uint64(0)
		if before != nil {
			from = before.nextRow
		}
		old := len(c.segments)
		if err := c.newRows(ctx, now.view, from, &done); err != nil {
			return err
		}
		if before != nil {
			if err := c.newMarks(ctx, before.view, now.view, from, c.segments[:old], &done); err != nil {
				return err
			}
		}
		return c.settle(now.view, outcomes)
	}()
	if err != nil {
		c.source.unpin(now.view)
		return done, fmt.Errorf("copying tablet %d: %w", c.source.id, err)
	}
	c.Release()
	c.pin = now
	return done, nil
}

// take pins the current state and lists the outcomes since the last round.
func (c *Copy) take() (*copyPin, []FinishedTxn, error) {
	t := c.source
	t.applyMu.Lock()
	defer t.applyMu.Unlock()
	if err := t.failure(); err != nil {
		return nil, nil, err
	}
	st := t.state
	known := uint64(0)
	if c.pin != nil {
		known = c.pin.finished
	}
	count := min(st.counters.finished-known, uint64(len(st.order)))
	outcomes := make([]FinishedTxn, 0, count)
	for _, id := range st.order[uint64(len(st.order))-count:] {
		outcomes = append(outcomes, FinishedTxn{id, st.finished[id]})
	}
	return &copyPin{view: t.pinView(), nextRow: st.counters.nextRow, finished: st.counters.finished}, outcomes, nil
}

// newRows copies the rows whose ids start at from.
func (c *Copy) newRows(ctx context.Context, v *view, from uint64, done *CopyRound) error {
	table := c.source.Table()
	for _, seg := range v.manifest {
		if seg.lastRow() < from {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		first := sort.Search(seg.meta.rows, func(row int) bool { return seg.rowID(row) >= from })
		n, err := c.copySegment(v, table, seg, first)
		if err != nil {
			return err
		}
		done.Rows += uint64(n)
	}
	for _, target := range c.targets {
		if err := c.flush(target); err != nil {
			return err
		}
	}
	return nil
}

// copySegment copies the rows of a segment from one on and returns how many.
func (c *Copy) copySegment(v *view, table *catalog.Table, seg *segmentRef, first int) (int, error) {
	done := &copiedSegment{ref: seg, from: seg.rowID(first), route: make([]uint8, seg.meta.rows)}
	died := c.deaths(seg)
	live := 0
	for row := range done.route {
		if row < first || died[row] <= c.since || died[row] == math.MaxUint64 {
			done.route[row] = copyNone
		} else {
			live++
		}
	}
	c.segments = append(c.segments, done)
	if live == 0 {
		return 0, nil
	}
	present, ordinals := presentColumns(table, []*segmentRef{seg})
	r := &chunkReader{
		store: c.source.store, table: table, tablet: c.source.id, space: v.space, instance: v.instance, read: c.source.store.view,
	}
	cols, err := r.decodeColumns(seg.id, seg.meta, ordinals)
	if err != nil {
		return 0, err
	}
	if c.splitter != nil {
		if err := c.divide(done, present, cols); err != nil {
			return 0, err
		}
	}
	for _, target := range c.targets {
		if err := c.gather(target, done, present, cols, died); err != nil {
			return 0, err
		}
	}
	return live, nil
}

// rowAlive is the time of death of a row that lives.
const rowAlive = math.MaxUint64 - 1

// deaths lists when the rows of a segment died: rowAlive for those that live and
// MaxUint64 for those that nobody ever saw.
func (c *Copy) deaths(seg *segmentRef) []uint64 {
	died := make([]uint64, seg.meta.rows)
	for row := range died {
		died[row] = rowAlive
		if seg.dropped != 0 {
			died[row] = seg.dropped
		}
	}
	run := 0
	seg.deletes.each(func(d deleteMark) {
		for run+1 < len(seg.runs) && seg.runs[run+1].row <= d.row {
			run++
		}
		died[d.row] = min(died[d.row], d.ts)
		if d.ts == seg.runs[run].ts {
			died[d.row] = math.MaxUint64
		}
	})
	return died
}

// divide routes the rows that are copied.
func (c *Copy) divide(done *copiedSegment, table *catalog.Table, cols []*columnar.Vector) error {
	key := make([]*columnar.Vector, len(c.splitter.Columns))
	for i, id := range c.splitter.Columns {
		at := table.ColumnByID(id)
		if at < 0 {
			return fmt.Errorf("segment %d has no column with the id %d to be divided by", done.ref.id, id)
		}
		flat, err := cols[at].Flatten()
		if err != nil {
			return err
		}
		key[i] = flat
	}
	keys := catalog.EncodeKeys(key, done.ref.meta.rows)
	for row, route := range done.route {
		if route != copyNone && c.splitter.Upper(keys.Key(row)) {
			done.route[row] = 1
		}
	}
	return nil
}

// gather adds a segment's rows for one target to what goes there next.
func (c *Copy) gather(target *copyTarget, done *copiedSegment, table *catalog.Table, cols []*columnar.Vector, died []uint64) error {
	sel := make([]int32, 0, len(done.route))
	counts := make([]uint32, 0, len(done.route)/copyBlock+1)
	for row, route := range done.route {
		if row%copyBlock == 0 {
			counts = append(counts, uint32(len(sel)))
		}
		if route == uint8(target.index) {
			sel = append(sel, int32(row))
		}
	}
	done.first[target.index], done.counts[target.index] = c.next[target.index], counts
	if len(sel) == 0 {
		return nil
	}
	ids := make([]int, len(table.Columns))
	for i := range ids {
		ids[i] = table.ColumnID(i)
	}
	if target.rows+len(sel) > SegmentRows || len(target.times)+len(target.dead) > copyDetails || !slices.Equal(ids, target.columns) {
		if err := c.flush(target); err != nil {
			return err
		}
	}
	for len(sel) > 0 { // times of single rows may need several Adopts
		n := c.describe(target, done, sel, died)
		target.table, target.columns = table, ids
		target.batches = append(target.batches, &columnar.Batch{Len: done.ref.meta.rows, Cols: cols, Sel: sel[:n]})
		target.rows += n
		c.next[target.index] += uint64(n)
		if sel = sel[n:]; len(sel) > 0 {
			if err := c.flush(target); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe appends the times and marks of rows, in a target's order, and returns
// of how many.
func (c *Copy) describe(target *copyTarget, done *copiedSegment, sel []int32, died []uint64) int {
	if target.rows == 0 {
		target.first = c.next[target.index]
	}
	seg, run := done.ref, 0
	for i, row := range sel {
		if len(target.times)+len(target.dead) >= 2*copyDetails {
			return i
		}
		for run+1 < len(seg.runs) && int32(seg.runs[run+1].row) <= row {
			run++
		}
		at, ts := uint64(target.rows+i), max(seg.runs[run].ts, c.since)
		if n := len(target.times); n == 0 || target.times[n-1].Time != ts {
			target.times = append(target.times, RowTime{at, ts})
		}
		if died[row] != rowAlive {
			target.dead = append(target.dead, RowTime{at, died[row]})
			done.route[row] |= copyDead
		}
	}
	return len(sel)
}

// flush emits the rows that were gathered for a target.
func (c *Copy) flush(target *copyTarget) error {
	if target.rows == 0 {
		return nil
	}
	segment, err := EncodeSegment(target.table, target.batches)
	if err != nil {
		return err
	}
	step := CopyStep{Target: target.index, Segment: segment, Adopt: Adopt{First: target.first, Times: target.times, Dead: target.dead}}
	*target = copyTarget{index: target.index}
	return c.emit(step)
}

// newMarks finds the rows copied before that have died since: they are marked,
// or compaction has left them out.
func (c *Copy) newMarks(ctx context.Context, before, now *view, from uint64, copied []*copiedSegment, done *CopyRound) error {
	marks := make([][]RowTime, len(c.targets))
	mark := func(id, ts uint64) {
		if target, row, ok := c.bury(copied, id); ok {
			marks[target] = append(marks[target], RowTime{row, ts})
		}
	}
	same := make(map[uint64]*segmentRef)
	if before.instance == now.instance {
		for _, seg := range before.manifest {
			same[seg.id] = seg
		}
	}
	kept := make(map[uint64]bool)
	for _, seg := range now.manifest {
		if seg.firstRow >= from {
			break
		}
		old := same[seg.id]
		kept[seg.id] = old != nil
		if old != nil && old.deletes == seg.deletes && old.dropped == seg.dropped {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		for row, ts := range c.deaths(seg) {
			if ts < rowAlive {
				mark(seg.rowID(row), max(ts, c.since))
			}
		}
	}
	c.leftOut(before, now, kept, mark)
	for target, list := range marks {
		slices.SortFunc(list, func(a, b RowTime) int { return cmpUint(a.Row, b.Row) })
		done.Marks += uint64(len(list))
		for chunk := range slices.Chunk(list, 2*copyDetails) {
			if err := c.emit(CopyStep{Target: target, Adopt: Adopt{Marks: chunk}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// leftOut marks the rows of segments that were replaced which are nowhere any
// more. They died by the horizon, where compaction has put it.
func (c *Copy) leftOut(before, now *view, kept map[uint64]bool, mark func(id, ts uint64)) {
	for _, seg := range before.manifest {
		if kept[seg.id] {
			continue
		}
		for row := range seg.meta.rows {
			id := seg.rowID(row)
			i := sort.Search(len(now.manifest), func(i int) bool { return now.manifest[i].firstRow > id }) - 1
			if i >= 0 {
				if _, there := now.manifest[i].row(id); there {
					continue
				}
			}
			mark(id, max(now.horizon, c.since))
		}
	}
}

// bury finds where a row went and notes its death there. It answers false for
// rows that are nowhere, or dead there already.
func (c *Copy) bury(copied []*copiedSegment, id uint64) (target int, row uint64, ok bool) {
	i := sort.Search(len(copied), func(i int) bool { return copied[i].from > id }) - 1
	if i < 0 {
		return 0, 0, false
	}
	done := copied[i]
	at, there := done.ref.row(id)
	if !there || done.route[at] == copyNone || done.route[at]&copyDead != 0 {
		return 0, 0, false
	}
	route := done.route[at]
	row = done.first[route] + uint64(done.counts[route][at/copyBlock])
	for _, other := range done.route[at/copyBlock*copyBlock : at] {
		if other&^copyDead == route {
			row++
		}
	}
	done.route[at] |= copyDead
	return int(route), row, true
}

// settle emits the outcomes of transactions and the horizon to all targets.
func (c *Copy) settle(v *view, outcomes []FinishedTxn) error {
	horizon := max(v.horizon, c.since)
	for i := range c.targets {
		if len(outcomes) == 0 && c.pin != nil && c.pin.view.horizon == v.horizon {
			continue
		}
		if len(outcomes) == 0 {
			if err := c.emit(CopyStep{Target: i, Adopt: Adopt{Horizon: horizon}}); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(outcomes, copyFinished) {
			if err := c.emit(CopyStep{Target: i, Adopt: Adopt{Finished: chunk, Horizon: horizon}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// pinView pins the current view; unpin lets go of it.
func (t *Tablet) pinView() *view {
	t.pinMu.Lock()
	defer t.pinMu.Unlock()
	v := t.view.Load()
	t.pins[v.seq]++
	return v
}

func (t *Tablet) unpin(v *view) {
	t.pinMu.Lock()
	if t.pins[v.seq]--; t.pins[v.seq] == 0 {
		delete(t.pins, v.seq)
	}
	waiting := len(t.dead) > 0
	t.pinMu.Unlock()
	if waiting {
		t.store.kick(t.id)
	}
}

// Pins is how many snapshots and copies of the tablet are open.
func (t *Tablet) Pins() int {
	t.pinMu.Lock()
	defer t.pinMu.Unlock()
	n := 0
	for _, open := range t.pins {
		n += open
	}
	return n
}
