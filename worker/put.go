package worker

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"skein/catalog"
	"skein/columnar"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// DoPut receives the rows of one transaction for one tablet and answers with
// one WriteResult.
func (s *Server) DoPut(stream flight.FlightService_DoPutServer) error {
	leave, err := s.enterNew()
	if err != nil {
		return flightproto.ToStatus(err)
	}
	defer leave()
	select {
	case s.writes <- struct{}{}:
		defer func() { <-s.writes }()
	default:
		return flightproto.ToStatus(flightproto.WithReason(flightproto.Reservation,
			sqlstate.New(sqlstate.TooManyRequests, "worker has %d writes open, which is its limit", s.cfg.MaxWrites).
				WithHint("Retry when others have finished.")))
	}
	ctx, cancel := s.bound(stream.Context())
	defer cancel()
	result, err := s.receive(ctx, stream)
	if err != nil {
		return flightproto.ToStatus(surfaced(ctx, err))
	}
	raw, err := flightproto.Encode(result, flightproto.MaxMessageBytes)
	if err != nil {
		return flightproto.ToStatus(err)
	}
	return stream.Send(&flight.PutResult{AppMetadata: raw})
}

// receive reads the stream to its end and stages or commits its rows. If it
// fails the transaction is aborted on this tablet.
func (s *Server) receive(ctx context.Context, stream flight.FlightService_DoPutServer) (*pb.WriteResult, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("receiving the header of a write: %w", err)
	}
	header := &pb.WriteHeader{}
	if err := flightproto.Decode(first.GetFlightDescriptor().GetCmd(), header, flightproto.MaxMessageBytes); err != nil {
		return nil, err
	}
	table, err := s.writable(ctx, header)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWrite(ctx, cancel, s, header, table)
	schema := table.ArrowSchema()
	if header.GetDeletes() {
		schema = rowIDSchema()
	}
	incoming := s.read(ctx, &replay{first: first, rest: stream}, schema)
	for {
		select {
		case in := <-incoming:
			if in.err == nil && in.batch == nil {
				return w.finish()
			}
			switch {
			case in.err != nil:
			case header.GetDeletes():
				in.err = w.addDeletes(in.batch)
			default:
				in.err = w.add(in.batch)
			}
			if in.err != nil {
				return nil, w.fail(in.err)
			}
		case <-w.ctx.Done(): // staging failed, or the stream is gone
			return nil, w.fail(w.cause())
		}
	}
}

// incoming is one batch of a stream, its end (neither), or its failure.
type incoming struct {
	batch *columnar.Batch
	err   error
}

// read receives batches in a goroutine, so that a failure elsewhere need not
// wait for a client that is slow to send; it ends with ctx or when the RPC,
// whose stream it reads, returns.
func (s *Server) read(ctx context.Context, from flight.DataStreamReader, schema *arrow.Schema) <-chan incoming {
	out := make(chan incoming)
	s.tasks.Go(func() {
		reader := flightproto.NewUploadReader(from, flightproto.PhysicalSchema(schema))
		defer reader.Close()
		for {
			batch, err := reader.Next()
			select {
			case out <- incoming{batch: batch, err: err}:
			case <-ctx.Done():
				return
			}
			if batch == nil || err != nil {
				return
			}
		}
	})
	return out
}

// writable checks a header and finds its table.
func (s *Server) writable(ctx context.Context, header *pb.WriteHeader) (*catalog.Table, error) {
	if header.GetTransactionId() == "" {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "a write needs a transaction id")
	}
	if err := s.authorize(ctx, header.GetTransactionId(), header.GetAuthorization()); err != nil {
		return nil, err
	}
	if err := s.awaitMetadata(ctx, header.GetMetadataVersion()); err != nil {
		return nil, err
	}
	table, err := s.table(catalog.TableID(header.GetTableId()))
	if err != nil {
		return nil, err
	}
	tablet, ok := table.Tablet(catalog.TabletID(header.GetTabletId()))
	if !ok {
		return nil, flightproto.TabletReplaced(table, catalog.TabletID(header.GetTabletId()))
	}
	if v := header.GetTableVersion(); v != 0 && v != table.Version {
		return nil, staleTable(table, v)
	}
	return table, s.current(ctx, table, tablet)
}

// replay is a stream whose first message was read before.
type replay struct {
	first *flight.FlightData
	rest  flight.DataStreamReader
}

// Recv returns the first message, then the rest.
func (r *replay) Recv() (*flight.FlightData, error) {
	if first := r.first; first != nil {
		r.first = nil
		return first, nil
	}
	return r.rest.Recv()
}
