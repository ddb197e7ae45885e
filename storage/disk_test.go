package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// unprivileged gives up root, whom permissions do not bind.
func unprivileged() error {
	if os.Getuid() != 0 {
		return nil
	}
	return syscall.Setuid(nobody)
}

// fillDisk opens a store and applies a script after the disk has got a limit:
// files may not grow beyond it or, for none, the directory takes no new files.
// It prints what was acknowledged and the error, and dies without closing.
func fillDisk(t *childT, w childWork) error {
	if w.Limit == 0 {
		if err := unprivileged(); err != nil {
			return err
		}
	}
	s := openQuiet(t, w.Dir, scriptOptions(w.Dir, w.Boot))
	tab := mustTablet(t, s, scriptTable())
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	err := os.Chmod(w.Dir, 0o555)
	if w.Limit > 0 {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: w.Limit, Max: w.Limit})
	}
	if err != nil {
		return err
	}
	err = newScript(t, w.Seed, w.Count).replay(tab, func(e logEntry) error {
		fmt.Println("ack", e.index)
		return nil
	})
	fmt.Println("error", err)
	_, again := tab.Apply(tab.Applied()+1, Abort{Txn: "more"})
	fmt.Println("again", again)
	return nil
}

// openAsNobody opens a store in a directory that it may not write.
func openAsNobody(_ *childT, w childWork) error {
	if err := unprivileged(); err != nil {
		return err
	}
	_, err := Open(scriptOptions(w.Dir, w.Boot))
	fmt.Println("error", err)
	return nil
}

// openTo returns a directory that an unprivileged user owns.
func openTo(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("", "skein-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := filepath.Join(base, "store")
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestDiskTakesNoMore lets the disk refuse to grow files, or to make new ones,
// while entries are applied: the tablet stops with an error that says why, and
// once there is room a restart has all that was acknowledged.
func TestDiskTakesNoMore(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	log := newScript(t, seed, 40)
	c := &crashMatrix{script: log, digests: log.digests()}
	for _, tc := range []struct {
		name  string
		limit uint64
		want  []string
	}{
		{"files do not grow", 2 << 20, []string{"53100", "file too large"}},
		{"no new files", 0, []string{"58030", "permission denied"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := childWork{Kind: "full", Dir: openTo(t), Seed: seed, Count: len(log.entries), Boot: "first", Limit: tc.limit}
			r := child(t, w)
			answer := strings.Join(r.lines[max(len(r.lines)-2, 0):], "\n")
			for _, want := range append(tc.want, "error ", "again ") {
				if !strings.Contains(answer, want) {
					t.Errorf("the answers are %s\n%s\nwithout %q", answer, r.stderr, want)
				}
			}
			if strings.Contains(answer, "<nil>") || r.acked == 0 || r.acked == log.index {
				t.Fatalf("index %d of %d was acknowledged, then: %s", r.acked, log.index, answer)
			}
			if err := os.Chmod(w.Dir, 0o777); err != nil {
				t.Fatal(err)
			}
			c.verify(t, w, r.acked)
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(dir string) error{
		"empty": func(string) error { return nil },
		"with a store": func(dir string) error {
			s, err := Open(scriptOptions(dir, "first"))
			if err != nil {
				return err
			}
			return s.Close()
		},
	} {
		dir := openTo(t)
		if err := errors.Join(prepare(dir), os.Chmod(dir, 0o555)); err != nil {
			t.Fatal(err)
		}
		r := child(t, childWork{Kind: "nobody", Dir: dir, Boot: "first"})
		answer := strings.Join(r.lines, "\n")
		for _, want := range []string{"58030", dir, "permission denied", "let the user that runs the node write"} {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: %q does not say %q", name, answer, want)
			}
		}
	}
}

// TestFailedSyncIsFinal makes one sync fail: no later one may claim that all is
// durable, for the system may have dropped what it could not write.
func TestFailedSyncIsFinal(t *testing.T) {
	dir := t.TempDir()
	s := openQuiet(t, dir, scriptOptions(dir, "first"))
	tab := mustTablet(t, s, scriptTable())
	log := newScript(t, 1, 4)
	if err := log.replay(tab, nil); err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(dir, markName+".new")
	if err := os.Mkdir(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	first := s.Sync()
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if second := s.Sync(); first == nil || second == nil || second.Error() != first.Error() || !strings.Contains(first.Error(), dir) {
		t.Errorf("the syncs say %v and %v", first, second)
	}
}

const diskPage = 4096

// copyStore copies the files of a directory, holes as holes.
func copyStore(t testing.TB, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := copySparse(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	page, zero := make([]byte, diskPage), make([]byte, diskPage)
	var size int64
	for {
		n, err := io.ReadFull(in, page)
		if n > 0 && !bytes.Equal(page[:n], zero[:n]) {
			if _, err := out.WriteAt(page[:n], size); err != nil {
				return errors.Join(err, out.Close())
			}
		}
		size += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return errors.Join(out.Truncate(size), out.Close())
}
