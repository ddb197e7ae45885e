package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	runScript(t, server.flight, []scriptStep{
		{"SHOW statement_timeout", "0"},
		{"SET statement_timeout = '1500ms'", ""},
		{"SHOW statement_timeout", "1500ms"},
		{"SET statement_timeout TO 2000", ""},
		{"SHOW statement_timeout", "2s"},
		{"SET statement_timeout = 'soon'", "22023"},
		{"SET statement_timeout = -1", "22023"},
		{"SET statement_timeout = 1, 2", "22023"},
		{"SHOW statement_timeout", "2s"},
		{"RESET statement_timeout", ""},
		{"SHOW statement_timeout", "0"},
		{"SET no_such_thing = 1", "42704"},
		{"SHOW no_such_thing", "42704"},
		{"RESET no_such_thing", "42704"},
		{"SET server_version = 'x'", "55P02"},
		{"SET LOCAL statement_timeout = 1", "0A000"},
		{"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "0A000"},
		{"SET application_name TO 'nightly'", ""},
		{"SHOW application_name", "nightly"},
		{"SET skein.direct_endpoints = on", ""},
		{"SHOW skein.direct_endpoints", "on"},
		{"SET work_mem = '64MB'", ""},
		{"SHOW skein.query_memory", "64MB"},
		{"SET skein.query_memory = 12", "22023"},
		{"SET client_encoding = 'LATIN1'", "22023"},
		{"SET client_encoding = 'utf8'", ""},
		{"SET TIME ZONE 'europe/berlin'", ""},
		{"SHOW TIME ZONE", "Europe/Berlin"},
		{"SET TIME ZONE 'Mars/Olympus'", "22023"},
		{"SET TIME ZONE -3.5", ""},
		{"SHOW timezone", "<-03:30>+03:30"},
		{"RESET ALL", ""},
		{"SHOW TIME ZONE", "UTC"},
		{"SHOW application_name", ""},
	})
	c := dial(t, server.flight)
	lines, err := query(testContext(t), c, "SHOW ALL")
	if err != nil || len(lines) < 8 || !strings.HasPrefix(lines[0], "application_name,") {
		t.Errorf("SHOW ALL: %q, %v", lines, err)
	}
	// Another client does not have this one's settings.
	mustExec(t, c, "SET application_name = 'mine'")
	lines, err = query(testContext(t), dial(t, server.flight), "SHOW application_name")
	if diff := cmp.Diff([]string{""}, lines); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}

// A statement that takes long ends when the session says.
func TestSettingsBoundStatements(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	runScript(t, server.flight, []scriptStep{
		{"CREATE TABLE n (i BIGINT)", ""},
		{"INSERT INTO n SELECT * FROM generate_series(1, 200000)", ""},
		{"SET statement_timeout = '50ms'", ""},
		{"SELECT count(*) FROM n a, n b WHERE a.i * b.i % 7 = 1", "57014"},
		{"SET statement_timeout = 0", ""},
		{"SELECT count(*) FROM n", "200000"},
	})
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startDev(t, dir)
	runScript(t, server.flight, []scriptStep{
		{"CREATE TABLE sales.t (a INT PRIMARY KEY)", "3F000"},
		{"CREATE SCHEMA sales", ""},
		{"CREATE SCHEMA sales", "42P06"},
		{"CREATE SCHEMA IF NOT EXISTS sales", ""},
		{"CREATE SCHEMA public", "42P06"},
		{"CREATE SCHEMA pg_mine", "42939"},
		{"CREATE SCHEMA skein", "42939"},
		{"CREATE TABLE sales.t (a INT PRIMARY KEY)", ""},
		{"CREATE TABLE t (a INT PRIMARY KEY)", ""},
		{"INSERT INTO sales.t VALUES (1), (2)", ""},
		{"INSERT INTO t VALUES (2), (3)", ""},
		{"SELECT s.a FROM sales.t s JOIN t USING (a)", "2"},
		{"SELECT sales.t.a FROM sales.t, public.t p WHERE p.a = sales.t.a", "2"},
		{"UPDATE sales.t SET a = 7 WHERE a = 1 RETURNING sales.t.a", "7"},
		{"DELETE FROM sales.t USING t WHERE t.a = sales.t.a", "42P09"},
		{"DELETE FROM sales.t USING t WHERE public.t.a = sales.t.a", ""},
		{"SELECT a FROM sales.t", "7"},
		{"SELECT current_schema", "public"},
		{"SET search_path = nowhere, sales, public", ""},
		{"SHOW search_path", "\"nowhere, sales, public\""},
		{"SELECT current_schema", "sales"},
		{"SELECT a FROM t", "7"},
		{"CREATE TABLE here (x INT)", ""},
		{"SELECT count(*) FROM sales.here", "0"},
		{"SET search_path = public", ""},
		{"SELECT count(*) FROM here", "42P01"},
		{"SELECT a FROM t ORDER BY a", "2 3"},
		{"SET search_path = ''", ""},
		{"SELECT a FROM t", "42P01"},
		{"CREATE TABLE x (a INT)", "3F000"},
		{"SET search_path = nowhere", ""},
		{"CREATE TABLE x (a INT)", "3F000"},
		{"RESET search_path", ""},
		{"ALTER TABLE sales.here SET SCHEMA public", ""},
		{"SELECT count(*) FROM here", "0"},
		{"ALTER TABLE t SET SCHEMA sales", "42P07"},
		{"ALTER TABLE t SET SCHEMA nowhere", "3F000"},
		{"ALTER TABLE IF EXISTS nothing SET SCHEMA sales", ""},
		{"DROP SCHEMA sales", "2BP01"},
		{"DROP SCHEMA public", "0A000"},
		{"DROP SCHEMA nowhere", "3F000"},
		{"DROP SCHEMA IF EXISTS nowhere", ""},
		{"TRUNCATE sales.t", ""},
		{"SELECT count(*) FROM sales.t", "0"},
		{"CREATE SCHEMA kept", ""},
		{"CREATE TABLE kept.k (a INT)", ""},
		{"DROP SCHEMA sales, nowhere CASCADE", "3F000"},
		{"DROP SCHEMA sales CASCADE", ""},
		{"SELECT a FROM sales.t", "42P01"},
		{"CREATE TABLE sales.t (a INT)", "3F000"},
	})
	server.stop()
	server = startDev(t, dir)
	runScript(t, server.flight, []scriptStep{
		{"SELECT count(*) FROM kept.k", "0"},
		{"DROP TABLE kept.k", ""},
		{"DROP SCHEMA kept RESTRICT", ""},
		{"CREATE TABLE kept.k (a INT)", "3F000"},
	})
}

