package flightproto_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// pulled answers DoExchange.
type pulled struct {
	peer
	exchange func(flight.FlightService_DoExchangeServer) error
}

func (p *pulled) DoExchange(s flight.FlightService_DoExchangeServer) error { return p.exchange(s) }

// A session that its worker has ended for being idle is replaced by another one,
// once; a new one that ends without an answer is an error.
func TestPullsOutliveTheirSession(t *testing.T) {
	for name, test := range map[string]struct {
		answers []int // of the sessions, before each is ended with a request unanswered
		pulls   int   // that succeed
	}{
		"one of one": {[]int{1, 1, 1}, 3},
		"many":       {[]int{3, 2}, 5},
		"none":       {[]int{2, 0}, 2},
		"at first":   {[]int{0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var sessions atomic.Int32
			conn := serveFlight(t, &pulled{exchange: func(s flight.FlightService_DoExchangeServer) error {
				answers := 0
				if i := int(sessions.Add(1)) - 1; i < len(test.answers) {
					answers = test.answers[i]
				}
				for {
					request, err := s.Recv()
					if err != nil {
						return err
					}
					if answers--; answers < 0 {
						return nil
					}
					if err := answerPull(s, request); err != nil {
						return err
					}
				}
			}})
			var err error
			for i := range test.pulls + 1 {
				if err = pullNothing(t, conn, fmt.Sprint(i)); err != nil && i < test.pulls {
					t.Fatalf("pull %d: %v", i, err)
				}
			}
			if flightproto.ReasonOf(err) != flightproto.Unavailable {
				t.Errorf("the last error is %v", err)
			}
		})
	}
}

var pullSchema = flightproto.NewStreamSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil))

// answerPull answers the query "fails" with an error, any other without rows.
func answerPull(s flight.FlightService_DoExchangeServer, request *flight.FlightData) error {
	ticket := &pb.Ticket{}
	if err := flightproto.Decode(request.GetAppMetadata(), ticket, flightproto.MaxTicketBytes); err != nil {
		return err
	}
	var failure error
	if ticket.GetQueryId() == "fails" {
		failure = flightproto.WithReason(flightproto.UnknownPlan, sqlstate.New(sqlstate.UndefinedObject, "no plan"))
	}
	return flightproto.NewPullWriter(s, pullSchema).EndPull(ticket.GetQueryId(), 7, failure)
}

func pullNothing(t *testing.T, conn *flightproto.Conn, query string) error {
	p, err := conn.Pull(t.Context(), &pb.Ticket{QueryId: query}, pullSchema)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Next()
	if err == nil && (m != nil || p.Clock() != 7) {
		err = errors.New("rows came, or no clock")
	}
	return err
}

// The failure of a query crosses a pull as it crosses a call, and the session
// serves the next one.
func TestPullsCarryFailures(t *testing.T) {
	var sessions atomic.Int32
	conn := serveFlight(t, &pulled{exchange: func(s flight.FlightService_DoExchangeServer) error {
		sessions.Add(1)
		for {
			request, err := s.Recv()
			if err != nil {
				return err
			}
			if err := answerPull(s, request); err != nil {
				return err
			}
		}
	}})
	for range 3 {
		err := pullNothing(t, conn, "fails")
		if sqlstate.CodeOf(err) != sqlstate.UndefinedObject || flightproto.ReasonOf(err) != flightproto.UnknownPlan {
			t.Errorf("error is %v", err)
		}
		if err := pullNothing(t, conn, "works"); err != nil {
			t.Error(err)
		}
	}
	if n := sessions.Load(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}
