package flightproto

import (
	"skein/flightproto/pb"
	"skein/planner"
)

func encodeWindow(op *planner.WindowOp) (*pb.Operator, error) {
	partition, err := encodeOrdinals(op.PartitionBy)
	if err != nil {
		return nil, err
	}
	keys, err := encodeSortKeys(op.OrderBy)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	calls := make([]*pb.WindowCall, len(op.Calls))
	for i := range op.Calls {
		if calls[i], err = encodeWindowCall(&op.Calls[i]); err != nil {
			return nil, err
		}
	}
	return &pb.Operator{Kind: &pb.Operator_Window{Window: &pb.WindowOp{
		PartitionBy: partition, OrderBy: keys, Calls: calls, Schema: schema,
	}}}, nil
}

func encodeWindowCall(c *planner.WindowCall) (*pb.WindowCall, error) {
	args, err := encodeOrdinals(c.Args)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(c.DataType)
	if err != nil {
		return nil, err
	}
	start, err := encodeBound(c.Frame.Start)
	if err != nil {
		return nil, err
	}
	end, err := encodeBound(c.Frame.End)
	if err != nil {
		return nil, err
	}
	frame := &pb.WindowFrame{Mode: string(c.Frame.Mode), Start: start, End: end, Exclude: string(c.Frame.Exclude)}
	return &pb.WindowCall{Func: string(c.Func), Args: args, Frame: frame, Type: t, Name: c.Name}, nil
}

func encodeBound(b planner.FrameBound) (*pb.FrameBound, error) {
	out := &pb.FrameBound{Kind: string(b.Kind)}
	if b.Offset == nil {
		return out, nil
	}
	var err error
	out.Offset, err = encodeLiteral(b.Offset)
	return out, err
}

func encodeUnion(op *planner.UnionAll) (*pb.Operator, error) {
	inputs, err := encodeOrdinal(op.Inputs)
	if err != nil {
		return nil, err
	}
	schema, err := EncodeSchema(op.Schema)
	if err != nil {
		return nil, err
	}
	return &pb.Operator{Kind: &pb.Operator_UnionAll{UnionAll: &pb.UnionAll{Inputs: inputs, Schema: schema}}}, nil
}

func decodeWindow(p *pb.WindowOp) (planner.Operator, error) {
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	out := &planner.WindowOp{
		PartitionBy: decodeOrdinals(p.GetPartitionBy()), OrderBy: decodeSortKeys(p.GetOrderBy()), Schema: schema,
	}
	for _, c := range p.GetCalls() {
		dt, err := DecodeType(c.GetType())
		if err != nil {
			return nil, err
		}
		call := planner.WindowCall{Func: planner.WindowFunc(c.GetFunc()), Args: decodeOrdinals(c.GetArgs()), DataType: dt, Name: c.GetName()}
		f := c.GetFrame()
		call.Frame.Mode, call.Frame.Exclude = planner.FrameMode(f.GetMode()), planner.FrameExclude(f.GetExclude())
		if call.Frame.Start, err = decodeBound(f.GetStart()); err != nil {
			return nil, err
		}
		if call.Frame.End, err = decodeBound(f.GetEnd()); err != nil {
			return nil, err
		}
		out.Calls = append(out.Calls, call)
	}
	return out, nil
}

func decodeBound(p *pb.FrameBound) (planner.FrameBound, error) {
	b := planner.FrameBound{Kind: planner.BoundKind(p.GetKind())}
	if p.GetOffset() == nil {
		return b, nil
	}
	var err error
	b.Offset, err = decodeLiteral(p.GetOffset())
	return b, err
}

func decodeUnion(p *pb.UnionAll) (planner.Operator, error) {
	schema, err := DecodeSchema(p.GetSchema())
	if err != nil {
		return nil, err
	}
	return &planner.UnionAll{Inputs: int(p.GetInputs()), Schema: schema}, nil
}
