package flightproto

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/columnar"
	"skein/sqlstate"
)

// maxSentDictionary is the most values of a dictionary that is sent as one.
const maxSentDictionary = 1 << 12

// dictionaries sends the texts that come with dictionaries in the first batch as
// Arrow dictionaries of int32 codes, which the reader's operators go on to work
// on. Dictionaries are sent when one differs from that before.
type dictionaries struct {
	to     *payloadWriter
	ipc    *ipc.Writer // has sent the current dictionaries, or is about to; nil for none
	again  bool        // ipc begins with the schema, which was sent
	schema *arrow.Schema
	cols   []int              // columns that go as codes
	last   []*columnar.Vector // the dictionaries sent last: copies of their own, by cols
}

// newDictionaries decides by the first batch of a stream; nil where no column has
// a dictionary that is worth sending.
func newDictionaries(b *columnar.Batch, schema *arrow.Schema, to *payloadWriter) *dictionaries {
	d := &dictionaries{to: to}
	fields := schema.Fields()
	for i, v := range b.Cols {
		if !sendable(v) || v.Dict.Len > maxSentDictionary || 2*v.Dict.Len > b.Rows() {
			continue
		}
		fields[i].Type = codesOf(fields[i].Type)
		d.cols = append(d.cols, i)
	}
	if d.cols == nil {
		return nil
	}
	d.last = make([]*columnar.Vector, len(d.cols))
	d.schema = arrow.NewSchema(fields, nil)
	return d
}

// codesOf is the type that texts of a type are sent as.
func codesOf(dt arrow.DataType) arrow.DataType {
	return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: dt}
}

// sendable reports whether a vector's dictionary can be sent as it is.
func sendable(v *columnar.Vector) bool {
	return v.Dict != nil && !v.Const && v.Dict.Valid == nil && v.Dict.Dict == nil && !v.Dict.Const
}

// coded returns a batch whose texts are codes of dictionaries that stay as they
// are, even if their owner uses the memory again.
func (d *dictionaries) coded(b *columnar.Batch) (*columnar.Batch, error) {
	out := &columnar.Batch{Len: b.Len, Sel: b.Sel, Cols: slices.Clone(b.Cols)}
	for i, col := range d.cols {
		v := *b.Cols[col]
		if !sendable(&v) {
			spelled, err := numbered(&v)
			if err != nil {
				return nil, err
			}
			v = *spelled
		}
		if d.last[i] == nil || !sameTexts(d.last[i], v.Dict) {
			d.last[i] = v.Dict.Clone()
			// The library's writer takes texts for equal that differ in final zero
			// bytes; a new one has sent none yet.
			d.ipc = nil
		}
		v.Dict = d.last[i]
		out.Cols[col] = &v
	}
	return out, nil
}

// sameTexts compares dictionaries.
func sameTexts(a, b *columnar.Vector) bool {
	return a.Len == b.Len && slices.Equal(a.Offsets[:a.Len+1], b.Offsets[:b.Len+1]) && bytes.Equal(a.Data, b.Data)
}

// numbered makes texts that lie one after the other their own dictionary.
func numbered(v *columnar.Vector) (*columnar.Vector, error) {
	flat, err := v.Flatten()
	if err != nil {
		return nil, err
	}
	out := &columnar.Vector{Type: flat.Type, Len: flat.Len, Valid: flat.Valid, Codes: make([]int32, flat.Len)}
	for i := range out.Codes {
		out.Codes[i] = int32(i)
	}
	out.Dict = &columnar.Vector{Type: flat.Type, Len: flat.Len, Offsets: flat.Offsets, Data: flat.Data}
	return out, nil
}

// write sends a record of the coded schema.
func (d *dictionaries) write(record arrow.RecordBatch, metadata []byte) error {
	if metadata != nil {
		return sqlstate.New(sqlstate.InternalError, "a stream with dictionaries carries no metadata")
	}
	if d.ipc == nil {
		d.ipc = ipc.NewWriterWithPayloadWriter(d, ipc.WithSchema(d.schema), ipc.WithAllocator(memory.DefaultAllocator))
		d.again = d.to.schemaSent
	}
	return d.ipc.Write(record)
}

// Start implements ipc.PayloadWriter.
func (d *dictionaries) Start() error { return nil }

// WritePayload implements ipc.PayloadWriter.
func (d *dictionaries) WritePayload(p ipc.Payload) error {
	if d.again {
		d.again = false
		return nil
	}
	d.to.schemaSent = true
	return d.to.send(&p, nil)
}

// Close implements ipc.PayloadWriter.
func (d *dictionaries) Close() error { return nil }
