package flightproto

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"skein/sqlstate"
)

// Bounds of an IPC message that somebody else sends.
const (
	maxBatchRows  = 1 << 26
	maxIPCFields  = 1 << 16
	maxIPCNesting = 64
)

// Where things stand in the flatbuffers of Arrow's IPC format (Message.fbs and
// Schema.fbs of the Arrow specification): the slots of tables, the kinds of
// messages, the type that has a vector, and the sizes of what vectors hold.
const (
	slotHeaderType, slotHeader                = 1, 2
	slotSchemaFields, slotSchemaMetadata      = 1, 2
	slotType, slotTypeTable                   = 2, 3
	slotChildren, slotFieldMetadata           = 5, 6
	dictionaryData                            = 1
	batchLength, batchNodes, batchBuffers     = 0, 1, 2
	batchCompression, batchVariadic           = 3, 4
	unionIDs                                  = 1
	kindSchema, kindDictionary, typeUnion     = 1, 2, 14
	sizeOffset, sizeInt, sizeLong, sizeStruct = 4, 4, 8, 16
)

// CheckData checks, before Arrow's library reads a message, what that allocates
// memory by without looking first: how many fields, rows and buffers there are
// said to be, and how many bytes compressed buffers are said to hold, of which a
// message may have limit. Errors are 08P01 and, above the bounds, 54000.
func CheckData(d *flight.FlightData, limit int64) error {
	if len(d.GetDataHeader()) == 0 {
		return nil // only metadata
	}
	c := &ipcCheck{buf: d.GetDataHeader(), body: d.GetDataBody(), limit: limit}
	message, ok := rootTable(c.buf)
	if !ok {
		return c.bad()
	}
	kindAt, ok := message.field(slotHeaderType, 1)
	if !ok {
		return c.bad()
	}
	header, ok := c.inner(message, slotHeader)
	if !ok {
		return c.bad()
	}
	switch c.buf[kindAt] {
	case kindSchema:
		return c.schema(header)
	case kindDictionary:
		if data, ok := c.inner(header, dictionaryData); ok {
			return c.batch(data)
		}
	case headerRecordBatch:
		return c.batch(header)
	}
	return c.bad()
}

// ipcCheck reads a flatbuffer without trusting it.
type ipcCheck struct {
	buf, body []byte
	limit     int64
	fields    int
}

func (c *ipcCheck) bad() error {
	return sqlstate.New(sqlstate.ProtocolViolation, "a message of the stream is no Arrow IPC message, or is damaged")
}

func (c *ipcCheck) tooLarge(what string, n, limit int64) error {
	return sqlstate.New(sqlstate.ProgramLimitExceeded, "a message has %d %s, the limit is %d", n, what, limit).
		WithHint("Send smaller batches.")
}

// inner is the table that a table's slot leads to.
func (c *ipcCheck) inner(t table, slot int) (table, bool) {
	at, ok := t.field(slot, sizeOffset)
	if !ok {
		return table{}, false
	}
	return tableAt(c.buf, at)
}

// vector is the start and the length of a table's vector of elements of a size,
// which is empty if the table has none.
func (c *ipcCheck) vector(t table, slot, size int) (start, length int, ok bool) {
	at, has := t.field(slot, sizeOffset)
	if !has {
		return 0, 0, true
	}
	start = at + int(binary.LittleEndian.Uint32(c.buf[at:]))
	if start > len(c.buf)-4 {
		return 0, 0, false
	}
	length = int(binary.LittleEndian.Uint32(c.buf[start:]))
	start += 4
	return start, length, length <= (len(c.buf)-start)/size
}

func (c *ipcCheck) schema(t table) error {
	if _, _, ok := c.vector(t, slotSchemaMetadata, sizeOffset); !ok {
		return c.bad()
	}
	return c.children(t, slotSchemaFields, 0)
}

// children checks a vector of fields.
func (c *ipcCheck) children(t table, slot, depth int) error {
	start, length, ok := c.vector(t, slot, sizeOffset)
	if !ok {
		return c.bad()
	}
	// Offsets may lead to one place many times over, so a small message can hold
	// any number of fields.
	if c.fields += length; c.fields > maxIPCFields {
		return c.tooLarge("fields", int64(c.fields), maxIPCFields)
	}
	if depth > maxIPCNesting {
		return c.tooLarge("levels of nested types", int64(depth), maxIPCNesting)
	}
	for i := range length {
		field, ok := tableAt(c.buf, start+sizeOffset*i)
		if !ok {
			return c.bad()
		}
		if err := c.field(field, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *ipcCheck) field(t table, depth int) error {
	if _, _, ok := c.vector(t, slotFieldMetadata, sizeOffset); !ok {
		return c.bad()
	}
	if at, ok := t.field(slotType, 1); ok && c.buf[at] == typeUnion {
		union, ok := c.inner(t, slotTypeTable)
		if !ok {
			return c.bad()
		}
		if _, _, ok := c.vector(union, unionIDs, sizeInt); !ok {
			return c.bad()
		}
	}
	return c.children(t, slotChildren, depth+1)
}

// long is a number at a place that is known to be within the bytes.
func (c *ipcCheck) long(at int) int64 { return int64(binary.LittleEndian.Uint64(c.buf[at:])) }

// batch checks the header of a record batch against its body.
func (c *ipcCheck) batch(t table) error {
	if at, ok := t.field(batchLength, sizeLong); ok {
		rows := c.long(at)
		if rows < 0 {
			return c.bad()
		}
		if rows > maxBatchRows {
			return c.tooLarge("rows", rows, maxBatchRows)
		}
	}
	nodes, n, ok := c.vector(t, batchNodes, sizeStruct)
	if !ok {
		return c.bad()
	}
	for i := range n {
		length := c.long(nodes + sizeStruct*i)
		if length < 0 {
			return c.bad()
		}
		// A list may have many more elements than the batch has rows.
		if length > math.MaxInt32 {
			return c.tooLarge("values in a column", length, math.MaxInt32)
		}
	}
	if _, _, ok := c.vector(t, batchVariadic, sizeLong); !ok {
		return c.bad()
	}
	buffers, n, ok := c.vector(t, batchBuffers, sizeStruct)
	if !ok {
		return c.bad()
	}
	_, compressed := t.field(batchCompression, sizeOffset)
	var total int64
	for i := range n {
		offset := c.long(buffers + sizeStruct*i)
		length := c.long(buffers + sizeStruct*i + sizeLong)
		if offset < 0 || length < 0 || offset > int64(len(c.body)) || length > int64(len(c.body))-offset {
			return c.bad()
		}
		if !compressed || length < sizeLong {
			continue
		}
		size := int64(binary.LittleEndian.Uint64(c.body[offset:]))
		if size < -1 { // -1 stands for a buffer that is not compressed
			return c.bad()
		}
		if size > c.limit-total {
			return c.tooLarge("bytes when decompressed, or more", size, c.limit)
		}
		total += max(size, 0)
	}
	return nil
}
