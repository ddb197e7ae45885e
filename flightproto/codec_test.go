package flightproto

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func drawFlightData(t *rapid.T) *flight.FlightData {
	field := func(name string, most int) []byte {
		n := rapid.IntRange(0, most).Draw(t, name)
		if n == 0 {
			return nil
		}
		return bytes.Repeat([]byte{rapid.Byte().Draw(t, name+" byte")}, n)
	}
	m := &flight.FlightData{DataHeader: field("header", 300), AppMetadata: field("metadata", 40), DataBody: field("body", 3*minShared)}
	if rapid.Bool().Draw(t, "described") {
		m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: field("command", 20)}
	}
	return m
}

// pieces cuts bytes as the transport does.
func pieces(raw []byte, size int) mem.BufferSlice {
	var out mem.BufferSlice
	for len(raw) > 0 {
		n := min(size, len(raw))
		out = append(out, mem.SliceBuffer(raw[:n]))
		raw = raw[n:]
	}
	return out
}

func TestCodecAgreesWithProtobuf(t *testing.T) {
	plain, own := encoding.GetCodecV2(proto.Name), newCodec()
	rapid.Check(t, func(t *rapid.T) {
		want := drawFlightData(t)
		body := *bodyPool.Get(len(want.DataBody))
		copy(body, want.DataBody)
		message := &outgoing{body: &body}
		if rapid.Bool().Draw(t, "pooled") {
			message.pool = &bodyPool
		}
		message.FlightDescriptor, message.DataHeader, message.AppMetadata = want.FlightDescriptor, want.DataHeader, want.AppMetadata
		codecs := []encoding.CodecV2{plain, own}
		sent, err := rapid.SampledFrom(codecs).Draw(t, "sender").Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		raw := bytes.Clone(sent.Materialize())
		sent.Free()
		got := &flight.FlightData{AppMetadata: []byte("left over")}
		receiver := rapid.SampledFrom(codecs).Draw(t, "receiver")
		if err := receiver.Unmarshal(pieces(raw, rapid.IntRange(1, 5000).Draw(t, "piece")), got); err != nil {
			t.Fatal(err)
		}
		if !pb.Equal(got, want) {
			t.Fatalf("%d bytes became %v, want %v", len(raw), got, want)
		}
	})
}

func TestCodecSkipsUnknownFieldsAndRefusesDamage(t *testing.T) {
	own := newCodec()
	message := &flight.FlightData{DataHeader: []byte("head"), DataBody: make([]byte, 2*minShared)}
	raw, err := pb.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	unknown := []byte{7 << 3, 5, 8<<3 | 5, 1, 2, 3, 4, 9<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 10<<3 | 2, 1, 9}
	got := &flight.FlightData{}
	if err := own.Unmarshal(pieces(append(unknown, raw...), 100), got); err != nil || !bytes.Equal(got.DataBody, message.DataBody) {
		t.Errorf("with unknown fields: %v", err)
	}
	for cut := len(raw) - 1; cut > minShared; cut -= 997 {
		if err := own.Unmarshal(pieces(raw[:cut], 1000), &flight.FlightData{}); err == nil {
			t.Errorf("cut to %d bytes, it is accepted", cut)
		}
	}
	if err := own.Unmarshal(pieces(append([]byte{3<<3 | 3}, raw...), 1000), &flight.FlightData{}); err == nil {
		t.Error("a group is accepted")
	}
}

func TestBodiesHaveTheLengthAskedFor(t *testing.T) {
	var pool bodies
	for _, n := range []int{0, 1, 1 << 14, 1<<14 + 1, 131 << 10, 1 << 25, 1<<25 + 1} {
		for range 2 {
			b := pool.Get(n)
			if len(*b) != n {
				t.Errorf("%d bytes asked for, %d came", n, len(*b))
			}
			pool.Put(b)
		}
	}
	short := make([]byte, 10)
	pool.Put(&short)
}
