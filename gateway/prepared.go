package gateway

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/catalog"
	"skein/planner"
	"skein/sqlstate"
)

// maxParameterRows bounds the sets of parameters bound to one statement.
const maxParameterRows = 100_000

// preparedStatement is a statement kept for repeated execution. The text is
// bound anew when the metadata has moved on, so a plan never outlives the
// tables it was made for.
type preparedStatement struct {
	text string
	stmt *statement

	mu   sync.Mutex
	args [][]*planner.Literal // sets of parameters, nil before the first bind
	// idle converts parameters of the types that came last; nil while it is used.
	idle *parameterReader
}

// CreatePreparedStatement binds a statement and describes its result and
// parameters.
func (s *sqlService) CreatePreparedStatement(ctx context.Context, req flightsql.ActionCreatePreparedStatementRequest) (flightsql.ActionCreatePreparedStatementResult, error) {
	var result flightsql.ActionCreatePreparedStatementResult
	if len(req.GetTransactionId()) > 0 {
		return result, s.fail(ctx, errNoTransactions())
	}
	stmt, err := s.compile(ctx, req.GetQuery())
	if err != nil {
		return result, s.fail(ctx, err)
	}
	owner, err := s.owner(ctx)
	if err != nil {
		return result, s.fail(ctx, err)
	}
	handle, err := s.prepared.put(owner, &preparedStatement{text: req.GetQuery(), stmt: stmt})
	if err != nil {
		return result, s.fail(ctx, err)
	}
	result.Handle = []byte(handle)
	result.DatasetSchema = stmt.encodedSchema().stream.Schema()
	result.ParameterSchema = stmt.parameterSchema()
	update := !stmt.isQuery() && stmt.returning() == nil
	result.IsUpdate = &update
	return result, nil
}

// ClosePreparedStatement forgets a prepared statement.
func (s *sqlService) ClosePreparedStatement(_ context.Context, req flightsql.ActionClosePreparedStatementRequest) error {
	s.prepared.drop(string(req.GetPreparedStatementHandle()))
	return nil
}

// GetSchemaPreparedStatement answers the schema of the statement's result.
func (s *sqlService) GetSchemaPreparedStatement(ctx context.Context, cmd flightsql.PreparedStatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	p, err := s.prepared.get(string(cmd.GetPreparedStatementHandle()))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &flight.SchemaResult{Schema: p.stmt.encodedSchema().info}, nil
}

// GetFlightInfoPreparedStatement plans the statement with the parameters bound
// last, or runs it when it is no query.
func (s *sqlService) GetFlightInfoPreparedStatement(ctx context.Context, cmd flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	info, err := s.executePrepared(ctx, string(cmd.GetPreparedStatementHandle()), d)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return info, nil
}

func (s *sqlService) executePrepared(ctx context.Context, handle string, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	p, err := s.prepared.get(handle)
	if err != nil {
		return nil, err
	}
	stmt, args, err := s.current(ctx, p)
	if err != nil {
		return nil, err
	}
	if !stmt.isQuery() {
		done, err := s.runUpdate(ctx, stmt, args)
		if err != nil {
			return nil, err
		}
		return s.updated(ctx, stmt, done, d)
	}
	q, err := s.plan(ctx, stmt, args)
	if err != nil {
		return nil, err
	}
	return s.info(ctx, q, d)
}

