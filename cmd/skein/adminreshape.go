package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/sql"
)

// newReshape are the commands that split and merge tablets. Each is a CALL and
// returns when the job is over.
func newReshape() []*cobra.Command {
	var splitAddr, mergeAddr, key string
	split := &cobra.Command{
		Use:   "split TABLET",
		Short: "Split a tablet, in the middle of its rows or at --key, and wait for the end",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tabletNumbers(args); err != nil {
				return err
			}
			call := fmt.Sprintf("CALL %s(%s)", sql.SplitTablet, args[0])
			if cmd.Flags().Changed("key") {
				call = fmt.Sprintf("CALL %s(%s, '%s')", sql.SplitTablet, args[0], strings.ReplaceAll(key, "'", "''"))
			}
			return withServer(cmd, splitAddr, func(c *client.Client) error {
				_, err := c.Exec(cmd.Context(), call)
				return err
			})
		},
	}
	addAddr(split, &splitAddr)
	split.Flags().StringVar(&key, "key", "", "first value of the upper tablet, or its first bucket where the table is hashed")
	merge := &cobra.Command{
		Use:   "merge TABLET NEXT-TABLET",
		Short: "Merge two neighbouring tablets of a table and wait for the end",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tabletNumbers(args); err != nil {
				return err
			}
			return withServer(cmd, mergeAddr, func(c *client.Client) error {
				_, err := c.Exec(cmd.Context(), fmt.Sprintf("CALL %s(%s)", sql.MergeTablets, strings.Join(args, ", ")))
				return err
			})
		},
	}
	addAddr(merge, &mergeAddr)
	return []*cobra.Command{split, merge}
}

func tabletNumbers(args []string) error {
	for _, arg := range args {
		if n, err := strconv.ParseInt(arg, 10, 64); err != nil || n <= 0 {
			return fmt.Errorf("%q is not the number of a tablet", arg)
		}
	}
	return nil
}
