package flightproto

import (
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Version is the protocol version that this build speaks. Peers of another
// version refuse each other.
const Version = 1

// Size limits of encoded messages, frame included.
const (
	// MaxMessageBytes bounds requests and responses.
	MaxMessageBytes = 16 << 20
	// MaxTicketBytes bounds a Ticket with its authorization.
	MaxTicketBytes = 64 << 10
	// MaxAuthorizationBytes bounds the authorization of any message.
	MaxAuthorizationBytes = 64 << 10
)

// VersionError refuses a message of a protocol version this build does not
// speak.
type VersionError struct {
	Got uint64
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("protocol version %d is not supported, this build speaks version %d", e.Got, Version)
}

// authorizationPart names the envelope in a SizeError.
const authorizationPart = "authorization"

// SizeError refuses an oversized message or part of one.
type SizeError struct {
	What  string
	Size  int
	Limit int
}

// Error names the sizes in bytes.
func (e *SizeError) Error() string {
	return fmt.Sprintf("%s is %d bytes, the limit is %d", e.What, e.Size, e.Limit)
}

// ChecksumError refuses a message that was damaged on its way.
type ChecksumError struct {
	Got, Want uint32
}

// Error names both checksums.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("message checksum is %08x, expected %08x", e.Got, e.Want)
}

// MalformedError refuses bytes that are not a message of this protocol.
type MalformedError struct {
	Reason string
}

// Error says what is wrong with the bytes.
func (e *MalformedError) Error() string { return "malformed message: " + e.Reason }

func malformed(format string, args ...any) error {
	return &MalformedError{Reason: fmt.Sprintf(format, args...)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Numbers of Frame's fields in skein.proto.
const (
	frameVersion  protowire.Number = 1
	frameBody     protowire.Number = 2
	frameChecksum protowire.Number = 3
)

// Encode wraps a message in a frame of at most limit bytes.
func Encode(m proto.Message, limit int) ([]byte, error) {
	if err := checkAuthorization(m); err != nil {
		return nil, err
	}
	size := proto.Size(m)
	out := make([]byte, 0, size+24)
	out = protowire.AppendTag(out, frameVersion, protowire.VarintType)
	out = protowire.AppendVarint(out, Version)
	out = protowire.AppendTag(out, frameBody, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size))
	start := len(out)
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, m)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	body := out[start:]
	out = protowire.AppendTag(out, frameChecksum, protowire.Fixed32Type)
	out = protowire.AppendFixed32(out, crc32.Checksum(body, castagnoli))
	if len(out) > limit {
		return nil, &SizeError{What: string(m.ProtoReflect().Descriptor().Name()), Size: len(out), Limit: limit}
	}
	return out, nil
}

// Decode reads a frame of at most limit bytes into m, which is reset first. m
// does not alias data. Errors are *SizeError, *VersionError, *ChecksumError or
// *MalformedError; m's content is unspecified then.
func Decode(data []byte, m proto.Message, limit int) error {
	name := m.ProtoReflect().Descriptor().Name()
	if len(data) > limit {
		return &SizeError{What: string(name), Size: len(data), Limit: limit}
	}
	body, err := unwrap(data)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return malformed("%s: %v", name, err)
	}
	if err := refuseUnknown(m.ProtoReflect()); err != nil {
		return err
	}
	return checkAuthorization(m)
}

// unwrap checks a frame and returns its body, which aliases data. It accepts
// the one canonical form only: the three fields once each, in order, and
// nothing after them.
func unwrap(data []byte) ([]byte, error) {
	rest, err := frameField(data, frameVersion, protowire.VarintType)
	if err != nil {
		return nil, err
	}
	version, n := protowire.ConsumeVarint(rest)
	if n < 0 {
		return nil, malformed("truncated version")
	}
	if version != Version {
		return nil, &VersionError{Got: version}
	}
	if rest, err = frameField(rest[n:], frameBody, protowire.BytesType); err != nil {
		return nil, err
	}
	body, n := protowire.ConsumeBytes(rest)
	if n < 0 {
		return nil, malformed("truncated body")
	}
	if rest, err = frameField(rest[n:], frameChecksum, protowire.Fixed32Type); err != nil {
		return nil, err
	}
	want, n := protowire.ConsumeFixed32(rest)
	if n < 0 {
		return nil, malformed("truncated checksum")
	}
	if trailing := len(rest) - n; trailing > 0 {
		return nil, malformed("%d bytes after the frame", trailing)
	}
	if got := crc32.Checksum(body, castagnoli); got != want {
		return nil, &ChecksumError{Got: got, Want: want}
	}
	return body, nil
}

func frameField(data []byte, want protowire.Number, wantType protowire.Type) ([]byte, error) {
	number, wireType, n := protowire.ConsumeTag(data)
	if n < 0 {
		return nil, malformed("truncated frame")
	}
	if number != want || wireType != wantType {
		return nil, malformed("frame field %d of wire type %d where field %d was expected", number, wireType, want)
	}
	return data[n:], nil
}

// refuseUnknown walks a message for fields that this build does not know: a
// newer peer that depends on them must not be half obeyed.
func refuseUnknown(m protoreflect.Message) error {
	if raw := m.GetUnknown(); len(raw) > 0 {
		number, _, _ := protowire.ConsumeTag(raw)
		return malformed("unknown field %d of %s", number, m.Descriptor().Name())
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || !m.Has(f) {
			continue
		}
		if !f.IsList() {
			if err := refuseUnknown(m.Get(f).Message()); err != nil {
				return err
			}
			continue
		}
		list := m.Get(f).List()
		for k := range list.Len() {
			if err := refuseUnknown(list.Get(k).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAuthorization bounds the authorization envelope of messages that carry
// one.
func checkAuthorization(m proto.Message) error {
	carrier, ok := m.(interface{ GetAuthorization() []byte })
	if !ok {
		return nil
	}
	if n := len(carrier.GetAuthorization()); n > MaxAuthorizationBytes {
		return &SizeError{What: authorizationPart, Size: n, Limit: MaxAuthorizationBytes}
	}
	return nil
}
