package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/columnar"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
	"skein/storage"
)

// tableReader opens scans of local tablets for one query.
type tableReader struct {
	server *Server
	query  *query
}

// OpenScan pins the tablet at the query's snapshot, once per query, and opens
// sources that share its rows.
func (r *tableReader) OpenScan(ctx context.Context, scan *planner.TabletScan, parallelism int) ([]exec.Operator, error) {
	tablet, ok := scan.Table.Tablet(scan.Tablet)
	if !ok {
		return nil, fmt.Errorf("scanning table %s: tablet %d is not its own", scan.Table.QualifiedName(), scan.Tablet)
	}
	pinned, err := r.server.pinFor(ctx, r.query, scan.Table, tablet)
	if err != nil {
		return nil, edge(err)
	}
	// A query of one snapshot may outlive its table's columns.
	if err := r.server.current(ctx, scan.Table, tablet); err != nil {
		return nil, edge(err)
	}
	layout := layoutOf(scan)
	sources, err := pinned.Scan(storage.ScanOptions{
		Columns:     layout.stored,
		Predicates:  predicates(scan),
		Parallelism: max(parallelism, 1),
		RowIDs:      layout.rowIDs,
		DefaultOf:   defaultsOf(ctx, scan.Table),
	})
	if err != nil {
		err = r.server.damaged(scan.Tablet, pinned, err)
		return nil, fmt.Errorf("scanning tablet %d of table %s: %w", scan.Tablet, scan.Table.QualifiedName(), err)
	}
	// The columns were counted in the replica's version of the table.
	if err := r.server.current(ctx, scan.Table, tablet); err != nil {
		return nil, edge(err)
	}
	r.query.scans.add(sources[0])
	schema := scanSchema(scan)
	operators := make([]exec.Operator, len(sources))
	for i, source := range sources {
		operators[i] = &scanOperator{
			schema: schema, stored: source, source: layout.over(source),
			failed: func(err error) error { return r.server.damaged(scan.Tablet, pinned, err) },
		}
	}
	return operators, nil
}

// scans are those that a query has opened.
type scans struct {
	mu   sync.Mutex
	open []Source // one of the parts of each
}

func (s *scans) add(source Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, source)
}

// progress is how far they are.
func (s *scans) progress() *pb.ScanProgress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.ScanProgress{Scans: uint64(len(s.open))}
	for _, source := range s.open {
		if scanner, ok := source.(interface{ Progress() (done, blocks int) }); ok {
			done, blocks := scanner.Progress()
			out.BlocksDone += uint64(done)
			out.Blocks += uint64(blocks)
		}
	}
	return out
}

// fewBlocks is how much is read in less time than a message is worth.
const fewBlocks = 8

// scattered reports whether little is read, but in several runs of rows, each of
// which makes a batch.
func (s *scans) scattered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts, blocks := 0, 0
	for _, source := range s.open {
		scanner, ok := source.(interface {
			Progress() (done, blocks int)
			Parts() int
		})
		if !ok {
			return false
		}
		_, n := scanner.Progress()
		blocks += n
		parts += scanner.Parts()
	}
	return parts > 1 && blocks <= fewBlocks
}

// scanSchema is the physical schema of a scan's projection.
func scanSchema(scan *planner.TabletScan) *arrow.Schema {
	fields := make([]arrow.Field, len(scan.Projection))
	for i, ordinal := range scan.Projection {
		c := planner.ProjectedColumn(scan.Table, ordinal)
		fields[i] = arrow.Field{Name: c.Name, Type: catalog.PhysicalType(c.Type), Nullable: c.Nullable}
	}
	return arrow.NewSchema(fields, nil)
}

// pinFor returns a query's snapshot of a tablet.
func (s *Server) pinFor(ctx context.Context, q *query, table *catalog.Table, tablet *catalog.Tablet) (Snapshot, error) {
	return q.pins.get(tablet.ID, func() (Snapshot, error) { return s.pin(ctx, table, tablet, q.snapshot) })
}

// pinEarly takes the snapshots that fragments will read as soon as they are
// registered: by the time somebody pulls them, history may have moved on. They
// are released with the query. What fails here is tried again, and reported, by
// the scan.
func (s *Server) pinEarly(q *query, fragments []*fragment) {
	seen := map[catalog.TabletID]bool{}
	for _, f := range fragments {
		for _, op := range f.plan.Operators {
			scan, ok := op.(*planner.TabletScan)
			if !ok || seen[scan.Tablet] {
				continue
			}
			seen[scan.Tablet] = true
			tablet, _ := scan.Table.Tablet(scan.Tablet) // checked by checkScan
			s.tasks.Go(func() {
				if _, err := s.pinFor(q.ctx, q, scan.Table, tablet); err != nil && !errors.Is(err, errQueryOver) {
					s.log.Debug("pinning a tablet ahead of its scan failed", "query_id", q.id, "tablet", tablet.ID, "err", err)
				}
			})
		}
	}
}

