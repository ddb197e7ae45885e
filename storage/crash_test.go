package storage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// childEnv has the test binary do a childWork instead of running tests.
const childEnv = "SKEIN_STORAGE_CHILD"

// childWork is what a process does that is to die.
type childWork struct {
	Kind  string
	Dir   string
	Seed  uint64
	Count int    // entries of the script
	Boot  string // run of the machine
	Point FaultPoint
	Hit   int    // dies when it has come to the point so often
	Limit uint64 // bytes of a file, for work that meets a full disk
}

// childKinds are the kinds of work.
var childKinds = map[string]func(*childT, childWork) error{
	"script": crashScript,
	"open":   openDamaged,
	"full":   fillDisk,
	"nobody": openAsNobody,
}

// childT stands in for testing.T in the child.
type childT struct{ testing.TB }

func (childT) Helper()             {}
func (childT) Fatal(args ...any)   { panic(childFailure(fmt.Sprint(args...))) }
func (childT) Error(args ...any)   { panic(childFailure(fmt.Sprint(args...))) }
func (childT) Cleanup(func())      {}
func (childT) Logf(string, ...any) {}

// childFailure is what a failed helper panics with in the child.
type childFailure string

func (f childFailure) Error() string { return string(f) }

// runChild does a piece of work and returns the exit code.
func runChild(text string) int {
	var w childWork
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := childKinds[w.Kind](&childT{}, w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childResult is how a child ended.
type childResult struct {
	killed         bool // by itself
	code           int
	acked, durable uint64 // log indexes
	stderr         string
	lines          []string
}

// child runs work in a process of its own to its end.
func child(t *testing.T, w childWork) childResult {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%+v hangs:\n%s", w, errs.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := childResult{code: cmd.ProcessState.ExitCode(), stderr: errs.String()}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		line := lines.Text()
		r.lines = append(r.lines, line)
		what, number, _ := strings.Cut(line, " ")
		var index uint64
		if _, err := fmt.Sscan(number, &index); err != nil {
			continue
		}
		switch what {
		case "ack":
			r.acked = index
		case "durable":
			r.durable = index
		}
	}
	return r
}

// scriptOptions are those of a store that does much with little data. Its clock
// stands so late that all deleted rows are old.
func scriptOptions(dir, boot string) Options {
	return Options{
		Dir: dir, CompactAfter: 2, ReserveBytes: -1,
		Now:  func() time.Time { return time.UnixMicro(1 << 50) },
		Boot: func() string { return boot },
		tune: func(b badger.Options) badger.Options {
			return b.WithValueLogFileSize(4 << 20).WithMemTableSize(8 << 20)
		},
	}
}

// crashScript applies a script, syncs, compacts, installs snapshots and
// reclaims space on the way, and dies at the point asked for.
func crashScript(t *childT, w childWork) error {
	opts := scriptOptions(w.Dir, w.Boot)
	hits := 0
	opts.Fault = func(p FaultPoint) {
		if p != w.Point {
			return
		}
		if hits++; hits == w.Hit {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal is there
		}
	}
	open := func() (*Store, *Tablet) {
		s := openQuiet(t, w.Dir, opts)
		return s, mustTablet(t, s, scriptTable())
	}
	s, tab := open()
	for n, e := range newScript(t, w.Seed, w.Count).entries {
		if e.index <= tab.Applied() {
			continue
		}
		if _, err := tab.Apply(e.index, e.commands...); err != nil {
			return err
		}
		fmt.Println("ack", e.index)
		var err error
		switch n % 6 {
		case 1:
			err = s.Sync()
		case 2:
			settle(t, tab)
			continue
		case 3:
			err = tab.InstallSnapshot(bytes.NewReader(saved(t, tab)), nil)
		case 4: // what is deleted counts once it has left the memtable
			settle(t, tab)
			if err = s.Close(); err == nil {
				s, tab = open()
				s.reclaim()
			}
		default:
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println("durable", e.index)
	}
	return s.Close()
}

// TestCrashMatrix kills a process at every fault point, in a store that another
// process left behind when it was killed: the store has all that was
// acknowledged, or after a power failure all that was durable, equals the state
// after some prefix of the log, and takes the rest of it.
func TestCrashMatrix(t *testing.T) {
	const entries, seed = 46, 20
	t.Logf("seed %d", seed)
	reference := newScript(t, seed, entries)
	c := &crashMatrix{
		script: reference, digests: reference.digests(),
		work: childWork{Kind: "script", Dir: t.TempDir(), Seed: seed, Count: entries, Boot: "first", Point: FaultApplied, Hit: 12},
	}
	if c.before = child(t, c.work); !c.before.killed {
		t.Fatalf("the first process ended with %d:\n%s", c.before.code, c.before.stderr)
	}
	for _, point := range FaultPoints() {
		hit := 1
		for _, power := range []bool{true, false} {
			if !power {
				if point == FaultRollback || point == FaultRolledBack {
					continue // nothing is taken back
				}
				hit = 2
			}
			t.Run(fmt.Sprintf("%s/hit %d/power failure %t", point, hit, power), func(t *testing.T) {
				t.Parallel()
				c.run(t, point, hit, power)
			})
		}
	}
}

// crashMatrix is what all cases start from.
type crashMatrix struct {
	script  *script
	digests map[uint64]uint64
	work    childWork // of the first process, whose directory each case copies
	before  childResult
}

// run lets a second process die. With power the machine fails, too, each time.
func (c *crashMatrix) run(t *testing.T, point FaultPoint, hit int, power bool) {
	w := c.work
	w.Dir = t.TempDir()
	copyStore(t, c.work.Dir, w.Dir)
	if power {
		w.Boot = "second"
	}
	w.Point, w.Hit = point, hit
	after := child(t, w)
	if !after.killed {
		t.Fatalf("the point is not reached, the process ended with %d:\n%s", after.code, after.stderr)
	}
	if report, err := Check(w.Dir); err != nil || len(report.Problems) > 0 {
		t.Fatalf("as it is, the check says %+v, %v", report, err)
	}
	least := max(c.before.acked, after.acked)
	if power {
		w.Boot = "third"
		least = max(c.before.durable, after.durable)
	}
	c.verify(t, w, least)
}

// verify opens the store, compares it with the reference and finishes the log.
func (c *crashMatrix) verify(t *testing.T, w childWork, least uint64) {
	t.Helper()
	s := openQuiet(t, w.Dir, scriptOptions(w.Dir, w.Boot))
	tab := mustTablet(t, s, scriptTable())
	applied := tab.Applied()
	if applied < least {
		t.Fatalf("the store is at index %d, %d was promised", applied, least)
	}
	// Between the transactions of one group the store is ahead of its index.
	want, known := c.digests[applied]
	if between := w.Point == FaultApplyFlush && w.Boot == c.work.Boot; !known || (!between && digest(t, tab) != want) {
		t.Fatalf("at index %d the store differs from the log (known index: %t)", applied, known)
	}
	if err := c.script.replay(tab, nil); err != nil {
		t.Fatal(err)
	}
	settle(t, tab)
	if digest(t, tab) != c.digests[c.script.index] {
		t.Fatal("after the rest of the log the store differs from it")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Check(w.Dir)
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("the check says %+v, %v", report, err)
	}
}
