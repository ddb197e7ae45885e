package sql_test

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/sql"
	"skein/sqlstate"
)

//go:embed testdata/tpch/*.sql
var tpch embed.FS

// memoryCatalog is a Catalog over a fixed set of tables.
type memoryCatalog map[string]*catalog.Table

func (m memoryCatalog) Table(_ context.Context, schema, name string) (*catalog.Table, error) {
	if schema == "broken" {
		return nil, errors.New("the catalog is away")
	}
	schema = cmp.Or(schema, catalog.DefaultSchema)
	if t := m[schema+"."+name]; t != nil {
		return t, nil
	}
	return nil, sqlstate.New(sqlstate.UndefinedTable, "no such table")
}

func (m memoryCatalog) TableNames(_ context.Context, schema string) []string {
	var out []string
	for _, t := range m {
		if t.Schema == cmp.Or(schema, catalog.DefaultSchema) {
			out = append(out, t.Name)
		}
	}
	return out
}

// define adds the tables of CREATE TABLE statements.
func (m memoryCatalog) define(t testing.TB, text string) {
	t.Helper()
	statements, err := sql.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		bound, err := sql.Bind(context.Background(), s, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		table := bound.Statement.(*sql.CreateTable).Table
		m[table.Schema+"."+table.Name] = table
	}
}

const testTables = `
CREATE TABLE t (
    id integer PRIMARY KEY, small smallint, big bigint, r real, d double precision,
    amount decimal(15,2) NOT NULL, price decimal(8,4), name varchar(10), note text,
    flag boolean NOT NULL, day date, at timestamp, atz timestamptz, clock time, span interval,
    raw bytea, key uuid, "Mixed Case" integer
);
CREATE TABLE u (id integer NOT NULL, other bigint, name text NOT NULL, day date);
CREATE TABLE v (
    a integer NOT NULL, b text DEFAULT 'none' NOT NULL, c decimal(8,2) DEFAULT 1.5, d date DEFAULT '2020-02-29', e boolean
);
CREATE TABLE other.w (a integer);
`

var fixture = sync.OnceValue(func() memoryCatalog { return memoryCatalog{} })

var loadFixture sync.Once

// testCatalog has the TPC-H tables and testTables.
func testCatalog(t testing.TB) memoryCatalog {
	t.Helper()
	m := fixture()
	loadFixture.Do(func() {
		m.define(t, string(readTPCH(t, "schema.sql")))
		m.define(t, testTables)
	})
	return m
}

func readTPCH(t testing.TB, name string) []byte {
	t.Helper()
	text, err := tpch.ReadFile("testdata/tpch/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// bind parses and binds one statement.
func bind(t testing.TB, text string, params ...arrow.DataType) (*sql.BoundStatement, error) {
	t.Helper()
	return bindIn(t, sql.Session{}, text, params...)
}

func bindIn(t testing.TB, session sql.Session, text string, params ...arrow.DataType) (*sql.BoundStatement, error) {
	t.Helper()
	statements, err := sql.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(statements) != 1 {
		t.Fatalf("%q has %d statements", text, len(statements))
	}
	return sql.BindIn(context.Background(), statements[0], session, testCatalog(t), params)
}

func mustBind(t testing.TB, text string, params ...arrow.DataType) *sql.BoundStatement {
	t.Helper()
	bound, err := bind(t, text, params...)
	if err != nil {
		t.Fatalf("binding %q: %v", text, err)
	}
	return bound
}