func TestTemporaryTables(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	ctx := testContext(t)
	mine, other := dial(t, server.flight), dial(t, server.flight)
	mustExec(t, mine, "CREATE TABLE t (a INT)")
	mustExec(t, mine, "INSERT INTO t VALUES (1)")
	mustExec(t, mine, "CREATE TEMP TABLE t (a INT, b TEXT) ON COMMIT PRESERVE ROWS")
	mustExec(t, mine, "INSERT INTO t VALUES (10, 'x'), (20, 'y')")
	mustExec(t, mine, "CREATE TABLE pg_temp.u (a INT PRIMARY KEY)")
	mustExec(t, other, "CREATE TEMPORARY TABLE t (c INT)")
	for _, tc := range []struct {
		who  string
		sql  string
		want string
	}{
		{"mine", "SELECT sum(a) FROM t", "30"},
		{"mine", "SELECT sum(a) FROM public.t", "1"},
		{"mine", "SELECT t.b FROM pg_temp.t JOIN public.t p ON p.a * 10 = t.a", "x"},
		{"mine", "SELECT count(*) FROM u", "0"},
		{"mine", "ALTER TABLE u SET SCHEMA public", "0A000"},
		{"mine", "CREATE TEMP TABLE public.x (a INT)", "42P16"},
		{"mine", "CREATE TEMP TABLE t (a INT)", "42P07"},
		{"mine", "CREATE TEMP TABLE IF NOT EXISTS t (a INT)", ""},
		{"other", "SELECT count(*) FROM t", "0"},
		{"other", "SELECT c FROM t", ""},
		{"other", "SELECT a FROM public.t", "1"},
		{"other", "SELECT count(*) FROM u", "42P01"},
		{"other", "SELECT count(*) FROM pg_temp.u", "42P01"},
		{"other", "DROP TABLE t", ""},
		{"other", "SELECT a FROM t", "1"},
	} {
		c := mine
		if tc.who == "other" {
			c = other
		}
		lines, err := query(ctx, c, tc.sql)
		got := strings.Join(lines, " ")
		if err != nil {
			got = codeOf(err)
		}
		if got != tc.want {
			t.Errorf("%s: %s: got %q, want %q (%v)", tc.who, tc.sql, got, tc.want, err)
		}
	}
	// What the other session may not name, whatever its schema is called.
	schemas, err := query(ctx, other, "SELECT table_schema FROM skein.tables WHERE table_name = 'u'")
	if err != nil || len(schemas) != 1 {
		t.Fatalf("%q, %v", schemas, err)
	}
	if _, err := query(ctx, other, "SELECT count(*) FROM "+schemas[0]+".u"); codeOf(err) != "42P01" {
		t.Errorf("another session's table: %v", err)
	}
}

