package storage

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Badger's two kinds of log, both append-only: a .mem file holds the writes of
// one memtable, a .vlog file large values. Both are headed by 20 bytes and made
// of entries:
//
//	meta, user meta   1 byte each
//	key, value length uvarints, then the time of expiry, a uvarint
//	key, value
//	CRC-32C of all this, big endian
//
// What follows the last entry is zero, except after a write that was cut short.
const (
	memSuffix   = ".mem"
	valueSuffix = ".vlog"
	tableSuffix = ".sst"

	logHead      = 20
	logHeaderMax = 22
	logKeyMax    = 1 << 16
)

// logEnd is where the whole entries of a log file end.
type logEnd struct {
	offset int64
	// torn says that something follows which is not an entry.
	torn bool
}

// scanLog reads the entries of a log file from an offset on, 0 for all.
func scanLog(path string, from int64) (end logEnd, err error) {
	f, err := os.Open(path)
	if err != nil {
		return logEnd{}, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return logEnd{}, err
	}
	end.offset = max(from, logHead)
	if info.Size() < end.offset {
		return logEnd{offset: info.Size(), torn: info.Size() > 0}, nil
	}
	r := &logReader{r: bufio.NewReaderSize(io.NewSectionReader(f, end.offset, info.Size()-end.offset), 256<<10)}
	for {
		n, ok, err := r.entry(info.Size() - end.offset)
		if err != nil {
			return end, err
		}
		if !ok {
			break
		}
		end.offset += n
	}
	tail := make([]byte, min(logHeaderMax, info.Size()-end.offset))
	if _, err := f.ReadAt(tail, end.offset); err != nil && err != io.EOF {
		return end, err
	}
	end.torn = slices.ContainsFunc(tail, func(b byte) bool { return b != 0 })
	return end, nil
}

type logReader struct {
	r    *bufio.Reader
	body []byte
}

// entry reads one entry of at most most bytes and returns its length; ok is
// false if there is no whole one.
func (l *logReader) entry(most int64) (n int64, ok bool, err error) {
	head, err := l.r.Peek(logHeaderMax)
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	if len(head) < 2 {
		return 0, false, nil
	}
	at := 2
	var lengths [3]uint64 // key, value, expiry
	for i := range lengths {
		v, size := binary.Uvarint(head[at:])
		if size <= 0 {
			return 0, false, nil
		}
		lengths[i], at = v, at+size
	}
	key, value := lengths[0], lengths[1]
	if key == 0 || key > logKeyMax || value > uint64(most) {
		return 0, false, nil
	}
	n = int64(at) + int64(key) + int64(value) + crc32.Size
	if n > most {
		return 0, false, nil
	}
	l.body = slices.Grow(l.body[:0], int(n))[:n]
	if _, err := io.ReadFull(l.r, l.body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			return 0, false, nil
		}
		return 0, false, err
	}
	sum := binary.BigEndian.Uint32(l.body[n-crc32.Size:])
	return n, crc32.Checksum(l.body[:n-crc32.Size], castagnoli) == sum, nil
}

// storeFiles are the names of the files of a store by kind, ascending.
type storeFiles struct {
	mems, values, tables []string
	manifest             bool
	others               []string
}

func listStore(dir string) (storeFiles, error) {
	var out storeFiles
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, memSuffix):
			out.mems = append(out.mems, name)
		case strings.HasSuffix(name, valueSuffix):
			out.values = append(out.values, name)
		case strings.HasSuffix(name, tableSuffix):
			out.tables = append(out.tables, name)
		case name == manifestName:
			out.manifest = true
		default:
			out.others = append(out.others, name)
		}
	}
	for _, names := range [][]string{out.mems, out.values, out.tables} {
		slices.SortFunc(names, func(a, b string) int {
			return int(int64(fileNumber(a)) - int64(fileNumber(b)))
		})
	}
	return out, nil
}

// fileNumber is the number that a file of Badger's is named by, 0 if the name
// is odd.
func fileNumber(name string) uint32 {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, filepath.Ext(name)), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// manifestName is the file that lists the tables: a magic number, then records
// of a length, a CRC-32C and a list of changes. Badger takes a record that ends
// early for a write that was cut short, forgets it and deletes tables that are
// not listed: so its length is checked here first.
const manifestName = "MANIFEST"

var manifestMagic = []byte("Bdgr\x00\x00\x00\x08")

// checkManifest tells a MANIFEST whose last record was cut short, which is
// fine, from one whose records were damaged.
func checkManifest(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(b, manifestMagic) {
		return errors.New("it does not start with the magic number of this version")
	}
	for at := len(manifestMagic); len(b)-at >= 8; {
		length, sum := binary.BigEndian.Uint32(b[at:]), binary.BigEndian.Uint32(b[at+4:])
		body := b[at+8:]
		if uint64(length) <= uint64(len(body)) {
			if crc32.Checksum(body[:length], castagnoli) != sum {
				return fmt.Errorf("the record at byte %d fails its checksum", at)
			}
			at += 8 + int(length)
			continue
		}
		// The end of the file, or a length that is wrong: in that case the
		// record is somewhere in the rest.
		crc := uint32(0)
		for i := range body {
			if crc = crc32.Update(crc, castagnoli, body[i:i+1]); crc == sum {
				return fmt.Errorf("the length of the record at byte %d is wrong", at)
			}
		}
		return nil
	}
	return nil
}

// manifestHead returns the size of the list of tables and the head of its first
// record.
func manifestHead(dir string) (size int64, first uint64, err error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // read only
	head := make([]byte, len(manifestMagic)+8)
	if _, err := io.ReadFull(f, head); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return 0, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), binary.BigEndian.Uint64(head[len(manifestMagic):]), nil
}

// hasKey reports whether a log file says that it is encrypted.
func hasKey(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // read only
	var key [8]byte
	if _, err := io.ReadFull(f, key[:]); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	return key != [8]byte{}, nil
}
