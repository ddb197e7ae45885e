package shell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"
)

// output is where the rows of the next statement go; finish ends it, waiting for
// the pager if there is one.
func (s *Shell) output() (w io.Writer, finish func() error) {
	switch {
	case s.file != nil:
		return s.file, func() error { return nil }
	case s.terminal != nil && s.paging:
		p := &paged{terminal: s.terminal, command: s.pager}
		return p, p.finish
	}
	return s.out, func() error { return nil }
}

// redirect sends results to a file, "" back to where they went first.
func (s *Shell) redirect(path string) error {
	if s.file != nil {
		err := s.file.Close()
		s.file = nil
		if err != nil {
			return err
		}
	}
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	s.file = f
	return nil
}

// paged shows what is written to it on a terminal: as it is where it fits on the
// screen, else through a pager, which is started as soon as that is known.
type paged struct {
	terminal *os.File
	command  string
	held     bytes.Buffer
	pager    *exec.Cmd
	in       io.WriteCloser
}

// Write fails with EPIPE once the pager has been left.
func (p *paged) Write(b []byte) (int, error) {
	if p.in != nil {
		return p.in.Write(b)
	}
	p.held.Write(b)
	if p.fits() {
		return len(b), nil
	}
	if err := p.start(); err != nil {
		return 0, err
	}
	if _, err := p.in.Write(p.held.Bytes()); err != nil {
		return 0, err
	}
	p.held = bytes.Buffer{}
	return len(b), nil
}

// fits reports whether what is held fits on the screen, with room for the prompt
// and the number of rows.
func (p *paged) fits() bool {
	_, height, err := term.GetSize(int(p.terminal.Fd()))
	if err != nil || height <= 0 {
		return true
	}
	return bytes.Count(p.held.Bytes(), []byte("\n")) < height-2
}

func (p *paged) start() error {
	p.pager = exec.Command("/bin/sh", "-c", p.command)
	p.pager.Stdout, p.pager.Stderr = p.terminal, os.Stderr
	in, err := p.pager.StdinPipe()
	if err != nil {
		return err
	}
	if err := p.pager.Start(); err != nil {
		return fmt.Errorf("starting the pager %q: %w; \\pager off does without", p.command, err)
	}
	p.in = in
	return nil
}

func (p *paged) finish() error {
	if p.pager == nil {
		_, err := p.terminal.Write(p.held.Bytes())
		return err
	}
	if err := p.in.Close(); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	var exit *exec.ExitError
	if err := p.pager.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// DefaultPager is the pager of the environment: SKEIN_PAGER, else PAGER, else
// less if it is there. Either variable may be empty, for none.
func DefaultPager() string {
	for _, name := range []string{"SKEIN_PAGER", "PAGER"} {
		if value, ok := os.LookupEnv(name); ok {
			return value
		}
	}
	if _, err := exec.LookPath("less"); err != nil {
		return ""
	}
	// Left by itself when the text fits, lines not folded, screen kept.
	return "less -SRFX"
}
