package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// maxRestarts bounds how often one fragment is started elsewhere in one attempt.
const maxRestarts = 2

// producer is where the fragment runs that an exchange comes from, and what
// pulls it.
type producer struct {
	exchange *planner.Exchange
	addr     string
	ticket   *pb.Ticket
	restarts int
}

func (r *run) producer(x *planner.Exchange) *producer {
	return &producer{exchange: x, addr: r.placed.address[x.Producer], ticket: r.ticket(x)}
}

// restarted are the fragments of a run that were started a second time. They
// are queries of their own to their workers: the first start may still be
// registered where it was.
type restarted struct {
	mu       sync.Mutex
	over     bool // the run is: what is started now would be left behind
	list     []startedQuery
	releases []func() // of their leases
}

// startedQuery is what a worker knows fragments by.
type startedQuery struct {
	addr, id      string
	authorization []byte
}

// again starts a fragment that failed before it sent anything once more, on
// another replica if there is one, and makes p the way to pull it. Other
// fragments go on, and so does the client, who may have rows of theirs. An error
// is the failure that stays.
func (r *run) again(ctx context.Context, p *producer, failure error) error {
	for r.movable(p.exchange) && ctx.Err() == nil && p.restarts < maxRestarts && mayMove(failure) {
		p.restarts++
		if err := r.awaitPlace(ctx, p.restarts, failure); err != nil {
			return err
		}
		r.gw.log.Info("a fragment failed before it sent anything, it is started again", "query_id", r.id,
			"fragment", p.exchange.Producer, "worker", p.addr, "err", failure)
		if failure = r.restart(ctx, p); failure == nil {
			return nil
		}
	}
	return failure
}

// awaitPlace waits a little until the fragment may do better. A worker that was
// just lost is known to be down, which is all there is to know the first time.
func (r *run) awaitPlace(ctx context.Context, attempt int, failure error) error {
	if attempt > 1 || outdated(failure) {
		return r.gw.directory.recover(ctx, attempt, failure)
	}
	sleep(ctx, jitter(recoverBase))
	return causeOf(ctx, ctx.Err())
}

// mayMove reports whether a fragment that failed so may do better elsewhere, with
// its plan as it is.
func mayMove(err error) bool {
	switch flightproto.ReasonOf(err) {
	case flightproto.Unavailable, flightproto.TabletMoved, flightproto.NotStarted:
		return true
	}
	return false
}

// movable reports whether the fragment behind an exchange depends on nothing but
// its tablets, and nobody but the coordinator on it. The whole query is no
// smaller where its ticket starts it, and what is measured is reported by the
// workers that were asked first.
func (r *run) movable(x *planner.Exchange) bool {
	if r.riding != nil || r.analysis != nil || r.placed.address[x.Consumer] != "" || len(r.plan.ExchangesFrom(x.Producer)) != 1 {
		return false
	}
	return !slices.ContainsFunc(r.plan.Fragments[x.Producer].Operators, func(op planner.Operator) bool {
		_, reads := op.(*planner.ExchangeSource)
		return reads
	})
}

// restart starts a producer's fragment where its tablet is now, at the snapshot
// of the query.
func (r *run) restart(ctx context.Context, p *producer) error {
	snap := r.gw.directory.Current()
	f := r.plan.Fragments[p.exchange.Producer]
	addr, err := r.gw.workers.placeFragment(snap, f)
	if err != nil {
		return err
	}
	generation := snap.generation(f.Assignment.Tablet)
	request := &pb.StartRequest{MetadataVersion: snap.Version(), Snapshot: r.at, LeaseMillis: r.leaseMillis()}
	if request.Fragments, request.Exchanges, err = r.encodeAlone(f, p.exchange, generation); err != nil {
		return err
	}
	q, err := r.adopt(ctx, addr)
	if err != nil {
		return err
	}
	request.QueryId, request.Authorization = q.id, q.authorization
	if err := r.startAt(ctx, addr, request); err != nil {
		return err
	}
	p.addr = addr
	p.ticket = &pb.Ticket{
		QueryId: q.id, Fragment: uint32(f.ID), Exchange: uint32(p.exchange.ID),
		MetadataVersion: snap.Version(), TabletGeneration: generation, Authorization: q.authorization,
	}
	return nil
}

// encodeAlone encodes a fragment that has one exchange, with its parameters bound.
func (r *run) encodeAlone(f *planner.Fragment, x *planner.Exchange, generation uint64) ([]*pb.Fragment, []*pb.Exchange, error) {
	bound := *f
	if planner.OpenOperators(f.Operators) {
		var err error
		if bound.Operators, err = planner.BindOperators(f.Operators, r.job.bind()); err != nil {
			return nil, nil, err
		}
	}
	fragment, err := flightproto.EncodeFragment(&bound, generation)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding fragment %d: %w", f.ID, err)
	}
	exchange, err := flightproto.EncodeExchange(x, "")
	if err != nil {
		return nil, nil, fmt.Errorf("encoding exchange %d: %w", x.ID, err)
	}
	return []*pb.Fragment{fragment}, []*pb.Exchange{exchange}, nil
}

// adopt gives a restarted fragment its id at a worker and has the run look after
// it: it is cancelled and its worker's lease is held as for the others.
func (r *run) adopt(ctx context.Context, addr string) (startedQuery, error) {
	r.restarts.mu.Lock()
	defer r.restarts.mu.Unlock()
	if r.restarts.over {
		return startedQuery{}, sqlstate.New(sqlstate.QueryCanceled, "the query is over")
	}
	q := startedQuery{addr: addr, id: fmt.Sprintf("%s+%d", r.id, len(r.restarts.list)+1)}
	var err error
	if q.authorization, err = r.gw.sign(ctx, q.id); err != nil {
		return startedQuery{}, err
	}
	r.restarts.list = append(r.restarts.list, q)
	r.restarts.releases = append(r.restarts.releases, r.gw.leases.hold([]string{addr}, r.abandon))
	return q, nil
}

// disown ends what adopt began and returns what was started.
func (s *restarted) disown() []startedQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, release := range s.releases {
		release()
	}
	s.releases = nil
	return s.list
}

// any reports whether something was started again.
func (s *restarted) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}
