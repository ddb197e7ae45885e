package worker

import (
	"skein/exec"
	"skein/flightproto"
	"skein/flightproto/pb"
	"skein/planner"
	"skein/sqlstate"
)

// plans keeps the programs that gateways have sent, decoded and checked, so that
// another execution sends a digest and parameters only.
type plans struct {
	kept *flightproto.Cache[flightproto.Digest, *program]
}

func newPlans(entries int, bytes int64) *plans {
	return &plans{flightproto.NewCache[flightproto.Digest, *program](entries, bytes)}
}

// program is a decoded Program. A kept one is shared by its executions and not
// changed any more.
type program struct {
	fragments []*fragment
	version   uint64 // of the metadata that tables and tablets were checked with
}

// find returns the program of a request that names one by its digest. What was
// checked with other metadata than today's counts as unknown.
func (p *plans) find(s *Server, request *pb.StartRequest) (*program, error) {
	digest, err := flightproto.DigestFrom(request.GetPlanDigest())
	if err != nil {
		return nil, err
	}
	version := s.cfg.Node.Metadata().Version
	if known, ok := p.kept.Get(digest); ok && known.version == version {
		return known, nil
	}
	if len(request.GetPlan()) == 0 {
		return nil, flightproto.WithReason(flightproto.UnknownPlan,
			sqlstate.New(sqlstate.UndefinedObject, "the worker does not know plan %x", digest[:8]))
	}
	encoded, err := flightproto.DecodeProgram(request.GetPlan(), digest)
	if err != nil {
		return nil, err
	}
	if len(encoded.GetFragments()) == 0 {
		return nil, sqlstate.New(sqlstate.ProtocolViolation, "plan %x has no fragments", digest[:8])
	}
	decoded, err := s.decodeProgram(encoded.GetFragments(), encoded.GetExchanges())
	if err != nil {
		return nil, err
	}
	decoded.version = version
	p.kept.Put(digest, decoded, planBytes(request.GetPlan()))
	return decoded, nil
}

// planBytes estimates what a decoded program takes from its encoding.
func planBytes(encoded []byte) int64 { return 4<<10 + 8*int64(len(encoded)) }

// instance is the program's fragments for one execution.
func (p *program) instance(values []*planner.Literal) ([]*fragment, error) {
	bind := exec.Binder(values)
	out := make([]*fragment, len(p.fragments))
	for i, f := range p.fragments {
		operators, err := planner.BindOperators(f.plan.Operators, bind)
		if err != nil {
			return nil, err
		}
		plan := *f.plan
		plan.Operators = operators
		own := &fragment{plan: &plan, generation: f.generation, inputs: f.inputs, outputs: make([]*output, len(f.outputs))}
		for k, o := range f.outputs {
			own.outputs[k] = &output{fragment: own, exchange: o.exchange, stream: o.stream, index: o.index}
		}
		out[i] = own
	}
	return out, nil
}
