package skeinproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Cgroup bounds the memory of processes, the page cache of the files they map
// included. It exists where the kernel's control groups, version 2 or 1, may be
// written to.
type Cgroup struct{ dir string }

// ErrNoCgroup says that control groups cannot be made here.
var ErrNoCgroup = errors.New("control groups for memory cannot be made here")

// NewCgroup makes a group whose processes together may use so many bytes.
func NewCgroup(bytes int64) (*Cgroup, error) {
	name := fmt.Sprintf("skein-bench-%d", os.Getpid())
	for _, at := range []struct{ root, sign, limit string }{
		{"/sys/fs/cgroup", "cgroup.controllers", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.limit_in_bytes"},
	} {
		if _, err := os.Stat(filepath.Join(at.root, at.sign)); err != nil {
			continue // not the root of a hierarchy
		}
		g := &Cgroup{dir: filepath.Join(at.root, name)}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(g.dir, at.limit), strconv.AppendInt(nil, bytes, 10), 0o644) == nil {
			return g, nil
		}
		if err := os.Remove(g.dir); err != nil {
			return nil, err
		}
	}
	return nil, ErrNoCgroup
}

// Start is the package's Start of a process that is in the group when it begins,
// so that it finds the limit.
func (g *Cgroup) Start(ctx context.Context, binary, data string, flags ...string) (*Process, error) {
	const enter = `echo $$ > "$0" && exec "$@"`
	arguments := append([]string{"-c", enter, filepath.Join(g.dir, "cgroup.procs"), binary}, devArguments(data, flags)...)
	return start(ctx, binary, data, exec.Command("/bin/sh", arguments...))
}

// Remove removes the group once its processes have ended.
func (g *Cgroup) Remove() error {
	var err error
	for range 50 { // the kernel lets go of ended processes a little later
		if err = os.Remove(g.dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// Resident is a process's resident memory in bytes: what it has allocated, and
// the pages of mapped files, which the kernel takes back when it needs them.
type Resident struct{ Anonymous, Files int64 }

// Resident reads the resident memory.
func (p *Process) Resident() (r Resident, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		return r, err
	}
	var rss int64
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		switch {
		case fields[0] == "Rss:" && err == nil:
			rss = kib << 10
		case fields[0] == "Anonymous:" && err == nil:
			r.Anonymous = kib << 10
		}
	}
	r.Files = rss - r.Anonymous
	return r, nil
}
