package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
	"skein/storage"
)

// resolver finishes what coordinators left behind: prepared transactions whose
// outcome never came, and rows that were staged and forgotten. It looks after
// the tablets that this node leads.
type resolver struct {
	server *Server
	asking singleflight.Group   // by tablet and transaction
	seen   map[waiting]sighting // of the last round; only run uses it

	mu   sync.Mutex
	kept map[string]time.Time // transactions whose coordinators have been heard of
}

// maxKept bounds the transactions that coordinators are known to live for. Those
// beyond it may be aborted before their slowest participant is prepared.
const maxKept = 10_000

// keep notes that the coordinator of a transaction lives.
func (r *resolver) keep(txn string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.server.cfg.Now()
	for known, heard := range r.kept {
		if now.Sub(heard) >= r.server.cfg.ResolveAfter {
			delete(r.kept, known)
		}
	}
	if len(r.kept) < maxKept {
		r.kept[txn] = now
	}
}

// lives reports whether the coordinator of a transaction was heard of lately.
func (r *resolver) lives(txn string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard, ok := r.kept[txn]
	return ok && r.server.cfg.Now().Sub(heard) < r.server.cfg.ResolveAfter
}

// waiting is an unfinished transaction on a tablet.
type waiting struct {
	tablet catalog.TabletID
	txn    string
	state  storage.Outcome // Prepared or Staged
}

// sighting is when a transaction was first seen without progress since.
type sighting struct {
	since    time.Time
	progress uint64
}

// resolvePatience bounds one attempt to resolve one transaction.
const resolvePatience = 10 * time.Second

func newResolver(s *Server) *resolver {
	return &resolver{server: s, seen: map[waiting]sighting{}, kept: map[string]time.Time{}}
}

// run works until the server ends.
func (r *resolver) run() {
	tick := time.NewTicker(r.server.cfg.ResolveInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.server.ctx.Done():
			return
		case <-tick.C:
			r.round(r.server.ctx)
		}
	}
}

// round looks at all tablets led here once.
func (r *resolver) round(ctx context.Context) {
	now := r.server.cfg.Now()
	seen := map[waiting]sighting{}
	for _, status := range r.server.cfg.Node.Tablets() {
		id := status.Tablet
		if leader, ok := r.server.cfg.Node.Leader(id); !ok || leader != r.server.cfg.Node.ID() {
			continue
		}
		tablet, ok := r.server.cfg.Node.Tablet(id)
		if !ok {
			continue
		}
		for _, t := range tablet.InDoubt() {
			if r.overdue(seen, waiting{id, t.Txn, storage.Prepared}, 0, now, r.server.cfg.ResolveAfter) {
				r.attempt(ctx, id, t)
			}
		}
		for _, t := range tablet.Staged() {
			if r.overdue(seen, waiting{id, t.Txn, storage.Staged}, t.Bytes, now, r.server.cfg.StagedIdle) {
				r.drop(ctx, id, t.Txn)
			}
		}
	}
	r.seen = seen
}

// overdue records a sighting and reports whether the transaction has been
// without progress for too long.
func (r *resolver) overdue(seen map[waiting]sighting, w waiting, progress uint64, now time.Time, after time.Duration) bool {
	s, known := r.seen[w]
	if !known || s.progress != progress {
		s = sighting{since: now, progress: progress}
	}
	seen[w] = s
	return now.Sub(s.since) >= after
}

// attempt resolves a transaction if it can, and reports whether its coordinator
// lives and is still at it.
func (r *resolver) attempt(ctx context.Context, tablet catalog.TabletID, t storage.InDoubt) (lives bool) {
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	lives, err := r.resolve(ctx, tablet, t)
	if err != nil && r.server.ctx.Err() == nil {
		r.server.log.Warn("resolving a transaction failed, will retry", "txn", t.Txn, "tablet", tablet, "primary", t.Primary, "err", err)
	}
	return lives
}

// drop aborts a transaction whose rows were staged and forgotten.
func (r *resolver) drop(ctx context.Context, tablet catalog.TabletID, txn string) {
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	if _, err := r.server.cfg.Node.Propose(ctx, tablet, storage.Abort{Txn: txn}); err != nil {
		r.server.log.Warn("dropping forgotten rows failed, will retry", "txn", txn, "tablet", tablet, "err", err)
		return
	}
	r.server.log.Info("dropped forgotten rows", "txn", txn, "tablet", tablet)
}

