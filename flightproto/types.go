package flightproto

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"skein/catalog"
	"skein/flightproto/pb"
	"skein/sqlstate"
)

// EncodeType spells a type as SQL. Types that SQL cannot spell, and that would
// therefore come out changed on the other side, are refused.
func EncodeType(dt arrow.DataType) (*pb.Type, error) {
	if dt == nil {
		return nil, fmt.Errorf("encoding a missing type")
	}
	t := &pb.Type{Name: catalog.TypeName(dt), Physical: dt.ID() == arrow.DECIMAL64}
	back, err := DecodeType(t)
	if err != nil || !arrow.TypeEqual(back, dt) {
		return nil, sqlstate.New(sqlstate.FeatureNotSupported, "values of type %s cannot be sent between nodes", dt)
	}
	return t, nil
}

// DecodeType reverses EncodeType.
func DecodeType(t *pb.Type) (arrow.DataType, error) {
	dt, err := catalog.ParseType(t.GetName())
	if err != nil {
		return nil, malformed("%v", err)
	}
	if !t.GetPhysical() {
		return dt, nil
	}
	physical := catalog.PhysicalType(dt)
	if physical.ID() != arrow.DECIMAL64 {
		return nil, malformed("type %q has no physical form of its own", t.GetName())
	}
	return physical, nil
}

// EncodeSchema encodes names, types and nullability; metadata stays behind. A
// nil schema is encoded as nil.
func EncodeSchema(s *arrow.Schema) (*pb.Schema, error) {
	if s == nil {
		return nil, nil
	}
	out := &pb.Schema{Fields: make([]*pb.Field, s.NumFields())}
	for i := range out.Fields {
		f := s.Field(i)
		t, err := EncodeType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		out.Fields[i] = &pb.Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	}
	return out, nil
}

// DecodeSchema reverses EncodeSchema.
func DecodeSchema(s *pb.Schema) (*arrow.Schema, error) {
	if s == nil {
		return nil, nil
	}
	fields := make([]arrow.Field, len(s.GetFields()))
	for i, f := range s.GetFields() {
		dt, err := DecodeType(f.GetType())
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.GetName(), err)
		}
		fields[i] = arrow.Field{Name: f.GetName(), Type: dt, Nullable: f.GetNullable()}
	}
	return arrow.NewSchema(fields, nil), nil
}
