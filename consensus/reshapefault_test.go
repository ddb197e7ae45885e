package consensus

import (
	"context"
	"fmt"
	"testing"

	"skein/catalog"
	"skein/storage"
)

// reshapeRequest is what a node that is to die asks for: the split of the only
// tablet of a table, or the merge of two.
func reshapeRequest(t *catalog.Table, kind JobKind) ReshapeTablets {
	r := ReshapeTablets{RequestID: "reshape", Kind: kind, Tablets: tabletIDs(t.Tablets)}
	if kind == JobSplit {
		r.At = &catalog.Splitter{Columns: []int{1}, Buckets: 16, Bucket: 8}
	}
	return r
}

// reshapes makes a table, asks for a job on its tablets and inserts rows until
// the node dies.
func (w childWork) reshapes(ctx context.Context, n *Node) error {
	table := hashBuckets("t", 1)
	if w.Kind == JobMerge {
		table = hashTable("t", 1, 2)
	}
	reply, err := n.Meta().CreateTable(ctx, CreateTable{RequestID: "create", Table: table})
	if err != nil {
		return err
	}
	if err := n.Host().WaitTablets(ctx, reply.Table.ID); err != nil {
		return err
	}
	for key := int64(0); ctx.Err() == nil; key++ {
		if key == w.Keys {
			if _, err := n.Meta().ReshapeTablets(ctx, reshapeRequest(reply.Table, w.Kind)); err != nil {
				return err
			}
		}
		r, err := routed(ctx, n, reply.Table.ID, key, false)
		if err != nil || r.Outcome != storage.Committed {
			return fmt.Errorf("key %d: %v, %v, %w", key, r.Outcome, r.Err, err)
		}
		fmt.Println("ack", key)
	}
	return errNotReached
}

// TestNodeDiesReshaping kills a node at every step of a split and of a merge, while
// rows are written. When it is back the job is brought to its end, and every row
// that was acknowledged is there once. Every other time the machine fails with
// the process.
func TestNodeDiesReshaping(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct {
		kind  JobKind
		point reshapePoint
	}{
		{JobSplit, reshapeClaimed}, {JobSplit, reshapeBuilt}, {JobSplit, reshapeCaught}, {JobSplit, reshapeSealed},
		{JobSplit, reshapeComplete}, {JobSplit, reshapePublished}, {JobSplit, reshapeEnded},
		{JobMerge, reshapeBuilt}, {JobMerge, reshapeSealed}, {JobMerge, reshapeComplete}, {JobMerge, reshapePublished}, {JobMerge, reshapeEnded},
	} {
		t.Run(fmt.Sprintf("%s %s", tc.kind, tc.point), func(t *testing.T) {
			t.Parallel()
			boot := "boot"
			c := newCluster(t, 1, func(cfg *NodeConfig) { cfg.Store.Boot = func() string { return boot } })
			w := childWork{
				Members: c.members, Node: 1, Dir: c.config(1).DataDir, Boot: boot, Reshape: tc.point, Kind: tc.kind, Keys: 100,
			}
			acked := w.dies(t)
			boot = fmt.Sprint("boot", i%2)
			c.start(1)
			c.ready()
			job := c.jobEnds(1, JobDone)
			n := c.nodes[1]
			table, _ := n.Meta().Local().Table(job.Table)
			if want := map[JobKind]int{JobSplit: 2, JobMerge: 1}[tc.kind]; len(table.Tablets) != want {
				t.Fatalf("there are %d tablets", len(table.Tablets))
			}
			next := acked[len(acked)-1] + 1
			got := c.contents(1, table.ID)
			if int64(len(got)) == next+1 {
				next++ // it was committed, the answer was not heard
			}
			wantKeys(t, got, next)
			for _, key := range []int64{0, next - 1} { // a repeated write is answered as before
				if r, err := routed(testContext(t), n, table.ID, key, false); err != nil || r.Outcome != storage.Committed {
					t.Fatalf("key %d again: %v, %v, %v", key, r.Outcome, r.Err, err)
				}
			}
			if r, err := routed(testContext(t), n, table.ID, next, false); err != nil || r.Outcome != storage.Committed {
				t.Fatalf("a further key: %v, %v, %v", r.Outcome, r.Err, err)
			}
			wantKeys(t, c.contents(1, table.ID), next+1)
			c.eventually(n, func() bool { return len(n.Host().logs()) == len(table.Tablets) }, "replicas of replaced tablets stay: %v", n.Host().logs())
		})
	}
}

// The node that drives a split is gone for good while the tablet is sealed:
// another one opens it and does the split.
func TestAnotherNodeTakesASplitOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *NodeConfig) { cfg.Store.Boot = func() string { return "boot" } })
	c.start(1, 2, 3)
	c.ready()
	table := c.create(1, hashBuckets("t", 3))
	tablet := table.Tablets[0].ID
	c.seed(1, table, 0, 200)
	c.agree(tablet)
	c.stop(1)
	w := childWork{Members: c.members, Node: 1, Dir: c.config(1).DataDir, Boot: "boot", Reshape: reshapeSealed}
	child := w.start(t)
	c.eventually(c.nodes[2], func() bool {
		return c.nodes[2].Host().TransferLeader(testContext(t), tablet, 1) == nil
	}, "node 1 does not come to lead")
	reply, err := c.nodes[2].Meta().ReshapeTablets(testContext(t), reshapeRequest(table, JobSplit))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child(); err != nil {
		t.Fatal(err)
	}
	if job := c.jobEnds(reply.Job.ID, JobDone); job.Owner == 1 || job.Epoch < 2 {
		t.Fatalf("the job is %+v", job)
	}
	for id := range c.nodes {
		wantKeys(t, c.contents(id, table.ID), 200)
	}
}
