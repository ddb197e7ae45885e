package flightproto

import (
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/proto"

	"skein/flightproto/pb"
	"skein/planner"
)

// Digest names a Program by its content.
type Digest [sha256.Size]byte

// DigestOf is the digest of an encoded Program.
func DigestOf(program []byte) Digest { return sha256.Sum256(program) }

// EncodeProgram encodes what a worker is to do for each execution of a plan.
// The fragments may hold Params.
func EncodeProgram(program *pb.Program) ([]byte, Digest, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(program)
	if err != nil {
		return nil, Digest{}, fmt.Errorf("encoding a plan: %w", err)
	}
	if len(raw) > MaxMessageBytes {
		return nil, Digest{}, &SizeError{What: "plan", Size: len(raw), Limit: MaxMessageBytes}
	}
	return raw, DigestOf(raw), nil
}

// DecodeProgram reverses EncodeProgram and refuses a content that has another
// digest.
func DecodeProgram(raw []byte, digest Digest) (*pb.Program, error) {
	if got := DigestOf(raw); got != digest {
		return nil, malformed("a plan has the digest %x, not %x", got[:8], digest[:8])
	}
	program := &pb.Program{}
	if err := proto.Unmarshal(raw, program); err != nil {
		return nil, malformed("Program: %v", err)
	}
	return program, refuseUnknown(program.ProtoReflect())
}

// DigestFrom reads a digest off the wire.
func DigestFrom(raw []byte) (Digest, error) {
	var d Digest
	if len(raw) != len(d) {
		return d, malformed("a plan's digest has %d bytes instead of %d", len(raw), len(d))
	}
	copy(d[:], raw)
	return d, nil
}

// EncodeParameters encodes the values of a plan's Params, by ordinal.
func EncodeParameters(values []*planner.Literal) ([]*pb.Literal, error) {
	out := make([]*pb.Literal, len(values))
	for i, v := range values {
		var err error
		if out[i], err = encodeLiteral(v); err != nil {
			return nil, fmt.Errorf("parameter $%d: %w", i, err)
		}
	}
	return out, nil
}

// DecodeParameters reverses EncodeParameters.
func DecodeParameters(list []*pb.Literal) ([]*planner.Literal, error) {
	out := make([]*planner.Literal, len(list))
	for i, p := range list {
		var err error
		if out[i], err = decodeLiteral(p); err != nil {
			return nil, fmt.Errorf("parameter $%d: %w", i, err)
		}
	}
	return out, nil
}
