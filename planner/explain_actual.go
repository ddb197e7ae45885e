package planner

import (
	"time"

	"skein/catalog"
)

// ActualStage is what the fragments of a stage did.
type ActualStage struct {
	Ran    int   `json:"fragments_run"`
	Memory int64 `json:"memory_bytes"` // sum of the fragments' peaks
	// Time is until the slowest fragment was through.
	Time      *float64          `json:"time_ms,omitempty"`
	Fragments []*ActualFragment `json:"by_fragment,omitempty"`
}

// ActualFragment is what one fragment did.
type ActualFragment struct {
	Fragment FragmentID       `json:"fragment"`
	Tablet   catalog.TabletID `json:"tablet,omitempty"`
	Node     uint64           `json:"node,omitempty"` // 0: the gateway
	Rows     uint64           `json:"rows"`
	Memory   int64            `json:"memory_bytes"`
	Spilled  int64            `json:"spilled_bytes"`
	Received int64            `json:"received_bytes"`
	Time     *float64         `json:"time_ms,omitempty"`
	CPU      *float64         `json:"cpu_ms,omitempty"`
}

// ActualOperator is what an operator did in all fragments of its stage.
type ActualOperator struct {
	Ran     int     `json:"fragments_run"`
	Parts   int     `json:"parts"` // parallel ones, in all fragments
	RowsIn  *uint64 `json:"rows_in,omitempty"`
	Rows    uint64  `json:"rows"`
	Batches uint64  `json:"batches"`
	// Time is of the slowest part of the slowest fragment, inputs and waiting
	// included; Self and CPU are sums of what went into the operator alone, TotalCPU
	// of it and its inputs in the stage.
	Time     *float64 `json:"time_ms,omitempty"`
	Self     *float64 `json:"self_ms,omitempty"`
	CPU      *float64 `json:"cpu_ms,omitempty"`
	TotalCPU *float64 `json:"total_cpu_ms,omitempty"`

	Memory   int64 `json:"memory_bytes"` // the largest of the fragments' peaks
	Spilled  int64 `json:"spilled_bytes"`
	Received int64 `json:"received_bytes,omitempty"`
	// Dropped are rows that runtime filters took out before this operator put
	// them out, Filtered those that the scan's own filter did.
	Dropped  uint64      `json:"rows_dropped_by_runtime_filters,omitempty"`
	Filtered uint64      `json:"rows_removed_by_filter,omitempty"`
	Scan     *ActualScan `json:"scan,omitempty"`

	// Over fragments, where the operator ran in several.
	RowSpread    *Spread `json:"rows_by_fragment,omitempty"`
	TimeSpread   *Spread `json:"time_ms_by_fragment,omitempty"`
	MemorySpread *Spread `json:"memory_bytes_by_fragment,omitempty"`
}

// ActualScan is how much of the tablets was looked at.
type ActualScan struct {
	Rows            uint64 `json:"rows_read"`
	Segments        int    `json:"segments"`
	SegmentsSkipped int    `json:"segments_skipped"`
	Blocks          int    `json:"blocks"`
	BlocksSkipped   int    `json:"blocks_skipped"`
}

// Spread summarises one number over the fragments of a stage.
type Spread struct {
	Min float64 `json:"min"`
	Avg float64 `json:"avg"`
	Max float64 `json:"max"`
}

func spreadOf(values []float64) *Spread {
	if len(values) < 2 {
		return nil
	}
	s := &Spread{Min: values[0], Max: values[0]}
	for _, v := range values {
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
		s.Avg += v / float64(len(values))
	}
	return s
}

// measure adds what was measured to a stage.
func (e *explainer) measure(s *ExplainedStage) {
	s.Actual = &ActualStage{}
	var slowest time.Duration
	for _, id := range s.Fragments {
		f, ok := e.ran(id)
		if !ok {
			continue
		}
		s.Actual.Ran++
		s.Actual.Memory += f.Memory
		slowest = max(slowest, f.Time)
		if e.options.Verbose {
			s.Actual.Fragments = append(s.Actual.Fragments, e.measureFragment(s, f))
		}
	}
	if s.Actual.Ran > 0 {
		s.Actual.Time = e.millis(slowest)
	}
	e.measureOperator(s.Root, s)
}

