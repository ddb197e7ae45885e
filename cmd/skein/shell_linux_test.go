package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a `skein sql` at a terminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	output chan string
	unread string
}

// escapes are the control sequences that the editor draws with.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]`)

func startTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	term := &terminal{t: t, cmd: exec.Command(binary, append([]string{"sql"}, args...)...), output: make(chan string, 1000)}
	term.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm", "INPUTRC=/dev/null"}, env...)...)
	var err error
	if term.pty, err = pty.StartWithSize(term.cmd, &pty.Winsize{Rows: 24, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(term.output)
		buffer := make([]byte, 64<<10)
		for {
			n, err := term.pty.Read(buffer)
			term.output <- string(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill() // it may have ended already
		_ = term.pty.Close()        // ends the reader
		for range term.output {
		}
		<-read
		if term.cmd.ProcessState == nil {
			_ = term.cmd.Wait() // it was killed
		}
	})
	term.expect("skein> ")
	return term
}

// typed sends keys.
func (term *terminal) typed(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.pty, keys); err != nil {
		term.t.Fatal(err)
	}
}

// expect waits until a text is shown and returns what came before it.
func (term *terminal) expect(text string) string {
	term.t.Helper()
	deadline := time.After(timeout)
	for {
		shown := strings.ReplaceAll(escapes.ReplaceAllString(term.unread, ""), "\r", "")
		if before, after, ok := strings.Cut(shown, text); ok {
			term.unread = after
			return before
		}
		select {
		case more, ok := <-term.output:
			if !ok {
				term.t.Fatalf("the shell ended before it showed %q:\n%s", text, shown)
			}
			term.unread += more
		case <-deadline:
			term.t.Fatalf("%q was not shown:\n%s", text, shown)
		}
	}
}

// run enters a statement or command and returns what it prints up to the next
// prompt.
func (term *terminal) run(text, last string) string {
	term.t.Helper()
	term.typed(text + "\r")
	out := term.expect(last)
	term.expect("skein> ")
	return out
}

// ended waits for the end of the shell and returns its exit code.
func (term *terminal) ended() int {
	term.t.Helper()
	done := make(chan error, 1)
	go func() { done <- term.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			term.t.Fatal(err)
		}
	case <-time.After(timeout):
		term.t.Fatal("the shell did not end")
	}
	return term.cmd.ProcessState.ExitCode()
}

