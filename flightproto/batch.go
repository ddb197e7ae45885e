package flightproto

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/metadata"

	"skein/catalog"
	"skein/columnar"
	"skein/sqlstate"
)

// targetMessageBytes is where a batch is cut into several Flight messages. It
// leaves room below the 16 MiB that ADBC's drivers take unless told otherwise;
// only a single row can be larger.
const targetMessageBytes = 12 << 20

// PhysicalSchema maps every field to its physical type (catalog.PhysicalType),
// the form in which nodes exchange batches.
func PhysicalSchema(s *arrow.Schema) *arrow.Schema {
	fields := s.Fields()
	for i := range fields {
		fields[i].Type = catalog.PhysicalType(fields[i].Type)
	}
	return arrow.NewSchema(fields, nil)
}

// BatchWriter sends batches as a Flight stream. It is used by one goroutine.
type BatchWriter struct {
	schema   *arrow.Schema
	payloads *payloadWriter
	small    gathered
	codes    bool          // texts may be sent as dictionaries
	dicts    *dictionaries // of a stream that does so
}

// NewBatchWriter starts a stream of batches of the given physical schema. The
// descriptor, if not nil, rides on the first message.
func NewBatchWriter(to flight.DataStreamWriter, schema *arrow.Schema, descriptor *flight.FlightDescriptor) *BatchWriter {
	return NewStreamWriter(to, NewStreamSchema(schema), descriptor)
}

// NewStreamWriter is NewBatchWriter with a schema that was encoded before.
func NewStreamWriter(to flight.DataStreamWriter, schema *StreamSchema, descriptor *flight.FlightDescriptor) *BatchWriter {
	return &BatchWriter{schema: schema.schema, payloads: newPayloadWriter(to, schema, descriptor)}
}

// SendDictionaries lets texts that come with dictionaries be sent with them: the
// reader must be one that takes them (Ticket.dictionaries). It is called before
// the first Write; such a stream carries no metadata, and its small batches are
// not gathered, which would spell their texts out.
func (w *BatchWriter) SendDictionaries() { w.codes = true }

// NewPullWriter starts the answer to a pull, which EndPull ends. It has no schema in
// front, for the reader knows it, and its last batch waits for the end.
func NewPullWriter(to flight.DataStreamWriter, schema *StreamSchema) *BatchWriter {
	w := NewStreamWriter(to, schema, nil)
	w.payloads.schemaSent, w.payloads.holds = true, true
	return w
}

// Write sends the selected rows of a batch, in several messages when it is
// large, and keeps no reference to it. Small batches are gathered; Close,
// WriteMetadata and Forward send what was. Errors of the transport are returned
// as it gave them.
func (w *BatchWriter) Write(b *columnar.Batch) error {
	if w.codes || !w.small.takes(b) {
		if err := w.flush(); err != nil {
			return err
		}
		return w.write(b, nil)
	}
	if err := w.small.add(b); err != nil {
		return err
	}
	if w.small.enough() {
		return w.flush()
	}
	return nil
}

// Gather says that the rows to come are few and come soon, so that the first ones
// may wait for the others.
func (w *BatchWriter) Gather() { w.small.sent = max(w.small.sent, largeRows) }

// flush sends the batches gathered.
func (w *BatchWriter) flush() error {
	b := w.small.take()
	if b == nil {
		return nil
	}
	return w.write(b, nil)
}

// WriteLast is Write for the last rows of a portion: what was gathered and these
// rows are sent at once, and the last message carries the metadata.
func (w *BatchWriter) WriteLast(b *columnar.Batch, metadata []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.write(b, metadata)
}

func (w *BatchWriter) write(b *columnar.Batch, metadata []byte) error {
	w.small.sent += b.Rows()
	schema := w.schema
	if w.codes && w.dicts == nil && !w.payloads.schemaSent {
		w.dicts = newDictionaries(b, schema, w.payloads)
	}
	if w.dicts != nil {
		var err error
		if b, err = w.dicts.coded(b); err != nil {
			return err
		}
		schema = w.dicts.schema
	}
	record, err := columnar.ToArrow(b, schema)
	if err != nil {
		return err
	}
	defer record.Release()
	return w.writeRecord(record, metadata)
}

