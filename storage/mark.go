package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// syncMark says up to where a store is durable. Badger runs without syncing its
// writes, and its files reach the disk in no particular order: after a power
// failure a table may be there whose values are not. So the mark names the last
// version of the database that Sync made durable whole, and what came later is
// taken back and replayed from the Raft log (see recoverStore).
type syncMark struct {
	// Closed says that all that the files hold is durable.
	Closed bool `json:"closed"`
	// Version is the last durable one, while the store is open.
	Version uint64 `json:"version"`
	// Boot is the run of the machine that the store was opened in: while it goes
	// on, nothing that was written is lost even if the process dies.
	Boot string `json:"boot"`
	// Logs are the durable bytes of the log files that were growing.
	Logs map[string]int64 `json:"logs"`
	// Manifest is the size of the list of tables. It begins with other bytes,
	// First, when Badger has rewritten it.
	Manifest int64  `json:"manifest"`
	First    uint64 `json:"first"`
}

// lost reports whether the files of a store that was not closed may lack some
// of what was written after the mark.
func (m *syncMark) lost(torn bool, boot string) bool { return torn || boot == "" || m.Boot != boot }

const (
	markName   = "SYNCED"
	markFormat = 1
)

// markJSON is the file: a format's version, the mark and a CRC-32C, in
// hexadecimal, of the mark's own JSON.
type markJSON struct {
	Format   int             `json:"format"`
	Mark     json.RawMessage `json:"mark"`
	Checksum string          `json:"checksum"`
}

// readMark reads a store's mark, nil if it has none.
func readMark(dir string) (*syncMark, error) {
	b, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file markJSON
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, damagedFile(dir, markName, err)
	}
	if file.Format != markFormat {
		return nil, damagedFile(dir, markName, fmt.Errorf("format %d, this release reads %d", file.Format, markFormat))
	}
	if file.Checksum != markSum(file.Mark) {
		return nil, damagedFile(dir, markName, errChecksum)
	}
	m := new(syncMark)
	if err := json.Unmarshal(file.Mark, m); err != nil {
		return nil, damagedFile(dir, markName, err)
	}
	return m, nil
}

func markSum(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }

// writeMark replaces the mark durably: a crash leaves the old or the new one.
func writeMark(dir string, m syncMark) error {
	mark, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b, err := json.Marshal(markJSON{Format: markFormat, Mark: mark, Checksum: markSum(mark)})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, markName)
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncPath(dir)
}

// syncPath makes a file or directory durable. It does not matter that another
// descriptor or a memory map wrote it. A file that is gone is fine.
func syncPath(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncAll makes all files of a store durable.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := syncPath(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return syncPath(dir)
}
