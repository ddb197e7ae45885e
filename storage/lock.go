package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"skein/sqlstate"
)

// lockName is the file that whoever uses a store holds a lock on.
const lockName = "LOCK"

// lockStore locks a store's directory, made if missing, for this process.
func lockStore(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockName)
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR))
	held, err := lock.TryLock()
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, inUse(dir)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "process %d\n", os.Getpid()), 0o644); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return lock, nil
}

// lockStoreToRead keeps others from writing a store, without writing itself.
// It returns nil for a store that was never opened by this release.
func lockStoreToRead(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetFlag(os.O_RDONLY))
	held, err := lock.TryRLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !held:
		return nil, inUse(dir)
	}
	return lock, nil
}

func inUse(dir string) error {
	holder := "another process"
	if b, err := os.ReadFile(filepath.Join(dir, lockName)); err == nil && len(b) > 0 {
		holder = strings.TrimSpace(string(b))
	}
	return sqlstate.New(sqlstate.ObjectInUse, "the store in %s is in use by %s", dir, holder).
		WithHint("stop the node that uses it")
}
