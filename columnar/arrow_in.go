package columnar

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"skein/sqlstate"
)

// FromArrow makes a vector of an Arrow array. Where the layouts agree it shares
// the array's memory, so the array must be kept retained as long as the vector
// is used.
//
// want is the physical type to produce, nil for NaturalType. Every value is
// converted without loss or FromArrow fails with an error that names the value
// (SQLSTATE 22003 or 22008); when want is of another family than the array it
// fails with 42804, as that would be a cast. Text is not checked to be UTF-8:
// see CheckUTF8.
func FromArrow(arr arrow.Array, want arrow.DataType) (*Vector, error) {
	v, err := natural(arr)
	if err != nil {
		return nil, err
	}
	return as(v, want)
}

// as turns a natural vector into one of the wanted type.
func as(v *Vector, want arrow.DataType) (*Vector, error) {
	if want == nil || arrow.TypeEqual(v.Type, want) {
		return v, nil
	}
	return represent(v, want)
}

// FromRecord converts a record batch column by column, to the physical types
// of schema, whose fields pair with the record's by position (nil: natural
// types). Errors name the column. The batch shares the record's memory.
func FromRecord(rec arrow.RecordBatch, schema *arrow.Schema) (*Batch, error) {
	return fromRecord(rec, schema, func(_ int, arr arrow.Array) (*Vector, error) { return natural(arr) })
}

// fromRecord is FromRecord with the conversion of a column to its natural type.
func fromRecord(rec arrow.RecordBatch, schema *arrow.Schema, column func(int, arrow.Array) (*Vector, error)) (*Batch, error) {
	if schema != nil && schema.NumFields() != int(rec.NumCols()) {
		return nil, sqlstate.New(sqlstate.DatatypeMismatch, "a batch has %d columns where %d are expected", rec.NumCols(), schema.NumFields())
	}
	b := &Batch{Cols: make([]*Vector, rec.NumCols()), Len: int(rec.NumRows())}
	for i, col := range rec.Columns() {
		var want arrow.DataType
		if schema != nil {
			want = schema.Field(i).Type
		}
		v, err := column(i, col)
		if err == nil {
			v, err = as(v, want)
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
		}
		b.Cols[i] = v
	}
	return b, nil
}

// natural converts to NaturalType.
func natural(arr arrow.Array) (*Vector, error) {
	switch a := arr.(type) {
	case array.ExtensionArray:
		return natural(a.Storage())
	case *array.Dictionary:
		return fromDictionary(a)
	case *array.RunEndEncoded:
		return fromRunEnds(a)
	}
	dt, err := NaturalType(arr.DataType())
	if err != nil {
		return nil, err
	}
	if arr.DataType().ID() == arrow.NULL {
		return NewNull(arrow.Null, arr.Len()), nil
	}
	v := &Vector{Type: dt, Len: arr.Len(), Valid: arrowValidity(arr)}
	if err := fillNatural(v, arr); err != nil {
		return nil, err
	}
	return v, nil
}

// arrowValidity returns the array's bitmap starting at bit 0, nil without nulls.
func arrowValidity(arr arrow.Array) []byte {
	if arr.NullN() == 0 || arr.Len() == 0 {
		return nil
	}
	bitmap := arr.NullBitmapBytes()
	if len(bitmap) == 0 {
		return nil
	}
	return sliceBits(bitmap, arr.Data().Offset(), arr.Len())
}

// fillNatural sets the value buffers of v, whose type is arr's natural one.
func fillNatural(v *Vector, arr arrow.Array) error {
	switch a := arr.(type) {
	case *array.Boolean:
		v.Data = make([]byte, a.Len())
		for i := range v.Data {
			if a.Value(i) {
				v.Data[i] = 1
			}
		}
	case *array.Int8:
		v.Data = widen[int16](a.Int8Values())
	case *array.Uint8:
		v.Data = widen[int16](a.Uint8Values())
	case *array.Uint16:
		v.Data = widen[int32](a.Uint16Values())
	case *array.Uint32:
		v.Data = widen[int64](a.Uint32Values())
	case *array.Uint64:
		out := make([]word128, a.Len())
		for i, x := range a.Uint64Values() {
			out[i].a = x
		}
		v.Data = Bytes(out)
	case *array.Float16:
		out := make([]float32, a.Len())
		for i, x := range a.Values() {
			out[i] = x.Float32()
		}
		v.Data = Bytes(out)
	case *array.String, *array.Binary:
		fillOffsets(v, arr.Data())
	case *array.LargeString, *array.LargeBinary:
		return fillLargeOffsets(v, arr.Data())
	case *array.StringView:
		return fillStrings(v, func(i int) []byte { return unsafeBytes(a.Value(i)) })
	case *array.BinaryView:
		return fillStrings(v, a.Value)
	case *array.FixedSizeBinary:
		if v.Type.ID() == arrow.BINARY {
			return fillStrings(v, a.Value)
		}
		v.Data = fixedBytes(arr.Data(), 16)
	default:
		return fillMore(v, arr)
	}
	return nil
}

