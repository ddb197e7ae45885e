package flightproto

import (
	"fmt"

	"skein/flightproto/pb"
	"skein/planner"
)

func encodeAggregate(op planner.FinalAggregate) (*pb.Aggregate, error) {
	groupBy, err := encodeOrdinals(op.GroupBy)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	calls := make([]*pb.AggCall, len(op.Calls))
	for i := range op.Calls {
		if calls[i], err = encodeAggCall(&op.Calls[i]); err != nil {
			return nil, err
		}
	}
	return &pb.Aggregate{GroupBy: groupBy, Calls: calls, Schema: schema}, nil
}

func encodeAggCall(c *planner.AggCall) (*pb.AggCall, error) {
	if c.Arg < -1 || int64(c.Arg) > 1<<30 {
		return nil, fmt.Errorf("encoding a plan: argument %d of %s is out of range", c.Arg, c.Func)
	}
	args, err := encodeOrdinals(c.Args)
	if err != nil {
		return nil, err
	}
	keys, err := encodeSortKeys(c.OrderBy)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(c.DataType)
	if err != nil {
		return nil, err
	}
	return &pb.AggCall{
		Func: string(c.Func), Arg: int32(c.Arg), Args: args, Distinct: c.Distinct, OrderBy: keys, Type: t, Name: c.Name,
	}, nil
}

func decodeAggregate(p *pb.Aggregate) (*planner.FinalAggregate, error) {
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	out := &planner.FinalAggregate{GroupBy: decodeOrdinals(p.GetGroupBy()), Schema: schema}
	for _, c := range p.GetCalls() {
		dt, err := DecodeType(c.GetType())
		if err != nil {
			return nil, err
		}
		if c.GetArg() < -1 {
			return nil, malformed("argument %d of %s is out of range", c.GetArg(), c.GetFunc())
		}
		out.Calls = append(out.Calls, planner.AggCall{
			Func: planner.AggFunc(c.GetFunc()), Arg: int(c.GetArg()), Args: decodeOrdinals(c.GetArgs()),
			Distinct: c.GetDistinct(), OrderBy: decodeSortKeys(c.GetOrderBy()), DataType: dt, Name: c.GetName(),
		})
	}
	return out, nil
}
