package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// report is the result of one run, as it is written to the JSON file.
type report struct {
	Scale         string        `json:"scale_factor"`
	Started       string        `json:"started"`
	CPUs          int           `json:"cpus"`
	Tablets       int           `json:"tablets"`
	Workers       int           `json:"worker_processes"`
	DuckDB        string        `json:"duckdb_version"`
	Startup       float64       `json:"skein_startup_seconds"`
	Loads         []loadResult  `json:"loads"`
	Queries       []queryResult `json:"queries"`
	SkeinMemory   int64         `json:"skein_peak_memory_bytes"`
	SkeinDisk     int64         `json:"skein_disk_bytes"`
	SkeinTotal    float64       `json:"skein_total_ms"`
	DuckTotal     float64       `json:"duckdb_total_ms"`
	GeometricMean float64       `json:"geometric_mean_ratio"`
}

type loadResult struct {
	Table     string  `json:"table"`
	Rows      int64   `json:"rows"`
	Skein     float64 `json:"skein_rows_per_second"`
	Duck      float64 `json:"duckdb_rows_per_second,omitempty"`
	Statement string  `json:"through"` // ingest or skein load
}

type queryResult struct {
	Query int     `json:"query"`
	Rows  int     `json:"rows"`
	Skein float64 `json:"skein_ms"`
	Duck  float64 `json:"duckdb_ms"`
	Ratio float64 `json:"ratio"` // of Skein's time to DuckDB's
	Equal bool    `json:"rows_equal"`
	Error string  `json:"error,omitempty"`
}

// summarize fills the totals from the queries that both sides answered.
func (r *report) summarize() {
	logs, n := 0.0, 0
	for _, q := range r.Queries {
		if q.Error != "" && q.Skein == 0 {
			continue
		}
		r.SkeinTotal += q.Skein
		r.DuckTotal += q.Duck
		logs += math.Log(q.Ratio)
		n++
	}
	if n > 0 {
		r.GeometricMean = math.Exp(logs / float64(n))
	}
}

// failures counts the queries with an error or with other rows than DuckDB's.
func (r *report) failures() int {
	n := 0
	for _, q := range r.Queries {
		if !q.Equal {
			n++
		}
	}
	return n
}

func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nTPC-H SF %s, %d CPUs, DuckDB %s, tablets a table %d, worker processes %d (0: all in one), Skein ready in %.2f s\n\n",
		r.Scale, r.CPUs, r.DuckDB, r.Tablets, r.Workers, r.Startup)
	fmt.Fprint(w, "load\trows\tSkein rows/s\tDuckDB rows/s\tthrough\t\n")
	for _, l := range r.Loads {
		duck := "-"
		if l.Duck > 0 {
			duck = fmt.Sprintf("%.0f", l.Duck)
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t\n", l.Table, l.Rows, l.Skein, duck, l.Statement)
	}
	fmt.Fprint(w, "\nquery\tSkein ms\tDuckDB ms\tratio\trows\tequal\t\n")
	for _, q := range r.Queries {
		equal := "yes"
		if !q.Equal {
			equal = "NO"
		}
		fmt.Fprintf(w, "Q%d\t%.1f\t%.1f\t%.2f\t%d\t%s\t\n", q.Query, q.Skein, q.Duck, q.Ratio, q.Rows, equal)
	}
	fmt.Fprintf(w, "total\t%.1f\t%.1f\t%.2f\t\t\t\n", r.SkeinTotal, r.DuckTotal, r.SkeinTotal/r.DuckTotal)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, q := range r.Queries {
		if q.Error != "" {
			fmt.Fprintf(out, "Q%d: %s\n", q.Query, q.Error)
		}
	}
	_, err := fmt.Fprintf(out, "geometric mean of the ratios %.2f; Skein's peak memory %d MiB, disk %d MiB\n",
		r.GeometricMean, r.SkeinMemory>>20, r.SkeinDisk>>20)
	return err
}

func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
