package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"skein/sqlstate"
)

// Write is an ingest that may be repeated: whatever becomes of the attempts, its
// rows are stored once. The server must be a Skein.
type Write struct {
	id      string
	attempt int
	tablets string // of the table, as the server wants them
}

func (w *Write) options() map[string]string {
	if w == nil {
		return map[string]string{}
	}
	return map[string]string{
		"skein.write_id": w.id, "skein.write_attempt": strconv.Itoa(w.attempt), "skein.write_tablets": w.tablets,
	}
}

// newWrite prepares a write to a table that exists.
func (c *Client) newWrite(ctx context.Context, table Table) (*Write, error) {
	schema := table.Schema
	if schema == "" {
		schema = "public"
	}
	r, err := c.Run(ctx, fmt.Sprintf("SELECT tablet_id FROM skein.tablets WHERE table_schema = '%s' AND table_name = '%s'",
		strings.ReplaceAll(schema, "'", "''"), strings.ReplaceAll(table.Name, "'", "''")))
	if err != nil {
		return nil, fmt.Errorf("asking for the tablets of %s: %w", table.Name, err)
	}
	defer r.Close()
	var ids []string
	for {
		b, err := r.Next()
		if err != nil {
			return nil, err
		}
		if b == nil {
			break
		}
		column, ok := b.Column(0).(*array.Int64)
		if !ok {
			return nil, fmt.Errorf("the tablet ids of %s are %s", table.Name, b.Column(0).DataType())
		}
		for _, id := range column.Values() {
			ids = append(ids, strconv.FormatInt(id, 10))
		}
	}
	if len(ids) == 0 {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "the server lists no tablets of %s.%s", schema, table.Name)
	}
	return &Write{id: uuid.NewString(), tablets: strings.Join(ids, ",")}, nil
}

// Retry bounds how long a broken write is repeated.
type Retry struct {
	// Elapsed is the time since the first failure after which the write is given up
	// at the next one.
	Elapsed time.Duration
	// Notify is told of every failure that is followed by another attempt; may be
	// nil.
	Notify func(error)
}

// maxWriteAttempts is how often the server lets a write be repeated.
const maxWriteAttempts = 100

// IngestOnce appends rows to a table that exists, as one atomic write, and
// repeats it while the connection or the server fails, in such a way that the
// rows are stored once. Each attempt dials for itself and opens the rows anew.
// It returns the rows stored.
func IngestOnce(ctx context.Context, dial func() (*Client, error), table Table, conflict Conflict, retry Retry, open func() (array.RecordReader, error)) (int64, error) {
	var write *Write
	var failed time.Time
	attempt := func() (int64, error) {
		n, err := ingestAttempt(ctx, dial, table, conflict, &write, open)
		if err == nil {
			return n, nil
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		if !mayRepeat(err) || ctx.Err() != nil || time.Since(failed) > retry.Elapsed {
			return 0, backoff.Permanent(err)
		}
		return 0, err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 50*time.Millisecond, 5*time.Second
	return backoff.Retry(ctx, attempt, backoff.WithBackOff(pauses), backoff.WithMaxTries(maxWriteAttempts),
		backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, _ time.Duration) {
			if retry.Notify != nil {
				retry.Notify(err)
			}
		}))
}

func ingestAttempt(ctx context.Context, dial func() (*Client, error), table Table, conflict Conflict, write **Write, open func() (array.RecordReader, error)) (n int64, err error) {
	c, err := dial()
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // the write's outcome is what counts
	if *write == nil {
		if *write, err = c.newWrite(ctx, table); err != nil {
			return 0, err
		}
	}
	rows, err := open()
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	n, err = c.ingest(ctx, table, Append, conflict, *write, rows)
	switch {
	case err == nil:
		return n, nil
	case sqlstate.CodeOf(err) == sqlstate.SerializationFailure:
		// Nothing was stored, and the table may have other tablets now. Were an
		// earlier attempt's outcome open, the server would have found it first.
		*write = nil
	default:
		(*write).attempt++
	}
	return 0, err
}

// mayRepeat reports whether another attempt of a write may do better.
func mayRepeat(err error) bool {
	var gone *UnreachableError
	if errors.As(err, &gone) {
		return true
	}
	var failed *sqlstate.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Code {
	case sqlstate.ConnectionFailure, sqlstate.CannotConnectNow, sqlstate.UnknownTxnOutcome, sqlstate.SerializationFailure, sqlstate.TooManyRequests:
		return true
	}
	return false
}