// resolve finds the outcome of a prepared transaction, which aborts it if it has
// none, and applies it to the tablet. Any node may do so at any time. While the
// coordinator lives there is nothing to find.
func (r *resolver) resolve(ctx context.Context, tablet catalog.TabletID, t storage.InDoubt) (lives bool, err error) {
	found, err, _ := r.asking.Do(fmt.Sprintf("%d/%s", tablet, t.Txn), func() (any, error) {
		outcome, timestamp, err := r.ask(ctx, t)
		if err != nil {
			return false, err
		}
		var command storage.Command
		switch outcome {
		case pb.TransactResponse_COMMITTED:
			command = storage.Commit{Txn: t.Txn, Segments: t.Segments, Timestamp: timestamp}
		case pb.TransactResponse_ABORTED:
			command = storage.Abort{Txn: t.Txn}
		case pb.TransactResponse_STAGED:
			return true, nil
		default:
			return false, sqlstate.New(sqlstate.InternalError, "primary tablet %d answers %s for transaction %s", t.Primary, outcome, t.Txn)
		}
		result, err := r.server.cfg.Node.Propose(ctx, tablet, command)
		if err != nil {
			return false, err
		}
		r.server.log.Info("resolved a transaction", "txn", t.Txn, "tablet", tablet, "outcome", result.Outcome)
		if result.Err != nil && result.Outcome != storage.Aborted {
			return false, result.Err
		}
		return false, nil
	})
	return err == nil && found.(bool), err
}

// ask gets the outcome from the primary, here or on another node.
func (r *resolver) ask(ctx context.Context, t storage.InDoubt) (pb.TransactResponse_Outcome, uint64, error) {
	// What took a tablet's place knows the outcomes of its transactions.
	if now := r.server.cfg.Node.Metadata().Follow(t.Primary); len(now) > 0 {
		t.Primary = now[0]
	}
	envelope, err := r.server.signed(t.Txn)
	if err != nil {
		return 0, 0, err
	}
	request := &pb.TransactRequest{
		Step: pb.TransactRequest_RESOLVE, TransactionId: t.Txn, TabletId: uint64(t.Primary), Authorization: envelope,
	}
	if _, ok := r.server.cfg.Node.Tablet(t.Primary); ok {
		response, err := r.server.transact(ctx, request)
		return response.GetOutcome(), response.GetCommitTimestamp(), err
	}
	addresses := r.replicas(t.Primary)
	if len(addresses) == 0 {
		return 0, 0, sqlstate.New(sqlstate.ConnectionFailure, "primary tablet %d of transaction %s is on no known node", t.Primary, t.Txn)
	}
	var errs []error
	for _, address := range addresses {
		response, err := r.askAt(ctx, address, request)
		if err == nil {
			return response.GetOutcome(), response.GetCommitTimestamp(), r.server.observe(response.GetClock())
		}
		errs = append(errs, err)
	}
	return 0, 0, errors.Join(errs...)
}

func (r *resolver) askAt(ctx context.Context, address string, request *pb.TransactRequest) (*pb.TransactResponse, error) {
	conn, err := r.server.pool.Conn(address)
	if err != nil {
		return nil, err
	}
	return conn.Transact(ctx, request)
}

// replicas are the Flight addresses of the nodes that host a tablet.
func (r *resolver) replicas(id catalog.TabletID) []string {
	metadata := r.server.cfg.Node.Metadata()
	tables := append([]*catalog.Table(nil), metadata.Tables...)
	for _, hidden := range metadata.Hidden {
		tables = append(tables, hidden.Table)
	}
	var addresses []string
	for _, table := range tables {
		tablet, ok := table.Tablet(id)
		if !ok {
			continue
		}
		for _, replica := range tablet.Replicas {
			if node, ok := metadata.Node(replica.Node); ok && node.FlightAddress != "" {
				addresses = append(addresses, node.FlightAddress)
			}
		}
	}
	return addresses
}

// awaitOutcomes waits for transactions in doubt that a reader ran into. Most are
// decided within milliseconds; those that are not after a while are resolved, or
// waited for as long as their coordinators live.
func (r *resolver) awaitOutcomes(ctx context.Context, doubt *storage.InDoubtError, retry func() error) error {
	started, hope := time.Now(), time.Now()
	patience := min(r.server.cfg.ResolveAfter, r.server.cfg.ReadDoubtWait/4)
	poll := newPoll(500*time.Microsecond, 50*time.Millisecond)
	for time.Since(hope) < r.server.cfg.ReadDoubtWait && poll.wait(ctx) {
		if time.Since(started) >= patience {
			for _, t := range doubt.Txns {
				if r.attempt(ctx, doubt.Tablet, t) {
					hope = time.Now()
				}
			}
		}
		err := retry()
		if !errors.As(err, &doubt) {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return flightproto.WithReason(flightproto.Unavailable,
		sqlstate.New(sqlstate.ConnectionFailure, "tablet %d waits for the outcome of transaction %s", doubt.Tablet, doubt.Txns[0].Txn).
			WithDetail("%d transactions are prepared and their coordinators have not answered within %v.", len(doubt.Txns), r.server.cfg.ReadDoubtWait).
			WithHint("Check that a majority of the workers is running."))
}
