package exec

import (
	"context"
	"errors"

	"skein/columnar"
	"skein/planner"
)

// aggRest is what a complete aggregate does when memory has no room for more
// groups. Those it has go on in memory; rows of others go to disk as they are,
// partitioned by group, and every partition is aggregated for itself afterwards.
type aggRest struct {
	op     *planner.CompleteAggregate
	env    *Env
	depth  int
	set    *spillSet // nil until memory runs out
	feed   *spillFeed
	sel    []int32
	ids    []int32
	absent []int32
	part   int
	sub    Operator
}

func (r *aggRest) started() bool { return r != nil && r.set != nil }

// start fixes the groups of a.
func (r *aggRest) start(a *aggregateOp) error {
	var err error
	if r.set, err = newSpillSet(r.env.spill, "aggregation", a.input.Schema(), r.op.GroupBy, r.depth); err != nil {
		return err
	}
	r.feed = r.set.feed()
	return nil
}

// foldKnown folds the rows whose groups are in memory and puts the others aside.
func (a *aggregateOp) foldKnown(b *columnar.Batch) error {
	r := a.rest
	ids := a.groups.find(b)
	r.sel, r.ids, r.absent = r.sel[:0], r.ids[:0], r.absent[:0]
	for i, id := range ids {
		row := int32(rowAt(b.Sel, i))
		if id < 0 {
			r.absent = append(r.absent, row)
			continue
		}
		r.sel, r.ids = append(r.sel, row), append(r.ids, id)
	}
	if len(r.absent) > 0 {
		if err := r.feed.add(&columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: r.absent}); err != nil {
			return err
		}
	}
	if len(r.sel) == 0 {
		return nil
	}
	known := &columnar.Batch{Cols: b.Cols, Len: b.Len, Sel: r.sel}
	for _, s := range a.states {
		if err := s.fold(known, r.ids); err != nil {
			return err
		}
	}
	return nil
}

// next emits the next batch of the partitions.
func (r *aggRest) next(ctx context.Context) (*columnar.Batch, error) {
	for {
		if r.sub != nil {
			b, err := r.sub.Next(ctx)
			if b != nil || err != nil {
				return b, err
			}
			if err := r.sub.Close(); err != nil {
				return nil, err
			}
			r.sub = nil
		}
		if r.part == spillFanout {
			return nil, nil
		}
		input, err := r.set.files[r.part].open()
		if err != nil {
			return nil, err
		}
		r.part++
		if r.sub, err = newCompleteAggregate(input, r.op, r.env, r.set.nextDepth(r.part-1)); err != nil {
			return nil, err
		}
	}
}

func (r *aggRest) close() error {
	if r == nil {
		return nil
	}
	var err error
	if r.sub != nil {
		err = r.sub.Close()
	}
	return errors.Join(err, r.set.close())
}
