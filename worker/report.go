package worker

import (
	"context"
	"time"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// maxReports bounds the measured queries that this worker remembers.
const maxReports = 256

// report is what the fragments of a measured query did here. It outlives them
// until it is taken, or until the query's lease has run out. Guarded by the
// registry's mutex.
type report struct {
	fragments []planner.FragmentStats
	left      int           // fragments that are registered
	idle      chan struct{} // closed when none is left; nil when nobody waits
	expires   time.Time
}

// expect makes room for the reports of a measured query's fragments.
func (r *registry) expect(q *query, fragments int, lease time.Time) error {
	if !q.measured {
		return nil
	}
	known := r.reports[q.id]
	if known == nil {
		if len(r.reports) >= maxReports {
			return flightproto.WithReason(flightproto.Reservation,
				sqlstate.New(sqlstate.TooManyRequests, "worker keeps the reports of %d measured queries and takes no more", maxReports).
					WithHint("Retry when other queries have finished."))
		}
		known = &report{}
		r.reports[q.id] = known
	}
	known.left += fragments
	if lease.After(known.expires) {
		known.expires = lease
	}
	return nil
}

// settle notes that a fragment is gone, with what it did if it ran.
func (r *registry) settle(f *fragment) {
	known := r.reports[f.query.id]
	if known == nil {
		return
	}
	if f.stats != nil {
		known.fragments = append(known.fragments, *f.stats)
	}
	if known.left--; known.left == 0 && known.idle != nil {
		close(known.idle)
		known.idle = nil
	}
}

// takeReport ends a query, waits until its fragments are gone or ctx ends, and
// hands out what those that are gone did.
func (r *registry) takeReport(ctx context.Context, id string, cause error) ([]planner.FragmentStats, bool) {
	r.mu.Lock()
	known := r.reports[id]
	r.cancel(id, cause)
	var idle chan struct{}
	if known != nil && known.left > 0 {
		if known.idle == nil {
			known.idle = make(chan struct{})
		}
		idle = known.idle
	}
	r.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known == nil || r.reports[id] != known {
		return nil, false
	}
	delete(r.reports, id)
	return known.fragments, true
}

// forget drops a query's report; whoever waits for it gets none.
func (r *registry) forget(id string) {
	if known := r.reports[id]; known != nil && known.idle != nil {
		close(known.idle)
		known.idle = nil
	}
	delete(r.reports, id)
}

// sweepReports forgets reports that nobody came for.
func (r *registry) sweepReports(now time.Time) {
	for id, known := range r.reports {
		if known.left == 0 && !now.Before(known.expires) {
			delete(r.reports, id)
		}
	}
}

// report answers skein.report.
func (s *Server) report(ctx context.Context, request *pb.ReportRequest) (*pb.ReportResponse, error) {
	if request.GetQueryId() == "" {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "a report needs a query id")
	}
	if err := s.authorize(ctx, request.GetQueryId(), request.GetAuthorization()); err != nil {
		return nil, err
	}
	if request.GetRunning() {
		return &pb.ReportResponse{Progress: s.registry.progress(request.GetQueryId())}, nil
	}
	fragments, ok := s.registry.takeReport(ctx, request.GetQueryId(),
		flightproto.WithReason(flightproto.Cancelled, sqlstate.New(sqlstate.QueryCanceled, "query %s is over", request.GetQueryId())))
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "query %s was not measured on this worker", request.GetQueryId())
	}
	return flightproto.EncodeReport(fragments), nil
}

// measured is what a fragment, now closed, did since it began.
func (s *Server) measured(f *fragment, began time.Time) *planner.FragmentStats {
	return &planner.FragmentStats{
		Fragment: f.plan.ID, Node: uint64(s.cfg.Node.ID()), Time: time.Since(began),
		Memory: f.profile.Memory(), Operators: f.profile.Operators(),
	}
}
