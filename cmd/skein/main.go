package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes beyond success.
const (
	exitFailure     = 1
	exitUnreachable = 2 // of sql
	exitDamaged     = 3 // of admin check
	exitInUse       = 4 // of admin check
	exitInterrupted = 130
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the default comes back: a second one kills.
	context.AfterFunc(ctx, stop)
	root := newRoot(stdin)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	}
	_, _ = fmt.Fprintln(stderr, "skein:", printable(err.Error())) // stderr is the last resort
	if own := (exitError{}); errors.As(err, &own) {
		return own.code
	}
	return exitFailure
}

func newRoot(stdin *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:           "skein",
		Short:         "A distributed SQL store that speaks Arrow Flight SQL",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newDev(), newGateway(), newWorker(), newSQL(stdin), newLoad(), newHealth(), newAdmin(), newVersion())
	return root
}

// printable keeps what a damaged file brought into an error from reaching the
// terminal as control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
