package gateway

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/protobuf/types/known/timestamppb"

	"skein/flightproto"
	"skein/planner"
	"skein/sqlstate"
)

const (
	// polledTTL is how long a query that is polled waits for the next poll, and
	// its first rows for being fetched.
	polledTTL = time.Minute
	// firstPoll and longPoll bound how long a poll waits for a query's first rows.
	firstPoll = 100 * time.Millisecond
	longPoll  = 5 * time.Second
	// progressTimeout bounds asking the workers how far a query is.
	progressTimeout = time.Second
	// almostDone is the most progress that is told of a query that runs.
	almostDone = 0.99
	// polledPrefix begins the handles of polled queries.
	polledPrefix = "poll-"
)

// retryPrefix begins the command of the descriptors that ask after a query. It
// is no Flight SQL message.
var retryPrefix = []byte("skein.poll:")

// polledQuery is a query that runs without a client that waits: until its first
// rows are there, which then wait for a DoGet. Memory is bounded for the stream
// holds back the query as one to a client does.
type polledQuery struct {
	handle  string
	q       *plannedQuery
	opened  chan struct{}                // closed once the statement is registered, or has ended
	ready   chan struct{}                // closed when rows are there, or it has ended
	fetched chan flight.DataStreamWriter // takes the stream that rows go to
	done    chan struct{}                // closed at the end, when err is set
	err     error
	cancel  context.CancelCauseFunc
	idle    *time.Timer // gives the query up; stopped once it is fetched
}

// PollFlightInfoStatement starts a query and tells, a moment later, how far it
// is. Statements that are no queries are run at once.
func (s *sqlService) PollFlightInfoStatement(ctx context.Context, cmd flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	if len(cmd.GetTransactionId()) > 0 {
		return nil, s.fail(ctx, errNoTransactions())
	}
	return s.pollText(ctx, cmd.GetQuery(), d)
}

// pollText is PollFlightInfo for SQL text.
func (s *sqlService) pollText(ctx context.Context, text string, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	st, err := s.compile(ctx, text)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if !st.isQuery() {
		info, err := s.execute(ctx, text, d)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		return complete(info), nil
	}
	q, err := s.plan(ctx, st, nil)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.pollPlanned(ctx, q, d)
}

// PollFlightInfoPreparedStatement is PollFlightInfoStatement with the
// parameters bound last.
func (s *sqlService) PollFlightInfoPreparedStatement(ctx context.Context, cmd flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	p, err := s.prepared.get(string(cmd.GetPreparedStatementHandle()))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	st, args, err := s.current(ctx, p)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if !st.isQuery() {
		info, err := s.executePrepared(ctx, string(cmd.GetPreparedStatementHandle()), d)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		return complete(info), nil
	}
	q, err := s.plan(ctx, st, args)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.pollPlanned(ctx, q, d)
}

// PollFlightInfo asks after a query by the descriptor that the last poll gave.
func (s *sqlService) PollFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	handle, ok := bytes.CutPrefix(d.GetCmd(), retryPrefix)
	if !ok {
		return nil, s.fail(ctx, sqlstate.New(sqlstate.FeatureNotSupported, "only statements can be polled").
			WithHint("get the FlightInfo of a metadata command with GetFlightInfo"))
	}
	p, err := s.polled.get(string(handle))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.poll(ctx, p, d, longPoll)
}

// complete is the answer for what has come to its end.
func complete(info *flight.FlightInfo) *flight.PollInfo {
	whole := 1.0
	return &flight.PollInfo{Info: info, Progress: &whole}
}

func (s *sqlService) pollPlanned(ctx context.Context, q *plannedQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	p, err := s.runPolled(ctx, q)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return s.poll(ctx, p, d, firstPoll)
}

// runPolled starts a query that belongs to the gateway until it is fetched.
func (s *sqlService) runPolled(ctx context.Context, q *plannedQuery) (*polledQuery, error) {
	p := &polledQuery{
		q: q, opened: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{}),
		fetched: make(chan flight.DataStreamWriter),
	}
	handle, err := s.polled.put("", p)
	if err != nil {
		return nil, err
	}
	p.handle = handle
	// What identifies the caller stays, the end of this call does not matter.
	ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	p.idle = time.AfterFunc(polledTTL, func() {
		s.polled.drop(handle)
		p.cancel(sqlstate.New(sqlstate.QueryCanceled, "nobody asked after the query for %s", polledTTL))
	})
	s.gw.background.Add(1)
	go func() {
		defer s.gw.background.Done()
		p.run(ctx, s)
	}()
	select {
	case <-p.opened:
	case <-p.done:
	}
	return p, nil
}

// run executes the query. Its rows wait in rendezvous for whoever fetches them.
func (p *polledQuery) run(ctx context.Context, s *sqlService) {
	defer p.cancel(nil)
	defer p.idle.Stop()
	out := &rendezvous{p: p}
	var rows int64
	p.err = s.statement(ctx, p.q.id, "query", p.q.text, &rows, func(ctx context.Context) error {
		close(p.opened)
		out.ctx = ctx
		return s.stream(ctx, p.q, out, &rows)
	})
	if !out.open {
		close(p.ready)
	}
	close(p.done)
}

// rendezvous is the stream of a polled query: the first message waits for the
// client's stream, which all of them then go to.
type rendezvous struct {
	p    *polledQuery
	ctx  context.Context
	to   flight.DataStreamWriter
	open bool // the first message has come
}

