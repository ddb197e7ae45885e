package gateway

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// template is a distributed plan that may be run many times, whose parameters
// are open, and where it was placed last. It is safe for concurrent use.
type template struct {
	plan *planner.Plan
	// forwards says that the root fragment only gathers what workers send, of the
	// very types that the client is to get.
	forwards bool
	// brief says that what is forwarded is a few rows, made row by row of a table.
	brief bool
	// streams are the encoded schemas of the exchanges, for those that are
	// forwarded.
	streams []*flightproto.StreamSchema
	// open says that the plan holds parameters, openHere that coordinator fragments
	// do.
	open, openHere bool
	// kept says that workers keep what they are sent of the plan.
	kept   bool
	need   need // of each execution
	placed atomic.Pointer[placement]
}

// newTemplate distributes a tree. Bind is nil for one without parameters, public
// the schema of its client, nil for none.
func (g *Server) newTemplate(root planner.Node, bind planner.Binder, snap *snapshot, public *arrow.Schema) (*template, error) {
	plan, err := planner.Distribute(planner.Description{Root: root, Options: g.planner, Bind: bind}, snap, snap)
	if err != nil {
		return nil, fmt.Errorf("distributing the plan: %w", err)
	}
	t := &template{plan: plan, need: needOf(plan), forwards: public != nil && passesOn(plan, public), kept: bind != nil}
	if t.forwards {
		for _, op := range plan.Root().Operators {
			plan.Exchanges[op.(*planner.ExchangeSource).Exchange].Public = true
		}
		t.brief = brief(plan)
	}
	for _, f := range plan.Fragments {
		if planner.OpenOperators(f.Operators) {
			t.open = true
			t.openHere = t.openHere || f.Assignment == planner.Coordinator
		}
	}
	if t.forwards {
		for _, x := range plan.Exchanges {
			t.streams = append(t.streams, flightproto.NewExchangeSchema(x))
		}
	}
	return t, nil
}

// parameters encodes the values that a job gives to the plan's parameters.
func (t *template) parameters(j *job) ([]*pb.Literal, error) {
	if !t.open {
		return nil, nil
	}
	return flightproto.EncodeParameters(j.values)
}

// placement is which worker runs what of a plan, as of one snapshot.
type placement struct {
	snap    *snapshot
	address []string          // per fragment: the worker's address, "" on the coordinator
	starts  map[string]*start // by worker
	workers []string          // with starts
	// single is the one exchange that the coordinator pulls of the one worker that
	// there is; nil for other plans. Its ticket takes the start along.
	single *planner.Exchange
}

// start is what a worker is told of a plan.
type start struct {
	fragments []*pb.Fragment
	exchanges []*pb.Exchange
	// program and digest are what the worker keeps; nil where it keeps nothing.
	program []byte
	digest  flightproto.Digest
	known   atomic.Bool // the worker has kept it
}

// place assigns fragments to live replicas. While nothing has changed it returns
// the placement made before.
func (t *template) place(w *workers, snap *snapshot) (*placement, error) {
	last := t.placed.Load()
	if last != nil && last.snap == snap && !last.anyDown(w) {
		return last, nil
	}
	p := &placement{snap: snap, address: make([]string, len(t.plan.Fragments))}
	for i, f := range t.plan.Fragments {
		var err error
		if p.address[i], err = w.placeFragment(snap, f); err != nil {
			return nil, err
		}
	}
	if last != nil && slices.Equal(p.address, last.address) && last.snap.Version() == snap.Version() {
		p.starts, p.workers, p.single = last.starts, last.workers, last.single
	} else if err := t.prepare(p); err != nil {
		return nil, err
	}
	t.placed.Store(p)
	return p, nil
}

func (p *placement) anyDown(w *workers) bool {
	for addr := range p.starts {
		if w.isDown(addr) {
			return true
		}
	}
	return false
}

