package flightproto

import (
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/status"

	"skein/columnar"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// The rows of a write end with a message of their own that tells what was sent:
// unlike the stream of an answer, that of a request has no trailers, and its end
// alone does not prove that all of it came.

// endOf is the last message of a stream of rows to a worker.
func (t tally) endOf() (*flight.FlightData, error) {
	raw, err := Encode(&pb.WriteEnd{Messages: t.messages, Bytes: t.bytes, Headers: t.headers}, MaxTicketBytes)
	if err != nil {
		return nil, err
	}
	return &flight.FlightData{AppMetadata: raw}, nil
}

// UploadReader receives the rows of a Writer. It is used by one goroutine.
type UploadReader struct {
	*BatchReader
}

// NewUploadReader reads batches of the given physical schema. Nothing is
// received before the first Next.
func NewUploadReader(from flight.DataStreamReader, schema *arrow.Schema) *UploadReader {
	return &UploadReader{NewBatchReader(&upload{from: from}, schema)}
}

// Next is BatchReader.Next, but the end is one only when all rows came that the
// Writer sent. One that lacks some is a sqlstate.ConnectionFailure with reason
// Unavailable, and what cannot be decoded a *MalformedError.
func (r *UploadReader) Next() (*columnar.Batch, error) {
	b, err := r.BatchReader.Next()
	if err == nil {
		return b, nil
	}
	var user *sqlstate.Error
	if _, transport := status.FromError(err); transport || errors.As(err, &user) || isProtocolError(err) {
		return nil, err
	}
	return nil, malformed("rows of a write cannot be decoded: %v", err)
}

// upload is a stream of rows that must end with its end.
type upload struct {
	from flight.DataStreamReader
	came tally
	over bool
}

// Recv implements flight.DataStreamReader.
func (u *upload) Recv() (*flight.FlightData, error) {
	m, err := u.from.Recv()
	switch {
	case errors.Is(err, io.EOF) && !u.over:
		return nil, u.incomplete("It ended without its end marker after %d messages.", u.came.messages)
	case err != nil:
		return nil, err
	case u.over:
		return nil, malformed("a write goes on behind its end")
	case len(m.GetDataHeader()) > 0:
		u.came.addData(m)
		return m, nil
	}
	end := &pb.WriteEnd{}
	if err := Decode(m.GetAppMetadata(), end, MaxTicketBytes); err != nil {
		return nil, err
	}
	sent := tally{messages: end.GetMessages(), bytes: end.GetBytes(), headers: end.GetHeaders()}
	if sent != u.came {
		return nil, u.incomplete("Messages, bytes and checksum are %s where %s were sent.", u.came, sent)
	}
	u.over = true
	return u.Recv()
}

func (u *upload) incomplete(format string, args ...any) error {
	return WithReason(Unavailable, sqlstate.New(sqlstate.ConnectionFailure, "the stream of rows to this worker is incomplete or damaged").
		WithDetail(format, args...).
		WithHint("Run the statement again; check the network if this happens more than once."))
}
