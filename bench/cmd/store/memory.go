package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skein/bench/internal/skeinproc"
	"skein/bench/tpch"
)

// The memory of a node that holds all of TPC-H: its cache, and how much more it
// may take. The second figure is what a node in a small container has.
const (
	memoryCache     = 256 * mib
	memoryAllowance = 477 * mib // 500 MB
	memoryLimit     = 1 << 30
	// memoryHeap is the limit given to Go's runtime where no other is: the rest of
	// what is allowed is for what it cannot count (about 70 MiB).
	memoryHeap = memoryCache + memoryAllowance - 105*mib
)

// memory loads all tables and scans more than the cache can hold, first without
// a limit and then, with the default settings, within memoryLimit, pages of
// mapped files included.
func (b *bench) memory(ctx context.Context) error {
	free, err := b.memoryRun(ctx, "free", nil)
	if err != nil {
		return err
	}
	group, err := skeinproc.NewCgroup(memoryLimit)
	if errors.Is(err, skeinproc.ErrNoCgroup) {
		fmt.Fprintln(os.Stderr, "store:", err, "- the run within 1 GiB is left out")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := group.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, "store: removing the control group:", err)
		}
	}()
	limited, err := b.memoryRun(ctx, "1 GiB", group)
	if err != nil {
		return err
	}
	b.report.atMost("scan of all columns in 1 GiB", "ms", limited, "without a limit", free, 1.5)
	return nil
}

// memoryRun returns the least time of the scans, in milliseconds.
func (b *bench) memoryRun(ctx context.Context, name string, group *skeinproc.Cgroup) (took float64, err error) {
	data := filepath.Join(b.scratch, "memory "+name)
	var server *skeinproc.Process
	if group != nil {
		server, err = group.Start(ctx, b.skein, data, b.flags...)
	} else {
		server, err = skeinproc.Start(ctx, b.skein, data, append([]string{
			"--cache", fmt.Sprintf("%dMiB", memoryCache/mib), "--memory-limit", fmt.Sprintf("%dMiB", memoryHeap/mib),
		}, b.flags...)...)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := skeinproc.Dial(server.Address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, table := range tpch.Tables {
		create, err := tpch.CreateTable(table, table)
		if err != nil {
			return 0, err
		}
		if err := client.Exec(ctx, create); err != nil {
			return 0, err
		}
		if _, err := client.Load(ctx, table, filepath.Join(filepath.Dir(b.parquet), table+".parquet")); err != nil {
			return 0, fmt.Errorf("loading %s: %w", table, err)
		}
	}
	took, err = best(b.runs, func() (time.Duration, error) {
		began := time.Now()
		n, _, err := client.Drain(ctx, "SELECT * FROM lineitem")
		if err == nil && n != b.data.rows {
			err = fmt.Errorf("%d rows came, %d are stored", n, b.data.rows)
		}
		return time.Since(began), err
	})
	if err != nil {
		return 0, err
	}
	r, err := server.Resident()
	if err != nil {
		return 0, err
	}
	b.report.atMost("memory over the cache, TPC-H stored and scanned, "+name, "MiB",
		float64(r.Anonymous-memoryCache)/mib, "", 0, memoryAllowance/mib)
	b.report.atMost("pages of mapped files beside it, "+name, "MiB", float64(r.Files)/mib, "", 0, 0)
	return took, nil
}
