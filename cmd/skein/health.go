package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/config"
)

func newHealth() *cobra.Command {
	var addr string
	var live bool
	var access client.Access
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running process whether it is ready",
		Long:  "Asks /readyz, or /healthz with --live, and fails unless the answer is yes. Made for container health checks.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			if !strings.Contains(addr, "://") {
				addr = "http://" + addr
			}
			c, err := access.TLS()
			if err != nil {
				return err
			}
			text, err := askHealth(cmd.Context(), c, strings.TrimSuffix(addr, "/")+path)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "http", config.DefaultHTTP, "HTTP address of the process, host:port, or https://host:port")
	cmd.Flags().StringVar(&access.CA, "tls-ca", "", "PEM file with the CA of the certificate, empty for the system's")
	cmd.Flags().BoolVar(&access.Insecure, "insecure", false, "take any certificate")
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the process runs")
	return cmd
}

func askHealth(ctx context.Context, c *tls.Config, url string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	text = strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK {
		return "", errors.New(text)
	}
	return text, nil
}
