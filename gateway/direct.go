package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/gateway/session"
	"skein/planner"
	"skein/sqlstate"
)

const (
	// directScheme is how clients reach workers: those that speak TLS do so to nodes
	// only, and have no direct endpoints.
	directScheme = "grpc+tcp://"
	// directPace is the first and longest wait between two looks at whether clients
	// have fetched what workers hold for them.
	directPace, directSlowest = 50 * time.Millisecond, time.Second
)

// directRun is a query whose rows clients fetch from the workers themselves.
type directRun struct {
	id            string
	workers       []string
	authorization []byte
	began         time.Time
	expires       time.Time     // of the tickets
	timeout       time.Duration // of the statement, 0 for none
}

// direct reports whether the rows of a plan may come from the workers themselves:
// the coordinator only gathers, from several fragments, what scans yield row by row.
func (t *template) direct() bool {
	if !t.forwards || len(t.plan.Root().Operators) < 2 {
		return false
	}
	for _, op := range t.plan.Root().Operators {
		x := t.plan.Exchanges[op.(*planner.ExchangeSource).Exchange]
		if len(t.plan.ExchangesFrom(x.Producer)) != 1 {
			return false
		}
		for _, op := range t.plan.Fragments[x.Producer].Operators {
			switch op.(type) {
			case *planner.TabletScan, *planner.FilterOp, *planner.ProjectOp, *planner.ExchangeSink:
			default:
				return false
			}
		}
	}
	return true
}

// directInfo starts a query whose rows may come from the workers themselves, if
// its session asks for that, and describes it by one endpoint for each tablet. It
// answers nil for other queries, which are fetched here.
func (s *sqlService) directInfo(ctx context.Context, in *session.Session, q *plannedQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if in == nil || len(q.jobs) != 1 {
		return nil, nil
	}
	settings := in.Settings()
	if !settings.Direct {
		return nil, nil
	}
	j := q.jobs[0]
	t, err := s.gw.template(j, s.gw.directory.Current(), q.schema.stream.Schema())
	if err != nil || !t.direct() {
		return nil, err
	}
	if s.gw.cfg.ClosedWorkers {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "direct endpoints are not supported where workers take connections from nodes only").
			WithHint("SET skein.direct_endpoints = off, or run the workers without node certificates.")
	}
	j.template = t
	var endpoints []*flight.FlightEndpoint
	var rows int64
	err = s.statement(ctx, q.id, "query", q.text, &rows, func(ctx context.Context) error {
		return s.runJobs(ctx, q, clientSink{schema: q.schema.stream.Schema(), direct: func(ctx context.Context, r *run, t *template) (err error) {
			if t.direct() { // or its tables were altered meanwhile
				endpoints, err = r.startDirect(ctx, t, q.schema, settings.Timeout)
			}
			return err
		}})
	})
	if err != nil || endpoints == nil {
		return nil, err
	}
	return &flight.FlightInfo{
		Schema: q.schema.info, FlightDescriptor: d, Endpoint: endpoints,
		TotalRecords: -1, TotalBytes: -1, AppMetadata: []byte(q.id),
	}, nil
}

// startDirect registers the fragments of a plan with their workers, all at one
// snapshot that they pin until the tickets expire, and returns what pulls them. Its
// reservation lasts for as long as workers hold something.
func (r *run) startDirect(ctx context.Context, t *template, schema *resultSchema, timeout time.Duration) ([]*flight.FlightEndpoint, error) {
	g := r.gw
	r.at = g.clock.Now()
	q := &directRun{id: r.id, workers: r.placed.workers, authorization: r.authorization,
		began: time.Now(), expires: time.Now().Add(g.cfg.DirectLife), timeout: timeout}
	requests, endpoints, err := r.encodeDirect(ctx, schema, q.expires)
	if err != nil {
		return nil, err
	}
	// The statement is admitted already, and its permit ends with this call.
	p, err := g.ledger.reserve(ctx, t.need, true)
	if err != nil {
		return nil, err
	}
	group, starting := errgroup.WithContext(ctx)
	for addr, request := range requests {
		group.Go(func() error { return r.startAt(starting, addr, request) })
	}
	if err := group.Wait(); err != nil {
		p.release()
		r.finish()
		return nil, err
	}
	g.background.Go(func() {
		defer p.release()
		g.attend(q)
	})
	return endpoints, nil
}

