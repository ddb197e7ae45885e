package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/cmd/skein/internal/client"
)

// parameterRow is one set of parameters: BIGINT for int, INTEGER for int32, TEXT for
// string, and the type null for nil.
func parameterRow(values ...any) arrow.RecordBatch {
	fields := make([]arrow.Field, len(values))
	for i, v := range values {
		fields[i] = arrow.Field{Name: strconv.Itoa(i + 1), Nullable: true, Type: map[string]arrow.DataType{
			"int": arrow.PrimitiveTypes.Int64, "int32": arrow.PrimitiveTypes.Int32, "string": arrow.BinaryTypes.String, "<nil>": arrow.Null,
		}[fmt.Sprintf("%T", v)]}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, v := range values {
		switch v := v.(type) {
		case int:
			b.Field(i).(*array.Int64Builder).Append(int64(v))
		case int32:
			b.Field(i).(*array.Int32Builder).Append(v)
		case string:
			b.Field(i).(*array.StringBuilder).Append(v)
		default:
			b.Field(i).AppendNull()
		}
	}
	return b.NewRecordBatch()
}

func prepare(t *testing.T, conn adbc.Connection, sql string) adbc.Statement {
	t.Helper()
	s := statement(t, conn, sql)
	if err := s.Prepare(testContext(t)); err != nil {
		t.Fatalf("preparing %s: %v", sql, err)
	}
	return s
}

// execute binds parameters and returns the rows, or the error's text.
func execute(ctx context.Context, s adbc.Statement, values ...any) string {
	if len(values) > 0 {
		if err := s.Bind(ctx, parameterRow(values...)); err != nil {
			return "bind: " + err.Error()
		}
	}
	r, _, err := s.ExecuteQuery(ctx)
	if err != nil {
		return err.Error()
	}
	defer r.Release()
	var rows []string
	for r.Next() {
		b := r.RecordBatch()
		for i := range int(b.NumRows()) {
			cells := make([]string, b.NumCols())
			for c, column := range b.Columns() {
				cells[c] = column.ValueStr(i)
			}
			rows = append(rows, strings.Join(cells, ","))
		}
	}
	if r.Err() != nil {
		return r.Err().Error()
	}
	return strings.Join(rows, " ")
}

// planRequests reads a counter of the plan cache.
func planRequests(t *testing.T, server *devServer, result string) int {
	t.Helper()
	r, err := http.Get("http://" + server.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("skein_gateway_plan_cache_requests_total{result=%q} ", result)
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no counter %s", prefix)
	return 0
}

// cacheTable has 40 rows k = 0 to 39 in 4 tablets by hash of k, v = k % 7 (NULL
// for 7 of them), s = 's' and k.
const cacheTable = "CREATE TABLE c (k BIGINT PRIMARY KEY, v INTEGER, s TEXT) PARTITION BY HASH (k) WITH (tablets = 4)"

func fillCacheTable(t *testing.T, c *client.Client) {
	t.Helper()
	mustExec(t, c, cacheTable)
	var rows []string
	for k := range 40 {
		v := strconv.Itoa(k % 7)
		if k%6 == 5 {
			v = "NULL"
		}
		rows = append(rows, fmt.Sprintf("(%d, %s, 's%d')", k, v, k))
	}
	mustExec(t, c, "INSERT INTO c VALUES "+strings.Join(rows, ", "))
}

// A statement gives the same rows whether its plan was kept or not, and whatever
// values it was made with.
func TestKeptPlans(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	fillCacheTable(t, dial(t, server.flight))
	conn := connectADBC(t, server.flight)
	type run struct {
		values []any
		want   string
	}
	for _, tc := range []struct {
		sql    string
		custom bool // the plan depends on the values
		runs   []run
	}{
		{"SELECT s FROM c WHERE k = $1", false, []run{
			{[]any{3}, "s3"}, {[]any{4}, "s4"}, {[]any{39}, "s39"}, {[]any{40}, ""}, {[]any{nil}, ""}, {[]any{int32(3)}, "s3"}, {[]any{3}, "s3"}}},
		{"SELECT k FROM c WHERE k IN ($1, $2, $3) ORDER BY k", false, []run{
			{[]any{1, 2, 3}, "1 2 3"}, {[]any{9, 9, 30}, "9 30"}, {[]any{nil, 2, nil}, "2"}, {[]any{99, 98, 97}, ""}}},
		{"SELECT k FROM c WHERE k BETWEEN $1 AND $2 ORDER BY k", false, []run{
			{[]any{3, 5}, "3 4 5"}, {[]any{5, 3}, ""}, {[]any{38, 99}, "38 39"}, {[]any{nil, 3}, ""}}},
		{"SELECT k + $1 AS n, $2 AS t FROM c WHERE k = 7", false, []run{
			{[]any{1, "a"}, "8,a"}, {[]any{-7, "b"}, "0,b"}, {[]any{nil, nil}, "(null),(null)"}}},
		{"SELECT k FROM c ORDER BY k LIMIT $1 OFFSET $2", true, []run{
			{[]any{2, 0}, "0 1"}, {[]any{1, 5}, "5"}, {[]any{0, 0}, ""}, {[]any{nil, 38}, "38 39"}}},
		{"SELECT count(*) FROM c WHERE (CAST($1 AS INTEGER) IS NULL OR v = $1)", false, []run{
			{[]any{int32(3)}, "5"}, {[]any{nil}, "40"}, {[]any{int32(9)}, "0"}}},
		{"SELECT count(*) FROM c WHERE $1 = 'on'", true, []run{{[]any{"on"}, "40"}, {[]any{"off"}, "0"}, {[]any{nil}, "0"}}},
		{"SELECT sum(k), count(*) FROM c WHERE v = $1 AND s <> $2", false, []run{
			{[]any{int32(0), "s7"}, "63,4"}, {[]any{int32(0), ""}, "70,5"}}},
		{"SELECT a.k, b.v FROM c a JOIN c b ON a.k = b.k WHERE a.k = $1", false, []run{
			{[]any{8}, "8,1"}, {[]any{15}, "15,1"}, {[]any{41}, ""}}},
		{"SELECT count(*) FROM c a JOIN c b ON a.k = b.k WHERE a.k < $1", true, []run{{[]any{8}, "8"}, {[]any{100}, "40"}}},
		{"SELECT k FROM c WHERE k = $1 UNION ALL SELECT v FROM c WHERE k = $2 ORDER BY 1", false, []run{
			{[]any{30, 10}, "3 30"}, {[]any{1, 11}, "1 (null)"}}},
		{"SELECT x FROM (VALUES ($1), ($2)) AS t(x) ORDER BY x", false, []run{{[]any{"b", "a"}, "a b"}, {[]any{"c", nil}, "c (null)"}}},
		{"WITH w AS MATERIALIZED (SELECT k, v FROM c WHERE k < $1) SELECT count(*) FROM w a, w b WHERE a.k = b.k AND a.v = $2", true, []run{
			{[]any{20, int32(1)}, "3"}, {[]any{9, int32(1)}, "2"}}},
		{"WITH w AS MATERIALIZED (SELECT k + $1 AS n FROM c WHERE k = $2) SELECT n FROM w UNION ALL SELECT n + 1 FROM w ORDER BY n", false, []run{
			{[]any{100, 3}, "103 104"}, {[]any{200, 39}, "239 240"}, {[]any{1, 77}, ""}}},
		{"WITH RECURSIVE r(n) AS (SELECT $1 + 0 UNION ALL SELECT n + 1 FROM r WHERE n < $2 + 0) SELECT n FROM r ORDER BY n", false, []run{
			{[]any{int32(1), int32(3)}, "1 2 3"}, {[]any{int32(7), int32(8)}, "7 8"}}},
		{"SELECT k FROM c a WHERE v = (SELECT max(v) FROM c b WHERE b.k = $1) AND k < 20 ORDER BY k", false, []run{
			{[]any{3}, "3 10"}, {[]any{4}, "4 18"}, {[]any{77}, ""}}},
		{"SELECT 10 / $1 AS q", false, []run{{[]any{int32(5)}, "2"}, {[]any{int32(3)}, "3"}}},
	} {
		t.Run(tc.sql, func(t *testing.T) {
			before := planRequests(t, server, "custom")
			s := prepare(t, conn, tc.sql)
			for range 2 {
				for _, r := range tc.runs {
					if got := execute(testContext(t), s, r.values...); got != r.want {
						t.Errorf("with %v: %q, want %q", r.values, got, r.want)
					}
				}
			}
			if custom := planRequests(t, server, "custom") > before; custom != tc.custom {
				t.Errorf("planned for its values: %t, want %t", custom, tc.custom)
			}
		})
	}
	if hits, misses := planRequests(t, server, "hit"), planRequests(t, server, "miss"); hits == 0 || misses == 0 || hits < misses {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
	if got := execute(testContext(t), prepare(t, conn, "SELECT 10 / $1 AS q"), int32(0)); !strings.Contains(got, "22012") {
		t.Errorf("division by zero answers %q", got)
	}
}

// Statements that are not prepared find the plan of the same text.
func TestRepeatedTextKeepsItsPlan(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	fillCacheTable(t, c)
	hits := planRequests(t, server, "hit")
	for range 3 {
		got, err := query(testContext(t), c, "SELECT s FROM c WHERE k = 5")
		if err != nil || strings.Join(got, " ") != "s5" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if now := planRequests(t, server, "hit"); now != hits+2 {
		t.Errorf("%d hits of two repetitions", now-hits)
	}
	mustExec(t, c, "UPDATE c SET s = 'new' WHERE k = 5")
	if got, err := query(testContext(t), c, "SELECT s FROM c WHERE k = 5"); err != nil || strings.Join(got, " ") != "new" {
		t.Errorf("after an update: %q, %v", got, err)
	}
	mustExec(t, c, "DROP TABLE c")
	if _, err := query(testContext(t), c, "SELECT s FROM c WHERE k = 5"); codeOf(err) != "42P01" {
		t.Errorf("after DROP TABLE: %v", err)
	}
	mustExec(t, c, "CREATE TABLE c (s INTEGER, k BIGINT PRIMARY KEY)")
	mustExec(t, c, "INSERT INTO c VALUES (77, 5)")
	if got, err := query(testContext(t), c, "SELECT s FROM c WHERE k = 5"); err != nil || strings.Join(got, " ") != "77" {
		t.Errorf("another table of the name: %q, %v", got, err)
	}
}

// The time is that of each execution.
func TestKeptPlansReadTheClock(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	conn := connectADBC(t, server.flight)
	s := prepare(t, conn, "SELECT now() AS n, $1 AS p")
	last := ""
	for i := range 5 {
		got := execute(testContext(t), s, strconv.Itoa(i))
		if !strings.HasSuffix(got, ","+strconv.Itoa(i)) || got[:len(got)-2] <= last {
			t.Fatalf("%q after %q", got, last)
		}
		last = got[:len(got)-2]
	}
}

// A prepared statement meets tables that change between its executions.
func TestKeptPlansAndAlteredTables(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	fillCacheTable(t, c)
	conn := connectADBC(t, server.flight)
	named := prepare(t, conn, "SELECT s, v FROM c WHERE k = $1")
	star := prepare(t, conn, "SELECT * FROM c WHERE k = $1")
	check := func(when string, s adbc.Statement, key int, want string) {
		t.Helper()
		if got := execute(testContext(t), s, key); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	check("at first", named, 3, "s3,3")
	check("at first", star, 3, "3,3,s3")
	mustExec(t, c, "ALTER TABLE c ADD COLUMN w INTEGER DEFAULT 9")
	check("with a column more", named, 3, "s3,3")
	check("with a column more", star, 3, "cached plan must not change result type")
	mustExec(t, c, "INSERT INTO c VALUES (100, 1, 's100', 2)")
	check("with a row more", named, 100, "s100,1")
	mustExec(t, c, "ALTER TABLE c DROP COLUMN w")
	check("without it", named, 100, "s100,1")
	check("without it", star, 3, "3,3,s3")
	mustExec(t, c, "ALTER TABLE c RENAME COLUMN v TO v2")
	check("with a column renamed", named, 3, "42703")
	mustExec(t, c, "ALTER TABLE c RENAME COLUMN v2 TO v")
	check("renamed back", named, 4, "s4,4")
	mustExec(t, c, "DROP TABLE c")
	check("without the table", named, 3, "42P01")
	mustExec(t, c, "CREATE TABLE c (s TEXT, v INTEGER, k BIGINT PRIMARY KEY)")
	mustExec(t, c, "INSERT INTO c VALUES ('other', 1, 3)")
	check("with another table of the name", named, 3, "other,1")
}

// Tables that change through another gateway are noticed, if need be by what the
// workers answer.
func TestKeptPlansAndOtherGateways(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	ports := freePorts(t, 1)
	var flights []string
	for _, m := range cluster.members {
		_, flight, _ := strings.Cut(m, "/")
		flights = append(flights, flight)
	}
	start(t, "gateway", "--workers", strings.Join(flights, ","), "--flight", ports[0], "--http", "", "--log-level", "warn")
	here, there := dial(t, cluster.flight), dial(t, ports[0])
	eventually(t, "creating the table", func(ctx context.Context) error {
		_, err := here.Exec(ctx, "CREATE TABLE IF NOT EXISTS g (k BIGINT PRIMARY KEY, v BIGINT) PARTITION BY HASH (k) WITH (tablets = 3, replicas = 3)")
		return err
	})
	eventually(t, "filling it", func(ctx context.Context) error {
		_, err := here.Exec(ctx, "INSERT INTO g SELECT * FROM (VALUES (1, 10), (2, 20), (3, 30)) AS t(k, v) ON CONFLICT DO NOTHING")
		return err
	})
	eventually(t, "the other gateway knows the table", func(ctx context.Context) error {
		_, err := query(ctx, there, "SELECT v FROM g WHERE k = 1")
		return err
	})
	conn := connectADBC(t, cluster.flight)
	s := prepare(t, conn, "SELECT v FROM g WHERE k = $1")
	for i := range 12 {
		for k := 1; k <= 3; k++ {
			if got := execute(testContext(t), s, k); got != strconv.Itoa(10*k) {
				t.Fatalf("round %d, key %d: %q", i, k, got)
			}
		}
		mustExec(t, there, fmt.Sprintf("ALTER TABLE g ADD COLUMN c%d BIGINT DEFAULT %d", i, i))
		if i%2 == 1 {
			mustExec(t, there, fmt.Sprintf("ALTER TABLE g DROP COLUMN c%d", i))
		}
	}
	mustExec(t, there, "DROP TABLE g")
	if got := execute(testContext(t), s, 1); !strings.Contains(got, "42P01") {
		t.Errorf("after DROP TABLE elsewhere: %q", got)
	}
}

// Many clients share plans while a table changes.
func TestKeptPlansConcurrently(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	fillCacheTable(t, c)
	var group sync.WaitGroup
	for i := range 8 {
		conn := connectADBC(t, server.flight)
		s := prepare(t, conn, "SELECT s FROM c WHERE k = $1")
		ctx := testContext(t)
		group.Go(func() {
			for n := range 60 {
				k := (n*7 + i) % 40
				if got := execute(ctx, s, k); got != fmt.Sprintf("s%d", k) {
					t.Errorf("client %d, key %d: %q", i, k, got)
					return
				}
			}
		})
	}
	for i := range 6 {
		mustExec(t, c, fmt.Sprintf("ALTER TABLE c ADD COLUMN n%d INTEGER", i))
	}
	group.Wait()
}
