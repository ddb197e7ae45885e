package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cespare/xxhash/v2"

	"skein/sqlstate"
)

// A snapshot stream carries the keys and values of one space:
//
//	header   magic, version, kind, id
//	frames   length, CRC-32C, payload: pairs of key and value
//	trailer  a frame of length 0 and CRC 0, then the number of pairs and the
//	         xxHash64 of all payloads
//
// so that truncation anywhere, a flipped bit or a missing frame is noticed
// before anything takes effect.
const (
	streamMagic   = 0x4e534b53 // "SKSN"
	streamVersion = 1
	streamFrame   = 1 << 20 // a frame is closed when it has grown to this
	maxFrame      = 64 << 20
)

var errStopped = errors.New("stopped")

type streamWriter struct {
	w     io.Writer
	stop  <-chan struct{}
	frame []byte
	count uint64
	sum   *xxhash.Digest
	fault func(FaultPoint)
}

func newStreamWriter(w io.Writer, sp *space, stop <-chan struct{}) (*streamWriter, error) {
	head := binary.LittleEndian.AppendUint32(nil, streamMagic)
	head = append(head, streamVersion, byte(sp.kind))
	head = binary.LittleEndian.AppendUint64(head, sp.id)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	return &streamWriter{w: w, stop: stop, sum: xxhash.New(), fault: sp.store.opts.fault}, nil
}

func (s *streamWriter) put(key, value []byte) error {
	s.frame = appendBytes(appendBytes(s.frame, key), value)
	s.count++
	if len(s.frame) < streamFrame {
		return nil
	}
	return s.flush()
}

func (s *streamWriter) flush() error {
	if isStopped(s.stop) {
		return errStopped
	}
	if len(s.frame) == 0 {
		return nil
	}
	_, _ = s.sum.Write(s.frame) // never fails
	s.fault(FaultSaveFrame)
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(s.frame)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(s.frame, castagnoli))
	if _, err := s.w.Write(head); err != nil {
		return err
	}
	_, err := s.w.Write(s.frame)
	s.frame = s.frame[:0]
	return err
}

func (s *streamWriter) finish() error {
	if err := s.flush(); err != nil {
		return err
	}
	tail := make([]byte, 8)
	tail = binary.LittleEndian.AppendUint64(tail, s.count)
	tail = binary.LittleEndian.AppendUint64(tail, s.sum.Sum64())
	_, err := s.w.Write(tail)
	return err
}

func isStopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// readStream reads a whole stream of the given space and passes every pair,
// valid during the call only, to put. It returns nil only when the trailer
// matched.
func readStream(r io.Reader, sp *space, stop <-chan struct{}, put func(key, value []byte) error) error {
	head := make([]byte, 18)
	if _, err := io.ReadFull(r, head); err != nil {
		return damagedStream("its header ends early: %w", err)
	}
	switch {
	case binary.LittleEndian.Uint32(head) != streamMagic,
		binary.LittleEndian.Uint32(head[14:]) != crc32.Checksum(head[:14], castagnoli):
		return damagedStream("it has no header")
	case head[4] != streamVersion:
		return damagedStream("its version is %d, this release reads %d", head[4], streamVersion)
	case head[5] != byte(sp.kind) || binary.LittleEndian.Uint64(head[6:]) != sp.id:
		return damagedStream("it is of %c%d, not %c%d", head[5], binary.LittleEndian.Uint64(head[6:]), sp.kind, sp.id)
	}
	sum := xxhash.New()
	var count uint64
	var frame []byte
	for {
		if isStopped(stop) {
			return errStopped
		}
		if _, err := io.ReadFull(r, head[:8]); err != nil {
			return damagedStream("it ends early: %w", err)
		}
		size := binary.LittleEndian.Uint32(head)
		if size == 0 {
			break
		}
		if size > maxFrame {
			return damagedStream("a frame of %d bytes", size)
		}
		if uint32(cap(frame)) < size {
			frame = make([]byte, size)
		}
		frame = frame[:size]
		if _, err := io.ReadFull(r, frame); err != nil {
			return damagedStream("a frame ends early: %w", err)
		}
		if crc32.Checksum(frame, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return damagedStream("a frame fails its checksum")
		}
		sp.store.opts.fault(FaultInstallFrame)
		_, _ = sum.Write(frame)
		n, err := eachPair(frame, put)
		if err != nil {
			return err
		}
		count += n
	}
	if _, err := io.ReadFull(r, head[:16]); err != nil {
		return damagedStream("its trailer ends early: %w", err)
	}
	if binary.LittleEndian.Uint64(head) != count || binary.LittleEndian.Uint64(head[8:]) != sum.Sum64() {
		return damagedStream("its trailer does not match")
	}
	return nil
}

func eachPair(frame []byte, put func(key, value []byte) error) (uint64, error) {
	rd := &reader{b: frame}
	var n uint64
	for len(rd.b) > 0 {
		key, value := rd.bytes(), rd.bytes()
		if rd.err != nil || len(value) == 0 {
			return 0, damagedStream("a pair ends early")
		}
		if err := put(key, value); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func damagedStream(format string, args ...any) error {
	return sqlstate.New(sqlstate.DataCorrupted, "the snapshot stream is damaged: %w", fmt.Errorf(format, args...))
}

// installStream writes a stream under the next epoch of a space, which is not
// current yet when it returns.
func (sp *space) installStream(r io.Reader, stop <-chan struct{}) (*space, error) {
	next, err := sp.next()
	if err != nil {
		return nil, err
	}
	batch := sp.store.db.NewWriteBatch()
	defer batch.Cancel()
	err = readStream(r, next, stop, func(key, value []byte) error {
		e := entryOf(next.key(key), bytes.Clone(value))
		return ioError(batch.SetEntry(e), "writing a snapshot")
	})
	if err != nil {
		return nil, err
	}
	if err := batch.Flush(); err != nil {
		return nil, ioError(err, "writing a snapshot")
	}
	return next, nil
}
