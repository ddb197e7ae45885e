package flightproto

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// pullOf names the one exchange that the authorization of a client's ticket is for.
func pullOf(t *pb.Ticket) string { return fmt.Sprintf("%d/%d", t.GetFragment(), t.GetExchange()) }

// ClientTicket makes the ticket with which a client pulls an exchange from the
// worker itself, once, until the claims expire. Its authorization is for that alone:
// with that of the query, which nodes hold, a client could start fragments of its
// own. The subject of the claims is set to the ticket's query. Errors are those of
// Sign and Encode.
func (a *Authority) ClientTicket(t *pb.Ticket, c Claims) ([]byte, error) {
	t.Client = true
	c.Subject, c.Pull = t.GetQueryId(), pullOf(t)
	var err error
	if t.Authorization, err = a.Sign(c); err != nil {
		return nil, err
	}
	return Encode(t, MaxTicketBytes)
}

// VerifyTicket checks the authorization of a ticket, a client's or a node's, and
// returns what it vouches for. Errors are those of Verify.
func (a *Authority) VerifyTicket(t *pb.Ticket) (*Claims, error) {
	if t.GetClient() {
		return a.verify(t.GetQueryId(), pullOf(t), t.GetAuthorization())
	}
	return a.Verify(t.GetQueryId(), t.GetAuthorization())
}

// ExchangeStream is the schema of the stream that an exchange is, encoded: the one
// that was sent along for it, as a FlightInfo has it, or its own.
func ExchangeStream(x *planner.Exchange, sent []byte) (*StreamSchema, error) {
	if len(sent) == 0 {
		return NewExchangeSchema(x), nil
	}
	schema, err := flight.DeserializeSchema(sent, memory.DefaultAllocator)
	if err != nil {
		return nil, malformed("exchange %d: its stream's schema: %v", x.ID, err)
	}
	same := x.Public && schema.NumFields() == x.Schema.NumFields()
	for i := 0; same && i < schema.NumFields(); i++ {
		same = arrow.TypeEqual(schema.Field(i).Type, x.Schema.Field(i).Type)
	}
	if !same {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "the stream of exchange %d is to be of %s, its rows are of %s", x.ID, schema, x.Schema)
	}
	return NewStreamSchema(schema), nil
}
