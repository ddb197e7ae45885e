package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
	"skein/cmd/skein/internal/shell"
)

type sqlOptions struct {
	addr, format   string
	commands, file string
	output         string
}

func newSQL(stdin *os.File) *cobra.Command {
	var o sqlOptions
	cmd := &cobra.Command{
		Use:   "sql [FILE]",
		Short: "Run SQL against a Flight SQL server",
		Long: "Runs the statements of -c, of FILE or -f FILE, or of standard input, in order, and stops at the first error.\n" +
			"On a terminal it is a shell with history and completion; \\? lists its commands.\n" +
			"Exit codes: 0 when all statements succeeded, 1 when one failed, 2 when no server answers, 130 when interrupted.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if o.file != "" {
					return errors.New("give one FILE, with or without -f")
				}
				o.file = args[0]
			}
			err := runSQL(cmd, &o, stdin)
			if unreachable := (*client.UnreachableError)(nil); errors.As(err, &unreachable) {
				return exitError{exitUnreachable, err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.commands, "command", "c", "", "statements to run")
	f.StringVarP(&o.file, "file", "f", "", "file with statements to run, - for standard input")
	f.StringVarP(&o.output, "output", "o", "", "file to write results to")
	f.StringVar(&o.format, "format", string(render.Table), "table, csv, json, markdown, arrow (an IPC stream) or expanded")
	addAddr(cmd, &o.addr)
	return cmd
}

func runSQL(cmd *cobra.Command, o *sqlOptions, stdin *os.File) (err error) {
	f, err := render.ParseFormat(o.format)
	if err != nil {
		return err
	}
	given := cmd.Flags().Changed("command")
	if given && o.file != "" {
		return errors.New("give statements with -c or a FILE, not both")
	}
	c, err := dialServer(cmd, o.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	out := cmd.OutOrStdout()
	terminal, _ := out.(*os.File)
	if terminal != nil && !isTerminal(terminal) {
		terminal = nil
	}
	if o.output != "" {
		file, createErr := os.Create(o.output)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out, terminal = file, nil
	}
	s := shell.New(c, shell.Options{
		Format: f, Out: out, Err: cmd.ErrOrStderr(), Terminal: terminal,
		History: shell.DefaultHistory(), Pager: shell.DefaultPager(),
	})
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx := cmd.Context()
	switch {
	case given:
		return s.Script(ctx, o.commands)
	case o.file != "" && o.file != "-":
		text, err := os.ReadFile(o.file)
		if err != nil {
			return err
		}
		return s.Script(ctx, string(text))
	case o.file == "" && isTerminal(stdin):
		return s.Interactive(ctx, stdin)
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	return s.Script(ctx, string(text))
}

func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd()))
}
