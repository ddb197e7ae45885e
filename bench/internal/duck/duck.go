// Package duck is the other side of the benchmark: DuckDB in this process.
package duck

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/duckdb/duckdb-go/v2"
	"github.com/google/uuid"

	"skein/bench/internal/compare"
)

// DB is one DuckDB database.
type DB struct {
	sql *sql.DB
}

// Open creates or opens the database file at path.
func Open(path string) (*DB, error) {
	db, err := sql.Open("duckdb", path)
	if err != nil {
		return nil, fmt.Errorf("opening DuckDB at %s: %w", path, err)
	}
	return &DB{db}, nil
}

// Close closes the database.
func (d *DB) Close() error { return d.sql.Close() }

// Version is DuckDB's version.
func (d *DB) Version(ctx context.Context) (string, error) {
	var v string
	err := d.sql.QueryRowContext(ctx, "SELECT version()").Scan(&v)
	return v, err
}

// Exec runs a statement without rows.
func (d *DB) Exec(ctx context.Context, statement string) error {
	if _, err := d.sql.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("DuckDB: %w", err)
	}
	return nil
}

// Load appends a Parquet file to a table.
func (d *DB) Load(ctx context.Context, table, parquet string) error {
	return d.Exec(ctx, fmt.Sprintf("COPY %s FROM '%s' (FORMAT parquet)", table, strings.ReplaceAll(parquet, "'", "''")))
}

// Query runs a query and returns all rows and the time until the last row had
// arrived, the conversion for comparison left out.
func (d *DB) Query(ctx context.Context, query string) (compare.Rows, time.Duration, error) {
	began := time.Now()
	raw, types, err := d.fetch(ctx, query)
	took := time.Since(began)
	if err != nil {
		return nil, 0, fmt.Errorf("DuckDB: %w", err)
	}
	rows := make(compare.Rows, len(raw))
	for i, values := range raw {
		rows[i] = make([]compare.Value, len(values))
		for c, v := range values {
			if rows[i][c], err = value(v, types[c].DatabaseTypeName()); err != nil {
				return nil, 0, err
			}
		}
	}
	return rows, took, nil
}

func (d *DB) fetch(ctx context.Context, query string) (rows [][]any, types []*sql.ColumnType, err error) {
	r, err := d.sql.QueryContext(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if types, err = r.ColumnTypes(); err != nil {
		return nil, nil, err
	}
	targets := make([]any, len(types))
	for r.Next() {
		row := make([]any, len(types))
		for i := range row {
			targets[i] = &row[i]
		}
		if err := r.Scan(targets...); err != nil {
			return nil, nil, err
		}
		rows = append(rows, row)
	}
	return rows, types, r.Err()
}

func value(v any, typeName string) (compare.Value, error) {
	switch v := v.(type) {
	case nil, string, bool, float64:
		return v, nil
	case float32:
		return float64(v), nil
	case int8:
		return new(big.Rat).SetInt64(int64(v)), nil
	case int16:
		return new(big.Rat).SetInt64(int64(v)), nil
	case int32:
		return new(big.Rat).SetInt64(int64(v)), nil
	case int64:
		return new(big.Rat).SetInt64(v), nil
	case *big.Int:
		return new(big.Rat).SetInt(v), nil
	case duckdb.Decimal:
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Scale)), nil)
		return new(big.Rat).SetFrac(v.Value, scale), nil
	case []byte:
		if typeName == "UUID" {
			return uuid.UUID(v).String(), nil
		}
		return `\x` + hex.EncodeToString(v), nil
	case duckdb.UUID:
		return v.String(), nil
	case duckdb.Interval:
		return compare.Interval(int64(v.Months), int64(v.Days), v.Micros), nil
	case []any:
		return list(v, typeName)
	case time.Time:
		switch typeName {
		case "DATE":
			return v.Format(time.DateOnly), nil
		case "TIME":
			return v.Format("15:04:05.999999"), nil
		}
		return v.UTC().Format("2006-01-02 15:04:05.999999"), nil
	}
	return nil, fmt.Errorf("DuckDB: values of %s (%T) cannot be compared", typeName, v)
}

// list is the text of a list, as compare.List writes it.
func list(values []any, typeName string) (compare.Value, error) {
	out := make([]compare.Value, len(values))
	for i, v := range values {
		var err error
		if out[i], err = value(v, strings.TrimSuffix(typeName, "[]")); err != nil {
			return nil, err
		}
	}
	return compare.List(out), nil
}
