package gateway

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/columnar"
	"skein/flightproto"
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
	q, err := s.sql.planned.take(string(query.GetStatementHandle()))
	if err != nil {
		return s.sql.fail(ctx, err)
	}
	kind := "query"
	if q.roots == nil && q.lines == nil {
		return flightproto.NewBatchWriter(stream, q.schema, nil).Close()
	}
	err = s.sql.statement(ctx, q.id, kind, q.text, func(ctx context.Context) error {
		return s.sql.stream(ctx, q, stream)
	})
	if err != nil {
		return s.sql.fail(ctx, err)
	}
	return nil
}

// stream runs a planned query and writes its rows.
func (s *sqlService) stream(ctx context.Context, q *plannedQuery, to flight.DataStreamWriter) error {
	w := flightproto.NewBatchWriter(to, q.schema, nil)
	send := func(b *columnar.Batch) error {
		s.gw.metrics.rowsSent.Add(float64(b.Rows()))
		if err := w.Write(b); err != nil {
			return fmt.Errorf("sending rows to the client: %w", err)
		}
		return nil
	}
	if q.lines != nil {
		b, err := textBatch(q.lines)
		if err != nil {
			return err
		}
		if err := send(b); err != nil {
			return err
		}
	}
	for i, root := range q.roots {
		id := q.id
		if len(q.roots) > 1 {
			id = fmt.Sprintf("%s-%d", q.id, i+1)
		}
		if err := s.gw.runQuery(ctx, id, root, send); err != nil {
			return err
		}
	}
	return w.Close()
}

// textBatch is one text column, one row per line.
func textBatch(lines []string) (*columnar.Batch, error) {
	b, err := columnar.NewBuilder(arrow.BinaryTypes.String)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		if err := b.AppendBytes([]byte(line)); err != nil {
			return nil, err
		}
	}
	v := b.Finish()
	return &columnar.Batch{Cols: []*columnar.Vector{v}, Len: v.Len}, nil
}
