package gateway

import (
	"encoding/json"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/flightproto"
	"skein/sqlstate"
)

// The actions beyond Flight SQL's, with JSON bodies and results.
const (
	actionCancelQuery   = "skein.cancel_query"   // {"query_id": "..."} -> {"cancelled": true}
	actionClusterStatus = "skein.cluster_status" // "" -> clusterStatus
)

// clusterStatus is what skein.cluster_status tells.
type clusterStatus struct {
	MetadataVersion uint64                      `json:"metadata_version"`
	Queries         []queryStatus               `json:"queries"`
	Workers         []*flightproto.WorkerStatus `json:"workers"`
}

type queryStatus struct {
	ID            string `json:"query_id"`
	User          string `json:"user"`
	Text          string `json:"text"`
	StartedUnixMS int64  `json:"started_unix_ms"`
}

// ListFlights lists the tables: a path to get their rows by, schema and rows.
func (s *service) ListFlights(_ *flight.Criteria, stream flight.FlightService_ListFlightsServer) error {
	ctx := stream.Context()
	tables, err := s.sql.visibleTables(ctx)
	if err != nil {
		return s.sql.fail(ctx, err)
	}
	snap := s.sql.gw.directory.Current()
	for _, t := range tables {
		stats := snap.stats[t.ID]
		err := stream.Send(&flight.FlightInfo{
			Schema:           flight.SerializeSchema(t.ArrowSchema(), memory.DefaultAllocator),
			FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{t.Schema, t.Name}},
			TotalRecords:     int64(stats.Rows), TotalBytes: int64(stats.Bytes),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ListActions lists Flight SQL's actions and Skein's own.
func (s *service) ListActions(e *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	if err := s.FlightServer.ListActions(e, stream); err != nil {
		return err
	}
	for _, a := range []*flight.ActionType{
		{Type: actionCancelQuery, Description: `cancel a running query: {"query_id": "..."}`},
		{Type: actionClusterStatus, Description: "workers, tablets and running queries as JSON"},
	} {
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	return nil
}

// DoAction runs Skein's own actions and passes the others on.
func (s *service) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	switch a.GetType() {
	case flightsql.CreatePreparedStatementActionType, flight.GetSessionOptionsActionType:
		s.sql.offerSession(stream.Context())
	}
	var result any
	switch a.GetType() {
	case actionCancelQuery:
		var request struct {
			QueryID string `json:"query_id"`
		}
		if err := json.Unmarshal(a.GetBody(), &request); err != nil || request.QueryID == "" {
			return s.sql.fail(stream.Context(), sqlstate.New(sqlstate.ProtocolViolation, `the body of %s must be {"query_id": "..."}`, actionCancelQuery))
		}
		cancelled, err := s.sql.gw.cancelStatement(stream.Context(), request.QueryID)
		if err != nil {
			return s.sql.fail(stream.Context(), err)
		}
		result = map[string]bool{"cancelled": cancelled}
	case actionClusterStatus:
		result = s.sql.gw.status(s.sql.gw.cfg.Identify(stream.Context()))
	default:
		return s.FlightServer.DoAction(a, stream)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return s.sql.fail(stream.Context(), err)
	}
	return stream.Send(&flight.Result{Body: body})
}

func (g *Server) status(who Identity) *clusterStatus {
	snap := g.directory.Current()
	st := &clusterStatus{MetadataVersion: snap.Version(), Queries: []queryStatus{}, Workers: snap.status}
	for _, q := range g.queries.list() {
		st.Queries = append(st.Queries, queryStatus{ID: q.id, User: q.user, Text: q.textFor(who), StartedUnixMS: q.started.UnixMilli()})
	}
	slices.SortFunc(st.Queries, func(a, b queryStatus) int { return int(a.StartedUnixMS - b.StartedUnixMS) })
	return st
}
