// Command tpch loads TPC-H into Skein and into DuckDB, runs the queries on
// both, compares their rows and times, and reports the load rates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skein/bench/internal/tpchdata"
	"skein/bench/tpch"
)

type options struct {
	scale   string
	skein   string // the binary
	cache   string // where generated tables are kept
	parquet string // tables to use instead of generated ones
	queries []int
	runs    int
	tablets int    // of each table but the smallest two
	workers int    // processes beside a gateway; 0: one process for all
	budget  string // memory of one query's operators in Skein, "" for the default
	output  string
	scratch string // data directories of both engines
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tpch:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.parquet == "" {
		if o.parquet, err = tpchdata.Generate(ctx, o.cache, o.scale); err != nil {
			return err
		}
	}
	if o.scratch, err = os.MkdirTemp(o.scratch, "skein-tpch-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.scratch)) }()
	r := &report{Scale: o.scale, Started: time.Now().UTC().Format(time.RFC3339), CPUs: runtime.NumCPU(),
		Tablets: o.tablets, Workers: o.workers}
	if err := benchmark(ctx, o, r); err != nil {
		return err
	}
	r.summarize()
	if err := r.print(os.Stdout); err != nil {
		return err
	}
	if o.output != "" {
		if err := r.save(o.output); err != nil {
			return err
		}
		fmt.Println("written to", o.output)
	}
	if n := r.failures(); n > 0 {
		return fmt.Errorf("%d of %d queries failed or gave other rows than DuckDB", n, len(r.Queries))
	}
	return nil
}

func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("tpch", flag.ContinueOnError)
	fs.StringVar(&o.scale, "sf", "1", "scale factor")
	fs.StringVar(&o.skein, "skein", "../bin/skein", "Skein's binary")
	fs.StringVar(&o.cache, "cache", ".data", "directory for generated tables")
	fs.StringVar(&o.parquet, "parquet", "", "directory with the tables as Parquet, instead of generating them")
	fs.IntVar(&o.runs, "runs", 3, "warm runs of each query, of which the best counts")
	fs.IntVar(&o.tablets, "tablets", 1, "tablets of each table but region and nation")
	fs.IntVar(&o.workers, "workers", 0, "run this many worker processes and a gateway instead of skein dev")
	fs.StringVar(&o.budget, "budget", "", "memory for the operators of one query in Skein, for example 256MiB")
	fs.StringVar(&o.output, "json", "", "result file (default results/tpch-sfSF.json)")
	fs.StringVar(&o.scratch, "scratch", "", "where the engines' data directories are made (default the system's)")
	all := fs.Bool("all", false, "run all 22 queries")
	queries := fs.String("queries", "", "queries to run, for example 1,6")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 || o.runs < 1 || o.tablets < 1 || o.workers < 0 {
		return nil, fmt.Errorf("unexpected arguments %v, or fewer than 1 run, 1 tablet or 0 workers", fs.Args())
	}
	if scale, err := strconv.ParseFloat(o.scale, 64); err != nil || scale <= 0 {
		return nil, fmt.Errorf("scale factor %q is not a positive number", o.scale)
	}
	if o.output == "" {
		o.output = "results/tpch-sf" + o.scale + ".json"
	}
	o.queries = tpch.Basic
	if *all {
		o.queries = nil
		for n := 1; n <= tpch.Count; n++ {
			o.queries = append(o.queries, n)
		}
	}
	if *queries != "" {
		o.queries = nil
		for s := range strings.SplitSeq(*queries, ",") {
			n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(s), "Q"))
			if err != nil || n < 1 || n > tpch.Count {
				return nil, fmt.Errorf("query %q is not a number from 1 to %d", s, tpch.Count)
			}
			o.queries = append(o.queries, n)
		}
	}
	return o, nil
}
