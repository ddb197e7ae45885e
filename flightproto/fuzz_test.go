package flightproto_test

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
)

// fuzzMessage checks that whatever Decode accepts is canonical: encoding it
// again gives a frame that decodes to the same message.
func fuzzMessage(t *testing.T, raw []byte, limit int, m, again proto.Message) bool {
	if err := flightproto.Decode(raw, m, limit); err != nil {
		var version *flightproto.VersionError
		var size *flightproto.SizeError
		var sum *flightproto.ChecksumError
		var form *flightproto.MalformedError
		if !errors.As(err, &version) && !errors.As(err, &size) && !errors.As(err, &sum) && !errors.As(err, &form) {
			t.Fatalf("untyped error %v", err)
		}
		return false
	}
	back, err := flightproto.Encode(m, flightproto.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := flightproto.Decode(back, again, flightproto.MaxMessageBytes); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(m, again) {
		t.Fatalf("%v became %v", m, again)
	}
	return true
}

func FuzzTicket(f *testing.F) {
	f.Add(mustEncode(f, sampleTicket()))
	f.Add([]byte{8, 1, 18, 0, 29, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzMessage(t, raw, flightproto.MaxTicketBytes, &pb.Ticket{}, &pb.Ticket{})
	})
}

func FuzzWriteHeader(f *testing.F) {
	f.Add(mustEncode(f, sampleWriteHeader()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzMessage(t, raw, flightproto.MaxMessageBytes, &pb.WriteHeader{}, &pb.WriteHeader{})
	})
}

func FuzzTransact(f *testing.F) {
	f.Add(mustEncode(f, &pb.TransactRequest{Step: pb.TransactRequest_COMMIT, TransactionId: "t", CommitTimestamp: 1}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzMessage(t, raw, flightproto.MaxMessageBytes, &pb.TransactRequest{}, &pb.TransactRequest{})
	})
}

func FuzzReport(f *testing.F) {
	body, err := proto.Marshal(flightproto.EncodeReport(sampleReport()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &pb.ReportResponse{}
		if proto.Unmarshal(body, p) != nil {
			return
		}
		fragments, err := flightproto.DecodeReport(p)
		if err != nil {
			return
		}
		again, err := flightproto.DecodeReport(flightproto.EncodeReport(fragments))
		if err != nil || !reflect.DeepEqual(fragments, again) {
			t.Fatalf("%+v became %+v: %v", fragments, again, err)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add(mustEncode(f, &pb.MetaRequest{Command: "watch", Body: []byte("{}")}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzMessage(t, raw, flightproto.MaxMessageBytes, &pb.MetaRequest{}, &pb.MetaRequest{})
	})
}

// FuzzFragment feeds arbitrary protobuf bodies, past the checksum, to the
// decoders of plans: they may refuse but not panic, and what they accept must
// encode again.
func FuzzFragment(f *testing.F) {
	table := sampleTable()
	for _, op := range []planner.Operator{
		&planner.TabletScan{Table: table, Tablet: 21, Projection: []int{0, 2}, Filter: &planner.InList{
			Arg:  &planner.Column{Index: 0, Name: "a", DataType: catalog.BigInt},
			List: []*planner.Literal{{Value: int64(1), DataType: catalog.BigInt}}}},
		&planner.MergeSort{Keys: []planner.SortKey{{Column: 1, Descending: true}}, Limit: 10},
		&planner.HashJoin{Kind: planner.InnerJoin, On: []planner.JoinKey{{Left: 1, Right: 2}}, Schema: table.ArrowSchema()},
	} {
		encoded, err := flightproto.EncodeFragment(&planner.Fragment{Operators: []planner.Operator{op}}, 1)
		if err != nil {
			f.Fatal(err)
		}
		body, err := proto.Marshal(encoded)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &pb.Fragment{}
		if proto.Unmarshal(body, p) != nil {
			return
		}
		fragment, err := flightproto.DecodeFragment(p, resolver(table))
		if err != nil {
			return
		}
		if _, err := flightproto.EncodeFragment(fragment, p.GetTabletGeneration()); err != nil {
			t.Fatalf("%v decoded but does not encode: %v", p, err)
		}
	})
}

func FuzzExchange(f *testing.F) {
	f.Add([]byte{8, 1, 34, 5, 'm', 'e', 'r', 'g', 'e'})
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &pb.Exchange{}
		if proto.Unmarshal(body, p) != nil {
			return
		}
		x, err := flightproto.DecodeExchange(p)
		if err != nil {
			return
		}
		if _, err := flightproto.EncodeExchange(x, ""); err != nil {
			t.Fatalf("%v decoded but does not encode: %v", p, err)
		}
	})
}
