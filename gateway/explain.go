package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skein/columnar"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// explanation is what EXPLAIN shows. Its fields are those of the JSON form; the
// text form has the same.
type explanation struct {
	Statement     string           `json:"statement"`
	Table         string           `json:"table,omitempty"` // that is changed
	QueryID       string           `json:"query_id,omitempty"`
	Plans         []*explainedPlan `json:"plans"`
	MorePlans     int              `json:"plans_left_out,omitempty"`
	Changed       *int64           `json:"rows_changed,omitempty"`
	PlanningTime  *float64         `json:"planning_time_ms,omitempty"`
	ExecutionTime *float64         `json:"execution_time_ms,omitempty"`
}

// explainedPlan is one query of the statement.
type explainedPlan struct {
	Lite []string `json:"lite_ir"`
	*planner.Explained
	Detail []string `json:"fragment_plans,omitempty"` // with VERBOSE
	Silent []string `json:"workers_without_report,omitempty"`
	Rows   *uint64  `json:"rows,omitempty"`
}

// explain plans a statement and draws the plan.
func (s *sqlService) explain(e *sql.Explain) ([]string, error) {
	out, node, err := s.explained(e)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	root, err := s.optimize(node)
	if err != nil {
		return nil, err
	}
	snap := s.gw.directory.Current()
	plan, err := planner.Distribute(planner.Description{QueryID: "explain", Root: root, Options: s.gw.planner}, snap, snap)
	if err != nil {
		return nil, fmt.Errorf("distributing the plan: %w", err)
	}
	out.PlanningTime = millis(time.Since(began))
	worker := func(id planner.FragmentID) string {
		addr, err := s.gw.workers.placeFragment(snap, plan.Fragments[id])
		if err != nil {
			return "no known worker"
		}
		return addr
	}
	out.Plans = []*explainedPlan{drawPlan(e, root, plan, planner.ExplainOptions{Costs: e.Costs, Worker: worker})}
	return out.lines(e)
}

// explained starts an explanation and finds the plan of the statement.
func (s *sqlService) explained(e *sql.Explain) (*explanation, planner.Node, error) {
	switch b := e.Statement.(type) {
	case *sql.Query:
		return &explanation{Statement: "SELECT"}, b.Node, nil
	case *sql.Insert:
		return &explanation{Statement: "INSERT", Table: displayName(b.Table.Schema, b.Table.Name)}, b.Source, nil
	case *sql.Update:
		return &explanation{Statement: "UPDATE", Table: displayName(b.Table.Schema, b.Table.Name)}, b.Source, nil
	case *sql.Delete:
		return &explanation{Statement: "DELETE", Table: displayName(b.Table.Schema, b.Table.Name)}, b.Source, nil
	}
	return nil, nil, sqlstate.New(sqlstate.FeatureNotSupported, "EXPLAIN of this kind of statement is not supported").
		WithHint("EXPLAIN takes SELECT, VALUES, INSERT, UPDATE and DELETE")
}

