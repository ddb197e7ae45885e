package flightproto

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"skein/flightproto/pb"
	"skein/sqlstate"
)

const (
	// sessionIdle is how long a gateway keeps a session that it has no use for. It
	// is well below SessionIdle, so that workers seldom have to end one.
	sessionIdle = 250 * time.Millisecond
	// maxIdleSessions bounds those that a Conn keeps.
	maxIdleSessions = 64
	// SessionIdle is after how long a worker ends a session that nothing came on:
	// it holds up a graceful stop for that long at most.
	SessionIdle = time.Second
)

// Pull is Forward for a query of few rows whose ticket starts it. It costs less:
// it takes a DoExchange that was used before, where there is one, and so saves
// making and ending a stream. Several pulls take several sessions.
func (c *Conn) Pull(ctx context.Context, ticket *pb.Ticket, schema *StreamSchema) (*Puller, error) {
	raw, err := Encode(ticket, MaxTicketBytes)
	if err != nil {
		return nil, err
	}
	p := &Puller{conn: c, ctx: ctx, query: ticket.GetQueryId(), request: &flight.FlightData{AppMetadata: raw}, schema: schema}
	p.session = c.pulls.take()
	p.reused = p.session != nil
	if err := p.send(); err != nil {
		return nil, err
	}
	return p, nil
}

// Puller is the consuming end of a pull. It is used by one goroutine.
type Puller struct {
	conn    *Conn
	ctx     context.Context // ends the session
	query   string
	request *flight.FlightData
	schema  *StreamSchema
	session *session
	reused  bool // the session has served before and nothing came yet
	stop    func() bool
	came    tally
	clock   uint64
	ended   bool // the end was read
}

// send sends the request, on a new session if there is none or if it is over.
func (p *Puller) send() error {
	for {
		if p.session == nil {
			var err error
			if p.session, err = p.conn.newSession(); err != nil {
				return err
			}
		}
		err := p.session.stream.Send(p.request)
		if err == nil {
			p.stop = context.AfterFunc(p.ctx, p.session.cancel)
			return nil
		}
		if errors.Is(err, io.EOF) { // Recv knows why
			if err = p.session.stream.RecvMsg(&passing{}); err == nil {
				err = malformed("worker %s answered before it was asked", p.conn.address)
			}
		}
		p.session.cancel()
		p.session = nil
		if !p.reused {
			return p.failed(err)
		}
		p.reused = false
	}
}

// failed is the Conn's failed for an error of the session.
func (p *Puller) failed(err error) error {
	if errors.Is(err, io.EOF) {
		return WithReason(Unavailable, sqlstate.New(sqlstate.ConnectionFailure, "worker %s ended a session before it answered", p.conn.address).
			WithHint("Run the query again."))
	}
	return p.conn.failed(err)
}

