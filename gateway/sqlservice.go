package gateway

import (
	"context"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"skein/catalog"
	"skein/columnar"
	"skein/gateway/session"
	"skein/planner"
	"skein/sql"
	"skein/sqlstate"
)

// sqlService implements Flight SQL's methods over a gateway.
type sqlService struct {
	flightsql.BaseServer
	gw       *Server
	planned  *handles[*plannedQuery]
	prepared *handles[*preparedStatement]
	polled   *handles[*polledQuery]
	plans    *planCache
	// plainScope is the scope of calls without a session.
	plainScope *scope
}

// plannedQuery is a query between GetFlightInfo and DoGet.
type plannedQuery struct {
	id     string // query id
	text   string
	schema *resultSchema // public
	// jobs run one after the other: one for each set of parameters.
	jobs []*job
	// lines, instead of jobs, is the ready text result of an EXPLAIN.
	lines []string
	// analyze, instead of jobs, are run and described, one after the other.
	analyze []*sql.Explain
	// held, instead of jobs, are the rows of a RETURNING.
	held *heldRows
	// ready, instead of jobs, are rows that are there already.
	ready *columnar.Batch
	// stmt and args are what jobs were planned from, for planning again.
	stmt *statement
	args [][]*planner.Literal
	// kept says that the endpoint was renewed: fetching does not use it up.
	kept atomic.Bool
}

func (q *plannedQuery) isKept() bool { return q.kept.Load() }

func newSQLService(g *Server) (*sqlService, error) {
	s := &sqlService{
		gw:    g,
		plans: g.plans, plainScope: plainScope(),
		planned:  newHandles[*plannedQuery]("query", g.cfg.MaxHandles, g.cfg.HandleTTL),
		prepared: newHandles[*preparedStatement]("prepared statement", g.cfg.MaxHandles, g.cfg.HandleTTL),
	}
	s.polled = newHandles[*polledQuery]("polled query", g.cfg.MaxStatements, 2*polledTTL) // each has a timer of its own
	s.prepared.each = g.cfg.MaxPrepared
	s.planned.lost = func(q *plannedQuery) { q.held.close() }
	return s, registerSqlInfo(s, &g.cfg)
}

// forget frees what a session held that has ended.
func (s *sqlService) forget(ended *session.Session) {
	s.prepared.dropOwned(ended.ID)
	s.planned.dropOwned(ended.ID)
}

// owner is the session that a call's handles belong to, "" for none. A session
// is made for a client that has a token, so that its handles can be counted.
func (s *sqlService) owner(ctx context.Context) (string, error) {
	found, err := s.session(ctx)
	if err == nil && found == nil {
		token, ok := incomingToken(ctx)
		if !ok {
			return "", nil
		}
		found, err = s.gw.sessions.Open(token, s.gw.cfg.Identify(ctx).User)
	}
	if err != nil {
		return "", err
	}
	return found.ID, nil
}

// info registers a planned query and describes it. The one endpoint has no
// location: results come over the same connection, unless the session takes them
// from the workers.
func (s *sqlService) info(ctx context.Context, q *plannedQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	found, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if info, err := s.directInfo(ctx, found, q, d); info != nil || err != nil {
		return info, err
	}
	owner := ""
	if found != nil {
		owner = found.ID
	}
	handle, err := s.planned.put(owner, q)
	if err != nil {
		return nil, err
	}
	ticket, err := flightsql.CreateStatementQueryTicket([]byte(handle))
	if err != nil {
		return nil, err
	}
	return &flight.FlightInfo{
		Schema:           q.schema.info,
		FlightDescriptor: d,
		Endpoint:         []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: ticket}}},
		TotalRecords:     -1, TotalBytes: -1,
		AppMetadata: []byte(q.id),
	}, nil
}

// updated describes the end of a statement that was run: the rows it changed
// as the record count, and a stream of RETURNING's rows or nothing.
func (s *sqlService) updated(ctx context.Context, st *statement, done changed, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	info, err := s.info(ctx, &plannedQuery{id: newID(), text: st.text, schema: st.encodedSchema(), held: done.result}, d)
	if err != nil {
		done.result.close()
		return nil, err
	}
	info.TotalRecords = done.rows
	return info, nil
}

