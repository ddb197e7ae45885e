package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"skein/cmd/skein/internal/client"
	"skein/sqlstate"
)

// traffic is statements that run against a cluster while it changes. The first one
// that fails ends it.
type traffic struct {
	t      *testing.T
	ctx    context.Context // of the statements
	over   atomic.Bool
	all    sync.WaitGroup
	failed atomic.Pointer[string]
	writes atomic.Int64 // rows of table moving, of which each adds one
	reads  atomic.Int64
}

// startTraffic writes single rows, small batches and changes to the table moving, and
// reads it, each on a connection of its own.
func startTraffic(t *testing.T, flight string) *traffic {
	l := &traffic{t: t}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), 3*timeout)
	t.Cleanup(cancel)
	for w := range 2 {
		l.run(flight, func(c *client.Client, i int) error {
			_, err := c.Exec(l.ctx, fmt.Sprintf("INSERT INTO moving VALUES (%d, %d, 0)", 1_000_000*(w+1)+i, i))
			if err == nil {
				l.writes.Add(1)
			}
			return err
		})
	}
	l.run(flight, func(c *client.Client, i int) error {
		n, err := c.Exec(l.ctx, fmt.Sprintf("UPDATE moving SET changed = changed + 1 WHERE k < 100 AND k %% 10 = %d", i%10))
		if err == nil && n != 10 {
			err = fmt.Errorf("an update changed %d rows", n)
		}
		return err
	})
	for range 2 {
		l.run(flight, func(c *client.Client, _ int) error {
			before := l.writes.Load()
			rows, err := query(l.ctx, c, "SELECT count(*), count(DISTINCT k) FROM moving")
			if err != nil {
				return err
			}
			l.reads.Add(1)
			var count, keys int64
			if _, err := fmt.Sscanf(rows[0], "%d,%d", &count, &keys); err != nil {
				return fmt.Errorf("reading %q: %w", rows[0], err)
			}
			if count != keys || count < before+100 {
				return fmt.Errorf("read %d rows of %d keys where %d were acknowledged", count, keys, before+100)
			}
			return nil
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *traffic) run(flight string, statement func(c *client.Client, i int) error) {
	c := dial(l.t, flight)
	l.all.Go(func() {
		for i := 0; !l.over.Load(); i++ {
			if err := statement(c, i); err != nil {
				text := err.Error()
				l.failed.CompareAndSwap(nil, &text)
				l.over.Store(true)
			}
		}
	})
}

func (l *traffic) end() {
	l.over.Store(true)
	l.all.Wait()
}

// finish ends the load and expects that all went well.
func (l *traffic) finish() {
	l.t.Helper()
	l.end()
	if failed := l.failed.Load(); failed != nil {
		l.t.Fatalf("a statement failed after %d writes and %d reads: %s", l.writes.Load(), l.reads.Load(), *failed)
	}
	if l.writes.Load() == 0 || l.reads.Load() == 0 {
		l.t.Fatalf("%d writes and %d reads are no load", l.writes.Load(), l.reads.Load())
	}
	l.t.Logf("%d writes and %d reads", l.writes.Load(), l.reads.Load())
}

// placement lists the nodes of each tablet's replicas.
func placement(t *testing.T, c *client.Client) map[string][]string {
	t.Helper()
	rows, err := query(testContext(t), c, "SELECT tablet_id || '/' || node_id FROM skein.replicas ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, row := range rows {
		tablet, node, _ := strings.Cut(strings.TrimSpace(row), "/")
		found[tablet] = append(found[tablet], node)
	}
	return found
}

// awaitNodes waits until so many workers serve.
func awaitNodes(t *testing.T, c *client.Client, n int) {
	t.Helper()
	eventually(t, "waiting for the workers", func(ctx context.Context) error {
		rows, err := query(ctx, c, "SELECT count(*) FROM skein.nodes WHERE reachable")
		if err == nil && rows[0] != strconv.Itoa(n) {
			err = fmt.Errorf("%s of %d serve", rows[0], n)
		}
		return err
	})
}

func mustCreate(t *testing.T, c *client.Client, table string) {
	t.Helper()
	eventually(t, "creating the table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, table)
		if err != nil && codeOf(err) == string(sqlstate.DuplicateTable) {
			return nil
		}
		return err
	})
}

// TestReplicasMoveUnderLoad moves a replica of every tablet, from the leader as
// often as not, while statements run, none of which fails.
func TestReplicasMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{3, 1} {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			cluster := startClusterOf(t, 4)
			c := dial(t, cluster.flight)
			awaitNodes(t, c, 4)
			mustExec(t, c, "CALL skein.set_setting('rebalance', 'false')") // which would undo what is moved
			mustCreate(t, c, fmt.Sprintf("CREATE TABLE moving (k BIGINT PRIMARY KEY, v BIGINT, changed BIGINT) WITH (tablets = 4, replicas = %d)", replicas))
			mustExec(t, c, "INSERT INTO moving SELECT k, k, 0 FROM generate_series(0, 99) AS g(k)")
			l := startTraffic(t, cluster.flight)
			for tablet, nodes := range placement(t, c) {
				to := 1
				for slices.Contains(nodes, strconv.Itoa(to)) {
					to++
				}
				mustExec(t, c, fmt.Sprintf("CALL skein.transfer_leader(%s, %s)", tablet, nodes[0]))
				mustExec(t, c, fmt.Sprintf("CALL skein.move_replica(%s, %s, %d)", tablet, nodes[0], to))
				now := placement(t, c)[tablet]
				if slices.Contains(now, nodes[0]) || !slices.Contains(now, strconv.Itoa(to)) || len(now) != replicas {
					t.Errorf("tablet %s was on %v and is on %v after a move from %s to %d", tablet, nodes, now, nodes[0], to)
				}
			}
			l.finish()
			rows, err := query(testContext(t), c, "SELECT count(*) FROM moving")
			if err != nil || strings.TrimSpace(rows[0]) != strconv.FormatInt(l.writes.Load()+100, 10) {
				t.Fatalf("%v rows, %d were written, %v", rows, l.writes.Load()+100, err)
			}
			jobs, err := query(testContext(t), c, "SELECT count(*) FROM skein.jobs WHERE kind = 'move' AND state = 'done'")
			if err != nil || strings.TrimSpace(jobs[0]) != "4" {
				t.Errorf("jobs: %v, %v", jobs, err)
			}
			for call, code := range map[string]sqlstate.Code{
				"CALL skein.move_replica(4711, 1, 2)":  sqlstate.UndefinedTable,
				"CALL skein.move_replica(100, 1, 77)":  "",
				"CALL skein.abort_move(100)":           sqlstate.UndefinedObject,
				"CALL skein.transfer_leader(100, 77)":  sqlstate.UndefinedObject,
				"CALL skein.move_replica(100, -1, 2)":  sqlstate.InvalidParameter,
				"CALL skein.transfer_leader(4711, 1)":  sqlstate.UndefinedTable,
				"CALL skein.move_replica(NULL, 1, 2)":  sqlstate.InvalidParameter,
				"CALL skein.transfer_leader(1, 2, 33)": sqlstate.UndefinedFunction,
			} {
				if _, err := c.Exec(testContext(t), call); err == nil || code != "" && codeOf(err) != string(code) {
					t.Errorf("%s: %v, want %s", call, err, code)
				}
			}
		})
	}
}

