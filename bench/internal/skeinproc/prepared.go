package skeinproc

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/bench/internal/compare"
)

// Ingest streams record batches into an existing table and returns the rows
// stored.
func (c *Client) Ingest(ctx context.Context, table string, rows array.RecordReader) (int64, error) {
	return c.sql.ExecuteIngest(ctx, rows, &flightsql.ExecuteIngestOpts{
		Table: table,
		TableDefinitionOptions: &flightsql.TableDefinitionOptions{
			IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionFail,
			IfExists:   flightsql.TableDefinitionOptionsTableExistsOptionAppend,
		},
	})
}

// Drain runs a query, drops its rows as they come, and returns their number and
// bytes of Arrow data.
func (c *Client) Drain(ctx context.Context, query string) (rows, bytes int64, err error) {
	info, err := c.sql.Execute(ctx, query)
	if err != nil {
		return 0, 0, err
	}
	for _, endpoint := range info.Endpoint {
		reader, err := c.sql.DoGet(ctx, endpoint.Ticket)
		if err != nil {
			return 0, 0, err
		}
		for reader.Next() {
			b := reader.RecordBatch()
			rows += b.NumRows()
			for _, column := range b.Columns() {
				bytes += int64(column.Data().SizeInBytes())
			}
		}
		err = reader.Err()
		reader.Release()
		if err != nil {
			return 0, 0, err
		}
	}
	return rows, bytes, nil
}

// Prepared is a prepared statement with two parameters, BIGINT and INTEGER.
type Prepared struct {
	client *Client
	stmt   *flightsql.PreparedStatement
	params *arrow.Schema
}

// Prepare prepares a statement.
func (c *Client) Prepare(ctx context.Context, query string) (*Prepared, error) {
	stmt, err := c.sql.Prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return &Prepared{c, stmt, arrow.NewSchema([]arrow.Field{
		{Name: "1", Type: arrow.PrimitiveTypes.Int64}, {Name: "2", Type: arrow.PrimitiveTypes.Int32},
	}, nil)}, nil
}

// Close drops the statement.
func (p *Prepared) Close(ctx context.Context) error { return p.stmt.Close(ctx) }

// Point runs the statement, which must answer one row, and returns the BIGINT
// in its first column.
func (p *Prepared) Point(ctx context.Context, first int64, second int32) (int64, error) {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, p.params)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).Append(first)
	builder.Field(1).(*array.Int32Builder).Append(second)
	record := builder.NewRecordBatch()
	defer record.Release()
	p.stmt.SetParameters(record)
	info, err := p.stmt.Execute(ctx)
	if err != nil {
		return 0, err
	}
	if len(info.Endpoint) != 1 {
		return 0, fmt.Errorf("%d endpoints", len(info.Endpoint))
	}
	reader, err := p.client.sql.DoGet(ctx, info.Endpoint[0].Ticket)
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	rows, value := int64(0), int64(0)
	for reader.Next() {
		b := reader.RecordBatch()
		if b.NumRows() > 0 {
			value = b.Column(0).(*array.Int64).Value(0)
		}
		rows += b.NumRows()
	}
	if err := reader.Err(); err != nil {
		return 0, err
	}
	if rows != 1 {
		return 0, errors.New("the key has no row, or several")
	}
	return value, nil
}

// QueryPrepared prepares a query with parameters that are texts or BIGINTs, runs
// it once with NULLs for all, so that its plan is one for other values, and
// returns the rows of a second run with the values. The errors of the first run
// are none of its caller's.
func (c *Client) QueryPrepared(ctx context.Context, query string, values []any) (rows compare.Rows, err error) {
	stmt, err := c.sql.Prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stmt.Close(context.WithoutCancel(ctx))) }()
	if _, err := c.runPrepared(ctx, stmt, values, true); err != nil && ctx.Err() != nil {
		return nil, err
	}
	return c.runPrepared(ctx, stmt, values, false)
}

func (c *Client) runPrepared(ctx context.Context, stmt *flightsql.PreparedStatement, values []any, nulls bool) (compare.Rows, error) {
	fields := make([]arrow.Field, len(values))
	for i, v := range values {
		fields[i] = arrow.Field{Name: fmt.Sprint(i + 1), Type: arrow.BinaryTypes.String, Nullable: true}
		if _, ok := v.(int64); ok {
			fields[i].Type = arrow.PrimitiveTypes.Int64
		}
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer builder.Release()
	for i, v := range values {
		switch b := builder.Field(i).(type) {
		case *array.Int64Builder:
			b.AppendValues([]int64{v.(int64)}, []bool{!nulls})
		case *array.StringBuilder:
			b.AppendValues([]string{v.(string)}, []bool{!nulls})
		}
	}
	record := builder.NewRecordBatch()
	defer record.Release()
	stmt.SetParameters(record)
	info, err := stmt.Execute(ctx)
	if err != nil {
		return nil, err
	}
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for _, endpoint := range info.Endpoint {
		if batches, err = c.fetch(ctx, endpoint, batches); err != nil {
			return nil, err
		}
	}
	return rowsOf(batches)
}
