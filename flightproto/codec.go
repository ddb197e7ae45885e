package flightproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec is gRPC's Protocol Buffers codec with a shortcut for FlightData, which
// carries all the rows: what is sent is not copied into the message but referred
// to, and what comes is copied once, from the transport's buffers into memory
// of its own. The bytes on the wire are the same.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Fields of FlightData.
const (
	fieldDescriptor = 1
	fieldHeader     = 2
	fieldMetadata   = 3
	fieldBody       = 1000
)

// outgoing is a FlightData whose body is sent from where it lies. The transport
// does that after SendMsg has returned, so the body must not change any more:
// pooled memory goes back to its pool when it is sent. An outgoing is good for
// one SendMsg. A plain FlightData is copied, for its sender may reuse it.
type outgoing struct {
	flight.FlightData // without a body
	body              *[]byte
	pool              mem.BufferPool // nil for a body that is not pooled
}

// ProtoReflect serves codecs that do not know this type.
func (o *outgoing) ProtoReflect() protoreflect.Message {
	return (&flight.FlightData{
		FlightDescriptor: o.FlightDescriptor, DataHeader: o.DataHeader, AppMetadata: o.AppMetadata, DataBody: *o.body,
	}).ProtoReflect()
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if p, ok := v.(*passing); ok {
		data := p.data
		p.data = nil // the references are the transport's now
		return data, nil
	}
	m, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := len(*m.body)
	head := make([]byte, 0, len(m.DataHeader)+len(m.AppMetadata)+32)
	if m.FlightDescriptor != nil {
		raw, err := pb.Marshal(m.FlightDescriptor)
		if err != nil {
			return nil, fmt.Errorf("encoding a flight descriptor: %w", err)
		}
		head = appendField(head, fieldDescriptor, raw)
	}
	if len(m.DataHeader) > 0 {
		head = appendField(head, fieldHeader, m.DataHeader)
	}
	if len(m.AppMetadata) > 0 {
		head = appendField(head, fieldMetadata, m.AppMetadata)
	}
	if size == 0 {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	head = protowire.AppendTag(head, fieldBody, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	if m.pool == nil {
		return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(*m.body)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(head), mem.NewBuffer(m.body, m.pool)}, nil
}

func appendField(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// minShared is from where on a message is worth reading field by field.
const minShared = 4 << 10

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if p, ok := v.(*passing); ok {
		data.Ref()
		p.data = append(mem.BufferSlice(nil), data...)
		return nil
	}
	m, ok := v.(*flight.FlightData)
	if !ok || data.Len() < minShared {
		return c.CodecV2.Unmarshal(data, v)
	}
	m.Reset()
	r := data.Reader()
	defer func() { _ = r.Close() }() // only gives the references back
	for r.Remaining() > 0 {
		if err := unmarshalField(r, m); err != nil {
			return fmt.Errorf("decoding a FlightData: %w", err)
		}
	}
	return nil
}

var errOverrun = errors.New("a field is longer than its message")

// nextField reads the head of the next field of bytes; others are passed over
// and come back as field 0 without bytes.
func nextField(r *mem.Reader) (field protowire.Number, size int, err error) {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	field, kind := protowire.DecodeTag(tag)
	if field < 1 {
		return 0, 0, fmt.Errorf("field number %d", field)
	}
	if kind != protowire.BytesType {
		return 0, 0, skipField(r, kind)
	}
	long, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	if long > uint64(r.Remaining()) {
		return 0, 0, errOverrun
	}
	return field, int(long), nil
}

func unmarshalField(r *mem.Reader, m *flight.FlightData) error {
	field, size, err := nextField(r)
	if err != nil {
		return err
	}
	switch field {
	case fieldDescriptor, fieldHeader, fieldMetadata, fieldBody:
	default:
		_, err := r.Discard(size)
		return err
	}
	// Of the size of the field: large ones start at an address that any value
	// may lie at.
	value := make([]byte, size)
	if _, err := io.ReadFull(r, value); err != nil {
		return err
	}
	switch field {
	case fieldDescriptor:
		m.FlightDescriptor = &flight.FlightDescriptor{}
		return pb.Unmarshal(value, m.FlightDescriptor)
	case fieldHeader:
		m.DataHeader = value
	case fieldMetadata:
		m.AppMetadata = value
	case fieldBody:
		m.DataBody = value
	}
	return nil
}

// skipField passes over a field that this release does not know.
func skipField(r *mem.Reader, kind protowire.Type) error {
	switch kind {
	case protowire.VarintType:
		_, err := binary.ReadUvarint(r)
		return err
	case protowire.Fixed32Type, protowire.Fixed64Type:
		size := 4
		if kind == protowire.Fixed64Type {
			size = 8
		}
		if size > r.Remaining() {
			return errOverrun
		}
		_, err := r.Discard(size)
		return err
	}
	return fmt.Errorf("a field of wire type %d", kind)
}
