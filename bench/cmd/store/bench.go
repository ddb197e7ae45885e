package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skein/bench/internal/duck"
	"skein/bench/internal/skeinproc"
	"skein/bench/tpch"
)

// bench is one run.
type bench struct {
	*options
	data   *lineitem
	report *report

	ingestRate float64 // of one replica, rows/s; 0 before it is measured
}

const (
	scanQuery = "SELECT sum(l_partkey) FROM lineitem"
	mib       = 1 << 20
)

// run measures everything that was asked for. DuckDB's tables are made first
// and its file closed in between, so that it holds no memory while Skein runs.
func (b *bench) run(ctx context.Context) error {
	d := &duckFigures{}
	if b.parts["duck"] {
		if err := b.runDuck(ctx, d); err != nil {
			return err
		}
	}
	if b.parts["ingest"] || b.parts["scan"] || b.parts["point"] {
		if err := b.single(ctx, d); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"replicas", b.replicated}, {"lookup", b.lookups}, {"upsert", b.upserts}, {"memory", b.memory}} {
		if !b.parts[part.name] {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("measuring %s: %w", part.name, err)
		}
	}
	return nil
}

// duckFigures are DuckDB's results, zero where not measured.
type duckFigures struct {
	copyRate, insertRate float64 // rows/s
	diskBytes            float64 // of the file with a primary key
	scan, q6             float64 // ms
	sum                  string
}

func (b *bench) runDuck(ctx context.Context, d *duckFigures) error {
	csv := filepath.Join(b.scratch, "lineitem.csv")
	err := b.withDuck(ctx, "export.db", func(db *duck.DB) error {
		return db.Exec(ctx, fmt.Sprintf("COPY (SELECT * FROM '%s') TO '%s' (HEADER)", b.parquet, csv))
	})
	if err != nil {
		return err
	}
	keyed, err := tpch.CreateTable("lineitem", "lineitem")
	if err != nil {
		return err
	}
	if err := b.withDuck(ctx, "keyed.db", func(db *duck.DB) error { return b.duckCopy(ctx, db, keyed, csv, d) }); err != nil {
		return err
	}
	if err := os.Remove(csv); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(b.scratch, "keyed.db"))
	if err != nil {
		return err
	}
	d.diskBytes = float64(info.Size())
	return b.withDuck(ctx, "plain.db", func(db *duck.DB) error {
		rows, err := b.data.reader()
		if err != nil {
			return err
		}
		defer rows.Release()
		began := time.Now()
		if err := db.InsertArrow(ctx, rows, "CREATE TABLE lineitem AS SELECT * FROM arrow_rows"); err != nil {
			return err
		}
		d.insertRate = float64(b.data.rows) / time.Since(began).Seconds()
		return nil
	})
}

// duckCopy loads the table with its key and queries it.
func (b *bench) duckCopy(ctx context.Context, db *duck.DB, create, csv string, d *duckFigures) (err error) {
	if b.report.DuckDB, err = db.Version(ctx); err != nil {
		return err
	}
	if err := db.Exec(ctx, create); err != nil {
		return err
	}
	began := time.Now()
	if err := db.Exec(ctx, fmt.Sprintf("COPY lineitem FROM '%s' (HEADER)", csv)); err != nil {
		return err
	}
	d.copyRate = float64(b.data.rows) / time.Since(began).Seconds()
	if err := db.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	q6, err := tpch.Query(6)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		text string
		into *float64
	}{{scanQuery, &d.scan}, {q6, &d.q6}} {
		if *q.into, err = best(b.runs, func() (time.Duration, error) {
			_, took, err := db.Query(ctx, q.text)
			return took, err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) withDuck(ctx context.Context, file string, use func(*duck.DB) error) (err error) {
	db, err := duck.Open(filepath.Join(b.scratch, file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	return use(db)
}

// single measures one process with one replica.
func (b *bench) single(ctx context.Context, d *duckFigures) (err error) {
	server, err := skeinproc.Start(ctx, b.skein, filepath.Join(b.scratch, "skein"), b.flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := skeinproc.Dial(server.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	b.report.atMost("memory, idle", "MiB", float64(server.Memory())/mib, "", 0, 250)
	if err := b.ingest(ctx, client, "", d); err != nil {
		return err
	}
	b.report.atMost("memory, peak of the ingest", "MiB", float64(server.PeakMemory())/mib, "", 0, 0)
	if b.parts["ingest"] {
		if err := b.disk(ctx, server, d); err != nil {
			return err
		}
	}
	if b.parts["scan"] {
		if err := b.scans(ctx, client, d); err != nil {
			return err
		}
		b.report.atMost("memory, lineitem queried", "MiB", float64(server.Memory())/mib, "", 0, 0)
	}
	if b.parts["point"] {
		if err := b.connects(ctx, server.Address); err != nil {
			return err
		}
		return b.points(ctx, server.Address)
	}
	return nil
}

// replicated measures the ingest into three workers.
func (b *bench) replicated(ctx context.Context) (err error) {
	cluster, err := skeinproc.StartCluster(ctx, b.skein, filepath.Join(b.scratch, "cluster"), 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	client, err := skeinproc.Dial(cluster.Address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return b.ingest(ctx, client, " WITH (replicas = 3)", nil)
}

// ingest loads lineitem in one statement; d is nil for the replicated one.
func (b *bench) ingest(ctx context.Context, client *skeinproc.Client, with string, d *duckFigures) error {
	create, err := tpch.CreateTable("lineitem", "lineitem")
	if err != nil {
		return err
	}
	if err := client.Exec(ctx, create+with); err != nil {
		return err
	}
	rows, err := b.data.reader()
	if err != nil {
		return err
	}
	defer rows.Release()
	began := time.Now()
	n, err := client.Ingest(ctx, "lineitem", rows)
	if err != nil {
		return err
	}
	if n != b.data.rows {
		return fmt.Errorf("%d rows were stored, %d were sent", n, b.data.rows)
	}
	rate := float64(n) / time.Since(began).Seconds()
	if d == nil {
		b.report.atLeast("ingest, 3 replicas, key", "rows/s", rate, "1 replica", b.ingestRate, 1.0/3)
		return nil
	}
	b.ingestRate = rate
	b.report.atLeast("ingest, 1 replica, key", "rows/s", rate, "DuckDB COPY from CSV, key", d.copyRate, 1.5)
	b.report.atLeast("ingest, 1 replica, key", "rows/s", rate, "DuckDB CREATE AS from Arrow, no key", d.insertRate, 0.5)
	return nil
}

// diskPatience bounds the wait for background work to give space back.
const diskPatience = 90 * time.Second

// disk waits until the data directory has stopped shrinking and reports it.
func (b *bench) disk(ctx context.Context, server *skeinproc.Process, d *duckFigures) error {
	least, err := server.DiskBytes()
	if err != nil {
		return err
	}
	b.report.atMost("disk, right after the ingest", "MiB", float64(least)/mib, "DuckDB, key", d.diskBytes/mib, 0)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	began, shrunk := time.Now(), time.Now()
	for time.Since(shrunk) < diskPatience/4 && time.Since(began) < diskPatience {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		n, err := server.DiskBytes()
		if err != nil {
			return err
		}
		if n < least-mib {
			least, shrunk = n, time.Now()
		}
	}
	b.report.atMost("disk, at rest", "MiB", float64(least)/mib, "DuckDB, key", d.diskBytes/mib, 0.8)
	b.report.atMost("memory, lineitem stored", "MiB", float64(server.Memory())/mib, "", 0, 0)
	return nil
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