// openADBC connects with options of the database.
func openADBC(t *testing.T, address string, options map[string]string) adbc.Connection {
	t.Helper()
	all := map[string]string{adbc.OptionKeyURI: "grpc://" + address}
	for k, v := range options {
		all[k] = v
	}
	db, err := flightsql.NewDriver(memory.DefaultAllocator).NewDatabase(all)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Open(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func execADBC(t *testing.T, conn adbc.Connection, sql string) error {
	t.Helper()
	_, err := statement(t, conn, sql).ExecuteUpdate(testContext(t))
	return err
}

func TestADBCSessions(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	// Without cookies there is no session, and a SET that would be lost is refused.
	bare := openADBC(t, server.flight, nil)
	if err := execADBC(t, bare, "SET application_name = 'x'"); err == nil || !strings.Contains(err.Error(), "with_cookie_middleware") {
		t.Errorf("SET without cookies: %v", err)
	}
	if err := execADBC(t, bare, "CREATE TEMP TABLE x (a INT)"); err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("a temporary table without cookies: %v", err)
	}
	if got := readADBC(t, statement(t, bare, "SHOW TimeZone")); !cmp.Equal(got, []string{"UTC"}) {
		t.Errorf("SHOW without a session: %q", got)
	}

	conn := openADBC(t, server.flight, map[string]string{flightsql.OptionCookieMiddleware: adbc.OptionValueEnabled})
	if err := errors.Join(execADBC(t, conn, "SET application_name = 'x'"), execADBC(t, conn, "CREATE SCHEMA s"),
		execADBC(t, conn, "CREATE TABLE s.t (a INT)"), execADBC(t, conn, "INSERT INTO s.t VALUES (4)")); err != nil {
		t.Fatal(err)
	}
	if got := readADBC(t, statement(t, conn, "SHOW application_name")); !cmp.Equal(got, []string{"x"}) {
		t.Errorf("%q", got)
	}
	options := conn.(adbc.GetSetOptions)
	prepared := statement(t, conn, "SELECT count(*) FROM t")
	if err := options.SetOption(adbc.OptionKeyCurrentDbSchema, "s"); err != nil {
		t.Fatal(err)
	}
	if got, err := options.GetOption(adbc.OptionKeyCurrentDbSchema); got != "s" || err != nil {
		t.Errorf("the schema is %q, %v", got, err)
	}
	if got, err := options.GetOption(adbc.OptionKeyCurrentCatalog); got != "skein" || err != nil {
		t.Errorf("the catalog is %q, %v", got, err)
	}
	if err := prepared.Prepare(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := readADBC(t, prepared); !cmp.Equal(got, []string{"1"}) {
		t.Errorf("%q", got)
	}
	for name, value := range map[string]string{"no_such_thing": "1", "statement_timeout": "soon", "schema": "nowhere"} {
		if err := options.SetOption(flightsql.OptionSessionOptionPrefix+name, value); err == nil {
			t.Errorf("option %s was set to %s", name, value)
		}
	}
	if err := options.SetOption(flightsql.OptionBoolSessionOptionPrefix+"skein.direct_endpoints", "true"); err != nil {
		t.Error(err)
	}
	if got := readADBC(t, statement(t, conn, "SHOW skein.direct_endpoints")); !cmp.Equal(got, []string{"on"}) {
		t.Errorf("%q", got)
	}
	if err := options.SetOption(flightsql.OptionEraseSessionOptionPrefix+"application_name", ""); err != nil {
		t.Error(err)
	}
	if got := readADBC(t, statement(t, conn, "SHOW application_name")); !cmp.Equal(got, []string{""}) {
		t.Errorf("%q", got)
	}
	testADBCTemporary(t, conn)
}

func testADBCTemporary(t *testing.T, conn adbc.Connection) {
	ctx := testContext(t)
	ingest := func(table string, options map[string]string) {
		t.Helper()
		s := statement(t, conn, "")
		for k, v := range options {
			if err := s.SetOption(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetOption(adbc.OptionKeyIngestTargetTable, table); err != nil {
			t.Fatal(err)
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
		defer b.Release()
		b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, nil)
		rec := b.NewRecordBatch()
		defer rec.Release()
		if err := s.Bind(ctx, rec); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ExecuteUpdate(ctx); err != nil {
			t.Fatalf("ingest into %s: %v", table, err)
		}
	}
	ingest("scratch", map[string]string{
		adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeCreate, adbc.OptionValueIngestTemporary: adbc.OptionValueEnabled,
	})
	ingest("scratch", map[string]string{
		adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeAppend, adbc.OptionValueIngestTemporary: adbc.OptionValueEnabled,
	})
	ingest("lasting", map[string]string{
		adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeCreateAppend, adbc.OptionValueIngestTargetDBSchema: "s",
	})
	for sql, want := range map[string]string{
		"SELECT count(*) FROM scratch": "6", "SELECT count(*) FROM pg_temp.scratch": "6", "SELECT sum(n) FROM s.lasting": "6",
	} {
		if got := readADBC(t, statement(t, conn, sql)); !cmp.Equal(got, []string{want}) {
			t.Errorf("%s: %q", sql, got)
		}
	}
	schema, err := conn.GetTableSchema(ctx, nil, ptr("s"), "lasting")
	if err != nil || schema.NumFields() != 1 {
		t.Errorf("%v, %v", schema, err)
	}
}

func ptr[T any](v T) *T { return &v }
