package skeinproc

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
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
