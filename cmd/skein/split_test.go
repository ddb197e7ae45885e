package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein/cmd/skein/internal/client"
)

// tabletsOf lists the tablets of a table in its order.
func tabletsOf(t *testing.T, c *client.Client, table string) []string {
	t.Helper()
	lines, err := query(testContext(t), c, "SELECT tablet_id FROM skein.tablets WHERE table_name = '"+table+"' ORDER BY bucket_low, key_low NULLS FIRST")
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// splitLoad runs statements of all kinds on a table until it is stopped; none may
// fail.
type splitLoad struct {
	t       *testing.T
	running sync.WaitGroup
	stop    atomic.Bool
	rows    atomic.Int64 // inserted and not deleted
	done    atomic.Int64 // statements
	longest atomic.Int64 // of a write
}

func (f *splitLoad) loop(address string, body func(ctx context.Context, c *client.Client, n int64) error) {
	c := dial(f.t, address)
	f.running.Go(func() {
		for n := int64(0); !f.stop.Load(); n++ {
			began := time.Now()
			if err := body(context.Background(), c, n); err != nil {
				f.t.Errorf("statement %d: %v", n, err)
				return
			}
			f.done.Add(1)
			if took := int64(time.Since(began)); took > f.longest.Load() {
				f.longest.Store(took)
			}
		}
	})
}

func (f *splitLoad) exec(ctx context.Context, c *client.Client, want int64, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	n, err := c.Exec(ctx, text)
	if err == nil && n != want {
		err = fmt.Errorf("%d rows, not %d", n, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// start begins statements on a table of keys from 0 to rows that hold 1 each.
func (f *splitLoad) start(address, table string, rows int64) {
	f.rows.Store(rows)
	f.loop(address, func(ctx context.Context, c *client.Client, n int64) error {
		f.rows.Add(1)
		return f.exec(ctx, c, 1, "INSERT INTO %s VALUES (%d, 1)", table, 1_000_000+n)
	})
	f.loop(address, func(ctx context.Context, c *client.Client, n int64) error {
		return f.exec(ctx, c, 2, "UPDATE %s SET v = 1 WHERE k IN (%d, %d)", table, n%rows, (n+rows/2)%rows)
	})
	f.loop(address, func(ctx context.Context, c *client.Client, n int64) error {
		return f.exec(ctx, c, 50_000, "INSERT INTO %s SELECT g + %d, 1 FROM generate_series(0, 49999) AS s (g)", table, 10_000_000+n*50_000)
	})
	f.loop(address, func(ctx context.Context, c *client.Client, n int64) error {
		// One snapshot: whatever the tablets are, every row of it is there once.
		lines, err := query(ctx, c, fmt.Sprintf("SELECT count(*) = sum(v) AND count(*) = count(DISTINCT k) AND count(*) FILTER (WHERE k < %d) = %d FROM %s", rows, rows, table))
		if err == nil && strings.Join(lines, "") != "t" && strings.Join(lines, "") != "true" {
			err = fmt.Errorf("a snapshot is torn: %v", lines)
		}
		return err
	})
}

func (f *splitLoad) end() {
	f.stop.Store(true)
	f.running.Wait()
}

// Tablets are split, at keys and in the middle, and merged under statements of all
// kinds, of which none fails, waits for long or sees half of anything.
func TestSplitAndMergeUnderStatements(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	for _, tc := range []struct{ table, with, key string }{
		{"hashed", "PARTITION BY HASH (k) WITH (tablets = 1, buckets = 64)", "20"},
		{"ranged", "PARTITION BY RANGE (k) WITH (splits = '5000')", "7000"},
	} {
		mustExec(t, c, fmt.Sprintf("CREATE TABLE %s (k BIGINT PRIMARY KEY, v BIGINT) %s", tc.table, tc.with))
		mustExec(t, c, fmt.Sprintf("INSERT INTO %s SELECT g, 1 FROM generate_series(0, 9999) AS s (g)", tc.table))
		before := tabletsOf(t, c, tc.table)
		f := &splitLoad{t: t}
		f.start(server.flight, tc.table, 10_000)
		mustExec(t, c, fmt.Sprintf("CALL skein.split_tablet(%s, '%s')", before[len(before)-1], tc.key))
		mustExec(t, c, fmt.Sprintf("CALL skein.split_tablet(%s)", tabletsOf(t, c, tc.table)[0]))
		now := tabletsOf(t, c, tc.table)
		if len(now) != len(before)+2 {
			t.Fatalf("%s: tablets %v became %v", tc.table, before, now)
		}
		if _, stderr, code := command(t, "", "admin", "merge", "--addr", server.flight, now[1], now[0]); code != 0 {
			t.Fatalf("admin merge: %s", stderr)
		}
		f.end()
		t.Logf("%s: %d statements, the longest took %v", tc.table, f.done.Load(), time.Duration(f.longest.Load()))
		if got := tabletsOf(t, c, tc.table); len(got) != len(before)+1 {
			t.Fatalf("%s: after the merge there are %v", tc.table, got)
		}
		lines, err := query(testContext(t), c, "SELECT kind, state FROM skein.jobs WHERE table_name = '"+tc.table+"' ORDER BY job_id")
		if err != nil || strings.Join(lines, " ") != "split,done split,done merge,done" {
			t.Fatalf("jobs %v, %v", lines, err)
		}
		singles, err := query(testContext(t), c, fmt.Sprintf("SELECT count(*) FROM %s WHERE k >= 1000000 AND k < 10000000", tc.table))
		if err != nil || singles[0] != fmt.Sprint(f.rows.Load()-10_000) {
			t.Fatalf("%d rows were inserted one by one, %v are there, %v", f.rows.Load()-10_000, singles, err)
		}
		if t.Failed() {
			return
		}
	}
	// A table without partitions but with a key comes to be divided by its ranges.
	runScript(t, server.flight, []scriptStep{
		{"CREATE TABLE keyless (v BIGINT)", ""},
		{"CALL skein.split_tablet(99999999)", "42704"},
		{"CALL skein.split_tablet(NULL)", "22023"},
		{"CALL skein.merge_tablets(" + tabletsOf(t, c, "ranged")[0] + ", " + tabletsOf(t, c, "hashed")[0] + ")", "42704"},
		{"CALL skein.split_tablet(" + tabletsOf(t, c, "hashed")[0] + ", 'x')", "22P02"},
		{"CALL skein.split_tablet(" + tabletsOf(t, c, "ranged")[0] + ", '900000')", "0A000"},
	})
	mustExec(t, c, "INSERT INTO keyless VALUES (1), (2)")
	if _, stderr, code := command(t, "", "admin", "split", "--addr", server.flight, tabletsOf(t, c, "keyless")[0]); code == 0 || !strings.Contains(stderr, "0A000") {
		t.Fatalf("admin split: %d, %s", code, stderr)
	}
}

// The same in a cluster with three replicas of each tablet, of whose workers one
// dies while it may be driving the split, and comes back.
func TestSplitInACluster(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	cluster.awaitWorkers()
	c := dial(t, cluster.flight)
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS s (k BIGINT PRIMARY KEY, v BIGINT) WITH (tablets = 1, replicas = 3)")
		return err
	})
	mustExec(t, c, "INSERT INTO s SELECT g, 1 FROM generate_series(0, 9999) AS s (g)")
	f := &splitLoad{t: t}
	f.rows.Store(10_000)
	f.loop(cluster.flight, func(ctx context.Context, c *client.Client, n int64) error {
		f.rows.Add(1)
		return f.exec(ctx, c, 1, "INSERT INTO s VALUES (%d, 1)", 1_000_000+n)
	})
	f.loop(cluster.flight, func(ctx context.Context, c *client.Client, n int64) error {
		lines, err := query(ctx, c, "SELECT count(*) FROM s WHERE k < 10000")
		if err == nil && lines[0] != "10000" {
			err = fmt.Errorf("a snapshot is torn: %v", lines)
		}
		return err
	})
	mustExec(t, c, fmt.Sprintf("CALL skein.split_tablet(%s)", tabletsOf(t, c, "s")[0]))
	f.end()
	t.Logf("%d statements, the longest took %v", f.done.Load(), time.Duration(f.longest.Load()))
	leaders, err := query(testContext(t), c, "SELECT leader_node FROM skein.tablets ORDER BY tablet_id LIMIT 1")
	if err != nil || len(leaders) != 1 || leaders[0] == "" {
		t.Fatalf("the leader is %v, %v", leaders, err)
	}
	node := int(leaders[0][0] - '1')
	split, call := make(chan error, 1), fmt.Sprintf("CALL skein.split_tablet(%s)", tabletsOf(t, c, "s")[0])
	other := dial(t, cluster.flight)
	go func() {
		_, err := other.Exec(context.Background(), call)
		split <- err
	}()
	eventually(t, "seeing the job", func(ctx context.Context) error {
		lines, err := query(ctx, c, "SELECT 1 FROM skein.jobs WHERE state = 'running'")
		if err == nil && len(lines) == 0 {
			err = fmt.Errorf("no job runs")
		}
		return err
	})
	cluster.workers[node].kill()
	if err := <-split; err != nil {
		t.Fatal(err)
	}
	cluster.startWorker(node)
	eventually(t, "reading all rows", func(ctx context.Context) error {
		lines, err := query(ctx, c, "SELECT count(*), count(DISTINCT k) FROM s")
		if want := fmt.Sprintf("%d,%d", f.rows.Load(), f.rows.Load()); err == nil && lines[0] != want {
			t.Fatalf("there are %v, not %s", lines, want)
		}
		return err
	})
	if got := tabletsOf(t, c, "s"); len(got) != 3 {
		t.Fatalf("tablets %v", got)
	}
}
