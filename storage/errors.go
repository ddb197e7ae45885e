package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/dgraph-io/badger/v4"

	"skein/catalog"
	"skein/sqlstate"
)

var (
	errChecksum     = errors.New("checksum mismatch")
	errLoadPanicked = errors.New("decoding panicked")

	// noCancel is for clean-up that runs to its end.
	noCancel = context.Background()
)

// ErrClosed is returned by operations on a closed Store or Tablet.
var ErrClosed = errors.New("storage is closed")

// InDoubtError says that transactions which are prepared but undecided could
// still commit at or below the timestamp of a read. Resolve them or wait for
// their outcome, then read again.
type InDoubtError struct {
	Tablet catalog.TabletID
	Txns   []InDoubt
}

// Error names the first transaction.
func (e *InDoubtError) Error() string {
	return fmt.Sprintf("tablet %d has %d transactions in doubt, the first is %s", e.Tablet, len(e.Txns), e.Txns[0].Txn)
}

// oneLine makes a line of an error's text, and not too long a one.
type oneLine struct{ error }

func (e oneLine) Error() string {
	const most = 600
	text := strings.Join(strings.FieldsFunc(e.error.Error(), func(r rune) bool { return r == '\n' }), "; ")
	if len(text) > most {
		text = text[:most] + " ..."
	}
	return text
}

func (e oneLine) Unwrap() error { return e.error }

// ioError classifies an error of Badger or the file system; doing says what
// failed, as in "writing tablet 7".
func ioError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	doing := fmt.Sprintf(format, args...)
	err = oneLine{err}
	var known *sqlstate.Error
	switch text := err.Error(); {
	case errors.As(err, &known):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, errChecksum):
		return sqlstate.New(sqlstate.DataCorrupted, "%s: %w", doing, err).
			WithHint(rebuildHint)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG),
		strings.Contains(text, "no space left on device"), strings.Contains(text, "file too large"):
		return sqlstate.New(sqlstate.DiskFull, "%s: %w", doing, err).WithHint("free space on the data directory's volume")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return sqlstate.New(sqlstate.IOError, "%s: %w", doing, err).
			WithHint("let the user that runs the node write the data directory")
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO), strings.Contains(text, "read-only file system"):
		return sqlstate.New(sqlstate.IOError, "%s: %w", doing, err).WithHint("check the data directory's volume")
	}
	return sqlstate.New(sqlstate.IOError, "%s: %w", doing, err)
}

// rebuildHint is for damage of one replica.
const rebuildHint = "one of several replicas is rebuilt from the others; restore the only one from a backup"

// errVersion is in the chain of errors about records whose checksum is right and
// whose version is not known. They are no damage.
var errVersion = errors.New("written by a later release")

func laterRelease(err error, format string, args ...any) error {
	return sqlstate.New(sqlstate.FeatureNotSupported, "%s: %w", fmt.Sprintf(format, args...), err).
		WithHint("start a release that is not older than the one that wrote the data directory")
}

// damagedRecords classifies what went wrong while reading a tablet's records.
func damagedRecords(sp *space, what string, err error) error {
	switch {
	case errors.Is(err, badger.ErrDBClosed), errors.Is(err, ErrClosed):
		return ErrClosed
	case errors.Is(err, badger.ErrBlockedWrites), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EMFILE):
		return ioError(err, "reading %s of tablet %d", what, sp.id)
	}
	if errors.Is(err, errVersion) {
		return laterRelease(err, "tablet %d, %s", sp.id, what)
	}
	return sqlstate.New(sqlstate.DataCorrupted, "tablet %d, %s are damaged: %w", sp.id, what, err).
		WithHint(rebuildHint)
}

// corrupted says which piece of a tablet is damaged.
func corrupted(tablet catalog.TabletID, segment uint64, what string, err error) error {
	if errors.Is(err, errVersion) {
		return laterRelease(err, "tablet %d, segment %d, %s", tablet, segment, what)
	}
	return sqlstate.New(sqlstate.DataCorrupted, "tablet %d, segment %d, %s is damaged: %w", tablet, segment, what, err).
		WithHint(rebuildHint)
}
