package columnar

import (
	"bytes"
	"math"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"skein/sqlstate"
)

const dayMillis = 24 * 60 * 60 * 1000

func fillDate64(v *Vector, a *array.Date64) error {
	out := make([]int32, a.Len())
	for i, x := range a.Date64Values() {
		if a.IsNull(i) {
			continue
		}
		days := int64(x) / dayMillis
		if int64(x)%dayMillis != 0 || days != int64(int32(days)) {
			return sqlstate.New(sqlstate.DatetimeOverflow, "date64 value %d at row %d is not a whole day in range", int64(x), i)
		}
		out[i] = int32(days)
	}
	v.Data = Bytes(out)
	return nil
}

func fillTime64ns(v *Vector, a *array.Time64) error {
	out := make([]int64, a.Len())
	for i, x := range a.Time64Values() {
		if a.IsNull(i) {
			continue
		}
		if x%1000 != 0 {
			return sqlstate.New(sqlstate.DatetimeOverflow, "time %d ns at row %d is finer than a microsecond", int64(x), i)
		}
		out[i] = int64(x) / 1000
	}
	v.Data = Bytes(out)
	return nil
}

func fillDuration(v *Vector, a *array.Duration) error {
	factor := unitNanos(a.DataType().(*arrow.DurationType).Unit)
	out := make([]arrow.MonthDayNanoInterval, a.Len())
	for i, x := range a.DurationValues() {
		if a.IsNull(i) {
			continue
		}
		n := int64(x) * factor
		if n/factor != int64(x) {
			return sqlstate.New(sqlstate.DatetimeOverflow, "duration %d at row %d is out of range", int64(x), i)
		}
		out[i].Nanoseconds = n
	}
	v.Data = Bytes(out)
	return nil
}

func unitNanos(u arrow.TimeUnit) int64 {
	switch u {
	case arrow.Second:
		return 1_000_000_000
	case arrow.Millisecond:
		return 1_000_000
	case arrow.Microsecond:
		return 1_000
	}
	return 1
}

func fillDecimal(v *Vector, arr arrow.Array) error {
	short := v.Type.ID() == arrow.DECIMAL64
	switch a := arr.(type) {
	case *array.Decimal32:
		out := make([]int64, a.Len())
		for i := range out {
			out[i] = int64(a.Value(i))
		}
		v.Data = Bytes(out)
	case *array.Decimal64:
		if short {
			v.Data = fixedBytes(arr.Data(), 8)
			return nil
		}
		out := make([]decimal128.Num, a.Len())
		for i := range out {
			out[i] = decimal128.FromI64(int64(a.Value(i)))
		}
		v.Data = Bytes(out)
	case *array.Decimal128:
		wide := &Vector{Type: v.Type, Len: v.Len, Valid: v.Valid, Data: fixedBytes(arr.Data(), 16)}
		if !short {
			v.Data = wide.Data
			return nil
		}
		return narrowDecimal(v, wide)
	case *array.Decimal256:
		wide := make([]decimal128.Num, a.Len())
		for i := range wide {
			if a.IsNull(i) {
				continue
			}
			x := a.Value(i).BigInt()
			if new(big.Int).Abs(x).Cmp(maxDecimal128) > 0 {
				return sqlstate.New(sqlstate.NumericOutOfRange, "decimal256 value %s at row %d has more than 38 digits", x, i)
			}
			wide[i] = decimal128.FromBigInt(x)
		}
		if !short {
			v.Data = Bytes(wide)
			return nil
		}
		return narrowDecimal(v, &Vector{Len: v.Len, Valid: v.Valid, Data: Bytes(wide)})
	}
	return nil
}

// maxDecimal128 is 10^38 - 1; it is never written to.
var maxDecimal128 = new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil), big.NewInt(1))

// narrowDecimal sets v.Data to wide's 128-bit values as 64-bit ones.
func narrowDecimal(v, wide *Vector) error {
	in := Values[decimal128.Num](wide)
	out := make([]int64, len(in))
	for i, x := range in {
		out[i] = int64(x.LowBits())
		if x.HighBits() != out[i]>>63 && !wide.IsNull(i) {
			return sqlstate.New(sqlstate.NumericOutOfRange, "decimal value %s at row %d does not fit %s", x.BigInt(), i, v.Type)
		}
	}
	v.Data = Bytes(out)
	return nil
}

func fillStruct(v *Vector, a *array.Struct) error {
	for i := range a.NumField() {
		c, err := natural(a.Field(i))
		if err != nil {
			return err
		}
		v.Children = append(v.Children, c)
	}
	return nil
}

