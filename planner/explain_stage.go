package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
)

// Explained is a plan as EXPLAIN shows it: fragments that do the same next to
// different tablets are one stage. Its fields are those of EXPLAIN's JSON form.
type Explained struct {
	MetadataVersion uint64            `json:"metadata_version"`
	FragmentCount   int               `json:"fragments"`
	ExchangeCount   int               `json:"exchanges"`
	Stages          []*ExplainedStage `json:"stages"` // the root first, each before what it reads
}

// ExplainedStage is fragments that run the same operators.
type ExplainedStage struct {
	ID            int                  `json:"stage"` // from 1
	Place         string               `json:"place"` // gateway or tablets
	Fragments     []FragmentID         `json:"fragments"`
	Tablets       []catalog.TabletID   `json:"tablets,omitempty"` // parallel to Fragments
	Workers       []string             `json:"workers,omitempty"` // parallel to Fragments
	EstimatedRows *uint64              `json:"estimated_rows,omitempty"`
	EstimatedSize *uint64              `json:"estimated_bytes,omitempty"`
	MaxSpill      uint64               `json:"spill_limit_bytes"` // of each fragment
	Sends         []*ExplainedExchange `json:"sends,omitempty"`
	Root          *ExplainedOperator   `json:"plan"`
	Actual        *ActualStage         `json:"actual,omitempty"`
}

// ExplainedExchange is the edges from one stage to an input of another.
type ExplainedExchange struct {
	To      int          `json:"to_stage"`
	Kind    ExchangeKind `json:"kind"`
	Keys    []string     `json:"keys,omitempty"`
	Columns []string     `json:"columns"`
	Edges   int          `json:"edges"`
}

// ExplainedOperator is an operator of a stage with those it reads.
type ExplainedOperator struct {
	Name          string               `json:"operator"`
	Detail        string               `json:"detail,omitempty"`
	From          int                  `json:"from_stage,omitempty"`     // of an Exchange
	EstimatedRows *uint64              `json:"estimated_rows,omitempty"` // of all fragments
	Actual        *ActualOperator      `json:"actual,omitempty"`
	Inputs        []*ExplainedOperator `json:"inputs,omitempty"`

	at []int // positions in the fragments' programs
}

// ExplainOptions choose what an explanation has.
type ExplainOptions struct {
	Costs bool // estimates
	// Worker names the place of a fragment that does not run in the gateway; nil
	// leaves it out.
	Worker func(FragmentID) string
	// Measured adds what fragments did; those that are missing did not run. Timing
	// says whether times were measured, Verbose asks for the fragments one by one.
	Measured        map[FragmentID]*FragmentStats
	Timing, Verbose bool
}

// ExplainStages arranges a valid plan by stages.
func ExplainStages(p *Plan, o ExplainOptions) *Explained {
	e := &explainer{plan: p, options: o, byKey: map[string]*ExplainedStage{}, of: map[FragmentID]*ExplainedStage{}}
	for _, f := range p.Fragments {
		e.stage(f.ID)
	}
	out := &Explained{MetadataVersion: p.MetadataVersion, FragmentCount: len(p.Fragments), ExchangeCount: len(p.Exchanges)}
	e.number(out)
	for _, s := range out.Stages {
		e.describe(s)
	}
	return out
}

type explainer struct {
	plan    *Plan
	options ExplainOptions
	byKey   map[string]*ExplainedStage
	of      map[FragmentID]*ExplainedStage
	order   []*ExplainedStage
}

