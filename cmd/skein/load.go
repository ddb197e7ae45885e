package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/source"
)

type loadOptions struct {
	addr, table, mode, onConflict, null, delimiter string
	create, quiet                                  bool
	dial                                           func() (*client.Client, error)
}

func newLoad() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load FILE --table NAME",
		Short: "Load a Parquet, CSV or Arrow file into a table",
		Long: "Streams the rows of a file into a table as one atomic write: all rows or none.\n" +
			"CSV needs a header line; its columns are matched to the table's by name.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dial = func() (*client.Client, error) { return dialServer(cmd, o.addr) }
			return load(cmd.Context(), args[0], &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.table, "table", "", "table to load into, name or schema.name")
	f.BoolVar(&o.create, "create", false, "create the table where it is missing; the same as --mode create_append")
	f.StringVar(&o.mode, "mode", string(client.Append), "append, create, create_append or replace")
	f.StringVar(&o.onConflict, "on-conflict", string(client.FailOnConflict), "what to do with rows whose primary key is taken: error, ignore or replace")
	f.StringVar(&o.delimiter, "delimiter", "", "CSV delimiter (default comma, tab for .tsv)")
	f.StringVar(&o.null, "null", "", "CSV field that stands for NULL")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	addAddr(cmd, &o.addr)
	cmd.MarkFlagsMutuallyExclusive("create", "mode")
	return cmd
}

func load(ctx context.Context, path string, o *loadOptions, out, status io.Writer) (err error) {
	if o.table == "" {
		return errors.New("name the table to load into with --table")
	}
	table, err := client.ParseTable(o.table)
	if err != nil {
		return err
	}
	mode, err := client.ParseMode(o.mode)
	if err != nil {
		return err
	}
	conflict, err := client.ParseConflict(o.onConflict)
	if err != nil {
		return err
	}
	if o.create {
		mode = client.CreateAppend
	}
	c, err := o.dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	options, err := sourceOptions(ctx, c, table, mode, o)
	if err != nil {
		return err
	}
	rows, err := source.Open(ctx, path, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()

	began := time.Now()
	stop := func(bool) {}
	if f, ok := status.(*os.File); ok && !o.quiet && isTerminal(f) {
		stop = showProgress(f, filepath.Base(path), rows)
	}
	n, err := c.IngestOnConflict(ctx, table, mode, conflict, rows)
	stop(err == nil)
	if err != nil {
		return fmt.Errorf("loading %s: %w", path, err)
	}
	took := time.Since(began).Seconds()
	_, err = fmt.Fprintf(out, "%d rows into %s in %.2f s (%.0f rows/s)\n", n, o.table, took, float64(n)/took)
	return err
}

// sourceOptions says how to read the file; the table's own types are asked for
// where it may exist already.
func sourceOptions(ctx context.Context, c *client.Client, table client.Table, mode client.Mode, o *loadOptions) (source.Options, error) {
	options := source.Options{Null: o.null}
	if o.delimiter != "" {
		r, size := utf8.DecodeRuneInString(o.delimiter)
		if size != len(o.delimiter) || r == utf8.RuneError {
			return options, fmt.Errorf("delimiter %q is not one character", o.delimiter)
		}
		options.Delimiter = r
	}
	if mode == client.Create || mode == client.Replace {
		return options, nil
	}
	schema, found, err := c.TableSchema(ctx, table)
	if err != nil {
		return options, err
	}
	if !found && mode == client.Append {
		return options, fmt.Errorf("table %s does not exist; create it first or give --create", o.table)
	}
	options.Schema = schema
	return options, nil
}

// showProgress draws a bar until the returned function is called.
func showProgress(w io.Writer, name string, rows *source.Reader) (stop func(ok bool)) {
	bar := progress.NewWriter()
	bar.SetOutputWriter(w)
	bar.SetUpdateFrequency(100 * time.Millisecond)
	bar.SetTrackerLength(30)
	bar.SetStyle(progress.StyleBlocks)
	bar.Style().Visibility.Speed = true
	tracker := &progress.Tracker{Message: name, Total: rows.TotalBytes, Units: progress.UnitsBytes}
	bar.AppendTracker(tracker)
	rendered, end := make(chan struct{}), make(chan bool)
	go func() {
		defer close(rendered)
		bar.Render()
	}()
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				// The last percent is the server's commit.
				tracker.SetValue(min(rows.ConsumedBytes(), rows.TotalBytes-1))
			case ok := <-end:
				if ok {
					tracker.SetValue(rows.TotalBytes)
					tracker.MarkAsDone()
				} else {
					tracker.MarkAsErrored()
				}
				bar.Stop()
				return
			}
		}
	}()
	return func(ok bool) {
		end <- ok
		<-rendered
	}
}