// fillList copies the element positions and converts the elements they span.
func fillList(v *Vector, a array.ListLike) error {
	values, err := natural(a.ListValues())
	if err != nil {
		return err
	}
	v.Offsets = make([]int32, v.Len+1)
	var rows []int32
	for i := range v.Len {
		if !a.IsNull(i) {
			from, to := a.ValueOffsets(i)
			if len(rows)+int(to-from) > math.MaxInt32 {
				return errTooLarge()
			}
			for j := from; j < to; j++ {
				rows = append(rows, int32(j))
			}
		}
		v.Offsets[i+1] = int32(len(rows))
	}
	elements, err := takeRows(values, rows, nil)
	if err != nil {
		return err
	}
	v.Children = []*Vector{elements}
	return nil
}

// represent changes how the values of a natural vector are held, within one
// family of types and without loss.
func represent(v *Vector, want arrow.DataType) (*Vector, error) {
	if v.Type.ID() == arrow.NULL {
		return NewNull(want, v.Len), nil
	}
	mismatch := sqlstate.New(sqlstate.DatatypeMismatch, "expected type %s but got %s", want, v.Type)
	switch w := want.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return representInt(v, want, mismatch)
	case *arrow.Float64Type:
		if v.Type.ID() != arrow.FLOAT32 {
			return nil, mismatch
		}
		out := make([]float64, v.Len)
		for i, x := range Values[float32](v) {
			out[i] = float64(x)
		}
		return &Vector{Type: want, Len: v.Len, Valid: v.Valid, Data: Bytes(out)}, nil
	case *arrow.Decimal64Type:
		return representDecimal(v, w, w.Precision, w.Scale, mismatch)
	case *arrow.Decimal128Type:
		return representDecimal(v, w, w.Precision, w.Scale, mismatch)
	case *arrow.TimestampType:
		return representTimestamp(v, w, mismatch)
	case *arrow.BinaryType:
		if v.Type.ID() == arrow.FIXED_SIZE_BINARY {
			out := &Vector{Type: want, Len: v.Len, Valid: v.Valid}
			return out, fillStrings(out, func(i int) []byte { return v.Data[i*16 : i*16+16] })
		}
	case *arrow.ListType:
		return representList(v, w, mismatch)
	case *arrow.StructType:
		return representStruct(v, w, mismatch)
	}
	return nil, mismatch
}

// integers widens an integer vector, or reports false for another type.
func integers(v *Vector) ([]int64, bool) {
	out := make([]int64, v.Len)
	switch v.Type.ID() {
	case arrow.INT16:
		for i, x := range Values[int16](v) {
			out[i] = int64(x)
		}
	case arrow.INT32:
		for i, x := range Values[int32](v) {
			out[i] = int64(x)
		}
	case arrow.INT64:
		copy(out, Values[int64](v))
	case arrow.DECIMAL128: // from uint64 only
		for i, x := range Values[word128](v) {
			if (x.b != 0 || x.a > math.MaxInt64) && !v.IsNull(i) {
				return nil, false
			}
			out[i] = int64(x.a)
		}
	default:
		return nil, false
	}
	return out, true
}

func representInt(v *Vector, want arrow.DataType, mismatch error) (*Vector, error) {
	if d, ok := v.Type.(*arrow.Decimal128Type); ok && (d.Precision != 20 || d.Scale != 0) {
		return nil, mismatch
	}
	wide, ok := integers(v)
	if !ok {
		if v.Type.ID() == arrow.DECIMAL128 {
			return nil, sqlstate.New(sqlstate.NumericOutOfRange, "an unsigned value is above the range of %s", want)
		}
		return nil, mismatch
	}
	out := &Vector{Type: want, Len: v.Len, Valid: v.Valid}
	limit := int64(math.MaxInt64)
	switch want.ID() {
	case arrow.INT16:
		limit, out.Data = math.MaxInt16, truncate[int16](wide)
	case arrow.INT32:
		limit, out.Data = math.MaxInt32, truncate[int32](wide)
	default:
		out.Data = Bytes(wide)
	}
	for i, x := range wide {
		if (x > limit || x < -limit-1) && !v.IsNull(i) {
			return nil, sqlstate.New(sqlstate.NumericOutOfRange, "value %d at row %d is out of range for %s", x, i, want)
		}
	}
	return out, nil
}

func truncate[T integer](wide []int64) []byte {
	out := make([]T, len(wide))
	for i, x := range wide {
		out[i] = T(x)
	}
	return Bytes(out)
}

func decimalOf(dt arrow.DataType) (precision, scale int32, ok bool) {
	switch t := dt.(type) {
	case *arrow.Decimal64Type:
		return t.Precision, t.Scale, true
	case *arrow.Decimal128Type:
		return t.Precision, t.Scale, true
	}
	return 0, 0, false
}

