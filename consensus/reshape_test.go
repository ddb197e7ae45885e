package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
	"skein/storage"
)

func keyOf(key int64) []byte {
	return catalog.AppendKey(nil, []*columnar.Vector{{Type: catalog.BigInt, Len: 1, Data: columnar.Bytes([]int64{key})}}, 0)
}

// routed inserts a key through a node into the tablet that owns it there now, and
// with the same transaction into the ones that take its place.
func routed(ctx context.Context, n *Node, table catalog.TableID, key int64, replace bool) (storage.Result, error) {
	for {
		t, ok := n.Meta().Local().Table(table)
		if !ok {
			return storage.Result{}, fmt.Errorf("table %d is gone", table)
		}
		router, err := catalog.NewRouter(t)
		if err != nil {
			return storage.Result{}, err
		}
		command, err := insertOf(n, t, key)
		if err != nil {
			return storage.Result{}, err
		}
		if replace {
			command.OnConflict = storage.OnConflictReplace
			command.Txn = uuid.NewString()
		}
		version := n.Meta().Local().Version
		result, err := n.Host().Propose(ctx, t.Tablets[router.RouteKey(keyOf(key))].ID, command)
		if !errors.Is(err, ErrTabletReplaced) {
			return result, err
		}
		if _, err := n.Meta().Watch(ctx, version, time.Second); err != nil {
			return storage.Result{}, err
		}
	}
}

// load inserts and replaces rows until stop is closed. It counts the keys, from 0
// on, and notes the longest that a write took.
type load struct {
	t       *testing.T
	n       *Node
	table   catalog.TableID
	stop    chan struct{}
	done    sync.WaitGroup
	keys    atomic.Int64
	longest atomic.Int64
}

func (c *testCluster) load(on catalog.NodeID, table catalog.TableID, first int64) *load {
	l := &load{t: c.t.(*testing.T), n: c.nodes[on], table: table, stop: make(chan struct{})}
	l.keys.Store(first)
	for w := range 4 {
		rng := rand.New(rand.NewPCG(uint64(w), 3))
		l.done.Go(func() {
			for !isClosed(l.stop) {
				key, replace := l.keys.Load(), false
				if rng.IntN(4) == 0 && key > 8 {
					key, replace = rng.Int64N(key-8), true // of those there for sure, with 4 writers
				} else {
					key = l.keys.Add(1) - 1
				}
				began := time.Now()
				r, err := routed(testContext(l.t), l.n, l.table, key, replace)
				if err != nil || (r.Outcome != storage.Committed && sqlstate.CodeOf(errorOf(r)) != sqlstate.SerializationFailure) {
					l.t.Errorf("key %d: %v, %v, %v", key, r.Outcome, r.Err, err)
					return
				}
				for took := int64(time.Since(began)); ; {
					most := l.longest.Load()
					if took <= most || l.longest.CompareAndSwap(most, took) {
						break
					}
				}
			}
		})
	}
	return l
}

func errorOf(r storage.Result) error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}

func (l *load) end() int64 {
	close(l.stop)
	l.done.Wait()
	return l.keys.Load()
}

// seed inserts keys in bulk.
func (c *testCluster) seed(on catalog.NodeID, table *catalog.Table, first, n int64) {
	c.t.Helper()
	keys, text, offsets := make([]int64, n), []byte{}, make([]int32, 1, n+1)
	for i := range keys {
		keys[i] = first + int64(i)
		text = fmt.Append(text, "value ", keys[i])
		offsets = append(offsets, int32(len(text)))
	}
	segment, err := storage.EncodeSegment(table, []*columnar.Batch{{Len: int(n), Cols: []*columnar.Vector{
		{Type: catalog.BigInt, Len: int(n), Data: columnar.Bytes(keys)}, {Type: catalog.Text, Len: int(n), Data: text, Offsets: offsets},
	}}})
	if err != nil {
		c.t.Fatal(err)
	}
	commit := storage.Commit{Txn: fmt.Sprint("seed ", first), Timestamp: c.nodes[on].Clock().Now(), Inline: segment.Parts()[0]}
	if r := c.propose(on, table.Tablets[0].ID, commit); r.Outcome != storage.Committed {
		c.t.Fatalf("%v, %v", r.Outcome, r.Err)
	}
}

// reshape asks for a split or merge.
func (c *testCluster) reshape(on catalog.NodeID, kind JobKind, at *catalog.Splitter, tablets ...catalog.TabletID) Job {
	c.t.Helper()
	reply, err := c.nodes[on].Meta().ReshapeTablets(testContext(c.t), ReshapeTablets{RequestID: uuid.NewString(), Kind: kind, Tablets: tablets, At: at})
	if err != nil {
		c.t.Fatal(err)
	}
	return *reply.Job
}

// jobEnds waits until a job is over on all running nodes.
func (c *testCluster) jobEnds(id uint64, want JobState) Job {
	c.t.Helper()
	var job Job
	for _, n := range c.nodes {
		c.eventually(n, func() bool { job, _ = n.Meta().Local().Job(id); return job.State != JobRunning }, "job %d goes on: %+v", id, &job)
	}
	if job.State != want {
		c.t.Fatalf("the job is %+v", job)
	}
	return job
}

