package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
)

func newRotateKey() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Have the nodes of a cluster sign with a new key",
		Long: "Replaces the key with which gateways vouch to workers for who asks. Statements that run go on:\n" +
			"what was signed with the old key is good until it expires by itself, within a day.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withServer(cmd, addr, func(c *client.Client) error {
				if _, err := c.Exec(cmd.Context(), "CALL skein.rotate_key()"); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the cluster signs with a new key")
				return err
			})
		},
	}
	addAddr(cmd, &addr)
	return cmd
}
