package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skein/bench/internal/skeinproc"
)

// Bounds of how soon workers are idle when a query is cancelled.
const (
	cancelsOfEach = 20
	mostIdle      = 100 * time.Millisecond
	idleTimeout   = 10 * time.Second
)

// endless are queries that run for longer than they are let, each busy with
// something else, by name.
var endless = [][2]string{
	{"scan", `SELECT count(*) FROM lineitem, nation WHERE l_comment || n_name LIKE '%special%requests%FRANCE%'`},
	{"repartition", `SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_partkey = b.l_suppkey AND a.l_comment < b.l_comment`},
	{"aggregate", `SELECT max(n) FROM (SELECT l_comment || n_comment AS c, count(*) AS n FROM lineitem, nation GROUP BY 1) AS s`},
	{"sort", `SELECT l_comment, n_comment FROM lineitem, nation ORDER BY l_comment || n_comment, l_orderkey OFFSET 100000000`},
}

// canceled cancels queries of every kind at different moments and tells how soon
// all workers are idle: no fragment of theirs is left, running ones included. The
// processor time that workers use until then says more on a busy machine.
func canceled(ctx context.Context, _ *options, cluster *skeinproc.Cluster, client *skeinproc.Client) error {
	fmt.Printf("canceled     idle after ms: median    p95    max (p95 at most %d), processor ms: mean\n", mostIdle.Milliseconds())
	var late error
	for _, query := range endless {
		took := make([]time.Duration, cancelsOfEach)
		var used time.Duration
		for i := range took {
			var err error
			if took[i], used, err = cancelOne(ctx, cluster, client, query[1], time.Duration(20+25*i)*time.Millisecond, used); err != nil {
				return fmt.Errorf("canceling a %s: %w", query[0], err)
			}
		}
		slices.Sort(took)
		p95 := took[len(took)*95/100-1]
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		fmt.Printf("%-12s %22.1f %6.1f %6.1f %37.1f\n", query[0], ms(took[len(took)/2]), ms(p95), ms(took[len(took)-1]), ms(used)/cancelsOfEach)
		if p95 > mostIdle {
			late = fmt.Errorf("workers are idle %s after a %s is canceled", p95, query[0])
		}
	}
	return late
}

// cancelOne starts a query, cancels it some time after workers have begun and
// tells how long they went on, and the processor time of that on top of used.
func cancelOne(ctx context.Context, cluster *skeinproc.Cluster, client *skeinproc.Client, text string, after, used time.Duration) (took, total time.Duration, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := client.Query(running, text)
		ended <- err
	}()
	if err := awaitFragments(ctx, cluster, func(n int64) bool { return n > 0 }); err != nil {
		return 0, 0, fmt.Errorf("waiting for it to begin: %w", err)
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case err := <-ended:
		return 0, 0, fmt.Errorf("it ended before it was canceled: %w", err)
	case <-timer.C:
	}
	before, began := cluster.ProcessorTime(), time.Now()
	cancel()
	if err := awaitFragments(ctx, cluster, func(n int64) bool { return n == 0 }); err != nil {
		return 0, 0, fmt.Errorf("waiting for idle workers: %w", err)
	}
	took = time.Since(began)
	used += cluster.ProcessorTime() - before
	if err := <-ended; err == nil {
		return 0, 0, fmt.Errorf("it was canceled and gave an answer")
	}
	return took, used, nil
}

// awaitFragments asks the workers until the number of fragments they have is as
// wanted, with pauses, for asking takes them time as well.
func awaitFragments(ctx context.Context, cluster *skeinproc.Cluster, wanted func(int64) bool) error {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for {
		n, err := cluster.Fragments(ctx)
		if err != nil || wanted(n) {
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