// contents lists the keys of a table, as a node reads it, in order.
func (c *testCluster) contents(on catalog.NodeID, table catalog.TableID) (keys []int64) {
	c.t.Helper()
	n := c.nodes[on]
	t, _ := n.Meta().Local().Table(table)
	router, err := catalog.NewRouter(t)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range t.Tablets {
		id := t.Tablets[i].ID
		if err := n.Host().awaitLed(testContext(c.t), id); err != nil {
			c.t.Fatal(err)
		}
		now := c.latest(n)
		if err := n.Host().ReadAt(testContext(c.t), id, now); err != nil {
			c.t.Fatal(err)
		}
		store, ok := n.Host().Tablet(id)
		if !ok {
			c.t.Fatalf("tablet %d is not here", id)
		}
		snapshot, err := store.Snapshot(now)
		if err != nil {
			c.t.Fatal(err)
		}
		scanners, err := snapshot.Scan(storage.ScanOptions{Columns: []int{0, 1}, Parallelism: 1})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range scanners {
			for {
				batch, err := s.Next(testContext(c.t))
				if err != nil {
					c.t.Fatal(err)
				}
				if batch == nil {
					break
				}
				for k := range batch.Rows() {
					row := k
					if batch.Sel != nil {
						row = int(batch.Sel[k])
					}
					key := columnar.Values[int64](batch.Cols[0])[row]
					if router.RouteKey(keyOf(key)) != i {
						c.t.Fatalf("key %d is in tablet %d", key, id)
					}
					if text := string(batch.Cols[1].BytesAt(row)); text != fmt.Sprint("value ", key) {
						c.t.Fatalf("key %d has %q", key, text)
					}
					keys = append(keys, key)
				}
			}
		}
		snapshot.Release()
	}
	slices.Sort(keys)
	return keys
}

// latest is a timestamp above all that was committed anywhere.
func (c *testCluster) latest(n *Node) uint64 {
	c.t.Helper()
	var now uint64
	for _, other := range c.nodes {
		now = max(now, other.Clock().Now())
		for _, status := range other.Host().Tablets() {
			if tablet, ok := other.Host().Tablet(status.Tablet); ok {
				now = max(now, tablet.LastTimestamp())
			}
		}
	}
	if err := n.Clock().Observe(now); err != nil {
		c.t.Fatal(err)
	}
	return now
}

func wantKeys(t testing.TB, got []int64, n int64) {
	t.Helper()
	for i := range n {
		if i >= int64(len(got)) || got[i] != i {
			t.Fatalf("of %d keys there are %d, and number %d differs", n, len(got), i)
		}
	}
	if int64(len(got)) != n {
		t.Fatalf("%d keys, not %d", len(got), n)
	}
}

func hashBuckets(name string, replicas int) *catalog.Table {
	t := plainTable(name, replicas)
	t.Partitioning = catalog.Partitioning{Kind: catalog.Hash, Columns: []int{0}, Buckets: 16}
	t.Tablets[0].BucketHigh = 16
	return t
}

// Tablets are split and merged while rows are written to them: nothing fails,
// nothing is lost or doubled, and writers hardly wait.
func TestTabletsAreReshapedUnderLoad(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes int
		table *catalog.Table
		at    *catalog.Splitter
	}{
		{"hash on one node", 1, hashBuckets("h", 1), &catalog.Splitter{Columns: []int{1}, Buckets: 16, Bucket: 5}},
		{"key range on three nodes", 3, plainTable("r", 3), &catalog.Splitter{Columns: []int{1}, Key: keyOf(700)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, tc.nodes, nil)
			for i := range tc.nodes {
				c.start(catalog.NodeID(i + 1))
			}
			c.ready()
			table := c.create(1, tc.table)
			c.seed(1, table, 0, 500)
			writing := c.load(1, table.ID, 500)
			source := table.Tablets[0].ID
			job := c.reshape(1, JobSplit, tc.at, source)
			job = c.jobEnds(job.ID, JobDone)
			t.Logf("split: %s; the longest write took %v", job.Note, time.Duration(writing.longest.Load()))
			now, _ := c.nodes[1].Meta().Local().Table(table.ID)
			if len(now.Tablets) != 2 || now.Tablets[0].Generation != 2 || now.Version != table.Version {
				t.Fatalf("after the split the table is %+v", now)
			}
			if got := c.nodes[1].Meta().Local().Follow(source); !slices.Equal(got, tabletIDs(now.Tablets)) {
				t.Fatalf("tablet %d is followed by %v", source, got)
			}
			merge := c.reshape(1, JobMerge, nil, now.Tablets[1].ID, now.Tablets[0].ID)
			merge = c.jobEnds(merge.ID, JobDone)
			t.Logf("merge: %s; the longest write took %v", merge.Note, time.Duration(writing.longest.Load()))
			n := writing.end()
			if now, _ = c.nodes[1].Meta().Local().Table(table.ID); len(now.Tablets) != 1 || now.Tablets[0].Generation != 3 {
				t.Fatalf("after the merge the table is %+v", now)
			}
			for id := range c.nodes {
				wantKeys(t, c.contents(id, table.ID), n)
			}
			// A write that is repeated with its id is known to the tablet that has its
			// rows now, and the replaced tablets leave nothing behind.
			if r, err := routed(testContext(t), c.nodes[1], table.ID, 501, false); err != nil || r.Outcome != storage.Committed {
				t.Fatalf("a repeated write: %v, %v, %v", r.Outcome, r.Err, err)
			}
			wantKeys(t, c.contents(1, table.ID), n)
			for _, node := range c.nodes {
				c.eventually(node, func() bool { return len(node.Host().Tablets()) == 1 && len(node.Host().logs()) == 1 }, "replicas of replaced tablets stay")
			}
		})
	}
}

