package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/storage"
)

// readAt counts the rows of a tablet on a node at a timestamp.
func readAt(ctx context.Context, n *Node, tablet catalog.TabletID, timestamp uint64) (uint64, error) {
	if err := n.Clock().Observe(timestamp); err != nil {
		return 0, err
	}
	if err := n.Host().ReadAt(ctx, tablet, timestamp); err != nil {
		return 0, err
	}
	store, ok := n.Host().Tablet(tablet)
	if !ok {
		return 0, ErrNotReady
	}
	for ctx.Err() == nil {
		snapshot, err := store.Snapshot(timestamp)
		var doubt *storage.InDoubtError
		if errors.As(err, &doubt) {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		defer snapshot.Release()
		return snapshot.Rows(), nil
	}
	return 0, context.Cause(ctx)
}

// commitPair inserts a row into each of two tablets in one transaction, whose
// steps go through two nodes.
func commitPair(ctx context.Context, t *testing.T, a, b *Node, table *catalog.Table, key int64) (uint64, error) {
	row := insert(t, a, table, key)
	nodes, timestamp := [2]*Node{a, b}, uint64(0)
	for i, n := range nodes {
		tablet := table.Tablets[i].ID
		steps := []storage.Command{
			storage.Stage{Txn: row.Txn, Parts: 1, Data: row.Inline},
			storage.Prepare{Txn: row.Txn, Segments: 1, Primary: table.Tablets[0].ID, Floor: n.Clock().Now()},
		}
		for _, step := range steps {
			if r, err := n.Host().Propose(ctx, tablet, step); err != nil || r.Err != nil {
				return 0, errors.Join(err, r.Err)
			}
		}
		store, ok := n.Host().Tablet(tablet)
		if !ok {
			return 0, ErrNotReady
		}
		for _, prepared := range store.InDoubt() {
			if prepared.Txn == row.Txn {
				timestamp = max(timestamp, prepared.Floor)
			}
		}
		timestamp = max(timestamp, n.Clock().Now())
	}
	timestamp++
	for i, n := range nodes {
		r, err := n.Host().Propose(ctx, table.Tablets[i].ID, storage.Commit{Txn: row.Txn, Segments: 1, Timestamp: timestamp})
		if err != nil || r.Outcome != storage.Committed || r.Timestamp != timestamp {
			return 0, fmt.Errorf("commit of %s at %d: %s at %d, %v, %w", row.Txn, timestamp, r.Outcome, r.Timestamp, r.Err, err)
		}
	}
	return timestamp, nil
}

// TestReadsAreRepeatable has writers and readers on all nodes. Whoever reads a
// timestamp reads it again, elsewhere, and must find the same rows; must find
// what was acknowledged before at or below it; and of transactions over two
// tablets both halves. Meanwhile the leadership moves.
func TestReadsAreRepeatable(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size, " nodes"), func(t *testing.T) { testRepeatable(t, size) })
	}
}