// encodeDirect makes the start requests by worker, and the endpoints, of which each
// has one fragment.
func (r *run) encodeDirect(ctx context.Context, schema *resultSchema, expires time.Time) (map[string]*pb.StartRequest, []*flight.FlightEndpoint, error) {
	requests := make(map[string]*pb.StartRequest)
	var endpoints []*flight.FlightEndpoint
	who := r.gw.cfg.Identify(ctx)
	for _, op := range r.plan.Root().Operators {
		x := r.plan.Exchanges[op.(*planner.ExchangeSource).Exchange]
		f, addr := r.plan.Fragments[x.Producer], r.placed.address[x.Producer]
		fragments, exchanges, err := r.encodeAlone(f, x, r.snap.generation(f.Assignment.Tablet))
		if err != nil {
			return nil, nil, err
		}
		exchanges[0].StreamSchema = schema.info
		request := requests[addr]
		if request == nil {
			request = &pb.StartRequest{
				QueryId: r.id, MetadataVersion: r.plan.MetadataVersion, Snapshot: r.at, Authorization: r.authorization,
				LeaseMillis: uint32(r.gw.cfg.DirectLife.Milliseconds()), MemoryBytes: uint64(r.memory),
			}
			requests[addr] = request
		}
		request.Fragments, request.Exchanges = append(request.Fragments, fragments...), append(request.Exchanges, exchanges...)
		ticket, err := r.gw.directory.authority.ClientTicket(&pb.Ticket{
			QueryId: r.id, Fragment: uint32(f.ID), Exchange: uint32(x.ID), MetadataVersion: r.plan.MetadataVersion,
			TabletGeneration: r.snap.generation(f.Assignment.Tablet),
		}, flightproto.Claims{User: who.User, Roles: who.Roles, Expires: expires})
		if err != nil {
			return nil, nil, fmt.Errorf("making the ticket of fragment %d: %w", f.ID, err)
		}
		endpoints = append(endpoints, &flight.FlightEndpoint{
			Ticket: &flight.Ticket{Ticket: ticket}, Location: []*flight.Location{{Uri: directScheme + addr}},
			ExpirationTime: timestamppb.New(expires),
		})
	}
	return requests, endpoints, nil
}

// attend waits until the workers hold nothing of a query, which they drop unless
// it is fetched before the tickets expire, or the gateway closes. What takes longer
// than the statement may is cancelled.
func (g *Server) attend(q *directRun) {
	pace, late := directPace, false
	for {
		sleep(g.life, jitter(pace))
		if g.life.Err() != nil {
			return
		}
		pace = min(2*pace, directSlowest)
		held, known := g.held(q)
		if known && held == 0 || !known && time.Now().After(q.expires) {
			return // a worker that cannot be asked has lost it or will
		}
		if !late && q.timeout > 0 && time.Since(q.began) > q.timeout {
			late = true
			g.endDirect(q, fmt.Sprintf("the statement ran longer than the statement timeout of %s", q.timeout))
		}
	}
}

// held is how many fragments of a query its workers have, false where one does not
// answer.
func (g *Server) held(q *directRun) (fragments uint64, known bool) {
	ctx, cancel := context.WithTimeout(g.life, progressTimeout)
	defer cancel()
	known = true
	for _, addr := range q.workers {
		conn, err := g.workers.conn(addr)
		if err != nil {
			known = false
			continue
		}
		p, err := conn.Progress(ctx, q.id, q.authorization)
		if err != nil {
			g.log.Debug("a worker did not tell what it holds of a query", "query_id", q.id, "worker", addr, "err", err)
			known = false
			continue
		}
		fragments += p.Fragments
	}
	return fragments, known
}

// endDirect has the workers end a query for a reason.
func (g *Server) endDirect(q *directRun, reason string) {
	ctx, cancel := context.WithTimeout(g.life, cancelTimeout)
	defer cancel()
	for _, addr := range q.workers {
		conn, err := g.workers.conn(addr)
		if err == nil {
			_, err = conn.Cancel(ctx, q.id, reason, q.authorization)
		}
		if err != nil {
			g.log.Warn("a cancel did not reach the worker", "query_id", q.id, "worker", addr, "err", err)
		}
	}
}
