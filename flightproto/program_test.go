package flightproto_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
)

func TestProgramRoundTrip(t *testing.T) {
	program := &pb.Program{Fragments: []*pb.Fragment{{Id: 3, TabletId: 9}}, Exchanges: []*pb.Exchange{{Id: 1, Kind: "merge"}}}
	raw, digest, err := flightproto.EncodeProgram(program)
	if err != nil {
		t.Fatal(err)
	}
	back, err := flightproto.DecodeProgram(raw, digest)
	if err != nil || !proto.Equal(back, program) {
		t.Errorf("%v, %v", back, err)
	}
	if d, err := flightproto.DigestFrom(digest[:]); err != nil || d != digest {
		t.Errorf("digest %x, %v", d, err)
	}
	var malformed *flightproto.MalformedError
	if _, err := flightproto.DigestFrom(digest[1:]); !errors.As(err, &malformed) {
		t.Errorf("a short digest: %v", err)
	}
	if _, err := flightproto.DecodeProgram(append(bytes.Clone(raw), 0), digest); !errors.As(err, &malformed) {
		t.Errorf("another content: %v", err)
	}
	newer := protowire.AppendVarint(protowire.AppendTag(bytes.Clone(raw), 99, protowire.VarintType), 1)
	if _, err := flightproto.DecodeProgram(newer, flightproto.DigestOf(newer)); !errors.As(err, &malformed) {
		t.Errorf("an unknown field: %v", err)
	}
	noise := []byte{0xff, 0xff}
	if _, err := flightproto.DecodeProgram(noise, flightproto.DigestOf(noise)); !errors.As(err, &malformed) {
		t.Errorf("noise: %v", err)
	}
}

func TestParametersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(genLiteral(), 0, 5).Draw(t, "values")
		encoded, err := flightproto.EncodeParameters(values)
		if err != nil {
			t.Fatal(err)
		}
		back, err := flightproto.DecodeParameters(encoded)
		if err != nil || len(back) != len(values) {
			t.Fatalf("%v, %v", back, err)
		}
		for i, v := range values {
			if back[i].String() != v.String() {
				t.Errorf("parameter %d is %s, was %s", i, back[i], v)
			}
		}
	})
	if _, err := flightproto.EncodeParameters([]*planner.Literal{nil}); err == nil {
		t.Error("a missing value was encoded")
	}
}
