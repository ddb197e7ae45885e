package flightproto

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/flightproto/pb"
	"skein/planner"
)

// EncodeExpr encodes a bound expression; nil is encoded as nil.
func EncodeExpr(e planner.Expr) (*pb.Expr, error) {
	switch e := e.(type) {
	case nil:
		return nil, nil
	case *planner.Column:
		return encodeColumn(e)
	case *planner.Literal:
		literal, err := encodeLiteral(e)
		if err != nil {
			return nil, err
		}
		return &pb.Expr{Kind: &pb.Expr_Literal{Literal: literal}}, nil
	case *planner.Call:
		return encodeCall(e)
	case *planner.Cast:
		return encodeCast(e)
	case *planner.Case:
		return encodeCase(e)
	case *planner.InList:
		return encodeInList(e)
	case *planner.Param:
		return encodeParam(e)
	}
	return nil, fmt.Errorf("encoding an expression: unknown kind %T", e)
}

func encodeColumn(e *planner.Column) (*pb.Expr, error) {
	index, err := encodeOrdinal(e.Index)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(e.DataType)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", e.Name, err)
	}
	return &pb.Expr{Kind: &pb.Expr_Column{Column: &pb.Column{Index: index, Name: e.Name, Type: t, Nullable: e.Null}}}, nil
}

func encodeParam(e *planner.Param) (*pb.Expr, error) {
	ordinal, err := encodeOrdinal(e.Ordinal)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(e.DataType)
	if err != nil {
		return nil, fmt.Errorf("parameter $%d: %w", e.Ordinal, err)
	}
	return &pb.Expr{Kind: &pb.Expr_Param{Param: &pb.Param{Ordinal: ordinal, Type: t}}}, nil
}

func encodeCall(e *planner.Call) (*pb.Expr, error) {
	args, err := encodeExprs(e.Args)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(e.DataType)
	if err != nil {
		return nil, fmt.Errorf("function %q: %w", e.Func, err)
	}
	return &pb.Expr{Kind: &pb.Expr_Call{Call: &pb.Call{Func: e.Func, Args: args, Type: t, Nullable: e.Null}}}, nil
}

func encodeCast(e *planner.Cast) (*pb.Expr, error) {
	arg, err := encodeOperand(e.Arg)
	if err != nil {
		return nil, err
	}
	t, err := EncodeType(e.DataType)
	if err != nil {
		return nil, err
	}
	return &pb.Expr{Kind: &pb.Expr_Cast{Cast: &pb.Cast{Arg: arg, Type: t}}}, nil
}

func encodeCase(e *planner.Case) (*pb.Expr, error) {
	out := &pb.Case{Whens: make([]*pb.When, len(e.Whens))}
	var err error
	for i, w := range e.Whens {
		out.Whens[i] = &pb.When{}
		if out.Whens[i].Cond, err = encodeOperand(w.Cond); err != nil {
			return nil, err
		}
		if out.Whens[i].Then, err = encodeOperand(w.Then); err != nil {
			return nil, err
		}
	}
	if out.Otherwise, err = encodeOperand(e.Else); err != nil {
		return nil, err
	}
	if out.Type, err = EncodeType(e.DataType); err != nil {
		return nil, err
	}
	return &pb.Expr{Kind: &pb.Expr_Case{Case: out}}, nil
}

func encodeInList(e *planner.InList) (*pb.Expr, error) {
	arg, err := encodeOperand(e.Arg)
	if err != nil {
		return nil, err
	}
	out := &pb.InList{Arg: arg, List: make([]*pb.Literal, len(e.List)), Negate: e.Negate}
	for i, l := range e.List {
		if out.List[i], err = encodeLiteral(l); err != nil {
			return nil, err
		}
	}
	return &pb.Expr{Kind: &pb.Expr_InList{InList: out}}, nil
}

// encodeOperand encodes an expression that must be there.
func encodeOperand(e planner.Expr) (*pb.Expr, error) {
	out, err := EncodeExpr(e)
	if err == nil && out == nil {
		err = fmt.Errorf("encoding an expression: an operand is missing")
	}
	return out, err
}

