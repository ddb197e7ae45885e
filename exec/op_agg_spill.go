package exec

import (
	"context"

	"skein/columnar"
	"skein/planner"
)

// aggSpill is what a final aggregate does when its groups do not fit in memory:
// their states, and all that come after, go to disk partitioned by group, and
// every partition is aggregated for itself.
type aggSpill struct {
	op     *planner.FinalAggregate
	env    *Env
	depth  int
	states []aggOutput // where states lie in the input's columns
	set    *spillSet   // nil until memory runs out
	feed   *spillFeed
	part   int
	sub    Operator
}

func (s *aggSpill) started() bool { return s != nil && s.set != nil }

// start moves the groups of a to disk.
func (s *aggSpill) start(ctx context.Context, a *aggregateOp) error {
	schema := a.input.Schema()
	var err error
	if s.set, err = newSpillSet(s.env.spill, "aggregation", schema, s.op.GroupBy, s.depth); err != nil {
		return err
	}
	s.feed = s.set.feed()
	out := outVectors(schema)
	for lo := 0; lo < a.len(); lo += columnar.BatchRows {
		if err := canceled(ctx); err != nil {
			return err
		}
		hi := min(lo+columnar.BatchRows, a.len())
		for i, c := range a.groups.keys.cols {
			c.view(lo, hi, out[s.op.GroupBy[i]])
		}
		for _, state := range s.states {
			state.state.emitState(lo, hi, out[state.first:state.first+state.width])
		}
		if err := s.feed.add(&columnar.Batch{Cols: out, Len: hi - lo}); err != nil {
			return err
		}
	}
	a.startAfresh()
	return nil
}

// next emits the next batch of the partitions.
func (s *aggSpill) next(ctx context.Context) (*columnar.Batch, error) {
	for {
		if s.sub != nil {
			b, err := s.sub.Next(ctx)
			if b != nil || err != nil {
				return b, err
			}
			if err := s.sub.Close(); err != nil {
				return nil, err
			}
			s.sub = nil
		}
		if s.part == spillFanout {
			return nil, nil
		}
		input, err := s.set.files[s.part].open()
		if err != nil {
			return nil, err
		}
		s.part++
		if s.sub, err = newFinalAggregate(input, s.op, s.env, s.set.nextDepth(s.part-1)); err != nil {
			return nil, err
		}
	}
}

func (s *aggSpill) close() error {
	if s == nil {
		return nil
	}
	var err error
	if s.sub != nil {
		err = s.sub.Close()
	}
	if e := s.set.close(); err == nil {
		err = e
	}
	return err
}
