package flightproto

import (
	"bytes"
	"fmt"
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/planner"
)

// messageSender is what gRPC streams have besides Send.
type messageSender interface{ SendMsg(m any) error }

// StreamSchema is the schema of a stream with its encoding, which is the same for
// every stream. It is immutable.
type StreamSchema struct {
	schema *arrow.Schema
	header []byte
}

// NewStreamSchema encodes a schema, of physical types or of public ones.
func NewStreamSchema(schema *arrow.Schema) *StreamSchema {
	p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer p.Release()
	meta := p.Meta()
	defer meta.Release()
	return &StreamSchema{schema: schema, header: bytes.Clone(meta.Bytes())}
}

// NewExchangeSchema encodes the schema of the stream that an exchange is.
func NewExchangeSchema(x *planner.Exchange) *StreamSchema {
	if x.Public {
		return NewStreamSchema(x.Schema)
	}
	return NewStreamSchema(PhysicalSchema(x.Schema))
}

// Schema is the schema of the batches as they travel.
func (s *StreamSchema) Schema() *arrow.Schema { return s.schema }

// payloadWriter sends IPC messages as FlightData. It copies a body once, into
// pooled memory that the transport gives back.
type payloadWriter struct {
	to         flight.DataStreamWriter
	raw        messageSender // the same stream; nil if it has no SendMsg
	bodies     *bodies
	descriptor *flight.FlightDescriptor // rides on the next message
	schema     *StreamSchema
	schemaSent bool
	sent       tally
	// holds says that the last message with rows waits for what comes behind it.
	holds bool
	held  *outgoing
}

// bodies pools buffers of powers of two from 16 KiB to 32 MiB, which no message
// exceeds by much. gRPC's own pools have no sizes between 32 KiB and 1 MiB,
// where most batches are, or clear what they hand out.
type bodies struct{ sizes [12]sync.Pool }

const smallestBody = 14 // as a power of two

// Get implements mem.BufferPool.
func (p *bodies) Get(length int) *[]byte {
	class := max(bits.Len(uint(max(length, 1)-1)), smallestBody) - smallestBody
	if class >= len(p.sizes) {
		b := make([]byte, length)
		return &b
	}
	if b, ok := p.sizes[class].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<(class+smallestBody))
	return &b
}

// Put implements mem.BufferPool.
func (p *bodies) Put(b *[]byte) {
	size := bits.Len(uint(cap(*b))) - 1
	if class := size - smallestBody; class >= 0 && class < len(p.sizes) && cap(*b) == 1<<size {
		p.sizes[class].Put(b)
	}
}

func newPayloadWriter(to flight.DataStreamWriter, schema *StreamSchema, descriptor *flight.FlightDescriptor) *payloadWriter {
	raw, _ := to.(messageSender)
	return &payloadWriter{to: to, raw: raw, bodies: &bodyPool, schema: schema, descriptor: descriptor}
}

// bodyPool is shared by all streams of the process, as gRPC's own pool is: it is
// a cache without state that anybody could see.
var bodyPool bodies

// sendSchema sends the schema unless it was sent.
func (w *payloadWriter) sendSchema() error {
	if w.schemaSent {
		return nil
	}
	w.schemaSent = true
	message := &flight.FlightData{FlightDescriptor: w.descriptor, DataHeader: w.schema.header}
	w.descriptor = nil
	w.sent.addData(message)
	return w.to.Send(message)
}

// sendRecord sends a record, behind the schema, with app_metadata if not nil.
func (w *payloadWriter) sendRecord(record arrow.RecordBatch, metadata []byte) error {
	if err := w.sendSchema(); err != nil {
		return err
	}
	p, err := ipc.GetRecordBatchPayload(record, ipc.WithAllocator(memory.DefaultAllocator))
	if err != nil {
		return fmt.Errorf("encoding a record batch: %w", err)
	}
	defer p.Release()
	return w.send(&p, metadata)
}

func (w *payloadWriter) send(p *ipc.Payload, metadata []byte) error {
	meta := p.Meta()
	defer meta.Release()
	message := &outgoing{pool: w.bodies}
	message.FlightDescriptor, w.descriptor = w.descriptor, nil
	message.DataHeader = meta.Bytes()
	message.AppMetadata = metadata
	var size counter
	if err := p.SerializeBody(&size); err != nil {
		return err
	}
	w.sent.add(message.DataHeader, int(size), len(message.AppMetadata))
	if size == 0 || w.raw == nil {
		if err := w.release(); err != nil {
			return err
		}
		body := make(filler, 0, size)
		if err := p.SerializeBody(&body); err != nil {
			return err
		}
		message.DataBody = body
		return w.to.Send(&message.FlightData)
	}
	message.body = w.bodies.Get(int(size))
	body := filler((*message.body)[:0])
	if err := p.SerializeBody(&body); err != nil {
		return err
	}
	if !w.holds {
		return w.raw.SendMsg(message)
	}
	err := w.release()
	w.held = message
	return err
}

// release sends the message that was held.
func (w *payloadWriter) release() error {
	message := w.held
	if message == nil {
		return nil
	}
	w.held = nil
	return w.raw.SendMsg(message)
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// filler appends what is written to it.
type filler []byte

func (f *filler) Write(p []byte) (int, error) {
	*f = append(*f, p...)
	return len(p), nil
}