func TestShellAtTerminal(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	dir := t.TempDir()
	history := filepath.Join(dir, "state", "history")
	env := []string{"SKEIN_HISTORY=" + history, "SKEIN_PAGER=sed 's/^/paged: /'", "SKEIN_ADDR=" + server.flight}
	mustExec(t, dial(t, server.flight), "CREATE TABLE distinguished_geese (ring BIGINT PRIMARY KEY, wingspan DECIMAL(5,2) NOT NULL, note TEXT DEFAULT 'none')")

	term := startTerminal(t, env)
	term.typed("select 41\r")
	term.expect("\n") // the editor goes on to a second line
	term.typed("+ 1 as answer;\r")
	term.expect("│     42 │")
	term.expect("1 row (")
	term.expect("skein> ")

	// Names and keywords are completed.
	term.typed("SELECT count(*) FROM disting\t")
	term.expect("distinguished_geese")
	term.typed(";\r")
	term.expect("│     0 │")
	term.expect("skein> ")

	// An error shows where it is and leaves the shell.
	out := term.run("select answer from distinguished_geese;", "^")
	if !strings.Contains(out, "42703") || !strings.Contains(out, "LINE 1: select answer from") {
		t.Errorf("the error is shown as\n%s", out)
	}
	// What has been typed can be dropped.
	term.typed("select 'dropped\x03")
	term.expect("^C")
	term.expect("skein> ")

	for _, tc := range []struct{ typed, shown string }{
		{`\d distinguished_geese`, "wingspan"},
		{`\d distinguished_geese`, "Primary key: (ring)"},
		{`\dt dist*`, "distinguished_geese"},
		{`\dn`, "public"},
		{`\df date_tr*`, "date_trunc"},
		{`\l`, "database"},
		{`\du`, "superuser"},
		{`\d nothing`, "there is no table nothing"},
		{`\nothing`, `there is no command \nothing`},
		{`\?`, "list schemas"},
		{`\timing off`, "timing is off"},
		{"select 1 as one;", "1 row\n"},
		{`\x`, "expanded is on"},
		{"select 1 as one, 'a' as letter;", "letter │ a"},
		{`\x off`, "expanded is off"},
		{`\format json`, "format is json"},
		{"select 1 as one;", `{"one":1}`},
		{`\format arrow`, "format is arrow"},
		{"select 1 as one;", "is not for terminals"},
		{`\format markdown`, "format is markdown"},
		{"select 1 as one;", "| one |"},
		{`\format table`, "format is table"},
		{"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 50) SELECT n FROM s ORDER BY n;", "paged: │ 50 │"},
		{`\pager off`, "pager is off"},
	} {
		term.run(tc.typed, tc.shown)
	}
	csv, script := filepath.Join(dir, "out.csv"), filepath.Join(dir, "script.sql")
	if err := os.WriteFile(script, []byte("\\format csv\n\\o "+csv+"\nselect 1 as one; select 2 as two\n;\\o\n\\format table"), 0o600); err != nil {
		t.Fatal(err)
	}
	term.run(`\i `+script, "format is table")
	if got, err := os.ReadFile(csv); err != nil || string(got) != "one\n1\ntwo\n2\n" {
		t.Errorf("\\o wrote %q, %v", got, err)
	}
	term.typed("\x04")
	if code := term.ended(); code != 0 {
		t.Errorf("Ctrl-D ends the shell with %d", code)
	}

	// Another shell has the history, whole statements.
	term = startTerminal(t, env)
	term.typed("\x1b[A\r")
	term.expect("format is table")
	term.expect("skein> ")
	term.typed("\x12answer;\r")
	term.expect("│     42 │")
	term.expect("skein> ")
	term.typed("\\q\r")
	if code := term.ended(); code != 0 {
		t.Errorf("\\q ends the shell with %d", code)
	}
}

// endless is a statement that takes hours.
const endless = "WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 9999), " +
	"t AS (SELECT x.n + y.n AS n FROM s x, s y) SELECT count(*) FROM t x JOIN t y ON x.n + 1 < y.n * 2"

func TestShellCancels(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	c := dial(t, server.flight)
	running := func() int {
		rows, err := query(testContext(t), c, "SELECT query_id FROM skein.queries WHERE statement LIKE 'WITH RECURSIVE%'")
		if err != nil {
			t.Fatal(err)
		}
		return len(rows)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		ctx := testContext(t)
		for !done() {
			if ctx.Err() != nil {
				t.Fatalf("waited too long for %s", what)
			}
		}
	}
	term := startTerminal(t, []string{"SKEIN_HISTORY=", "SKEIN_ADDR=" + server.flight})
	for range 2 { // the shell takes more than one interrupt
		term.typed(endless + ";\r")
		until("the statement to run", func() bool { return running() == 1 })
		term.typed("\x03")
		term.expect("cancelled")
		term.expect("skein> ")
		until("the statement to end on the server", func() bool { return running() == 0 })
	}
	term.run("select 'still here' as word;", "│ still here │")
	term.typed("\x04")
	if code := term.ended(); code != 0 {
		t.Errorf("code %d", code)
	}

	// A script ends instead, and says so in its exit code.
	script := exec.Command(binary, "sql", "--addr", server.flight, "-c", endless)
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	until("the statement to run", func() bool { return running() == 1 })
	if err := script.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = script.Wait() // the exit code is what counts
	if code := script.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("an interrupted script ends with %d", code)
	}
	until("the statement to end on the server", func() bool { return running() == 0 })
}

// An end from outside leaves the terminal as it was.
func TestShellRestoresTerminal(t *testing.T) {
	t.Parallel()
	server := startDev(t, ":memory:")
	term := startTerminal(t, []string{"SKEIN_HISTORY=", "SKEIN_ADDR=" + server.flight})
	canonical := func() bool {
		settings, err := unix.IoctlGetTermios(int(term.pty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return settings.Lflag&unix.ICANON != 0
	}
	if canonical() {
		t.Fatal("the editor does not read single keys")
	}
	if err := term.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := term.ended(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("code %d", code)
	}
	if !canonical() {
		t.Error("the terminal is left as the editor had it")
	}
}