func encodeExprs(list []planner.Expr) ([]*pb.Expr, error) {
	out := make([]*pb.Expr, len(list))
	for i, e := range list {
		var err error
		if out[i], err = encodeOperand(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func encodeLiteral(l *planner.Literal) (*pb.Literal, error) {
	if l == nil {
		return nil, fmt.Errorf("encoding an expression: a literal is missing")
	}
	t, err := EncodeType(l.DataType)
	if err != nil {
		return nil, err
	}
	out := &pb.Literal{Type: t}
	switch v := l.Value.(type) {
	case nil:
	case bool:
		out.Value = &pb.Literal_BoolValue{BoolValue: v}
	case int64:
		out.Value = &pb.Literal_IntValue{IntValue: v}
	case float64:
		out.Value = &pb.Literal_FloatValue{FloatValue: v}
	case string:
		out.Value = &pb.Literal_TextValue{TextValue: v}
	case []byte:
		out.Value = &pb.Literal_BytesValue{BytesValue: v}
	case decimal128.Num:
		out.Value = &pb.Literal_DecimalValue{DecimalValue: &pb.Decimal{High: v.HighBits(), Low: v.LowBits()}}
	case arrow.MonthDayNanoInterval:
		out.Value = &pb.Literal_IntervalValue{IntervalValue: &pb.Interval{Months: v.Months, Days: v.Days, Nanos: v.Nanoseconds}}
	default:
		return nil, fmt.Errorf("encoding a literal of type %s: value is a %T", t.GetName(), v)
	}
	if !literalFits(l.DataType, out) {
		return nil, fmt.Errorf("encoding a literal of type %s: value is a %T", t.GetName(), l.Value)
	}
	return out, nil
}

// literalFits reports whether a literal's value has the form that its type
// asks for (planner.Literal).
func literalFits(dt arrow.DataType, l *pb.Literal) bool {
	if l.GetValue() == nil {
		return true
	}
	ok := false
	switch dt.ID() {
	case arrow.BOOL:
		_, ok = l.GetValue().(*pb.Literal_BoolValue)
	case arrow.INT16, arrow.INT32, arrow.INT64, arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP:
		_, ok = l.GetValue().(*pb.Literal_IntValue)
	case arrow.FLOAT32, arrow.FLOAT64:
		_, ok = l.GetValue().(*pb.Literal_FloatValue)
	case arrow.DECIMAL64, arrow.DECIMAL128:
		_, ok = l.GetValue().(*pb.Literal_DecimalValue)
	case arrow.STRING:
		_, ok = l.GetValue().(*pb.Literal_TextValue)
	case arrow.BINARY, arrow.FIXED_SIZE_BINARY:
		_, ok = l.GetValue().(*pb.Literal_BytesValue)
	case arrow.INTERVAL_MONTH_DAY_NANO:
		_, ok = l.GetValue().(*pb.Literal_IntervalValue)
	}
	return ok
}

// DecodeExpr reverses EncodeExpr. The result shares no memory with e but for
// the bytes of bytea literals.
func DecodeExpr(e *pb.Expr) (planner.Expr, error) {
	if e == nil {
		return nil, nil
	}
	switch k := e.GetKind().(type) {
	case *pb.Expr_Column:
		dt, err := DecodeType(k.Column.GetType())
		if err != nil {
			return nil, err
		}
		return &planner.Column{
			Index: int(k.Column.GetIndex()), Name: k.Column.GetName(), DataType: dt, Null: k.Column.GetNullable(),
		}, nil
	case *pb.Expr_Literal:
		return decodeLiteral(k.Literal)
	case *pb.Expr_Call:
		return decodeCall(k.Call)
	case *pb.Expr_Cast:
		arg, err := decodeOperand(k.Cast.GetArg())
		if err != nil {
			return nil, err
		}
		dt, err := DecodeType(k.Cast.GetType())
		if err != nil {
			return nil, err
		}
		return &planner.Cast{Arg: arg, DataType: dt}, nil
	case *pb.Expr_Case:
		return decodeCase(k.Case)
	case *pb.Expr_InList:
		return decodeInList(k.InList)
	case *pb.Expr_Param:
		dt, err := DecodeType(k.Param.GetType())
		if err != nil {
			return nil, err
		}
		return &planner.Param{Ordinal: int(k.Param.GetOrdinal()), DataType: dt}, nil
	}
	return nil, malformed("expression without a kind")
}

func decodeOperand(e *pb.Expr) (planner.Expr, error) {
	if e == nil {
		return nil, malformed("expression lacks an operand")
	}
	return DecodeExpr(e)
}

func decodeExprs(list []*pb.Expr) ([]planner.Expr, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make([]planner.Expr, len(list))
	for i, e := range list {
		var err error
		if out[i], err = decodeOperand(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeCall(c *pb.Call) (planner.Expr, error) {
	args, err := decodeExprs(c.GetArgs())
	if err != nil {
		return nil, err
	}
	dt, err := DecodeType(c.GetType())
	if err != nil {
		return nil, err
	}
	return &planner.Call{Func: c.GetFunc(), Args: args, DataType: dt, Null: c.GetNullable()}, nil
}

func decodeCase(c *pb.Case) (planner.Expr, error) {
	out := &planner.Case{}
	for _, w := range c.GetWhens() {
		cond, err := decodeOperand(w.GetCond())
		if err != nil {
			return nil, err
		}
		then, err := decodeOperand(w.GetThen())
		if err != nil {
			return nil, err
		}
		out.Whens = append(out.Whens, planner.When{Cond: cond, Then: then})
	}
	var err error
	if out.Else, err = decodeOperand(c.GetOtherwise()); err != nil {
		return nil, err
	}
	if out.DataType, err = DecodeType(c.GetType()); err != nil {
		return nil, err
	}
	return out, nil
}

func decodeInList(in *pb.InList) (planner.Expr, error) {
	arg, err := decodeOperand(in.GetArg())
	if err != nil {
		return nil, err
	}
	out := &planner.InList{Arg: arg, Negate: in.GetNegate()}
	for _, l := range in.GetList() {
		literal, err := decodeLiteral(l)
		if err != nil {
			return nil, err
		}
		out.List = append(out.List, literal)
	}
	return out, nil
}

func decodeLiteral(l *pb.Literal) (*planner.Literal, error) {
	dt, err := DecodeType(l.GetType())
	if err != nil {
		return nil, err
	}
	if !literalFits(dt, l) {
		return nil, malformed("literal of type %s holds a %T", l.GetType().GetName(), l.GetValue())
	}
	out := &planner.Literal{DataType: dt}
	switch v := l.GetValue().(type) {
	case *pb.Literal_BoolValue:
		out.Value = v.BoolValue
	case *pb.Literal_IntValue:
		out.Value = v.IntValue
	case *pb.Literal_FloatValue:
		out.Value = v.FloatValue
	case *pb.Literal_TextValue:
		out.Value = v.TextValue
	case *pb.Literal_BytesValue:
		out.Value = v.BytesValue
	case *pb.Literal_DecimalValue:
		out.Value = decimal128.New(v.DecimalValue.GetHigh(), v.DecimalValue.GetLow())
	case *pb.Literal_IntervalValue:
		i := v.IntervalValue
		out.Value = arrow.MonthDayNanoInterval{Months: i.GetMonths(), Days: i.GetDays(), Nanoseconds: i.GetNanos()}
	}
	return out, nil
}

func encodeOrdinal(i int) (uint32, error) {
	if i < 0 || int64(i) > math.MaxUint32 {
		return 0, fmt.Errorf("encoding a plan: ordinal %d is out of range", i)
	}
	return uint32(i), nil
}

func encodeOrdinals(list []int) ([]uint32, error) {
	out := make([]uint32, len(list))
	for i, v := range list {
		var err error
		if out[i], err = encodeOrdinal(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeOrdinals(list []uint32) []int {
	if len(list) == 0 {
		return nil
	}
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = int(v)
	}
	return out
}
