package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/render"
)

// binary is the program under test, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndTest(m))
}

func buildAndTest(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skein-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "skein")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building skein: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// timeout bounds every wait of these tests; reaching it is a failure.
const timeout = time.Minute

// process is a running skein.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, after exited
	lines  chan string
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs skein with arguments; the test's end kills it if it still runs.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startProgram(t, binary, args...)
}

// startProgram is start with another build of the program.
func startProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), exited: make(chan struct{}), lines: make(chan string, 1000)}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of skein %s:\n%s", strings.Join(args, " "), p.stderr.String())
		}
	})
	return p
}

// kill ends the process as a power cut would end it, and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
}

// stop ends the process with a signal and expects success.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.exited:
		if p.err != nil {
			p.t.Fatalf("skein ended with %v:\n%s", p.err, p.stderr.String())
		}
	case <-time.After(timeout):
		p.t.Fatal("skein did not stop")
	}
}

// devServer is a running `skein dev`.
type devServer struct {
	*process
	flight, http string
	output       []string // lines up to the last connection string
}

func startDev(t *testing.T, data string, args ...string) *devServer {
	t.Helper()
	args = append([]string{"dev", "--data", data, "--flight", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warn"}, args...)
	s := &devServer{process: start(t, args...)}
	deadline := time.After(timeout)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				t.Fatalf("skein dev ended before it was ready:\n%s", s.stderr.String())
			}
			s.output = append(s.output, line)
			if _, address, ok := strings.Cut(line, "grpc://"); ok {
				s.flight = address
			}
			if rest, ok := strings.CutPrefix(line, "  health      http://"); ok {
				s.http = strings.TrimSuffix(rest, "/readyz")
			}
			if strings.HasPrefix(line, "  data ") {
				return s
			}
		case <-deadline:
			t.Fatalf("skein dev was not ready in time:\n%s", s.stderr.String())
		}
	}
}

// command runs a skein command to its end and returns what it printed.
func command(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may be gone by then
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// query returns the rows of a statement as CSV lines, without the header.
func query(ctx context.Context, c *client.Client, statement string) ([]string, error) {
	r, err := c.Run(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	schema := r.Schema()
	if schema == nil {
		schema = arrow.NewSchema(nil, nil)
	}
	var out bytes.Buffer
	if _, err := render.Write(&out, render.CSV, schema, r.Next); err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return lines[1:], nil
}

func mustExec(t *testing.T, c *client.Client, statement string) {
	t.Helper()
	if _, err := c.Exec(testContext(t), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// freePorts returns addresses that were free a moment ago.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // held until all are chosen
		addresses[i] = l.Addr().String()
	}
	return addresses
}