// fillMore continues fillNatural with temporal, decimal and nested types.
func fillMore(v *Vector, arr arrow.Array) error {
	switch a := arr.(type) {
	case *array.Date64:
		return fillDate64(v, a)
	case *array.Time32:
		factor := int64(1_000)
		if a.DataType().(*arrow.Time32Type).Unit == arrow.Second {
			factor = 1_000_000
		}
		out := make([]int64, a.Len())
		for i, x := range a.Time32Values() {
			out[i] = int64(x) * factor
		}
		v.Data = Bytes(out)
	case *array.Time64:
		if a.DataType().(*arrow.Time64Type).Unit == arrow.Nanosecond {
			return fillTime64ns(v, a)
		}
		v.Data = fixedBytes(arr.Data(), 8)
	case *array.Duration:
		return fillDuration(v, a)
	case *array.MonthInterval:
		out := make([]arrow.MonthDayNanoInterval, a.Len())
		for i, x := range a.MonthIntervalValues() {
			out[i].Months = int32(x)
		}
		v.Data = Bytes(out)
	case *array.DayTimeInterval:
		out := make([]arrow.MonthDayNanoInterval, a.Len())
		for i, x := range a.DayTimeIntervalValues() {
			out[i].Days, out[i].Nanoseconds = x.Days, int64(x.Milliseconds)*1_000_000
		}
		v.Data = Bytes(out)
	case *array.Decimal32, *array.Decimal128, *array.Decimal256, *array.Decimal64:
		return fillDecimal(v, arr)
	case *array.Struct:
		return fillStruct(v, a)
	case array.ListLike:
		return fillList(v, a)
	default:
		w := Width(v.Type)
		if w == 0 {
			return sqlstate.New(sqlstate.FeatureNotSupported, "Arrow type %s is not supported", arr.DataType())
		}
		v.Data = fixedBytes(arr.Data(), w)
	}
	return nil
}

// fixedBytes is the data buffer of a fixed-width array, without its offset.
func fixedBytes(d arrow.ArrayData, width int) []byte {
	if d.Len() == 0 || d.Buffers()[1] == nil {
		return nil
	}
	return d.Buffers()[1].Bytes()[d.Offset()*width : (d.Offset()+d.Len())*width]
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32
}

func widen[To, From integer](in []From) []byte {
	out := make([]To, len(in))
	for i, x := range in {
		out[i] = To(x)
	}
	return Bytes(out)
}

func fillOffsets(v *Vector, d arrow.ArrayData) {
	if d.Len() == 0 || d.Buffers()[1] == nil || d.Buffers()[1].Len() == 0 {
		v.Offsets = make([]int32, v.Len+1)
		return
	}
	all := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())
	v.Offsets = all[d.Offset() : d.Offset()+d.Len()+1]
	if d.Buffers()[2] != nil {
		v.Data = d.Buffers()[2].Bytes()
	}
}

func fillLargeOffsets(v *Vector, d arrow.ArrayData) error {
	v.Offsets = make([]int32, v.Len+1)
	if d.Len() == 0 || d.Buffers()[1] == nil || d.Buffers()[1].Len() == 0 {
		return nil
	}
	all := arrow.Int64Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
	base := all[0]
	if all[d.Len()]-base > math.MaxInt32 {
		return errTooLarge()
	}
	for i, o := range all {
		v.Offsets[i] = int32(o - base)
	}
	if d.Buffers()[2] != nil {
		v.Data = d.Buffers()[2].Bytes()[base:all[d.Len()]]
	}
	return nil
}

// fillStrings copies values that a function yields; nulls become empty.
func fillStrings(v *Vector, value func(int) []byte) error {
	v.Offsets = make([]int32, v.Len+1)
	for i := range v.Len {
		if !v.IsNull(i) {
			p := value(i)
			if len(v.Data)+len(p) > math.MaxInt32 {
				return errTooLarge()
			}
			v.Data = append(v.Data, p...)
		}
		v.Offsets[i+1] = int32(len(v.Data))
	}
	return nil
}

// unsafeBytes views a string as bytes; they must not be written to.
func unsafeBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// fromDictionary keeps the codes of a text dictionary and decodes others.
func fromDictionary(a *array.Dictionary) (*Vector, error) {
	dict, err := natural(a.Dictionary())
	if err != nil {
		return nil, err
	}
	return withDictionary(a, dict, keepsCodes(dict))
}

