package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"skein/cmd/skein/internal/client"
	"skein/flightproto"
	"skein/internal/faultproxy"
	"skein/planner"
)

// spreadRows is the size of the larger table of spread tests, of which a half has
// one key.
const spreadRows = 4000

// spreadTables makes f (facts), s (the same rows, cut by another column) and d
// (dimensions), in two schemas: whole has them in one tablet each, cut spreads
// them over tablets on all workers.
func spreadTables(t *testing.T, c *client.Client) {
	t.Helper()
	var facts, dims []string
	for i := range spreadRows {
		k, g, name := fmt.Sprint(7), fmt.Sprint(i%13), fmt.Sprintf("'n%d'", i%101)
		if i%2 == 1 {
			k = fmt.Sprint(i % 997)
		}
		if i%29 == 0 {
			k = "NULL"
		}
		if i%31 == 0 {
			g, name = "NULL", "NULL"
		}
		facts = append(facts, fmt.Sprintf("(%d, %s, %s, %s, %d.%02d)", i, k, g, name, i%500, i%100))
	}
	for i := range 700 {
		label := fmt.Sprintf("'d%d'", i%17)
		k := fmt.Sprint(i * 2)
		if i%50 == 0 {
			k, label = "NULL", "NULL"
		}
		dims = append(dims, fmt.Sprintf("(%d, %s, %s)", i, k, label))
	}
	for prefix, options := range map[string][3]string{
		"whole": {},
		"cut": {" PARTITION BY HASH (id) WITH (tablets = 5, replicas = 1)", " PARTITION BY HASH (k) WITH (tablets = 3, replicas = 1)",
			" PARTITION BY HASH (did) WITH (tablets = 4, replicas = 1)"},
	} {
		key := [2]string{"id BIGINT PRIMARY KEY, k BIGINT", "id BIGINT, k BIGINT"}
		for i, table := range []string{"f", "s", "d"} {
			columns, rows := key[min(i, 1)]+", g INTEGER, name TEXT, v DECIMAL(12, 2)", facts
			if table == "d" {
				columns, rows = "did BIGINT, dk BIGINT, label TEXT", dims
			}
			statement := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s_%s (%s)%s", prefix, table, columns, options[i])
			eventually(t, "creating a table", func(ctx context.Context) error {
				_, err := c.Exec(ctx, statement)
				return err
			})
			mustExec(t, c, fmt.Sprintf("INSERT INTO %s_%s VALUES %s", prefix, table, strings.Join(rows, ",")))
		}
	}
}

// spreadQueries have one answer, whatever order rows are read in. F, S and D are
// the tables.
var spreadQueries = []string{
	// Joins of every kind: colocated or not, with a half of the rows on one key.
	"SELECT count(*), sum(F.v) FROM F JOIN S ON F.id = S.id",
	"SELECT count(*), sum(S.id) FROM F JOIN S ON F.k = S.k WHERE F.id < 40",
	"SELECT F.id, D.label FROM F LEFT JOIN D ON F.k = D.dk",
	"SELECT F.id, D.did FROM F RIGHT JOIN D ON F.k = D.dk AND F.g > 5",
	"SELECT F.id, D.did FROM F FULL JOIN D ON F.id = D.dk",
	"SELECT F.id, S.id FROM F FULL JOIN S ON F.id = S.id + 3500",
	"SELECT id FROM F WHERE EXISTS (SELECT 1 FROM D WHERE dk = F.k)",
	"SELECT id FROM F WHERE NOT EXISTS (SELECT 1 FROM S WHERE S.k = F.id)",
	"SELECT id FROM F WHERE k IN (SELECT dk FROM D WHERE label = 'd3')",
	"SELECT id FROM F WHERE id NOT IN (SELECT dk FROM D WHERE dk IS NOT NULL)",
	"SELECT count(*) FROM F WHERE id NOT IN (SELECT dk FROM D)",
	"SELECT id, k IN (SELECT dk FROM D WHERE label <> 'd2') OR g = 3 FROM F",
	"SELECT id, (SELECT max(label) FROM D WHERE dk = F.k) FROM F",
	"SELECT count(*) FROM F JOIN D ON F.k < D.dk AND D.did < 30",
	// Aggregates of few and of many groups.
	"SELECT k, count(*), sum(v), min(name), avg(g) FROM F GROUP BY k",
	"SELECT id, k, count(*) FROM S GROUP BY id, k",
	"SELECT count(DISTINCT k), count(DISTINCT name), sum(DISTINCT g), count(*) FROM F",
	"SELECT g, count(DISTINCT id), count(DISTINCT k) FROM S GROUP BY g",
	"SELECT DISTINCT k, name FROM S",
	"SELECT DISTINCT F.id % 3000 FROM F",
	"SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM F GROUP BY g",
	"SELECT g, name, count(*) FROM F GROUP BY GROUPING SETS ((g, name), (g), ())",
	// Set operations, whose rows must meet.
	"SELECT k FROM F INTERSECT SELECT dk FROM D",
	"SELECT k FROM S EXCEPT SELECT dk FROM D",
	"SELECT k, g FROM F INTERSECT ALL SELECT k, g FROM S WHERE id % 3 = 0",
	"SELECT k FROM F EXCEPT ALL SELECT k FROM S WHERE id > 1000",
	"SELECT k FROM F UNION SELECT dk FROM D",
	"SELECT count(*), sum(k) FROM (SELECT k FROM F UNION ALL SELECT dk FROM D) AS u",
	// Windows.
	"SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) FROM F",
	"SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM S",
	"SELECT id, rank() OVER (ORDER BY k NULLS FIRST, id), lag(id, 2) OVER (ORDER BY k NULLS FIRST, id) FROM F",
	// Orders and limits.
	"SELECT id, k FROM F ORDER BY k DESC NULLS LAST, id",
	"SELECT id, k FROM S ORDER BY k, id LIMIT 25 OFFSET 1990",
	"SELECT count(*) FROM (SELECT id FROM F LIMIT 777) AS few",
	"SELECT count(*) FROM (SELECT F.id FROM F JOIN S ON F.k = S.k LIMIT 5000) AS few",
	"SELECT count(*) FROM (SELECT k FROM S OFFSET 3990) AS few",
	"SELECT F.id, S.id FROM F JOIN S ON F.k = S.k ORDER BY F.id, S.id LIMIT 40",
	"WITH x AS MATERIALIZED (SELECT k, count(*) AS n FROM F GROUP BY k) SELECT a.k, b.n FROM x AS a JOIN x AS b ON a.n = b.n WHERE a.k < 50",
}