// analyze runs a statement, throws its rows away and draws what it did. One
// that changes rows changes them.
func (s *sqlService) analyze(ctx context.Context, id, text string, e *sql.Explain) ([]string, error) {
	out, node, err := s.explained(e)
	if err != nil {
		return nil, err
	}
	out.QueryID = id
	a := &analysis{timing: e.Timing}
	began := time.Now()
	var planning time.Duration
	if out.Table == "" {
		planning, err = s.analyzeQuery(ctx, id, node, a)
		out.PlanningTime = millis(planning)
	} else {
		err = s.analyzeChange(ctx, id, text, e, a, out)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range a.runs {
		out.Plans = append(out.Plans, drawRun(e, r))
	}
	out.MorePlans = a.more
	out.ExecutionTime = millis(time.Since(began) - planning)
	return out.lines(e)
}

// analyzeQuery runs a query and returns how long planning it took.
func (s *sqlService) analyzeQuery(ctx context.Context, id string, node planner.Node, a *analysis) (time.Duration, error) {
	began := time.Now()
	root, err := s.optimize(node)
	if err != nil {
		return 0, err
	}
	drop := func(*columnar.Batch) error { return nil }
	if err := s.gw.runQuery(ctx, id, &job{root: root}, clientSink{batch: drop, analysis: a}); err != nil {
		return 0, s.ifDropped(ctx, err, scanned(root, nil)...)
	}
	return a.runs[0].began.Sub(began), nil
}

// analyzeChange runs an INSERT, UPDATE or DELETE.
func (s *sqlService) analyzeChange(ctx context.Context, id, text string, e *sql.Explain, a *analysis, out *explanation) error {
	st := &statement{text: text, bound: &sql.BoundStatement{Statement: e.Statement}, analysis: a}
	done, err := s.changeRows(ctx, id, st, [][]*planner.Literal{nil})
	if err != nil {
		return err
	}
	done.result.close()
	out.Changed = &done.rows
	return nil
}

func drawPlan(e *sql.Explain, root planner.Node, plan *planner.Plan, o planner.ExplainOptions) *explainedPlan {
	p := &explainedPlan{Lite: splitLines(planner.ExplainLite(root)), Explained: planner.ExplainStages(plan, o)}
	if e.Verbose {
		p.Detail = splitLines(planner.Explain(plan))
	}
	return p
}

func drawRun(e *sql.Explain, r *analyzedRun) *explainedPlan {
	p := drawPlan(e, r.root, r.plan, planner.ExplainOptions{
		Costs: e.Costs, Verbose: e.Verbose, Timing: e.Timing, Measured: r.stats,
		Worker: func(id planner.FragmentID) string { return r.address[id] },
	})
	slices.Sort(r.silent)
	p.Silent, p.Rows = r.silent, &r.rows
	return p
}

// lines is the explanation as the lines of its result.
func (x *explanation) lines(e *sql.Explain) ([]string, error) {
	if !e.Summary {
		x.PlanningTime, x.ExecutionTime = nil, nil
	}
	var b strings.Builder
	if e.JSON {
		to := json.NewEncoder(&b)
		to.SetEscapeHTML(false)
		to.SetIndent("", "  ")
		if err := to.Encode(x); err != nil {
			return nil, fmt.Errorf("writing an explanation: %w", err)
		}
		return []string{strings.TrimRight(b.String(), "\n")}, nil
	}
	if x.Table != "" {
		fmt.Fprintf(&b, "%s on %s", x.Statement, x.Table)
		if x.Changed != nil {
			fmt.Fprintf(&b, " (actual rows=%d)", *x.Changed)
		}
		b.WriteByte('\n')
	}
	for _, p := range x.Plans {
		p.text(&b)
	}
	if x.MorePlans > 0 {
		fmt.Fprintf(&b, "%d more plans are not shown\n", x.MorePlans)
	}
	if x.PlanningTime != nil {
		fmt.Fprintf(&b, "Planning Time: %.3f ms\n", *x.PlanningTime)
	}
	if x.ExecutionTime != nil {
		fmt.Fprintf(&b, "Execution Time: %.3f ms\n", *x.ExecutionTime)
	}
	if x.QueryID != "" && e.Summary {
		fmt.Fprintf(&b, "Query Id: %s\n", x.QueryID)
	}
	return splitLines(b.String()), nil
}

func (p *explainedPlan) text(b *strings.Builder) {
	b.WriteString("lite IR\n  " + strings.Join(p.Lite, "\n  ") + "\n\n" + p.Text())
	if len(p.Detail) > 0 {
		b.WriteString("Fragments\n  " + strings.Join(p.Detail, "\n  ") + "\n")
	}
	if len(p.Silent) > 0 {
		fmt.Fprintf(b, "No report came from %s\n", strings.Join(p.Silent, ", "))
	}
}

func splitLines(text string) []string {
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

func millis(d time.Duration) *float64 {
	ms := float64(d.Microseconds()) / 1000
	return &ms
}
