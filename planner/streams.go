package planner

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// runStack follows the stack of streams through a fragment's operators and
// calls visit before each one with the schemas then on the stack. It fails
// when an operator finds other inputs than it needs.
func runStack(ops []Operator, visit func(op Operator, stack []*arrow.Schema)) ([]*arrow.Schema, error) {
	var stack []*arrow.Schema
	for i, op := range ops {
		visit(op, stack)
		needs := 1
		switch op := op.(type) {
		case *TabletScan, *ValuesSource, *ExchangeSource, *StoredSource:
			needs = 0
		case *HashJoin:
			needs = 2
		case *UnionAll:
			needs = max(op.Inputs, 1)
		case *RecursiveOp:
			needs = op.Inputs + 1
		}
		if len(stack) < needs {
			return nil, invalid("operator %d (%T) finds %d streams instead of %d", i, op, len(stack), needs)
		}
		switch op := op.(type) {
		case *TabletScan:
			stack = append(stack, arrow.NewSchema(scanFields(op.Table, op.Projection), nil))
		case *ValuesSource:
			stack = append(stack, op.Schema)
		case *ExchangeSource:
			if i > 0 {
				if before, ok := ops[i-1].(*ExchangeSource); ok && before.Input == op.Input {
					continue
				}
			}
			stack = append(stack, op.Schema)
		case *ProjectOp:
			stack[len(stack)-1] = op.Schema
		case *PartialAggregate:
			stack[len(stack)-1] = op.Schema
		case *FinalAggregate:
			stack[len(stack)-1] = op.Schema
		case *CompleteAggregate:
			stack[len(stack)-1] = op.Schema
		case *WindowOp:
			stack[len(stack)-1] = op.Schema
		case *HashJoin:
			stack = append(stack[:len(stack)-2], op.Schema)
		case *StoredSource:
			stack = append(stack, op.Schema)
		case *RecursiveOp:
			if err := validStep(op, stack[len(stack)-op.Inputs:]); err != nil {
				return nil, err
			}
			stack = append(stack[:len(stack)-needs], op.Schema)
		case *UnionAll:
			stack = append(stack[:len(stack)-needs], op.Schema)
		}
	}
	return stack, nil
}

// validStep checks the program of a recursion's step, given its inputs.
func validStep(op *RecursiveOp, inputs []*arrow.Schema) error {
	var failed error
	out, err := runStack(op.Step, func(step Operator, _ []*arrow.Schema) {
		s, ok := step.(*StoredSource)
		switch {
		case !ok:
		case s.Index < 0 || s.Index > len(inputs):
			failed = invalid("a recursion of %d inputs reads input %d", len(inputs), s.Index)
		case s.Index == 0 && !s.Schema.Equal(op.Schema), s.Index > 0 && !s.Schema.Equal(inputs[s.Index-1]):
			failed = invalid("a recursion reads input %d under another schema", s.Index)
		}
	})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case len(out) != 1 || !out[0].Equal(op.Schema):
		return invalid("the step of a recursion does not yield its rows")
	}
	return nil
}

// ValidatePlan checks that a plan is well-formed: dense ids, exactly one root
// and that on the coordinator, a source and a sink for each exchange with the
// same schema at both ends, and operators that leave one stream. It fails with
// an *InvalidPlanError.
func ValidatePlan(p *Plan) error {
	for i, f := range p.Fragments {
		if f.ID != FragmentID(i) {
			return invalid("fragment %d has id %d", i, f.ID)
		}
	}
	for i, x := range p.Exchanges {
		if x.ID != ExchangeID(i) {
			return invalid("exchange %d has id %d", i, x.ID)
		}
		if int(x.Producer) >= len(p.Fragments) || int(x.Consumer) >= len(p.Fragments) {
			return invalid("exchange %d runs from fragment %d to %d of %d", i, x.Producer, x.Consumer, len(p.Fragments))
		}
		if x.Partition < 0 || x.Partition >= x.Partitions {
			return invalid("exchange %d is partition %d of %d", i, x.Partition, x.Partitions)
		}
	}
	var roots []FragmentID
	for _, f := range p.Fragments {
		if err := p.validateFragment(f); err != nil {
			return err
		}
		if len(p.ExchangesFrom(f.ID)) == 0 {
			roots = append(roots, f.ID)
		}
	}
	if len(roots) != 1 {
		return invalid("there are %d root fragments", len(roots))
	}
	if root := p.Fragments[roots[0]]; root.Assignment != Coordinator {
		return invalid("the root fragment runs on tablet %d, not on the coordinator", root.Assignment.Tablet)
	}
	return nil
}

func (p *Plan) validateFragment(f *Fragment) error {
	var failed error
	var sources, sinks []ExchangeID
	stack, err := runStack(f.Operators, func(op Operator, stack []*arrow.Schema) {
		switch op := op.(type) {
		case *ExchangeSource:
			sources = append(sources, op.Exchange)
			if int(op.Exchange) >= len(p.Exchanges) || p.Exchanges[op.Exchange].Consumer != f.ID ||
				!p.Exchanges[op.Exchange].Schema.Equal(op.Schema) {
				failed = invalid("fragment %d has no exchange %d of that schema to consume", f.ID, op.Exchange)
			}
		case *ExchangeSink:
			sinks = append(sinks, op.Exchange)
			if int(op.Exchange) >= len(p.Exchanges) || p.Exchanges[op.Exchange].Producer != f.ID ||
				len(stack) != 1 || !p.Exchanges[op.Exchange].Schema.Equal(stack[0]) {
				failed = invalid("fragment %d has no exchange %d of that schema to produce", f.ID, op.Exchange)
			}
		default:
			if len(sinks) > 0 {
				failed = invalid("fragment %d has %T after a sink", f.ID, op)
			}
		}
	})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case len(stack) != 1:
		return invalid("fragment %d leaves %d streams", f.ID, len(stack))
	}
	for _, x := range p.Exchanges {
		if (x.Consumer == f.ID) != slices.Contains(sources, x.ID) || (x.Producer == f.ID) != slices.Contains(sinks, x.ID) {
			return invalid("exchange %d and the operators of fragment %d do not agree", x.ID, f.ID)
		}
	}
	return nil
}
