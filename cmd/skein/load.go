package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/source"
)

type loadOptions struct {
	addr, table, mode, onConflict, null, delimiter string
	create, quiet                                  bool
	dial                                           func() (*client.Client, error)
	workers, batchRows                             int
	retry                                          time.Duration
}

func newLoad() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load FILE --table NAME",
		Short: "Load a Parquet, CSV or Arrow file into a table",
		Long: "Streams the rows of a file into a table as one atomic write: all rows or none. With --workers they are\n" +
			"several writes, of --batch-rows each, over several connections.\n" +
			"When the connection or the server fails, writes are repeated for --retry, in such a way that every row is\n" +
			"stored once. A write that creates or replaces its table is not repeated.\n" +
			"CSV needs a header line; its columns are matched to the table's by name.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			access, err := accessOf(cmd)
			if err != nil {
				return err
			}
			o.dial = func() (*client.Client, error) { return client.DialAs(o.addr, access) }
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
	f.IntVar(&o.workers, "workers", 0, "connections to load over, in writes of their own; 0 for one atomic write")
	f.IntVar(&o.batchRows, "batch-rows", 256<<10, "rows of each write with --workers")
	f.DurationVar(&o.retry, "retry", 2*time.Minute, "how long to go on when the connection or the server fails")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	addAddr(cmd, &o.addr)
	cmd.MarkFlagsMutuallyExclusive("create", "mode")
	return cmd
}

func load(ctx context.Context, path string, o *loadOptions, out, status io.Writer) (err error) {
	l, err := newLoading(path, o, status)
	if err != nil {
		return err
	}
	c, err := l.dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if l.source, err = sourceOptions(ctx, c, l.table, l.mode, o); err != nil {
		return err
	}
	began := time.Now()
	n, err := l.run(ctx, c)
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
