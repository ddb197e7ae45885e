package sqldiff

import (
	"context"

	"skein/bench/internal/compare"
	"skein/bench/internal/duck"
	"skein/bench/internal/skeinproc"
)

// Engines makes a pair of a connection to Skein and a DuckDB database.
func Engines(c *skeinproc.Client, d *duck.DB) Pair {
	return Pair{Skein: skeinEngine{c}, Duck: duckEngine{d}}
}

type skeinEngine struct{ *skeinproc.Client }

func (e skeinEngine) Query(ctx context.Context, sql string) (compare.Rows, error) {
	rows, _, err := e.Client.Query(ctx, sql)
	return rows, err
}

// QueryPrepared is that of Preparer.
func (e skeinEngine) QueryPrepared(ctx context.Context, sql string, values []any) (compare.Rows, error) {
	return e.Client.QueryPrepared(ctx, sql, values)
}

type duckEngine struct{ *duck.DB }

func (e duckEngine) Query(ctx context.Context, sql string) (compare.Rows, error) {
	rows, _, err := e.DB.Query(ctx, sql)
	return rows, err
}
