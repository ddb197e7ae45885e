package worker

import (
	"context"
	"errors"
	"time"

	"skein/catalog"
	"skein/columnar"
	"skein/consensus"
	"skein/flightproto"
	"skein/sqlstate"
	"skein/storage"
)

// Node is what the worker needs of a consensus node; NodeOf adapts the real
// one.
type Node interface {
	ID() catalog.NodeID
	Clock() *consensus.Clock
	// Metadata is the newest description of the cluster applied here.
	Metadata() *consensus.MetaSnapshot
	// WaitMetadata returns when Metadata has reached a version.
	WaitMetadata(ctx context.Context, version uint64) error
	// DoMeta runs a command or read of the meta group, JSON in and out.
	DoMeta(ctx context.Context, command string, body []byte) ([]byte, error)
	// Propose replicates a command and returns its answer once it is durable
	// and applied here.
	Propose(ctx context.Context, id catalog.TabletID, command storage.Command) (storage.Result, error)
	// ReadAt returns when the local replica can be read at a timestamp that the
	// clock has observed: what a snapshot then holds never changes.
	ReadAt(ctx context.Context, id catalog.TabletID, timestamp uint64) error
	// Leader is the node that leads a tablet hosted here.
	Leader(id catalog.TabletID) (catalog.NodeID, bool)
	// Tablet is the open local replica of a tablet.
	Tablet(id catalog.TabletID) (Tablet, bool)
	// ReportDamage says that the local replica of a tablet has data that failed its
	// checksum. The answer is whether others can serve the tablet instead.
	ReportDamage(id catalog.TabletID, cause error) bool
	// Tablets lists the local replicas by id.
	Tablets() []consensus.TabletStatus
	// MetaStatus is the state of the local replica of the meta group.
	MetaStatus() consensus.MetaStatus
}

// Tablet is the state of a local replica.
type Tablet interface {
	// Snapshot pins what was committed at or before a timestamp, or fails with
	// a *storage.InDoubtError.
	Snapshot(timestamp uint64) (Snapshot, error)
	// InDoubt lists the prepared transactions without an outcome.
	InDoubt() []storage.InDoubt
	// Staged lists the transactions that have only staged rows.
	Staged() []storage.StagedTxn
	// Rows is how many rows are committed.
	Rows() uint64
	// Table is the version of the table that the replica knows.
	Table() *catalog.Table
	// SetTable tells the replica of a newer version.
	SetTable(*catalog.Table) error
}

// Snapshot is a pinned state of a tablet. It stays readable until Release.
type Snapshot interface {
	// Scan returns between one and options.Parallelism sources that share the
	// snapshot's rows.
	Scan(options storage.ScanOptions) ([]Source, error)
	// Stats summarises the snapshot per column.
	Stats() storage.Stats
	// Err is why the replica has stopped, nil while it has not.
	Err() error
	Release()
}

// Source yields batches, nil at the end; a batch is valid until the next call.
type Source interface {
	Next(ctx context.Context) (*columnar.Batch, error)
}

// NodeOf adapts a consensus node, which stays the caller's.
func NodeOf(n *consensus.Node) Node { return realNode{n} }

type realNode struct{ node *consensus.Node }

func (n realNode) ID() catalog.NodeID                { return n.node.ID() }
func (n realNode) Clock() *consensus.Clock           { return n.node.Clock() }
func (n realNode) Metadata() *consensus.MetaSnapshot { return n.node.Meta().Local() }

func (n realNode) WaitMetadata(ctx context.Context, version uint64) error {
	for version > 0 {
		now, err := n.node.Meta().Watch(ctx, version-1, 0)
		if err != nil || now >= version {
			return err
		}
	}
	return nil
}

func (n realNode) DoMeta(ctx context.Context, command string, body []byte) ([]byte, error) {
	return n.node.Meta().Handle(ctx, command, body)
}

func (n realNode) Propose(ctx context.Context, id catalog.TabletID, command storage.Command) (storage.Result, error) {
	if carriesRows(command) {
		if err := n.node.Store().CheckSpaceFor(admissionBytes); err != nil {
			return storage.Result{}, err
		}
	}
	return n.node.Host().Propose(ctx, id, command)
}

// admissionBytes must be free beyond the store's own reserve for rows to be
// accepted. A replica that cannot apply an entry stops, and its reads with it,
// so a disk that fills up has to refuse writers while the entries under way,
// twice on disk as log and as data, still fit.
const admissionBytes = 128 << 20

// carriesRows reports whether a command adds rows. Others must go through on a
// full disk: they end transactions and free space.
func carriesRows(command storage.Command) bool {
	switch c := command.(type) {
	case storage.Stage:
		return true
	case storage.Commit:
		return len(c.Inline) > 0
	}
	return false
}

func (n realNode) ReadAt(ctx context.Context, id catalog.TabletID, timestamp uint64) error {
	return n.node.Host().ReadAt(ctx, id, timestamp)
}

func (n realNode) ReportDamage(id catalog.TabletID, cause error) bool {
	return n.node.Host().ReportDamage(id, cause)
}

func (n realNode) Leader(id catalog.TabletID) (catalog.NodeID, bool) { return n.node.Host().Leader(id) }

