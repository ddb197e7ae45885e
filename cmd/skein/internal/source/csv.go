package source

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// sampleRows is how many rows the types of a CSV file are inferred from.
const sampleRows = 1000

// csvReader turns CSV with a header line into batches. Fields equal to the
// null text are NULL in every column, quoted or not.
type csvReader struct {
	csv        *csv.Reader
	null       string
	schema     *arrow.Schema
	builder    *array.RecordBuilder
	parsers    []parser
	sample     [][]string // rows read to infer types, not yet returned
	current    arrow.RecordBatch
	err        error
	references atomic.Int64
}

// NewCSV reads CSV with a header line from r. Release the reader after use.
func NewCSV(r io.Reader, options Options) (array.RecordReader, error) {
	c := &csvReader{csv: csv.NewReader(bufio.NewReaderSize(r, 1<<20)), null: options.Null}
	c.references.Store(1)
	c.csv.ReuseRecord = true
	if options.Delimiter != 0 {
		c.csv.Comma = options.Delimiter
	}
	header, err := c.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty; the first line must name the columns")
	}
	if err != nil {
		return nil, err
	}
	names := append([]string(nil), header...)
	names[0] = strings.TrimPrefix(names[0], "\uFEFF")
	if options.Schema != nil {
		c.schema, err = matchHeader(names, options.Schema)
	} else {
		c.schema, err = c.infer(names)
	}
	if err != nil {
		return nil, err
	}
	c.builder = array.NewRecordBuilder(memory.DefaultAllocator, c.schema)
	for i, f := range c.schema.Fields() {
		p, err := parserFor(f.Type, c.builder.Field(i))
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		c.parsers = append(c.parsers, p)
	}
	return c, nil
}

// matchHeader gives the columns of the file the types of the table's columns.
func matchHeader(names []string, table *arrow.Schema) (*arrow.Schema, error) {
	fields := make([]arrow.Field, len(names))
	for i, name := range names {
		found := false
		for _, f := range table.Fields() {
			if f.Name == name || !found && strings.EqualFold(f.Name, name) {
				fields[i], found = arrow.Field{Name: f.Name, Type: f.Type, Nullable: true}, true
			}
		}
		if !found {
			return nil, fmt.Errorf("column %q of the header is not a column of the table", name)
		}
	}
	return arrow.NewSchema(fields, nil), nil
}

func (c *csvReader) infer(names []string) (*arrow.Schema, error) {
	for len(c.sample) < sampleRows {
		row, err := c.csv.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		c.sample = append(c.sample, append([]string(nil), row...))
	}
	fields := make([]arrow.Field, len(names))
	for i, name := range names {
		fields[i] = arrow.Field{Name: strings.ToLower(name), Type: inferType(c.sample, i, c.null), Nullable: true}
	}
	return arrow.NewSchema(fields, nil), nil
}

func (c *csvReader) Retain() { c.references.Add(1) }

func (c *csvReader) Release() {
	if c.references.Add(-1) != 0 {
		return
	}
	if c.current != nil {
		c.current.Release()
		c.current = nil
	}
	if c.builder != nil {
		c.builder.Release()
		c.builder = nil
	}
}

func (c *csvReader) Schema() *arrow.Schema          { return c.schema }
func (c *csvReader) RecordBatch() arrow.RecordBatch { return c.current }
func (c *csvReader) Record() arrow.RecordBatch      { return c.current }
func (c *csvReader) Err() error                     { return c.err }

func (c *csvReader) Next() bool {
	if c.current != nil {
		c.current.Release()
		c.current = nil
	}
	rows := 0
	for c.err == nil && rows < batchRows {
		if len(c.sample) > 0 {
			c.err = c.append(c.sample[0])
			c.sample = c.sample[1:]
			rows++
			continue
		}
		row, err := c.csv.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.append(row)
		}
		c.err = err
		rows++
	}
	if c.err != nil || rows == 0 {
		return false
	}
	c.current = c.builder.NewRecordBatch()
	return true
}

func (c *csvReader) append(row []string) error {
	for i, text := range row {
		if text == c.null {
			c.builder.Field(i).AppendNull()
			continue
		}
		if err := c.parsers[i](text); err != nil {
			line, _ := c.csv.FieldPos(min(i, len(row)-1))
			f := c.schema.Field(i)
			return fmt.Errorf("near line %d, column %q: %q is not a valid %s", line, f.Name, text, f.Type)
		}
	}
	return nil
}