// TestNodesComeAndGoUnderLoad: a fourth worker starts and is filled, another one is
// drained, while statements run, none of which fails.
func TestNodesComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := startClusterOf(t, 4)
	c := dial(t, cluster.flight)
	awaitNodes(t, c, 4)
	cluster.workers[3].stop()
	awaitNodes(t, c, 3)
	mustCreate(t, c, "CREATE TABLE moving (k BIGINT PRIMARY KEY, v BIGINT, changed BIGINT) WITH (tablets = 8, replicas = 3)")
	mustExec(t, c, "INSERT INTO moving SELECT k, k, 0 FROM generate_series(0, 99) AS g(k)")
	l := startTraffic(t, cluster.flight)
	held := func(node string) int {
		n := 0
		for _, nodes := range placement(t, c) {
			if slices.Contains(nodes, node) {
				n++
			}
		}
		return n
	}
	cluster.startWorker(3)
	awaitNodes(t, c, 4)
	eventually(t, "filling the new node", func(context.Context) error {
		if n := held("4"); n < 5 {
			return fmt.Errorf("it has %d replicas", n)
		}
		return nil
	})
	if out, err := exec.Command(binary, "admin", "drain", "1", "--addr", cluster.flight).CombinedOutput(); err != nil {
		t.Fatalf("draining: %v, %s", err, out)
	}
	if n := held("1"); n != 0 {
		t.Fatalf("the drained node has %d replicas", n)
	}
	if _, err := c.Exec(testContext(t), "CALL skein.drain_node(2)"); codeOf(err) != string(sqlstate.ObjectNotInState) {
		t.Errorf("draining a node that is needed: %v", err)
	}
	if _, err := c.Exec(testContext(t), "CALL skein.remove_node(2)"); codeOf(err) != string(sqlstate.ObjectInUse) {
		t.Errorf("removing a node with replicas: %v", err)
	}
	mustExec(t, c, "CALL skein.activate_node(1)")
	l.finish()
}
