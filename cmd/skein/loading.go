package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/sync/errgroup"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/source"
)

// loading is one run of `skein load`.
type loading struct {
	path     string
	options  *loadOptions
	table    client.Table
	mode     client.Mode
	conflict client.Conflict
	source   source.Options
	// status is where progress is shown, nil for nowhere; notes is where failures
	// that are followed by another attempt are told.
	status *os.File
	notes  io.Writer
	bar    *bar
}

func newLoading(path string, o *loadOptions, status io.Writer) (*loading, error) {
	if o.table == "" {
		return nil, errors.New("name the table to load into with --table")
	}
	if o.workers < 0 || o.batchRows < 1 {
		return nil, errors.New("--workers is not negative and --batch-rows positive")
	}
	l := &loading{path: path, options: o, notes: status}
	var err error
	if l.table, err = client.ParseTable(o.table); err != nil {
		return nil, err
	}
	if l.mode, err = client.ParseMode(o.mode); err != nil {
		return nil, err
	}
	if l.conflict, err = client.ParseConflict(o.onConflict); err != nil {
		return nil, err
	}
	if o.create {
		l.mode = client.CreateAppend
	}
	if f, ok := status.(*os.File); ok && !o.quiet && isTerminal(f) {
		l.status = f
	}
	return l, nil
}

func (l *loading) dial() (*client.Client, error) { return l.options.dial() }

// retry tells of failures; with several workers from several goroutines.
func (l *loading) retry() client.Retry {
	return client.Retry{Elapsed: l.options.retry, Notify: func(err error) {
		if l.bar != nil {
			l.bar.note(err)
			return
		}
		_, _ = fmt.Fprintln(l.notes, "skein: trying again:", printable(err.Error())) // it goes on all the same
	}}
}

// open opens the file, and shows how far it has been read from now on.
func (l *loading) open(ctx context.Context) (*source.Reader, error) {
	rows, err := source.Open(ctx, l.path, l.source)
	if err == nil && l.bar != nil {
		l.bar.rows.Store(rows)
	}
	return rows, err
}

// run loads the rows and returns how many were stored.
func (l *loading) run(ctx context.Context, c *client.Client) (n int64, err error) {
	if l.status != nil {
		l.bar = showProgress(l.status, filepath.Base(l.path))
		defer func() { l.bar.stop(err == nil) }()
	}
	// What exists already can be appended to by writes that may be repeated.
	exists := l.mode == client.Append
	if l.mode == client.CreateAppend {
		if _, exists, err = c.TableSchema(ctx, l.table); err != nil {
			return 0, err
		}
	}
	switch {
	case l.options.workers > 0:
		if !exists {
			if err := l.createTable(ctx, c); err != nil {
				return 0, err
			}
		}
		return l.parallel(ctx)
	case exists:
		return client.IngestOnce(ctx, l.dial, l.table, l.conflict, l.retry(), func() (array.RecordReader, error) {
			rows, err := l.open(ctx)
			if err != nil {
				return nil, err
			}
			return &closing{Reader: rows}, nil
		})
	}
	rows, err := l.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return c.IngestOnConflict(ctx, l.table, l.mode, l.conflict, rows)
}

// closing closes a file as it is released. What is wrong with a file shows while
// it is read.
type closing struct{ *source.Reader }

// Release ends the reader.
func (c *closing) Release() { _ = c.Close() }

// createTable makes the table, without rows.
func (l *loading) createTable(ctx context.Context, c *client.Client) (err error) {
	rows, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	none, err := array.NewRecordReader(rows.Schema(), nil)
	if err != nil {
		return err
	}
	defer none.Release()
	_, err = c.Ingest(ctx, l.table, l.mode, none)
	return err
}

// parallel loads the rows in writes of their own. Those stored before a failure
// stay.
func (l *loading) parallel(ctx context.Context) (int64, error) {
	rows, err := l.open(ctx)
	if err != nil {
		return 0, err
	}
	var stored atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	writes := make(chan []arrow.RecordBatch)
	group.Go(func() error {
		defer close(writes)
		return l.cut(groupCtx, rows, writes)
	})
	for range l.options.workers {
		group.Go(func() error {
			for batches := range writes {
				n, err := l.write(groupCtx, rows.Schema(), batches)
				if err != nil {
					return err
				}
				stored.Add(n)
			}
			return nil
		})
	}
	err = group.Wait()
	for batches := range writes { // the cutter has ended
		releaseAll(batches)
	}
	if err = errors.Join(err, rows.Close()); err != nil {
		return 0, fmt.Errorf("%w (%d rows are stored)", err, stored.Load())
	}
	return stored.Load(), nil
}

// cut gathers rows into writes; each belongs to whoever receives it.
func (l *loading) cut(ctx context.Context, rows array.RecordReader, writes chan<- []arrow.RecordBatch) error {
	var batches []arrow.RecordBatch
	held := 0
	flush := func() error {
		if held == 0 {
			return nil
		}
		select {
		case writes <- batches:
			batches, held = nil, 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { releaseAll(batches) }()
	for rows.Next() {
		for b, from := rows.RecordBatch(), int64(0); from < b.NumRows(); {
			to := min(b.NumRows(), from+int64(l.options.batchRows-held))
			batches, held = append(batches, b.NewSlice(from, to)), held+int(to-from)
			from = to
			if held < l.options.batchRows {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return flush()
}

func releaseAll(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}

// write stores batches as one write, and releases them.
func (l *loading) write(ctx context.Context, schema *arrow.Schema, batches []arrow.RecordBatch) (int64, error) {
	defer releaseAll(batches)
	return client.IngestOnce(ctx, l.dial, l.table, l.conflict, l.retry(), func() (array.RecordReader, error) {
		return array.NewRecordReader(schema, batches)
	})
}

// bar is a progress bar.
type bar struct {
	rows     atomic.Pointer[source.Reader] // being read; nil before
	writer   progress.Writer
	tracker  *progress.Tracker
	end      chan bool
	rendered chan struct{}
}

// showProgress draws a bar until stop is called.
func showProgress(w io.Writer, name string) *bar {
	b := &bar{writer: progress.NewWriter(), end: make(chan bool), rendered: make(chan struct{})}
	b.writer.SetOutputWriter(w)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.SetTrackerLength(30)
	b.writer.SetStyle(progress.StyleBlocks)
	b.writer.Style().Visibility.Speed = true
	b.tracker = &progress.Tracker{Message: name, Units: progress.UnitsBytes}
	b.writer.AppendTracker(b.tracker)
	go func() {
		defer close(b.rendered)
		b.writer.Render()
	}()
	go b.follow()
	return b
}

func (b *bar) follow() {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if rows := b.rows.Load(); rows != nil {
				b.tracker.UpdateTotal(rows.TotalBytes)
				// The last percent is the server's commit.
				b.tracker.SetValue(min(rows.ConsumedBytes(), rows.TotalBytes-1))
			}
		case ok := <-b.end:
			if rows := b.rows.Load(); ok && rows != nil {
				b.tracker.UpdateTotal(rows.TotalBytes)
				b.tracker.SetValue(rows.TotalBytes)
				b.tracker.MarkAsDone()
			} else {
				b.tracker.MarkAsErrored()
			}
			b.writer.Stop()
			return
		}
	}
}

// note shows an error above the bar.
func (b *bar) note(err error) { b.writer.Log("trying again: %s", printable(err.Error())) }

func (b *bar) stop(ok bool) {
	b.end <- ok
	<-b.rendered
}
