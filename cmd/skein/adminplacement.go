package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/sql"
)

// newPlacement are the commands that change where replicas are. Each is a CALL of
// the procedure of that name.
func newPlacement() []*cobra.Command {
	return []*cobra.Command{
		newProcedure("move-replica TABLET FROM-NODE TO-NODE", "Move a tablet's replica from one node to another and wait for the end", sql.MoveReplica),
		newProcedure("abort-move TABLET", "Give up the move of a tablet's replica that is not promoted yet", sql.AbortMove),
		newProcedure("transfer-leader TABLET NODE", "Have a node lead a tablet that it has a replica of", sql.TransferLeader),
		newProcedure("drain NODE", "Move all replicas away from a node and wait for the end", sql.DrainNode),
		newProcedure("activate NODE", "Let a node take replicas again that was drained", sql.ActivateNode),
		newProcedure("remove NODE", "Remove a drained node from the cluster for good", sql.RemoveNode),
	}
}

func newProcedure(use, short string, procedure sql.Procedure) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(len(strings.Fields(use)) - 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if n, err := strconv.ParseInt(arg, 10, 64); err != nil || n <= 0 {
					return fmt.Errorf("%q is not the number of a tablet or node", arg)
				}
			}
			return withServer(cmd, addr, func(c *client.Client) error {
				_, err := c.Exec(cmd.Context(), fmt.Sprintf("CALL %s(%s)", procedure, strings.Join(args, ", ")))
				return err
			})
		},
	}
	addAddr(cmd, &addr)
	return cmd
}