func testRepeatable(t *testing.T, size int) {
	c := newCluster(t, size, nil)
	for id := range size {
		c.start(catalog.NodeID(id + 1))
	}
	c.ready()
	single := c.create(1, plainTable("single", size))
	pair := c.create(1, hashTable("pair", size, 2))
	ctx, cancel := context.WithTimeout(testContext(t), 2*time.Second)
	defer cancel()
	var keys atomic.Int64
	var acknowledged sync.Map // timestamp of a commit to single -> true
	node := func() *Node { return c.nodes[catalog.NodeID(rand.IntN(size)+1)] }
	var writers, readers errgroup.Group
	for range 3 {
		writers.Go(func() error {
			for ctx.Err() == nil {
				n := node()
				r, err := n.Host().Propose(testContext(t), single.Tablets[0].ID, insert(t, n, single, keys.Add(1)))
				if err != nil || r.Outcome != storage.Committed {
					return fmt.Errorf("writing: %v, %v, %w", r.Outcome, r.Err, err)
				}
				acknowledged.Store(r.Timestamp, true)
			}
			return nil
		})
	}
	writers.Go(func() error {
		for ctx.Err() == nil {
			if _, err := commitPair(testContext(t), t, node(), node(), pair, keys.Add(1)); err != nil {
				return fmt.Errorf("writing a pair: %w", err)
			}
		}
		return nil
	})
	if size > 1 {
		writers.Go(func() error {
			for next := 1; ctx.Err() == nil; next = next%size + 1 {
				for _, table := range []*catalog.Table{single, pair} {
					_ = node().Host().TransferLeader(ctx, table.Tablets[0].ID, catalog.NodeID(next)) // may be refused
				}
				select {
				case <-ctx.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
			return nil
		})
	}
	var reads atomic.Int64
	for range 4 {
		readers.Go(func() error {
			for ctx.Err() == nil {
				timestamp, least := node().Clock().Now(), uint64(0)
				acknowledged.Range(func(ts, _ any) bool {
					if ts.(uint64) <= timestamp {
						least++
					}
					return true
				})
				if err := readTwice(testContext(t), node, single.Tablets[0].ID, timestamp, least); err != nil {
					return err
				}
				left, err := readAt(testContext(t), node(), pair.Tablets[0].ID, timestamp)
				if err != nil {
					return err
				}
				right, err := readAt(testContext(t), node(), pair.Tablets[1].ID, timestamp)
				if err != nil {
					return err
				}
				if left != right {
					return fmt.Errorf("at %d there are %d rows of pairs on one tablet and %d on the other", timestamp, left, right)
				}
				reads.Add(1)
			}
			return nil
		})
	}
	if err := errors.Join(readers.Wait(), writers.Wait()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads among %d writes", reads.Load(), keys.Load())
	if reads.Load() < 10 || keys.Load() < 10 {
		t.Fatalf("only %d reads and %d writes were made", reads.Load(), keys.Load())
	}
}

func readTwice(ctx context.Context, node func() *Node, tablet catalog.TabletID, timestamp, least uint64) error {
	first, err := readAt(ctx, node(), tablet, timestamp)
	if err != nil {
		return err
	}
	if first < least {
		return fmt.Errorf("at %d there are %d rows, of which %d were acknowledged before", timestamp, first, least)
	}
	again, err := readAt(ctx, node(), tablet, timestamp)
	if err != nil {
		return err
	}
	if first != again {
		return fmt.Errorf("at %d there were %d rows and then %d", timestamp, first, again)
	}
	return nil
}

// TestLostProposalsCommitAboveReads: a proposal whose caller has given up may
// still be applied, but not below what was read since.
func TestLostProposalsCommitAboveReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	leader := c.leader(tablet)
	n := c.nodes[leader]
	r, _ := n.Host().replica(tablet)
	if _, err := readAt(testContext(t), n, tablet, n.Clock().Now()); err != nil {
		t.Fatal(err)
	}
	command, flight := r.reads.depart(insert(t, n, table, 1))
	entry, err := storage.EncodeCommand(command)
	if err != nil {
		t.Fatal(err)
	}
	r.reads.arrive(flight, ErrUnavailable) // and yet the entry is on its way
	timestamp := n.Clock().Now()
	if rows, err := readAt(testContext(t), n, tablet, timestamp); err != nil || rows != 0 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	result, err := r.propose(testContext(t), entry)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := storage.DecodeResult(result.Data)
	if err != nil || answer.Outcome != storage.Committed || answer.Timestamp <= timestamp {
		t.Fatalf("committed as %+v after a read at %d, %v", answer, timestamp, err)
	}
	for id := range c.nodes {
		if rows, err := readAt(testContext(t), c.nodes[id], tablet, timestamp); err != nil || rows != 0 {
			t.Fatalf("node %d: %d rows at the timestamp that was read before, %v", id, rows, err)
		}
	}
}

// TestLeasedReadsNeedNoQuorum: below the end of its lease a replica answers by
// itself, above it does not.
func TestLeasedReadsNeedNoQuorum(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, plainTable("t", 3))
	tablet := table.Tablets[0].ID
	c.commit(1, table, tablet, 1)
	leader := c.leader(tablet)
	n := c.nodes[leader]
	covered := n.Clock().Now()
	if rows, err := readAt(testContext(t), n, tablet, covered); err != nil || rows != 1 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	for id := range c.members {
		if id != leader {
			c.stop(id)
		}
	}
	if rows, err := readAt(testContext(t), n, tablet, covered); err != nil || rows != 1 {
		t.Fatalf("under the lease, without a quorum: %d rows, %v", rows, err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	beyond := n.Clock().Now() + 2*leaseTicks
	if _, err := readAt(ctx, n, tablet, beyond); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("beyond the lease, without a quorum: %v", err)
	}
}

// TestClockStartsAboveWhatIsStored: a node whose wall clock was set back does
// not hand out timestamps that it has used.
func TestClockStartsAboveWhatIsStored(t *testing.T) {
	t.Parallel()
	ahead := 5 * time.Second
	c := newCluster(t, 1, func(cfg *NodeConfig) {
		shift := ahead
		cfg.Host.Clock = NewClock(WithWall(func() time.Time { return time.Now().Add(shift) }))
	})
	c.start(1)
	c.ready()
	table := c.create(1, plainTable("t", 1))
	tablet := table.Tablets[0].ID
	c.commit(1, table, tablet, 1)
	store, _ := c.nodes[1].Host().Tablet(tablet)
	last := store.LastTimestamp()
	c.stop(1)
	ahead = 0
	c.start(1)
	c.ready()
	if now := c.nodes[1].Clock().Now(); now <= last {
		t.Fatalf("the clock stands at %d, a commit is stored at %d", now, last)
	}
	if rows, err := readAt(testContext(t), c.nodes[1], tablet, c.nodes[1].Clock().Now()); err != nil || rows != 1 {
		t.Fatalf("%d rows, %v", rows, err)
	}
}
