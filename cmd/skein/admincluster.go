package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/app"
	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/config"
	"skein/cmd/skein/internal/render"
	"skein/cmd/skein/internal/shell"
)

func newCluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Found a cluster, join one and look at its nodes"}
	cmd.AddCommand(newInit(), newToken(), newJoin(), newStatus())
	return cmd
}

func newInit() *cobra.Command {
	var clusterID string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Provision the data directory of a worker that a cluster begins with",
		Long: "Makes an empty data directory that of one of the workers which a new cluster begins with. Takes a worker's\n" +
			"settings: with members, every one of them is provisioned so, on its own machine and with the same list; without,\n" +
			"the worker is the only founder, and its addresses are those of --raft and --flight. Others join later.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := config.LoadWorker(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			id, err := app.Found(c, clusterID)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is provisioned for %s, id %s\n", c.Data, id, id.ClusterID)
			return err
		},
	}
	config.WorkerFlags(cmd.Flags())
	cmd.Flags().StringVar(&clusterID, "cluster-id", "", "id of the cluster, the same for all founders; empty for one that is made up")
	return cmd
}

func newToken() *cobra.Command {
	var worker string
	var life time.Duration
	var uses int
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token that lets a worker join",
		Long: "Prints a token for skein admin cluster join. Whoever has it may join, so treat it as a password.\n" +
			"A cluster with a secret wants it in SKEIN_CLUSTER_SECRET, one with TLS between nodes a certificate of a gateway.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tools, err := config.LoadNodeTools(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if worker == "" {
				return errors.New("give the Flight address of a worker with --worker")
			}
			settings := config.Process{LogLevel: config.ToolLogLevel, LogFormat: config.DefaultLogFormat}
			reply, err := app.NewToken(cmd.Context(), tools, worker, life, uses, settings.NewLogger(os.Stderr))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), reply.Token)
			return err
		},
	}
	cmd.Flags().StringVar(&worker, "worker", "", "Flight address of a worker of the cluster")
	cmd.Flags().DurationVar(&life, "expires", time.Hour, "how long the token is good for, at most 168h")
	cmd.Flags().IntVar(&uses, "uses", 1, "how many workers may join with it")
	config.SecretFlag(cmd.Flags())
	config.NodeTLSFlags(cmd.Flags())
	return cmd
}

func newJoin() *cobra.Command {
	var token string
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Join a worker to a running cluster and provision its data directory",
		Long: "Has a worker admitted that is to be reached at --raft and --flight (or --advertise), and makes its empty data\n" +
			"directory that of the node it becomes. Start it with skein worker then. A join that failed may be repeated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := config.LoadWorker(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if token == "" {
				token = os.Getenv("SKEIN_JOIN_TOKEN")
			}
			if strings.TrimSpace(token) == "" {
				return errors.New("give the token that skein admin cluster token has made with --token or in SKEIN_JOIN_TOKEN")
			}
			id, err := app.Join(cmd.Context(), c, strings.TrimSpace(token), c.NewLogger(os.Stderr))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is provisioned for %s, id %s\n", c.Data, id, id.ClusterID)
			return err
		},
	}
	config.WorkerFlags(cmd.Flags())
	cmd.Flags().StringVar(&token, "token", "", "the token, better set as SKEIN_JOIN_TOKEN")
	return cmd
}

// printing is a command that prints what queries give.
func printing(use, short, query string) *cobra.Command {
	var addr, format string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
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
	cmd.Flags().StringVar(&format, "format", string(render.Table), "table, csv or json")
	return cmd
}

func newStatus() *cobra.Command {
	return printing("status", "Show the cluster's nodes, by way of a gateway",
		"SELECT node_id, state, reachable, zone, version, meta_role, meta_lag, leaders, tablets, bytes, last_seen, flight_address FROM skein.nodes ORDER BY node_id;"+
			"SELECT tablet_id, table_schema, table_name, leader_node, replica_nodes, row_count, bytes, lag FROM skein.ranges ORDER BY tablet_id")
}

func newSettings() *cobra.Command {
	cmd := printing("settings", "Show the settings of the whole cluster, by way of a gateway",
		"SELECT name, value, default_value, description FROM skein.settings ORDER BY name")
	var addr string
	var reset bool
	set := &cobra.Command{
		Use:   "set NAME [VALUE]",
		Short: "Change a setting of the whole cluster",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reset == (len(args) == 2) {
				return errors.New("give a value, or --reset")
			}
			value := "NULL"
			if !reset {
				value = quoted(args[1])
			}
			return withServer(cmd, addr, func(c *client.Client) error {
				_, err := c.Exec(cmd.Context(), "CALL skein.set_setting("+quoted(args[0])+", "+value+")")
				return err
			})
		},
	}
	addAddr(set, &addr)
	set.Flags().BoolVar(&reset, "reset", false, "give the setting its default back")
	cmd.AddCommand(set)
	return cmd
}

// quoted is a text as a literal of SQL.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
