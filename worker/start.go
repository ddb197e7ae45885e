package worker

import (
	"context"
	"time"

	"skein/catalog"
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// start registers the fragments of a request and pins what they will read.
func (s *Server) start(ctx context.Context, request *pb.StartRequest) (*pb.StartResponse, error) {
	q, fragments, err := s.register(ctx, request)
	if err != nil {
		return nil, err
	}
	s.pinEarly(q, fragments)
	return &pb.StartResponse{Clock: s.cfg.Node.Clock().Now()}, nil
}

// register registers the fragments of a request.
func (s *Server) register(ctx context.Context, request *pb.StartRequest) (*query, []*fragment, error) {
	if request.GetQueryId() == "" || len(request.GetFragments()) == 0 && len(request.GetPlanDigest()) == 0 {
		return nil, nil, sqlstate.New(sqlstate.ProtocolViolation, "a start needs a query id and fragments")
	}
	if err := s.authorize(ctx, request.GetQueryId(), request.GetAuthorization()); err != nil {
		return nil, nil, err
	}
	if err := s.observe(request.GetSnapshot()); err != nil {
		return nil, nil, err
	}
	if err := s.awaitMetadata(ctx, request.GetMetadataVersion()); err != nil {
		return nil, nil, err
	}
	fragments, err := s.fragments(request)
	if err != nil {
		return nil, nil, err
	}
	q := s.newQuery(request)
	registered, err := s.registry.add(q, fragments, s.cfg.Now().Add(s.lease(request)))
	if err != nil || registered != q {
		q.cancel(errQueryOver)
	}
	if err != nil {
		return nil, nil, err
	}
	s.log.DebugContext(ctx, "fragments started", "query_id", q.id, "fragments", len(fragments), "snapshot", q.snapshot)
	return registered, fragments, nil
}

func (s *Server) newQuery(request *pb.StartRequest) *query {
	ctx, cancel := context.WithCancelCause(s.ctx)
	limit := s.cfg.QueryMemoryBytes
	if asked := int64(request.GetMemoryBytes()); asked > 0 && asked < limit {
		limit = asked
	}
	return &query{
		id:              request.GetQueryId(),
		snapshot:        request.GetSnapshot(),
		metadataVersion: request.GetMetadataVersion(),
		budget:          exec.NewBudget("query", limit, s.budget),
		authorization:   request.GetAuthorization(),
		measured:        request.GetMeasure(),
		timed:           request.GetMeasureTime(),
		pins:            newPins(),
		ctx:             ctx,
		cancel:          cancel,
		fragments:       map[planner.FragmentID]*fragment{},
	}
}

func (s *Server) lease(request *pb.StartRequest) time.Duration {
	if ms := request.GetLeaseMillis(); ms > 0 {
		return min(time.Duration(ms)*time.Millisecond, s.cfg.MaxLease)
	}
	return s.cfg.DefaultLease
}

// fragments are those of a request, ready to be registered.
func (s *Server) fragments(request *pb.StartRequest) ([]*fragment, error) {
	if len(request.GetPlanDigest()) == 0 {
		p, err := s.decodeProgram(request.GetFragments(), request.GetExchanges())
		if err != nil {
			return nil, err
		}
		return p.fragments, nil
	}
	p, err := s.plans.find(s, request)
	if err != nil {
		return nil, err
	}
	values, err := flightproto.DecodeParameters(request.GetParameters())
	if err != nil {
		return nil, err
	}
	return p.instance(values)
}

// decodeProgram resolves tables and connects fragments with exchanges.
func (s *Server) decodeProgram(list []*pb.Fragment, exchanges []*pb.Exchange) (*program, error) {
	ends, err := decodeExchanges(exchanges)
	if err != nil {
		return nil, err
	}
	p := &program{fragments: make([]*fragment, len(list))}
	for i, f := range list {
		if p.fragments[i], err = s.decodeFragment(f, ends); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// exchangeEnds are the exchanges of a start request by id.
type exchangeEnds map[planner.ExchangeID]input

func decodeExchanges(list []*pb.Exchange) (exchangeEnds, error) {
	ends := exchangeEnds{}
	for _, p := range list {
		x, err := flightproto.DecodeExchange(p)
		if err != nil {
			return nil, err
		}
		if x.Schema == nil {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "exchange %d has no schema", x.ID)
		}
		if x.Kind == planner.HashRepartitionExchange && x.Partitions > 1 && (len(x.Keys) == 0 || x.Partition >= x.Partitions) {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "exchange %d is partition %d of %d over %d keys", x.ID, x.Partition, x.Partitions, len(x.Keys))
		}
		if _, dup := ends[x.ID]; dup {
			return nil, sqlstate.New(sqlstate.ProtocolViolation, "exchange %d is described twice", x.ID)
		}
		stream, err := flightproto.ExchangeStream(x, p.GetStreamSchema())
		if err != nil {
			return nil, err
		}
		ends[x.ID] = input{exchange: x, stream: stream, address: p.GetProducerAddress(), generation: p.GetProducerGeneration()}
	}
	return ends, nil
}

// decodeFragment resolves a fragment's tables and connects it to its exchanges.
func (s *Server) decodeFragment(p *pb.Fragment, ends exchangeEnds) (*fragment, error) {
	plan, err := flightproto.DecodeFragment(p, s.table)
	if err != nil {
		return nil, err
	}
	f := &fragment{plan: plan, generation: p.GetTabletGeneration(), inputs: map[planner.ExchangeID]input{}}
	for _, op := range plan.Operators {
		if err := s.connect(f, op, ends); err != nil {
			return nil, err
		}
	}
	if len(f.outputs) == 0 {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "fragment %d sends its rows nowhere", plan.ID)
	}
	if f.portions() != nil && f.fansOut() {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "fragment %d sends portions of its rows to several consumers", plan.ID)
	}
	return f, sinksAgree(f)
}

