package exec

import (
	"context"
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
)

// aggShards is a final or complete aggregate that several goroutines build: its
// groups are divided by a hash of their keys, each input runs in a goroutine of
// its own, and folds every batch into all shards, which it locks one at a time.
// The shards then are parts of a stream like any other.
type aggShards struct {
	inputs  []Operator
	groupBy []int
	shards  []*aggShard

	mu    sync.Mutex
	state chan struct{} // closed when all inputs have ended; nil before they began
	err   error
	users int // shards that are not closed
}

// aggShard is the groups of one shard.
type aggShard struct {
	all    *aggShards
	index  int
	mu     sync.Mutex   // of agg, while inputs run
	agg    *aggregateOp // over an input that has only a schema
	closed bool
}

// endedOp is an empty input.
type endedOp struct{ schema *arrow.Schema }

func (e *endedOp) Schema() *arrow.Schema                         { return e.schema }
func (e *endedOp) Next(context.Context) (*columnar.Batch, error) { return nil, nil }
func (e *endedOp) Close() error                                  { return nil }

// newAggShards returns n parts that share the aggregation of inputs; build makes
// the aggregate of one over the rows of its shard.
func newAggShards(inputs []Operator, groupBy []int, n int, build func(Operator) (Operator, error)) ([]Operator, error) {
	all := &aggShards{inputs: inputs, groupBy: groupBy, users: n}
	parts := make([]Operator, n)
	for i := range parts {
		op, err := build(&endedOp{schema: inputs[0].Schema()})
		if err != nil {
			return nil, err
		}
		shard := &aggShard{all: all, index: i, agg: op.(*aggregateOp)}
		all.shards = append(all.shards, shard)
		parts[i] = shard
	}
	return parts, nil
}

func (s *aggShard) Schema() *arrow.Schema { return s.agg.schema }

func (s *aggShard) Next(ctx context.Context) (*columnar.Batch, error) {
	if err := s.all.await(ctx); err != nil {
		return nil, err
	}
	return s.agg.Next(ctx)
}

func (s *aggShard) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.agg.Close()
	s.all.mu.Lock()
	s.all.users--
	last := s.all.users == 0
	s.all.mu.Unlock()
	if last {
		if e := closeAll(s.all.inputs); err == nil {
			err = e
		}
	}
	return err
}

// await runs the inputs, or waits for the part that does.
func (a *aggShards) await(ctx context.Context) error {
	a.mu.Lock()
	state := a.state
	mine := state == nil
	if mine {
		state = make(chan struct{})
		a.state = state
	}
	a.mu.Unlock()
	if mine {
		a.err = a.run(ctx)
		close(state)
		return a.err
	}
	select {
	case <-state:
		return a.err
	case <-ctx.Done():
		return canceled(ctx)
	}
}

// run folds all inputs and waits for its goroutines.
func (a *aggShards) run(ctx context.Context) error {
	c := &crew{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(errStopped)
	for i, in := range a.inputs {
		c.wg.Go(func() {
			if err := guard("aggregating", func() error { return a.drive(c.ctx, in, i) }); err != nil {
				c.cancel(err)
			}
		})
	}
	c.wg.Wait()
	if c.ctx.Err() != nil {
		return c.failure(ctx)
	}
	return nil
}

// drive folds one input.
func (a *aggShards) drive(ctx context.Context, in Operator, number int) error {
	hasher := partitionHasher{keys: a.groupBy}
	sels := make([][]int32, len(a.shards))
	part := &columnar.Batch{}
	for {
		b, err := in.Next(ctx)
		if b == nil || err != nil {
			return err
		}
		if b.Rows() == 0 {
			continue
		}
		for p := range sels {
			sels[p] = sels[p][:0]
		}
		for i, h := range hasher.hash(b) {
			p := shardOf(h, len(sels))
			sels[p] = append(sels[p], int32(rowAt(b.Sel, i)))
		}
		// The inputs begin with different shards, so that they seldom meet.
		for k := range sels {
			p := (number + k) % len(sels)
			if len(sels[p]) == 0 {
				continue
			}
			part.Cols, part.Len, part.Sel = b.Cols, b.Len, sels[p]
			if err := a.shards[p].fold(ctx, part); err != nil {
				return err
			}
		}
	}
}

func (s *aggShard) fold(ctx context.Context, b *columnar.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.agg.add(ctx, b)
	return err
}

// shardOf maps a hash to one of n shards. Rows may have been routed by the hash
// itself, so it is mixed anew.
func shardOf(hash uint64, n int) int {
	p, _ := bits.Mul64(mix64(hash, partitionSeed), uint64(n))
	return int(p)
}
