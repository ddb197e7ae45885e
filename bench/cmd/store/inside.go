package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Some figures are of the store inside a worker, where no client can measure
// them. They come from benchmarks of the store's own package.

// inside runs one benchmark of the store and returns its metrics by name.
func (b *bench) inside(ctx context.Context, name string, args ...string) (map[string]float64, error) {
	flags := append([]string{"test", "./storage", "-run", "^$", "-timeout", "30m", "-bench", "^" + name + "$"}, args...)
	cmd := exec.CommandContext(ctx, "go", flags...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "TMPDIR="+b.scratch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w\n%s", name, err, out)
	}
	metrics := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("reading the result %q: %w", lines.Text(), err)
			}
			metrics[fields[i+1]] = value
		}
	}
	if len(metrics) == 0 {
		return nil, fmt.Errorf("%s printed no result:\n%s", name, out)
	}
	return metrics, nil
}

// lookups reads single rows by key inside a worker, all columns of ten million
// rows.
func (b *bench) lookups(ctx context.Context) error {
	for _, order := range []string{"sorted", "shuffled"} {
		m, err := b.inside(ctx, "BenchmarkPointRead/"+order, "-benchtime", "50000x", "-point-rows", "10000000")
		if err != nil {
			return err
		}
		b.report.atMost("point read in the worker, 10 M rows, "+order+", p50", "us", m["p50-ns"]/1000, "", 0, 100)
		b.report.atMost("the same, p99", "us", m["p99-ns"]/1000, "", 0, 0)
	}
	return nil
}

// upserts replaces rows one by one and scans what is left.
func (b *bench) upserts(ctx context.Context) error {
	m, err := b.inside(ctx, "BenchmarkUpsert", "-benchtime", "1x", "-upserts", "1000000")
	if err != nil {
		return err
	}
	b.report.atLeast("single-row upserts in the worker, 1 M over 100 K keys", "1/s", m["upserts/s"], "", 0, 0)
	b.report.atMost("most segments meanwhile", "", m["most-segments"], "", 0, 0)
	b.report.atMost("compaction's catch-up", "s", m["catch-up-s"], "", 0, 0)
	b.report.atMost("scan after the upserts", "ms", m["scan-ms"], "loaded at once", m["fresh-scan-ms"], 1.5)
	return nil
}