// A transaction that goes on keeps a tablet from being sealed, and only it.
func TestReshapeWaitsForTransactions(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	table := c.create(1, plainTable("t", 1))
	c.seed(1, table, 0, 100)
	source := table.Tablets[0].ID
	if r := c.propose(1, source, storage.Begin{Txn: "slow"}); r.Outcome != storage.Staged {
		t.Fatalf("%v, %v", r.Outcome, r.Err)
	}
	job := c.reshape(1, JobSplit, &catalog.Splitter{Columns: []int{1}, Key: keyOf(50)}, source)
	n := c.nodes[1]
	var now Job
	c.eventually(n, func() bool {
		now, _ = n.Meta().Local().Job(job.ID)
		return now.Note == "waits for transaction slow to end"
	}, "the job says %+v", &now)
	c.seed(1, table, 100, 10) // others go on
	command, err := insertOf(n, table, 110)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.propose(1, source, storage.Stage{Txn: "slow", Parts: 1, Data: command.Inline}); r.Outcome != storage.Staged {
		t.Fatalf("%v, %v", r.Outcome, r.Err)
	}
	if r := c.propose(1, source, storage.Commit{Txn: "slow", Segments: 1, Timestamp: n.Clock().Now()}); r.Outcome != storage.Committed {
		t.Fatalf("%v, %v", r.Outcome, r.Err)
	}
	c.jobEnds(job.ID, JobDone)
	wantKeys(t, c.contents(1, table.ID), 111)
	if _, err := n.Host().Propose(testContext(t), source, storage.Begin{Txn: "late"}); !errors.Is(err, ErrTabletReplaced) {
		t.Fatalf("a write to the replaced tablet: %v", err)
	}
}

// A job that is given up leaves the tablet as it was, and open.
func TestReshapeIsAborted(t *testing.T) {
	sealed := make(chan struct{}, 1)
	hold := make(chan struct{})
	c := newCluster(t, 1, func(cfg *NodeConfig) {
		cfg.Host.reshape = func(p reshapePoint) {
			if p == reshapeSealed {
				select {
				case sealed <- struct{}{}:
					<-hold
				default:
				}
			}
		}
	})
	c.start(1)
	c.ready()
	table := c.create(1, hashBuckets("t", 1))
	c.seed(1, table, 0, 100)
	job := c.reshape(1, JobSplit, &catalog.Splitter{Columns: []int{1}, Buckets: 16, Bucket: 8}, table.Tablets[0].ID)
	<-sealed
	n := c.nodes[1]
	now, _ := n.Meta().Local().Job(job.ID)
	end := EndJob{RequestID: "end", ID: now.ID, Epoch: now.Epoch, From: now.Phase, State: JobDone}
	if _, err := n.Meta().EndJob(testContext(t), end); sqlstate.CodeOf(err) != sqlstate.ObjectNotInState {
		t.Fatalf("ending a job that is not done: %v", err)
	}
	end.RequestID, end.State, end.Error = "abort", JobAborted, "not wanted"
	if _, err := n.Meta().EndJob(testContext(t), end); err != nil {
		t.Fatal(err)
	}
	close(hold)
	c.jobEnds(job.ID, JobAborted)
	c.seed(1, table, 100, 10)
	wantKeys(t, c.contents(1, table.ID), 110)
	c.eventually(n, func() bool { return len(n.Host().Tablets()) == 1 }, "the targets stay")
	if now, _ := n.Meta().Local().Table(table.ID); len(now.Tablets) != 1 || now.Tablets[0].ID != table.Tablets[0].ID {
		t.Fatalf("the table is %+v", now)
	}
}

// A tablet is started with one description: again is fine, with other rows not.
func TestTabletsKeepTheirBounds(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.start(1)
	c.ready()
	table, other := c.create(1, hashBuckets("t", 1)), c.create(1, hashBuckets("o", 1))
	h := c.nodes[1].Host()
	tablet := table.Tablets[0]
	if err := h.StartTablet(testContext(t), table, tablet); err != nil {
		t.Fatal(err)
	}
	if err := h.StartTablet(testContext(t), other, tablet); !errors.Is(err, ErrOtherTablet) {
		t.Fatalf("of another table: %v", err)
	}
	tablet.BucketHigh--
	if err := h.StartTablet(testContext(t), table, tablet); !errors.Is(err, ErrOtherTablet) {
		t.Fatalf("with other buckets: %v", err)
	}
}
