package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
)

// Options are what a Shell starts with.
type Options struct {
	Format render.Format
	// Out receives results, Err errors and prompts.
	Out, Err io.Writer
	// Quiet prints no numbers of rows and no times.
	Quiet bool
	// History is the file that statements typed at a terminal are kept in; "" for
	// none.
	History string
	// Terminal is Out where that is a terminal, else nil.
	Terminal *os.File
	// Pager is the command that long results are shown with at a terminal; "" for
	// none.
	Pager string
}

// Shell runs statements and backslash commands and keeps what the latter set.
// Use it from one goroutine.
type Shell struct {
	client *client.Client
	format render.Format
	// expanded shows tables with a line per value.
	expanded bool
	timing   bool
	quiet    bool
	out, err io.Writer
	// file is where \o sends results, nil for out.
	file *os.File
	// terminal is out where that is one, else nil; only a shell that reads from a
	// terminal pages what it prints there.
	terminal *os.File
	pager    string
	paging   bool
	history  string
	depth    int // of \i
	names    names
}

// New returns a shell over a connection, which stays the caller's.
func New(c *client.Client, o Options) *Shell {
	return &Shell{
		client: c, format: o.Format, timing: true, quiet: o.Quiet, out: o.Out, err: o.Err,
		terminal: o.Terminal, pager: o.Pager, history: o.History, names: names{client: c},
	}
}

// Close ends what \o began.
func (s *Shell) Close() error { return s.redirect("") }

// errQuit is what \q returns.
var errQuit = errors.New("quit")

// Script runs all statements and commands of a text in order, up to the first
// error; the last statement needs no semicolon. The error is a *StatementError
// where a statement failed.
func (s *Shell) Script(ctx context.Context, text string) error {
	err := s.script(ctx, text)
	if errors.Is(err, errQuit) {
		return nil
	}
	return err
}

func (s *Shell) script(ctx context.Context, text string) error {
	for {
		it, rest := next(text)
		if it.text == "" && rest == "" {
			return nil
		}
		if err := s.item(ctx, it); err != nil {
			return err
		}
		text = rest
	}
}

// item is one statement or command of a script.
type item struct {
	text    string // "" for an empty statement
	command bool   // a backslash command
	// ended: a semicolon followed, or the end of a command's line.
	ended bool
}

// next takes the first item off a script.
func next(script string) (item, string) {
	if begin := client.SkipBlank(script); strings.HasPrefix(begin, `\`) {
		line, rest, _ := strings.Cut(begin, "\n")
		return item{text: strings.TrimSpace(line), command: true, ended: true}, rest
	}
	statement, rest, ended := client.NextStatement(script)
	return item{text: statement, ended: ended}, rest
}

// complete reports whether a text is whole: no statement of it waits for more.
func complete(text string) bool {
	for {
		it, rest := next(text)
		switch {
		case it.text == "" && rest == "":
			return true
		case !it.ended:
			return false
		}
		text = rest
	}
}

func (s *Shell) item(ctx context.Context, it item) error {
	switch {
	case it.text == "":
		return nil
	case it.command:
		return s.command(ctx, it.text)
	}
	return s.statement(ctx, it.text)
}

// StatementError is an error with the statement that it is about.
type StatementError struct {
	Statement string
	Err       error
}

// Error is the error's text, followed by the place in the statement where that
// is known.
func (e *StatementError) Error() string {
	text := e.Err.Error()
	if mark := caret(e.Statement, position(e.Err)); mark != "" {
		text += "\n" + mark
	}
	return text
}

// Unwrap returns the error without the place.
func (e *StatementError) Unwrap() error { return e.Err }

func (s *Shell) statement(ctx context.Context, statement string) error {
	return s.print(ctx, statement, s.shown(), true)
}

// shown is the format in effect.
func (s *Shell) shown() render.Format {
	if s.expanded && s.format == render.Table {
		return render.Expanded
	}
	return s.format
}

// print runs a statement and prints its rows, and then how many there were where
// notes are wanted.
func (s *Shell) print(ctx context.Context, statement string, format render.Format, notes bool) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := s.client.Run(ctx, statement)
	if err != nil {
		return &StatementError{statement, err}
	}
	defer r.Close()
	s.names.ran(statement)
	if r.Schema() == nil {
		if r.Affected() > 0 {
			return s.note(format, notes, began, rows(r.Affected()))
		}
		return s.note(format, notes, began, "done")
	}
	if format == render.Arrow && s.file == nil && s.terminal != nil {
		return errors.New("an Arrow stream is not for terminals; send it to a file with \\o, or choose another format with \\format")
	}
	n, quit, err := s.rows(format, r.Schema(), r.Next)
	if err != nil {
		return &StatementError{statement, err}
	}
	if quit {
		return nil // nobody looked at the end
	}
	return s.note(format, notes, began, rows(n))
}

func rows(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// rows prints the rows where they belong; quit says that their reader, the pager
// say, left before the end.
func (s *Shell) rows(format render.Format, schema *arrow.Schema, next render.Batches) (n int64, quit bool, err error) {
	out, finish := s.output()
	n, err = render.Write(out, format, schema, next)
	quit = errors.Is(err, syscall.EPIPE)
	if finishErr := finish(); err == nil {
		err = finishErr
	}
	if quit && s.file == nil && s.terminal != nil {
		return n, true, nil
	}
	return n, false, err
}

func (s *Shell) note(format render.Format, wanted bool, began time.Time, text string) error {
	switch {
	case s.quiet || !wanted || (format != render.Table && format != render.Expanded && format != render.Markdown):
		return nil
	case s.timing:
		text += fmt.Sprintf(" (%.1f ms)", float64(time.Since(began).Microseconds())/1000)
	}
	_, err := fmt.Fprintln(s.out, text)
	return err
}

// say prints a line for a person.
func (s *Shell) say(format string, args ...any) error {
	_, err := fmt.Fprintf(s.out, format+"\n", args...)
	return err
}
