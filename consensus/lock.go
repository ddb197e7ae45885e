package consensus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

const lockFile = "LOCK.skein"

// dirLock is an exclusive lock on a directory, held by one process. The lock
// file's text says who holds it, for the error that a second process gets; the
// text of a process that died is stale and harmless.
type dirLock struct {
	file *flock.Flock
}

// lockDirectory creates dir if need be and locks it in the name of holder. The
// error wraps ErrDirectoryInUse if another process has it.
func lockDirectory(dir, holder string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating directory %s: %w", dir, err)
	}
	path := filepath.Join(dir, lockFile)
	file := flock.New(path)
	locked, err := file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking directory %s: %w", dir, err)
	}
	if !locked {
		by := "an unknown holder"
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			by = strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf("%w: %s is held by %s", ErrDirectoryInUse, dir, by)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	text := fmt.Sprintf("%s, process %d on %s\n", holder, os.Getpid(), host)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("writing lock file %s: %w", path, joinUnlock(err, file))
	}
	return &dirLock{file: file}, nil
}

func joinUnlock(err error, file *flock.Flock) error {
	if unlockErr := file.Unlock(); unlockErr != nil {
		return fmt.Errorf("%w (and unlocking: %v)", err, unlockErr)
	}
	return err
}

// release gives the directory up. The lock file stays: removing it would race
// with a process that has just opened it.
func (l *dirLock) release() error {
	if err := l.file.Unlock(); err != nil {
		return fmt.Errorf("unlocking %s: %w", l.file.Path(), err)
	}
	return nil
}