func representDecimal(v *Vector, want arrow.DataType, precision, scale int32, mismatch error) (*Vector, error) {
	p, s, ok := decimalOf(v.Type)
	if !ok || s != scale {
		return nil, mismatch
	}
	out := &Vector{Type: want, Len: v.Len, Valid: v.Valid}
	var wide []decimal128.Num
	if v.Type.ID() == arrow.DECIMAL64 {
		wide = make([]decimal128.Num, v.Len)
		for i, x := range Values[int64](v) {
			wide[i] = decimal128.FromI64(x)
		}
	} else {
		wide = Values[decimal128.Num](v)
	}
	if p > precision {
		for i, x := range wide {
			if !v.IsNull(i) && !x.FitsInPrecision(precision) {
				return nil, sqlstate.New(sqlstate.NumericOutOfRange, "value %s at row %d does not fit %s", x.ToString(scale), i, want)
			}
		}
	}
	if want.ID() == arrow.DECIMAL128 {
		out.Data = Bytes(wide)
		return out, nil
	}
	return out, narrowDecimal(out, &Vector{Len: v.Len, Valid: v.Valid, Data: Bytes(wide)})
}

func representTimestamp(v *Vector, want *arrow.TimestampType, mismatch error) (*Vector, error) {
	t, ok := v.Type.(*arrow.TimestampType)
	if !ok || (t.TimeZone == "") != (want.TimeZone == "") {
		return nil, mismatch
	}
	from, to := unitNanos(t.Unit), unitNanos(want.Unit)
	out := make([]int64, v.Len)
	for i, x := range Values[int64](v) {
		y := x * max(from/to, 1) / max(to/from, 1)
		if y*max(to/from, 1)/max(from/to, 1) != x && !v.IsNull(i) {
			return nil, sqlstate.New(sqlstate.DatetimeOverflow, "timestamp %d of %s at row %d cannot be held as %s without loss", x, t, i, want)
		}
		out[i] = y
	}
	return &Vector{Type: want, Len: v.Len, Valid: v.Valid, Data: Bytes(out)}, nil
}

func representList(v *Vector, want *arrow.ListType, mismatch error) (*Vector, error) {
	if v.Type.ID() != arrow.LIST {
		return nil, mismatch
	}
	out := *v
	out.Type = want
	if !arrow.TypeEqual(v.Children[0].Type, want.Elem()) {
		c, err := represent(v.Children[0], want.Elem())
		if err != nil {
			return nil, err
		}
		out.Children = []*Vector{c}
	}
	return &out, nil
}

func representStruct(v *Vector, want *arrow.StructType, mismatch error) (*Vector, error) {
	t, ok := v.Type.(*arrow.StructType)
	if !ok || t.NumFields() != want.NumFields() {
		return nil, mismatch
	}
	out := *v
	out.Type = want
	out.Children = make([]*Vector, len(v.Children))
	for i, c := range v.Children {
		f := want.Field(i)
		if t.Field(i).Name != f.Name {
			return nil, mismatch
		}
		out.Children[i] = c
		if !arrow.TypeEqual(c.Type, f.Type) {
			r, err := represent(c, f.Type)
			if err != nil {
				return nil, err
			}
			out.Children[i] = r
		}
	}
	return &out, nil
}

// CheckUTF8 fails with SQLSTATE 22021, naming the row, when a non-null value of
// a utf8 vector is not valid UTF-8 or holds a NUL character, which text cannot.
func CheckUTF8(v *Vector) error {
	if v.Type.ID() != arrow.STRING {
		return nil
	}
	if v.Dict != nil {
		return CheckUTF8(v.Dict)
	}
	n := v.Len
	if v.Const {
		n = min(n, 1)
	}
	for i := range n {
		if v.IsNull(i) {
			continue
		}
		p := v.BytesAt(i)
		if !utf8.Valid(p) || bytes.IndexByte(p, 0) >= 0 {
			return sqlstate.New(sqlstate.InvalidByteSequence, "row %d holds text with %s: %.40q", i, invalidText(p), p)
		}
	}
	return nil
}

// invalidText says what CheckUTF8 has against a value.
func invalidText(p []byte) string {
	if utf8.Valid(p) {
		return "a NUL character, which text cannot have"
	}
	return "bytes that are not valid UTF-8"
}

// maxTime is 24:00:00, the latest time of day, in microseconds.
const maxTime = 24 * 60 * 60 * 1_000_000

// CheckTime fails with SQLSTATE 22008, naming the row, when a non-null value of
// a time64[us] vector is no time of day.
func CheckTime(v *Vector) error {
	if v.Type.ID() != arrow.TIME64 {
		return nil
	}
	for i, x := range Values[int64](v) {
		if (x < 0 || x > maxTime) && !v.IsNull(i) {
			return sqlstate.New(sqlstate.DatetimeOverflow, "row %d holds %d us, which is no time of day", i, x)
		}
	}
	return nil
}
