//go:build duckdb_arrow

package duck

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/duckdb/duckdb-go/v2"
)

// InsertArrow runs a statement that reads the record batches as the view named
// arrow_rows.
func (d *DB) InsertArrow(ctx context.Context, rows array.RecordReader, statement string) error {
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return fmt.Errorf("DuckDB: %w", err)
	}
	defer func() { _ = conn.Close() }() // goes back to the pool
	return conn.Raw(func(driver any) error {
		arrow, err := duckdb.NewArrowFromConn(driver.(*duckdb.Conn))
		if err != nil {
			return fmt.Errorf("DuckDB: %w", err)
		}
		release, err := arrow.RegisterView(rows, "arrow_rows")
		if err != nil {
			return fmt.Errorf("DuckDB: reading Arrow data: %w", err)
		}
		defer release()
		result, err := arrow.QueryContext(ctx, statement)
		if err != nil {
			return fmt.Errorf("DuckDB: %w", err)
		}
		defer result.Release()
		for result.Next() {
		}
		return result.Err()
	})
}
