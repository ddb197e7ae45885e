package columnar

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"skein/sqlstate"
)

// ToArrow makes a record batch of the selected rows. The schema's fields pair
// with the columns by position and may be physical or public types: decimal64
// vectors widen to decimal128 fields, dictionaries are written out unless the
// field is a dictionary of int32 indexes. What needs no conversion shares the
// batch's memory, so the record is valid only as long as the batch is. The
// caller releases it.
func ToArrow(b *Batch, schema *arrow.Schema) (arrow.RecordBatch, error) {
	if schema.NumFields() != len(b.Cols) {
		return nil, sqlstate.New(sqlstate.InternalError, "a batch of %d columns does not match a schema of %d fields", len(b.Cols), schema.NumFields())
	}
	cols := make([]arrow.Array, 0, len(b.Cols))
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, v := range b.Cols {
		arr, err := ToArray(v, b.Sel, schema.Field(i).Type)
		if err != nil {
			return nil, err
		}
		cols = append(cols, arr)
	}
	return array.NewRecordBatch(schema, cols, int64(b.Rows())), nil
}

// ToArray is ToArrow for one column.
func ToArray(v *Vector, sel []int32, dt arrow.DataType) (arrow.Array, error) {
	data, err := toData(v, sel, dt)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

func toData(v *Vector, sel []int32, dt arrow.DataType) (*array.Data, error) {
	if sel != nil {
		v = Gather(v, sel, nil)
	}
	if dt.ID() == arrow.NULL && v.Type.ID() == arrow.NULL {
		return array.NewData(dt, v.Len, []*memory.Buffer{nil}, nil, v.Len, 0), nil
	}
	if d, ok := dt.(*arrow.DictionaryType); ok {
		return dictData(v, d)
	}
	v, err := v.Flatten()
	if err != nil {
		return nil, err
	}
	if !arrow.TypeEqual(v.Type, dt) {
		if v, err = widenDecimal(v, dt); err != nil {
			return nil, err
		}
	}
	nulls := 0
	var validity *memory.Buffer
	if v.Valid != nil {
		nulls = v.NullCount()
		validity = memory.NewBufferBytes(v.Valid[:BitmapBytes(v.Len)])
	}
	buffers := []*memory.Buffer{validity}
	var children []arrow.ArrayData
	switch {
	case dt.ID() == arrow.BOOL:
		buffers = append(buffers, memory.NewBufferBytes(packBits(v.Data[:v.Len])))
	case Width(dt) > 0:
		buffers = append(buffers, memory.NewBufferBytes(v.Data))
	case dt.ID() == arrow.STRING || dt.ID() == arrow.BINARY:
		buffers = append(buffers, memory.NewBufferBytes(Bytes(v.Offsets)), memory.NewBufferBytes(v.Data))
	default:
		if dt.ID() == arrow.LIST {
			buffers = append(buffers, memory.NewBufferBytes(Bytes(v.Offsets)))
		}
		for i, c := range v.Children {
			child, err := toData(c, nil, childType(dt, i))
			if err != nil {
				return nil, err
			}
			defer child.Release()
			children = append(children, child)
		}
	}
	return array.NewData(dt, v.Len, buffers, children, nulls, 0), nil
}

func childType(dt arrow.DataType, i int) arrow.DataType {
	switch t := dt.(type) {
	case *arrow.ListType:
		return t.Elem()
	case *arrow.StructType:
		return t.Field(i).Type
	}
	return arrow.Null
}

// packBits turns booleans of one byte into Arrow's bits.
func packBits(in []byte) []byte {
	out := make([]byte, BitmapBytes(len(in)))
	for i, x := range in {
		out[i>>3] |= (x & 1) << (i & 7)
	}
	return out
}

func dictData(v *Vector, d *arrow.DictionaryType) (*array.Data, error) {
	if d.IndexType.ID() != arrow.INT32 || v.Dict == nil || v.Const || !arrow.TypeEqual(d.ValueType, v.Type) {
		return nil, sqlstate.New(sqlstate.InternalError, "a vector of %s cannot be written as %s", v.Type, d)
	}
	values, err := toData(v.Dict, nil, d.ValueType)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	nulls := 0
	var validity *memory.Buffer
	if v.Valid != nil {
		nulls = v.NullCount()
		validity = memory.NewBufferBytes(v.Valid[:BitmapBytes(v.Len)])
	}
	buffers := []*memory.Buffer{validity, memory.NewBufferBytes(Bytes(v.Codes[:v.Len]))}
	return array.NewDataWithDictionary(d, v.Len, buffers, nulls, 0, values), nil
}

// widenDecimal reconciles a plain vector with the field type it is written as,
// which may only differ in the width of decimals (nested types included).
func widenDecimal(v *Vector, dt arrow.DataType) (*Vector, error) {
	_, s, ok := decimalOf(dt)
	_, vs, vok := decimalOf(v.Type)
	switch {
	case ok && vok && s == vs && v.Type.ID() == arrow.DECIMAL64 && dt.ID() == arrow.DECIMAL128:
		in := Values[int64](v)
		out := make([]decimal128.Num, len(in))
		for i, x := range in {
			out[i] = decimal128.FromI64(x)
		}
		return &Vector{Type: dt, Len: v.Len, Valid: v.Valid, Data: Bytes(out)}, nil
	case ok && vok && s == vs:
		return representDecimal(v, dt, mustPrecision(dt), s, nil)
	case v.Type.ID() == arrow.LIST && dt.ID() == arrow.LIST,
		v.Type.ID() == arrow.STRUCT && dt.ID() == arrow.STRUCT && len(v.Children) == dt.(*arrow.StructType).NumFields():
		return v, nil // toData descends into the children
	case v.Type.ID() == arrow.TIMESTAMP && dt.ID() == arrow.TIMESTAMP &&
		v.Type.(*arrow.TimestampType).Unit == dt.(*arrow.TimestampType).Unit:
		return v, nil
	case v.Type.ID() == arrow.NULL:
		return NewNull(dt, v.Len).Flatten()
	}
	return nil, sqlstate.New(sqlstate.InternalError, "a vector of %s cannot be written as %s", v.Type, dt)
}

func mustPrecision(dt arrow.DataType) int32 {
	p, _, _ := decimalOf(dt)
	return p
}
