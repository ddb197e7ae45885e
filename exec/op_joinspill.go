package exec

import (
	"context"

	"skein/columnar"
)

// joinSpill is a join whose build side did not fit in memory: both inputs are
// partitioned by key on disk and joined partition by partition, each with the
// same kind of join as the whole. Rows with null keys are in some partition and
// match nothing there either.
type joinSpill struct {
	build *spillSet
	feed  *spillFeed // of the build input
	probe *spillSet
}

// startSpill moves the stored rows, and the batch that found no room, to disk.
// b may be nil.
func (s *buildSide) startSpill(ctx context.Context, b *columnar.Batch) error {
	schema := s.input.Schema()
	build, err := newSpillSet(s.env.spill, "hash join", schema, s.spec.buildKeys, s.depth)
	if err != nil {
		return err
	}
	s.spill = &joinSpill{build: build, feed: build.feed()}
	if err := s.spill.feed.addStore(ctx, s.store); err != nil {
		return err
	}
	s.store.free()
	s.table, s.nulls, s.starts, s.rows = nil, nil, nil, nil
	s.acct.Close()
	if b == nil {
		return nil
	}
	return s.spill.addBuild(b)
}

func (p *joinSpill) addBuild(b *columnar.Batch) error { return p.feed.add(b) }

// startProbe makes the files of the probe side, once.
func (s *buildSide) startProbe(j *joinOp) (*spillSet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spill.probe != nil {
		return s.spill.probe, nil
	}
	var err error
	s.spill.probe, err = newSpillSet(s.env.spill, "hash join", j.probe.Schema(), s.spec.probeKeys, s.depth)
	return s.spill.probe, err
}

func (p *joinSpill) close() error {
	if p == nil {
		return nil
	}
	err := p.build.close()
	if e := p.probe.close(); err == nil {
		err = e
	}
	return err
}

// divert writes the part's probe rows to the partitions. The last part goes on
// to join them.
func (j *joinOp) divert(ctx context.Context) error {
	set, err := j.build.startProbe(j)
	if err != nil {
		return err
	}
	feed := set.feed()
	for {
		b, err := j.probe.Next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if err := feed.add(b); err != nil {
			return err
		}
	}
	j.phase = joinDone
	if !j.build.endProbe() {
		return nil
	}
	j.phase = joinSpilled
	if err := j.build.spill.build.finish(); err != nil {
		return err
	}
	return set.finish()
}

// joinPartitions emits the next batch of the partitions' joins.
func (j *joinOp) joinPartitions(ctx context.Context) (*columnar.Batch, error) {
	for {
		if j.sub != nil {
			b, err := j.sub.Next(ctx)
			if b != nil || err != nil {
				return b, err
			}
			if err := j.sub.Close(); err != nil {
				return nil, err
			}
			j.sub = nil
		}
		if j.partition == spillFanout {
			j.phase = joinDone
			return nil, nil
		}
		if err := j.openPartition(); err != nil {
			return nil, err
		}
	}
}

func (j *joinOp) openPartition() error {
	p := j.partition
	j.partition++
	build, err := j.build.spill.build.files[p].open()
	if err != nil {
		return err
	}
	probe, err := j.build.spill.probe.files[p].open()
	if err != nil {
		return err
	}
	left, right := probe, build
	if j.spec.buildLeft {
		left, right = build, probe
	}
	parts, err := j.spec.parts([]Operator{left}, []Operator{right}, j.build.env, j.build.spill.build.nextDepth(p))
	if err != nil {
		return err
	}
	j.sub = parts[0]
	return nil
}
