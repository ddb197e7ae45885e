package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"skein/storage"
)

func newAdmin() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Short: "Look after a node's data"}
	cmd.AddCommand(newCheck())
	return cmd
}

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR",
		Short: "Verify the data of a stopped node",
		Long: "Reads all that the store of a stopped node holds, a worker's data directory or its store directory, and\n" +
			"verifies every record and checksum. It changes nothing, and fails if anything is damaged.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := storage.Check(storeDir(args[0]))
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, p := range report.Problems {
				if _, err := fmt.Fprintln(out, "damaged:", printable(p)); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(out, "%d tablets, %d segments, %d rows, %d bytes; %d record groups; %d keys, %d of them left over\n",
				report.Tablets, report.Segments, report.Rows, report.Bytes, report.Groups, report.Records, report.Orphans)
			if err == nil && len(report.Problems) > 0 {
				err = fmt.Errorf("%d damages in %s", len(report.Problems), args[0])
			}
			return err
		},
	}
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
