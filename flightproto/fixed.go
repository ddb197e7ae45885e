package flightproto

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// FixedRecord decodes a message with a record batch all of whose columns are
// numbers or of other types of whole bytes, such as the parameters of a statement
// are, for a schema that is known. It spares the caller a reader of the whole
// stream. The record refers to the message's body; the caller releases it. It is
// nil where the message is not like that, well-formed or not: a reader then knows.
func FixedRecord(schema *arrow.Schema, m *flight.FlightData) arrow.RecordBatch {
	raw, body := m.GetDataHeader(), m.GetDataBody()
	kind, rows, err := messageHeader(raw)
	if err != nil || kind != headerRecordBatch || rows < 0 || rows > int64(len(body)) {
		return nil
	}
	message, _ := rootTable(raw)
	at, ok := message.field(2, 4)
	if !ok {
		return nil
	}
	batch, ok := tableAt(raw, at)
	if !ok {
		return nil
	}
	if _, compressed := batch.field(3, 4); compressed {
		return nil
	}
	fields := schema.NumFields()
	nodes, ok := batch.structs(1, fields, 16)
	if !ok {
		return nil
	}
	buffers, ok := batch.structs(2, 2*fields, 16)
	if !ok {
		return nil
	}
	columns := make([]arrow.Array, 0, fields)
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i := range fields {
		node := nodes[16*i:]
		dt, width := schema.Field(i).Type, 0
		if fixed, ok := dt.(arrow.FixedWidthDataType); ok && arrow.IsPrimitive(dt.ID()) {
			width = fixed.BitWidth()
		}
		length, nulls := int64(binary.LittleEndian.Uint64(node)), int64(binary.LittleEndian.Uint64(node[8:]))
		if width < 8 || width%8 != 0 || length != rows || nulls < 0 || nulls > rows {
			return nil
		}
		validity, ok := bufferOf(buffers[32*i:], body, (rows+7)/8, nulls == 0)
		if !ok {
			return nil
		}
		values, ok := bufferOf(buffers[32*i+16:], body, rows*int64(width/8), false)
		if !ok {
			return nil
		}
		data := array.NewData(dt, int(rows), []*memory.Buffer{validity, values}, nil, int(nulls), 0)
		columns = append(columns, array.MakeFromData(data))
		data.Release()
	}
	return array.NewRecordBatch(schema, columns, rows)
}

// bufferOf is a buffer of at least so many bytes in a body; an absent one is nil.
func bufferOf(entry, body []byte, least int64, mayLack bool) (*memory.Buffer, bool) {
	offset, length := int64(binary.LittleEndian.Uint64(entry)), int64(binary.LittleEndian.Uint64(entry[8:]))
	if mayLack && length == 0 {
		return nil, true
	}
	if offset < 0 || length < least || offset > int64(len(body)) || length > int64(len(body))-offset {
		return nil, false
	}
	return memory.NewBufferBytes(body[offset : offset+length : offset+length]), true
}

// structs are the bytes of a vector of exactly n structs of some size.
func (t table) structs(index, n, size int) ([]byte, bool) {
	at, ok := t.field(index, 4)
	if !ok {
		return nil, false
	}
	at += int(binary.LittleEndian.Uint32(t.raw[at:]))
	if at < 0 || at+4 > len(t.raw) || int(binary.LittleEndian.Uint32(t.raw[at:])) != n || at+4+n*size > len(t.raw) {
		return nil, false
	}
	return t.raw[at+4 : at+4+n*size], true
}