// stage finds the stage of a fragment: that of the others that run the same
// and send it to the same inputs.
func (e *explainer) stage(id FragmentID) *ExplainedStage {
	if s, ok := e.of[id]; ok {
		return s
	}
	f := e.plan.Fragments[id]
	var to []string
	for _, x := range e.plan.ExchangesFrom(id) {
		s := fmt.Sprintf("%p/%d/%s", e.stage(x.Consumer), e.inputOf(x), x.Kind)
		if !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	key := fmt.Sprintf("%t|%s|%s", f.Assignment == Coordinator, strings.Join(to, ","), e.program(f))
	s, ok := e.byKey[key]
	if !ok {
		s = &ExplainedStage{}
		e.byKey[key] = s
		e.order = append(e.order, s)
	}
	s.Fragments = append(s.Fragments, id)
	e.of[id] = s
	return s
}

// inputOf is the input of its consumer that an exchange belongs to.
func (e *explainer) inputOf(x *Exchange) int {
	for _, op := range e.plan.Fragments[x.Consumer].Operators {
		if s, ok := op.(*ExchangeSource); ok && s.Exchange == x.ID {
			return s.Input
		}
	}
	return -1
}

// program prints a fragment's operators without what differs between fragments
// of a stage.
func (e *explainer) program(f *Fragment) string {
	var b strings.Builder
	_, _ = runStack(f.Operators, func(op Operator, stack []*arrow.Schema) {
		switch op := op.(type) {
		case *ExchangeSource:
			fmt.Fprintf(&b, "source %d\n", op.Input)
		case *ExchangeSink:
			b.WriteString("sink\n")
		default:
			name, detail := e.operator(op, stack)
			fmt.Fprintf(&b, "%s %s\n", name, detail)
		}
	})
	return b.String()
}

// operator splits an operator's line into its name and the rest.
func (e *explainer) operator(op Operator, stack []*arrow.Schema) (name, detail string) {
	if scan, ok := op.(*TabletScan); ok {
		if scan.Table.System {
			return "SystemScan", scanTarget(scan.Table, scan.Projection, scan.Filter)
		}
		return "TabletScan", scanTarget(scan.Table, scan.Projection, scan.Filter)
	}
	name, detail, _ = strings.Cut(e.plan.operatorLine(op, stack), " ")
	return name, detail
}

// number orders the stages from the root down and names them.
func (e *explainer) number(out *Explained) {
	done := map[*ExplainedStage]bool{}
	var visit func(s *ExplainedStage)
	visit = func(s *ExplainedStage) {
		done[s] = true
		out.Stages = append(out.Stages, s)
		s.ID = len(out.Stages)
		for _, op := range e.plan.Fragments[s.Fragments[0]].Operators {
			source, ok := op.(*ExchangeSource)
			if !ok {
				continue
			}
			if from := e.of[e.plan.Exchanges[source.Exchange].Producer]; !done[from] {
				visit(from)
			}
		}
	}
	if root := e.plan.Root(); root != nil {
		visit(e.of[root.ID])
	}
	for _, s := range e.order {
		if !done[s] {
			visit(s)
		}
	}
}

// describe fills in a stage whose fragments are known.
func (e *explainer) describe(s *ExplainedStage) {
	slices.Sort(s.Fragments)
	first := e.plan.Fragments[s.Fragments[0]]
	s.Place, s.MaxSpill = "gateway", first.MaxSpill
	var rows, bytes uint64
	for _, id := range s.Fragments {
		f := e.plan.Fragments[id]
		rows, bytes = saturatingAdd(rows, f.EstimatedRows), saturatingAdd(bytes, f.EstimatedBytes)
		if f.Assignment == Coordinator {
			continue
		}
		s.Place = "tablets"
		s.Tablets = append(s.Tablets, f.Assignment.Tablet)
		if e.options.Worker != nil {
			s.Workers = append(s.Workers, e.options.Worker(id))
		}
	}
	if e.options.Costs {
		s.EstimatedRows, s.EstimatedSize = &rows, &bytes
	}
	s.Sends = e.sends(s)
	s.Root = e.tree(first, s)
	if e.options.Measured != nil {
		e.measure(s)
	}
}

// sends merges the exchanges from a stage by where they go.
func (e *explainer) sends(s *ExplainedStage) []*ExplainedExchange {
	type end struct{ stage, input int }
	found := map[end]*ExplainedExchange{}
	var ends []end
	for _, id := range s.Fragments {
		for _, x := range e.plan.ExchangesFrom(id) {
			to := end{e.of[x.Consumer].ID, e.inputOf(x)}
			if found[to] == nil {
				out := &ExplainedExchange{To: to.stage, Kind: x.Kind, Keys: keyNames(x)}
				for i := range x.Schema.NumFields() {
					out.Columns = append(out.Columns, columnName(x.Schema.Fields(), i))
				}
				found[to], ends = out, append(ends, to)
			}
			found[to].Edges++
		}
	}
	slices.SortFunc(ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.input, b.input))
	})
	out := make([]*ExplainedExchange, len(ends))
	for i, to := range ends {
		out[i] = found[to]
	}
	return out
}

// tree makes the operator tree of a stage from the program of one fragment.
func (e *explainer) tree(f *Fragment, s *ExplainedStage) *ExplainedOperator {
	var stack []*ExplainedOperator
	next := 0 // position in the program
	_, _ = runStack(f.Operators, func(op Operator, schemas []*arrow.Schema) {
		at := next
		next++
		pops := 1
		switch op := op.(type) {
		case *ExchangeSink:
			return
		case *ExchangeSource:
			if n := len(stack); at > 0 && n > 0 {
				if before, ok := f.Operators[at-1].(*ExchangeSource); ok && before.Input == op.Input {
					stack[n-1].at = append(stack[n-1].at, at)
					return
				}
			}
			stack = append(stack, e.source(op, at))
			return
		case *TabletScan, *ValuesSource:
			pops = 0
		case *HashJoin:
			pops = 2
		case *UnionAll:
			pops = op.Inputs
		}
		node := &ExplainedOperator{at: []int{at}}
		node.Name, node.Detail = e.operator(op, schemas)
		if pops > len(stack) {
			return // runStack refuses it
		}
		node.Inputs = slices.Clone(stack[len(stack)-pops:])
		stack = append(stack[:len(stack)-pops], node)
	})
	if len(stack) == 0 {
		return &ExplainedOperator{Name: "nothing"}
	}
	root := stack[len(stack)-1]
	if e.options.Costs {
		e.estimate(root, s)
	}
	return root
}

func (e *explainer) source(op *ExchangeSource, at int) *ExplainedOperator {
	x := e.plan.Exchanges[op.Exchange]
	node := &ExplainedOperator{Name: "Exchange", From: e.of[x.Producer].ID, at: []int{at}}
	node.Detail = exchangeText(x.Kind, keyNames(x)) + " [" + fieldNames(op.Schema.Fields()) + "]"
	return node
}

func keyNames(x *Exchange) []string {
	var keys []string
	for _, k := range x.Keys {
		keys = append(keys, columnName(x.Schema.Fields(), k))
	}
	return keys
}

func exchangeText(kind ExchangeKind, keys []string) string {
	if len(keys) == 0 {
		return string(kind)
	}
	return fmt.Sprintf("%s(%s)", kind, strings.Join(keys, ", "))
}

// estimate adds up what the fragments of a stage are expected to put out.
func (e *explainer) estimate(op *ExplainedOperator, s *ExplainedStage) {
	var rows uint64
	for _, id := range s.Fragments {
		known := e.plan.Fragments[id].OperatorRows
		for _, at := range op.at {
			if at < len(known) {
				rows = saturatingAdd(rows, known[at])
			}
		}
	}
	op.EstimatedRows = &rows
	for _, in := range op.Inputs {
		e.estimate(in, s)
	}
}
