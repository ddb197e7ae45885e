package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
)

// shell runs statements and prints what they give.
type shell struct {
	client *client.Client
	format render.Format
	out    io.Writer
	// notes receives row counts and times; nil prints none.
	notes io.Writer
}

func newSQL(stdin *os.File) *cobra.Command {
	var command, format, addr string
	cmd := &cobra.Command{
		Use:   "sql [FILE]",
		Short: "Run SQL against a Flight SQL server",
		Long: "Runs the statements of -c, of FILE, or of standard input, in order, and stops at the first error.\n" +
			"On a terminal it reads statements, each ended by a semicolon, until \\q.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			f, err := render.ParseFormat(format)
			if err != nil {
				return err
			}
			c, err := dialServer(cmd, addr)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Close()) }()
			s := &shell{client: c, format: f, out: cmd.OutOrStdout()}
			if f == render.Table {
				s.notes = cmd.OutOrStdout()
			}
			switch {
			case cmd.Flags().Changed("command") && len(args) > 0:
				return errors.New("give statements with -c or a FILE, not both")
			case cmd.Flags().Changed("command"):
				return s.script(cmd.Context(), command)
			case len(args) == 1 && args[0] != "-":
				text, err := os.ReadFile(args[0])
				if err != nil {
					return err
				}
				return s.script(cmd.Context(), string(text))
			case isTerminal(stdin):
				return s.interactive(cmd.Context(), stdin, cmd.ErrOrStderr())
			}
			text, err := io.ReadAll(stdin)
			if err != nil {
				return fmt.Errorf("reading standard input: %w", err)
			}
			return s.script(cmd.Context(), string(text))
		},
	}
	cmd.Flags().StringVarP(&command, "command", "c", "", "statements to run")
	cmd.Flags().StringVar(&format, "format", string(render.Table), "table, csv or json")
	addAddr(cmd, &addr)
	return cmd
}

func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd()))
}

// script runs all statements of a text; the last needs no semicolon.
func (s *shell) script(ctx context.Context, text string) error {
	statements, rest := client.SplitStatements(text)
	if rest != "" {
		statements = append(statements, rest)
	}
	for _, statement := range statements {
		if err := s.run(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *shell) run(ctx context.Context, statement string) error {
	began := time.Now()
	r, err := s.client.Run(ctx, statement)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Schema() == nil {
		if r.Affected() > 0 {
			return s.note("%d rows (%.1f ms)\n", r.Affected(), milliseconds(began))
		}
		return s.note("done (%.1f ms)\n", milliseconds(began))
	}
	n, err := render.Write(s.out, s.format, r.Schema(), r.Next)
	if err != nil {
		return err
	}
	return s.note("%d rows (%.1f ms)\n", n, milliseconds(began))
}

func (s *shell) note(format string, args ...any) error {
	if s.notes == nil {
		return nil
	}
	_, err := fmt.Fprintf(s.notes, format, args...)
	return err
}

func milliseconds(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }

// interactive reads statements from a terminal. An interrupt cancels the
// running statement; between statements it ends the shell.
func (s *shell) interactive(ctx context.Context, in io.Reader, prompt io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	var pending strings.Builder
	for {
		text := "skein> "
		if pending.Len() > 0 {
			text = "   ... "
		}
		if _, err := io.WriteString(prompt, text); err != nil {
			return err
		}
		if !lines.Scan() {
			return lines.Err()
		}
		if pending.Len() == 0 {
			if word := strings.TrimSpace(lines.Text()); word == `\q` || word == "exit" || word == "quit" {
				return nil
			}
		}
		pending.WriteString(lines.Text() + "\n")
		statements, rest := client.SplitStatements(pending.String())
		pending.Reset()
		if rest != "" {
			pending.WriteString(rest + "\n")
		}
		for _, statement := range statements {
			if err := s.cancellable(ctx, statement); err != nil {
				if _, err := fmt.Fprintln(prompt, "error:", err); err != nil {
					return err
				}
				break
			}
		}
	}
}

// cancellable runs one statement that an interrupt cancels.
func (s *shell) cancellable(ctx context.Context, statement string) error {
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt)
	defer stop()
	return s.run(ctx, statement)
}