// spread writes a query for one of the schemas.
func spread(query, prefix string) string {
	words := strings.FieldsFunc(query, func(r rune) bool { return r == ' ' })
	for i, w := range words {
		switch w {
		case "F", "S", "D":
			words[i] = prefix + "_" + strings.ToLower(w) + " AS " + strings.ToLower(w)
		}
	}
	return strings.NewReplacer("F.", "f.", "S.", "s.", "D.", "d.", "D)", prefix+"_d AS d)").Replace(strings.Join(words, " "))
}

// sortedRows are the rows of a query in an order of their own, unless it has one.
func sortedRows(ctx context.Context, c *client.Client, text string) ([]string, error) {
	rows, err := query(ctx, c, text)
	if !strings.Contains(text[strings.LastIndex(text, ")")+1:], " ORDER BY ") {
		slices.Sort(rows)
	}
	return rows, err
}

// TestSpreadTablesAnswerAsWholeOnes runs queries over tables on three workers and
// over the same tables in one tablet.
func TestSpreadTablesAnswerAsWholeOnes(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	c := dial(t, cluster.flight)
	spreadTables(t, c)
	for _, q := range spreadQueries {
		want, err := sortedRows(testContext(t), c, spread(q, "whole"))
		if err != nil {
			t.Errorf("%s: %v", spread(q, "whole"), err)
			continue
		}
		got, err := sortedRows(testContext(t), c, spread(q, "cut"))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d rows instead of %d, error %v", spread(q, "cut"), len(got), len(want), err)
		}
	}
}

