// Command cluster measures what it costs to spread tables over processes: TPC-H
// on three workers and on one, a join over a repartition and without one, and
// many clients at once, after which nothing may stay behind.
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
	"syscall"
	"time"

	"skein/bench/internal/compare"
	"skein/bench/internal/skeinproc"
	"skein/bench/internal/tpchdata"
	"skein/bench/tpch"
)

// Bounds of what is measured.
const (
	mostSpread = 1.3 // times the total of one worker
	mostMoved  = 1.6 // times the colocated join
)

type options struct {
	scale, skein, cache, parquet, scratch string
	only                                  string
	runs, tablets, workers, clients       int
	soak                                  time.Duration
	rebalance                             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) (err error) {
	o := &options{}
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fs.StringVar(&o.scale, "sf", "1", "scale factor")
	fs.StringVar(&o.skein, "skein", "../bin/skein", "Skein's binary")
	fs.StringVar(&o.cache, "cache", ".data", "directory for generated tables")
	fs.StringVar(&o.parquet, "parquet", "", "directory with the tables as Parquet, instead of generating them")
	fs.StringVar(&o.scratch, "scratch", "", "where data directories are made (default the system's)")
	fs.StringVar(&o.only, "only", "", "one part to run on several workers: tpch, moved, cancel or soak (default all of them)")
	fs.IntVar(&o.runs, "runs", 3, "warm runs of each query, of which the best counts")
	fs.IntVar(&o.tablets, "tablets", 3, "tablets of each table but the smallest two")
	fs.IntVar(&o.workers, "workers", 3, "workers that are compared with one")
	fs.IntVar(&o.clients, "clients", 100, "clients at once; 0 for none")
	fs.DurationVar(&o.soak, "soak", time.Minute, "how long the clients ask, in each of two rounds")
	fs.BoolVar(&o.rebalance, "rebalance", false, "measure instead how a further worker is filled while clients ask")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || o.runs < 1 || o.tablets < 2 || o.workers < 2 || o.clients < 0 {
		return fmt.Errorf("unexpected arguments %v, or fewer than 1 run, 2 tablets or 2 workers", fs.Args())
	}
	if o.only != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == o.only }) {
		return fmt.Errorf("there is no part %q", o.only)
	}
	if o.parquet == "" {
		if o.parquet, err = tpchdata.Generate(ctx, o.cache, o.scale); err != nil {
			return err
		}
	}
	if o.scratch, err = os.MkdirTemp(o.scratch, "skein-cluster-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.scratch)) }()
	if o.rebalance {
		return rebalance(ctx, o)
	}
	return measure(ctx, o)
}

// part is something to measure on several workers that hold TPC-H.
type part struct {
	name string
	run  func(context.Context, *options, *skeinproc.Cluster, *skeinproc.Client) error
}

var parts = []part{{"tpch", nil}, {"moved", moved}, {"cancel", canceled}, {"soak", soak}}

// measure runs the parts that are asked for, TPC-H on one worker first.
func measure(ctx context.Context, o *options) error {
	wanted := func(name string) bool { return o.only == "" || o.only == name }
	alone := make([]answer, tpch.Count+1)
	if wanted("tpch") {
		err := onCluster(ctx, o, 1, func(_ *skeinproc.Cluster, client *skeinproc.Client) error {
			return queries(ctx, o, client, func(n int, a answer) { alone[n] = a })
		})
		if err != nil {
			return err
		}
	}
	var missed []error
	err := onCluster(ctx, o, o.workers, func(cluster *skeinproc.Cluster, client *skeinproc.Client) error {
		for _, p := range parts {
			if !wanted(p.name) {
				continue
			}
			run := p.run
			if run == nil {
				run = func(ctx context.Context, o *options, _ *skeinproc.Cluster, client *skeinproc.Client) error {
					return spread(ctx, o, client, alone)
				}
			}
			if err := run(ctx, o, cluster, client); err != nil {
				missed = append(missed, err)
			}
		}
		return nil
	})
	return errors.Join(append(missed, err)...)
}

// spread compares TPC-H on several workers with that on one.
func spread(ctx context.Context, o *options, client *skeinproc.Client, alone []answer) error {
	var missed []error
	var one, several float64
	fmt.Printf("query  1 worker ms  %d workers ms  ratio\n", o.workers)
	err := queries(ctx, o, client, func(n int, a answer) {
		one, several = one+alone[n].took, several+a.took
		fmt.Printf("Q%-4d %12.1f %13.1f %6.2f\n", n, alone[n].took, a.took, a.took/alone[n].took)
		if d := compare.Difference(a.rows, alone[n].rows, tpch.OrderedBy(n)); d != "" {
			missed = append(missed, fmt.Errorf("query %d gives other rows on %d workers: %s", n, o.workers, d))
		}
	})
	if err != nil {
		return errors.Join(append(missed, err)...)
	}
	fmt.Printf("total %12.1f %13.1f %6.2f (at most %.1f)\n", one, several, several/one, mostSpread)
	if several > mostSpread*one {
		missed = append(missed, fmt.Errorf("%d workers take %.2f times as long as one", o.workers, several/one))
	}
	return errors.Join(missed...)
}

// answer is the rows of a query and its best time in milliseconds.
type answer struct {
	rows compare.Rows
	took float64
}

// onCluster runs something on workers that hold TPC-H.
func onCluster(ctx context.Context, o *options, workers int, do func(*skeinproc.Cluster, *skeinproc.Client) error) (err error) {
	data := filepath.Join(o.scratch, fmt.Sprint(workers))
	spare := 0
	if o.rebalance {
		spare = 1
	}
	cluster, err := skeinproc.StartClusterWithSpare(ctx, o.skein, data, workers, spare)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(), os.RemoveAll(data)) }()
	client, err := skeinproc.Dial(cluster.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, statement := range tpch.CreateTables() {
		if err := client.Exec(ctx, tpch.Partitioned(statement, o.tablets)); err != nil {
			return fmt.Errorf("creating the schema: %w", err)
		}
	}
	for _, table := range tpch.Tables {
		if _, err := client.Load(ctx, table, tpchdata.File(o.parquet, table)); err != nil {
			return fmt.Errorf("loading %s: %w", table, err)
		}
	}
	return do(cluster, client)
}

// queries runs all of TPC-H.
func queries(ctx context.Context, o *options, client *skeinproc.Client, each func(int, answer)) error {
	for n := 1; n <= tpch.Count; n++ {
		text, err := tpch.Query(n)
		if err != nil {
			return err
		}
		a, err := best(ctx, o.runs, client, text)
		if err != nil {
			return fmt.Errorf("query %d: %w", n, err)
		}
		each(n, a)
	}
	return nil
}

// best runs a query once to warm up and then some times more.
func best(ctx context.Context, runs int, client *skeinproc.Client, text string) (answer, error) {
	var a answer
	for i := range runs + 1 {
		rows, took, err := client.Query(ctx, text)
		if err != nil {
			return a, err
		}
		if ms := float64(took.Microseconds()) / 1000; i == 1 || i > 1 && ms < a.took {
			a.took = ms
		}
		a.rows = rows
	}
	return a, nil
}
