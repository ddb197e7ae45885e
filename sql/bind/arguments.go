package bind

import (
	"skein/planner"
	"skein/sqlstate"
)

// Arguments converts values, one per entry of Params, to the parameters' types
// as Substitute would. Index n of the result is the value of every Param with
// ordinal n; index 0, where the statement asks for it, is the time of this
// execution, else NULL.
func (s *Bound) Arguments(values []*planner.Literal) ([]*planner.Literal, error) {
	if len(values) != len(s.Params) {
		return nil, sqlstate.New(sqlstate.ProtocolViolation,
			"the statement has %d parameters, but %d values are given", len(s.Params), len(values))
	}
	out := make([]*planner.Literal, len(values)+1)
	out[clockParam] = clockValue()
	for i, v := range values {
		var err error
		if out[i+1], err = parameterValue(v, s.Params[i], s.zone); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Templatable reports whether a plan of the statement can be made once for all
// values of its parameters. How many rows LIMIT and OFFSET let through is part
// of a plan.
func (s *Bound) Templatable() bool { return len(s.limits) == 0 }
