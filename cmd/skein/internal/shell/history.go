package shell

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/reeflective/readline"
)

// maxHistory bounds the lines of the history file; it is cut to half of that
// when a shell starts with more.
const maxHistory = 10_000

// DefaultHistory is the file that statements are kept in: SKEIN_HISTORY, empty
// for none, else a file below the user's state directory.
func DefaultHistory() string {
	if path, ok := os.LookupEnv("SKEIN_HISTORY"); ok {
		return path
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "skein", "history")
}

// history is the kept statements, without those that are nobody's business.
type history struct{ readline.History }

var secret = regexp.MustCompile(`(?i)\bpassword\b`)

// Write keeps a statement, unless it begins with a space or speaks of a
// password.
func (h history) Write(text string) (int, error) {
	if strings.HasPrefix(text, " ") || secret.MatchString(text) {
		return h.Len(), nil
	}
	return h.History.Write(text)
}

// openHistory opens the history file, or makes it, readable for its owner only.
func openHistory(path string) (readline.History, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := trimHistory(path); err != nil {
		return nil, err
	}
	kept, err := readline.NewHistoryFromFile(path)
	if err != nil {
		return nil, err
	}
	return history{kept}, nil
}

func trimHistory(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		return err
	}
	var lines []string
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		lines = append(lines, scan.Text()+"\n")
	}
	if err := errors.Join(scan.Err(), f.Close()); err != nil {
		return fmt.Errorf("reading the history %s: %w", path, err)
	}
	if len(lines) <= maxHistory {
		return nil
	}
	lines = slices.Clone(lines[len(lines)-maxHistory/2:])
	// In one step, as other shells may read it now.
	short := path + ".new"
	if err := os.WriteFile(short, []byte(strings.Join(lines, "")), 0o600); err != nil {
		return err
	}
	return os.Rename(short, path)
}
