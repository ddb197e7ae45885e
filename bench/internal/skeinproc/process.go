// Package skeinproc runs a Skein server as a child process and talks Flight
// SQL to it.
package skeinproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a running `skein dev`.
type Process struct {
	Address string        // host:port of Flight SQL
	Startup time.Duration // until it was ready
	data    string
	cmd     *exec.Cmd
	exited  chan error
}

// startTimeout bounds the wait for the ready line.
const startTimeout = 30 * time.Second

// Start runs the binary with its data in a directory, on free ports, with more
// flags if given.
func Start(ctx context.Context, binary, data string, flags ...string) (*Process, error) {
	return start(ctx, binary, data, exec.Command(binary, devArguments(data, flags)...))
}

func devArguments(data string, flags []string) []string {
	return append([]string{"dev", "--data", data, "--flight", "127.0.0.1:0", "--http", "127.0.0.1:0"}, flags...)
}

func start(ctx context.Context, binary, data string, cmd *exec.Cmd) (*Process, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &Process{data: data, cmd: cmd, exited: make(chan error, 1)}
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), "grpc://"); ok {
				address <- strings.TrimSpace(rest)
			}
		}
		p.exited <- cmd.Wait()
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case p.Address = <-address:
		p.Startup = time.Since(began)
		return p, nil
	case err := <-p.exited:
		return nil, fmt.Errorf("%s ended before it was ready: %w", binary, err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%s was not ready after %s", binary, startTimeout)
	}
	return nil, errors.Join(err, p.cmd.Process.Kill())
}

// Stop ends the process gracefully.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping skein: %w", err)
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case err := <-p.exited:
		return err
	case <-timer.C:
		return errors.Join(errors.New("skein did not stop in time"), p.cmd.Process.Kill())
	}
}

// PeakMemory is the most resident memory so far, in bytes, 0 where the
// operating system does not tell.
func (p *Process) PeakMemory() int64 { return p.status("VmHWM:") }

// Memory is the resident memory in bytes, like PeakMemory.
func (p *Process) Memory() int64 { return p.status("VmRSS:") }

func (p *Process) status(field string) int64 { return procStatus(p.cmd.Process.Pid, field) }

// procStatus reads a field of a process's status file in bytes.
func procStatus(pid int, field string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// clockTick is the unit of the times in a process's stat file.
const clockTick = 10 * time.Millisecond

// processorTime reads the user and system time of a process.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	const user, system = 11, 12
	if len(fields) <= system {
		return 0
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// DiskBytes is the space that the data directory's files take on disk.
func (p *Process) DiskBytes() (int64, error) { return diskBytes(p.data) }

func diskBytes(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed by the running server meanwhile
		}
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			total += s.Blocks * 512 // files may be sparse
			return nil
		}
		total += info.Size()
		return nil
	})
	return total, err
}
