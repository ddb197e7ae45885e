package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"skein/catalog"
)

const (
	identityFile   = "skein-node.json"
	identityFormat = 1
)

// Identity says whose data a directory holds. It is written once, before
// anything else, and never changes.
type Identity struct {
	Cluster string         `json:"cluster"`
	Node    catalog.NodeID `json:"node"`
}

// identityJSON is the file: the format's version, the identity and a CRC-32C,
// in hexadecimal, of the identity's own JSON.
type identityJSON struct {
	Format   int             `json:"format"`
	Identity json.RawMessage `json:"identity"`
	Checksum string          `json:"checksum"`
}

// claimDirectory makes sure that dir belongs to want: an empty directory is
// claimed, one that was claimed before must name the same identity, and a
// directory with anything else in it is refused with ErrForeignDirectory.
func claimDirectory(dir string, want Identity) error {
	got, err := readIdentity(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := checkEmpty(dir); err != nil {
			return err
		}
		return writeIdentity(dir, want)
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: %s belongs to node %d of cluster %q, this is node %d of cluster %q",
			ErrForeignDirectory, dir, got.Node, got.Cluster, want.Node, want.Cluster)
	}
	return nil
}

func readIdentity(dir string) (Identity, error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return Identity{}, fmt.Errorf("reading node identity: %w", err)
	}
	var file identityJSON
	if err := decodeStrict(data, &file); err != nil {
		return Identity{}, fmt.Errorf("%w: identity file %s is damaged: %v", ErrForeignDirectory, path, err)
	}
	if file.Format != identityFormat {
		return Identity{}, fmt.Errorf("%w: identity file %s has format %d, this release reads %d", ErrForeignDirectory, path, file.Format, identityFormat)
	}
	var id Identity
	if err := decodeStrict(file.Identity, &id); err != nil {
		return Identity{}, fmt.Errorf("%w: identity file %s is damaged: %v", ErrForeignDirectory, path, err)
	}
	canonical, err := json.Marshal(id)
	if err != nil {
		return Identity{}, fmt.Errorf("encoding node identity: %w", err)
	}
	if file.Checksum != checksumText(canonical) {
		return Identity{}, fmt.Errorf("%w: identity file %s does not match its checksum", ErrForeignDirectory, path)
	}
	return id, nil
}

func writeIdentity(dir string, id Identity) error {
	canonical, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encoding node identity: %w", err)
	}
	data, err := json.MarshalIndent(identityJSON{identityFormat, canonical, checksumText(canonical)}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding node identity: %w", err)
	}
	if err := writeFileDurably(dir, identityFile, append(data, '\n')); err != nil {
		return fmt.Errorf("writing node identity: %w", err)
	}
	return nil
}

func checksumText(data []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli))
}

// checkEmpty refuses a directory that holds someone else's files. What a fresh
// file system or an interrupted first start leaves behind is fine.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading data directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, "lost+found", identityFile + ".tmp":
		default:
			return fmt.Errorf("%w: %s has no %s but holds %q", ErrForeignDirectory, dir, identityFile, e.Name())
		}
	}
	return nil
}

// writeFileDurably replaces a file so that after a crash it has either the old
// or the new content.
func writeFileDurably(dir, name string, data []byte) (err error) {
	temporary := filepath.Join(dir, name+".tmp")
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
