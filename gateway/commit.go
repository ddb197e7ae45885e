package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skein/catalog"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// decisionTimeout bounds how long a commit that may have been decided is
// pursued after the client's context ended: the answer must be right even if
// nobody waits for it any more.
const decisionTimeout = 30 * time.Second

// decide commits a staged transaction. With several participants it prepares
// all of them, takes a commit timestamp above every clock seen, and commits
// the primary: that is the commit point. Participants that do not hear of the
// decision ask the primary themselves, so failing to tell them is no error.
func (w *tableWriter) decide(ctx context.Context, parts []*writePart) error {
	primary := parts[0]
	if len(parts) > 1 {
		if err := w.prepare(ctx, parts); err != nil {
			w.Abort()
			return causeOf(ctx, err)
		}
	}
	if err := ctx.Err(); err != nil {
		w.Abort()
		return causeOf(ctx, err)
	}
	// From here on the outcome is the primary's to say.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTimeout)
	defer cancel()
	ts := w.gw.clock.Now()
	resp, err := w.gw.transact(ctx, w.snap, w.commitRequest(primary, ts))
	if err != nil {
		if flightproto.ReasonOf(err) == flightproto.Unavailable || ctx.Err() != nil {
			return w.unknownOutcome(err)
		}
		w.Abort()
		return err
	}
	if resp.GetOutcome() != pb.TransactResponse_COMMITTED {
		w.Abort()
		return sqlstate.New(sqlstate.SerializationFailure, "the write was aborted before it could commit").
			WithHint("retry the statement")
	}
	ts = resp.GetCommitTimestamp()
	w.gw.observe(ts)
	w.count(resp.GetChanges())
	w.tellOthers(ctx, parts[1:], ts)
	return nil
}

func (w *tableWriter) commitRequest(p *writePart, ts uint64) *pb.TransactRequest {
	return &pb.TransactRequest{
		Step: pb.TransactRequest_COMMIT, TransactionId: w.txn, TabletId: uint64(p.tablet),
		Segments: p.result.GetSegments(), Deletes: p.staged(), CommitTimestamp: ts,
	}
}

// aliveEvery is how often those who may be asked for a transaction's outcome are
// told that its coordinator lives. Readers ask after a good two seconds.
const aliveEvery = time.Second

// keep tells all who host the primary that the coordinator lives, until ctx ends:
// a large participant may take longer to prepare than the others wait before they
// have the transaction aborted. One that does not hear of it may do that, and the
// commit then fails.
func (w *tableWriter) keep(ctx context.Context, primary catalog.TabletID) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		authorization, err := w.gw.sign(ctx, w.txn)
		if err != nil {
			w.gw.log.Warn("signing for a transaction that is being prepared failed", "txn", w.txn, "err", err)
			return
		}
		request := &pb.TransactRequest{
			Step: pb.TransactRequest_KEEP, TransactionId: w.txn, TabletId: uint64(primary), Authorization: authorization,
		}
		var told sync.WaitGroup
		for _, addr := range w.gw.directory.Current().replicaAddresses(primary) {
			told.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, aliveEvery)
				defer cancel()
				if conn, err := w.gw.workers.conn(addr); err == nil {
					_, _ = conn.Transact(ctx, request) // told again soon
				}
			})
		}
		told.Wait()
	}
}

func (w *tableWriter) prepare(ctx context.Context, parts []*writePart) error {
	keeping, end := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { w.keep(keeping, parts[0].tablet) })
	defer keeper.Wait()
	defer end()
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error {
			resp, err := w.gw.transact(ctx, w.snap, &pb.TransactRequest{
				Step: pb.TransactRequest_PREPARE, TransactionId: w.txn, TabletId: uint64(p.tablet),
				Segments: p.result.GetSegments(), Deletes: p.staged(), PrimaryTabletId: uint64(parts[0].tablet),
			})
			if err != nil {
				return err
			}
			if resp.GetOutcome() != pb.TransactResponse_PREPARED {
				return sqlstate.New(sqlstate.SerializationFailure, "the write was aborted on tablet %d before it was prepared", p.tablet).
					WithHint("retry the statement")
			}
			return nil
		})
	}
	return group.Wait()
}

// tellOthers commits the secondary participants before the client is told, so
// that its next read need not wait for them.
func (w *tableWriter) tellOthers(ctx context.Context, parts []*writePart, ts uint64) {
	changes := make([]*pb.Changes, len(parts))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range parts {
		group.Go(func() error {
			resp, err := w.gw.transact(ctx, w.snap, w.commitRequest(p, ts))
			if err != nil {
				w.gw.log.Warn("a participant did not hear of a commit and will ask for it",
					"txn", w.txn, "tablet", p.tablet, "err", err)
			}
			changes[i] = resp.GetChanges()
			return nil
		})
	}
	_ = group.Wait() // never fails: see above
	for _, c := range changes {
		w.count(c)
	}
}

// transact sends one transaction step to a replica of a tablet, going through
// the replicas until one answers. Steps of a transaction on a tablet that was
// split or merged meanwhile go to what took its place, which knows the outcome;
// only those that change what the tablet holds are told.
func (g *Server) transact(ctx context.Context, snap *snapshot, req *pb.TransactRequest) (*pb.TransactResponse, error) {
	tablet := catalog.TabletID(req.GetTabletId())
	var last error
	var err error
	if req.Authorization, err = g.sign(ctx, req.GetTransactionId()); err != nil {
		return nil, err
	}
	begins := req.GetStep() == pb.TransactRequest_BEGIN || req.GetStep() == pb.TransactRequest_TRUNCATE
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		if now := snap.meta.Follow(tablet); len(now) > 0 && !begins {
			tablet = now[0]
			req.TabletId = uint64(tablet)
		}
		resp, addr, err := g.transactOnce(ctx, snap, tablet, req)
		if err == nil {
			g.observe(resp.GetClock())
			return resp, nil
		}
		last = fmt.Errorf("transaction step %s on tablet %d at worker %s: %w", req.GetStep(), tablet, addr, err)
		if ctx.Err() != nil || !g.mayRetry(err) || (begins && unplanned(err)) {
			return nil, last
		}
		if err := g.directory.recover(ctx, attempt, err); err != nil {
			return nil, last
		}
		snap = g.directory.Current()
	}
	return nil, last
}

func (g *Server) transactOnce(ctx context.Context, snap *snapshot, tablet catalog.TabletID, req *pb.TransactRequest) (*pb.TransactResponse, string, error) {
	addr, err := g.workers.place(snap, tablet)
	if err != nil {
		return nil, "", err
	}
	conn, err := g.workers.conn(addr)
	if err != nil {
		return nil, addr, err
	}
	resp, err := conn.Transact(ctx, req)
	if err != nil {
		g.workers.failed(addr, err)
	}
	return resp, addr, err
}
