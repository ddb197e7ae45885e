package skeinproc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skein/bench/internal/compare"
)

// Client is a Flight SQL connection.
type Client struct {
	sql *flightsql.Client
}

// Dial connects to host:port.
func Dial(address string) (*Client, error) {
	c, err := flightsql.NewClient(address, nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return &Client{c}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.sql.Close() }

// Exec runs a statement without rows.
func (c *Client) Exec(ctx context.Context, statement string) error {
	_, err := c.sql.ExecuteUpdate(ctx, statement)
	return err
}

// ingestRows is the size of the batches that Load sends.
const ingestRows = 64 << 10

// Load streams a Parquet file into an existing table with a Flight SQL ingest
// and returns the rows stored.
func (c *Client) Load(ctx context.Context, table, parquet string) (rows int64, err error) {
	f, err := os.Open(parquet)
	if err != nil {
		return 0, err
	}
	reader, err := file.NewParquetReader(f)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("reading %s: %w", parquet, err), f.Close())
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	props := pqarrow.ArrowReadProperties{BatchSize: ingestRows, Parallel: true}
	columns, err := pqarrow.NewFileReader(reader, props, memory.DefaultAllocator)
	if err != nil {
		return 0, err
	}
	batches, err := columns.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return 0, err
	}
	defer batches.Release()
	return c.sql.ExecuteIngest(ctx, batches, &flightsql.ExecuteIngestOpts{
		Table: table,
		TableDefinitionOptions: &flightsql.TableDefinitionOptions{
			IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionFail,
			IfExists:   flightsql.TableDefinitionOptionsTableExistsOptionAppend,
		},
	})
}

// Query runs a query and returns all rows and the time until the last batch
// had arrived, the conversion to rows left out.
func (c *Client) Query(ctx context.Context, query string) (compare.Rows, time.Duration, error) {
	began := time.Now()
	info, err := c.sql.Execute(ctx, query)
	if err != nil {
		return nil, 0, err
	}
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for _, endpoint := range info.Endpoint {
		if batches, err = c.fetch(ctx, endpoint, batches); err != nil {
			return nil, 0, err
		}
	}
	took := time.Since(began)
	rows, err := rowsOf(batches)
	return rows, took, err
}

func (c *Client) fetch(ctx context.Context, endpoint *flight.FlightEndpoint, batches []arrow.RecordBatch) ([]arrow.RecordBatch, error) {
	reader, err := c.sql.DoGet(ctx, endpoint.Ticket)
	if err != nil {
		return batches, err
	}
	defer reader.Release()
	for reader.Next() {
		b := reader.RecordBatch()
		b.Retain()
		batches = append(batches, b)
	}
	return batches, reader.Err()
}

func rowsOf(batches []arrow.RecordBatch) (compare.Rows, error) {
	var rows compare.Rows
	for _, b := range batches {
		for i := range int(b.NumRows()) {
			row := make([]compare.Value, b.NumCols())
			for c, column := range b.Columns() {
				v, err := value(column, i)
				if err != nil {
					return nil, err
				}
				row[c] = v
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func value(column arrow.Array, i int) (compare.Value, error) {
	if column.IsNull(i) {
		return nil, nil
	}
	switch c := column.(type) {
	case *array.String:
		return c.Value(i), nil
	case *array.Boolean:
		return c.Value(i), nil
	case *array.Int16:
		return new(big.Rat).SetInt64(int64(c.Value(i))), nil
	case *array.Int32:
		return new(big.Rat).SetInt64(int64(c.Value(i))), nil
	case *array.Int64:
		return new(big.Rat).SetInt64(c.Value(i)), nil
	case *array.Float32:
		return float64(c.Value(i)), nil
	case *array.Float64:
		return c.Value(i), nil
	case *array.Decimal128:
		scale := c.DataType().(*arrow.Decimal128Type).Scale
		divisor := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		return new(big.Rat).SetFrac(c.Value(i).BigInt(), divisor), nil
	case *array.Date32:
		return c.Value(i).ToTime().Format(time.DateOnly), nil
	case *array.Time64:
		return c.Value(i).ToTime(c.DataType().(*arrow.Time64Type).Unit).Format("15:04:05.999999"), nil
	case *array.Binary:
		return `\x` + hex.EncodeToString(c.Value(i)), nil
	case *array.FixedSizeBinary:
		return uuid.UUID(c.Value(i)).String(), nil
	case *extensions.UUIDArray:
		return c.Value(i).String(), nil
	case *array.MonthDayNanoInterval:
		v := c.Value(i)
		return compare.Interval(int64(v.Months), int64(v.Days), v.Nanoseconds/1000), nil
	case *array.List:
		from, to := c.ValueOffsets(i)
		items := make([]compare.Value, 0, to-from)
		for k := from; k < to; k++ {
			v, err := value(c.ListValues(), int(k))
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
		return compare.List(items), nil
	case *array.Timestamp:
		return c.Value(i).ToTime(c.DataType().(*arrow.TimestampType).Unit).Format("2006-01-02 15:04:05.999999"), nil
	}
	return nil, fmt.Errorf("values of type %s cannot be compared", column.DataType())
}