// current returns the statement bound to today's metadata and its parameters.
// A result whose schema changed under a prepared statement is an error: the
// client was told another one.
func (s *sqlService) current(ctx context.Context, p *preparedStatement) (*statement, [][]*planner.Literal, error) {
	in, err := s.scope(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmt.version == s.gw.directory.Current().Version() && p.stmt.scope.key == in.key {
		return p.stmt, p.args, nil
	}
	stmt, err := s.compileIn(ctx, in, p.text)
	if err != nil {
		return nil, nil, err
	}
	if !stmt.schema().Equal(p.stmt.schema()) || !stmt.parameterSchema().Equal(p.stmt.parameterSchema()) {
		return nil, nil, sqlstate.New(sqlstate.FeatureNotSupported, "cached plan must not change result type").
			WithHint("a table of the statement was changed: prepare it again")
	}
	p.stmt = stmt
	return stmt, p.args, nil
}

// DoPutPreparedStatementQuery binds parameters to a prepared query.
func (s *sqlService) DoPutPreparedStatementQuery(ctx context.Context, cmd flightsql.PreparedStatementQuery, r flight.MessageReader, _ flight.MetadataWriter) ([]byte, error) {
	handle := cmd.GetPreparedStatementHandle()
	p, err := s.prepared.get(string(handle))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	args, err := p.readParameters(ctx, r, 0)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.args = args
	return handle, nil
}

// DoPutPreparedStatementUpdate runs a prepared statement once for each set of
// parameters sent, all in one transaction, and returns the rows changed.
func (s *sqlService) DoPutPreparedStatementUpdate(ctx context.Context, cmd flightsql.PreparedStatementUpdate, r flight.MessageReader) (int64, error) {
	p, err := s.prepared.get(string(cmd.GetPreparedStatementHandle()))
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	args, err := p.readParameters(ctx, r, 0)
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	stmt, bound, err := s.current(ctx, p)
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	if args == nil {
		args = bound
	}
	done, err := s.runUpdate(ctx, stmt, args)
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	done.result.close()
	return done.rows, nil
}

// readParameters reads record batches of parameters: one column per parameter,
// by position, converted to the parameter's type. So many sets came before.
func (p *preparedStatement) readParameters(ctx context.Context, r flight.MessageReader, before int) ([][]*planner.Literal, error) {
	p.mu.Lock()
	stmt, reader := p.stmt, p.idle
	p.idle = nil
	p.mu.Unlock()
	types := stmt.params()
	var args [][]*planner.Literal
	for r.Next() {
		rec := r.RecordBatch()
		if rec.NumCols() == 0 && len(types) == 0 {
			continue
		}
		if rec.NumRows() > 0 && (reader == nil || !reader.takes(types, rec.Schema(), stmt.scope.Zone)) {
			var err error
			if reader, err = newParameterReader(ctx, types, rec.Schema(), stmt.scope.Zone); err != nil {
				return nil, err
			}
		}
		if err := reader.append(rec, &args, before+len(args)); err != nil {
			return nil, err
		}
	}
	if err := r.Err(); err != nil {
		return nil, brokenParameters(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = reader
	return args, nil
}

func brokenParameters(err error) error {
	return fmt.Errorf("reading parameters: %w", sqlstate.New(sqlstate.ProtocolViolation, "the parameter stream is broken: %w", err))
}

// parameterReader makes literals of parameters that come in certain types. One
// goroutine at a time.
type parameterReader struct {
	types    []arrow.DataType // of the parameters
	incoming []arrow.DataType
	zone     string // of the session
	convert  *converter
	// sent is the schema that header is the encoding of, in the first message of the
	// stream that came last; nil unless it is sure to begin further ones as well.
	sent   *arrow.Schema
	header []byte
}

func newParameterReader(ctx context.Context, types []arrow.DataType, sent *arrow.Schema, zone string) (*parameterReader, error) {
	if sent.NumFields() != len(types) {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "the statement takes %d parameters, %d were bound", len(types), sent.NumFields())
	}
	p := &parameterReader{types: types, zone: zone, incoming: make([]arrow.DataType, len(types))}
	table := &catalog.Table{Name: "parameters"}
	fields := make([]arrow.Field, len(types))
	for i, dt := range types {
		name := fmt.Sprintf("$%d", i+1)
		table.Columns = append(table.Columns, catalog.Column{Name: name, Type: dt, Nullable: true})
		p.incoming[i] = sent.Field(i).Type
		fields[i] = arrow.Field{Name: name, Type: p.incoming[i], Nullable: true}
	}
	var err error
	if p.convert, err = newConverter(ctx, table, arrow.NewSchema(fields, nil), zone); err != nil {
		return nil, err
	}
	p.convert.parameters = true
	return p, nil
}

// takes reports whether the reader is for parameters of these types that are
// sent like this.
func (p *parameterReader) takes(types []arrow.DataType, sent *arrow.Schema, zone string) bool {
	if p.zone != zone || sent.NumFields() != len(p.incoming) || !slices.EqualFunc(types, p.types, func(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b) }) {
		return false
	}
	for i, dt := range p.incoming {
		if !arrow.TypeEqual(sent.Field(i).Type, dt) {
			return false
		}
	}
	return true
}

// knows reports whether a stream that begins like this brings what the reader is
// for.
func (p *parameterReader) knows(types []arrow.DataType, zone string, first *flight.FlightData) bool {
	return p.sent != nil && len(first.GetDataBody()) == 0 && bytes.Equal(p.header, first.GetDataHeader()) && p.takes(types, p.sent, zone)
}

// append appends the sets of parameters of a record to those that came before it.
func (p *parameterReader) append(rec arrow.RecordBatch, args *[][]*planner.Literal, before int) error {
	if before+int(rec.NumRows()) > maxParameterRows {
		return sqlstate.New(sqlstate.ProgramLimitExceeded, "more than %d sets of parameters were bound", maxParameterRows).
			WithHint("use bulk ingest for that many rows")
	}
	if rec.NumRows() == 0 {
		return nil
	}
	rows, err := p.rows(rec)
	*args = append(*args, rows...)
	return err
}

// rows are the sets of parameters of a record.
func (p *parameterReader) rows(rec arrow.RecordBatch) ([][]*planner.Literal, error) {
	b, err := p.convert.convert(rec)
	if err != nil {
		return nil, err
	}
	rows := make([][]*planner.Literal, b.Len)
	for row := range rows {
		rows[row] = make([]*planner.Literal, len(p.types))
		for i, dt := range p.types {
			if rows[row][i], err = literalAt(b.Cols[i], row, dt); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}
