// Command split measures the split of a large tablet while statements of all
// kinds run on it: how long it takes, for how long writers wait, and that none
// fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skein/bench/internal/skeinproc"
)

// Bounds of what is measured.
const (
	mostSplit  = 30 * time.Second
	warmUp     = 2 * time.Second
	afterwards = time.Second
)

type options struct {
	skein, scratch string
	rows           int64
	workers        int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "split:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) (err error) {
	o := &options{}
	fs := flag.NewFlagSet("split", flag.ContinueOnError)
	fs.StringVar(&o.skein, "skein", "../bin/skein", "Skein's binary")
	fs.StringVar(&o.scratch, "scratch", "", "where data directories are made (default the system's)")
	fs.Int64Var(&o.rows, "rows", 1_000_000, "rows of the tablet")
	fs.IntVar(&o.workers, "workers", 1, "workers, and replicas of the tablet")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || o.rows < 1000 || o.workers < 1 {
		return fmt.Errorf("unexpected arguments %v, or fewer than 1000 rows or 1 worker", fs.Args())
	}
	if o.scratch, err = os.MkdirTemp(o.scratch, "skein-split-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.scratch)) }()
	cluster, err := skeinproc.StartCluster(ctx, o.skein, filepath.Join(o.scratch, "data"), o.workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	return measure(ctx, o, cluster.Address)
}

func measure(ctx context.Context, o *options, address string) (err error) {
	client, err := skeinproc.Dial(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, statement := range []string{
		fmt.Sprintf("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT, s TEXT) WITH (tablets = 1, replicas = %d)", o.workers),
		fmt.Sprintf("INSERT INTO t SELECT g, 1, 'some text for row ' || g FROM generate_series(0, %d) AS s (g)", o.rows-1),
	} {
		if err := client.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	tablets, _, err := client.Query(ctx, "SELECT tablet_id FROM skein.tablets")
	if err != nil || len(tablets) != 1 {
		return fmt.Errorf("the table has %d tablets, %w", len(tablets), err)
	}
	load := &load{}
	running, stop := context.WithCancel(ctx)
	defer stop()
	for _, body := range []func(n int64) string{
		func(n int64) string { return fmt.Sprintf("INSERT INTO t VALUES (%d, 1, 'x')", 1_000_000_000+n) },
		func(n int64) string { return fmt.Sprintf("INSERT INTO t VALUES (%d, 1, 'x')", 2_000_000_000+n) },
		func(n int64) string { return fmt.Sprintf("UPDATE t SET v = v + 1 WHERE k = %d", n*37%o.rows) },
		func(n int64) string { return fmt.Sprintf("SELECT sum(v) FROM t WHERE k < %d", o.rows) },
	} {
		if err := load.begin(running, address, body); err != nil {
			return err
		}
	}
	wait(ctx, warmUp)
	began := time.Now()
	err = client.Exec(ctx, fmt.Sprintf("CALL skein.split_tablet(%v)", tablets[0][0]))
	took := time.Since(began)
	wait(ctx, afterwards)
	stop()
	load.clients.Wait()
	if err != nil {
		return fmt.Errorf("splitting: %w", err)
	}
	notes, _, err := client.Query(ctx, "SELECT note FROM skein.jobs")
	if err != nil {
		return err
	}
	slices.Sort(load.times)
	fmt.Printf("split of %d rows with %d replicas: %.1f s; %v\n", o.rows, o.workers, took.Seconds(), notes[0][0])
	fmt.Printf("%d statements next to it, %d failed; p50 %v, longest %v\n", load.done.Load(), len(load.failures),
		load.times[len(load.times)/2].Round(time.Microsecond), load.times[len(load.times)-1].Round(time.Millisecond))
	if took > mostSplit {
		load.failures = append(load.failures, fmt.Errorf("the split took %v, the bound is %v", took, mostSplit))
	}
	return errors.Join(load.failures...)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// load is clients that run statements until they are stopped.
type load struct {
	clients sync.WaitGroup
	done    atomic.Int64

	mu       sync.Mutex
	failures []error
	times    []time.Duration
}

// begin starts a client that runs the statements of body one after the other.
func (l *load) begin(ctx context.Context, address string, body func(n int64) string) error {
	client, err := skeinproc.Dial(address)
	if err != nil {
		return err
	}
	l.clients.Go(func() {
		defer client.Close()
		for n := int64(0); ctx.Err() == nil; n++ {
			statement, began := body(n), time.Now()
			// Statements are not broken off: the last one ends as the others do.
			err := run(context.WithoutCancel(ctx), client, statement)
			l.done.Add(1)
			l.mu.Lock()
			l.times = append(l.times, time.Since(began))
			if err != nil {
				l.failures = append(l.failures, fmt.Errorf("%s: %w", statement, err))
			}
			l.mu.Unlock()
		}
	})
	return nil
}

func run(ctx context.Context, client *skeinproc.Client, statement string) error {
	if statement[0] == 'S' {
		_, _, err := client.Query(ctx, statement)
		return err
	}
	return client.Exec(ctx, statement)
}
