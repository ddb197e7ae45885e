package flightproto

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"skein/flightproto/pb"
)

// Message is one encoded record batch on its way from one stream to another. It
// holds memory of the transport until it is forwarded or released.
type Message struct {
	Rows int64
	raw  *passing
}

// Release gives up a message that is not forwarded.
func (m *Message) Release() { m.raw.free() }

// passing is an encoded FlightData that is passed on as it came: the transport's
// buffers are referred to and not copied. It is good for one SendMsg.
type passing struct{ data mem.BufferSlice }

func (p *passing) free() {
	p.data.Free()
	p.data = nil
}

// ProtoReflect serves codecs that do not know this type.
func (p *passing) ProtoReflect() protoreflect.Message {
	m, err := p.decoded()
	if err != nil {
		m = nil // an invalid message, which no codec encodes
	}
	return m.ProtoReflect()
}

// parted takes the app_metadata out of a message: it returns copies of that and of
// the rest, in memory of their own, and frees the message.
func (p *passing) parted() (rest *passing, metadata []byte, err error) {
	r := p.data.Reader()
	defer p.free()
	defer func() { _ = r.Close() }() // only gives the references back
	out := make([]byte, 0, r.Remaining())
	for r.Remaining() > 0 {
		field, size, err := nextField(r)
		if err != nil {
			return &passing{}, nil, malformed("a FlightData: %v", err)
		}
		switch field {
		case fieldMetadata:
			metadata = make([]byte, size)
			_, err = io.ReadFull(r, metadata)
		case fieldHeader, fieldBody:
			out = protowire.AppendTag(out, field, protowire.BytesType)
			out = protowire.AppendVarint(out, uint64(size))
			at := len(out)
			out = append(out, make([]byte, size)...)
			_, err = io.ReadFull(r, out[at:])
		default:
			_, err = r.Discard(size)
		}
		if err != nil {
			return &passing{}, nil, malformed("a FlightData: %v", err)
		}
	}
	return &passing{data: mem.BufferSlice{mem.SliceBuffer(out)}}, metadata, nil
}

// header returns the message's DataHeader, nil for none, and the sizes of its
// body and its metadata.
func (p *passing) header() (header []byte, body, appMetadata int, err error) {
	r := p.data.Reader()
	defer func() { _ = r.Close() }() // only gives the references back
	for r.Remaining() > 0 {
		field, size, err := nextField(r)
		if err != nil {
			return nil, 0, 0, malformed("a FlightData: %v", err)
		}
		switch field {
		case fieldHeader:
			header = make([]byte, size)
			if _, err := io.ReadFull(r, header); err != nil {
				return nil, 0, 0, malformed("a FlightData: %v", err)
			}
			continue
		case fieldBody:
			body = size
		case fieldMetadata:
			appMetadata = size
		}
		if _, err := r.Discard(size); err != nil {
			return nil, 0, 0, malformed("a FlightData: %v", err)
		}
	}
	return header, body, appMetadata, nil
}

// decoded is the message for streams that have no use for its encoding.
func (p *passing) decoded() (*flight.FlightData, error) {
	m := &flight.FlightData{}
	if err := proto.Unmarshal(p.data.Materialize(), m); err != nil {
		return nil, malformed("a FlightData: %v", err)
	}
	return m, nil
}

// Forwarder is the consuming end of an exchange whose batches are passed on as
// they are, without being decoded. It is used by one goroutine.
type Forwarder struct {
	conn   *Conn
	cancel context.CancelFunc
	get    flight.FlightService_DoGetClient
	schema *StreamSchema
	opened bool
	came   tally
}

// Forward is Fetch for batches that are passed on; schema is the exchange's.
func (c *Conn) Forward(ctx context.Context, ticket *pb.Ticket, schema *StreamSchema) (*Forwarder, error) {
	get, cancel, err := c.get(ctx, ticket)
	if err != nil {
		return nil, err
	}
	return &Forwarder{conn: c, cancel: cancel, get: get, schema: schema}, nil
}

// Next returns the next batch with rows, nil at the end, as Stream.Next does. It is the caller's, who
// forwards or releases it.
func (f *Forwarder) Next() (*Message, error) {
	for {
		raw := &passing{}
		err := f.get.RecvMsg(raw)
		switch {
		case errors.Is(err, io.EOF) && f.opened:
			return nil, f.came.check(f.conn.address, f.get.Trailer())
		case err != nil:
			return nil, f.conn.failed(err)
		}
		rows, err := f.accept(raw)
		if err == nil && rows > 0 {
			return &Message{Rows: rows, raw: raw}, nil
		}
		raw.free()
		if err != nil {
			return nil, err
		}
	}
}

