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

	"skein/flightproto/pb"
)

// Message is one encoded record batch on its way from one stream to another.
type Message struct {
	Rows int64
	data *flight.FlightData
}

// Forwarder is the consuming end of an exchange whose batches are passed on as
// they are, without being decoded. It is used by one goroutine.
type Forwarder struct {
	conn   *Conn
	cancel context.CancelFunc
	get    flight.FlightService_DoGetClient
	schema *StreamSchema
	opened bool
}

// Forward is Fetch for batches that are passed on; schema is physical.
func (c *Conn) Forward(ctx context.Context, ticket *pb.Ticket, schema *StreamSchema) (*Forwarder, error) {
	get, cancel, err := c.get(ctx, ticket)
	if err != nil {
		return nil, err
	}
	return &Forwarder{conn: c, cancel: cancel, get: get, schema: schema}, nil
}

// Next returns the next batch with rows, nil at the end. It is the caller's.
func (f *Forwarder) Next() (*Message, error) {
	for {
		data, err := f.get.Recv()
		switch {
		case errors.Is(err, io.EOF) && f.opened:
			return nil, nil
		case err != nil:
			return nil, f.conn.failed(err)
		case len(data.DataHeader) == 0: // metadata only
			continue
		}
		kind, rows, err := messageHeader(data.DataHeader)
		if err != nil {
			return nil, err
		}
		switch {
		case !f.opened:
			if err := f.open(data); err != nil {
				return nil, err
			}
			f.opened = true
		case kind != headerRecordBatch:
			return nil, malformed("worker %s sent a message of kind %d where rows were expected", f.conn.address, kind)
		case rows > 0:
			return &Message{Rows: rows, data: data}, nil
		}
	}
}

// open checks the stream's first message, its schema.
func (f *Forwarder) open(data *flight.FlightData) error {
	if bytes.Equal(data.DataHeader, f.schema.header) {
		return nil // encoded as here, as it nearly always is
	}
	reader, err := flight.NewRecordReader(&single{data}, ipc.WithAllocator(memory.DefaultAllocator))
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

// Forward passes a batch on whose schema has the writer's types. It must not be
// used with a message twice.
func (w *BatchWriter) Forward(m *Message) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.payloads.sendSchema(); err != nil {
		return err
	}
	if w.payloads.raw == nil {
		return w.payloads.to.Send(&flight.FlightData{DataHeader: m.data.DataHeader, DataBody: m.data.DataBody})
	}
	message := &outgoing{body: &m.data.DataBody}
	message.DataHeader = m.data.DataHeader
	return w.payloads.raw.SendMsg(message)
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
