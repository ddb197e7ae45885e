package flightproto

import (
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// messageSender is what gRPC streams have besides Send.
type messageSender interface{ SendMsg(m any) error }

// payloadWriter sends IPC messages as FlightData. It copies a body once, into
// pooled memory that the transport gives back.
type payloadWriter struct {
	to         flight.DataStreamWriter
	raw        messageSender // the same stream; nil if it has no SendMsg
	bodies     *bodies
	descriptor *flight.FlightDescriptor // rides on the next message
	started    bool                     // the schema, an IPC writer's first payload, came
	schemaSent bool                     // it need not be sent when it comes
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

func newPayloadWriter(to flight.DataStreamWriter, descriptor *flight.FlightDescriptor) *payloadWriter {
	raw, _ := to.(messageSender)
	return &payloadWriter{to: to, raw: raw, bodies: &bodyPool, descriptor: descriptor}
}

// bodyPool is shared by all streams of the process, as gRPC's own pool is: it is
// a cache without state that anybody could see.
var bodyPool bodies

// Start implements ipc.PayloadWriter.
func (*payloadWriter) Start() error { return nil }

// Close implements ipc.PayloadWriter.
func (*payloadWriter) Close() error { return nil }

// sendSchema sends the schema unless it was sent.
func (w *payloadWriter) sendSchema(schema *arrow.Schema) error {
	if w.started || w.schemaSent {
		return nil
	}
	p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer p.Release()
	if err := w.send(&p); err != nil {
		return err
	}
	w.schemaSent = true
	return nil
}

// WritePayload implements ipc.PayloadWriter.
func (w *payloadWriter) WritePayload(p ipc.Payload) error {
	first := !w.started
	w.started = true
	if first && w.schemaSent {
		return nil
	}
	return w.send(&p)
}

func (w *payloadWriter) send(p *ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	message := &outgoing{pool: w.bodies}
	message.FlightDescriptor, w.descriptor = w.descriptor, nil
	message.DataHeader = meta.Bytes()
	var size counter
	if err := p.SerializeBody(&size); err != nil {
		return err
	}
	if size == 0 || w.raw == nil {
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
