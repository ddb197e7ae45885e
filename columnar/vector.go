package columnar

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// BatchRows is how many rows operators aim for per batch: enough to amortise
// calls, small enough that a few columns stay in the L2 cache.
const BatchRows = 4096

// Vector is one column of a batch, or one constant repeated over it.
//
// Exactly one layout applies, by physical type:
//
//   - fixed width: Data holds Len little-endian values (bool: one byte each,
//     0 or 1; int16, int32, date32; int64, time64, timestamp, decimal64;
//     float32, float64; decimal128, interval and uuid 16 bytes each).
//   - utf8 and binary: Data holds the bytes, Offsets Len+1 positions in it.
//   - dictionary (Dict != nil): Codes holds Len indexes into Dict, which is a
//     plain utf8 or binary vector without nulls; Data and Offsets are unused.
//   - list: Offsets holds Len+1 positions in Children[0]; struct: Children
//     holds one vector of Len values per field.
//
// Valid is an Arrow validity bitmap of Len bits, least significant bit first;
// nil means that no value is null. A Const vector holds one physical value
// (and one validity bit) that stands for Len equal ones.
//
// Type is physical (catalog.PhysicalType): DECIMALs of up to 18 digits are
// arrow.Decimal64Type.
type Vector struct {
	Type     arrow.DataType
	Len      int
	Const    bool
	Valid    []byte
	Data     []byte
	Offsets  []int32
	Codes    []int32
	Dict     *Vector
	Children []*Vector
}

// Batch is Len rows of columns. When Sel is not nil only the rows it lists, in
// ascending order without repeats, are part of the batch: filters narrow Sel
// instead of copying columns.
type Batch struct {
	Cols []*Vector
	Len  int
	Sel  []int32
}

// Rows is how many rows the batch selects.
func (b *Batch) Rows() int {
	if b.Sel != nil {
		return len(b.Sel)
	}
	return b.Len
}

// Values reinterprets a fixed-width vector's data as a slice of T without
// copying. T must match the physical width; the slice has one element for a
// Const vector.
func Values[T any](v *Vector) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	n := len(v.Data) / size
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v.Data))), n)
}

// Bytes reinterprets a slice of fixed-width values as vector data without
// copying.
func Bytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// index maps a row to its physical position.
func (v *Vector) index(row int) int {
	if v.Const {
		return 0
	}
	return row
}

// IsNull reports whether a row is null.
func (v *Vector) IsNull(row int) bool {
	if v.Valid == nil {
		return false
	}
	i := v.index(row)
	return v.Valid[i>>3]&(1<<(i&7)) == 0
}

// BytesAt returns the bytes of a utf8, binary or dictionary value, aliasing the
// vector. The value of a null row is unspecified.
func (v *Vector) BytesAt(row int) []byte {
	i := v.index(row)
	if v.Dict != nil {
		return v.Dict.BytesAt(int(v.Codes[i]))
	}
	return v.Data[v.Offsets[i]:v.Offsets[i+1]]
}

// Width is the bytes per value of a fixed-width physical type, 0 for others.
// Booleans are one byte here, not one bit as in Arrow.
func Width(dt arrow.DataType) int {
	switch dt.ID() {
	case arrow.BOOL:
		return 1
	case arrow.INT16:
		return 2
	case arrow.INT32, arrow.DATE32, arrow.FLOAT32:
		return 4
	case arrow.INT64, arrow.TIME64, arrow.TIMESTAMP, arrow.DECIMAL64, arrow.FLOAT64:
		return 8
	case arrow.DECIMAL128, arrow.INTERVAL_MONTH_DAY_NANO:
		return 16
	case arrow.FIXED_SIZE_BINARY:
		return dt.(*arrow.FixedSizeBinaryType).ByteWidth
	}
	return 0
}
