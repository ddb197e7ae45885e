package storage

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func fillDisk(*childT, childWork) error     { return nil }
func openAsNobody(*childT, childWork) error { return nil }

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