func (s *Server) connect(f *fragment, op planner.Operator, ends exchangeEnds) error {
	switch op := op.(type) {
	case *planner.TabletScan:
		return s.checkScan(f, op)
	case *planner.ExchangeSource:
		end, ok := ends[op.Exchange]
		if !ok || end.address == "" || end.exchange.Consumer != f.plan.ID {
			return sqlstate.New(sqlstate.ProtocolViolation, "fragment %d reads exchange %d, which has no producer", f.plan.ID, op.Exchange)
		}
		f.inputs[op.Exchange] = end
	case *planner.ExchangeSink:
		end, ok := ends[op.Exchange]
		if !ok || end.exchange.Producer != f.plan.ID {
			return sqlstate.New(sqlstate.ProtocolViolation, "fragment %d sends exchange %d, which is not its own", f.plan.ID, op.Exchange)
		}
		f.outputs = append(f.outputs, &output{fragment: f, exchange: end.exchange, stream: end.stream, index: len(f.outputs)})
	}
	return nil
}

// checkScan refuses plans made for tablets that are not here or have changed
// since: one that moved away says so even if it has changed, too.
func (s *Server) checkScan(f *fragment, scan *planner.TabletScan) error {
	tablet, _ := scan.Table.Tablet(scan.Tablet)
	if !hosts(tablet, s.cfg.Node.ID()) {
		return s.moved(scan.Table, tablet)
	}
	if scan.Tablet == f.plan.Assignment.Tablet && f.generation != 0 && f.generation != tablet.Generation {
		return flightproto.WithReason(flightproto.StaleMetadata,
			sqlstate.New(sqlstate.SerializationFailure, "tablet %d of table %s is of generation %d here, the plan is for %d",
				scan.Tablet, scan.Table.QualifiedName(), tablet.Generation, f.generation).
				WithHint("Run the statement again."))
	}
	return nil
}

// moved is the error of work on a tablet whose replicas are on other nodes.
func (s *Server) moved(table *catalog.Table, tablet *catalog.Tablet) error {
	return flightproto.WithReason(flightproto.TabletMoved,
		sqlstate.New(sqlstate.ConnectionFailure, "tablet %d of table %s has no replica on node %d",
			tablet.ID, table.QualifiedName(), s.cfg.Node.ID()).
			WithHint("Refresh the table's placement and retry."))
}

func hosts(tablet *catalog.Tablet, node catalog.NodeID) bool {
	for _, replica := range tablet.Replicas {
		if replica.Node == node {
			return true
		}
	}
	return false
}

// sinksAgree checks that the outputs of a fragment are one edge of the plan: all
// of one kind and, if repartitioned, distinct partitions by the same keys.
func sinksAgree(f *fragment) error {
	first := f.outputs[0].exchange
	seen := map[int]bool{}
	for _, o := range f.outputs {
		x := o.exchange
		same := x.Kind == first.Kind && x.Partitions == first.Partitions && len(x.Keys) == len(first.Keys)
		for i := 0; same && i < len(x.Keys); i++ {
			same = x.Keys[i] == first.Keys[i]
		}
		if !same || x.Kind == planner.HashRepartitionExchange && seen[x.Partition] {
			return sqlstate.New(sqlstate.ProtocolViolation, "outputs of fragment %d do not fit together", f.plan.ID)
		}
		seen[x.Partition] = true
	}
	if first.Kind == planner.HashRepartitionExchange && len(f.outputs) != max(first.Partitions, 1) {
		return sqlstate.New(sqlstate.ProtocolViolation, "fragment %d sends %d of %d partitions", f.plan.ID, len(f.outputs), first.Partitions)
	}
	return nil
}

// table resolves a table in the newest metadata this worker has applied.
func (s *Server) table(id catalog.TableID) (*catalog.Table, error) {
	table, ok := s.cfg.Node.Metadata().Table(id)
	if !ok {
		return nil, flightproto.WithReason(flightproto.StaleMetadata,
			sqlstate.New(sqlstate.UndefinedTable, "table %d does not exist any more", id).WithHint("Run the statement again."))
	}
	return table, nil
}

// awaitMetadata waits, within bounds, until this worker knows the metadata that
// a plan was made with.
func (s *Server) awaitMetadata(ctx context.Context, version uint64) error {
	if s.cfg.Node.Metadata().Version >= version {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.MetadataWait)
	defer cancel()
	if err := s.cfg.Node.WaitMetadata(ctx, version); err != nil {
		return flightproto.WithReason(flightproto.Unavailable,
			sqlstate.New(sqlstate.CannotConnectNow, "worker knows metadata version %d and waited in vain for version %d: %w",
				s.cfg.Node.Metadata().Version, version, err))
	}
	return nil
}
