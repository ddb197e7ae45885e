package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/reeflective/readline"
	"golang.org/x/term"
)

// Interactive reads statements and commands from the process's terminal until
// \q or Ctrl-D. Errors are printed and the next statement is read; Ctrl-C cancels
// the running statement on the server, or drops what has been typed.
func (s *Shell) Interactive(ctx context.Context, stdin *os.File) error {
	s.paging = s.pager != ""
	editor := s.editor()
	// The editor must leave the terminal as it was, whatever ends the process.
	if state, err := term.GetState(int(stdin.Fd())); err == nil {
		restore := func() { _ = term.Restore(int(stdin.Fd()), state) } // nothing is left to do about it
		stop := exitOnSignals(restore)
		defer stop()
	}
	if err := s.say(`\? lists commands; statements end with a semicolon; \q leaves.`); err != nil {
		return err
	}
	for {
		text, err := editor.Readline()
		switch {
		case errors.Is(err, io.EOF):
			return s.say("")
		case errors.Is(err, readline.ErrInterrupt):
			continue
		case err != nil:
			return fmt.Errorf("reading the terminal: %w", err)
		}
		text = strings.TrimSpace(text)
		if text == "exit" || text == "quit" {
			return nil
		}
		err = s.typed(ctx, text)
		if errors.Is(err, errQuit) {
			return nil
		}
		if err != nil {
			if _, err := fmt.Fprintln(s.err, "error:", err); err != nil {
				return err
			}
		}
	}
}

// typed runs what was typed; an interrupt cancels it.
func (s *Shell) typed(ctx context.Context, text string) error {
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt)
	defer stop()
	return s.script(ctx, text)
}

// exitOnSignals ends the process at a signal to end, after restore has been
// called.
func exitOnSignals(restore func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case got := <-signals:
			restore()
			os.Exit(128 + int(got.(syscall.Signal)))
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

func (s *Shell) editor() *readline.Shell {
	e := readline.NewShell()
	// Not every terminal answers where its cursor is; each prompt begins a line.
	_ = e.Config.Set("cursor-position-probe", false) // fails for unknown names only
	e.Prompt.Primary(func() string { return "skein> " })
	e.Prompt.Secondary(func() string { return "   ... " })
	e.AcceptMultiline = func(line []rune) bool {
		text := strings.TrimSpace(string(line))
		return text == "exit" || text == "quit" || complete(text)
	}
	e.Completer = func(line []rune, cursor int) readline.Completions {
		found := s.names.complete(string(line[:min(cursor, len(line))]))
		values := make([]readline.Completion, len(found))
		for i, c := range found {
			values[i] = readline.Completion{Value: c.text, Display: c.text, Description: c.kind}
		}
		return readline.CompleteRaw(slices.Clip(values))
	}
	if s.history != "" {
		kept, err := openHistory(s.history)
		if err != nil {
			_, _ = fmt.Fprintf(s.err, "the history will not be kept: %v\n", err) // the shell works without
		} else {
			e.History.Add("skein", kept)
		}
	}
	return e
}