// GetFlightInfoStatement plans a query; other statements run here and now, so
// that their errors are the call's and clients that never fetch still get
// what they asked for.
func (s *sqlService) GetFlightInfoStatement(ctx context.Context, cmd flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if len(cmd.GetTransactionId()) > 0 {
		return nil, s.fail(ctx, errNoTransactions())
	}
	info, err := s.execute(ctx, cmd.GetQuery(), d)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return info, nil
}

func errNoTransactions() error {
	return sqlstate.New(sqlstate.FeatureNotSupported, "transactions are not supported").
		WithHint("every statement is a transaction of its own")
}

func (s *sqlService) execute(ctx context.Context, text string, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	stmt, err := s.compile(ctx, text)
	if err != nil {
		return nil, err
	}
	if !stmt.isQuery() {
		done, err := s.runUpdate(ctx, stmt, nil)
		if err != nil {
			return nil, err
		}
		return s.updated(ctx, stmt, done, d)
	}
	q, err := s.plan(ctx, stmt, nil)
	if err != nil {
		return nil, err
	}
	return s.info(ctx, q, d)
}

// plainInfo is GetFlightInfo for SQL text outside Flight SQL.
func (s *sqlService) plainInfo(ctx context.Context, text string, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	info, err := s.execute(ctx, text, d)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return info, nil
}

// statementSchema answers GetSchema for SQL text.
func (s *sqlService) statementSchema(ctx context.Context, text string) (*flight.SchemaResult, error) {
	stmt, err := s.compile(ctx, text)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &flight.SchemaResult{Schema: stmt.encodedSchema().info}, nil
}

// GetSchemaStatement answers the schema of a statement's result.
func (s *sqlService) GetSchemaStatement(ctx context.Context, cmd flightsql.StatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	return s.statementSchema(ctx, cmd.GetQuery())
}

// DoPutCommandStatementUpdate runs a statement for its effect.
func (s *sqlService) DoPutCommandStatementUpdate(ctx context.Context, cmd flightsql.StatementUpdate) (int64, error) {
	if len(cmd.GetTransactionId()) > 0 {
		return 0, s.fail(ctx, errNoTransactions())
	}
	stmt, err := s.compile(ctx, cmd.GetQuery())
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	done, err := s.runUpdate(ctx, stmt, nil)
	if err != nil {
		return 0, s.fail(ctx, err)
	}
	done.result.close()
	return done.rows, nil
}

// CancelFlightInfo cancels the query that a FlightInfo stands for.
func (s *sqlService) CancelFlightInfo(ctx context.Context, req *flight.CancelFlightInfoRequest) (flight.CancelFlightInfoResult, error) {
	id := string(req.GetInfo().GetAppMetadata())
	if found, err := s.gw.queries.cancelFor(s.gw.cfg.Identify(ctx), id); found || err != nil {
		return flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled}, s.fail(ctx, err)
	}
	for _, e := range req.GetInfo().GetEndpoint() {
		handle, ok := statementHandle(e.GetTicket())
		if !ok {
			continue
		}
		if q, err := s.planned.take(handle); err == nil {
			q.held.close()
			return flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled}, nil
		}
	}
	if cancelled, err := s.gw.cancelElsewhere(ctx, id); err != nil || cancelled {
		return flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled}, s.fail(ctx, err)
	}
	return flight.CancelFlightInfoResult{Status: flight.CancelStatusNotCancellable}, nil
}

// statementHandle is the handle in the ticket of a statement's rows; false for
// other tickets and none.
func statementHandle(t *flight.Ticket) (string, bool) {
	if t == nil {
		return "", false
	}
	query, err := flightsql.GetStatementQueryTicket(t)
	if err != nil {
		return "", false
	}
	return string(query.GetStatementHandle()), true
}

// tableOfPath reads the table a descriptor path names, with an empty schema for
// a name without one.
func tableOfPath(path []string) (schema, name string, err error) {
	switch len(path) {
	case 1:
		return "", path[0], nil
	case 2:
		return path[0], path[1], nil
	}
	return "", "", sqlstate.New(sqlstate.ProtocolViolation, "a descriptor path must be [table] or [schema, table], not %q", path)
}

func quotedName(schema, name string) string {
	if schema == "" {
		return catalog.QuoteIdent(name)
	}
	return catalog.QuoteIdent(schema) + "." + catalog.QuoteIdent(name)
}
