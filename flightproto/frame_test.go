package flightproto_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"skein/planner"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"skein/flightproto"
	"skein/flightproto/pb"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sampleTicket() *pb.Ticket {
	return &pb.Ticket{QueryId: "q-1", Fragment: 3, Exchange: 7, MetadataVersion: 42, TabletGeneration: 2, Authorization: []byte{1, 2, 3}, Dictionaries: true}
}

func sampleWriteHeader() *pb.WriteHeader {
	return &pb.WriteHeader{TransactionId: "t-1", TableId: 9, TabletId: 12, MetadataVersion: 5, AutoCommit: true}
}

func sampleReport() []planner.FragmentStats {
	return []planner.FragmentStats{{
		Fragment: 3, Node: 2, Time: 5 * time.Millisecond, Memory: 1 << 20,
		Operators: []planner.OperatorStats{
			{Parts: 2, Rows: 100, Batches: 3, Time: time.Millisecond, Self: 900, CPU: 800, Memory: 4096, Dropped: 7,
				Scan: &planner.ScanStats{Segments: 4, SegmentsRead: 1, Blocks: 9, BlocksRead: 2, Rows: 150}},
			{Parts: 1, Rows: 10, Batches: 1, Spilled: 1 << 30, Received: 12345},
			{},
		},
	}, {Fragment: 4}}
}

func TestReportRoundTrip(t *testing.T) {
	encoded := &pb.ReportResponse{}
	if err := flightproto.Decode(mustEncode(t, flightproto.EncodeReport(sampleReport())), encoded, flightproto.MaxMessageBytes); err != nil {
		t.Fatal(err)
	}
	back, err := flightproto.DecodeReport(encoded)
	if err != nil {
		t.Fatal(err)
	}
	want := sampleReport()
	want[1].Operators = []planner.OperatorStats{}
	if !reflect.DeepEqual(back, want) {
		t.Errorf("came back as %+v, was %+v", back, want)
	}
}