// ran is what was measured of a fragment, if it is of the fragment's program.
func (e *explainer) ran(id FragmentID) (*FragmentStats, bool) {
	f, ok := e.options.Measured[id]
	return f, ok && len(f.Operators) == len(e.plan.Fragments[id].Operators)
}

// millis is a time, if times were measured.
func (e *explainer) millis(d time.Duration) *float64 {
	if !e.options.Timing {
		return nil
	}
	ms := float64(max(d, 0).Microseconds()) / 1000
	return &ms
}

func (e *explainer) measureFragment(s *ExplainedStage, f *FragmentStats) *ActualFragment {
	out := &ActualFragment{Fragment: f.Fragment, Tablet: e.plan.Fragments[f.Fragment].Assignment.Tablet, Node: f.Node, Memory: f.Memory}
	var cpu time.Duration
	for i := range f.Operators {
		o := &f.Operators[i]
		out.Spilled += o.Spilled
		out.Received += o.Received
		cpu += o.CPU
	}
	for _, at := range s.Root.at {
		out.Rows += f.Operators[at].Rows
	}
	out.Time, out.CPU = e.millis(f.Time), e.millis(cpu)
	return out
}

// measureOperator adds what was measured to an operator and its inputs, and
// returns the processor time of all of them.
func (e *explainer) measureOperator(op *ExplainedOperator, s *ExplainedStage) time.Duration {
	var total time.Duration
	var in uint64
	for _, input := range op.Inputs {
		total += e.measureOperator(input, s)
		in += input.Actual.Rows
	}
	sum := &operatorSum{actual: &ActualOperator{}}
	for _, id := range s.Fragments {
		if f, ok := e.ran(id); ok {
			sum.add(f, op.at)
		}
	}
	a := sum.actual
	op.Actual = a
	if len(op.Inputs) > 0 {
		a.RowsIn = &in
	}
	if a.Scan != nil {
		a.Filtered = a.Scan.Rows - min(a.Scan.Rows, a.Rows+a.Dropped)
	}
	total += sum.cpu
	if a.Ran > 0 {
		a.Time, a.Self, a.CPU, a.TotalCPU = e.millis(sum.time), e.millis(sum.self), e.millis(sum.cpu), e.millis(total)
	}
	a.RowSpread, a.MemorySpread = spreadOf(sum.rows), spreadOf(sum.memory)
	if e.options.Timing {
		a.TimeSpread = spreadOf(sum.times)
	}
	return total
}

// operatorSum adds up one operator over the fragments of a stage.
type operatorSum struct {
	actual              *ActualOperator
	time, self, cpu     time.Duration
	rows, times, memory []float64
}

// add adds one fragment, in which the operator is at some positions: several
// for a group of exchange sources.
func (s *operatorSum) add(f *FragmentStats, at []int) {
	a := s.actual
	var parts int
	var rows uint64
	var memory int64
	var slowest time.Duration
	for _, i := range at {
		o := &f.Operators[i]
		parts += o.Parts
		rows += o.Rows
		a.Batches += o.Batches
		slowest = max(slowest, o.Time)
		s.self += o.Self
		s.cpu += o.CPU
		memory += o.Memory
		a.Spilled += o.Spilled
		a.Received += o.Received
		a.Dropped += o.Dropped
		if o.Scan != nil {
			a.addScan(o.Scan)
		}
	}
	if parts == 0 {
		return
	}
	a.Ran++
	a.Parts += parts
	a.Rows += rows
	a.Memory = max(a.Memory, memory)
	s.time = max(s.time, slowest)
	s.rows = append(s.rows, float64(rows))
	s.memory = append(s.memory, float64(memory))
	s.times = append(s.times, float64(slowest.Microseconds())/1000)
}

func (a *ActualOperator) addScan(s *ScanStats) {
	if a.Scan == nil {
		a.Scan = &ActualScan{}
	}
	a.Scan.Rows += s.Rows
	a.Scan.Segments += s.Segments
	a.Scan.SegmentsSkipped += s.Segments - s.SegmentsRead
	a.Scan.Blocks += s.Blocks
	a.Scan.BlocksSkipped += s.Blocks - s.BlocksRead
}