// Next returns the next batch with rows, nil at the end, which is one only if all
// came that was sent. It is the caller's, who forwards or releases it.
func (p *Puller) Next() (*Message, error) {
	for !p.ended {
		raw := &passing{}
		err := p.session.stream.RecvMsg(raw)
		if errors.Is(err, io.EOF) && p.reused && p.stop() {
			// It was idle for so long that the worker had ended it, and then it does not
			// look at requests any more.
			if err := p.again(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, p.failed(err)
		}
		p.reused = false
		m, err := p.accept(raw)
		if err != nil || m != nil {
			return m, err
		}
	}
	return nil, nil
}

// again repeats the request on a new session.
func (p *Puller) again() error {
	p.session.cancel()
	p.session, p.reused = nil, false
	return p.send()
}

// accept takes a message of the answer: rows, the end or both. It returns nil where
// there are no rows.
func (p *Puller) accept(raw *passing) (*Message, error) {
	header, body, metadata, err := raw.header()
	if err != nil {
		raw.free()
		return nil, err
	}
	var rows int64
	if len(header) > 0 || body > 0 {
		p.came.add(header, body, 0)
		var kind byte
		if kind, rows, err = messageHeader(header); err == nil && kind != headerRecordBatch {
			err = malformed("worker %s sent a message of kind %d where rows were expected", p.conn.address, kind)
		}
	}
	if err == nil && metadata > 0 {
		var end []byte
		if raw, end, err = raw.parted(); err == nil {
			err = p.end(end)
		}
	}
	if err == nil && rows > 0 {
		return &Message{Rows: rows, raw: raw}, nil
	}
	raw.free()
	return nil, err
}

// end checks what came against what was sent.
func (p *Puller) end(encoded []byte) error {
	end := &pb.PullEnd{}
	if err := Decode(encoded, end, MaxTicketBytes); err != nil {
		return WithReason(Unavailable, sqlstate.New(sqlstate.ConnectionFailure, "worker %s: the end of a pull: %w", p.conn.address, err))
	}
	sent := tally{messages: end.GetMessages(), bytes: end.GetBytes(), headers: end.GetHeaders()}
	if end.GetQueryId() != p.query || len(end.GetFailure()) == 0 && (sent != p.came || end.GetSchema() != p.schema.sum()) {
		return WithReason(Unavailable, sqlstate.New(sqlstate.ConnectionFailure, "the rows from worker %s are incomplete or damaged", p.conn.address).
			WithDetail("Messages, bytes and checksum are %s of query %s where %s of query %s were sent.", p.came, p.query, sent, end.GetQueryId()).
			WithHint("Run the query again; check the network if this happens more than once."))
	}
	p.ended = true
	p.clock = end.GetClock()
	if len(end.GetFailure()) == 0 {
		return nil
	}
	failure := status.New(codes.OK, "").Proto()
	if err := proto.Unmarshal(end.GetFailure(), failure); err != nil {
		return malformed("worker %s: the failure of a pull: %v", p.conn.address, err)
	}
	return p.conn.failed(status.ErrorProto(failure))
}

// Clock is the worker's clock at the end, 0 before.
func (p *Puller) Clock() uint64 { return p.clock }

// Close ends the pull, which is cancelled if its end was not read. It may be
// called more than once.
func (p *Puller) Close() {
	if p.session == nil {
		return
	}
	if p.stop() && p.ended {
		p.conn.pulls.put(p.session)
	} else {
		p.session.cancel()
	}
	p.session = nil
}

// EndPull ends the answer to a pull: all rows were written, or err is why not. The
// end rides on the last batch.
func (w *BatchWriter) EndPull(query string, clock uint64, failure error) error {
	if err := w.flush(); err != nil {
		return err
	}
	sent := w.payloads.sent
	end, err := endOfPull(&pb.PullEnd{QueryId: query, Messages: sent.messages, Bytes: sent.bytes, Headers: sent.headers,
		Schema: w.payloads.schema.sum(), Clock: clock}, failure)
	if err != nil {
		return err
	}
	if failure == nil && w.payloads.held != nil {
		w.payloads.held.AppMetadata = end
		return w.payloads.release()
	}
	if err := w.payloads.release(); err != nil {
		return err
	}
	return w.payloads.to.Send(&flight.FlightData{AppMetadata: end})
}

// FailPull answers a pull with an error before any rows.
func FailPull(to flight.DataStreamWriter, query string, failure error) error {
	end, err := endOfPull(&pb.PullEnd{QueryId: query}, failure)
	if err != nil {
		return err
	}
	return to.Send(&flight.FlightData{AppMetadata: end})
}

func endOfPull(end *pb.PullEnd, failure error) ([]byte, error) {
	if failure != nil {
		raw, err := proto.Marshal(status.Convert(ToStatus(failure)).Proto())
		if err != nil {
			return nil, fmt.Errorf("encoding the failure of a query: %w", err)
		}
		end.Failure = raw
	}
	return Encode(end, MaxTicketBytes)
}

// sum is a checksum of the schema's encoding.
func (s *StreamSchema) sum() uint32 { return crc32.Checksum(s.header, castagnoli) }

// session is a DoExchange that serves one pull at a time.
type session struct {
	stream flight.FlightService_DoExchangeClient
	cancel context.CancelFunc
	since  time.Time // idle
}

func (c *Conn) newSession() (*session, error) {
	// It outlives the query that it is made for.
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.client.DoExchange(ctx)
	if err != nil {
		cancel()
		return nil, c.failed(err)
	}
	return &session{stream: stream, cancel: cancel}, nil
}

// sessions are those of a Conn that serve no pull, the one used last at the end.
type sessions struct {
	mu     sync.Mutex
	idle   []*session
	timer  *time.Timer // runs while there are any
	closed bool
}

// take returns an idle session, nil if there is none.
func (s *sessions) take() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 || time.Since(s.idle[last].since) > sessionIdle {
		return nil
	}
	taken := s.idle[last]
	s.idle[last] = nil
	s.idle = s.idle[:last]
	return taken
}

// put keeps a session for the next pull.
func (s *sessions) put(idle *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.idle) == maxIdleSessions {
		idle.cancel()
		return
	}
	idle.since = time.Now()
	s.idle = append(s.idle, idle)
	if s.timer == nil {
		s.timer = time.AfterFunc(sessionIdle, s.prune)
	}
}

// prune ends the sessions that have been idle for long.
func (s *sessions) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := 0
	for old < len(s.idle) && time.Since(s.idle[old].since) >= sessionIdle {
		s.idle[old].cancel()
		old++
	}
	s.idle = append(s.idle[:0], s.idle[old:]...)
	clear(s.idle[len(s.idle):cap(s.idle)])
	s.timer = nil
	if len(s.idle) > 0 && !s.closed {
		s.timer = time.AfterFunc(sessionIdle, s.prune)
	}
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, idle := range s.idle {
		idle.cancel()
	}
	s.idle = nil
}
