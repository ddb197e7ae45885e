package flightproto_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// A client's ticket is good for its own exchange, and its authorization for
// nothing else.
func TestClientTickets(t *testing.T) {
	now := time.Now()
	a := authorityAt(now, "", 1)
	raw, err := a.ClientTicket(&pb.Ticket{QueryId: "q.1", Fragment: 3, Exchange: 7, TabletGeneration: 2}, flightproto.Claims{User: "ann", Expires: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(raw, ticket, flightproto.MaxTicketBytes); err != nil {
		t.Fatal(err)
	}
	if c, err := a.VerifyTicket(ticket); err != nil || c.User != "ann" || c.Subject != "q.1" {
		t.Fatalf("%+v, %v", c, err)
	}
	for name, test := range map[string]struct {
		at     time.Duration
		change func(*pb.Ticket)
		code   sqlstate.Code
	}{
		"another fragment": {0, func(t *pb.Ticket) { t.Fragment = 4 }, sqlstate.InsufficientPrivilege},
		"another exchange": {0, func(t *pb.Ticket) { t.Exchange = 8 }, sqlstate.InsufficientPrivilege},
		"another query":    {0, func(t *pb.Ticket) { t.QueryId = "q.2" }, sqlstate.InsufficientPrivilege},
		"a node's":         {0, func(t *pb.Ticket) { t.Client = false }, sqlstate.InsufficientPrivilege},
		"expired":          {2 * time.Minute, func(*pb.Ticket) {}, sqlstate.InsufficientPrivilege},
		"unsigned":         {0, func(t *pb.Ticket) { t.Authorization = nil }, sqlstate.InvalidAuthorization},
		"forged":           {0, func(t *pb.Ticket) { t.Authorization[len(t.Authorization)-1] ^= 1 }, sqlstate.InvalidAuthorization},
	} {
		changed := proto.Clone(ticket).(*pb.Ticket)
		changed.Authorization = bytes.Clone(ticket.Authorization)
		test.change(changed)
		if _, err := authorityAt(now.Add(test.at), "", 1).VerifyTicket(changed); err == nil || sqlstate.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
	if _, err := a.Verify("q.1", ticket.Authorization); sqlstate.CodeOf(err) != sqlstate.InsufficientPrivilege {
		t.Errorf("the authorization for the whole query: %v", err)
	}
	nodes, err := a.Sign(flightproto.Claims{Subject: "q.1", Expires: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.VerifyTicket(&pb.Ticket{QueryId: "q.1", Authorization: nodes}); err != nil {
		t.Errorf("a node's ticket: %v", err)
	}
}

func TestStreamsHaveTheSchemaThatWasSent(t *testing.T) {
	field := arrow.Field{Name: "v", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true}
	x := &planner.Exchange{ID: 5, Schema: arrow.NewSchema([]arrow.Field{field}, nil), Public: true}
	told := field
	told.Name, told.Metadata = "amount", arrow.NewMetadata([]string{"k"}, []string{"v"})
	want := arrow.NewSchema([]arrow.Field{told}, nil)
	got, err := flightproto.ExchangeStream(x, flight.SerializeSchema(want, memory.DefaultAllocator))
	if err != nil || !got.Schema().Equal(want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := flightproto.ExchangeStream(x, nil); err != nil || !got.Schema().Equal(x.Schema) {
		t.Errorf("none sent: %v, %v", got, err)
	}
	other := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)
	if _, err := flightproto.ExchangeStream(x, flight.SerializeSchema(other, memory.DefaultAllocator)); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("other types: %v", err)
	}
	if _, err := flightproto.ExchangeStream(x, []byte("no schema")); err == nil {
		t.Error("bytes that are no schema pass")
	}
	inner := *x
	inner.Public = false
	if _, err := flightproto.ExchangeStream(&inner, flight.SerializeSchema(want, memory.DefaultAllocator)); sqlstate.CodeOf(err) != sqlstate.ProtocolViolation {
		t.Errorf("an exchange of physical types: %v", err)
	}
}