// writeRecord sends a record, cut in halves until each is small enough: rows may
// be of very different sizes. The last one carries the metadata.
func (w *BatchWriter) writeRecord(record arrow.RecordBatch, metadata []byte) error {
	rows := record.NumRows()
	if rows <= 1 || recordBytes(record) <= targetMessageBytes {
		if w.dicts != nil {
			return w.dicts.write(record, metadata)
		}
		return w.payloads.sendRecord(record, metadata)
	}
	for i, half := range [][2]int64{{0, rows / 2}, {rows / 2, rows}} {
		slice := record.NewSlice(half[0], half[1])
		riding := metadata
		if i == 0 {
			riding = nil
		}
		err := w.writeRecord(slice, riding)
		slice.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteMetadata sends a message without rows.
func (w *BatchWriter) WriteMetadata(metadata []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	message := &flight.FlightData{AppMetadata: metadata}
	w.payloads.sent.addData(message)
	return w.payloads.to.Send(message)
}

// Close ends the stream; the schema is sent even when no batch was.
func (w *BatchWriter) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.payloads.sendSchema()
}

// Trailer is the end marker of a stream that was closed: sent behind the
// messages, it proves to Stream and Forwarder that all of them came. Messages
// that were forwarded do not count.
func (w *BatchWriter) Trailer() metadata.MD { return w.payloads.sent.trailer() }

// recordBytes estimates the bytes of a record's values.
func recordBytes(record arrow.RecordBatch) int64 {
	var total int64
	for _, column := range record.Columns() {
		total += arrayBytes(column)
	}
	return total
}

func arrayBytes(a arrow.Array) int64 {
	n := int64(a.Len())
	switch a := a.(type) {
	case *array.String:
		return 4*n + int64(len(a.ValueBytes()))
	case *array.Binary:
		return 4*n + int64(len(a.ValueBytes()))
	case *array.List:
		if a.Len() == 0 {
			return 0
		}
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(a.Len() - 1)
		values := a.ListValues()
		if values.Len() == 0 {
			return 4 * n
		}
		return 4*n + arrayBytes(values)*(to-from)/int64(values.Len())
	case *array.Struct:
		var total int64
		for i := range a.NumField() {
			total += arrayBytes(a.Field(i))
		}
		return total
	}
	if fixed, ok := a.DataType().(arrow.FixedWidthDataType); ok {
		return n * int64(fixed.BitWidth()) / 8
	}
	return n
}

// BatchReader receives a Flight stream of batches in a physical schema. It is
// used by one goroutine.
type BatchReader struct {
	schema   *arrow.Schema
	from     *counted
	reader   *flight.Reader
	importer columnar.Importer
	metadata []byte
	done     bool
}

// NewBatchReader reads batches of the given physical schema. Nothing is
// received before the first Next.
func NewBatchReader(from flight.DataStreamReader, schema *arrow.Schema) *BatchReader {
	return &BatchReader{schema: schema, from: &counted{from: from}}
}

// counted counts the messages that it passes on.
type counted struct {
	from flight.DataStreamReader
	came tally
}

// Recv implements flight.DataStreamReader.
func (c *counted) Recv() (*flight.FlightData, error) {
	data, err := c.from.Recv()
	if err == nil {
		c.came.addData(data)
	}
	return data, err
}

// ReceivedBytes is the size of the messages received so far.
func (r *BatchReader) ReceivedBytes() int64 { return int64(r.from.came.bytes) }

// Schema is the physical schema.
func (r *BatchReader) Schema() *arrow.Schema { return r.schema }

// Metadata is the app_metadata of the newest message, nil if it had none.
func (r *BatchReader) Metadata() []byte { return r.metadata }

// Next returns the next batch, nil at the end of the stream. The batch is the
// caller's to keep: its memory is neither reused nor freed by hand. Errors of the transport are returned as it gave
// them; a stream of another schema is a sqlstate.ProtocolViolation.
func (r *BatchReader) Next() (*columnar.Batch, error) {
	if r.done {
		return nil, nil
	}
	if r.reader == nil {
		if err := r.open(); err != nil {
			return nil, r.end(err)
		}
	}
	for {
		record, err := r.reader.Read()
		if err != nil {
			return nil, r.end(err)
		}
		r.metadata = r.reader.LatestAppMetadata()
		if record.NumRows() == 0 {
			continue
		}
		batch, err := r.importer.FromRecord(record, r.schema)
		if err != nil {
			return nil, r.end(err)
		}
		return batch, nil
	}
}

func (r *BatchReader) open() error {
	reader, err := flight.NewRecordReader(r.from, ipc.WithAllocator(memory.DefaultAllocator))
	if err != nil {
		return err
	}
	r.reader = reader
	return checkSchema(reader.Schema(), r.schema)
}

// end remembers that the stream is over; the end itself is no error.
func (r *BatchReader) end(err error) error {
	r.done = true
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Close releases what the reader holds; the transport's stream is its owner's.
func (r *BatchReader) Close() {
	r.done = true
	if r.reader != nil {
		r.reader.Release()
		r.reader = nil
	}
}

// checkSchema compares types by position: names and nullability were agreed on
// in the plan. Texts may come with dictionaries.
func checkSchema(got, want *arrow.Schema) error {
	if got.NumFields() != want.NumFields() {
		return sqlstate.New(sqlstate.ProtocolViolation, "stream has %d columns, expected %d", got.NumFields(), want.NumFields())
	}
	for i := range want.NumFields() {
		g, w := got.Field(i), want.Field(i)
		text := w.Type.ID() == arrow.STRING || w.Type.ID() == arrow.BINARY
		if !arrow.TypeEqual(g.Type, w.Type) && !(text && arrow.TypeEqual(g.Type, codesOf(w.Type))) {
			return sqlstate.New(sqlstate.ProtocolViolation, "stream column %q is of type %s, expected %s", g.Name, g.Type, w.Type)
		}
	}
	return nil
}

// withContext runs a blocking step of a stream so that ctx, when it is not the
// stream's own, ends the stream by cancel.
func withContext(ctx context.Context, cancel context.CancelFunc, step func() error) error {
	if ctx.Done() == nil {
		return step()
	}
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	return step()
}
