// Command store measures how fast Skein takes rows in, gives them out and finds
// one of them, how much room they take, and sets that against DuckDB on the
// same machine. One run prints one table of ratios with the targets they are
// to meet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

type options struct {
	skein   string // the binary
	module  string // Skein's source, for the benchmarks inside the store
	parquet string // lineitem
	output  string // JSON
	scratch string
	parts   map[string]bool
	flags   []string // for the server
	runs    int
}

// partNames are what can be measured, in the order of a run.
var partNames = []string{"ingest", "scan", "point", "replicas", "lookup", "upsert", "memory", "duck"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.scratch, err = os.MkdirTemp(o.scratch, "skein-store-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.scratch)) }()
	data, err := readLineitem(ctx, o.parquet)
	if err != nil {
		return err
	}
	defer data.release()
	r := newReport(data)
	b := &bench{options: o, data: data, report: r}
	if err := b.run(ctx); err != nil {
		return err
	}
	if err := r.print(os.Stdout); err != nil || o.output == "" {
		return err
	}
	return r.save(o.output)
}

func parse(args []string) (*options, error) {
	o := &options{parts: map[string]bool{}}
	fs := flag.NewFlagSet("store", flag.ContinueOnError)
	fs.StringVar(&o.skein, "skein", "../bin/skein", "Skein's binary")
	fs.StringVar(&o.module, "module", "..", "directory of Skein's module, for the parts lookup and upsert")
	dir := fs.String("parquet", ".data/sf1", "directory with lineitem.parquet, as bench-tpch makes it")
	fs.StringVar(&o.output, "json", "results/store.json", "result file, empty for none")
	fs.StringVar(&o.scratch, "scratch", "", "where data directories are made (default the system's)")
	fs.IntVar(&o.runs, "runs", 5, "warm runs of each query, of which the best counts")
	parts := fs.String("parts", strings.Join(partNames, ","), "what to measure")
	flags := fs.String("flags", "", "more flags for `skein dev`, separated by spaces")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 || o.runs < 1 {
		return nil, fmt.Errorf("unexpected arguments %v or fewer than 1 run", fs.Args())
	}
	o.parquet = filepath.Join(*dir, "lineitem.parquet")
	o.flags = strings.Fields(*flags)
	for name := range strings.SplitSeq(*parts, ",") {
		o.parts[name] = true
	}
	return o, nil
}