// meet waits for the client's stream.
func (r *rendezvous) meet() error {
	if r.to != nil {
		return nil
	}
	if !r.open {
		r.open = true
		close(r.p.ready)
	}
	select {
	case r.to = <-r.p.fetched:
		return nil
	case <-r.ctx.Done():
		return causeOf(r.ctx, r.ctx.Err())
	}
}

func (r *rendezvous) Send(d *flight.FlightData) error {
	if err := r.meet(); err != nil {
		return err
	}
	return r.to.Send(d)
}

// poll waits for a query's first rows and describes it.
func (s *sqlService) poll(ctx context.Context, p *polledQuery, d *flight.FlightDescriptor, wait time.Duration) (*flight.PollInfo, error) {
	p.idle.Reset(polledTTL)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-p.ready:
		select {
		case <-p.done:
			if p.err != nil {
				s.polled.drop(p.handle)
				return nil, s.fail(ctx, p.err)
			}
		default:
		}
		return s.polledReady(p, d)
	case <-ctx.Done():
		return nil, s.fail(ctx, ctx.Err())
	case <-limit.C:
	}
	expires := timestamppb.New(time.Now().Add(polledTTL))
	return &flight.PollInfo{
		Info:             p.info(d),
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: append(bytes.Clone(retryPrefix), p.handle...)},
		Progress:         s.progress(ctx, p),
		ExpirationTime:   expires,
	}, nil
}

func (p *polledQuery) info(d *flight.FlightDescriptor) *flight.FlightInfo {
	return &flight.FlightInfo{
		Schema: p.q.schema.info, FlightDescriptor: d, TotalRecords: -1, TotalBytes: -1, AppMetadata: []byte(p.q.id),
	}
}

// progress asks the workers how far the scans of a query are: the part of the
// blocks read, of those scans that have begun. It is nil where nothing is known.
func (s *sqlService) progress(ctx context.Context, p *polledQuery) *float64 {
	r := s.gw.queries.attempt(p.q.id)
	if r == nil {
		return nil
	}
	scans := 0
	for _, f := range r.plan.Fragments {
		for _, op := range f.Operators {
			if scan, ok := op.(*planner.TabletScan); ok && !scan.Table.System {
				scans++
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	var sum flightproto.ScanProgress
	for _, addr := range r.placed.workers {
		conn, err := s.gw.workers.conn(addr)
		if err != nil {
			return nil
		}
		one, err := conn.Progress(ctx, r.id, r.authorization)
		if err != nil {
			s.gw.log.Debug("a worker did not tell how far a query is", "query_id", r.id, "worker", addr, "err", err)
			return nil
		}
		sum.Scans, sum.Blocks, sum.Done = sum.Scans+one.Scans, sum.Blocks+one.Blocks, sum.Done+one.Done
	}
	if scans == 0 || sum.Scans == 0 {
		return nil
	}
	part := float64(min(sum.Scans, uint64(scans))) / float64(scans)
	if sum.Blocks > 0 {
		part *= float64(sum.Done) / float64(sum.Blocks)
	}
	part = min(part, almostDone) // it is not over yet
	return &part
}

// polledReady describes a query whose rows can be fetched.
func (s *sqlService) polledReady(p *polledQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	ticket, err := flightsql.CreateStatementQueryTicket([]byte(polledPrefix + p.handle))
	if err != nil {
		return nil, err
	}
	info := p.info(d)
	info.Endpoint = []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: ticket}}}
	out := complete(info)
	out.ExpirationTime = timestamppb.New(time.Now().Add(polledTTL))
	return out, nil
}

// sendPolled answers the DoGet of a polled query; there can be one.
func (s *sqlService) sendPolled(handle string, stream flight.FlightService_DoGetServer) error {
	ctx := stream.Context()
	p, err := s.polled.take(strings.TrimPrefix(handle, polledPrefix))
	if err != nil {
		return s.fail(ctx, err)
	}
	p.idle.Stop()
	select {
	case p.fetched <- stream:
	case <-p.done:
	case <-ctx.Done():
		p.cancel(sqlstate.New(sqlstate.QueryCanceled, "the client went away: %w", ctx.Err()))
	}
	// The stream is the query's until that is over: a handler must not return
	// while others write to it.
	stop := context.AfterFunc(ctx, func() {
		p.cancel(sqlstate.New(sqlstate.QueryCanceled, "the client went away: %w", ctx.Err()))
	})
	defer stop()
	<-p.done
	if p.err != nil {
		return s.fail(ctx, p.err)
	}
	return nil
}

// RenewFlightEndpoint keeps a result for another while. An endpoint that was
// renewed can be fetched any number of times until it expires, each time with
// the rows of that moment; one that was not, once.
func (s *sqlService) RenewFlightEndpoint(ctx context.Context, req *flight.RenewFlightEndpointRequest) (*flight.FlightEndpoint, error) {
	endpoint := req.GetEndpoint()
	statement, ok := statementHandle(endpoint.GetTicket())
	if !ok {
		return nil, s.fail(ctx, sqlstate.New(sqlstate.FeatureNotSupported, "the endpoint is not one of a statement, whose results alone expire"))
	}
	ttl := s.gw.cfg.HandleTTL
	if handle, polled := strings.CutPrefix(statement, polledPrefix); polled {
		p, err := s.polled.get(handle)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		ttl = polledTTL
		p.idle.Reset(ttl)
	} else {
		q, err := s.planned.get(statement)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		q.kept.Store(true)
	}
	return &flight.FlightEndpoint{
		Ticket: endpoint.GetTicket(), Location: endpoint.GetLocation(), AppMetadata: endpoint.GetAppMetadata(),
		ExpirationTime: timestamppb.New(time.Now().Add(ttl)),
	}, nil
}
