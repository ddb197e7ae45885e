package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Table names a table for ingest: exact names, not folded or quoted.
type Table struct {
	Schema string // "" for the server's default
	Name   string
}

// ParseTable reads name or schema.name as SQL would: bare parts are folded to
// lower case, parts in double quotes are kept.
func ParseTable(s string) (Table, error) {
	var parts []string
	rest := s
	for {
		part, after, err := identifier(rest)
		if err != nil {
			return Table{}, fmt.Errorf("table name %q: %w", s, err)
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		if after[0] != '.' {
			return Table{}, fmt.Errorf("table name %q: unexpected %q", s, after)
		}
		rest = after[1:]
	}
	switch len(parts) {
	case 1:
		return Table{Name: parts[0]}, nil
	case 2:
		return Table{Schema: parts[0], Name: parts[1]}, nil
	}
	return Table{}, fmt.Errorf("table name %q has more than a schema and a name", s)
}

func identifier(s string) (name, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		var b strings.Builder
		for i := 1; i < len(s); i++ {
			if s[i] != '"' {
				b.WriteByte(s[i])
				continue
			}
			if i+1 < len(s) && s[i+1] == '"' {
				b.WriteByte('"')
				i++
				continue
			}
			if b.Len() == 0 {
				return "", "", errors.New("a quoted part is empty")
			}
			return b.String(), s[i+1:], nil
		}
		return "", "", errors.New("a double quote is not closed")
	}
	end := strings.IndexAny(s, `."`)
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return "", "", errors.New("a part is empty")
	}
	return strings.ToLower(s[:end]), s[end:], nil
}

// Mode says what Ingest does about the table's existence.
type Mode string

// The modes, as `skein load --mode` spells them.
const (
	Append       Mode = "append"        // the table must exist
	Create       Mode = "create"        // the table must not exist
	CreateAppend Mode = "create_append" // create it where it is missing
	Replace      Mode = "replace"       // start with an empty table either way
)

// ParseMode checks the spelling of a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Append, Create, CreateAppend, Replace:
		return m, nil
	}
	return "", fmt.Errorf("mode %q is not append, create, create_append or replace", s)
}

func (m Mode) options() *flightsql.TableDefinitionOptions {
	options := &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate,
		IfExists:   flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	}
	switch m {
	case Append:
		options.IfNotExist = flightsql.TableDefinitionOptionsTableNotExistOptionFail
	case Create:
		options.IfExists = flightsql.TableDefinitionOptionsTableExistsOptionFail
	case Replace:
		options.IfExists = flightsql.TableDefinitionOptionsTableExistsOptionReplace
	}
	return options
}

// Ingest streams all batches of rows into the table as one atomic write and
// returns the rows stored. When reading fails nothing is stored.
func (c *Client) Ingest(ctx context.Context, table Table, mode Mode, rows array.RecordReader) (int64, error) {
	return c.IngestOnConflict(ctx, table, mode, FailOnConflict, rows)
}

// Conflict says what becomes of a row whose primary key is taken.
type Conflict string

// The ways to deal with a taken key, as `skein load --on-conflict` spells them.
const (
	FailOnConflict    Conflict = "error"   // nothing is stored
	IgnoreOnConflict  Conflict = "ignore"  // the row is left out
	ReplaceOnConflict Conflict = "replace" // it takes the stored row's place
)

// ParseConflict checks the spelling of a Conflict.
func ParseConflict(s string) (Conflict, error) {
	switch c := Conflict(s); c {
	case FailOnConflict, IgnoreOnConflict, ReplaceOnConflict:
		return c, nil
	}
	return "", fmt.Errorf("on-conflict %q is not error, ignore or replace", s)
}

// IngestOnConflict is Ingest with a choice about rows whose key is taken.
func (c *Client) IngestOnConflict(ctx context.Context, table Table, mode Mode, conflict Conflict, rows array.RecordReader) (int64, error) {
	return c.ingest(ctx, table, mode, conflict, nil, rows)
}

func (c *Client) ingest(ctx context.Context, table Table, mode Mode, conflict Conflict, write *Write, rows array.RecordReader) (int64, error) {
	settings := write.options()
	if conflict != FailOnConflict {
		settings["skein.on_conflict"] = string(conflict)
	}
	return c.IngestWithOptions(ctx, table, mode, settings, rows)
}

// IngestWithOptions is Ingest with options that the server knows by name.
func (c *Client) IngestWithOptions(ctx context.Context, table Table, mode Mode, settings map[string]string, rows array.RecordReader) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := &flightsql.ExecuteIngestOpts{
		TableDefinitionOptions: mode.options(),
		Table:                  table.Name,
		Options:                settings,
	}
	if table.Schema != "" {
		options.Schema = &table.Schema
	}
	n, err := c.sql.ExecuteIngest(ctx, &ingestInput{RecordReader: rows, cancel: cancel}, options)
	if readErr := rows.Err(); readErr != nil {
		return 0, readErr
	}
	if errors.Is(err, io.EOF) {
		return 0, &UnreachableError{Addr: c.addr, Err: fmt.Errorf("the connection to %s ended during an ingest: %w", c.addr, err)}
	}
	if err != nil {
		return 0, c.explain(err)
	}
	return n, nil
}

// ingestInput is what is sent of a reader. It cancels the call as soon as the
// reader fails: a stream that is merely ended would look complete to the
// server, which would commit it. A reader without batches becomes one empty
// batch, since only a batch carries the table's name and columns.
type ingestInput struct {
	array.RecordReader
	cancel context.CancelFunc
	begun  bool
	empty  arrow.RecordBatch // the current batch if not nil
}

func (r *ingestInput) Next() bool {
	first := !r.begun
	r.begun, r.empty = true, nil
	if r.RecordReader.Next() {
		return true
	}
	if r.Err() != nil {
		r.cancel()
		return false
	}
	if first {
		builder := array.NewRecordBuilder(memory.DefaultAllocator, r.Schema())
		defer builder.Release()
		r.empty = builder.NewRecordBatch()
	}
	return first
}

// RecordBatch is the current batch.
func (r *ingestInput) RecordBatch() arrow.RecordBatch {
	if r.empty != nil {
		return r.empty
	}
	return r.RecordReader.RecordBatch()
}
