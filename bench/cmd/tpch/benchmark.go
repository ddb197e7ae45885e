package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"skein/bench/internal/compare"
	"skein/bench/internal/duck"
	"skein/bench/internal/skeinproc"
	"skein/bench/internal/tpchdata"
	"skein/bench/tpch"
)

// server is one Skein: a process, or the processes of a cluster.
type server interface {
	PeakMemory() int64
	DiskBytes() (int64, error)
	Stop() error
}

// start runs Skein as the options ask, and returns where it listens and how
// long it took until it answered.
func start(ctx context.Context, o *options) (server, string, time.Duration, error) {
	data := filepath.Join(o.scratch, "skein")
	var flags []string
	if o.budget != "" {
		flags = append(flags, "--query-memory", o.budget)
	}
	if o.workers > 0 {
		c, err := skeinproc.StartCluster(ctx, o.skein, data, o.workers, flags...)
		if err != nil {
			return nil, "", 0, err
		}
		return c, c.Address, c.Startup, nil
	}
	p, err := skeinproc.Start(ctx, o.skein, data, flags...)
	if err != nil {
		return nil, "", 0, err
	}
	return p, p.Address, p.Startup, nil
}

// benchmark loads and queries both engines, one after the other so that they
// do not share the processor.
func benchmark(ctx context.Context, o *options, r *report) (err error) {
	server, address, startup, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	r.Startup = startup.Seconds()
	client, err := skeinproc.Dial(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	db, err := duck.Open(filepath.Join(o.scratch, "duck.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r.DuckDB, err = db.Version(ctx); err != nil {
		return err
	}
	if err := loadSkein(ctx, o, client, r); err != nil {
		return err
	}
	if err := loadDuck(ctx, o, db, r); err != nil {
		return err
	}
	if err := loadCommand(ctx, o, address, client, r); err != nil {
		return err
	}
	for _, n := range o.queries {
		q, err := runQuery(ctx, o, n, client, db)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "Q%d: Skein %.1f ms, DuckDB %.1f ms, equal %t %s\n", n, q.Skein, q.Duck, q.Equal, q.Error)
		r.Queries = append(r.Queries, q)
	}
	r.SkeinMemory = server.PeakMemory()
	r.SkeinDisk, err = server.DiskBytes()
	return err
}

func loadSkein(ctx context.Context, o *options, client *skeinproc.Client, r *report) error {
	for _, statement := range tpch.CreateTables() {
		if err := client.Exec(ctx, tpch.Partitioned(statement, o.tablets)); err != nil {
			return fmt.Errorf("creating the schema in Skein: %w", err)
		}
	}
	for _, table := range tpch.Tables {
		began := time.Now()
		rows, err := client.Load(ctx, table, tpchdata.File(o.parquet, table))
		if err != nil {
			return fmt.Errorf("loading %s into Skein: %w", table, err)
		}
		rate := float64(rows) / time.Since(began).Seconds()
		fmt.Fprintf(os.Stderr, "%s: %d rows, %.0f rows/s into Skein\n", table, rows, rate)
		r.Loads = append(r.Loads, loadResult{Table: table, Rows: rows, Skein: rate, Statement: "ingest"})
	}
	return nil
}

func loadDuck(ctx context.Context, o *options, db *duck.DB, r *report) error {
	for _, statement := range tpch.CreateTables() {
		if err := db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for i, table := range tpch.Tables {
		began := time.Now()
		if err := db.Load(ctx, table, tpchdata.File(o.parquet, table)); err != nil {
			return err
		}
		r.Loads[i].Duck = float64(r.Loads[i].Rows) / time.Since(began).Seconds()
	}
	return nil
}

// loadCommand measures `skein load` with a second copy of lineitem.
func loadCommand(ctx context.Context, o *options, address string, client *skeinproc.Client, r *report) error {
	const name = "lineitem_load"
	statement, err := tpch.CreateTable("lineitem", name)
	if err != nil {
		return err
	}
	if err := client.Exec(ctx, tpch.Partitioned(statement, o.tablets)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, o.skein, "load", "--quiet", "--addr", address, "--table", name, tpchdata.File(o.parquet, "lineitem"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("skein load: %w", err)
	}
	took := time.Since(began).Seconds()
	rows := r.Loads[len(r.Loads)-1].Rows
	r.Loads = append(r.Loads, loadResult{Table: "lineitem", Rows: rows, Skein: float64(rows) / took, Statement: "skein load"})
	return client.Exec(ctx, "DROP TABLE "+name)
}

// runQuery runs one query on both engines, once cold and then warm. An error
// of Skein is a result; one of DuckDB ends the run.
func runQuery(ctx context.Context, o *options, n int, client *skeinproc.Client, db *duck.DB) (queryResult, error) {
	q := queryResult{Query: n}
	text, err := tpch.Query(n)
	if err != nil {
		return q, err
	}
	var want compare.Rows
	q.Duck, err = best(o.runs, func() (took time.Duration, err error) {
		want, took, err = db.Query(ctx, text)
		return took, err
	})
	if err != nil {
		return q, fmt.Errorf("query %d: %w", n, err)
	}
	var got compare.Rows
	q.Skein, err = best(o.runs, func() (took time.Duration, err error) {
		got, took, err = client.Query(ctx, text)
		return took, err
	})
	if ctx.Err() != nil {
		return q, ctx.Err()
	}
	if err != nil {
		q.Skein, q.Error = 0, err.Error()
		return q, nil
	}
	q.Rows, q.Ratio = len(got), q.Skein/q.Duck
	q.Error = compare.Difference(got, want, tpch.OrderedBy(n))
	q.Equal = q.Error == ""
	return q, nil
}

// best returns the least time of some warm runs, in milliseconds.
func best(runs int, f func() (time.Duration, error)) (float64, error) {
	least := time.Duration(0)
	for i := range runs + 1 {
		took, err := f()
		if err != nil {
			return 0, err
		}
		if i == 1 || i > 1 && took < least { // the first run warms up
			least = took
		}
	}
	return float64(least.Microseconds()) / 1000, nil
}
