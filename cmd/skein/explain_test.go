package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skein/cmd/skein/internal/client"
	"skein/planner"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// explained is the JSON form of EXPLAIN.
type explained struct {
	Statement     string         `json:"statement"`
	Table         string         `json:"table"`
	QueryID       string         `json:"query_id"`
	Plans         []*explainPlan `json:"plans"`
	Changed       *int64         `json:"rows_changed"`
	PlanningTime  *float64       `json:"planning_time_ms"`
	ExecutionTime *float64       `json:"execution_time_ms"`
}

type explainPlan struct {
	planner.Explained
	Lite   []string `json:"lite_ir"`
	Silent []string `json:"workers_without_report"`
	Rows   *uint64  `json:"rows"`
}

func explainJSON(ctx context.Context, c *client.Client, statement string) (*explained, error) {
	lines, err := explainLines(ctx, c, statement)
	if err != nil {
		return nil, err
	}
	x := &explained{}
	return x, json.Unmarshal([]byte(strings.Join(lines, "\n")), x)
}

// explainLines returns the one text column of a statement.
func explainLines(ctx context.Context, c *client.Client, statement string) ([]string, error) {
	r, err := c.Run(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var lines []string
	for {
		b, err := r.Next()
		if b == nil || err != nil {
			return lines, err
		}
		for i := range int(b.NumRows()) {
			lines = append(lines, b.Column(0).ValueStr(i))
		}
	}
}

// explainTables makes two tables of three tablets each.
func explainTables(t *testing.T, c *client.Client) {
	t.Helper()
	for _, statement := range []string{
		"CREATE TABLE a (id BIGINT PRIMARY KEY, g INTEGER, name TEXT) WITH (tablets = 3, replicas = 1)",
		"CREATE TABLE b (bid BIGINT PRIMARY KEY, aid BIGINT, v DOUBLE PRECISION) WITH (tablets = 3, replicas = 1)",
	} {
		eventually(t, "creating a table", func(ctx context.Context) error {
			_, err := c.Exec(ctx, strings.Replace(statement, "TABLE", "TABLE IF NOT EXISTS", 1))
			return err
		})
	}
	var a, b []string
	for i := range explainRows {
		a = append(a, fmt.Sprintf("(%d, %d, 'n%d')", i, i%10, i%7))
		b = append(b, fmt.Sprintf("(%d, %d, %d)", i, i*7%explainRows, i))
	}
	for table, rows := range map[string][]string{"a": a, "b": b} {
		eventually(t, "filling "+table, func(ctx context.Context) error {
			_, err := c.Exec(ctx, "INSERT INTO "+table+" VALUES "+strings.Join(rows, ",")+" ON CONFLICT DO NOTHING")
			return err
		})
	}
}

const explainRows = 3000

// TestExplainAnalyzeAddsUp runs queries over three workers and checks that what
// the workers report fits together: no row gets lost between operators, stages
// and the client.
func TestExplainAnalyzeAddsUp(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	c := dial(t, cluster.flight)
	explainTables(t, c)
	for _, q := range []struct {
		sql   string
		whole bool // every operator is read to its end
	}{
		{"SELECT a.g, count(*), sum(v) FROM a JOIN b ON id = aid WHERE g < 3 GROUP BY a.g ORDER BY a.g", true},
		{"SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) FROM a", true},
		{"SELECT g, count(DISTINCT name) FROM a GROUP BY g", true},
		{"SELECT x.id FROM a x LEFT JOIN b ON x.g = b.aid WHERE b.v IS NULL", true},
		{"SELECT name FROM a WHERE id = 17", true},
		{"SELECT name FROM a WHERE id IN (SELECT aid FROM b WHERE v > 2900) ORDER BY id", true},
		{"SELECT g FROM a UNION ALL SELECT 1", true},
		{"SELECT * FROM a LIMIT 5", false},
		{"SELECT * FROM a LIMIT 0", false},
		{"SELECT * FROM a ORDER BY name DESC, id LIMIT 5 OFFSET 3", false},
	} {
		for _, options := range []string{"", ", TIMING OFF", ", VERBOSE, COSTS OFF"} {
			t.Run(q.sql+options, func(t *testing.T) {
				rows, err := query(testContext(t), c, q.sql)
				if err != nil {
					t.Fatal(err)
				}
				x, err := explainJSON(testContext(t), c, "EXPLAIN (ANALYZE, FORMAT JSON"+options+") "+q.sql)
				if err != nil {
					t.Fatal(err)
				}
				if len(x.Plans) != 1 || x.QueryID == "" || x.PlanningTime == nil || x.ExecutionTime == nil || len(x.Plans[0].Silent) > 0 {
					t.Fatalf("%+v", x)
				}
				rows = slices.DeleteFunc(rows, func(s string) bool { return s == "" })
				if got := *x.Plans[0].Rows; got != uint64(len(rows)) {
					t.Errorf("%d rows are reported of %d", got, len(rows))
				}
				checkExplained(t, x.Plans[0], q.whole)
			})
		}
	}
	x, err := explainJSON(testContext(t), c, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id, rank() OVER (PARTITION BY g ORDER BY id) FROM a JOIN b ON id = aid")
	if err != nil {
		t.Fatal(err)
	}
	between, workers := false, map[string]bool{}
	for _, s := range x.Plans[0].Stages {
		for _, w := range s.Workers {
			workers[w] = true
		}
		for _, send := range s.Sends {
			between = between || s.Place == "tablets" && x.Plans[0].Stages[send.To-1].Place == "tablets"
		}
	}
	if !between || len(workers) < 2 {
		t.Errorf("between workers: %t, workers: %v", between, workers)
	}
}

// checkExplained checks that the rows of a measured plan add up.
func checkExplained(t *testing.T, p *explainPlan, whole bool) {
	t.Helper()
	byID := map[int]*planner.ExplainedStage{}
	for _, s := range p.Stages {
		byID[s.ID] = s
	}
	if got := p.Stages[0].Root.Actual.Rows; got != *p.Rows {
		t.Errorf("the root put out %d rows of %d", got, *p.Rows)
	}
	for _, s := range p.Stages {
		if whole && s.Actual.Ran != len(s.Fragments) {
			t.Errorf("%d of %d fragments of stage %d ran", s.Actual.Ran, len(s.Fragments), s.ID)
		}
		var visit func(op *planner.ExplainedOperator)
		visit = func(op *planner.ExplainedOperator) {
			in := uint64(0)
			for _, input := range op.Inputs {
				visit(input)
				in += input.Actual.Rows
			}
			a := op.Actual
			if len(op.Inputs) > 0 && (a.RowsIn == nil || *a.RowsIn != in) {
				t.Errorf("%s has other rows in than its inputs' %d out: %+v", op.Name, in, a)
			}
			if a.Scan != nil && a.Scan.Rows != a.Rows+a.Dropped+a.Filtered {
				t.Errorf("%s of stage %d read %d rows: %+v", op.Name, s.ID, a.Scan.Rows, a)
			}
			if from := byID[op.From]; op.From > 0 && whole {
				sent := from.Root.Actual.Rows
				if strings.HasPrefix(op.Detail, string(planner.BroadcastExchange)) {
					sent *= uint64(len(s.Fragments))
				}
				if sent != a.Rows+a.Dropped || a.Rows > 0 && a.Received == 0 {
					t.Errorf("stage %d sent %d rows to stage %d, which got %+v", from.ID, sent, s.ID, a)
				}
			}
		}
		visit(s.Root)
	}
}

// TestExplainGolden compares the text forms, with figures that change from run
// to run replaced.
func TestExplainGolden(t *testing.T) {
	t.Parallel()
	s := startDev(t, ":memory:")
	c := dial(t, s.flight)
	explainTables(t, c)
	// Estimates follow the workers' reports; these are about to come.
	eventually(t, "statistics", func(ctx context.Context) error {
		lines, err := explainLines(ctx, c, "EXPLAIN SELECT * FROM a")
		if err == nil && !strings.Contains(strings.Join(lines, "\n"), "TabletScan a [id, g, name] (rows=3000)") {
			err = fmt.Errorf("estimates are not there yet: %s", lines)
		}
		return err
	})
	var out strings.Builder
	for _, statement := range []string{
		"EXPLAIN SELECT a.g, count(*) FROM a JOIN b ON id = aid GROUP BY a.g ORDER BY a.g LIMIT 2",
		"EXPLAIN (COSTS OFF, SUMMARY) SELECT name FROM a WHERE id = 4",
		"EXPLAIN ANALYZE SELECT a.g, count(*) FROM a JOIN b ON id = aid WHERE a.g < 3 GROUP BY a.g ORDER BY a.g LIMIT 2",
		"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) SELECT name FROM a WHERE id = 4",
		"EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT max(v) FROM b WHERE bid >= 2990",
		"EXPLAIN (ANALYZE, TIMING OFF) UPDATE a SET name = 'x' WHERE id < 10",
		"EXPLAIN DELETE FROM a",
	} {
		lines, err := explainLines(testContext(t), c, statement)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		fmt.Fprintf(&out, "%s\n%s\n\n", statement, normalized(strings.Join(lines, "\n")))
	}
	path := filepath.Join("testdata", "explain.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("EXPLAIN is drawn as\n%s\nwant, from %s,\n%s", out.String(), path, want)
	}
}

// normalized replaces what differs from run to run and from machine to machine.
func normalized(text string) string {
	for _, r := range []struct{ from, to string }{
		{`127\.0\.0\.1:\d+`, "WORKER"},
		{`(time|cpu|self)=[0-9.]+`, "$1=T"},
		{`, time min [0-9.]+ avg [0-9.]+ max [0-9.]+`, ", time SPREAD"},
		{`(Time: )[0-9.]+`, "${1}T"},
		{`Query Id: [0-9a-f]+`, "Query Id: ID"},
		{`(memory[ =]|received[ =]|spilled[ =]|min |avg |max )[0-9.]+ ([KMG]i)?B`, "${1}SIZE"},
		{`(?m)^ +memory SIZE.*\n`, ""}, // whether an operator holds any depends on its parts
		{`rows min \d+(\.\d)? avg \d+(\.\d)? max \d+(\.\d)?`, "rows SPREAD"},
		{`batches=\d+ parts=\d+`, "batches=N parts=N"},
		{`metadata version \d+`, "metadata version V"},
		{`, \d+ bytes`, ", SIZE bytes"},
	} {
		text = regexp.MustCompile(r.from).ReplaceAllString(text, r.to)
	}
	return text
}

// TestExplainAnalyzeChangesRows checks that a statement that changes rows does,
// and that EXPLAIN alone does not.
func TestExplainAnalyzeChangesRows(t *testing.T) {
	t.Parallel()
	c := dial(t, startDev(t, ":memory:").flight)
	mustExec(t, c, "CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER) WITH (tablets = 3)")
	for _, step := range []struct {
		sql     string
		changed int64
		after   string // count and sum
	}{
		{"INSERT INTO t SELECT 1, 10 UNION ALL SELECT 2, 20", 2, "2,30"},
		{"INSERT INTO t VALUES (2, 5), (3, 5) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n", 2, "3,40"},
		{"UPDATE t SET n = n + 1 WHERE id < 3 RETURNING *", 2, "3,42"},
		{"DELETE FROM t WHERE n > 20", 1, "2,16"},
		{"DELETE FROM t WHERE n > 1000", 0, "2,16"},
	} {
		for _, explain := range []string{"EXPLAIN ", "EXPLAIN (FORMAT JSON) "} {
			if _, err := explainLines(testContext(t), c, explain+step.sql); err != nil {
				t.Fatalf("%s%s: %v", explain, step.sql, err)
			}
		}
		x, err := explainJSON(testContext(t), c, "EXPLAIN (ANALYZE, FORMAT JSON) "+step.sql)
		if err != nil {
			t.Fatalf("%s: %v", step.sql, err)
		}
		if x.Changed == nil || *x.Changed != step.changed || x.Statement != strings.Fields(step.sql)[0] || x.Table != "t" || len(x.Plans) == 0 {
			t.Errorf("%s: %+v", step.sql, x)
		}
		rows, err := query(testContext(t), c, "SELECT count(*), sum(n) FROM t")
		if err != nil || len(rows) != 1 || rows[0] != step.after {
			t.Errorf("after %s there is %v, %v, want %s", step.sql, rows, err, step.after)
		}
	}
	if _, err := explainLines(testContext(t), c, "EXPLAIN ANALYZE INSERT INTO t VALUES (1, 1)"); err == nil || !strings.Contains(err.Error(), "23505") {
		t.Errorf("a taken key: %v", err)
	}
	if _, err := explainLines(testContext(t), c, "EXPLAIN ANALYZE SELECT 1 / (n - n) FROM t"); err == nil || !strings.Contains(err.Error(), "22012") {
		t.Errorf("an error in a worker: %v", err)
	}
}

// TestQueryIDsInLogs follows a statement by its id from EXPLAIN through the
// gateway's slow-statement line to the worker's log.
func TestQueryIDsInLogs(t *testing.T) {
	t.Parallel()
	s := startDev(t, ":memory:", "--slow-statement", "1ns", "--log-format", "json", "--log-level", "debug")
	c := dial(t, s.flight)
	mustExec(t, c, "CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 2)")
	mustExec(t, c, "INSERT INTO t VALUES (1), (2), (3)")
	x, err := explainJSON(testContext(t), c, "EXPLAIN (ANALYZE, FORMAT JSON) SELECT id FROM t /* mark */")
	if err != nil {
		t.Fatal(err)
	}
	var slow, fragments map[string]any
	eventually(t, "the log", func(context.Context) error {
		for _, line := range strings.Split(s.stderr.String(), "\n") {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) != nil {
				continue
			}
			id, _ := entry["query_id"].(string)
			switch {
			case entry["msg"] == "slow statement" && id == x.QueryID:
				slow = entry
			case entry["msg"] == "fragments started" && strings.HasPrefix(id, x.QueryID+"."):
				fragments = entry
			}
		}
		if slow == nil || fragments == nil {
			return fmt.Errorf("query %s is not in the log: %v, %v", x.QueryID, slow, fragments)
		}
		return nil
	})
	took, _ := slow["duration_seconds"].(float64)
	text, _ := slow["statement"].(string)
	if slow["level"] != "WARN" || slow["kind"] != "query" || slow["sqlstate"] != "00000" || slow["rows"] != 1.0 || took <= 0 || !strings.Contains(text, "mark") {
		t.Errorf("the slow statement is logged as %v", slow)
	}
	r, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	metrics, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`skein_gateway_slow_statements_total\{kind="query"\} [1-9]`, `skein_worker_fragments 0`, `skein_worker_spilled_bytes_total 0`} {
		if !regexp.MustCompile(want).Match(metrics) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}