func (n realNode) Tablet(id catalog.TabletID) (Tablet, bool) {
	t, ok := n.node.Host().Tablet(id)
	if !ok {
		return nil, false
	}
	return LocalTablet(t), true
}

func (n realNode) MetaStatus() consensus.MetaStatus { return n.node.Meta().Status() }

func (n realNode) Tablets() []consensus.TabletStatus { return n.node.Host().Tablets() }

// LocalTablet adapts a tablet of package storage.
func LocalTablet(t *storage.Tablet) Tablet { return realTablet{t} }

type realTablet struct{ *storage.Tablet }

func (t realTablet) Snapshot(timestamp uint64) (Snapshot, error) {
	s, err := t.Tablet.Snapshot(timestamp)
	if err != nil {
		return nil, err
	}
	return realSnapshot{s}, nil
}

type realSnapshot struct{ *storage.Snapshot }

func (s realSnapshot) Scan(options storage.ScanOptions) ([]Source, error) {
	scanners, err := s.Snapshot.Scan(options)
	if err != nil {
		return nil, err
	}
	sources := make([]Source, len(scanners))
	for i, scanner := range scanners {
		sources[i] = scanner
	}
	return sources, nil
}

// edge translates errors of the consensus layer into what peers understand: a
// SQLSTATE and what a gateway may do about it.
func edge(err error) error {
	if err == nil || flightproto.ReasonOf(err) != flightproto.NoReason {
		return err
	}
	switch {
	case errors.Is(err, consensus.ErrTabletReplaced):
		return flightproto.WithReason(flightproto.TabletSplit, consensus.SQLState(err))
	case errors.Is(err, consensus.ErrTabletNotHere):
		return flightproto.WithReason(flightproto.TabletMoved, consensus.SQLState(err))
	case errors.Is(err, consensus.ErrNotReady), errors.Is(err, consensus.ErrUnavailable), errors.Is(err, consensus.ErrReplicaFailed),
		errors.Is(err, consensus.ErrReplicaDamaged):
		return flightproto.WithReason(flightproto.Unavailable, consensus.SQLState(err))
	case errors.Is(err, consensus.ErrClockAhead):
		return consensus.SQLState(err)
	}
	return err
}

// damaged turns an error of reading a local replica's data, pinned by a snapshot,
// into what the reader is told. Damage has the replica rebuilt, if there are
// others, which then are what the reader should ask.
func (s *Server) damaged(id catalog.TabletID, pinned Snapshot, err error) error {
	if sqlstate.CodeOf(err) != sqlstate.DataCorrupted {
		return err
	}
	if stopped := pinned.Err(); stopped != nil { // its data is being removed
		return flightproto.WithReason(flightproto.Unavailable,
			sqlstate.New(sqlstate.CannotConnectNow, "the replica of tablet %d was stopped while it was read: %w", id, stopped).
				WithHint("Retry in a moment."))
	}
	if s.cfg.Node.ReportDamage(id, err) {
		return flightproto.WithReason(flightproto.Unavailable, err)
	}
	return err
}

// replica returns the local replica of a tablet, waiting within bounds for one
// that is being started: a table may be used as soon as it is created.
func (s *Server) replica(ctx context.Context, table *catalog.Table, tablet *catalog.Tablet) (Tablet, error) {
	if t, ok := s.cfg.Node.Tablet(tablet.ID); ok {
		return t, nil
	}
	if !hosts(tablet, s.cfg.Node.ID()) {
		return nil, s.moved(table, tablet)
	}
	if err := s.stopped(table, tablet); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.MetadataWait)
	defer cancel()
	poll := newPoll(time.Millisecond, 50*time.Millisecond)
	for poll.wait(ctx) {
		if t, ok := s.cfg.Node.Tablet(tablet.ID); ok {
			return t, nil
		}
	}
	if _, known := s.cfg.Node.Metadata().Table(table.ID); !known {
		_, err := s.table(table.ID)
		return nil, err
	}
	return nil, flightproto.WithReason(flightproto.Unavailable,
		sqlstate.New(sqlstate.CannotConnectNow, "the replica of tablet %d of table %s on node %d is not running", tablet.ID, table.QualifiedName(), s.cfg.Node.ID()).
			WithHint("Retry in a moment."))
}

// stopped is an error that says why when the local replica of a tablet has
// stopped itself. It comes back when the process is restarted or the replica was
// rebuilt, neither of which is worth a reader's wait.
func (s *Server) stopped(table *catalog.Table, tablet *catalog.Tablet) error {
	for _, status := range s.cfg.Node.Tablets() {
		if status.Tablet == tablet.ID && status.Failure != "" {
			return flightproto.WithReason(flightproto.Unavailable,
				sqlstate.New(sqlstate.ConnectionFailure, "the replica of tablet %d of table %s on node %d has stopped: %s",
					tablet.ID, table.QualifiedName(), s.cfg.Node.ID(), status.Failure).
					WithHint("A replica of several is rebuilt when it is damaged. Else mend what the message names and restart the worker."))
		}
	}
	return nil
}

// poll waits a little longer each time, for conditions that nobody announces.
type poll struct {
	next, most time.Duration
}

func newPoll(first, most time.Duration) *poll { return &poll{next: first, most: most} }

// wait returns false when ctx has ended.
func (p *poll) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, p.most)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
