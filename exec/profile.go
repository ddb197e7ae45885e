package exec

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/columnar"
	"skein/planner"
)

// Profile measures the operators of one Build when Env has one. It puts a
// meterOp on top of every part of every operator; without a profile there is
// none and nothing is measured.
type Profile struct {
	timing    bool
	budget    *Budget // of the whole fragment
	operators []*operatorProfile
	threads   sync.Map // thread id -> *threadTime of the meter that runs there
}

// operatorProfile is what is measured of one operator of the program.
type operatorProfile struct {
	parts   []*meterOp
	scanned []*meterOp // of a scan with a filter: below the filter
	budget  *Budget
	spilled atomic.Int64
}

// NewProfile measures one Build. Without timing it only counts, which costs
// next to nothing; with it every operator keeps its thread while it works.
func NewProfile(timing bool) *Profile {
	return &Profile{timing: timing}
}

// begin prepares for a program of n operators that runs in env.
func (p *Profile) begin(env *Env, n int) {
	p.budget = NewBudget("fragment", 0, env.Budget)
	p.operators = make([]*operatorProfile, n)
	for i := range p.operators {
		p.operators[i] = &operatorProfile{budget: NewBudget("operator", 0, p.budget)}
	}
}

// env is what operator i runs in: its memory and its spilled bytes are counted
// as its own. The limits are those of the whole.
func (p *Profile) env(whole *Env, i int) *Env {
	own := *whole
	own.Budget = p.operators[i].budget
	if whole.spill != nil {
		own.spill = whole.spill.counting(&p.operators[i].spilled, own.Budget)
	}
	return &own
}

// meter puts a meter of operator i on top of an operator.
func (p *Profile) meter(i int, op Operator) Operator {
	m := &meterOp{input: op, source: op, profile: p}
	p.operators[i].parts = append(p.operators[i].parts, m)
	return m
}

// meterScan puts a meter below the filter of scan i.
func (p *Profile) meterScan(i int, op Operator) Operator {
	m := &meterOp{input: op, source: op, profile: p}
	p.operators[i].scanned = append(p.operators[i].scanned, m)
	return m
}

// union is newUnion with a meter that no operator has: what the consumer waits
// for the parts is then not its own time. p may be nil.
func (p *Profile) union(parts []Operator) Operator {
	op := newUnion(parts)
	if p == nil || len(parts) == 1 {
		return op
	}
	return &meterOp{input: op, source: op, profile: p}
}

// waiting runs f, which only waits for other goroutines: what it takes is not
// the time of the operator that calls it. p may be nil.
func (p *Profile) waiting(f func()) {
	if p == nil || !p.timing || !threadClock {
		f()
		return
	}
	runtime.LockOSThread() // as the operator's meter has, if it has one
	defer runtime.UnlockOSThread()
	began := time.Now()
	f()
	if below, metered := p.threads.Load(threadID()); metered {
		below.(*threadTime).time += time.Since(began)
	}
}

// Memory is the most bytes that the operators held at once.
func (p *Profile) Memory() int64 { return p.budget.Peak() }

// Operators is what was measured, by operator of the program. The tree must be
// closed.
func (p *Profile) Operators() []planner.OperatorStats {
	out := make([]planner.OperatorStats, len(p.operators))
	for i, o := range p.operators {
		out[i] = o.stats()
	}
	return out
}

func (o *operatorProfile) stats() planner.OperatorStats {
	s := planner.OperatorStats{Parts: len(o.parts), Memory: o.budget.Peak(), Spilled: o.spilled.Load()}
	for _, m := range o.parts {
		s.Rows += m.rows
		s.Batches += m.batches
		s.Time = max(s.Time, m.time)
		s.Self += m.self
		s.CPU += m.cpu
		s.Dropped += m.dropped
		if r, ok := m.source.(interface{ ReceivedBytes() int64 }); ok {
			s.Received += r.ReceivedBytes()
		}
	}
	scans := o.scanned
	if len(scans) == 0 {
		scans = o.parts
	}
	if len(scans) == 0 {
		return s
	}
	if r, ok := scans[0].source.(ScanReporter); ok { // the parts share it
		scan := r.ScanStats()
		for _, m := range scans {
			scan.Rows += m.rows + m.dropped
		}
		s.Scan = &scan
	}
	for _, m := range o.scanned {
		s.Self += m.self
		s.CPU += m.cpu
	}
	return s
}

// ScanReporter is a scan's operator that can tell how much of the tablet was
// looked at. Rows are counted by the profile.
type ScanReporter interface {
	ScanStats() planner.ScanStats
}

// meterOp counts what an operator puts out and how long it takes. It is used by
// one goroutine at a time, as every operator, and read when that is closed.
type meterOp struct {
	input   Operator
	source  Operator // the input as it was, without runtime filters
	profile *Profile

	rows, batches uint64
	time          time.Duration // inputs included
	self, cpu     time.Duration // without what other meters measured
	dropped       uint64        // rows that runtime filters below took out
}

func (m *meterOp) Schema() *arrow.Schema { return m.input.Schema() }
func (m *meterOp) Close() error          { return m.input.Close() }

func (m *meterOp) Next(ctx context.Context) (*columnar.Batch, error) {
	var b *columnar.Batch
	var err error
	if m.profile.timing {
		b, err = m.timed(ctx)
	} else {
		b, err = m.input.Next(ctx)
	}
	if b != nil && err == nil {
		m.rows += uint64(b.Rows())
		m.batches++
	}
	return b, err
}

// threadTime is what the meters below the one that runs on a thread measured.
// It belongs to that meter's goroutine.
type threadTime struct{ time, cpu time.Duration }

// timed runs Next bound to its thread, whose clock then is the goroutine's. The
// meters below run on the same thread, or in goroutines whose time is theirs.
func (m *meterOp) timed(ctx context.Context) (*columnar.Batch, error) {
	if !threadClock {
		began := time.Now()
		defer func() { m.time += time.Since(began) }()
		return m.input.Next(ctx)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var below threadTime
	id := threadID()
	above, nested := m.profile.threads.Swap(id, &below)
	began, cpu := time.Now(), threadCPU()
	defer func() { // a panic unwinds through here
		spent := threadTime{time: time.Since(began), cpu: threadCPU() - cpu}
		m.time += spent.time
		m.self += spent.time - below.time
		m.cpu += spent.cpu - below.cpu
		if !nested {
			m.profile.threads.Delete(id)
			return
		}
		m.profile.threads.Store(id, above)
		outer := above.(*threadTime)
		outer.time += spent.time
		outer.cpu += spent.cpu
	}()
	return m.input.Next(ctx)
}
