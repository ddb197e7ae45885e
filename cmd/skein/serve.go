package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/app"
	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/config"
	"skein/cmd/skein/internal/demo"
)

func newDev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole Skein in one process, for development",
		Long: "Runs a gateway and one worker in one process on this machine's loopback interface.\n" +
			"Settings may also come from SKEIN_* variables, for example SKEIN_FLIGHT.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			c, unknown, err := config.LoadDev(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			logger := newLogger(&c.Process, unknown)
			return app.RunDev(cmd.Context(), c, version(), logger, func(ctx context.Context, e app.Endpoints) error {
				return announceDev(ctx, cmd.OutOrStdout(), &c, e, time.Since(began))
			})
		},
	}
	config.DevFlags(cmd.Flags(), config.DefaultDataDir())
	return cmd
}

// announceDev tells where the process serves, after the demo if it was asked for.
func announceDev(ctx context.Context, w io.Writer, c *config.Dev, e app.Endpoints, took time.Duration) error {
	if c.Demo {
		if err := runDemo(ctx, w, e.Flight); err != nil {
			return err
		}
	}
	scheme, shell, web := "grpc", e.Flight, "http"
	if c.TLS() {
		scheme, shell = "grpc+tls", "grpc+tls://"+e.Flight
	}
	if c.HTTPCert != "" {
		web = "https"
	}
	text := fmt.Sprintf("\nSkein is ready (%.1f s), Ctrl-C stops it.\n", took.Seconds()) +
		fmt.Sprintf("  Flight SQL  %s://%s\n", scheme, e.Flight) +
		fmt.Sprintf("  JDBC        jdbc:arrow-flight-sql://%s?useEncryption=%t\n", e.Flight, c.TLS()) +
		fmt.Sprintf("  shell       skein sql --addr %s\n", shell)
	if e.HTTP != "" {
		text += fmt.Sprintf("  health      %s://%s/readyz\n", web, e.HTTP) +
			fmt.Sprintf("  metrics     %s://%s/metrics\n", web, e.HTTP)
	}
	text += "  access      " + access(&c.Clients) + "\n"
	text += fmt.Sprintf("  data        %s\n", e.Data)
	_, err := io.WriteString(w, text)
	return err
}

// access says who gets in.
func access(c *config.Clients) string {
	if c.Auth == config.AuthUsers {
		return "users of this database, with their passwords"
	}
	if c.Insecure {
		return "everybody who reaches the port, as a superuser: it is INSECURE"
	}
	return "everybody on this machine, as a superuser; nobody else: only the loopback interface is listened on"
}

func runDemo(ctx context.Context, w io.Writer, address string) error {
	c, err := client.Dial(address)
	if err != nil {
		return err
	}
	err = demo.Load(ctx, c)
	if err == nil {
		err = demo.Show(ctx, c, w)
	}
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

func newGateway() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Run a gateway: Flight SQL in front of workers",
		Long: "Runs a stateless gateway over the workers listed in the settings.\n" +
			"Settings come from the file of --config, then SKEIN_* variables, then flags.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, unknown, err := config.LoadGateway(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			logger := newLogger(&c.Process, unknown)
			return app.RunGateway(cmd.Context(), c, version(), logger, func(e app.Endpoints) {
				logger.Info("gateway started", "version", version(), "flight", e.Flight, "http", e.HTTP, "workers", c.Workers)
			})
		},
	}
	config.GatewayFlags(cmd.Flags())
	return cmd
}

func newWorker() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker: replicated tablets and the fragments over them",
		Long: "Runs one worker of a cluster, whose data directory was provisioned with skein admin cluster init or join.\n" +
			"Settings come from the file of --config, then SKEIN_* variables, then flags.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, unknown, err := config.LoadWorker(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			logger := newLogger(&c.Process, unknown)
			return app.RunWorker(cmd.Context(), c, version(), logger, func(e app.Endpoints) {
				logger.Info("worker started", "version", version(), "is", e.Node, "flight", e.Flight, "http", e.HTTP, "data", e.Data)
			})
		},
	}
	config.WorkerFlags(cmd.Flags())
	return cmd
}

// newLogger makes the process's logger, which is the default one too, and notes
// variables that were probably meant as settings.
func newLogger(settings *config.Process, unknown []string) *slog.Logger {
	logger := settings.NewLogger(os.Stderr)
	slog.SetDefault(logger)
	if len(unknown) > 0 {
		logger.Warn("environment variables name no setting", "variables", unknown)
	}
	return logger
}
