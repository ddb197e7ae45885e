package columnar

import (
	"encoding/binary"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// texts is an array of three texts with the given offsets into ten bytes.
func texts(dt arrow.DataType, offsets ...int64) arrow.Array {
	var raw []byte
	for _, o := range offsets {
		if arrow.IsLargeBinaryLike(dt.ID()) {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(o))
		} else {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(o))
		}
	}
	data := array.NewData(dt, 3, []*memory.Buffer{nil, memory.NewBufferBytes(raw), memory.NewBufferBytes([]byte("0123456789"))}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

func TestValidate(t *testing.T) {
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary} {
		for _, tc := range []struct {
			what    string
			offsets []int64
			sound   bool
		}{
			{"good", []int64{0, 3, 3, 10}, true},
			{"backwards", []int64{0, 7, 3, 10}, false},
			{"negative", []int64{-1, 3, 3, 10}, false},
			{"a leap within", []int64{0, 1 << 20, 3, 10}, false},
		} {
			arr := texts(dt, tc.offsets...)
			if err := Validate(arr); (err == nil) != tc.sound {
				t.Errorf("%s, %s: %v", dt, tc.what, err)
			}
			arr.Release()
		}
	}
	indices := array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, 1, []*memory.Buffer{nil, memory.NewBufferBytes([]byte{2, 0, 0, 0})}, nil, 0, 0))
	defer indices.Release()
	bad := texts(arrow.BinaryTypes.String, 0, 7, 3, 10)
	defer bad.Release()
	dictionary := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, indices, bad)
	defer dictionary.Release()
	if Validate(dictionary) == nil {
		t.Error("the dictionary's own offsets were not looked at")
	}
}