// pin waits until the replica has applied all that was committed at or below the
// timestamp and nothing can be committed there any more, and pins it.
func (s *Server) pin(ctx context.Context, table *catalog.Table, descriptor *catalog.Tablet, timestamp uint64) (Snapshot, error) {
	tablet, err := s.replica(ctx, table, descriptor)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Node.ReadAt(ctx, descriptor.ID, timestamp); err != nil {
		return nil, err
	}
	pinned, err := tablet.Snapshot(timestamp)
	var doubt *storage.InDoubtError
	if errors.As(err, &doubt) {
		err = s.resolver.awaitOutcomes(ctx, doubt, func() (err error) {
			pinned, err = tablet.Snapshot(timestamp)
			return err
		})
	}
	var sealed *storage.SealedError
	if errors.As(err, &sealed) {
		pinned, err = s.awaitSeal(ctx, table, descriptor.ID, func() (Snapshot, error) { return tablet.Snapshot(timestamp) })
	}
	if err != nil {
		return nil, fmt.Errorf("reading tablet %d of table %s: %w", descriptor.ID, table.QualifiedName(), err)
	}
	return pinned, nil
}

// awaitSeal waits, within bounds, until a tablet that is being split or merged can
// be read again or others have taken its place.
func (s *Server) awaitSeal(ctx context.Context, table *catalog.Table, id catalog.TabletID, read func() (Snapshot, error)) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.MetadataWait)
	defer cancel()
	poll := newPoll(time.Millisecond, 20*time.Millisecond)
	for poll.wait(ctx) {
		if s.cfg.Node.Metadata().Replaced(id) {
			return nil, flightproto.TabletReplaced(table, id)
		}
		pinned, err := read()
		var sealed *storage.SealedError
		if !errors.As(err, &sealed) {
			return pinned, err
		}
	}
	return nil, flightproto.WithReason(flightproto.TabletSplit,
		sqlstate.New(sqlstate.SerializationFailure, "tablet %d is being split or merged", id).WithHint("Run the statement again."))
}

// scanOperator is a source as an operator.
type scanOperator struct {
	schema *arrow.Schema
	stored Source // as the store gave it
	source Source
	failed func(error) error
}

// ScanStats is how much of the tablet the scan, all its parts, looks at.
func (o *scanOperator) ScanStats() planner.ScanStats {
	scanner, ok := o.stored.(interface{ ScanStats() storage.ScanStats })
	if !ok {
		return planner.ScanStats{}
	}
	s := scanner.ScanStats()
	return planner.ScanStats{Segments: s.Segments, SegmentsRead: s.SegmentsRead, Blocks: s.Blocks, BlocksRead: s.BlocksRead}
}

// Schema is the projection, with physical types.
func (o *scanOperator) Schema() *arrow.Schema { return o.schema }

// Next returns the source's next batch.
func (o *scanOperator) Next(ctx context.Context) (*columnar.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	batch, err := o.source.Next(ctx)
	if err != nil {
		err = o.failed(err)
	}
	return batch, err
}

// Close does nothing: sources live as long as the query's pin.
func (o *scanOperator) Close() error { return nil }

// pins are the tablet snapshots that a query holds: all its scans of a tablet
// read the same one, which is what makes its reads repeatable.
type pins struct {
	mu      sync.Mutex
	tablets map[catalog.TabletID]*pin
	over    bool
}

type pin struct {
	mu       sync.Mutex
	snapshot Snapshot
}

func newPins() *pins { return &pins{tablets: map[catalog.TabletID]*pin{}} }

// get returns the query's snapshot of a tablet, taking it if it is the first.
func (p *pins) get(id catalog.TabletID, take func() (Snapshot, error)) (Snapshot, error) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return nil, errQueryOver
	}
	entry, ok := p.tablets[id]
	if !ok {
		entry = &pin{}
		p.tablets[id] = entry
	}
	p.mu.Unlock()
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.snapshot != nil {
		return entry.snapshot, nil
	}
	snapshot, err := take()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		snapshot.Release()
		return nil, errQueryOver
	}
	entry.snapshot = snapshot
	return snapshot, nil
}

// release gives all snapshots back. No scan may be open.
func (p *pins) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, entry := range p.tablets {
		if entry.snapshot != nil {
			entry.snapshot.Release()
		}
	}
	p.tablets = nil
}