// prepare groups fragments and the exchanges that touch them by worker.
func (t *template) prepare(p *placement) error {
	p.starts = make(map[string]*start)
	for i, f := range t.plan.Fragments {
		addr := p.address[i]
		if addr == "" {
			continue
		}
		if p.starts[addr] == nil {
			p.starts[addr] = &start{}
			p.workers = append(p.workers, addr)
		}
		fragment, err := flightproto.EncodeFragment(f, p.snap.generation(f.Assignment.Tablet))
		if err != nil {
			return fmt.Errorf("encoding fragment %d: %w", f.ID, err)
		}
		p.starts[addr].fragments = append(p.starts[addr].fragments, fragment)
	}
	for _, x := range t.plan.Exchanges {
		if err := p.addExchange(x, t.plan.Fragments[x.Producer]); err != nil {
			return err
		}
	}
	p.single = singleExchange(t.plan, p)
	if !t.kept {
		return nil
	}
	for _, s := range p.starts {
		var err error
		s.program, s.digest, err = flightproto.EncodeProgram(&pb.Program{Fragments: s.fragments, Exchanges: s.exchanges})
		if err != nil {
			return err
		}
		s.fragments, s.exchanges = nil, nil
	}
	return nil
}

func (p *placement) addExchange(x *planner.Exchange, producer *planner.Fragment) error {
	from, to := p.address[x.Producer], p.address[x.Consumer]
	message, err := flightproto.EncodeExchange(x, from)
	if err != nil {
		return fmt.Errorf("encoding exchange %d: %w", x.ID, err)
	}
	message.ProducerGeneration = p.snap.generation(producer.Assignment.Tablet)
	if from != "" {
		p.starts[from].exchanges = append(p.starts[from].exchanges, message)
	}
	if to != "" && to != from {
		if from == "" {
			return sqlstate.New(sqlstate.InternalError, "exchange %d would pull from the coordinator", x.ID)
		}
		p.starts[to].exchanges = append(p.starts[to].exchanges, message)
	}
	return nil
}

// singleExchange finds the exchange whose ticket can take the start along: all
// fragments are on one worker and the coordinator pulls just this one.
func singleExchange(plan *planner.Plan, p *placement) *planner.Exchange {
	if len(p.starts) != 1 {
		return nil
	}
	var found *planner.Exchange
	for _, x := range plan.Exchanges {
		if p.address[x.Consumer] != "" || p.address[x.Producer] == "" {
			continue
		}
		if found != nil {
			return nil
		}
		found = x
	}
	return found
}

// templateBase is what a template takes beside its programs, and programFactor
// how much more memory a plan takes than its encoding.
const (
	templateBase  = 8 << 10
	programFactor = 8
)

// bytes estimates the template's memory.
func (t *template) bytes() int64 {
	total := int64(templateBase)
	if p := t.placed.Load(); p != nil {
		for _, s := range p.starts {
			total += programFactor * int64(len(s.program))
		}
	}
	return total
}

// briefRows is how many rows a brief plan is expected to have.
const briefRows = 1000

// brief reports whether the workers' part of a plan is expected to yield few rows
// and does nothing that goes on without sending rows or looking at its context.
func brief(plan *planner.Plan) bool {
	for _, f := range plan.Fragments {
		if f.Assignment == planner.Coordinator {
			continue
		}
		if f.EstimatedRows > briefRows {
			return false
		}
		for _, op := range f.Operators {
			switch op.(type) {
			case *planner.TabletScan, *planner.FilterOp, *planner.ProjectOp, *planner.LimitOp, *planner.ExchangeSink:
			default:
				return false
			}
		}
	}
	return true
}

// passesOn reports whether the root fragment only gathers what workers send, of
// the very types that the client is to get: workers then send those, and batches
// need not be decoded on the way.
func passesOn(plan *planner.Plan, public *arrow.Schema) bool {
	for _, op := range plan.Root().Operators {
		source, ok := op.(*planner.ExchangeSource)
		if !ok || plan.Fragments[plan.Exchanges[source.Exchange].Producer].Assignment == planner.Coordinator ||
			!sameTypes(source.Schema, public) {
			return false
		}
	}
	return len(plan.Root().Operators) > 0
}