// accept checks a message and returns the rows it has.
func (f *Forwarder) accept(raw *passing) (int64, error) {
	header, body, appMetadata, err := raw.header()
	if err != nil {
		return 0, err
	}
	f.came.add(header, body, appMetadata)
	if len(header) == 0 { // metadata only
		return 0, nil
	}
	if !f.opened {
		f.opened = true
		return 0, f.open(header)
	}
	kind, rows, err := messageHeader(header)
	if err == nil && kind != headerRecordBatch {
		err = malformed("worker %s sent a message of kind %d where rows were expected", f.conn.address, kind)
	}
	return rows, err
}

// open checks the stream's first message, its schema.
func (f *Forwarder) open(header []byte) error {
	if bytes.Equal(header, f.schema.header) {
		return nil // encoded as here, as it nearly always is
	}
	reader, err := flight.NewRecordReader(&single{&flight.FlightData{DataHeader: header}}, ipc.WithAllocator(memory.DefaultAllocator))
	if err != nil {
		return malformed("worker %s began a stream without a schema: %v", f.conn.address, err)
	}
	defer reader.Release()
	return checkSchema(reader.Schema(), f.schema.schema)
}

// Clock is the worker's clock at the end of the stream, 0 before.
func (f *Forwarder) Clock() uint64 { return clockOf(f.get.Trailer()) }

// Close ends the stream. It may be called more than once.
func (f *Forwarder) Close() { f.cancel() }

// single is a stream of one message.
type single struct{ data *flight.FlightData }

func (s *single) Recv() (*flight.FlightData, error) {
	if data := s.data; data != nil {
		s.data = nil
		return data, nil
	}
	return nil, io.EOF
}

// Forward passes a batch on whose schema has the writer's types, and takes it
// over.
func (w *BatchWriter) Forward(m *Message) error {
	if err := errors.Join(w.flush(), w.payloads.sendSchema()); err != nil {
		m.Release()
		return err
	}
	if w.payloads.raw != nil {
		return w.payloads.raw.SendMsg(m.raw)
	}
	data, err := m.raw.decoded()
	m.Release()
	if err != nil {
		return err
	}
	return w.payloads.to.Send(data)
}

// Kinds of IPC messages, as the format's schema numbers them.
const headerRecordBatch = 3

// messageHeader reads the kind of an IPC message and, of a record batch, its
// rows, from the flatbuffer that heads it.
func messageHeader(raw []byte) (kind byte, rows int64, err error) {
	message, ok := rootTable(raw)
	if !ok {
		return 0, 0, malformed("the header of an Arrow message is damaged")
	}
	const headerType, header, length = 1, 2, 0
	kindAt, ok := message.field(headerType, 1)
	if !ok {
		return 0, 0, malformed("an Arrow message has no kind")
	}
	kind = raw[kindAt]
	if kind != headerRecordBatch {
		return kind, 0, nil
	}
	at, ok := message.field(header, 4)
	if !ok {
		return 0, 0, malformed("an Arrow message has no header")
	}
	batch, ok := tableAt(raw, at)
	if !ok {
		return 0, 0, malformed("the header of an Arrow record batch is damaged")
	}
	if at, ok = batch.field(length, 8); ok { // absent means 0
		rows = int64(binary.LittleEndian.Uint64(raw[at:]))
	}
	return kind, rows, nil
}

// table is a flatbuffer table: the positions of it and of its vtable, both
// within the bytes.
type table struct {
	raw           []byte
	at, vtable    int
	vtableEntries int
}

func rootTable(raw []byte) (table, bool) { return tableAt(raw, 0) }

// tableAt follows the offset at a position to a table.
func tableAt(raw []byte, position int) (t table, ok bool) {
	if position < 0 || position+4 > len(raw) {
		return t, false
	}
	at := position + int(binary.LittleEndian.Uint32(raw[position:]))
	if at < 0 || at+4 > len(raw) {
		return t, false
	}
	vtable := at - int(int32(binary.LittleEndian.Uint32(raw[at:])))
	if vtable < 0 || vtable+4 > len(raw) {
		return t, false
	}
	size := int(binary.LittleEndian.Uint16(raw[vtable:]))
	if size < 4 || vtable+size > len(raw) {
		return t, false
	}
	return table{raw: raw, at: at, vtable: vtable, vtableEntries: (size - 4) / 2}, true
}

// field is the position of a field of some bytes, false if it is absent.
func (t table) field(index, size int) (int, bool) {
	if index >= t.vtableEntries {
		return 0, false
	}
	offset := int(binary.LittleEndian.Uint16(t.raw[t.vtable+4+2*index:]))
	at := t.at + offset
	return at, offset != 0 && at+size <= len(t.raw)
}
