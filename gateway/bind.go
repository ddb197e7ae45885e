package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/apache/arrow-go/v18/arrow/flight"
	flightpb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"skein/flightproto"
	"skein/planner"
)

// boundQuery is the prepared query that a descriptor's command binds parameters
// to; ok is false for other commands.
func boundQuery(command []byte) (handle []byte, ok bool) {
	packed := &anypb.Any{}
	query := &flightpb.CommandPreparedStatementQuery{}
	if proto.Unmarshal(command, packed) != nil || !packed.MessageIs(query) || proto.Unmarshal(packed.GetValue(), query) != nil {
		return nil, false
	}
	return query.GetPreparedStatementHandle(), true
}

// bindQuery binds the parameters that a stream brings to a prepared query, as the
// adapter's DoPut would. Where they are like those before, as they are when a
// statement is run over and over, no reader is made for the stream.
func (s *sqlService) bindQuery(handle []byte, first *flight.FlightData, stream flight.FlightService_DoPutServer) error {
	ctx := stream.Context()
	p, err := s.prepared.get(string(handle))
	if err != nil {
		return s.fail(ctx, err)
	}
	args, err := p.receive(ctx, first, stream)
	if err != nil {
		return s.fail(ctx, err)
	}
	p.mu.Lock()
	p.args = args
	p.mu.Unlock()
	answer, err := proto.Marshal(&flightpb.DoPutPreparedStatementResult{PreparedStatementHandle: handle})
	if err != nil {
		return fmt.Errorf("encoding the handle of a prepared statement: %w", err)
	}
	return stream.Send(&flight.PutResult{AppMetadata: answer})
}

// receive reads the parameters of a stream whose first message was read.
func (p *preparedStatement) receive(ctx context.Context, first *flight.FlightData, stream flight.DataStreamReader) ([][]*planner.Literal, error) {
	p.mu.Lock()
	reader, types, zone := p.idle, p.stmt.params(), p.stmt.scope.Zone
	if reader != nil && reader.knows(types, zone, first) {
		p.idle = nil
	} else {
		reader = nil
	}
	p.mu.Unlock()
	var args [][]*planner.Literal
	if reader != nil {
		other, err := reader.quickly(stream, &args)
		p.mu.Lock()
		p.idle = reader
		p.mu.Unlock()
		if err != nil || other == nil {
			return args, err
		}
		stream = &replayed{DataStreamReader: stream, message: other}
	}
	records, err := flight.NewRecordReader(&replayed{DataStreamReader: stream, message: first})
	if err != nil {
		return nil, brokenParameters(err)
	}
	defer records.Release()
	more, err := p.readParameters(ctx, records, len(args))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil && len(first.GetDataBody()) == 0 && records.Schema().Endianness() == endian.NativeEndian {
		p.idle.header, p.idle.sent = bytes.Clone(first.GetDataHeader()), records.Schema()
	}
	return append(args, more...), nil
}

// replayed is a stream with a message in front.
type replayed struct {
	flight.DataStreamReader
	message *flight.FlightData
}

// Recv implements flight.DataStreamReader.
func (r *replayed) Recv() (*flight.FlightData, error) {
	if m := r.message; m != nil {
		r.message = nil
		return m, nil
	}
	return r.DataStreamReader.Recv()
}

// quickly appends the parameters of messages whose schema is known, until the end
// or one that needs a reader, which it returns.
func (p *parameterReader) quickly(stream flight.DataStreamReader, args *[][]*planner.Literal) (other *flight.FlightData, err error) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, brokenParameters(err)
		}
		record := flightproto.FixedRecord(p.sent, m)
		if record == nil {
			return m, nil
		}
		err = p.append(record, args, len(*args))
		record.Release()
		if err != nil {
			return nil, err
		}
	}
}
