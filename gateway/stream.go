package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/planner"
	"skein/sqlstate"
)

// DoGet streams a planned query. Statement tickets are served here and not by
// the adapter, whose channel of record batches would force a copy of every
// batch: operators reuse their buffers, so a batch must be on the wire before
// the next one is asked for.
func (s *service) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	query, err := flightsql.GetStatementQueryTicket(ticket)
	if err != nil {
		return s.FlightServer.DoGet(ticket, stream)
	}
	ctx := stream.Context()
	handle := string(query.GetStatementHandle())
	if strings.HasPrefix(handle, polledPrefix) {
		return s.sql.sendPolled(handle, stream)
	}
	q, err := s.sql.planned.takeUnless(handle, (*plannedQuery).isKept)
	if err != nil {
		return s.sql.fail(ctx, err)
	}
	kind := "query"
	if !q.isKept() {
		defer q.held.close()
	}
	if q.jobs == nil && q.lines == nil && q.analyze == nil && q.held == nil && q.ready == nil {
		return flightproto.NewStreamWriter(stream, q.schema.stream, nil).Close()
	}
	var rows int64
	err = s.sql.statement(ctx, q.id, kind, q.text, &rows, func(ctx context.Context) error {
		return s.sql.stream(ctx, q, stream, &rows)
	})
	if err != nil {
		return s.sql.fail(ctx, err)
	}
	return nil
}

// stream runs a planned query, writes its rows and counts them.
func (s *sqlService) stream(ctx context.Context, q *plannedQuery, to flight.DataStreamWriter, rows *int64) error {
	w := flightproto.NewStreamWriter(to, q.schema.stream, nil)
	send := func(b *columnar.Batch) error {
		*rows += int64(b.Rows())
		s.gw.metrics.rowsSent.Add(float64(b.Rows()))
		return unsent(w.Write(b))
	}
	pass := func(m *flightproto.Message) error {
		*rows += m.Rows
		s.gw.metrics.rowsSent.Add(float64(m.Rows))
		return unsent(w.Forward(m))
	}
	lines := q.lines
	for _, e := range q.analyze {
		more, err := s.analyze(ctx, q.id, q.text, e)
		if err != nil {
			return err
		}
		lines = append(slices.Clip(lines), more...)
	}
	if lines != nil {
		b, err := textBatch(lines)
		if err != nil {
			return err
		}
		if err := send(b); err != nil {
			return err
		}
	}
	if q.ready != nil {
		if err := send(q.ready); err != nil {
			return err
		}
	}
	if q.held != nil {
		for _, b := range q.held.batches {
			if err := send(b); err != nil {
				return err
			}
		}
	}
	if err := s.runJobs(ctx, q, clientSink{schema: q.schema.stream.Schema(), batch: send, message: pass}); err != nil {
		return err
	}
	return w.Close()
}

// maxReplans bounds how often a query is planned anew for one execution.
const maxReplans = 8

// runJobs runs the plans of a query one after the other. When the first one
// finds, before it has any rows, that a table was altered, all are planned anew.
func (s *sqlService) runJobs(ctx context.Context, q *plannedQuery, to clientSink) error {
	replans, asked := 0, q.id
	for i := 0; i < len(q.jobs); i++ {
		id := q.id
		if len(q.jobs) > 1 {
			id = fmt.Sprintf("%s-%d", q.id, i+1)
		}
		err := s.gw.runQuery(ctx, id, q.jobs[i], to)
		if err == nil {
			continue
		}
		if i > 0 || ctx.Err() != nil || q.stmt == nil || replans == maxReplans || !s.gw.replans(err, q.jobs[i].root) {
			return s.ifDropped(ctx, err, scanned(q.jobs[i].root, nil)...)
		}
		stmt, err := s.rebind(ctx, q.stmt, min(replans+1, 3), err)
		if err != nil {
			return err
		}
		again, err := s.plan(ctx, stmt, q.args)
		if err != nil {
			return err
		}
		replans++
		q = &plannedQuery{id: fmt.Sprintf("%s-again%d", asked, replans), text: q.text, schema: q.schema, jobs: again.jobs, stmt: stmt, args: q.args}
		i = -1
	}
	return nil
}

// replans reports whether a query that failed so is planned anew: its plan is
// known to be of other columns or tablets than there are now.
func (g *Server) replans(err error, root planner.Node) bool {
	reason := flightproto.ReasonOf(err)
	return reason == flightproto.StaleMetadata || (reason == flightproto.TabletSplit && g.altered(root))
}

// unsent says why rows did not reach the client, if they did not.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled {
		return sqlstate.New(sqlstate.QueryCanceled, "the client went away: %w", err)
	}
	return fmt.Errorf("sending rows to the client: %w", err)
}

// scanned appends the tables that a query reads to list.
func scanned(n planner.Node, list []*catalog.Table) []*catalog.Table {
	if scan, ok := n.(*planner.Scan); ok {
		list = append(list, scan.Table)
	}
	for _, input := range n.Inputs() {
		list = scanned(input, list)
	}
	return list
}

// textBatch has text columns, all of one length.
func textBatch(columns ...[]string) (*columnar.Batch, error) {
	out := &columnar.Batch{}
	for _, texts := range columns {
		b, err := columnar.NewBuilder(arrow.BinaryTypes.String)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			if err := b.AppendBytes([]byte(text)); err != nil {
				return nil, err
			}
		}
		v := b.Finish()
		out.Cols, out.Len = append(out.Cols, v), v.Len
	}
	return out, nil
}
