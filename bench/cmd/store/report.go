package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
)

// metric is one line of the report.
type metric struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Skein float64 `json:"skein"`
	// Other is what Skein is set against, with its name; 0 for targets that
	// stand by themselves.
	Other  float64 `json:"other,omitempty"`
	Versus string  `json:"versus,omitempty"`
	// Value is what the target bounds: the ratio of Skein to the other, or
	// Skein's own figure.
	Value  float64 `json:"value"`
	Target float64 `json:"target,omitempty"`
	AtMost bool    `json:"target_is_upper_bound"`
	Met    bool    `json:"met"`
}

type report struct {
	CPUs    int      `json:"cpus"`
	DuckDB  string   `json:"duckdb_version"`
	Rows    int64    `json:"lineitem_rows"`
	Metrics []metric `json:"metrics"`
}

func newReport(l *lineitem) *report { return &report{CPUs: runtime.NumCPU(), Rows: l.rows} }

// atLeast and atMost add a figure with its bound; other is 0 for a bound on the
// figure itself, and a bound of 0 is none.
func (r *report) atLeast(name, unit string, skein float64, versus string, other, bound float64) {
	r.add(metric{Name: name, Unit: unit, Skein: skein, Versus: versus, Other: other, Target: bound})
}

func (r *report) atMost(name, unit string, skein float64, versus string, other, bound float64) {
	r.add(metric{Name: name, Unit: unit, Skein: skein, Versus: versus, Other: other, Target: bound, AtMost: true})
}

func (r *report) add(m metric) {
	m.Value = m.Skein
	if m.Other > 0 {
		m.Value = m.Skein / m.Other
	}
	m.Met = m.Target == 0 || (m.AtMost && m.Value <= m.Target) || (!m.AtMost && m.Value >= m.Target)
	r.Metrics = append(r.Metrics, m)
	fmt.Fprintf(os.Stderr, "%s: %.4g %s", m.Name, m.Skein, m.Unit)
	if m.Other > 0 {
		fmt.Fprintf(os.Stderr, ", %s %.4g, ratio %.2f", m.Versus, m.Other, m.Value)
	}
	fmt.Fprintln(os.Stderr)
}

func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nlineitem, %d rows, %d CPUs, DuckDB %s\n\n", r.Rows, r.CPUs, r.DuckDB)
	fmt.Fprint(w, "what\tSkein\tunit\tagainst\tratio\ttarget\t\n")
	for _, m := range r.Metrics {
		against, ratio, target := "", "", ""
		if m.Other > 0 {
			against, ratio = fmt.Sprintf("%.4g %s", m.Other, m.Versus), fmt.Sprintf("%.2f", m.Value)
		}
		if m.Target > 0 {
			sign := ">="
			if m.AtMost {
				sign = "<="
			}
			verdict := "met"
			if !m.Met {
				verdict = "MISSED"
			}
			target = fmt.Sprintf("%s %.4g %s", sign, m.Target, verdict)
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\t%s\t%s\t\n", m.Name, m.Skein, m.Unit, against, ratio, target)
	}
	return w.Flush()
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
