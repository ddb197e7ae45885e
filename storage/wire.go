package storage

import (
	"encoding/binary"
	"errors"
)

// errShort is what reader reports for bytes that end early or lengths that
// exceed what is left.
var errShort = errors.New("encoded record ends early")

// reader takes fields off the front of a record. The first failure sticks, so
// callers check err once at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		r.err = errShort
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.err != nil || n <= 0 {
		r.err = errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if r.err != nil || n <= 0 {
		r.err = errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a uvarint that may not exceed limit.
func (r *reader) count(limit uint64) int {
	n := r.uvarint()
	if n > limit {
		r.err = errShort
		return 0
	}
	return int(n)
}

// bytes reads a length-prefixed byte string, aliasing the record.
func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

func (r *reader) string() string { return string(r.bytes()) }

// done reports the first failure, or trailing bytes.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		return errors.New("encoded record has trailing bytes")
	}
	return r.err
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
