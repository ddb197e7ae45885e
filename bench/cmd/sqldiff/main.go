// Command sqldiff runs random queries and changes on Skein and DuckDB and
// reports where they differ, each difference shrunk to little SQL. It fails
// when there is one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"skein/bench/internal/duck"
	"skein/bench/internal/skeinproc"
	"skein/bench/internal/sqldiff"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mainError(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sqldiff:", err)
		os.Exit(1)
	}
}

func mainError(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sqldiff", flag.ContinueOnError)
	var o sqldiff.Options
	binary := flags.String("skein", "../bin/skein", "the skein `binary`")
	flags.Uint64Var(&o.Seed, "seed", 1, "decides everything")
	flags.Uint64Var(&o.Round, "round", 0, "the first round, as a report names it")
	flags.IntVar(&o.Queries, "n", 10_000, "queries")
	flags.IntVar(&o.Changes, "changes", 12, "changes to rows after each 100 queries")
	flags.DurationVar(&o.Limit, "limit", 30*time.Minute, "end after this time")
	flags.DurationVar(&o.Timeout, "timeout", 30*time.Second, "of one statement")
	flags.IntVar(&o.Shrink, "shrink", 400, "candidates tried to shrink a difference")
	flags.IntVar(&o.Stop, "stop", 20, "end after so many differences")
	flags.DurationVar(&o.Slow, "slow", 2*time.Second, "print queries that take longer, and ten times as long as DuckDB takes")
	flags.IntVar(&o.Large, "large", 8, "tables of 5,000 rows, of a hundred")
	budget := flags.String("budget", "", "Skein's `memory` for the operators of a query, such as 16MiB, so that they spill")
	flags.BoolVar(&o.Verbose, "v", false, "print queries that are refused or fail, too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var more []string
	if o.SmallMemory = *budget != ""; o.SmallMemory {
		more = []string{"--query-memory", *budget}
	}
	return run(ctx, *binary, more, o)
}

func run(ctx context.Context, binary string, more []string, o sqldiff.Options) (err error) {
	dir, err := os.MkdirTemp("", "skein-sqldiff-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := skeinproc.Start(ctx, binary, filepath.Join(dir, "skein"), more...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := skeinproc.Dial(server.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	db, err := duck.Open("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sum, err := sqldiff.Run(ctx, sqldiff.Engines(client, db), o, os.Stdout)
	sum.Print(os.Stdout)
	if err == nil && len(sum.Differences) > 0 {
		err = fmt.Errorf("%d differences", len(sum.Differences))
	}
	return err
}
