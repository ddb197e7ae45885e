package planner

import (
	"encoding/binary"
	"hash/fnv"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Description is what Distribute builds a Plan from.
type Description struct {
	QueryID string
	Root    Node
	Options Options
	// Bind, for a tree whose parameters are open and stay so in the plan, gives
	// them values to choose tablets by; nil for a tree without parameters.
	Bind Binder
}

// Options tune Distribute.
type Options struct {
	// BroadcastThreshold is the most bytes that the smaller input of a join may
	// have for it to be broadcast; 0 never broadcasts anything but an empty
	// input.
	BroadcastThreshold uint64
	// MaxSpill is stamped on every fragment: the bytes it may spill to disk.
	MaxSpill uint64
}

// DefaultOptions are the Options to use when nothing else is asked for.
func DefaultOptions() Options {
	return Options{BroadcastThreshold: DefaultBroadcastThreshold, MaxSpill: DefaultMaxSpill}
}

// Distribute lowers a tree onto tablets. It fails with an *UnknownTableError,
// *EmptyLayoutError or *InvalidPlanError, or with what the Locator or the
// Metadata answered.
//
// Every operator runs in as many fragments as its input allows: scans in one
// fragment per tablet, filters, projections and the first half of aggregates,
// sorts and limits with them; the second half runs on the coordinator. Joins
// are, by first that applies, gathered (an input already is on the
// coordinator), colocated, broadcast or repartitioned.
func Distribute(d Description, locator Locator, metadata Metadata) (*Plan, error) {
	if _, err := newValidator(d.Bind != nil).node(d.Root); err != nil {
		return nil, err
	}
	p := &distributor{locator: locator, metadata: metadata, options: d.Options, bind: d.Bind}
	s, err := p.plan(d.Root)
	if err != nil {
		return nil, err
	}
	s = p.gather(s)
	return p.finish(d, s), nil
}

// distributor builds one plan. Fragments and edges are appended as they come
// to be and numbered at the end, because colocated joins fuse fragments.
type distributor struct {
	locator  Locator
	metadata Metadata
	options  Options
	bind     Binder

	fragments []*building
	edges     []*edge // index: exchange id
	inputs    int     // groups of exchange sources so far
	commons   map[CommonID]*commonTable
}

// building is a fragment under construction.
type building struct {
	Fragment
	// tablets are those that the fragment scans, nodes the workers known to
	// host all of them (nil: not known).
	tablets []catalog.TabletID
	nodes   []catalog.NodeID
	fused   bool // into another fragment: not part of the plan
}

func (b *building) onCoordinator() bool { return b.Assignment == Coordinator }

func (b *building) push(ops ...Operator) {
	b.settle()
	b.Operators = append(b.Operators, ops...)
}

// settle notes the fragment's estimate as that of the operators pushed last: by
// the time of the next push it accounts for them.
func (b *building) settle() {
	for len(b.OperatorRows) < len(b.Operators) {
		b.OperatorRows = append(b.OperatorRows, b.EstimatedRows)
	}
}

// output is the rows that the operator pushed last is expected to put out.
func (b *building) output() uint64 {
	b.settle()
	if n := len(b.OperatorRows); n > 0 {
		return b.OperatorRows[n-1]
	}
	return b.EstimatedRows
}

// expects notes the rows that the operator pushed last puts out, where that is
// not the fragment's estimate.
func (b *building) expects(rows uint64) {
	b.settle()
	if n := len(b.OperatorRows); n > 0 {
		b.OperatorRows[n-1] = rows
	}
}

// edge is an exchange whose ends may still be fused into other fragments.
type edge struct {
	Exchange
	producer, consumer *building
}

func (p *distributor) plan(n Node) (*stage, error) {
	switch n := n.(type) {
	case *Scan:
		return p.planScan(n)
	case *Values:
		return p.planValues(n), nil
	case *Filter:
		return p.planFilter(n)
	case *Project:
		return p.planProject(n)
	case *Aggregate:
		return p.planAggregate(n)
	case *Join:
		return p.planJoin(n)
	case *Union:
		return p.planUnion(n)
	case *Window:
		return p.planWindow(n)
	case *Sort:
		return p.planSort(n)
	case *Limit:
		return p.planLimit(n)
	case *With:
		return p.planWith(n)
	case *CommonScan:
		return p.planCommonScan(n)
	case *Recursive:
		return p.planRecursive(n)
	}
	return nil, invalid("%T cannot be distributed", n)
}

func (p *distributor) newFragment(at Assignment, rows, bytes uint64, ops ...Operator) *building {
	b := &building{Fragment: Fragment{
		Assignment: at, Operators: ops, EstimatedRows: rows, EstimatedBytes: bytes, MaxSpill: p.options.MaxSpill,
	}}
	p.fragments = append(p.fragments, b)
	return b
}

// wire connects every producer of s to every consumer. The consumers' sources
// form one input of theirs; sources are appended to a consumer's operators or,
// with front, put before them.
func (p *distributor) wire(s *stage, consumers []*building, kind ExchangeKind, keys []int, front bool) {
	input := p.inputs
	p.inputs++
	names := fingerprint(s.schema)
	sources := make([][]Operator, len(consumers))
	rows := make([][]uint64, len(consumers))
	for _, producer := range s.producers {
		sent := producer.output()
		for i, consumer := range consumers {
			id := ExchangeID(len(p.edges))
			x := Exchange{ID: id, Kind: kind, Keys: keys, Partitions: 1, Schema: s.schema, Fingerprint: names}
			if kind == HashRepartitionExchange {
				x.Partition, x.Partitions = i, len(consumers)
			}
			p.edges = append(p.edges, &edge{Exchange: x, producer: producer, consumer: consumer})
			producer.push(&ExchangeSink{Exchange: id})
			sources[i] = append(sources[i], &ExchangeSource{Exchange: id, Input: input, Schema: s.schema})
			rows[i] = append(rows[i], ceilDiv(sent, uint64(x.Partitions)))
		}
	}
	for i, consumer := range consumers {
		consumer.settle()
		if front {
			consumer.Operators = append(sources[i], consumer.Operators...)
			consumer.OperatorRows = append(rows[i], consumer.OperatorRows...)
		} else {
			consumer.Operators = append(consumer.Operators, sources[i]...)
			consumer.OperatorRows = append(consumer.OperatorRows, rows[i]...)
		}
	}
}

// toCoordinator pulls a stage into a new coordinator fragment.
func (p *distributor) toCoordinator(s *stage, est estimate, kind ExchangeKind, keys []int) *building {
	b := p.newFragment(Coordinator, est.rows, est.bytes)
	p.wire(s, []*building{b}, kind, keys, false)
	return b
}

// gather makes the root: the stage itself when it is one coordinator fragment.
func (p *distributor) gather(s *stage) *stage {
	if s.coordinator() != nil {
		return s
	}
	b := p.toCoordinator(s, s.est, MergeExchange, nil)
	return s.moved(s.schema, s.est, b)
}

// finish numbers what is left of the fragments, the exchanges between them and
// the inputs of each.
func (p *distributor) finish(d Description, root *stage) *Plan {
	plan := &Plan{QueryID: d.QueryID, MetadataVersion: p.metadata.Version(), Schema: root.schema}
	for _, b := range p.fragments {
		if b.fused {
			continue
		}
		b.ID = FragmentID(len(plan.Fragments))
		b.settle()
		numberInputs(b.Operators)
		plan.Fragments = append(plan.Fragments, &b.Fragment)
	}
	for _, e := range p.edges {
		e.Producer, e.Consumer = e.producer.ID, e.consumer.ID
		plan.Exchanges = append(plan.Exchanges, &e.Exchange)
	}
	return plan
}

// numberInputs renumbers the inputs of one fragment from 0 in operator order.
func numberInputs(ops []Operator) {
	numbers := make(map[int]int)
	for _, op := range ops {
		if s, ok := op.(*ExchangeSource); ok {
			n, seen := numbers[s.Input]
			if !seen {
				n = len(numbers)
				numbers[s.Input] = n
			}
			s.Input = n
		}
	}
}

// fingerprint is FNV-1a over the output names, each behind its length.
func fingerprint(schema *arrow.Schema) uint64 {
	h := fnv.New64a()
	var length [4]byte
	for _, f := range schema.Fields() {
		binary.LittleEndian.PutUint32(length[:], uint32(len(f.Name)))
		h.Write(length[:])
		h.Write([]byte(f.Name))
	}
	return h.Sum64()
}

// addLimit is limit + offset without overflow, -1 when there is no limit.
func addLimit(limit, offset int64) int64 {
	switch {
	case limit < 0:
		return -1
	case limit > math.MaxInt64-offset:
		return math.MaxInt64
	}
	return limit + offset
}
