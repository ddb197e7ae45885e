package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
	"skein/cmd/skein/internal/shell"
	"skein/sqlstate"
	"skein/storage"
)

func newAdmin() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Short: "Look after the cluster, running queries and a node's data"}
	cmd.AddCommand(newCheck(), newQueries(), newCancel(), newJobs(), newRotateKey(), newUser(), newCluster(), newSettings())
	cmd.AddCommand(newPlacement()...)
	cmd.AddCommand(newReshape()...)
	return cmd
}

// withServer runs f with a connection to the gateway of --addr.
func withServer(cmd *cobra.Command, addr string, f func(*client.Client) error) (err error) {
	c, err := dialServer(cmd, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return f(c)
}

func newQueries() *cobra.Command {
	return newListing("queries", "List the statements that run on a gateway",
		"SELECT query_id, started, statement FROM skein.queries ORDER BY started")
}

func newJobs() *cobra.Command {
	return newListing("jobs", "List the cluster's jobs, the newest first",
		"SELECT job_id, kind, table_name, tablets, state, phase, owner_node, created, updated, note, error FROM skein.jobs ORDER BY job_id DESC")
}

// newListing makes a command that prints the result of a query.
func newListing(use, short, query string) *cobra.Command {
	var addr, format string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := render.ParseFormat(format)
			if err != nil {
				return err
			}
			return withServer(cmd, addr, func(c *client.Client) error {
				return shell.New(c, shell.Options{Format: f, Out: cmd.OutOrStdout(), Quiet: true}).Script(cmd.Context(), query)
			})
		},
	}
	addAddr(cmd, &addr)
	cmd.Flags().StringVar(&format, "format", string(render.Table), "how to print: "+strings.Join(render.Formats(), ", "))
	return cmd
}

func newCancel() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "cancel QUERY-ID",
		Short: "Cancel a statement, whichever gateway runs it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withServer(cmd, addr, func(c *client.Client) error {
				n, err := c.Exec(cmd.Context(), "CALL skein.cancel_query('"+strings.ReplaceAll(args[0], "'", "''")+"')")
				if err == nil && n == 0 {
					err = fmt.Errorf("no statement with the id %s runs on the gateway at %s, nor on the workers", args[0], addr)
				}
				return err
			})
		},
	}
	addAddr(cmd, &addr)
	return cmd
}

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR",
		Short: "Verify the data of a stopped node",
		Long: "Reads all that the store of a stopped node holds, a worker's data directory or its store directory, and\n" +
			"verifies every record and checksum. It changes nothing, and a node that was killed can be checked as it is.\n\n" +
			"Exit code 0: all is well; 1: the check could not be made; 3: something is damaged; 4: a node uses the store.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := storage.Check(storeDir(args[0]))
			if sqlstate.CodeOf(err) == sqlstate.ObjectInUse {
				return exitError{exitInUse, err}
			}
			if err != nil {
				return err
			}
			if err := printReport(cmd.OutOrStdout(), report); err != nil {
				return err
			}
			if n := len(report.Problems); n > 0 {
				return exitError{exitDamaged, fmt.Errorf("%d damages in %s", n, args[0])}
			}
			return nil
		},
	}
}

func printReport(out io.Writer, r *storage.CheckReport) error {
	lines := make([]string, 0, len(r.Problems)+2)
	for _, p := range r.Problems {
		lines = append(lines, "damaged: "+printable(p))
	}
	switch {
	case r.GoesBack:
		lines = append(lines, "the node was not stopped: its next start goes back to what is durable, counted here, and repeats the rest from the Raft log")
	case r.Interrupted:
		lines = append(lines, "the node was not stopped: its next start recovers")
	}
	lines = append(lines, fmt.Sprintf("%d tablets, %d segments, %d rows, %d bytes; %d record groups; %d keys, %d of them left over",
		r.Tablets, r.Segments, r.Rows, r.Bytes, r.Groups, r.Records, r.Orphans))
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// storeDir finds the store in a data directory of a worker or of skein dev.
func storeDir(dir string) string {
	for _, sub := range []string{"store", filepath.Join("worker", "store")} {
		if info, err := os.Stat(filepath.Join(dir, sub)); err == nil && info.IsDir() {
			return filepath.Join(dir, sub)
		}
	}
	return dir
}
