package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"skein/flightproto"
	"skein/sqlstate"
)

// service is the Flight service that is registered with gRPC. Flight SQL
// messages go to the flightsql adapter; a descriptor command that is none is
// SQL text, and a descriptor path names a table, so that a bare Flight client
// such as pyarrow.flight can be used without knowing Flight SQL.
type service struct {
	flight.FlightServer // the flightsql adapter over sqlService
	sql                 *sqlService
}

func newService(sql *sqlService) *service {
	return &service{FlightServer: flightsql.NewFlightServer(sql), sql: sql}
}

// commandIsFlightSQL reports whether a descriptor command or ticket is a
// packed Flight SQL message.
func commandIsFlightSQL(cmd []byte) bool {
	var packed anypb.Any
	if proto.Unmarshal(cmd, &packed) != nil {
		return false
	}
	_, err := packed.UnmarshalNew()
	return err == nil
}

// preparedQuery is in the type of the command that executes a prepared statement.
var preparedQuery = []byte("CommandPreparedStatementQuery")

// statementText returns the SQL that a plain Flight descriptor stands for.
func (s *service) statementText(d *flight.FlightDescriptor) (string, error) {
	switch {
	case d.GetType() == flight.DescriptorPATH:
		schema, name, err := tableOfPath(d.GetPath())
		if err != nil {
			return "", err
		}
		return "SELECT * FROM " + quotedName(schema, name), nil
	case len(d.GetCmd()) == 0:
		return "", sqlstate.New(sqlstate.ProtocolViolation, "the flight descriptor has neither a command nor a path").
			WithHint("put SQL text in the command or a table name in the path")
	case !utf8.Valid(d.GetCmd()):
		return "", sqlstate.New(sqlstate.ProtocolViolation, "the descriptor's command is neither a Flight SQL message nor UTF-8 SQL text")
	}
	return string(d.GetCmd()), nil
}

// GetFlightInfo plans a query, or runs a statement that has no result set.
func (s *service) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if d.GetType() == flight.DescriptorCMD && commandIsFlightSQL(d.GetCmd()) {
		if !bytes.Contains(d.GetCmd(), preparedQuery) { // it had its chance when it was prepared
			s.sql.offerSession(ctx)
		}
		return s.FlightServer.GetFlightInfo(ctx, d)
	}
	s.sql.offerSession(ctx)
	text, err := s.statementText(d)
	if err != nil {
		return nil, flightproto.ToStatus(err)
	}
	return s.sql.plainInfo(ctx, text, d)
}

// PollFlightInfo starts a query and does not wait for its end.
func (s *service) PollFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	if d.GetType() == flight.DescriptorCMD {
		if bytes.HasPrefix(d.GetCmd(), retryPrefix) {
			return s.sql.PollFlightInfo(ctx, d)
		}
		if commandIsFlightSQL(d.GetCmd()) {
			return s.FlightServer.PollFlightInfo(ctx, d)
		}
	}
	text, err := s.statementText(d)
	if err != nil {
		return nil, flightproto.ToStatus(err)
	}
	return s.sql.pollText(ctx, text, d)
}

// GetSchema answers the schema of a statement's result without running it.
func (s *service) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	if d.GetType() == flight.DescriptorCMD && commandIsFlightSQL(d.GetCmd()) {
		return s.FlightServer.GetSchema(ctx, d)
	}
	text, err := s.statementText(d)
	if err != nil {
		return nil, flightproto.ToStatus(err)
	}
	return s.sql.statementSchema(ctx, text)
}

// DoPut receives the rows of an ingest or the parameters of a statement. Rows
// sent to a path are appended to that table, which must exist.
func (s *service) DoPut(stream flight.FlightService_DoPutServer) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		// Drivers that send the schema with the first batch send nothing at all
		// for an ingest of no batches, so there is not even a table's name here.
		return flightproto.ToStatus(sqlstate.New(sqlstate.ProtocolViolation,
			"the stream of rows ended before its first message, so neither a table nor columns are known").
			WithHint("to ingest no rows, send one empty record batch"))
	}
	if err != nil {
		return err
	}
	limit := s.sql.gw.cfg.QueryMemory
	if err := flightproto.CheckData(first, limit); err != nil {
		return flightproto.ToStatus(err)
	}
	put := &checkedPut{FlightService_DoPutServer: stream, first: first, limit: limit}
	d := first.GetFlightDescriptor()
	if d.GetType() == flight.DescriptorPATH && len(d.GetPath()) > 0 {
		return s.sql.plainPut(put, d)
	}
	if handle, ok := boundQuery(d.GetCmd()); ok && len(first.GetDataHeader()) > 0 {
		return s.sql.bindQuery(handle, first, stream)
	}
	if d == nil || !commandIsFlightSQL(d.GetCmd()) {
		return flightproto.ToStatus(sqlstate.New(sqlstate.ProtocolViolation,
			"the first message of a DoPut carries no descriptor that Skein knows").
			WithHint("send a Flight SQL command, or a path that names a table"))
	}
	return s.FlightServer.DoPut(put)
}

// checkedPut hands out the first message, already read, once more, and checks
// all that follow.
type checkedPut struct {
	flight.FlightService_DoPutServer
	first *flight.FlightData
	limit int64 // bytes that a message's compressed buffers may hold
}

func (r *checkedPut) Recv() (*flight.FlightData, error) {
	if r.first != nil {
		data := r.first
		r.first = nil
		return data, nil
	}
	data, err := r.FlightService_DoPutServer.Recv()
	if err != nil {
		return nil, err
	}
	if err := flightproto.CheckData(data, r.limit); err != nil {
		return nil, flightproto.ToStatus(err)
	}
	return data, nil
}

// DoExchange is not part of Flight SQL.
func (s *service) DoExchange(flight.FlightService_DoExchangeServer) error {
	return flightproto.ToStatus(sqlstate.New(sqlstate.FeatureNotSupported, "DoExchange is not supported").
		WithHint("use DoGet to read and DoPut to write"))
}
