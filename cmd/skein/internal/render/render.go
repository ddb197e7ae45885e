package render

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/jedib0t/go-pretty/v6/table"
	prettytext "github.com/jedib0t/go-pretty/v6/text"
)

// Format is how rows are printed.
type Format string

// The formats. JSON is one object per line, Arrow an IPC stream, Expanded one
// line per value.
const (
	Table    Format = "table"
	CSV      Format = "csv"
	JSON     Format = "json"
	Markdown Format = "markdown"
	Arrow    Format = "arrow"
	Expanded Format = "expanded"
)

// Formats lists all formats as they are spelled.
func Formats() []string {
	return []string{string(Table), string(CSV), string(JSON), string(Markdown), string(Arrow), string(Expanded)}
}

// ParseFormat checks the spelling of a format.
func ParseFormat(s string) (Format, error) {
	if slices.Contains(Formats(), s) {
		return Format(s), nil
	}
	return "", fmt.Errorf("format %q is not one of %s", s, strings.Join(Formats(), ", "))
}

// pageRows bounds the rows that are laid out as one table: column widths
// depend on all rows of a page, which are held in memory.
const pageRows = 10_000

// Batches yields batches until it returns nil. Each is valid until the next
// call.
type Batches func() (arrow.RecordBatch, error)

// Cell returns the text of one value as CSV has it, and false for NULL.
func Cell(column arrow.Array, row int) (string, bool) {
	if column.IsNull(row) {
		return "", false
	}
	return text(column, row), true
}

// Write prints all rows and returns how many there were.
func Write(w io.Writer, format Format, schema *arrow.Schema, batches Batches) (int64, error) {
	out := bufio.NewWriterSize(w, 64<<10)
	var rows int64
	var err error
	switch format {
	case CSV:
		rows, err = writeCSV(out, schema, batches)
	case JSON:
		rows, err = writeJSON(out, schema, batches)
	case Arrow:
		rows, err = writeArrow(out, schema, batches)
	case Expanded:
		rows, err = writeExpanded(out, schema, batches)
	case Markdown:
		rows, err = writeTable(out, schema, batches, table.Writer.RenderMarkdown)
	default:
		rows, err = writeTable(out, schema, batches, table.Writer.Render)
	}
	// What was printed before an error is still worth seeing.
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return rows, err
}

func writeCSV(w io.Writer, schema *arrow.Schema, batches Batches) (int64, error) {
	out := csv.NewWriter(w)
	fields := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		fields[i] = f.Name
	}
	if err := out.Write(fields); err != nil {
		return 0, err
	}
	return eachRow(batches, func(b arrow.RecordBatch, row int) error {
		for i, column := range b.Columns() {
			fields[i] = ""
			if !column.IsNull(row) {
				fields[i] = text(column, row)
			}
		}
		return out.Write(fields)
	}, func(error) error { out.Flush(); return out.Error() })
}

func writeJSON(w io.Writer, schema *arrow.Schema, batches Batches) (int64, error) {
	var line []byte
	return eachRow(batches, func(b arrow.RecordBatch, row int) error {
		var err error
		if line, err = jsonObject(line[:0], schema.Fields(), b.Column, row); err != nil {
			return err
		}
		line = append(line, '\n')
		_, err = w.Write(line)
		return err
	}, func(error) error { return nil })
}

func writeTable(w io.Writer, schema *arrow.Schema, batches Batches, draw func(table.Writer) string) (int64, error) {
	t, pages := newTable(schema), 0
	flush := func() error {
		if t.Length() == 0 && pages > 0 {
			return nil
		}
		_, err := fmt.Fprintln(w, draw(t))
		t, pages = newTable(schema), pages+1
		return err
	}
	return eachRow(batches, func(b arrow.RecordBatch, row int) error {
		cells := make(table.Row, len(b.Columns()))
		for i, column := range b.Columns() {
			cells[i] = "NULL"
			if !column.IsNull(row) {
				cells[i] = text(column, row)
			}
		}
		t.AppendRow(cells)
		if t.Length() < pageRows {
			return nil
		}
		return flush()
	}, func(failure error) error {
		if failure != nil && t.Length() == 0 {
			return nil // an empty frame would look like a result
		}
		return flush()
	})
}

// writeArrow writes the batches as they came.
func writeArrow(w io.Writer, schema *arrow.Schema, batches Batches) (int64, error) {
	out := ipc.NewWriter(w, ipc.WithSchema(schema))
	var rows int64
	for {
		b, err := batches()
		if b == nil || err != nil {
			// Without the end of the stream, readers see that it is not whole.
			if err == nil {
				err = out.Close()
			}
			return rows, err
		}
		if err := out.Write(b); err != nil {
			return rows, fmt.Errorf("writing the Arrow stream: %w", err)
		}
		rows += b.NumRows()
	}
}

// writeExpanded writes a line per value, the name in front.
func writeExpanded(w io.Writer, schema *arrow.Schema, batches Batches) (int64, error) {
	width := 0
	for _, f := range schema.Fields() {
		width = max(width, prettytext.StringWidthWithoutEscSequences(f.Name))
	}
	n := 0
	return eachRow(batches, func(b arrow.RecordBatch, row int) error {
		n++
		if _, err := fmt.Fprintf(w, "─[ %d ]─\n", n); err != nil {
			return err
		}
		for i, column := range b.Columns() {
			value := "NULL"
			if !column.IsNull(row) {
				value = text(column, row)
			}
			lines := strings.Split(value, "\n")
			name := prettytext.Pad(schema.Field(i).Name, width, ' ')
			if _, err := fmt.Fprintf(w, "%s │ %s\n", name, strings.Join(lines, "\n"+strings.Repeat(" ", width)+" │ ")); err != nil {
				return err
			}
		}
		return nil
	}, func(error) error { return nil })
}

func newTable(schema *arrow.Schema) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = prettytext.FormatDefault
	header := make(table.Row, schema.NumFields())
	columns := make([]table.ColumnConfig, schema.NumFields())
	for i, f := range schema.Fields() {
		header[i] = f.Name
		columns[i] = table.ColumnConfig{Number: i + 1, Align: prettytext.AlignLeft}
		if isNumber(f.Type) {
			columns[i].Align, columns[i].AlignHeader = prettytext.AlignRight, prettytext.AlignRight
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(columns)
	return t
}

func isNumber(dt arrow.DataType) bool {
	return arrow.IsInteger(dt.ID()) || arrow.IsFloating(dt.ID()) || arrow.IsDecimal(dt.ID())
}

// eachRow calls row for every row and finish at the end, with the error of
// batches if there was one: the rows before it are worth printing.
func eachRow(batches Batches, row func(arrow.RecordBatch, int) error, finish func(error) error) (int64, error) {
	var rows int64
	for {
		b, err := batches()
		if b == nil || err != nil {
			if finishErr := finish(err); err == nil {
				err = finishErr
			}
			return rows, err
		}
		for i := range int(b.NumRows()) {
			if err := row(b, i); err != nil {
				return rows, err
			}
			rows++
		}
	}
}
