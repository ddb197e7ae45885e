package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// batchRows is the size of the record batches that clients send.
const batchRows = 64 << 10

// lineitem is the table as record batches in memory, so that reading a file is
// no part of what is measured.
type lineitem struct {
	schema  *arrow.Schema
	batches []arrow.RecordBatch
	rows    int64
}

func readLineitem(ctx context.Context, path string) (l *lineitem, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w (run `make bench-tpch` once to make it)", err)
	}
	reader, err := file.NewParquetReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", path, err), f.Close())
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	columns, err := pqarrow.NewFileReader(reader, pqarrow.ArrowReadProperties{BatchSize: batchRows, Parallel: true}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	batches, err := columns.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	defer batches.Release()
	l = &lineitem{schema: batches.Schema()}
	for batches.Next() {
		b := batches.RecordBatch()
		b.Retain()
		l.batches = append(l.batches, b)
		l.rows += b.NumRows()
	}
	return l, batches.Err()
}

// reader streams the table from its first row.
func (l *lineitem) reader() (array.RecordReader, error) {
	return array.NewRecordReader(l.schema, l.batches)
}

func (l *lineitem) release() {
	for _, b := range l.batches {
		b.Release()
	}
}