func TestReportRefuses(t *testing.T) {
	many := make([]*pb.OperatorReport, 1<<14+1)
	for name, p := range map[string]*pb.ReportResponse{
		"time":      {Fragments: []*pb.FragmentReport{{TimeNanos: 1 << 63}}},
		"parts":     {Fragments: []*pb.FragmentReport{{Operators: []*pb.OperatorReport{{Parts: 1 << 31}}}}},
		"blocks":    {Fragments: []*pb.FragmentReport{{Operators: []*pb.OperatorReport{{Scan: &pb.ScanReport{Blocks: 1 << 40}}}}}},
		"operators": {Fragments: []*pb.FragmentReport{{Operators: many}}},
		"fragments": {Fragments: make([]*pb.FragmentReport, 1<<14+1)},
	} {
		var form *flightproto.MalformedError
		var size *flightproto.SizeError
		if _, err := flightproto.DecodeReport(p); !errors.As(err, &form) && !errors.As(err, &size) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mustEncode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := flightproto.Encode(m, flightproto.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestFrameRoundTrip(t *testing.T) {
	for _, m := range []proto.Message{
		sampleTicket(), sampleWriteHeader(), &pb.StartResponse{}, &pb.CancelRequest{QueryId: "x", Reason: "because"},
		&pb.TransactRequest{Step: pb.TransactRequest_PREPARE, TransactionId: "t", Segments: 4, PrimaryTabletId: 1 << 60},
		&pb.ReportRequest{QueryId: "x"}, flightproto.EncodeReport(sampleReport()),
		&pb.MetaRequest{Command: "snapshot", Body: bytes.Repeat([]byte("x"), 1000)},
	} {
		back := m.ProtoReflect().New().Interface()
		if err := flightproto.Decode(mustEncode(t, m), back, flightproto.MaxMessageBytes); err != nil {
			t.Fatalf("%T: %v", m, err)
		}
		if !proto.Equal(m, back) {
			t.Errorf("%T came back as %v, was %v", m, back, m)
		}
	}
}

// Frames are protobuf messages of type Frame, so other tools can read them.
func TestFrameIsProtobuf(t *testing.T) {
	frame := &pb.Frame{}
	if err := proto.Unmarshal(mustEncode(t, sampleTicket()), frame); err != nil {
		t.Fatal(err)
	}
	back := &pb.Ticket{}
	if err := proto.Unmarshal(frame.GetBody(), back); err != nil {
		t.Fatal(err)
	}
	if frame.GetVersion() != flightproto.Version || !proto.Equal(back, sampleTicket()) {
		t.Errorf("frame holds version %d and %v", frame.GetVersion(), back)
	}
}

// The bytes on the wire must not change without a new protocol version.
func TestFrameGolden(t *testing.T) {
	for name, m := range map[string]proto.Message{"ticket": sampleTicket(), "write_header": sampleWriteHeader(),
		"write_end": &pb.WriteEnd{Messages: 3, Bytes: 70_000, Headers: 0x12345678},
		"report":    flightproto.EncodeReport(sampleReport())} {
		path := filepath.Join("testdata", name+".hex")
		got := hex.EncodeToString(mustEncode(t, m)) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is encoded as\n%swant\n%s", name, got, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := mustEncode(t, sampleTicket())
	flip := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 0x40
		return b
	}
	withVersion := func(v uint64) []byte {
		b := protowire.AppendTag(nil, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, v)
		return append(b, good[2:]...)
	}
	unknown := &pb.Ticket{QueryId: "q"}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	nested := &pb.StartRequest{Fragments: []*pb.Fragment{{Operators: []*pb.Operator{{Kind: &pb.Operator_Limit{Limit: &pb.LimitOp{}}}}}}}
	nested.Fragments[0].Operators[0].GetLimit().ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))

	var version *flightproto.VersionError
	var size *flightproto.SizeError
	var sum *flightproto.ChecksumError
	var form *flightproto.MalformedError
	for name, c := range map[string]struct {
		raw   []byte
		into  proto.Message
		limit int
		want  any
		text  string
	}{
		"empty":            {nil, &pb.Ticket{}, 1 << 20, &form, "truncated"},
		"newer version":    {withVersion(2), &pb.Ticket{}, 1 << 20, &version, "version 2"},
		"version zero":     {withVersion(0), &pb.Ticket{}, 1 << 20, &version, "version 0"},
		"damaged body":     {flip(6), &pb.Ticket{}, 1 << 20, &sum, "checksum"},
		"damaged checksum": {flip(len(good) - 1), &pb.Ticket{}, 1 << 20, &sum, "checksum"},
		"truncated":        {good[:len(good)-1], &pb.Ticket{}, 1 << 20, &form, "truncated"},
		"trailing byte":    {append(bytes.Clone(good), 0), &pb.Ticket{}, 1 << 20, &form, "1 bytes after"},
		"second frame":     {append(bytes.Clone(good), good...), &pb.Ticket{}, 1 << 20, &form, "after"},
		"oversize":         {good, &pb.Ticket{}, len(good) - 1, &size, "limit"},
		"unknown field":    {mustEncode(t, unknown), &pb.Ticket{}, 1 << 20, &form, "unknown field 99 of Ticket"},
		"nested unknown":   {mustEncode(t, nested), &pb.StartRequest{}, 1 << 20, &form, "unknown field 77 of LimitOp"},
		"not protobuf":     {[]byte("GET / HTTP/1.1\r\n"), &pb.Ticket{}, 1 << 20, &form, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := flightproto.Decode(c.raw, c.into, c.limit)
			if err == nil || !errors.As(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v (%T)", err, err)
			}
		})
	}
}

func TestAuthorizationIsBounded(t *testing.T) {
	var size *flightproto.SizeError
	_, err := flightproto.Encode(&pb.StartRequest{Authorization: make([]byte, flightproto.MaxAuthorizationBytes+1)}, flightproto.MaxMessageBytes)
	if !errors.As(err, &size) || size.What != "authorization" {
		t.Errorf("a start with an oversized authorization: %v", err)
	}
	_, err = flightproto.Encode(&pb.Ticket{Authorization: make([]byte, flightproto.MaxAuthorizationBytes)}, flightproto.MaxTicketBytes)
	if !errors.As(err, &size) {
		t.Errorf("an oversized ticket: %v", err)
	}
	if _, err = flightproto.Encode(&pb.StartRequest{Authorization: make([]byte, flightproto.MaxAuthorizationBytes)}, flightproto.MaxMessageBytes); err != nil {
		t.Errorf("an authorization at the limit: %v", err)
	}
}