// keepsCodes reports whether codes of a dictionary tell its values apart and can
// be kept in place of them.
func keepsCodes(dict *Vector) bool {
	id := dict.Type.ID()
	return (id == arrow.STRING || id == arrow.BINARY) && dict.Valid == nil && dict.Dict == nil && !dict.Const && distinct(dict)
}

// withDictionary is fromDictionary once the dictionary is converted and it is
// known whether to keep codes.
func withDictionary(a *array.Dictionary, dict *Vector, keep bool) (*Vector, error) {
	codes := make([]int32, a.Len())
	valid := arrowValidity(a)
	if short, ok := a.Indices().(*array.Int32); ok {
		copy(codes, short.Int32Values())
	} else {
		for i := range codes {
			if valid == nil || Bit(valid, i) {
				codes[i] = int32(a.GetValueIndex(i))
			}
		}
	}
	for i, c := range codes {
		if uint(c) < uint(dict.Len) {
			continue
		}
		if valid == nil || Bit(valid, i) {
			return nil, sqlstate.New(sqlstate.DataCorrupted, "dictionary index %d at row %d is outside the dictionary of %d values", c, i, dict.Len)
		}
		codes[i] = 0
	}
	if dict.Len == 0 {
		return NewNull(dict.Type, a.Len()), nil // no index can be valid
	}
	if !keep {
		return takeRows(dict, codes, valid)
	}
	return &Vector{Type: dict.Type, Len: a.Len(), Valid: valid, Codes: codes, Dict: dict}, nil
}

// Importer is FromRecord for the batches of one stream: a dictionary that stays
// the same from batch to batch is converted and checked once. It is used by one
// goroutine; the zero value is ready.
type Importer struct{ dicts []importedDict }

type importedDict struct {
	from arrow.ArrayData // nil for none
	to   *Vector
	keep bool
}

// FromRecord is the function of that name.
func (m *Importer) FromRecord(rec arrow.RecordBatch, schema *arrow.Schema) (*Batch, error) {
	return fromRecord(rec, schema, m.column)
}

// column is natural for a column of a record.
func (m *Importer) column(i int, arr arrow.Array) (*Vector, error) {
	a, ok := arr.(*array.Dictionary)
	if !ok {
		return natural(arr)
	}
	for len(m.dicts) <= i {
		m.dicts = append(m.dicts, importedDict{})
	}
	known := &m.dicts[i]
	if from := a.Data().Dictionary(); known.from != from {
		dict, err := natural(a.Dictionary())
		if err != nil {
			return nil, err
		}
		*known = importedDict{from: from, to: dict, keep: keepsCodes(dict)}
	}
	return withDictionary(a, known.to, known.keep)
}

// distinct reports whether no entry of a plain text vector repeats.
func distinct(dict *Vector) bool {
	seen := make(map[string]struct{}, dict.Len)
	for i := range dict.Len {
		seen[string(dict.BytesAt(i))] = struct{}{}
	}
	return len(seen) == dict.Len
}

// takeRows gathers rows and clears those that the outer bitmap calls null.
func takeRows(values *Vector, rows []int32, valid []byte) (*Vector, error) {
	v := Gather(values, rows, nil)
	if v.Const {
		flat, err := v.Flatten()
		if err != nil {
			return nil, err
		}
		v = flat
	}
	switch {
	case valid == nil:
	case v.Valid == nil:
		v.Valid = valid
	default:
		v.Valid = AndBitmaps(v.Valid, v.Valid, valid, v.Len)
	}
	return v, nil
}

func fromRunEnds(a *array.RunEndEncoded) (*Vector, error) {
	values, err := natural(a.Values())
	if err != nil {
		return nil, err
	}
	rows := make([]int32, a.Len())
	offset := a.Offset()
	run := a.GetPhysicalOffset()
	ends := a.RunEndsArr()
	for i := range rows {
		for run < ends.Len() && runEnd(ends, run) <= int64(offset+i) {
			run++
		}
		if run >= values.Len {
			return nil, sqlstate.New(sqlstate.DataCorrupted, "run ends stop before row %d", i)
		}
		rows[i] = int32(run)
	}
	return takeRows(values, rows, nil)
}

func runEnd(ends arrow.Array, i int) int64 {
	switch e := ends.(type) {
	case *array.Int16:
		return int64(e.Value(i))
	case *array.Int32:
		return int64(e.Value(i))
	case *array.Int64:
		return e.Value(i)
	}
	return math.MaxInt64
}