// startFaultyCluster is three workers, each behind a proxy, and a gateway with
// further settings.
func startFaultyCluster(t *testing.T, settings ...string) (*cluster, []*faultproxy.Proxy) {
	t.Helper()
	ports := freePorts(t, 11)
	c := &cluster{t: t, workers: make([]*process, 3), flight: ports[9]}
	var proxies []*faultproxy.Proxy
	var fronts []string
	for i := range 3 {
		l := listenAt(t, ports[3*i+2])
		proxy, err := faultproxy.New(l, ports[3*i+1])
		if err != nil {
			t.Fatal(err)
		}
		proxies, fronts = append(proxies, proxy), append(fronts, l.Addr().String())
		c.members = append(c.members, fmt.Sprintf("%d=%s/%s", i+1, ports[3*i], l.Addr()))
	}
	for i := range 3 {
		c.workers[i] = start(t, "worker", "--cluster", "test", "--node-id", fmt.Sprint(i+1), "--data", t.TempDir(),
			"--members", strings.Join(c.members, ","), "--flight", ports[3*i+1], "--init-if-empty", "--log-level", "warn")
	}
	c.gateway = start(t, append([]string{"gateway", "--workers", strings.Join(fronts, ","), "--flight", c.flight, "--http", "", "--log-level", "warn"}, settings...)...)
	t.Cleanup(func() {
		for _, p := range proxies {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return c, proxies
}

// TestClusterFaults spoils the streams of three worker processes while queries
// that gather, forward, join and sort run: the answer is exact or an error with a
// SQLSTATE, and the workers keep nothing.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	cluster, proxies := startFaultyCluster(t)
	c := dial(t, cluster.flight)
	spreadTables(t, c)
	starts := isAction(flightproto.ActionStart)
	faults := []faultproxy.Fault{
		{Kind: faultproxy.Reset, Place: faultproxy.Request, Match: starts},
		{Kind: faultproxy.Duplicate, Place: faultproxy.Request, Match: starts},
		{Kind: faultproxy.Drop, Place: faultproxy.Response, Match: starts},
		{Kind: faultproxy.Duplicate, Place: faultproxy.Request, Match: isPull},
		{Kind: faultproxy.Delay, Place: faultproxy.Response, For: 30 * time.Millisecond, Match: isPull},
		{Kind: faultproxy.Drop, Place: faultproxy.End, Match: isPull},
		{Kind: faultproxy.Reset, Place: faultproxy.End, Match: isPull},
	}
	for n := range 2 {
		for _, kind := range []faultproxy.Kind{faultproxy.Drop, faultproxy.Truncate, faultproxy.Duplicate, faultproxy.Reset, faultproxy.Finish} {
			faults = append(faults, faultproxy.Fault{Kind: kind, Place: faultproxy.Response, Message: n, Match: isPull})
		}
	}
	for _, text := range []string{
		"SELECT id, k FROM F",
		"SELECT k, count(*), sum(v) FROM F GROUP BY k",
		"SELECT F.id, S.id FROM F FULL JOIN S ON F.id = S.id + 3500",
		"SELECT id, k FROM F ORDER BY k DESC NULLS LAST, id",
	} {
		text = spread(text, "cut")
		want, err := sortedRows(testContext(t), c, text)
		if err != nil {
			t.Fatal(err)
		}
		fired, exact := 0, 0
		for i, f := range faults {
			at := proxies[i%len(proxies)]
			before := at.Fired()
			at.Arm(&f)
			got, err := sortedRows(testContext(t), c, text)
			at.Arm(nil)
			fired += at.Fired() - before
			switch {
			case err != nil && !sqlstateText.MatchString(err.Error()):
				t.Errorf("%s of %s %d: an error without SQLSTATE: %v", f.Kind, f.Place, f.Message, err)
			case err == nil && !slices.Equal(got, want):
				t.Errorf("%s of %s %d: %s: %d rows instead of %d", f.Kind, f.Place, f.Message, text, len(got), len(want))
			case err == nil:
				exact++
			}
		}
		t.Logf("%d faults happened, %d of %d answers were exact: %s", fired, exact, len(faults), text)
		if fired < len(faults)*2/3 {
			t.Errorf("only %d of %d faults happened", fired, len(faults))
		}
	}
	watch(t, cluster).await(testContext(t), "the workers keep nothing", func(busy, _ int, memory int64) bool {
		return busy == 0 && memory == 0
	})
}

// listenAt listens on an address that was free a moment ago.
func listenAt(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// scannedRows is how many rows the scans of a measured plan have read.
func scannedRows(p *explainPlan) uint64 {
	total := uint64(0)
	var visit func(op *planner.ExplainedOperator)
	visit = func(op *planner.ExplainedOperator) {
		if op.Actual != nil && op.Actual.Scan != nil {
			total += uint64(op.Actual.Scan.Rows)
		}
		for _, input := range op.Inputs {
			visit(input)
		}
	}
	for _, s := range p.Stages {
		visit(s.Root)
	}
	return total
}

// TestLimitsStopTheWorkers asks for few rows of many: the workers do not read the
// rest.
func TestLimitsStopTheWorkers(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	c := dial(t, cluster.flight)
	const rows = 3_000_000
	eventually(t, "creating a table", func(ctx context.Context) error {
		_, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS wide (id BIGINT, word TEXT) PARTITION BY HASH (id) WITH (tablets = 3, replicas = 1)")
		return err
	})
	mustExec(t, c, fmt.Sprintf("INSERT INTO wide SELECT n, repeat('x', 40) || n FROM generate_series(1, %d) AS t(n)", rows))
	for _, text := range []string{"SELECT * FROM wide LIMIT 5", "SELECT a.word FROM wide AS a WHERE a.id > 0 LIMIT 1000 OFFSET 10"} {
		x, err := explainJSON(testContext(t), c, "EXPLAIN (ANALYZE, FORMAT JSON) "+text)
		if err != nil {
			t.Fatal(err)
		}
		if read := scannedRows(x.Plans[0]); read == 0 || read > rows/4 {
			t.Errorf("%s read %d of %d rows", text, read, rows)
		}
	}
}
