package source

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// batchRows is the size of the batches: large enough that per-message costs
// vanish, small enough that a wide table's batch stays at a few MiB.
const batchRows = 16 * 1024

// Options say how to read a file.
type Options struct {
	// Schema is what CSV columns are read as, matched by name; nil infers it
	// from the first rows. The other formats carry their own.
	Schema    *arrow.Schema
	Delimiter rune   // of CSV, 0 for a comma
	Null      string // CSV field that stands for NULL
}

// Reader is an open file. It is an array.RecordReader whose batches are valid
// until the next call of Next; Close it after use.
type Reader struct {
	array.RecordReader
	// TotalRows is the number of rows, -1 where the format does not tell.
	TotalRows int64
	// TotalBytes is the size of the file.
	TotalBytes int64

	consumed func() int64
	close    []func() error
}

// ConsumedBytes is how much of the file has been read. It may be called while
// another goroutine reads.
func (r *Reader) ConsumedBytes() int64 { return r.consumed() }

// Close releases the file.
func (r *Reader) Close() error {
	var first error
	for _, f := range r.close {
		if err := f(); err != nil && first == nil {
			first = err
		}
	}
	r.close = nil
	return first
}

// Open opens a file by its extension: .parquet, .csv or .tsv, .arrow, .arrows,
// .ipc or .feather.
func Open(ctx context.Context, path string, options Options) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := open(ctx, f, strings.ToLower(filepath.Ext(path)), options)
	if err != nil {
		_ = f.Close() // the first error is the one to tell
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

func open(ctx context.Context, f *os.File, extension string, options Options) (*Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("it is a directory; load one file at a time")
	}
	r := &Reader{TotalRows: -1, TotalBytes: info.Size(), close: []func() error{f.Close}}
	switch extension {
	case ".parquet":
		err = r.openParquet(ctx, f)
	case ".csv", ".tsv":
		if extension == ".tsv" && options.Delimiter == 0 {
			options.Delimiter = '\t'
		}
		err = r.openCSV(f, options)
	case ".arrow", ".arrows", ".ipc", ".feather":
		err = r.openArrow(f)
	default:
		return nil, fmt.Errorf("extension %q is not one of .parquet, .csv, .tsv, .arrow, .arrows, .ipc, .feather", extension)
	}
	return r, err
}

func (r *Reader) openParquet(ctx context.Context, f *os.File) error {
	parquet, err := file.NewParquetReader(f)
	if err != nil {
		return err
	}
	// The Parquet reader closes f.
	r.close = []func() error{parquet.Close}
	props := pqarrow.ArrowReadProperties{BatchSize: batchRows, Parallel: true}
	arrowReader, err := pqarrow.NewFileReader(parquet, props, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	rows, err := arrowReader.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	r.TotalRows = parquet.NumRows()
	counted := &counter{RecordReader: withoutFieldMetadata(rows)}
	r.RecordReader = counted
	r.consumed = func() int64 {
		if r.TotalRows == 0 {
			return r.TotalBytes
		}
		return int64(float64(counted.rows.Load()) / float64(r.TotalRows) * float64(r.TotalBytes))
	}
	r.close = append([]func() error{func() error { rows.Release(); return nil }}, r.close...)
	return nil
}

func (r *Reader) openCSV(f *os.File, options Options) error {
	counting := &countingReader{Reader: f}
	rows, err := NewCSV(counting, options)
	if err != nil {
		return err
	}
	r.RecordReader = rows
	r.consumed = counting.n.Load
	r.close = append([]func() error{func() error { rows.Release(); return nil }}, r.close...)
	return nil
}

var arrowFileMagic = []byte("ARROW1")

func (r *Reader) openArrow(f *os.File) error {
	head := make([]byte, len(arrowFileMagic))
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.Equal(head[:n], arrowFileMagic) {
		return r.openArrowFile(f)
	}
	counting := &countingReader{Reader: f}
	stream, err := ipc.NewReader(bufio.NewReaderSize(counting, 1<<20))
	if err != nil {
		return err
	}
	r.RecordReader = stream
	r.consumed = counting.n.Load
	r.close = append([]func() error{func() error { stream.Release(); return nil }}, r.close...)
	return nil
}

func (r *Reader) openArrowFile(f *os.File) error {
	reader, err := ipc.NewFileReader(f)
	if err != nil {
		return err
	}
	rows := &fileBatches{file: reader}
	rows.references.Store(1)
	r.RecordReader = rows
	r.consumed = func() int64 {
		return r.TotalBytes * rows.done.Load() / int64(max(1, reader.NumRecords()))
	}
	r.close = append([]func() error{reader.Close}, r.close...)
	return nil
}

// countingReader counts the bytes read through it.
type countingReader struct {
	io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// counter counts the rows read through it.
type counter struct {
	array.RecordReader
	rows atomic.Int64
}

func (c *counter) Next() bool {
	if !c.RecordReader.Next() {
		return false
	}
	c.rows.Add(c.RecordBatch().NumRows())
	return true
}

// fileBatches reads the batches of an Arrow IPC file in order.
type fileBatches struct {
	file       *ipc.FileReader
	next       int
	current    arrow.RecordBatch
	err        error
	done       atomic.Int64
	references atomic.Int64
}

func (b *fileBatches) Retain() { b.references.Add(1) }

func (b *fileBatches) Release() {
	if b.references.Add(-1) == 0 && b.current != nil {
		b.current.Release()
		b.current = nil
	}
}

func (b *fileBatches) Schema() *arrow.Schema          { return b.file.Schema() }
func (b *fileBatches) RecordBatch() arrow.RecordBatch { return b.current }
func (b *fileBatches) Record() arrow.RecordBatch      { return b.current }
func (b *fileBatches) Err() error                     { return b.err }

func (b *fileBatches) Next() bool {
	if b.current != nil {
		b.current.Release()
		b.current = nil
	}
	if b.err != nil || b.next >= b.file.NumRecords() {
		return false
	}
	b.current, b.err = b.file.RecordBatchAt(b.next)
	if b.err != nil {
		b.err = fmt.Errorf("batch %d: %w", b.next+1, b.err)
		return false
	}
	b.next++
	b.done.Store(int64(b.next))
	return true
}

// withoutFieldMetadata drops what Parquet notes at each field (its field id):
// it means nothing to the server.
func withoutFieldMetadata(r array.RecordReader) array.RecordReader {
	fields := r.Schema().Fields()
	plain := make([]arrow.Field, len(fields))
	for i, f := range fields {
		plain[i] = arrow.Field{Name: f.Name, Type: f.Type, Nullable: f.Nullable}
	}
	return &relabelled{RecordReader: r, schema: arrow.NewSchema(plain, nil)}
}

type relabelled struct {
	array.RecordReader
	schema  *arrow.Schema
	current arrow.RecordBatch
}

func (r *relabelled) Schema() *arrow.Schema          { return r.schema }
func (r *relabelled) RecordBatch() arrow.RecordBatch { return r.current }
func (r *relabelled) Record() arrow.RecordBatch      { return r.current }

func (r *relabelled) Next() bool {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
	if !r.RecordReader.Next() {
		return false
	}
	b := r.RecordReader.RecordBatch()
	r.current = array.NewRecordBatch(r.schema, b.Columns(), b.NumRows())
	return true
}
